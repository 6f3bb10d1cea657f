"""Clients in other languages against a real server: what Python writes they read, and what they ask for is answered."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf import struct_pb2
from scripted import ScriptedServer, batch, message_event
from support.foreign import TOOLS, Probe, build
from support.postgres import PostgresServer
from support.replicas import Space, live_replica, make_space
from turnlog.v1 import event_pb2, event_service_pb2

LANGUAGES = [pytest.param(language, marks=pytest.mark.system(*tools)) for language, tools in TOOLS.items()]
# A build takes minutes where nothing is cached yet.
pytestmark = pytest.mark.timeout(900)

INVALID_ARGUMENT = 3
SAID = "nul \0, bell \x07, line\u2028separator, \u202eright to left\u202c, 🏴󠁧󠁢󠁳󠁣󠁴󠁿, é and é"


@pytest.fixture(scope="session", params=LANGUAGES)
async def probe(request: pytest.FixtureRequest) -> Probe:
    return await asyncio.to_thread(build, request.param)


def at(space: Space) -> dict[str, str]:
    """Where the server is and who asks."""
    return {
        "address": space.live.address,
        "key": space.key,
        "deployment": space.deployment_id,
        "author": space.subject,
    }


def envelopes(log: list[event_pb2.Event]) -> list[dict[str, Any]]:
    """Events of Python's, as a probe tells them, without what is in their payload."""
    return [
        {
            "seq": event.seq,
            "event_id": event.event_id,
            "type": event.type,
            "time": f"{event.create_time.seconds}.{event.create_time.nanos:09}",
            "payload": event.WhichOneof("payload"),
            "ignorable": event.ignorable,
        }
        for event in log
    ]


