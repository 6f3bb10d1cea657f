"""The process between a runner and a harness on Linux: it makes sure that nothing of the harness outlives its attempt.

Run as a script, with the standard library only and no site packages, so that it starts in a few milliseconds:

    python -I -S keeper.py LIFELINE -- COMMAND...

It is a child subreaper: whatever the harness starts, daemonised, in a session of its own, or with an environment wiped
clean, stays its descendant. When the harness ends, or LIFELINE (a pipe that the runner holds open) ends because the
runner died, even by SIGKILL, it kills all of them and ends the way the harness ended.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127


def main(arguments: list[str]) -> None:
    lifeline = int(arguments[0])
    command = arguments[2:]
    # Without it the keeper still knows what has not been orphaned, and the runner knows the rest by its mark.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wakeups = _wake_on_signals()
    harness = _start(command, lifeline)
    # The harness's pipes must end when the harness's tree ends, so the keeper may not hold them open.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    status = None
    while status is None:
        readable, _, _ = select.select([lifeline, wakeups], [], [])
        if lifeline in readable or _told_to_stop(wakeups, readable):
            break
        status = _reap().get(harness)
    _end_as(_kill_all(harness, status, wakeups))


def _wake_on_signals() -> int:
    """A descriptor that becomes readable when a child ends, or when the keeper itself is asked to end."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return reader


def _told_to_stop(wakeups: int, readable: list[int]) -> bool:
    if wakeups not in readable:
        return False
    return any(number in (signal.SIGTERM, signal.SIGINT) for number in os.read(wakeups, 4096))


def _start(command: list[str], lifeline: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.close(lifeline)
        # A session of its own: a harness that signals its process group does not hit its keeper.
        os.setsid()
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _reap() -> dict[int, int]:
    """Wait statuses of the children that have ended."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def _kill_all(harness: int, status: int | None, wakeups: int) -> int | None:
    """Kills until no descendant is left. Gives the harness's wait status, None if the keeper never saw it end."""
    while True:
        # Several rounds: one that forks while the list is read is caught in the next.
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        status = _reap().get(harness, status)
        if not _has_children():
            return status
        # Woken by a child's end, not by the clock; the clock is for one that appeared after the list was read.
        if select.select([wakeups], [], [], 0.01)[0]:
            os.read(wakeups, 4096)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                # The command's name stands in parentheses and may hold anything, parentheses too.
                parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found = {os.getpid()}
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found |= new
        grown = bool(new)
    return list(found - {os.getpid()})


def _end_as(status: int | None) -> None:
    """Ends with the harness's exit code, or by its signal, so that the runner sees the one for the other."""
    if status is None:
        os._exit(_NOT_STARTED)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # The core dump, if there is one, is the harness's.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1:])
