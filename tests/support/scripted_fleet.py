"""The server's side of a runner's stream, played by a test: a real gRPC server on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import grpc
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import run_pb2
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.channel import CONNECT

PATIENCE = 20.0
"""How long a test waits for what must come."""

_QUIET = {"heartbeat", "ready", "preview"}


def make_offer(
    number: int = 1, *, attempt_no: int = 1, profile: str = "echo", text: str = "hello", **more: Any
) -> pb.Offer:
    """An Offer of Run `number`; `more` sets further fields."""
    offer = pb.Offer(
        session_id=f"sess_{number:026d}",
        run_id=f"run_{number:026d}",
        attempt_no=attempt_no,
        attempt_kind=run_pb2.ATTEMPT_KIND_INITIAL,
        lease_token=number.to_bytes(8, "big") + attempt_no.to_bytes(8, "big"),
        accept_within=timedelta(seconds=5),
        startup_allowance=timedelta(seconds=60),
        max_duration=timedelta(seconds=600),
        harness_profile=profile,
        **more,
    )
    offer.trigger.seq = 1
    offer.trigger.type = "user.message"
    offer.trigger.user_message.parts.add(text=text)
    return offer


def state_of(offer: pb.Offer, last_message_no: int, stop_as: run_pb2.RunStatus | None = None) -> pb.HeldState:
    """An attempt that is still the runner's, as Welcome names it."""
    return pb.HeldState(**AttemptKey.of(offer)._asdict(), last_message_no=last_message_no, stop_as=stop_as)


@dataclass
class Conversation:
    """One stream of one runner.

    said: everything that the runner said, in order. metadata: of the call.
    credits: what the runner granted and was not used since; None before its first Ready.
    """

    context: grpc.aio.ServicerContext
    metadata: dict[str, Any]
    said: list[pb.ConnectRequest] = field(default_factory=list)
    credits: int | None = None
    ready_seen: asyncio.Event = field(default_factory=asyncio.Event)
    heartbeats: int = 0
    heartbeat_seen: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    _inbox: "asyncio.Queue[pb.ConnectRequest | None]" = field(default_factory=asyncio.Queue)
    _verdict: "asyncio.Future[tuple[grpc.StatusCode, str]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def next(self) -> pb.ConnectRequest:
        """The next message but heartbeats, grants and previews. Fails if the runner ends the stream."""
        async with asyncio.timeout(PATIENCE):
            request = await self._inbox.get()
        assert request is not None, "the runner ended the stream"
        return request

    async def take(self, kind: str) -> Any:
        """The next message, which must be of this kind."""
        request = await self.next()
        assert request.WhichOneof("message") == kind, f"expected {kind}, the runner said {request}"
        return getattr(request, kind)

    async def runner_ended(self) -> None:
        """Returns when the runner has ended the stream, and has said nothing more before that."""
        async with asyncio.timeout(PATIENCE):
            assert await self._inbox.get() is None

    async def granted(self, credits: int) -> None:
        """Returns when this many credits are left."""
        async with asyncio.timeout(PATIENCE):
            while self.credits != credits:
                self.ready_seen.clear()
                await self.ready_seen.wait()

    async def granted_some(self) -> None:
        """Returns when there are credits."""
        async with asyncio.timeout(PATIENCE):
            while not self.credits:
                self.ready_seen.clear()
                await self.ready_seen.wait()

    async def heartbeat(self) -> None:
        """Returns at the next heartbeat."""
        self.heartbeat_seen.clear()
        async with asyncio.timeout(PATIENCE):
            await self.heartbeat_seen.wait()

    async def say(self, **message: Any) -> None:
        """Sends one message, such as `drain=pb.Drain(…)`."""
        if "offer" in message and self.credits is not None:
            self.credits -= 1
        await self.context.write(pb.ConnectResponse(**message))

    async def welcome(
        self,
        *held: pb.HeldState,
        ttl: float = 60.0,
        heartbeat: float = 20.0,
        max_messages: int = 64,
        max_bytes: int = 1 << 20,
    ) -> pb.Hello:
        """Takes Hello and answers it."""
        hello = await self.take("hello")
        await self.say(
            welcome=pb.Welcome(
                lease_ttl=timedelta(seconds=ttl),
                heartbeat_interval=timedelta(seconds=heartbeat),
                held=held,
                max_unacked_messages=max_messages,
                max_unacked_bytes=max_bytes,
            )
        )
        return hello

    async def offer(self, offer: pb.Offer) -> None:
        """Offers a Run, takes the Accept and makes it an attempt."""
        await self.granted_some()
        await self.say(offer=offer)
        accept = await self.take("accept")
        assert AttemptKey.of(accept) == AttemptKey.of(offer)
        assert accept.lease_token == offer.lease_token
        await self.accepted(offer)

    async def accepted(self, offer: pb.Offer) -> None:
        """Makes an attempt of an Offer."""
        await self.say(
            accepted=pb.Accepted(
                **AttemptKey.of(offer)._asdict(),
                startup_remaining=timedelta(seconds=60),
                deadline_remaining=timedelta(seconds=600),
            )
        )

    async def ack(self, offer: pb.Offer, through: int, *rejections: pb.Rejection) -> None:
        """Acknowledges messages of an attempt."""
        await self.say(ack=pb.Ack(**AttemptKey.of(offer)._asdict(), through=through, rejections=rejections))

    async def finish(self, offer: pb.Offer) -> list[pb.ConnectRequest]:
        """Acknowledges everything of an attempt until it is settled, and returns what it said."""
        said: list[pb.ConnectRequest] = []
        while not said or said[-1].WhichOneof("message") != "settle":
            said.append(await self.next())
            await self.ack(offer, lease_of(said[-1]).message_no)
        return said

    def end(self, code: grpc.StatusCode, details: str = "") -> None:
        """Ends the stream from the server's side."""
        self._verdict.set_result((code, details))

    async def serve(self) -> None:
        """Runs the stream; the server calls it."""
        reading = asyncio.create_task(self._read())
        try:
            code, details = await self._verdict
            if code is not grpc.StatusCode.OK:
                await self.context.abort(code, details)
        finally:
            reading.cancel()
            self.gone.set()

    async def _read(self) -> None:
        try:
            while (request := await self.context.read()) is not grpc.aio.EOF:  # pyright: ignore
                self._note(request)
        except grpc.aio.AioRpcError:
            pass
        finally:
            self._inbox.put_nowait(None)
        if not self._verdict.done():
            self.end(grpc.StatusCode.OK)

    def _note(self, request: pb.ConnectRequest) -> None:
        self.said.append(request)
        kind = request.WhichOneof("message")
        if kind == "ready":
            self.credits = request.ready.credits
            self.ready_seen.set()
        elif kind == "heartbeat":
            self.heartbeats += 1
            self.heartbeat_seen.set()
        if kind not in _QUIET:
            self._inbox.put_nowait(request)

    def numbers(self) -> list[int]:
        """The message numbers in the order in which they came."""
        return [lease_of(request).message_no for request in self.said if _has_lease(request)]


