"""The adapter by itself: what becomes of a call whose caller has left."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from turnlog.runner.v1 import runner_service_pb2
from turnlog.v1 import event_service_pb2
from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.credentials import credential_invalid
from turnlog_server.service.epochs import Epochs
from turnlog_server.transport import adapter as transport
from turnlog_server.transport.adapter import Adapter


class Gone:
    """The context of a call whose other side left a moment ago."""

    def time_remaining(self) -> None:
        return None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer tlk_x"),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def write(self, raw: bytes) -> None:
        raise grpc.aio.InternalError("the batch failed")

    def set_trailing_metadata(self, metadata: Any) -> None:
        self.metadata = metadata

    def set_code(self, code: Any) -> None:
        self.code = code

    def set_details(self, message: str) -> None:
        self.message = message


class Observer:
    """What was counted."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def request(self, method: str, code: str, seconds: float | None = None) -> None:
        self.codes.append(code)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.mark.parametrize("name", ["FollowEvents", "Connect"])
async def test_a_caller_that_leaves_in_the_middle_of_a_frame_is_no_fault_of_ours(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def internal(*_: Any, **__: Any) -> Any:
        raise AssertionError("reported as a mistake of the server")

    monkeypatch.setattr(transport, "internal", internal)
    role = Role.RUNNER if name == "Connect" else Role.VIEWER

    async def authenticate(*_: Any, **__: Any) -> Caller:
        return Caller("ws_1", "svc_1", "key_1", role, 1, ("default",))

    async def follow(ctx: Any, request: Any) -> AsyncIterator[bytes]:
        while True:
            yield b"frame"

    async def connect(ctx: Any, stream: Any) -> None:
        await stream.write(b"message")

    module = runner_service_pb2 if name == "Connect" else event_service_pb2
    service = module.DESCRIPTOR.services_by_name["RunnerService" if name == "Connect" else "EventService"]
    servicer = SimpleNamespace(**{method.name: connect if name == "Connect" else follow for method in service.methods})
    observer: Any = Observer()
    authenticator: Any = SimpleNamespace(authenticate=authenticate)
    ((_, handlers),) = Adapter(authenticator, Epochs(), observer).handlers({service: servicer})
    request: Any = event_service_pb2.FollowEventsRequest(session_id="sess_1").SerializeToString()
    handle = handlers[name].stream_stream if name == "Connect" else handlers[name].unary_stream
    with pytest.raises(asyncio.CancelledError):
        await handle(request, Gone())  # type: ignore[misc]
    assert observer.codes == ["CANCELLED"]


async def test_a_refusal_is_the_status_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: Any, **__: Any) -> Caller:
        raise credential_invalid()

    observer: Any = Observer()
    authenticator: Any = SimpleNamespace(authenticate=nobody)
    service = event_service_pb2.DESCRIPTOR.services_by_name["EventService"]
    servicer = SimpleNamespace(**{method.name: nobody for method in service.methods})
    ((_, handlers),) = Adapter(authenticator, Epochs(), observer).handlers({service: servicer})
    for handle in (handlers["ListEvents"].unary_unary, handlers["FollowEvents"].unary_stream):
        context = Gone()
        assert not await handle(b"", context)  # type: ignore[misc]
        assert context.code is grpc.StatusCode.UNAUTHENTICATED
        assert dict(context.metadata).keys() == {transport.DETAILS_KEY}
    assert observer.codes == ["UNAUTHENTICATED", "UNAUTHENTICATED"]


class Slow(Gone):
    """A context whose message is on its way until it is let go."""

    def __init__(self) -> None:
        self.under_way, self.gone = asyncio.Event(), asyncio.Event()

    async def write(self, raw: bytes) -> None:
        self.under_way.set()
        await self.gone.wait()


async def test_a_stream_is_closed_when_what_is_on_its_way_is_gone() -> None:
    context: Any = Slow()
    method = transport.Method.of(runner_service_pb2.DESCRIPTOR.services_by_name["RunnerService"].methods[0])
    stream = transport.Stream(method, SimpleNamespace(), context)  # type: ignore[arg-type]
    await asyncio.wait_for(stream.close(), 5)
    stream = transport.Stream(method, SimpleNamespace(), context)  # type: ignore[arg-type]
    writing = asyncio.create_task(stream.write(b"message"))
    await context.under_way.wait()
    closing = asyncio.create_task(stream.close())
    assert not (await asyncio.wait({closing}, timeout=0.1))[0]
    context.gone.set()
    await asyncio.wait_for(asyncio.gather(writing, closing), 5)
    with pytest.raises(asyncio.CancelledError):
        await stream.write(b"another")
