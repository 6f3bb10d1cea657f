"""What is too large, too deep, out of range or not text is refused at the door, and what was let in can be read."""

import asyncio
import math

import grpc
import pytest
from google.protobuf import struct_pb2
from support.replicas import METHODS, FakeRunner, Refused, Rpc, Space, fresh, said
from support.story import text_of
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import error_pb2, event_pb2, event_service_pb2

MIB = 1024 * 1024


async def refusal(call: object) -> Refused:
    """The refusal that the call ends with; never a mistake of the server's."""
    with pytest.raises(Refused) as refused:
        await call  # type: ignore[misc]
    assert len(refused.value.message.encode()) <= 1024
    assert sum(len(str(value)) for value in refused.value.trailers.values()) < 8 * 1024
    return refused.value


def field(number: int, body: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def nested(depth: int, *, lists: bool = False) -> bytes:
    """A Struct of this depth, on the wire: no library would make the deeper ones. It alone is 1."""
    value = struct_pb2.Value(number_value=1).SerializeToString()
    for _ in range(depth - 1):
        value = field(6, field(1, value)) if lists else field(5, field(1, field(1, b"in") + field(2, value)))
    return field(1, field(1, b"top") + field(2, value))


class RawRpc(Rpc):
    """Sends on the runner's stream what is bytes already as it is."""

    def connect(self) -> grpc.aio.StreamStreamCall:
        stub = self.channel.stream_stream(
            "/turnlog.runner.v1.RunnerService/Connect",
            lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            fleet.ConnectResponse.FromString,
        )
        return stub(metadata=(("authorization", f"Bearer {self.key}"),))


@pytest.mark.case(7)
@pytest.mark.slow
async def test_no_response_is_larger_than_any_client_takes(space: Space) -> None:
    """2,000 events of 8 KiB, read with the largest page and followed, by a client with the limits of its library."""
    session_id = (await space.session("go")).session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        for _ in range(40):
            await runner.append(offer, *["x" * 8_192] * 50)
        await runner.settle(offer)
    log, pages, token = [], 0, ""
    while True:
        page = await space.rpc.call("ListEvents", session_id=session_id, page_size=1_000_000, page_token=token)
        assert page.ByteSize() <= 4 * MIB
        log.extend(event.seq for event in page.events)
        pages += 1
        if not (token := page.next_page_token):
            break
    assert log == list(range(1, page.head_seq + 1))
    assert pages > 3
    follow = space.rpc.stream("FollowEvents", session_id=session_id)
    assert [event.seq for event in await follow.until("caught_up")] == log
    assert max(frame.ByteSize() for frame in follow.frames) <= 4 * MIB
    follow.cancel()


@pytest.mark.case(7)
async def test_nor_is_a_list_of_sessions_with_all_the_labels_they_may_have(space: Space) -> None:
    labels = {f"k{n}".ljust(63, "x"): "\U0001f3f4" * 255 for n in range(64)}
    for _ in range(8):
        await asyncio.gather(*(space.session(labels=labels) for _ in range(8)))
    found: set[str] = set()
    token = ""
    for _ in range(64):
        page = await space.rpc.call("ListSessions", page_size=500, page_token=token)
        assert page.ByteSize() <= 4 * MIB
        found |= {session.session_id for session in page.sessions}
        if not (token := page.next_page_token):
            break
    assert len(found) == 64


async def test_sizes_of_messages(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    most = 256 * 1024
    answer = await space.say(session_id, "x" * (most - 64))
    assert len((await space.log(session_id))[answer.seq - 1].user_message.parts[0].text) == most - 64
    refused = await refusal(space.say(session_id, "x" * most))
    assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "LIMIT_EXCEEDED")
    assert refused.metadata["limit"] == "event_payload_bytes"
    assert refused.metadata["maximum"] == str(most)
    assert "upload" in refused.message
    assert (await refusal(space.say(session_id, "x" * (most + 1)))).code.name == "INVALID_ARGUMENT"
    parts = [{"text": "x" * 200_000}] * 25
    request = space.rpc.request(
        "AppendEvent",
        session_id=session_id,
        authored_by=space.subject,
        caused_by={"kind": "KIND_API"},
        user_message={"parts": parts},
    ).SerializeToString()
    assert 4 * MIB < len(request) < 8 * MIB
    refused = await refusal(space.rpc.send("AppendEvent", request))
    assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "LIMIT_EXCEEDED")
    assert refused.metadata["limit"] == "message_bytes"
    assert (await refusal(space.rpc.send("AppendEvent", request * 2))).code.name == "RESOURCE_EXHAUSTED"
    refused = await refusal(space.session(labels={"k": "v"}, first_message={"parts": parts[:2]}))
    assert refused.metadata["limit"] == "event_payload_bytes"
    assert len(await space.log(session_id)) == answer.seq + 3