def bare(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events of a probe's without what is in their payload."""
    of_payload = ("text", "arguments", "input_tokens", "error")
    return [{key: value for key, value in event.items() if key not in of_payload} for event in told]


@pytest.mark.rule("R17")
async def test_a_turn_is_started_followed_cut_and_resumed(probe: Probe, space: Space) -> None:
    made = await probe("turn", **at(space), text=SAID)
    asked = at(space) | {"session": made["session"], "run": made["run"]}
    following = asyncio.create_task(probe("follow", **asked))
    async with space.runner() as runner:
        offer = await runner.start()
        assert offer.run_id == made["run"]
        for number in range(20):
            await runner.append(offer, f"{number}")
        await runner.settle(offer)
    log = await space.log(made["session"])
    followed = await following
    assert followed["end"] == "REASON_BOUNDARY"
    assert bare(followed["events"]) == envelopes(log)
    assert followed["events"][made["seq"] - 1]["text"] == SAID
    for cut in (1, 7, len(log) - 1):
        resumed = await probe("follow", **asked, cut=cut)
        assert len(resumed["before"]) == cut
        assert resumed["before"] + resumed["events"] == followed["events"]
    listed = await probe("list", **asked, page_size=3)
    assert listed["events"] == followed["events"]
    assert listed["pages"] >= len(log) / 3


@pytest.mark.case(7)
async def test_no_message_is_larger_than_a_client_takes_by_default(probe: Probe, space: Space) -> None:
    started = await space.session("write")
    session_id = started.session.session_id
    texts = [f"{number:04} ".ljust(8192, "x") for number in range(2000)]
    async with space.runner() as runner:
        offer = await runner.start()
        for start in range(0, len(texts), 100):
            await runner.append(offer, *texts[start : start + 100])
        await runner.settle(offer)
    asked = at(space) | {"session": session_id, "run": started.run_id}
    listed = await probe("list", **asked, page_size=1000)
    assert [event["text"] for event in listed["events"] if event["type"] == "agent.message"] == texts
    assert [event["seq"] for event in listed["events"]] == list(range(1, len(listed["events"]) + 1))
    followed = await probe("follow", **asked)
    assert followed["events"] == listed["events"]


@pytest.mark.case(10)
async def test_many_follows_on_one_channel_leave_room_for_a_call(probe: Probe, space: Space) -> None:
    session_id = (await space.session()).session.session_id
    answer = await probe("crowd", **at(space), session=session_id, follows=150, seconds=20)
    assert answer.get("arrived") == 150, answer
    assert (await space.log(session_id))[answer["seq"] - 1].type == "user.message"


@pytest.mark.case(94)
async def test_five_hundred_faults_arrive_as_what_they_are(probe: Probe, space: Space) -> None:
    session_id = (await space.session()).session.session_id
    error = (await probe("refused", **at(space), session=session_id, parts=500))["error"]
    assert (error["code"], error["reason"], error["domain"]) == (INVALID_ARGUMENT, "INVALID_FIELD", "turnlog.dev")
    assert 1 <= len(error["fields"]) <= 500
    assert all(field.startswith("user_message.parts[") for field in error["fields"])
    assert "499 more" in error["message"]
    assert error["metadata"]["field"] == error["fields"][0]
    # Names of the caller's own, long and not ASCII: they grow in the trailers, and have to fit as they grew. Up to 64
    # labels the first fault is such a name, and so in the message too.
    for labels in (60, 500):
        error = (await probe("refused", **at(space), labels=labels))["error"]
        assert (error["code"], error.get("reason")) == (INVALID_ARGUMENT, "INVALID_FIELD"), error
        assert error["fields"]
        assert len(error["message"].encode()) <= 1024


@pytest.mark.case(94)
async def test_a_long_message_of_a_runner_is_cut(probe: Probe, space: Space) -> None:
    started = await space.session("fail")
    async with space.runner() as runner:
        offer = await runner.start()
        error = {"code": "harness.exited", "message": "é" * 32 * 1024}
        await runner.settle(offer, "OUTCOME_FAILED", error=error)
    listed = await probe("list", **at(space), session=started.session.session_id)
    [failed] = [event for event in listed["events"] if event["type"] == "run.failed"]
    assert failed["error"].startswith("ééé")
    assert 900 < len(failed["error"].encode()) <= 1024


def nested(depth: int) -> struct_pb2.Struct:
    """A Struct of this depth, itself included."""
    whole = struct_pb2.Struct()
    whole.update({"leaf": "nul \0", "number": 0.1, "nothing": None, "flags": [True, False], "depth": depth})
    for _ in range(depth - 1):
        outer = struct_pb2.Struct()
        outer.fields["in"].struct_value.CopyFrom(whole)
        whole = outer
    return whole


def plain(depth: int) -> dict[str, Any]:
    """What `nested` says."""
    whole: dict[str, Any] = {"leaf": "nul \0", "number": 0.1, "nothing": None, "flags": [True, False], "depth": depth}
    for _ in range(depth - 1):
        whole = {"in": whole}
    return whole


@pytest.mark.case(88, 90)
async def test_what_python_may_write_can_be_read(probe: Probe, space: Space) -> None:
    started = await space.session(SAID)
    # flags is a list inside, so the deepest Struct that may be has one level less.
    depths = {"1": 1, "20": 20, "31": 31}
    async with space.runner() as runner:
        offer = await runner.start()
        for call_id, depth in depths.items():
            ack = await runner.append(
                offer, agent_tool_use={"call_id": call_id, "name": "search", "arguments": nested(depth)}
            )
            assert not ack.rejections
        deepest = struct_pb2.Struct()
        inner = deepest
        for _ in range(31):
            inner = inner.fields["in"].struct_value
        inner.fields["leaf"].string_value = "deep"
        ack = await runner.append(offer, agent_tool_use={"call_id": "32", "name": "search", "arguments": deepest})
        assert not ack.rejections
        # A whole number that is none in a language whose numbers are all floating.
        await runner.append(offer, model_called={"model": "m", "usage": {"input_tokens": 2**53 + 1}})
        await runner.settle(offer)
    asked = at(space) | {"session": started.session.session_id, "run": started.run_id}
    listed = await probe("list", **asked)
    assert bare(listed["events"]) == envelopes(await space.log(asked["session"]))
    assert [event["text"] for event in listed["events"] if event["type"] == "user.message"] == [SAID]
    arguments = [event["arguments"] for event in listed["events"] if event["type"] == "agent.tool_use"]
    expected: Any = {"leaf": "deep"}
    for _ in range(31):
        expected = {"in": expected}
    assert arguments == [*(plain(depth) for depth in depths.values()), expected]
    [called] = [event for event in listed["events"] if event["type"] == "model.called"]
    assert called["input_tokens"] == str(2**53 + 1)
    # A follow wraps an event in one message more.
    assert (await probe("follow", **asked))["events"] == listed["events"]


@pytest.mark.case(84)
async def test_an_event_of_a_later_contract_has_its_envelope(probe: Probe, scripted: ScriptedServer) -> None:
    later = event_pb2.Event(seq=2, event_id="evt_2", type="later.thing", ignorable=True)
    later.create_time.FromSeconds(1_700_000_002)
    # Fields 1000 of the event and of a frame are not in this contract.
    unknown = b"\xc2\x3e\x02hi"
    frames = [
        batch(message_event(1, "a"), event_pb2.Event.FromString(later.SerializeToString() + unknown)),
        unknown,
        batch(message_event(3, "b")),
        event_service_pb2.FollowEventsResponse(
            end=event_service_pb2.FollowEnd(reason=event_service_pb2.FollowEnd.REASON_BOUNDARY, seq=3)
        ),
    ]

    async def follow(request: Any, context: Any) -> AsyncIterator[Any]:
        for frame in frames if request.after_seq == 0 else frames[1:]:
            yield frame

    scripted.on("FollowEvents", follow)
    asked = {"address": scripted.address, "key": "tlk_test", "session": "sess_1"}
    answer = await probe("follow", **asked)
    assert [(event["seq"], event["type"], event["payload"]) for event in answer["events"]] == [
        (1, "agent.message", "agent_message"),
        (2, "later.thing", ""),
        (3, "agent.message", "agent_message"),
    ]
    assert answer["events"][1]["ignorable"]
    assert answer["end"] == "REASON_BOUNDARY"
    resumed = await probe("follow", **asked, cut=2)
    assert [event["seq"] for event in (*resumed["before"], *resumed["events"])] == [1, 2, 3]
    assert [request.after_seq for request in scripted.requests("FollowEvents")] == [0, 0, 2]


@pytest.fixture(scope="module", autouse=True)
async def idling(
    request: pytest.FixtureRequest, postgres: PostgresServer, schema_template: str
) -> AsyncIterator[dict[str, asyncio.Task[Any]]]:
    """Every language at once, each with its two silent channels, from the first test on: the waiting costs little."""
    if not any(item.name.startswith("test_pings") for item in request.session.items):
        yield {}
        return
    probes = [
        await asyncio.to_thread(build, language)
        for language, tools in TOOLS.items()
        if all(shutil.which(tool) for tool in tools)
    ]
    dsn = postgres.database_create(schema_template)
    # Settings as they come: the server pings too, and a follow is silent for 15 s at a time.
    async with live_replica(dsn) as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        # The fourth ping is the first that can be one too many.
        asked = at(space) | {"session": session_id, "seconds": 45}
        tasks = {probe.language: asyncio.create_task(probe("idle", timeout=90, **asked)) for probe in probes}
        yield tasks
        # Those that nobody asked for.
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    postgres.database_drop(dsn)


@pytest.mark.slow
@pytest.mark.case(6)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_pings_at_the_servers_minimum_are_welcome(language: str, idling: dict[str, asyncio.Task[Any]]) -> None:
    assert await idling[language] == {"lost": []}
