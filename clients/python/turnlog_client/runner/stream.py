"""One stream to the server: who may write what and when, and how it ends."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import grpc
from turnlog.runner.v1 import runner_service_pb2 as pb

from turnlog_client.runner.channel import CONNECT, Cause, End, close_channel, end_of, open_channel
from turnlog_client.runner.lease import LeaseClock
from turnlog_client.runner.options import RunnerOptions
from turnlog_client.runner.outbox import Outbox

log = logging.getLogger("turnlog.runner")

_HEARTBEAT = pb.ConnectRequest(heartbeat=pb.Heartbeat())
_GOODBYE = pb.ConnectRequest(goodbye=pb.Goodbye())

_EOF = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]  # the stubs do not know it

_Call = Any  # grpc.aio.StreamStreamCall, whose generic stubs do not know read() and write()


class Handler(Protocol):
    """What a stream brings its news to. None of it may block."""

    def hello(self) -> pb.Hello:
        """Who the runner is and what it holds at this moment."""
        ...

    def welcomed(self, welcome: pb.Welcome) -> None:
        """The server took the runner in."""
        ...

    def received(self, response: pb.ConnectResponse) -> None:
        """A message after Welcome."""
        ...

    def lease_expired(self) -> None:
        """The lease ran out before something could be written."""
        ...


class Stream:
    """One stream's life: `run` from Hello to its end, whichever way that comes.

    clock: the monotonic clock that the lease goes by.
    """

    def __init__(
        self, options: RunnerOptions, outbox: Outbox, lease: LeaseClock, handler: Handler, clock: Callable[[], float]
    ) -> None:
        self._options = options
        self._outbox = outbox
        self._lease = lease
        self._handler = handler
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[End] = self._loop.create_future()
        self._welcomed = asyncio.Event()
        self._welcomed_at = 0.0
        self._hello_began = 0.0
        self._heartbeat_interval = 0.0
        self._last_write = 0.0
        self._leaving = False
        self._said_goodbye = False

    @property
    def welcomed(self) -> bool:
        """The server has answered Hello."""
        return self._welcomed.is_set()

    def end(self, cause: Cause) -> None:
        """Ends the stream now, in the middle of whatever it does."""
        if not self._ended.done():
            self._ended.set_result(End(cause))

    def leave(self) -> None:
        """Says what there is to say, then Goodbye."""
        self._leaving = True
        self._outbox.changed.set()

    async def run(self, address: str) -> End:
        """Connects and goes on until the stream ends. Raises nothing but CancelledError."""
        try:
            key = self._options.read_key()
            channel = open_channel(self._options, address)
        except OSError as error:
            return End(Cause.CREDENTIAL, details=f"Cannot read the certificate {error.filename}: {error.strerror}.")
        except ValueError as error:
            return End(Cause.CREDENTIAL, details=str(error))
        call: _Call = channel.stream_stream(
            CONNECT,
            request_serializer=pb.ConnectRequest.SerializeToString,
            response_deserializer=pb.ConnectResponse.FromString,
        )(metadata=(("authorization", f"Bearer {key}"),) if key else None)
        reader = asyncio.create_task(self._read(call))
        writer = asyncio.create_task(self._write(call))
        try:
            end = await self._first_end(reader, writer)
        finally:
            for task in (reader, writer):
                task.cancel()
            call.cancel()
            await asyncio.wait([reader, writer])
            await close_channel(channel)
        lived = self._clock() - self._welcomed_at if self.welcomed else 0.0
        return replace(end, welcomed=self.welcomed, lived=lived)

    async def _first_end(self, reader: asyncio.Task[End], writer: asyncio.Task[None]) -> End:
        await asyncio.wait([reader, writer, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not reader.done() and not self._ended.done():
            # All is written, or nothing more can be: either way the reader gets to know how it ends.
            timeout = self._options.timing.farewell
            await asyncio.wait([reader, self._ended], return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
        if self._ended.done():
            return self._ended.result()
        if self._said_goodbye:
            return End(Cause.GOODBYE)
        return reader.result() if reader.done() else End(Cause.SERVER, details="The stream takes no more messages.")

    async def _read(self, call: _Call) -> End:
        try:
            try:
                async with asyncio.timeout(self._options.timing.connect):
                    first = await call.read()
            except TimeoutError:
                return End(Cause.NOT_WELCOMED, details="No Welcome came in time.")
            if first is not _EOF:
                if first.WhichOneof("message") != "welcome":
                    return End(Cause.NOT_WELCOMED, details="The server's first message was no Welcome.")
                self._take_welcome(first.welcome)
            while (response := await call.read()) is not _EOF:
                self._deliver(response)
            return End(Cause.SERVER, grpc.StatusCode.OK)
        except grpc.aio.AioRpcError as error:
            return end_of(error)
        except Exception as error:
            log.exception("The stream could not be read.")
            return End(Cause.NOT_WELCOMED, details=str(error))

    def _take_welcome(self, welcome: pb.Welcome) -> None:
        self._welcomed_at = self._clock()
        ttl = welcome.lease_ttl.ToTimedelta().total_seconds()
        self._lease.welcomed(ttl, self._hello_began)
        self._heartbeat_interval = welcome.heartbeat_interval.ToTimedelta().total_seconds() or ttl / 3
        self._welcomed.set()
        self._handler.welcomed(welcome)

    def _deliver(self, response: pb.ConnectResponse) -> None:
        try:
            self._handler.received(response)
        except Exception:
            # A defect met by one message must not cost the other Runs.
            log.exception("A %s message of the server could not be handled.", response.WhichOneof("message"))

    async def _write(self, call: _Call) -> None:
        try:
            await self._say_all(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call ended; why, the reader is told.
            return
        except Exception:
            log.exception("The stream could not be written.")

    async def _say_all(self, call: _Call) -> None:
        self._hello_began = self._clock()
        await call.write(pb.ConnectRequest(hello=self._handler.hello()))
        self._last_write = self._loop.time()
        await self._welcomed.wait()
        while True:
            self._outbox.changed.clear()
            request = self._outbox.take(self._clock())
            if request is None:
                if self._leaving:
                    break
                if await self._something_came():
                    continue
                request = _HEARTBEAT
            await self._send(call, request)
        await self._send(call, _GOODBYE)
        await call.done_writing()
        self._said_goodbye = True

    async def _something_came(self) -> bool:
        """Waits for something to say. False when it is time to say at least that the runner lives."""
        due = self._last_write + self._heartbeat_interval
        if self._loop.time() >= due:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._outbox.changed.wait()
                return True
        return False

    async def _send(self, call: _Call, request: pb.ConnectRequest) -> None:
        began = self._clock()
        # The process may have been stopped for longer than the lease, and this be the first that it does since.
        if self._lease.expired(began):
            self._handler.lease_expired()
            await self._ended
        await call.write(request)
        self._last_write = self._loop.time()
        self._lease.wrote(began)