@pytest.mark.case(88, 90, 91)
async def test_what_some_language_could_not_read_back_is_refused(space: Space) -> None:
    """A runner's tool call with a Struct too deep, too wide or not a number is refused; the log can be read by all."""

    async def call(arguments: bytes) -> tuple[str, list[event_pb2.Event]]:
        """The reason of the refusal, or OK, and the calls that the log has."""
        session_id = (await space.session("go")).session.session_id
        rpc = RawRpc(space.live.address, space.runner_key)
        runner = FakeRunner(rpc, harness=space.harness)
        await runner.welcome()
        offer = await runner.start()
        use = field(1, b"1") + field(2, b"search") + field(3, arguments)
        await runner.call.write(field(6, field(1, runner.lease(offer).SerializeToString()) + field(2, field(41, use))))
        try:
            ack = await runner.expect("ack")
            reason = error_pb2.ErrorReason.Name(ack.rejections[0].reason) if ack.rejections else "OK"
        except Refused as refused:
            reason = refused.reason
        finally:
            runner.hang_up()
            await rpc.close()
        # Nobody else is offered what the lost runner leaves.
        await space.rpc.call("CancelRun", session_id=session_id, run_id=offer.run_id)
        listed = [event for event in await space.log(session_id) if event.type == "agent.tool_use"]
        follow = space.rpc.stream("FollowEvents", session_id=session_id, types=["agent.tool_use"])
        assert await follow.until("caught_up") == listed
        follow.cancel()
        return reason.removeprefix("ERROR_REASON_"), listed

    def struct(**fields: struct_pb2.Value) -> bytes:
        return struct_pb2.Struct(fields=fields).SerializeToString()

    wide = struct(**{f"k{n}": struct_pb2.Value(number_value=n) for n in range(1_001)})
    numbers = struct_pb2.ListValue(values=[struct_pb2.Value(number_value=n) for n in range(1_001)])
    for arguments in (nested(1), nested(20), nested(32), nested(32, lists=True)):
        reason, listed = await call(arguments)
        assert reason == "OK"
        assert [event.agent_tool_use.arguments for event in listed] == [struct_pb2.Struct.FromString(arguments)]
    for arguments in (
        *(nested(depth) for depth in (33, 34, 100, 10_000)),
        *(nested(depth, lists=True) for depth in (33, 40, 100, 10_000)),
        *(struct(k=struct_pb2.Value(number_value=n)) for n in (math.nan, math.inf, -math.inf)),
        wide,
        struct(k=struct_pb2.Value(list_value=numbers)),
        struct(k=struct_pb2.Value()),
    ):
        reason, listed = await call(arguments)
        assert reason in ("INVALID_FIELD", "LIMIT_EXCEEDED"), arguments[:100]
        assert not listed


