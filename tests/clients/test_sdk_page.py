"""docs/sdk.md, run from its first line to its last against a real server with TLS."""

import ast
import asyncio
import os
import re
import shlex
import sys
from inspect import CO_COROUTINE
from pathlib import Path
from string import Template
from typing import Any

import pytest
from live import LiveServer, live_server
from support.certificates import Authority
from turnlog_client import Turnlog

PAGE = Path(__file__).parents[2] / "docs" / "sdk.md"
BLOCK = re.compile(r"^```(python|console)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = PAGE.read_text()
# Kind, file, content, and how many lines are above it.
BLOCKS = [(*found.groups(), TEXT[: found.start()].count("\n") + 1) for found in BLOCK.finditer(TEXT)]
PROGRAMS = Path(sys.executable).parent


class Reader:
    """Somebody who types what the page says, in the folder of the server."""

    def __init__(self, server: LiveServer, t: Turnlog) -> None:
        self._server = server
        self.names: dict[str, Any] = {"t": t, "Turnlog": Turnlog}
        self.started: list[asyncio.subprocess.Process] = []

    async def types(self, kind: str, name: str | None, text: str, line: int) -> None:
        if kind == "console":
            await self._console(text.removeprefix("$ ").strip())
        elif name:
            (self._server.folder / name).write_text(text)
            if "asyncio.run" in text:
                await self._program(name)
        else:
            await self._piece(text, line)

    async def _piece(self, text: str, line: int) -> None:
        code = compile("\n" * line + text, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, self.names)
        if code.co_flags & CO_COROUTINE:
            async with asyncio.timeout(60):
                await made

    async def _program(self, name: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, name, cwd=self._server.folder, env=self._environment(), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert b"session.status_idle" in said

    async def _console(self, line: str) -> None:
        """A program that goes on until the page is read."""
        known = {"RUNNER_KEY": self.names["runner_key"], "ADDRESS": self._server.address, "PWD": self._server.folder}
        variable, *words = shlex.split(Template(line).substitute(known))
        environment = self._environment() | dict([variable.split("=", 1)])
        process = await asyncio.create_subprocess_exec(*words, cwd=self._server.folder, env=environment)
        self.started.append(process)

    def _environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("TURNLOG_")}
        return clean | {"PATH": f"{PROGRAMS}:{clean['PATH']}"}

    async def leave(self) -> None:
        for process in self.started:
            assert process.returncode is None, "it ended by itself"
            process.terminate()
            await process.wait()


async def test_every_piece_of_the_page_runs_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TURNLOG_")]:
        monkeypatch.delenv(name)
    cert, key = Authority(tmp_path).issue("server")
    async with live_server(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        monkeypatch.chdir(tmp_path)
        async with Turnlog.connect() as t:
            reader = Reader(server, t)
            try:
                for block in BLOCKS:
                    await reader.types(*block)
            finally:
                await reader.leave()


def test_the_page_has_no_piece_that_is_not_run() -> None:
    assert len(BLOCKS) == TEXT.count("\n```") / 2
    assert {kind for kind, *_ in BLOCKS} == {"python", "console"}
