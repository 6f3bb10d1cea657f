"""A runner beside the server of `dev`: a process of its own that is started again when it ends, and dies with us.

It is the client's console script: the server never imports the client.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
# A child that lived for this long had started well.
STEADY = 10.0
# What its Runs get to finish when we stop; what does not finish is given back, and goes on at the next start.
DRAIN_SECONDS = 2
PATIENCE = 5.0

# Becomes the runner, after it asked Linux to kill it when the parent dies, however that dies. PR_SET_PDEATHSIG is 1.
LAUNCH = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == parent:
    os.execv(command[0], command)
"""


def console_script() -> Path | None:
    """The `turnlog` of this Python, or the first one on the path."""
    beside = Path(sys.executable).with_name("turnlog")
    found = str(beside) if beside.is_file() else shutil.which("turnlog")
    return Path(found) if found else None


class RunnerChild:
    """harnesses: harness profile to the command that serves it."""

    def __init__(self, script: Path, profile: Path, key_file: Path, folder: Path, harnesses: Mapping[str, str]) -> None:
        serving = [part for name, line in harnesses.items() for part in ("--harness", f"{name}={line}")]
        self._argv = [
            *(str(script), "--profile", str(profile), "runner", "start", "--key-file", str(key_file)),
            *("--data-dir", str(folder), "--drain-grace", f"{DRAIN_SECONDS}s", *serving),
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins, and goes on until `stop`."""
        self._task = asyncio.create_task(self._keep(), name="keep the runner")

    async def stop(self) -> None:
        """Lets it give back its Runs, for a moment, and ends it."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except (TimeoutError, asyncio.CancelledError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while True:
            began = loop.time()
            self._process = process = await self._spawn()
            code = await process.wait()
            if loop.time() - began > STEADY:
                pause = FIRST_PAUSE
            log.warning("the runner ended and is started again", exit_code=code)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(MAX_PAUSE, pause * 2)

    async def _spawn(self) -> asyncio.subprocess.Process:
        # Without our settings; what the runner needs it is told. In a session of its own, so that Ctrl-C reaches us
        # alone and the order of stopping is ours.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LAUNCH, str(os.getpid()), *self._argv),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=environment,
        )