@pytest.mark.case(90)
async def test_a_message_nested_ten_thousand_deep_kills_nobody(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    raw = b""
    for _ in range(10_000):
        raw = b"\x0a" + _varint(len(raw)) + raw
    request = space.rpc.request(
        "AppendEvent", session_id=session_id, authored_by=space.subject, caused_by={"kind": "KIND_API"}
    ).SerializeToString()
    deep_group = b"\xab\x06" * 10_000 + b"\xac\x06" * 10_000
    for tail in (b"\xa2\x01" + _varint(len(raw)) + raw, deep_group, b"\xff\xff", b"\xa2\x01\x05ab"):
        refused = await refusal(space.rpc.send("AppendEvent", request + tail))
        assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert (await space.say(session_id)).seq


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.case(88)
async def test_any_text_is_kept_and_what_is_no_text_is_refused(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    for text in ("\0", "a\0b\0", "\u200b", "\U0010ffff", "\ufeff", "\x1b[31mred", "é", "é", " ", "\r\n"):
        answer = await space.say(session_id, text, caused_by={"kind": "KIND_API", "reference": text})
        event = (await space.rpc.call("ListEvents", session_id=session_id, after_seq=answer.seq - 1)).events[0]
        assert (text_of(event.user_message), event.caused_by.reference) == (text, text)
    request = event_service_pb2.AppendEventRequest(
        request_id=fresh(), session_id=session_id, authored_by=space.subject, caused_by={"kind": 1}
    )
    for wrong in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80"):
        part = b"\x0a" + _varint(len(wrong)) + wrong
        message = b"\x0a" + _varint(len(part)) + part
        raw = request.SerializeToString() + b"\xa2\x01" + _varint(len(message)) + message
        refused = await refusal(space.rpc.send("AppendEvent", raw))
        assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")


async def test_control_characters_in_names_and_ids(space: Space) -> None:
    """In a label, an id or a filter they are refused, or as unknown as any other; what is beside them is not hurt."""
    created = await space.session("hello")
    session_id, run_id = created.session.session_id, created.run_id
    rpc = space.rpc
    beside = asyncio.gather(*(space.session("beside") for _ in range(8)))
    for value in ("\0", "a\0b", "a\nb", "\x1b[31m", "\x7f"):
        refused = await refusal(space.session(labels={"key": value}))
        assert (refused.code.name, list(refused.fields)) == ("INVALID_ARGUMENT", ["labels[key]"]), repr(value)
        assert not (await _listed(space, labels={"key": value}))
    assert len(await beside) == 8
    assert (await refusal(space.session(labels={"k\0": "v"}))).code.name == "INVALID_ARGUMENT"
    for name in ("GetSession", "ListEvents", "ListRuns", "DeleteSession", "CompleteSession", "CancelSession"):
        assert (await refusal(rpc.call(name, session_id="sess_\0"))).reason in ("NOT_FOUND", "INVALID_FIELD"), name
    for name in ("GetRun", "ListAttempts", "CancelRun"):
        refused = await refusal(rpc.call(name, session_id=session_id, run_id="run_\0"))
        assert refused.reason in ("NOT_FOUND", "INVALID_FIELD"), name
        refused = await refusal(rpc.call(name, session_id="sess_\0", run_id=run_id))
        assert refused.reason in ("NOT_FOUND", "INVALID_FIELD"), name
    for call in (
        space.session(agent_deployment_id="adep_\0"),
        space.say("sess_\0"),
        space.interrupt(session_id, run_id="run_\0"),
        space.say(session_id, authored_by="\0"),
        space.say(session_id, principal="prn_\0"),
        rpc.stream("FollowEvents", session_id="sess_\0").frame(),
        rpc.stream("FollowEvents", session_id=session_id, until={"boundary": 2, "run_id": "run_\0"}).frame(),
        rpc.stream("FollowSessions", sessions=[{"session_id": "sess_\0"}]).frame(),
        rpc.stream("FollowEvents", session_id=session_id, types=["\0"]).frame(),
        rpc.call("ListEvents", session_id=session_id, types=["user.message", "no.such"]),
        rpc.call("GetRequest", method="\0", request_id="x"),
        rpc.call("GetRequest", method="AppendEvent", session_id="sess_\0", request_id="x"),
        rpc.call("ListEvents", session_id=session_id, page_token="\0"),
        rpc.call("ListSessions", page_token="AAAA"),
    ):
        assert (await refusal(call)).code.name not in ("INTERNAL", "UNKNOWN", "UNAVAILABLE")
    await rpc.call("CancelSession", session_id=session_id, reason="nul \0 in a reason")
    run = (await rpc.call("GetRun", session_id=session_id, run_id=run_id)).run
    assert run.error.message == "nul \0 in a reason"


async def _listed(space: Space, **fields: object) -> list[object]:
    """Sessions found; none where the filter itself is refused."""
    try:
        return list((await space.rpc.call("ListSessions", **fields)).sessions)
    except Refused as refused:
        if refused.code.name == "INVALID_ARGUMENT":
            return []
        raise


async def test_numbers_of_enums_that_are_none(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    for call in (
        space.say(session_id, if_busy=99),
        space.say(session_id, caused_by={"kind": 99}),
        space.rpc.call("ListSessions", statuses=[99]),
        space.rpc.call("ListSessions", statuses=[0]),
        space.rpc.stream("FollowEvents", session_id=session_id, until={"boundary": 99}).frame(),
    ):
        assert (await refusal(call)).code.name == "INVALID_ARGUMENT"


@pytest.mark.case(94)
async def test_five_hundred_mistakes_in_one_request(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    request = space.rpc.request(
        "AppendEvent",
        session_id=session_id,
        authored_by=space.subject,
        caused_by={"kind": "KIND_API"},
        user_message={"parts": [{} for _ in range(500)]},
    )
    refused = await refusal(space.rpc.send("AppendEvent", request.SerializeToString()))
    assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert 1 <= len(refused.fields) <= 20
    assert "user_message.parts[0]" in next(iter(refused.fields))
    assert "more" in refused.message


@pytest.mark.case(94)
async def test_an_error_of_a_harness_is_cut_and_its_code_arrives(space: Space) -> None:
    session_id = (await space.session("go")).session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        message = "\U0001f4a5" * 16_384
        await runner.settle(offer, "OUTCOME_FAILED", error={"code": "harness.broken", "message": message})
    run = (await space.rpc.call("GetRun", session_id=session_id, run_id=offer.run_id)).run
    assert run.error.code == "harness.broken"
    assert len(run.error.message.encode()) <= 1024
    assert run.error.message.startswith("\U0001f4a5" * 10)


async def test_zero_and_unset_differ_where_they_mean_different_things(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    assert (await space.say(session_id)).seq
    assert (await refusal(space.say(session_id, expected_head_seq=0))).reason == "SEQ_CONFLICT"
    assert (await space.session()).session.reusable
    assert not (await space.session(reusable=False)).session.reusable
    assert (await space.rpc.call("ListEvents", session_id=session_id, page_size=0)).events
    for name, fields in {"AppendEvent": ["expected_head_seq"], "CreateSession": ["reusable"]}.items():
        for field in fields:
            assert METHODS[name].input_type.fields_by_name[field].has_presence


async def test_what_is_beside_a_refused_command_is_not_refused_with_it(space: Space) -> None:
    """Many at once, every third of them wrong: each is answered for itself."""
    session_id = (await space.session("busy")).session.session_id

    async def one(number: int) -> str:
        try:
            if number % 3:
                await space.say(session_id, said("x").agent_message.parts[0].text)
            else:
                await space.say(session_id, expected_head_seq=1)
        except Refused as refused:
            return refused.reason
        return "OK"

    answers = await asyncio.gather(*(one(number) for number in range(60)))
    assert answers == ["OK" if number % 3 else "SEQ_CONFLICT" for number in range(60)]
