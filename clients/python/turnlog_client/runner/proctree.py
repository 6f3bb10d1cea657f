"""Finds and ends processes of harnesses by the mark that they carry in their environment.

Descent alone does not find them all: a child that is orphaned belongs to someone else. The environment goes with it.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping

import psutil

RUNNER = "TURNLOG_RUNNER"
"""The runner's id."""

ATTEMPT = "TURNLOG_ATTEMPT"
"""The attempt, as the runner names it. For people; forks of a Session share Run ids, so it need not be unique."""

SPAWN = "TURNLOG_SPAWN"
"""A random text, one for each harness process started."""

_PATIENCE = 10.0
_POLL = 0.01


def marked(key: str, value: str) -> list[psutil.Process]:
    """Live processes whose environment has `key=value`, and all that descend from them.

    As far as this user may read environments, and never this process or its parents.
    """
    mine = _me_and_parents()
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        if process.pid in mine:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(key) == value and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    # One that wiped its environment is still found as long as its parent lives.
    below = {child.pid: child for process in found for child in _descendants(process)}
    return [*found, *(child for pid, child in below.items() if pid not in mine and child not in found)]


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [each for each in process.children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]
    return []


def signal_all(processes: Iterable[psutil.Process], number: int) -> None:
    """Sends a signal to each that still is the process it was."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def kill_all(find: Callable[[], list[psutil.Process]], patience: float = _PATIENCE) -> tuple[int, list[int]]:
    """SIGKILLs what `find` gives until it gives nothing.

    Returns how many were killed, and the pids that were still there after `patience` seconds: no signal ends a process
    that hangs in a device.
    """
    killed: dict[int, psutil.Process] = {}
    until = time.monotonic() + patience
    # One that is dying has no environment any more to be found by, and still is there.
    while processes := [*{each.pid: each for each in (*filter(_lives, killed.values()), *find())}.values()]:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed[process.pid] = process
        if time.monotonic() > until:
            return len(killed), [process.pid for process in processes]
        # A process that is not our child gives no sign when it ends.
        psutil.wait_procs(processes, timeout=_POLL)
    return len(killed), []


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


async def kill_leftovers(runner_id: str) -> int:
    """Kills what an earlier life of this runner left behind, and returns how many processes that were.

    Call it before the first harness is started: by the mark alone it cannot tell this life's harnesses from another's.
    """
    killed, stuck = await asyncio.to_thread(kill_all, lambda: marked(RUNNER, runner_id))
    if stuck:
        raise TimeoutError(f"Processes {stuck} of an earlier life of runner {runner_id} cannot be killed.")
    return killed


def harness_environment(base: Mapping[str, str] = os.environ, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment for a harness: `base` without anything of Turnlog's own, then `extra`.

    What the runner is configured with, its key above all, is nothing that a harness may read.
    """
    return {key: value for key, value in base.items() if not key.startswith("TURNLOG_")} | dict(extra or {})


def _me_and_parents() -> set[int]:
    # A runner may itself run inside a harness, and then carries its mark.
    me = psutil.Process()
    pids = {me.pid}
    with contextlib.suppress(psutil.Error):
        pids |= {parent.pid for parent in me.parents()}
    return pids
