"""A proxy before PostgreSQL that breaks connections at chosen moments, on the PostgreSQL wire protocol.

What it can do that killing a server cannot: cut a connection exactly between a COMMIT and its reply, keep a reply back
until a test has looked, be silent without closing, answer with any SQLSTATE whether or not the statement took effect,
and call PostgreSQL a CockroachDB. It does not know type inference, plans, contention or schema jobs of CockroachDB.

The driver has at most one statement in flight on a connection; pipelines are not modelled.
"""

import asyncio
import re
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.crdb_refusals import refusal

Cut = Literal["cut-before", "cut-after", "hold-reply"]
"""cut-before: the server never sees the statement. cut-after: it carries it out, and nobody hears of it.
hold-reply: it carries it out, and the reply waits for `release`."""


@dataclass(frozen=True, slots=True)
class Fails:
    """The statement ends with this SQLSTATE.

    applied: it was carried out all the same. A COMMIT that was not applied leaves no transaction behind, as on
        CockroachDB. Codes 57P.. end the session.
    """

    code: str
    applied: bool = False


Fault = Cut | Fails

CRDB_VERSION = "CockroachDB CCL v26.2.1 (x86_64-pc-linux-gnu, PostgreSQL behind a proxy)"
CANCEL_REQUEST = 80877102
# The one thing that tests ask of a cluster in words that PostgreSQL does not know.
DROP_DATABASE = re.compile(rb"(DROP DATABASE IF EXISTS \w+) CASCADE\0")
COMMIT = re.compile(r"\s*(COMMIT|END)\b", re.IGNORECASE)
# PostgreSQL itself keeps the state of the transaction right: instead of what is to fail it gets a word that it cannot
# parse, and its complaint of that word goes to the client under the code that the word names.
POISON = re.compile(rb'"poison_([0-9a-z]{5})"')


