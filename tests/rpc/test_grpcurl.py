"""Turnlog through grpcurl, which knows of the contract what reflection tells it."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import struct_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import MessageToDict
from support.replicas import METHODS, Refused, Rpc, Space, fresh
from test_every_rpc import NEEDS_NOTHING
from turnlog.v1 import error_pb2

pytestmark = pytest.mark.system("grpcurl")

# grpcurl ends with 64 and the status code.
INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE = 67, 73, 75
TEXT = "nul \0, line\u2028separator, \u202eright to left\u202c, <b>&amp;</b>, 🏴󠁧󠁢󠁳󠁣󠁴󠁿, é and é"


@dataclass(frozen=True)
class Said:
    """What grpcurl printed: answers, or a status and its details by the last part of their types."""

    ended: int
    answers: list[Any]
    message: str = ""
    details: dict[str, Any] | None = None


def full_name(method: MethodDescriptor) -> str:
    """As grpcurl takes it."""
    return f"{method.containing_service.full_name}/{method.name}"


async def grpcurl(rpc: Rpc, name: str, /, **fields: Any) -> Said:
    """Calls an RPC by its name."""
    process = await asyncio.create_subprocess_exec(
        *("grpcurl", "-plaintext", "-format-error", "-max-time", "30", "-H", f"authorization: Bearer {rpc.key}"),
        *("-d", json.dumps(fields), rpc.address, full_name(METHODS[name])),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    answered, said = await process.communicate()
    assert process.returncode is not None
    answers = documents(answered.decode())
    if not process.returncode:
        return Said(0, answers)
    assert process.returncode > 64, said.decode()
    [status] = documents(said.decode())
    details = {detail["@type"].rpartition(".")[2]: detail for detail in status["details"]}
    return Said(process.returncode, answers, status["message"], details)


def documents(text: str) -> list[Any]:
    """JSON values one after the other."""
    found, decoder = [], json.JSONDecoder()
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


@pytest.mark.case(85, 93)
@pytest.mark.parametrize("name", sorted(METHODS))
async def test_every_rpc_tells_of_an_empty_request_what_it_lacks(space: Space, name: str) -> None:
    said = await grpcurl(space.live.rpc(space.runner_key) if name == "Connect" else space.rpc, name)
    if name in NEEDS_NOTHING:
        assert (said.ended, len(said.answers)) == (0, 1)
        return
    assert said.ended == INVALID_ARGUMENT
    assert said.message
    assert said.details
    info, bad = said.details["ErrorInfo"], said.details["BadRequest"]
    assert (info["reason"], info["domain"]) == ("INVALID_FIELD", "turnlog.dev")
    assert info["metadata"]["field"] == bad["field_violations"][0]["field"]
    assert all(violation["description"] for violation in bad["field_violations"])


@pytest.mark.case(85)
async def test_what_is_not_set_is_not_zero(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    asked = {"session_id": session_id, "authored_by": space.subject, "caused_by": {"kind": "KIND_API"}}
    said = await grpcurl(space.rpc, "AppendEvent", request_id=fresh(), **asked)
    assert said.ended == INVALID_ARGUMENT
    assert said.details
    assert said.details["BadRequest"]["field_violations"][0]["field"] == "event"
    message = {"user_message": {"parts": [{"text": "hello"}]}}
    said = await grpcurl(space.rpc, "AppendEvent", request_id=fresh(), expected_head_seq=0, **asked, **message)
    assert said.details
    assert said.details["ErrorInfo"]["reason"] == "SEQ_CONFLICT"
    assert not (await grpcurl(space.rpc, "AppendEvent", request_id=fresh(), **asked, **message)).ended
    for page_size, ended in ((None, 0), (0, 0), (-1, INVALID_ARGUMENT)):
        fields = {} if page_size is None else {"page_size": page_size}
        assert (await grpcurl(space.rpc, "ListEvents", session_id=session_id, **fields)).ended == ended
    # A part that says nothing is none; a text that is empty is one.
    for part, ended in (({}, INVALID_ARGUMENT), ({"text": ""}, 0)):
        said = await grpcurl(space.rpc, "AppendEvent", request_id=fresh(), **asked, user_message={"parts": [part]})
        assert said.ended == ended


@pytest.mark.case(93)
async def test_details_of_every_kind_are_printed(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    said = await grpcurl(space.rpc, "FollowEvents", session_id=session_id, after_seq=999)
    assert (said.ended, said.answers) == (OUT_OF_RANGE, [])
    assert said.details
    assert said.details["ErrorInfo"]["reason"] == "CURSOR_AHEAD"
    assert said.details["ErrorInfo"]["metadata"] == {"head_seq": "2"}
    await space.say(session_id)
    said = await grpcurl(space.rpc, "CompleteSession", request_id=fresh(), session_id=session_id)
    assert said.ended == FAILED_PRECONDITION
    assert said.details
    assert said.details["ErrorInfo"]["reason"] == "SESSION_BUSY"
    for _ in range(100):
        await space.say(session_id)
    asked = {"session_id": session_id, "authored_by": space.subject, "caused_by": {"kind": "KIND_API"}}
    message = {"user_message": {"parts": [{"text": "one too many"}]}}
    said = await grpcurl(space.rpc, "AppendEvent", request_id=fresh(), **asked, **message)
    assert said.details
    assert said.details["ErrorInfo"]["reason"] == "QUOTA_EXCEEDED"
    assert said.details.keys() <= {"ErrorInfo", "RetryInfo", "BadRequest"}


def struct(value: float) -> struct_pb2.Struct:
    """A Struct with this number in a list."""
    whole = struct_pb2.Struct()
    whole.fields["inside"].list_value.values.add(number_value=value)
    return whole


@pytest.mark.case(91)
async def test_numbers_that_json_has_not_are_not_taken(space: Space) -> None:
    session = (await space.session("hello")).session
    head = session.head_seq
    for number in map(float, ("nan", "inf", "-inf")):
        tools = [{"name": "search", "parameters": struct(number)}]
        with pytest.raises(Refused) as refused:
            await space.rpc.call("PublishAgentVersion", agent_id=session.pins.agent_id, tools=tools)
        assert refused.value.reason == "INVALID_FIELD"
    async with space.runner() as runner:
        offer = await runner.start()
        call = {"call_id": "1", "name": "search", "arguments": struct(number)}
        ack = await runner.append(offer, agent_tool_use=call)
        assert [each.reason for each in ack.rejections] == [error_pb2.ERROR_REASON_INVALID_FIELD]
    said = await grpcurl(space.rpc, "ListEvents", session_id=session.session_id, after_seq=head, types="agent.tool_use")
    assert (said.ended, said.answers[0].get("events", [])) == (0, [])


@pytest.mark.case(88, 91)
async def test_whatever_was_taken_is_printed(space: Space) -> None:
    started = await space.session(TEXT)
    session_id = started.session.session_id
    numbers = (0.1, -0.0, 1.7976931348623157e308, 5e-324, 2.0**53 + 2)
    async with space.runner() as runner:
        offer = await runner.start()
        for number in numbers:
            call = {"call_id": fresh(), "name": "search", "arguments": struct(number)}
            assert not (await runner.append(offer, agent_tool_use=call)).rejections
        await runner.append(offer, agent_tool_result={"call_id": "1", "parts": [{"text": TEXT}], "data": b"\0\xff"})
        await runner.settle(offer, "OUTCOME_FAILED", error={"code": "harness.exited", "message": TEXT})
    said = await grpcurl(space.rpc, "ListEvents", session_id=session_id, page_size=1000)
    page = await space.rpc.call("ListEvents", session_id=session_id, page_size=1000)
    assert said.answers == [MessageToDict(page)]
    uses = [event for event in page.events if event.type == "agent.tool_use"]
    assert tuple(use.agent_tool_use.arguments["inside"][0] for use in uses) == numbers
    # What the database holds of it is no worse to print.
    of_session = {"session_id": session_id}
    for name, fields in {"GetSession": of_session, "ListRuns": of_session, "ListSessions": {}}.items():
        printed = (await grpcurl(space.rpc, name, **fields)).answers
        assert printed == [MessageToDict(await space.rpc.call(name, **fields))]
    until = {"boundary": "BOUNDARY_TURN", "run_id": started.run_id}
    followed = await grpcurl(space.rpc, "FollowEvents", session_id=session_id, until=until)
    assert followed.ended == 0
    events = [event for frame in followed.answers for event in frame.get("events", {}).get("events", ())]
    assert events == said.answers[0]["events"]
    assert followed.answers[-1]["end"]["reason"] == "REASON_BOUNDARY"
