"""A real gRPC server whose behaviour each test scripts, so that the client can be shown every fault at will."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.protobuf import any_pb2, descriptor_pool, duration_pb2, message_factory
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from turnlog.runner.v1 import runner_service_pb2  # noqa: F401  registers its descriptors
from turnlog.v1 import (  # noqa: F401  the same
    access_service_pb2,
    agent_service_pb2,
    event_pb2,
    event_service_pb2,
    request_service_pb2,
    run_event_pb2,
    run_service_pb2,
    server_service_pb2,
    session_event_pb2,
    session_pb2,
    session_service_pb2,
)
from turnlog_client import Turnlog


class Refusal(Exception):
    """An answer that is a refusal, with the details that the contract promises."""

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str = "",
        message: str = "refused",
        retry_after: float | None = None,
        fields: dict[str, str] | None = None,
        **metadata: str,
    ) -> None:
        self.code, self.message = code, message
        self.details: list[Any] = []
        if reason:
            info = error_details_pb2.ErrorInfo(reason=reason, domain="turnlog.dev", metadata=metadata)
            self.details.append(info)
        if retry_after is not None:
            delay = duration_pb2.Duration()
            delay.FromNanoseconds(int(retry_after * 1e9))
            self.details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        if fields:
            violations = [
                error_details_pb2.BadRequest.FieldViolation(field=k, description=v) for k, v in fields.items()
            ]
            self.details.append(error_details_pb2.BadRequest(field_violations=violations))

    async def raise_in(self, context: Any) -> None:
        packed = []
        for detail in self.details:
            packed.append(any_pb2.Any())
            packed[-1].Pack(detail)
        code = getattr(code_pb2, self.code.name)
        status = rpc_status.to_status(status_pb2.Status(code=code, message=self.message, details=packed))
        await context.abort_with_status(status)


@dataclass
class Received:
    """One call as the server saw it."""

    rpc: str
    request: Any
    metadata: dict[str, str]
    time_remaining: float | None


class ScriptedServer:
    """Answers each RPC with what was scripted for it, in order; the last answer stays."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.arrived = asyncio.Condition()
        self._answers: dict[str, deque[Any]] = defaultdict(deque)
        self.address = ""

    def on(self, rpc: str, *answers: Any) -> None:
        """An answer is a message, a Refusal, or a function of (request, context); for a stream an async generator."""
        self._answers[rpc] = deque(answers)

    def requests(self, rpc: str) -> list[Any]:
        """The requests that came for one RPC, in order."""
        return [each.request for each in self.received if each.rpc == rpc]

    async def until(self, rpc: str, count: int) -> None:
        """Waits until so many calls of the RPC have come."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests(rpc)) >= count)

    async def _arrive(self, rpc: str, request: Any, context: Any) -> Any:
        metadata = {key: value for key, value in context.invocation_metadata() or ()}
        async with self.arrived:
            self.received.append(Received(rpc, request, metadata, context.time_remaining()))
            self.arrived.notify_all()
        answers = self._answers[rpc]
        if not answers:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{rpc} is not scripted")
        return answers.popleft() if len(answers) > 1 else answers[0]

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        pool = descriptor_pool.Default()
        names = ["Session", "Event", "Run", "Request", "Agent", "Access", "Server"]
        services = [pool.FindServiceByName(f"turnlog.v1.{name}Service") for name in names]
        services.append(pool.FindServiceByName("turnlog.runner.v1.RunnerService"))
        return [
            grpc.method_handlers_generic_handler(
                service.full_name,
                {method.name: self._handler(method) for method in service.methods if not method.client_streaming},
            )
            for service in services
        ]

    def _handler(self, method: Any) -> grpc.RpcMethodHandler:
        request = message_factory.GetMessageClass(method.input_type)

        async def unary(message: Any, context: Any) -> Any:
            answer = await self._arrive(method.name, message, context)
            if callable(answer):
                answer = answer(message, context)
                if asyncio.iscoroutine(answer):
                    answer = await answer
            if isinstance(answer, Refusal):
                await answer.raise_in(context)
            return answer

        async def stream(message: Any, context: Any) -> AsyncIterator[Any]:
            script = await self._arrive(method.name, message, context)
            try:
                async for frame in script(message, context):
                    yield frame
            except Refusal as refusal:
                await refusal.raise_in(context)

        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        return make(
            stream if method.server_streaming else unary,
            request_deserializer=request.FromString,
            response_serializer=_bytes,
        )


def _bytes(answer: Any) -> bytes:
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


@asynccontextmanager
async def serve() -> AsyncIterator[ScriptedServer]:
    """Runs a scripted server on a free port of the loopback."""
    scripted = ScriptedServer()
    server = grpc.aio.server(options=[("grpc.max_metadata_size", 1 << 20)])
    server.add_generic_rpc_handlers(scripted.handlers())
    scripted.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    scripted.on("GetServerInfo", server_service_pb2.GetServerInfoResponse(version="0.1.0", subject="prn_me"))
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(0)


class Cable:
    """A TCP way to a server that can be cut in the middle of anything."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._writers: list[asyncio.StreamWriter] = []
        self.address = ""

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Resets every connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, far_writer]
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


