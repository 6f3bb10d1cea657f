"""A proxy before PostgreSQL that breaks connections at chosen moments, on the PostgreSQL wire protocol.

What it can do that killing a server cannot: cut a connection exactly between a COMMIT and its reply, keep a reply back
until a test has looked, be silent without closing, and call PostgreSQL a CockroachDB.
"""

import asyncio
import shutil
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

Fault = Literal["cut-before", "cut-after", "hold-reply"]
"""cut-before: the server never sees the statement. cut-after: it carries it out, and nobody hears of it.
hold-reply: it carries it out, and the reply waits for `release`."""

CANCEL_REQUEST = 80877102


class WireProxy:
    """fault: asked for every statement that is sent, with its text.

    silent: connections are taken and bytes are swallowed, and nothing ever comes back.
    crdb_version: what the server states as its parameter of that name.
    """

    def __init__(self, upstream: str, folder: Path) -> None:
        self.fault: Callable[[str], Fault | None] = lambda _: None
        self.silent = False
        self.crdb_version: str | None = None
        self.held = asyncio.Event()
        self.release = asyncio.Event()
        self.connections = 0
        given = conninfo_to_dict(upstream)
        self._upstream = f"{given['host']}/.s.PGSQL.{given.get('port', 5432)}"
        self._path = folder / ".s.PGSQL.5432"
        self.dsn = make_conninfo(upstream, host=str(folder), port=5432)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> Self:
        """Take connections."""
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        return self

    async def stop(self) -> None:
        """Refuse connections and cut those that are there, as when a server is gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._path.unlink(missing_ok=True)
        self.cut_all()

    def cut_all(self) -> None:
        """Cut every connection."""
        for link in list(self._links):
            link.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        server = await asyncio.open_unix_connection(self._upstream)
        link = _Link(self, (reader, writer), server)
        self._links.add(link)
        try:
            if self._server is not None:
                await link.run()
        finally:
            link.cut()
            self._links.discard(link)


class _Link:
    def __init__(
        self,
        proxy: WireProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._statements: dict[bytes, str] = {}
        self._bound = ""
        self._fault: Fault | None = None

    def cut(self) -> None:
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    async def run(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            size, code = struct.unpack("!ii", await self._from_client.readexactly(8))
            self._to_server.write(struct.pack("!ii", size, code) + await self._from_client.readexactly(size - 8))
            if code == CANCEL_REQUEST:
                await self._from_server.read()
                return
            down = asyncio.create_task(self._down())
            try:
                await self._up()
            finally:
                down.cancel()

    async def _up(self) -> None:
        while True:
            kind, body = await _message(self._from_client)
            if self._proxy.silent:
                continue
            statement = None
            if kind == b"Q":
                statement = body.split(b"\0", 1)[0].decode()
            elif kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._statements[name] = text.decode()
            elif kind == b"B":
                self._bound = self._statements.get(body.split(b"\0", 2)[1], "")
            elif kind == b"E":
                statement = self._bound
            if statement is not None and (fault := self._proxy.fault(statement)) is not None:
                if fault == "cut-before":
                    self.cut()
                    return
                self._fault = fault
            self._to_server.write(kind + struct.pack("!i", len(body) + 4) + body)
            await self._to_server.drain()

    async def _down(self) -> None:
        started = False
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, body = await _message(self._from_server)
                if not started and kind == b"Z":
                    started = True
                    if self._proxy.crdb_version is not None:
                        said = b"crdb_version\0" + self._proxy.crdb_version.encode() + b"\0"
                        self._to_client.write(b"S" + struct.pack("!i", len(said) + 4) + said)
                if self._fault == "cut-after":
                    if kind == b"Z":
                        break
                    continue
                if self._fault == "hold-reply":
                    self._proxy.held.set()
                    await self._proxy.release.wait()
                    self._fault = None
                if self._proxy.silent:
                    continue
                self._to_client.write(kind + struct.pack("!i", len(body) + 4) + body)
                await self._to_client.drain()
        self.cut()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


@asynccontextmanager
async def wire_proxy(upstream: str) -> AsyncIterator[WireProxy]:
    """A proxy before the server that `upstream` leads to by Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="tlw-", dir="/tmp"))
    proxy = await WireProxy(upstream, folder).start()
    try:
        yield proxy
    finally:
        await proxy.stop()
        shutil.rmtree(folder, ignore_errors=True)
