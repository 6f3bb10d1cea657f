"""From the socket to a use case and back, once for every RPC of the contract.

Requests arrive as bytes and are parsed here, so that what cannot be parsed is a refusal like any other. Each call is
authenticated, checked against the contract's rules, given a deadline and, where it changes something, a fingerprint;
then the servicer's method of the RPC's name is called. What it raises becomes a status by the one error table.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from turnlog_server.domain import limits
from turnlog_server.domain.access import Caller, require
from turnlog_server.domain.credentials import credential_invalid
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.context import CallContext
from turnlog_server.service.credentials import Authenticator
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.faults import internal
from turnlog_server.transport.stalls import Stalls
from turnlog_server.wire.errors import status_of
from turnlog_server.wire.requests import fingerprint, parse

API_VERSIONS: Final = ("2026-11-01",)
VERSION_KEY: Final = "turnlog-api-version"
DETAILS_KEY: Final = "grpc-status-details-bin"
ON_THE_WAY_SECONDS: Final = 0.2
# For how long a message that the other side does not take holds up the end of its stream.
CLOSING_SECONDS: Final = 10.0
# How a call is counted whose caller left, or whose deadline passed, before it was answered.
GIVEN_UP: Final = grpc.StatusCode.CANCELLED.name
CUT: Final = Refusal(
    Reason.SERVER_DRAINING, "This replica is going down: reconnect and go on where you were.", retry_after=0.2
)
CUT_WRITE: Final = Refusal(
    Reason.OUTCOME_UNKNOWN,
    "This replica is going down, and whether this was applied is not known: retry with the same request_id.",
    retry_after=0.2,
)
CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

T = TypeVar("T")
Context = grpc.aio.ServicerContext[bytes, bytes]
Streaming = Callable[[T, Context], Awaitable[None]]


class CallObserver(Protocol):
    """Hooks for metrics; they return at once."""

    def request(self, method: str, code: str, seconds: float | None = None) -> None: ...
    def stream_opened(self, method: str) -> None: ...
    def stream_closed(self, method: str) -> None: ...
    def auth_refused(self, reason: str) -> None: ...
    def admitted(self, method: str, seconds: float) -> None: ...
    def follower_stalled(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC. `key` is `package.Service/Method`, as in the permission table."""

    key: str
    name: str
    request: type[Message]
    mutates: bool
    follows: bool

    @classmethod
    def of(cls, descriptor: MethodDescriptor) -> "Method":
        """The RPC of a descriptor."""
        service = cast(ServiceDescriptor, descriptor.containing_service)
        fields = descriptor.input_type.fields_by_name
        # GetRequest names a request of before; it is none itself.
        mutates = "request_id" in fields and not descriptor.name.startswith("Get")
        follows = descriptor.server_streaming and not descriptor.client_streaming
        return cls(
            f"{service.full_name}/{descriptor.name}",
            descriptor.name,
            GetMessageClass(descriptor.input_type),
            mutates,
            follows,
        )


class Stream:
    """A bidirectional stream: raw messages in, raw messages out."""

    def __init__(self, method: Method, requests: AsyncIterator[bytes], context: Context) -> None:
        self._method = method
        self._requests = requests
        self._context = context
        self.peer = context.peer()
        self.raw = b""
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def read(self) -> Message | None:
        """The next message; None when the other side has closed. Raises Refusal for one that is not valid."""
        raw = await anext(self._requests, None)
        self.raw = raw or b""
        return None if raw is None else parse(self._method.request, raw)

    async def write(self, raw: bytes) -> None:
        """Sends one message. Not to be cancelled: see `close`."""
        if self._closed:
            raise asyncio.CancelledError
        self._idle.clear()
        try:
            await _write(self._context, raw)
        finally:
            self._idle.set()

    async def close(self) -> None:
        """Nothing more is sent. Returns when the message that is on its way is gone, which may take a moment.

        Of a call that ends while one still is, gRPC does not tell the other side the end: it would wait for ever.
        """
        self._closed = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._idle.wait()


