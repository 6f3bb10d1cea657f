"""A TCP proxy that can do to an HTTP/2 connection what networks and proxies do to it."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_HEADER = 9
_RST_STREAM = 3
_GOAWAY = 7


@dataclass
class Http2Connection:
    """One connection through the proxy, on which the client has one stream."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    frozen: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def reset_stream(self, code: int) -> None:
        """RST_STREAM to the client; 8 is CANCEL."""
        self._frame(_RST_STREAM, 1, struct.pack(">I", code))

    def go_away(self, code: int = 0) -> None:
        """GOAWAY to the client, as a proxy sends it when the connection has reached its age, and then the end."""
        self._frame(_GOAWAY, 0, struct.pack(">II", 0, code))
        self.close()

    def close(self) -> None:
        """FIN to both."""
        self.client.close()
        self.server.close()

    def cut(self) -> None:
        """RST to both, at once."""
        for writer in (self.client, self.server):
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def freeze(self) -> None:
        """Passes nothing on any more, and tells nobody: a pulled cable."""
        self.frozen = True

    def _frame(self, kind: int, stream: int, payload: bytes) -> None:
        self.client.write(struct.pack(">I", len(payload))[1:] + bytes([kind, 0]) + struct.pack(">I", stream) + payload)


class Http2Proxy:
    """Forwards to a port, frame by frame towards the client, so that frames of its own can go between."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections: list[Http2Connection] = []

    @property
    def address(self) -> str:
        """Where clients connect."""
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def last(self) -> Http2Connection:
        """The newest connection."""
        return self.connections[-1]

    async def start(self) -> None:
        """Listens."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Ends everything."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        for connection in self.connections:
            connection.client.transport.abort()
            connection.server.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        connection = Http2Connection(writer, to_server)
        self.connections.append(connection)
        for pump in (self._upward(connection, reader), self._downward(connection, from_server)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _upward(self, connection: Http2Connection, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(64 << 10):
                if not connection.frozen:
                    connection.server.write(data)
        connection.ended.set()
        if not connection.frozen:
            connection.server.close()

    async def _downward(self, connection: Http2Connection, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                header = await reader.readexactly(_HEADER)
                frame = header + await reader.readexactly(int.from_bytes(header[:3], "big"))
                if not connection.frozen:
                    connection.client.write(frame)
        if not connection.frozen:
            connection.client.close()


@asynccontextmanager
async def http2_proxy(port: int) -> AsyncIterator[Http2Proxy]:
    """A proxy for one test."""
    proxy = Http2Proxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