def _has_lease(request: pb.ConnectRequest) -> bool:
    return request.WhichOneof("message") in ("harness_ready", "append", "settle", "abandon")


def lease_of(request: pb.ConnectRequest) -> pb.Lease:
    """The lease in a message of an attempt."""
    assert _has_lease(request), request
    return getattr(request, request.WhichOneof("message") or "").lease


class ScriptedFleet:
    """A server. Every stream that a runner opens is a `Conversation` for the test."""

    def __init__(self) -> None:
        self._server = grpc.aio.server()
        self._opened: asyncio.Queue[Conversation] = asyncio.Queue()
        self.conversations: list[Conversation] = []
        self.port = 0

    @property
    def address(self) -> str:
        """Where runners connect."""
        return f"127.0.0.1:{self.port}"

    async def stream(self) -> Conversation:
        """The next stream that a runner opens."""
        async with asyncio.timeout(PATIENCE):
            return await self._opened.get()

    async def start(self, port: int = 0) -> None:
        """Listens."""
        handler = grpc.stream_stream_rpc_method_handler(
            self._connect, pb.ConnectRequest.FromString, pb.ConnectResponse.SerializeToString
        )
        service, method = CONNECT.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        await self._server.start()

    async def stop(self) -> None:
        """Stops at once."""
        await self._server.stop(None)

    async def _connect(self, _: Any, context: grpc.aio.ServicerContext) -> None:
        metadata = dict(context.invocation_metadata() or ())
        conversation = Conversation(context, metadata)
        self.conversations.append(conversation)
        self._opened.put_nowait(conversation)
        await conversation.serve()


@asynccontextmanager
async def scripted_fleet() -> AsyncIterator[ScriptedFleet]:
    """A server for one test."""
    fleet = ScriptedFleet()
    await fleet.start()
    try:
        yield fleet
    finally:
        await fleet.stop()
