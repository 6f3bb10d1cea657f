"""`turnlog-server` as a process of its own: what it prints, what it logs, how it ends."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.engines import engine

SCRIPT = Path(sys.executable).with_name("turnlog-server")
PATIENCE = 30.0
READY = "Turnlog is ready on "
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

# Whatever the one who runs the tests has set.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}


class ServerProcess:
    """Lines of stdout and of the log are kept; waiting for one is waiting for it to be written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out: list[str] = []
        self.log: list[dict[str, Any]] = []
        self._grown = asyncio.Condition()
        self._ended = 0
        self._tasks = [asyncio.create_task(self._read(False)), asyncio.create_task(self._read(True))]

    @classmethod
    async def start(cls, *arguments: str, cwd: Path, **environment: str) -> Self:
        """Starts it. Settings are flags and variables without their prefix."""
        given = {f"TURNLOG_{name.upper()}": value for name, value in environment.items()}
        if "database_url" in environment:
            given["TURNLOG_DATABASE_URL"] = engine.outside(environment["database_url"])
        process = await asyncio.create_subprocess_exec(
            str(SCRIPT),
            *arguments,
            cwd=cwd,
            env=CLEAN | engine.environment | {"TURNLOG_LOG_LEVEL": "info", "TURNLOG_LOG_FORMAT": "json"} | given,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def ready(self) -> str:
        """Its address, once calls are answered."""
        return (await self.printed(READY)).removeprefix(READY).split(" · ")[0]

    async def listening(self) -> str:
        """Its address, once the port is open."""
        return (await self.logged("listening"))["address"]

    async def printed(self, start: str) -> str:
        """The first line of stdout that begins so."""
        return await self._find(lambda: next((line for line in self.out if line.startswith(start)), None), start)

    async def logged(self, message: str) -> dict[str, Any]:
        """The first line of the log whose message begins so."""
        return await self._find(
            lambda: next((line for line in self.log if line["message"].startswith(message)), None), message
        )

    async def ends(self) -> int:
        """The exit code."""
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
            await asyncio.gather(*self._tasks)
            return code

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop; the exit code."""
        self.process.send_signal(number)
        return await self.ends()

    async def kill(self) -> None:
        """As a power cut would, for the process."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.ends()

    @property
    def said(self) -> str:
        """All that it wrote."""
        return "\n".join([*self.out, *(line["message"] for line in self.log)])

    async def _find(self, look: Any, wanted: str) -> Any:
        async with asyncio.timeout(PATIENCE), self._grown:
            while (found := look()) is None:
                assert self._ended < 2, f"never said {wanted!r}, but:\n{self.said}"
                await self._grown.wait()
            return found

    async def _read(self, logs: bool) -> None:
        stream = self.process.stderr if logs else self.process.stdout
        assert stream is not None
        while raw := await stream.readline():
            text = raw.decode().rstrip("\n")
            async with self._grown:
                if logs:
                    self.log.append(json.loads(text) if text.startswith("{") else {"message": text})
                else:
                    self.out.append(text)
                self._grown.notify_all()
        async with self._grown:
            self._ended += 1
            self._grown.notify_all()


@contextlib.asynccontextmanager
async def server(*arguments: str, cwd: Path, **environment: str) -> AsyncIterator[ServerProcess]:
    """A server that is gone afterwards, however the test went."""
    process = await ServerProcess.start(*arguments, cwd=cwd, **environment)
    try:
        yield process
    finally:
        await process.kill()


async def ran(*arguments: str, cwd: Path, **environment: str) -> tuple[int, str]:
    """A command that ends by itself: its exit code, and all that it wrote."""
    process = await ServerProcess.start(*arguments, cwd=cwd, **environment)
    try:
        return await process.ends(), process.said
    finally:
        await process.kill()


async def health(address: str, service: str = "", credentials: grpc.ChannelCredentials | None = None) -> int:
    """The status of this moment."""
    async with channel(address, credentials) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)).status


async def until_health(address: str, status: int, service: str = "") -> None:
    """Watches until the status is this one."""
    async with asyncio.timeout(PATIENCE), channel(address) as opened:
        watch = health_pb2_grpc.HealthStub(opened).Watch(health_pb2.HealthCheckRequest(service=service))
        async for answer in watch:
            if answer.status == status:
                return
    raise AssertionError(f"the watch ended before the status was {status}")


def channel(address: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    """A connection of its own."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)