class WireProxy:
    """fault: asked for every statement that is sent, with its text.

    silent: connections are taken and bytes are swallowed, and nothing ever comes back.
    crdb_version: what the server states as its parameter of that name. With it, what CockroachDB refuses is refused.
    only: statements of other applications than those whose name begins so are passed on as they are.
    done: the faults so far. heard: every text that was judged.
    """

    def __init__(self, upstream: str, folder: Path, port: int = 5432) -> None:
        self.fault: Callable[[str], Fault | None] = lambda _: None
        self.silent = False
        self.crdb_version: str | None = None
        self.only = ""
        self.held = asyncio.Event()
        self.release = asyncio.Event()
        self.connections = 0
        self.done: Counter[Fault] = Counter()
        self.heard: set[str] = set()
        given = conninfo_to_dict(upstream)
        self._upstream = f"{given['host']}/.s.PGSQL.{given.get('port', 5432)}"
        self._path = folder / f".s.PGSQL.{port}"
        self.dsn = make_conninfo(upstream, host=str(folder), port=port)
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
        try:
            server = await asyncio.open_unix_connection(self._upstream)
        except OSError:
            writer.transport.abort()
            return
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
        self._ours = True
        self._statements: dict[bytes, str] = {}
        self._bound = ""
        # What is to become of the reply to the statement in flight.
        self._fault: Fault | None = None

    def cut(self) -> None:
        self._to_client.transport.abort()
        self._to_server.transport.abort()

    async def run(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            size, code = struct.unpack("!ii", await self._from_client.readexactly(8))
            rest = await self._from_client.readexactly(size - 8)
            self._to_server.write(struct.pack("!ii", size, code) + rest)
            if code == CANCEL_REQUEST:
                await self._from_server.read()
                return
            parts = rest.split(b"\0")
            application = dict(zip(parts[::2], parts[1::2], strict=False)).get(b"application_name", b"").decode()
            self._ours = application.startswith(self._proxy.only)
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
            if self._proxy.crdb_version is not None and kind == b"Q":
                body = DROP_DATABASE.sub(rb"\1 WITH (FORCE)\0", body)
            if self._ours:
                kind, body = self._judged(kind, body)
            if kind:
                self._to_server.write(_packed(kind, body))
                await self._to_server.drain()

    def _judged(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        """What the server gets instead of this message; nothing where the link is cut."""
        match kind:
            case b"Q":
                statement = body.split(b"\0", 1)[0].decode()
                if code := self._refused(statement):
                    return _poison(kind, code)
                return self._struck(statement, kind, body)
            case b"P":
                name, text, _ = body.split(b"\0", 2)
                self._statements[name] = text.decode()
                if code := self._refused(self._statements[name]):
                    return _poison(kind, code)
            case b"B":
                self._bound = self._statements.get(body.split(b"\0", 2)[1], "")
            case b"E":
                return self._struck(self._bound, kind, body)
        return kind, body

    def _refused(self, statement: str) -> str | None:
        self._proxy.heard.add(statement)
        return refusal(statement) if self._proxy.crdb_version is not None else None

    def _struck(self, statement: str, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        fault = self._proxy.fault(statement)
        if fault is None:
            return kind, body
        self._proxy.done[fault] += 1
        if fault == "cut-before":
            self.cut()
            return b"", b""
        if isinstance(fault, Fails) and not fault.applied:
            if fault.code.startswith("57P"):
                self._end(fault.code)
                return b"", b""
            if not COMMIT.match(statement):
                return _poison(kind, fault.code)
            kind, body = b"Q", b"ROLLBACK\0"
        self._fault = fault
        return kind, body

    def _end(self, code: str) -> None:
        """Ends the session as a server that shuts down does."""
        self._to_client.write(_error(code, b"FATAL"))
        self._to_client.close()
        self._to_server.transport.abort()

    async def _down(self) -> None:
        started = False
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, body = await _message(self._from_server)
                if not started and self._proxy.crdb_version is not None:
                    body = self._stated(kind, body, self._proxy.crdb_version)
                started = started or kind == b"Z"
                if self._fault == "hold-reply":
                    self._proxy.held.set()
                    await self._proxy.release.wait()
                    self._fault = None
                elif self._fault is not None:
                    kind, body = self._twisted(kind, body)
                if kind == b"E" and (found := POISON.search(body)):
                    self._to_client.write(_error(found[1].decode().upper()))
                elif kind and not self._proxy.silent:
                    self._to_client.write(_packed(kind, body))
                await self._to_client.drain()
        self.cut()

    def _stated(self, kind: bytes, body: bytes, version: str) -> bytes:
        """The parameters as CockroachDB states them."""
        if kind == b"Z":
            self._to_client.write(_packed(b"S", b"crdb_version\0" + version.encode() + b"\0"))
        return b"server_version\00013.0.0\0" if body.startswith(b"server_version\0") else body

    def _twisted(self, kind: bytes, body: bytes) -> tuple[bytes, bytes]:
        """What the client gets of a reply that it shall not have."""
        fault = self._fault
        if kind == b"Z":
            self._fault = None
            if fault == "cut-after":
                raise ConnectionError
            if isinstance(fault, Fails) and fault.code.startswith("57P"):
                self._end(fault.code)
                raise ConnectionError
            return kind, body
        if fault == "cut-after" or kind == b"D":
            return b"", b""
        if isinstance(fault, Fails):
            if fault.code.startswith("57P"):
                return b"", b""
            if kind in (b"C", b"I"):
                return b"E", _error(fault.code)[5:]
        return kind, body


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _error(code: str, severity: bytes = b"ERROR") -> bytes:
    said = b"S%b\0V%b\0C%b\0Mthe proxy says %b\0\0" % (severity, severity, *[code.encode()] * 2)
    return _packed(b"E", said)


def _poison(kind: bytes, code: str) -> tuple[bytes, bytes]:
    word = b"poison_" + code.lower().encode()
    return (b"Q", word + b"\0") if kind == b"Q" else (b"P", b"\0" + word + b"\0\0\0")


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
