"""Processes that we start as another user, and processes that somebody before us left behind."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

_PATIENCE_FAST = 60.0
_PATIENCE_QUIT = 10.0
_PATIENCE_TOOL = 2.0
_POLL = 0.02


class EmbeddedError(Exception):
    """The embedded database cannot run: the message says what is wrong and what to do next."""


@dataclass(frozen=True, slots=True)
class Account:
    """The user that PostgreSQL runs as, when that is not ourselves."""

    name: str
    uid: int
    gid: int

    def give(self, folder: Path) -> None:
        """By handle: root must not be led by a link to give away something else."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            os.fchown(handle, self.uid, self.gid)
        finally:
            os.close(handle)


def account_unprivileged() -> Account:
    """Whom root runs PostgreSQL as: an existing user, since making one is for the operator to decide."""
    import pwd

    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it as. "
        "Create one of them, or start the server as an ordinary user."
    )


def account_of(uid: int, gid: int) -> Account:
    return Account(user_shown(uid), uid, gid)


def user_name(uid: int) -> str | None:
    """None in a container that runs as a bare number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def user_shown(uid: int) -> str:
    return user_name(uid) or f"uid {uid}"


class Child:
    """One process of ours, in a session of its own so that Ctrl-C reaches us alone.

    Not asyncio's own subprocess: uvloop's knows no `user`, and changing it in a `preexec_fn` runs Python between fork
    and exec, which can deadlock beside gRPC's threads.
    """

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        # A daemon: a server that ends without stop() must not hang on its database.
        threading.Thread(target=self._watch, name=f"wait-{popen.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return not self._ended.done()

    async def wait(self, timeout: float | None = None) -> int | None:
        """The exit code (negative for a signal), or None when the timeout came first."""
        await asyncio.wait([self._ended], timeout=timeout)
        return self._ended.result() if self._ended.done() else None

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def kill_all(self) -> None:
        """End it and whatever it has started. Asked first: a killed initdb leaves shared memory that nobody frees."""
        for number, patience in ((signal.SIGTERM, _PATIENCE_TOOL), (signal.SIGKILL, None)):
            if self.running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)
                await self.wait(patience)

    async def shut_down(self) -> None:
        """PostgreSQL's own order: fast, then immediate (the next start recovers), then none of its choosing."""
        for number, patience in (
            (signal.SIGINT, _PATIENCE_FAST),
            (signal.SIGQUIT, _PATIENCE_QUIT),
            (signal.SIGKILL, None),
        ):
            self.signal(number)
            if await self.wait(patience) is not None:
                return

    def _watch(self) -> None:
        code = self._popen.wait()
        # Once the loop has closed, nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set_result, code)


def spawn(argv: Sequence[str], account: Account | None, *, stdin: IO[bytes] | None, output: IO[bytes] | int) -> Child:
    try:
        popen = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",  # ours may be a folder that the other user cannot enter
            env=_environment(),
            start_new_session=True,
            umask=0o077,
            user=None if account is None else account.uid,
            group=None if account is None else account.gid,
            extra_groups=None if account is None else [],
        )
    except OSError as error:
        whom = "" if account is None else f" as user {account.name}"
        raise EmbeddedError(
            f"Cannot run {argv[0]}{whom}: {error.strerror}. "
            "Start the server as an ordinary user, or give it a PostgreSQL with --database-url."
        ) from error
    return Child(popen)


async def run(argv: Sequence[str], account: Account | None, *, stdin: bytes = b"") -> tuple[int, str]:
    """Run a tool to its end: its exit code and all that it said.

    Files instead of pipes: a grandchild that outlives the tool would keep a pipe open, and us waiting.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as sink:
        source.write(stdin)
        source.seek(0)
        child = spawn(argv, account, stdin=source, output=sink)
        try:
            code = await child.wait()
        except BaseException:
            await child.kill_all()
            raise
        sink.seek(0)
        return code or 0, sink.read().decode(errors="replace").strip()


async def reaches(account: Account | None, folder: Path) -> bool:
    """Whether the user can enter the folder. Asked of the kernel: modes alone would not know of ACLs and mounts."""
    if account is None:
        return True
    code, _ = await run(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)], account)
    return code == 0


def postgres_in(folder: Path) -> list[psutil.Process]:
    """Every PostgreSQL process that works on this data folder, known by its working directory.

    Not by a pid on file: after a reboot, or in another container, that number belongs to a stranger.
    """

    def works_here(process: psutil.Process) -> bool:
        return process.name() in ("postgres", "postmaster") and os.path.samefile(process.cwd(), folder)

    return _processes(works_here)


def initdb_into(folder: Path) -> list[psutil.Process]:
    """An initdb that still fills this folder, and its children."""
    found = _processes(lambda process: process.name() == "initdb" and str(folder) in process.cmdline())
    for process in list(found):
        try:
            found.extend(process.children(recursive=True))
        except psutil.Error:
            continue
    return found + postgres_in(folder)


async def stop_orphan(folder: Path, postmaster_pid: int) -> None:
    """Stop the PostgreSQL that a killed supervisor left running in its folder. The caller holds the lock."""
    left = postgres_in(folder)
    head = [process for process in left if process.pid == postmaster_pid]
    # Backends of a postmaster that was killed hold its shared memory, and a new one refuses to start beside them.
    steps = [(signal.SIGINT, _PATIENCE_FAST)] if head else []
    steps += [(signal.SIGQUIT, _PATIENCE_QUIT), (signal.SIGKILL, _PATIENCE_QUIT)]
    for number, patience in steps:
        _signal(left if number == signal.SIGKILL else head or left, number)
        if await all_gone(left, patience):
            return
    pids = ", ".join(str(process.pid) for process in left if process.is_running())
    raise EmbeddedError(
        f"A former PostgreSQL still uses {folder} and does not end: end process {pids}, then start again."
    )


async def kill(processes: Iterable[psutil.Process]) -> None:
    left = list(processes)
    _signal(left, signal.SIGKILL)
    await all_gone(left, _PATIENCE_QUIT)


async def all_gone(processes: Sequence[psutil.Process], patience: float) -> bool:
    """They are not our children, so nothing tells us: look, until they have gone."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while any(_alive(process) for process in processes):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_POLL)
    return True


def _alive(process: psutil.Process) -> bool:
    try:
        # Where nothing reaps orphans, such as a container without an init, a zombie stays for ever; it holds nothing.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied as error:
            raise EmbeddedError(
                f"Process {process.pid} of another user already runs PostgreSQL on this data folder: stop it first."
            ) from error


def _processes(wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if wanted(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # it has ended, or it is another user's: PostgreSQL works only in a folder of its own user
    return found


def _environment() -> dict[str, str]:
    """Little: PG… variables would change what initdb makes, and another user has no business with our secrets."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "NIX_LD", "NIX_LD_LIBRARY_PATH")
    return {"LC_ALL": "C"} | {name: os.environ[name] for name in kept if name in os.environ}
