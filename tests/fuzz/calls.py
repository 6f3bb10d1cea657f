"""Calls with one request: sent as bytes, and judged by how they end."""

import asyncio
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from support.replicas import METHODS
from turnlog.v1 import event_service_pb2 as events
from turnlog.v1 import session_service_pb2 as sessions

from fuzz.messages import Call
from fuzz.oracle import SAID_IN_HASTE, of_error

# A follow that goes on for ever has been answered enough.
FRAMES = 12
RESPONSE_BYTES = 4 * 1024 * 1024
# What gRPC itself says, of a call that it never gave to a handler.
TRANSPORT_BYTES = 8 * 1024 * 1024
ENDS_OF_HASTE = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


@dataclass
class Tally:
    """What was sent and how it ended, and what of that is a fault."""

    messages: int = 0
    ends: dict[str, int] = field(default_factory=dict)
    of_method: dict[str, dict[str, int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    maybe_deleted: set[str] = field(default_factory=set)

    def end(self, method: str, how: str) -> None:
        """One more that ended so."""
        for counts in (self.ends, self.of_method.setdefault(method, {})):
            counts[how] = counts.get(how, 0) + 1


async def send(channel: grpc.aio.Channel, call: Call, tally: Tally) -> str:
    """Sends it and waits for its end. Returns the fault, empty where there is none."""
    described = METHODS[call.method]
    path = f"/{described.containing_service.full_name}/{call.method}"
    metadata, tally.messages = tuple(call.metadata), tally.messages + 1
    try:
        if described.server_streaming:
            kind = GetMessageClass(described.output_type)
            stream = channel.unary_stream(path)(call.raw, metadata=metadata, timeout=call.seconds)
            answers = await _frames(stream, kind)
        else:
            answers = [await channel.unary_unary(path)(call.raw, metadata=metadata, timeout=call.seconds)]
    except grpc.aio.AioRpcError as error:
        return _refused(call, error, tally)
    tally.end(call.method, "OK")
    return _answered(call, answers, tally)


async def _frames(stream: grpc.aio.UnaryStreamCall, kind: type[Message]) -> list[bytes]:
    """As many as there are at once: a frame that is no batch of events comes after the last of them."""
    frames = []
    try:
        while len(frames) < FRAMES:
            frame = await stream.read()
            if frame is grpc.aio.EOF:
                break
            frames.append(frame)
            if kind.FromString(frame).WhichOneof("frame") != "events":
                break
    finally:
        stream.cancel()
    code = await stream.code()
    if code not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
        raise grpc.aio.AioRpcError(
            code, await stream.initial_metadata(), await stream.trailing_metadata(), await stream.details()
        )
    return frames


def _refused(call: Call, error: grpc.aio.AioRpcError, tally: Tally) -> str:
    answer = of_error(error)
    tally.end(call.method, answer.reason or f"({answer.code.name})")
    if call.method == "DeleteSession" and not answer.reason:
        tally.maybe_deleted.update(_ids(call))
    if call.hasty and answer.reason in SAID_IN_HASTE and answer.code in ENDS_OF_HASTE:
        return ""
    if not answer.reason and answer.code is grpc.StatusCode.RESOURCE_EXHAUSTED and len(call.raw) > TRANSPORT_BYTES:
        return ""
    return answer.fault


def _answered(call: Call, answers: list[bytes], tally: Tally) -> str:
    kind = GetMessageClass(METHODS[call.method].output_type)
    for raw in answers:
        if len(raw) > RESPONSE_BYTES:
            return f"a response of {len(raw)} bytes"
        try:
            answer = kind.FromString(raw)
        except DecodeError:
            return "a response that cannot be parsed"
        _note(call, answer, tally)
    return ""


def _note(call: Call, answer: Message, tally: Tally) -> None:
    """Sessions that now exist, or may not any more."""
    if call.method == "DeleteSession":
        tally.maybe_deleted.update(_ids(call))
    elif call.method == "CreateSession":
        tally.sessions.add(answer.session.session_id)  # type: ignore[attr-defined]


def _ids(call: Call) -> set[str]:
    request = GetMessageClass(METHODS[call.method].input_type)
    try:
        return {request.FromString(call.raw).session_id}  # type: ignore[attr-defined]
    except DecodeError:
        return set()


async def read_whole(channel: grpc.aio.Channel, key: str, session_id: str) -> list[int] | None:
    """The numbers of a Session's events, by GetSession and ListEvents; None where it is gone."""
    metadata, seqs, token = (("authorization", f"Bearer {key}"),), [], ""
    get = channel.unary_unary(
        "/turnlog.v1.SessionService/GetSession",
        sessions.GetSessionRequest.SerializeToString,
        sessions.GetSessionResponse.FromString,
    )
    page = channel.unary_unary(
        "/turnlog.v1.EventService/ListEvents",
        events.ListEventsRequest.SerializeToString,
        events.ListEventsResponse.FromString,
    )
    try:
        shown = await get(sessions.GetSessionRequest(session_id=session_id), metadata=metadata, timeout=30)
        while True:
            asked = events.ListEventsRequest(session_id=session_id, page_size=1000, page_token=token)
            got = await page(asked, metadata=metadata, timeout=30)
            seqs.extend(event.seq for event in got.events)
            token = got.next_page_token
            if not token:
                break
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise
    assert len(seqs) >= shown.session.head_seq, "fewer events than GetSession says"
    return seqs


async def spread(work: list[Call], channels: list[grpc.aio.Channel], tally: Tally, depth: int) -> dict[int, str]:
    """Sends all of them, `depth` at a time on each channel. Returns faults by position."""
    faults: dict[int, str] = {}
    todo = iter(enumerate(work))

    async def worker(channel: grpc.aio.Channel) -> None:
        for at, call in todo:
            try:
                fault = await send(channel, call, tally)
            except (ValueError, TypeError):
                # Metadata that gRPC's own client does not send.
                tally.end(call.method, "(not sent)")
                continue
            if fault:
                faults[at] = fault

    await asyncio.gather(*(worker(channel) for channel in channels for _ in range(depth)))
    return faults
