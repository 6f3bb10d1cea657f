"""Structs that are nested deeper than every language reads."""

from collections.abc import Callable

import grpc
import pytest
from google.protobuf import struct_pb2
from support.replicas import Refused, Space, fresh
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import agent_service_pb2, event_service_pb2


def field(number: int, inside: bytes) -> bytes:
    """A field that holds bytes: a message, or text. Written by hand, for no library writes what it could not read."""
    return varint(number << 3 | 2) + varint(len(inside)) + inside


def varint(number: int) -> bytes:
    """A number as the wire has it."""
    raw = b""
    while number > 127:
        raw += bytes([number & 127 | 128])
        number >>= 7
    return raw + bytes([number])


def structs(depth: int) -> bytes:
    """A Struct of this depth, itself included."""
    whole = b""
    for _ in range(depth - 1):
        whole = field(1, field(1, b"in") + field(2, field(5, whole)))
    return whole


def lists(depth: int) -> bytes:
    """The same of lists, but for the outermost."""
    whole = b""
    for _ in range(depth - 2):
        whole = field(1, field(6, whole))
    return field(1, field(1, b"in") + field(2, field(6, whole)))


@pytest.mark.case(90)
@pytest.mark.parametrize("make", [structs, lists])
async def test_only_what_every_language_reads_is_taken(space: Space, make: Callable[[int], bytes]) -> None:
    session = (await space.session()).session
    head = agent_service_pb2.PublishAgentVersionRequest(agent_id=session.pins.agent_id, instructions="Help.")
    for depth in (20, 32, 33, 34, 100, 10_000):
        head.request_id = fresh()
        tools = agent_service_pb2.PublishAgentVersionRequest.DESCRIPTOR.fields_by_name["tools"].number
        parameters = agent_service_pb2.PublishAgentVersionRequest.DESCRIPTOR.fields_by_name["tools"].message_type
        tool = field(1, b"deep") + field(parameters.fields_by_name["parameters"].number, make(depth))
        raw = head.SerializeToString() + field(tools, tool)
        if depth <= 32:
            published = (await space.rpc.send("PublishAgentVersion", raw)).agent_version
            read = await space.rpc.call(
                "GetAgentVersion", agent_id=published.agent_id, version_number=published.version_number
            )
            assert read.agent_version.tools[0].parameters == struct_pb2.Struct.FromString(make(depth))
            continue
        with pytest.raises(Refused) as refused:
            await space.rpc.send("PublishAgentVersion", raw)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert refused.value.reason in ("INVALID_FIELD", "LIMIT_EXCEEDED")
    assert (await space.get(session.session_id)).session_id == session.session_id


@pytest.mark.case(90)
async def test_a_runner_that_sends_what_cannot_be_parsed_is_told_so(space: Space) -> None:
    tool_use = field(1, b"1") + field(2, b"search") + field(3, structs(10_000))
    raw = field(fleet.ConnectRequest.APPEND_FIELD_NUMBER, field(2, field(41, tool_use)))
    stream = space.live.rpc(space.runner_key).channel.stream_stream("/turnlog.runner.v1.RunnerService/Connect")
    call = stream(metadata=[("authorization", f"Bearer {space.runner_key}")])
    await call.write(raw)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await call.read()
    assert Refused(ended.value).reason == "INVALID_FIELD"
    async with space.runner():
        pass


@pytest.mark.case(90)
async def test_what_nobody_knows_of_a_message_breaks_no_reader(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    head = space.rpc.request(
        "AppendEvent", session_id=session_id, authored_by=space.subject, caused_by={"kind": "KIND_API"}
    )
    # Groups of a field that does not exist, as deep as a request can be read, which is deeper than a page can.
    deep = varint(999 << 3 | 3) * 98 + varint(999 << 3 | 4) * 98
    text = event_service_pb2.AppendEventRequest(user_message={"parts": [{"text": "deep"}]}).user_message
    number = event_service_pb2.AppendEventRequest.USER_MESSAGE_FIELD_NUMBER
    await space.rpc.send("AppendEvent", head.SerializeToString() + field(number, text.SerializeToString() + deep))
    said = [event for event in await space.log(session_id) if event.type == "user.message"]
    assert said[0].user_message == text
    followed = await space.rpc.stream("FollowEvents", session_id=session_id).until("caught_up")
    assert said[0] in followed