class Adapter:
    """Makes gRPC handlers of servicers."""

    def __init__(self, authenticator: Authenticator, epochs: Epochs, observer: CallObserver) -> None:
        self._authenticator = authenticator
        self._epochs = epochs
        self._observer = observer
        self._stalls = Stalls(limits.FOLLOWER_STALL_SECONDS)
        self._draining = False
        # When somebody was last told that we go, in the time of the event loop.
        self.turned_away_at = float("-inf")
        self._calls: dict[asyncio.Task[Any] | None, Method] = {}
        self._cut: set[asyncio.Task[Any] | None] = set()

    @property
    def under_way(self) -> int:
        """Calls and streams that have not ended."""
        return len(self._calls)

    def drain(self) -> None:
        """New calls are refused as SERVER_DRAINING; those under way go on."""
        self._draining = True
        self.turned_away_at = asyncio.get_running_loop().time()

    def cut(self, *, follows_only: bool = False) -> None:
        """Ends what is under way and tells the callers why; gRPC itself would tell them nothing but CANCELLED.

        follows_only: what a drain has told to end, and what cannot, because it waits for the database.
        """
        for task, method in self._calls.items():
            if task is not None and (method.follows or not follows_only):
                self._cut.add(task)
                task.cancel()

    def handlers(
        self, services: Mapping[ServiceDescriptor, object]
    ) -> Iterable[tuple[str, dict[str, grpc.RpcMethodHandler]]]:
        """For each service its name and its handlers by RPC. A servicer that lacks a method is a mistake of ours."""
        for service, servicer in services.items():
            yield (
                service.full_name,
                {
                    descriptor.name: self._handler(descriptor, getattr(servicer, descriptor.name))
                    for descriptor in service.methods
                },
            )

    def _handler(self, descriptor: MethodDescriptor, call: Callable[..., Any]) -> grpc.RpcMethodHandler:
        method = Method.of(descriptor)
        if descriptor.client_streaming:
            return grpc.stream_stream_rpc_method_handler(self._bidirectional(method, call))
        if descriptor.server_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(method, call))
        return grpc.unary_unary_rpc_method_handler(self.unary(descriptor, call))

    def unary(
        self, descriptor: MethodDescriptor, call: Callable[[CallContext, Any], Awaitable[Message]]
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """A unary RPC from bytes to bytes."""
        method = Method.of(descriptor)

        async def handle(raw: bytes, context: Context) -> bytes:
            started = time.perf_counter()
            self._calls[task := asyncio.current_task()] = method
            try:
                deadline = self._deadline(context)
                ctx = await self._open(method, context, deadline)
                request = parse(method.request, raw)
                if method.mutates:
                    ctx = _with_request(ctx, request)
                response = await call(ctx, request)
                answer = response.SerializeToString()
            except asyncio.CancelledError:
                self._given_up(task, method, context)
                return b""
            except Exception as exc:
                self._fail(method, context, exc, time.perf_counter() - started)
                return b""
            finally:
                del self._calls[task]
            seconds = time.perf_counter() - started
            self._observer.request(method.name, "OK", seconds)
            if method.mutates:
                self._observer.admitted(method.name, seconds)
            return answer

        return handle

    def _streaming(self, method: Method, call: Callable[[CallContext, Any], AsyncIterator[bytes]]) -> Streaming[bytes]:
        async def work(ctx: CallContext, raw: bytes, context: Context) -> None:
            await self._send(context, call(ctx, parse(method.request, raw)))

        return self._stream(method, work)

    def _bidirectional(
        self, method: Method, call: Callable[[CallContext, Stream], Awaitable[None]]
    ) -> Streaming[AsyncIterator[bytes]]:
        async def work(ctx: CallContext, requests: AsyncIterator[bytes], context: Context) -> None:
            await call(ctx, Stream(method, requests, context))

        return self._stream(method, work)

    def _stream(self, method: Method, work: Callable[[CallContext, T, Context], Awaitable[None]]) -> Streaming[T]:
        async def handle(asked: T, context: Context) -> None:
            self._observer.stream_opened(method.name)
            self._calls[task := asyncio.current_task()] = method
            try:
                await work(await self._open(method, context, self._deadline(context)), asked, context)
            except asyncio.CancelledError:
                self._given_up(task, method, context)
                return
            except Exception as exc:
                self._fail(method, context, exc, None)
                return
            finally:
                del self._calls[task]
                self._observer.stream_closed(method.name)
            self._observer.request(method.name, "OK")

        return handle

    async def _send(self, context: Context, frames: AsyncIterator[bytes]) -> None:
        try:
            async with asyncio.timeout(None) as stream:
                try:
                    async for frame in frames:
                        self._stalls.begin(stream)
                        await _write(context, frame)
                        self._stalls.end(stream)
                finally:
                    self._stalls.end(stream)
                    await frames.aclose()  # type: ignore[attr-defined]
        except TimeoutError:
            self._observer.follower_stalled()
            raise Refusal(
                Reason.FOLLOWER_STALLED,
                f"Nothing was taken for {limits.FOLLOWER_STALL_SECONDS} seconds: follow again from your last seq.",
                retry_after=1.0,
            ) from None

    def _deadline(self, context: Context) -> float:
        """In the time of the event loop. A unary call without one gets ours."""
        remaining = context.time_remaining()
        if remaining is None:
            remaining = float(limits.UNARY_DEADLINE_SECONDS)
        # A little before the caller's own, so that the reason still reaches it.
        return asyncio.get_running_loop().time() + max(0.0, remaining - min(ON_THE_WAY_SECONDS, remaining / 10))

    async def _open(self, method: Method, context: Context, deadline: float) -> CallContext:
        """Who calls, and whether that may be done at all."""
        if self._draining:
            self.turned_away_at = asyncio.get_running_loop().time()
            raise Refusal(
                Reason.SERVER_DRAINING, "This replica is going down: reconnect and try again.", retry_after=0.2
            )
        bearer, version = "", ""
        for key, value in context.invocation_metadata() or ():
            if key == "authorization":
                bearer = cast(str, value)
            elif key == VERSION_KEY:
                version = cast(str, value)
        if version and version not in API_VERSIONS:
            raise Refusal(
                Reason.API_VERSION_UNSUPPORTED,
                f"The API version {version[:32]!r} is not served: use {API_VERSIONS[-1]}, or name none.",
                {"supported": ",".join(API_VERSIONS)},
            )
        scheme, _, token = bearer.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise credential_invalid()
        # A write compares the permission epoch as it commits; a read has to ask.
        caller = await self._authenticator.authenticate(token.strip(), fresh=not method.mutates, deadline=deadline)
        require(caller, method.key)

        async def judge(stale: Caller) -> Caller:
            judged = await self._authenticator.judge(stale)
            self._epochs.note(judged.workspace_id, judged.epoch)
            require(judged, method.key)
            return judged

        return CallContext(method.key, caller, deadline, judge=judge)

    def _given_up(self, task: asyncio.Task[Any] | None, method: Method, context: Context) -> None:
        """The call was cancelled: by its caller, whom nobody has to tell, or by `cut`."""
        if task is None or task not in self._cut:
            self._observer.request(method.name, GIVEN_UP)
            raise asyncio.CancelledError
        self._cut.discard(task)
        task.uncancel()
        self._fail(method, context, CUT_WRITE if method.mutates else CUT, None)

    def _fail(self, method: Method, context: Context, exc: Exception, seconds: float | None) -> None:
        """Gives the call the status of what was raised; its handler then returns.

        Not by `abort`: gRPC keeps what that raises with all that was in hand, until the collector comes by.
        """
        refusal = exc if isinstance(exc, Refusal) else internal("a call failed", exc, method=method.key)
        status = status_of(refusal)
        code = CODES[status.code]
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            self._observer.auth_refused(refusal.reason.value)
        self._observer.request(method.name, code.name, seconds)
        context.set_trailing_metadata(((DETAILS_KEY, status.SerializeToString()),))
        context.set_code(code)
        context.set_details(status.message)


async def _write(context: Context, raw: bytes) -> None:
    try:
        await context.write(raw)
    except grpc.aio.InternalError:
        # The other side left while this was on its way: gRPC is about to cancel the call, and it ends as if it had.
        raise asyncio.CancelledError from None


def _with_request(ctx: CallContext, request: Message) -> CallContext:
    request_id: str = request.request_id  # type: ignore[attr-defined]
    return CallContext(ctx.method, ctx.caller, ctx.deadline, request_id, fingerprint(request), ctx.judge)
