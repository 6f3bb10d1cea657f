"""A process that is started again whenever it ends, as a service manager does, until it is not wanted any more."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil


class Kept:
    """Its output goes to one file through all of its lives."""

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], folder: Path, pause: float = 0.2
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.lives = 0
        self._argv = argv
        self._env = env
        self._folder = folder
        self._pause = pause
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to keep it."""
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Kills it for good."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._process is not None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            await self._process.wait()

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    def signal(self, number: int) -> bool:
        """Whether there was one to send it to."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, number)
                return True
        return False

    def children(self) -> list[psutil.Process]:
        """All that it started, and they."""
        with contextlib.suppress(psutil.Error):
            if self.pid:
                return psutil.Process(self.pid).children(recursive=True)
        return []

    async def frozen(self, seconds: float) -> bool:
        """Stopped for so long, and woken. False where there is none."""
        if not self.signal(signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(seconds)
        finally:
            self.signal(signal.SIGCONT)
        return True

    async def _keep(self) -> None:
        while True:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self._argv, env=self._env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    cwd=self._folder,
                )  # fmt: skip
            self.lives += 1
            await self._process.wait()
            await asyncio.sleep(self._pause)
