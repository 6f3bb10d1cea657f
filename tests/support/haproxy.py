"""HAProxy before replicas, as operators would set it up: each call to the next one whose gRPC health says SERVING.

Replicas come and go at other addresses while it runs: each has a slot, and `point` tells HAProxy who has it now.
"""

import asyncio
import contextlib
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from support.replicas import Live

CONFIG = """
global
  stats socket {admin} level admin
  tune.h2.max-concurrent-streams 1000
defaults
  mode http
  timeout connect 10s
  timeout check 10s
  timeout client 1h
  timeout server 1h
frontend turnlog
  bind {address} proto h2
  default_backend replicas
backend replicas
  balance roundrobin
  option redispatch 1
  option tcp-check
  tcp-check send-binary {health}
  tcp-check expect binary {serving}
  default-server proto h2 check inter 200ms fall 3 rise 1
"""
# One gRPC message of a HealthCheckResponse: status SERVING.
SERVING = b"\x00\x00\x00\x00\x02\x08\x01"
UP = "2"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _header(name: bytes, value: bytes) -> bytes:
    return name + bytes([len(value)]) + value


def health_call() -> bytes:
    """All bytes of a connection that calls Health/Check. HAProxy's own HTTP checks send no body with zeros in it."""
    headers = (
        b"\x83\x86"  # :method POST, :scheme http
        + _header(b"\x04", b"/grpc.health.v1.Health/Check")
        + _header(b"\x01", b"turnlog")  # :authority
        + _header(b"\x0f\x10", b"application/grpc")  # content-type
        + _header(b"\x00\x02te", b"trailers")
    )
    request = _frame(4, 0, 0, b"") + _frame(1, 4, 1, headers) + _frame(0, 1, 1, bytes(5))
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + request


class Proxy(Live):
    """A running HAProxy. To clients it is what a replica is to them."""

    admin: Path

    async def point(self, slot: int, live: Live) -> None:
        """Gives a slot to another replica."""
        host, _, port = live.address.rpartition(":")
        await self._ask(f"set server replicas/r{slot} addr {host} port {port}")

    async def until(self, slot: int, *, up: bool, timeout: float = 90) -> None:
        """Returns once HAProxy takes the replica for one that serves, or for one that does not."""
        async with asyncio.timeout(timeout):
            while True:
                if await self._up(slot) is up:
                    return
                await asyncio.sleep(0.02)

    async def version(self) -> str:
        """What it says of itself."""
        return await self._ask("show version")

    async def _up(self, slot: int) -> bool:
        lines = (await self._ask("show servers state replicas")).splitlines()
        [names] = [line.removeprefix("# ").split() for line in lines if line.startswith("# ")]
        rows = [dict(zip(names, line.split(), strict=False)) for line in lines if " replicas " in line]
        return next(row["srv_op_state"] == UP for row in rows if row["srv_name"] == f"r{slot}")

    async def _ask(self, command: str) -> str:
        reader, writer = await asyncio.open_unix_connection(self.admin)
        try:
            writer.write(command.encode() + b"\n")
            return (await reader.read()).decode()
        finally:
            writer.close()


@asynccontextmanager
async def haproxy(replicas: Sequence[Live]) -> AsyncIterator[Proxy]:
    """One before these replicas, until the block ends."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        admin, log, config = Path(folder, "admin"), Path(folder, "log"), Path(folder, "config")
        address = _free_address()
        text = CONFIG.format(address=address, admin=admin, health=health_call().hex(), serving=SERVING.hex())
        servers = [f"  server r{slot} {live.address}\n" for slot, live in enumerate(replicas)]
        config.write_text(text + "".join(servers))
        with log.open("wb") as said:
            run = ["haproxy", "-db", "-f", str(config)]
            process = await asyncio.create_subprocess_exec(*run, stdout=said, stderr=said)
        proxy = Proxy(address, replicas[0].dsn, process, log)
        proxy.admin = admin
        try:
            await _listening(proxy)
            for slot in range(len(replicas)):
                await proxy.until(slot, up=True)
            yield proxy
        finally:
            await proxy.close()
            if process.returncode is None:
                process.kill()
            await process.wait()


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def _listening(proxy: Proxy) -> None:
    async with asyncio.timeout(30):
        while True:
            assert proxy.process.returncode is None, proxy.log.read_text()
            # The socket is there a moment before it takes calls.
            with contextlib.suppress(OSError):
                await proxy.version()
                return
            await asyncio.sleep(0.02)
