"""`turnlog runner start` as a process of its own."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

PROGRAM = str(Path(sys.executable).parent / "turnlog")

UNTIL_FREED = [
    sys.executable,
    "-c",
    """
import json, pathlib, sys
def put(**message):
    print(json.dumps(message), flush=True)
start = json.loads(sys.stdin.readline())
put(type="ready", protocol=1)
put(type="event", event_type="agent.message", payload={"parts": [{"text": "working"}]})
with open(sys.argv[1]) as pipe:
    pipe.read()
put(type="settle", outcome="succeeded")
""",
]
"""A harness that works until somebody writes to the named pipe that is its argument."""


async def start_runner(
    address: str, key: str, folder: Path, harness: str, *arguments: str
) -> asyncio.subprocess.Process:
    """Starts one; its log goes to `runner.log` in the folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
    with _log(folder) as log:
        return await asyncio.create_subprocess_exec(
            PROGRAM, "--address", address, "--json", "runner", "start", "--harness", harness,
            "--data-dir", str(folder), *arguments,
            env=clean | {"TURNLOG_KEY": key}, stderr=log, stdout=log, cwd=folder,
        )  # fmt: skip


def _log(folder: Path) -> IO[bytes]:
    folder.mkdir(exist_ok=True)
    return (folder / "runner.log").open("ab")


@asynccontextmanager
async def real_runner(
    address: str, key: str, folder: Path, harness: str, *arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """One that is gone afterwards, however the test went."""
    process = await start_runner(address, key, folder, harness, *arguments)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def waiting_harness(profile: str, pipe: Path) -> str:
    """The `--harness` of one that works until the pipe is written to."""
    os.mkfifo(pipe)
    return f"{profile}={shlex.join([*UNTIL_FREED, str(pipe)])}"


async def free(pipe: Path) -> None:
    """Lets the harness end."""
    await asyncio.to_thread(pipe.write_text, "go")
