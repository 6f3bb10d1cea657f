"""Runs the real `turnlog` program as a process of its own, on pipes or on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripted import ScriptedServer

PROGRAM = str(Path(sys.executable).parent / "turnlog")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int | None
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """stdout, each line parsed as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The last line of stderr as the JSON object of an error."""
        return json.loads(self.err.splitlines()[-1])["error"]


def environment(server: ScriptedServer | None, **more: str) -> dict[str, str]:
    """A clean environment in which the server is found."""
    base = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", "TERM": "xterm"}
    found = {"TURNLOG_ADDRESS": server.address, "TURNLOG_KEY": "tlk_test"} if server else {}
    return {**base, **found, **more}


async def start(
    server: ScriptedServer | None, *arguments: str, cwd: Path | None = None, **env: str
) -> asyncio.subprocess.Process:
    """Starts a command on pipes."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        PROGRAM, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, cwd=cwd, env=environment(server, **env)
    )


async def turnlog(
    server: ScriptedServer | None, *arguments: str, stdin: str = "", cwd: Path | None = None, **env: str
) -> Done:
    """Runs a command to its end."""
    return await finish(await start(server, *arguments, cwd=cwd, **env), stdin)


async def finish(process: asyncio.subprocess.Process, stdin: str = "") -> Done:
    """Waits for the end of a command."""
    out, err = await process.communicate(stdin.encode())
    return Done(process.returncode, out.decode(), err.decode())


async def on_terminal(server: ScriptedServer, *arguments: str, typed: str = "", **env: str) -> str:
    """Runs a command with its stdout on a terminal and answers what was written there.

    typed: what is typed there before the command asks; its stdin is the terminal then, else empty.
    """
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *arguments,
        stdin=theirs if typed else asyncio.subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(server, **env),
    )
    os.close(theirs)
    reading = asyncio.create_task(asyncio.to_thread(_read_all, ours))
    try:
        async with asyncio.timeout(60):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    return await reading


def _read_all(descriptor: int) -> str:
    found = b""
    try:
        while data := os.read(descriptor, 65536):
            found += data
    except OSError:
        pass  # Linux answers EIO when the other side is closed.
    finally:
        os.close(descriptor)
    return found.decode()