class Sleeps(list[float]):
    """A clock that does not wait: it notes how long it should have slept."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


def client(server: ScriptedServer | Cable, **options: Any) -> Turnlog:
    """A client of the server that does not really sleep between attempts."""
    return Turnlog.connect(server.address, "tlk_test", **{"sleep": Sleeps(), **options})


def message_event(seq: int, text: str, run_id: str = "run_1") -> event_pb2.Event:
    """An `agent.message`."""
    event = event_pb2.Event(seq=seq, event_id=f"evt_{seq}", type="agent.message", run_id=run_id)
    event.agent_message.parts.add().text = text
    event.create_time.seconds = 1_700_000_000 + seq
    return event


def status_event(seq: int, name: str, *, ended_run_id: str = "", boundary: Any = 1, **fields: Any) -> event_pb2.Event:
    """A `session.status_<name>`."""
    event = event_pb2.Event(seq=seq, event_id=f"evt_{seq}", type=f"session.status_{name}")
    status: Any = f"SESSION_STATUS_{name.upper()}"
    payload = session_event_pb2.SessionStatusChanged(
        status=status, boundary=boundary, ended_run_id=ended_run_id, **fields
    )
    getattr(event, f"session_status_{name}").CopyFrom(payload)
    event.create_time.seconds = 1_700_000_000 + seq
    return event


def _any(value: Any) -> Any:
    # The generated types take an enum's name as text too; the checker knows only some of the names.
    return value


def batch(*events: event_pb2.Event) -> event_service_pb2.FollowEventsResponse:
    """A frame of events."""
    return event_service_pb2.FollowEventsResponse(events=event_service_pb2.EventBatch(events=events))


def progress(seq: int) -> event_service_pb2.FollowEventsResponse:
    """A frame that only moves the cursor."""
    return event_service_pb2.FollowEventsResponse(progress=event_service_pb2.Progress(through_seq=seq))


def end(seq: int, reason: str = "BOUNDARY") -> event_service_pb2.FollowEventsResponse:
    """The last frame."""
    return event_service_pb2.FollowEventsResponse(
        end=event_service_pb2.FollowEnd(reason=_any(f"REASON_{reason}"), seq=seq)
    )


def script(*steps: Any) -> Callable[[Any, Any], AsyncIterator[Any]]:
    """A stream that yields frames, raises refusals, and awaits the coroutines that its functions make."""

    async def run(request: Any, context: Any) -> AsyncIterator[Any]:
        for step in steps:
            if isinstance(step, Refusal):
                raise step
            if callable(step):
                await _any(step)()
            else:
                yield step

    return run


def run_end(seq: int, name: str, run_id: str = "run_1") -> event_pb2.Event:
    """A `run.<name>` that ends the Run."""
    event = event_pb2.Event(seq=seq, event_id=f"evt_{seq}", type=f"run.{name}", run_id=run_id)
    getattr(event, f"run_{name}").CopyFrom(run_event_pb2.RunEnded(attempts=1))
    return event


def turn(name: str = "succeeded", stop: str = "END_TURN") -> tuple[Any, ...]:
    """The frames of one turn from its answer to its end, seqs 5 to 7."""
    idle = status_event(7, "idle", boundary=2, ended_run_id="run_1", stop_reason=f"STOP_REASON_{stop}")
    return batch(message_event(5, "It is in retry.py."), run_end(6, name), idle), end(7)


SESSION = session_pb2.Session(session_id="sess_1", status="SESSION_STATUS_PENDING", head_seq=2)
CREATED = session_service_pb2.CreateSessionResponse(session=SESSION, run_id="run_1", seq=2)
APPENDED = event_service_pb2.AppendEventResponse(seq=4, event_id="evt_4", run_id="run_1")
