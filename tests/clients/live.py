"""A real `turnlog-server dev`, with its runner, for tests that need one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

READY = "Turnlog is ready on "


@dataclass(frozen=True)
class LiveServer:
    """Where it is, and the folder whose `.turnlog` has its profile."""

    address: str
    folder: Path
    process: asyncio.subprocess.Process

    @property
    def profile(self) -> Path:
        """The profile that it wrote."""
        return self.folder / ".turnlog" / "profile.json"


@asynccontextmanager
async def live_server(folder: Path, *arguments: str, listen: str = "127.0.0.1:0") -> AsyncIterator[LiveServer]:
    """Runs it in `folder` until the block ends; SIGTERM then drains it, unless the test killed it."""
    program = str(Path(sys.executable).parent / "turnlog-server")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TURNLOG_")}
    with (folder / "server.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            program, "dev", "--with-runner", "--listen", listen, "--no-embedded-fsync", *arguments,
            cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=log,
        )  # fmt: skip
        try:
            yield LiveServer(await _ready(process, folder), folder, process)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()


async def _ready(process: asyncio.subprocess.Process, folder: Path) -> str:
    assert process.stdout
    async with asyncio.timeout(60):
        async for line in process.stdout:
            text = line.decode()
            if text.startswith(READY):
                return text.removeprefix(READY).split()[0]
    raise AssertionError("the server ended: " + (folder / "server.log").read_text()[-2000:])
