"""What a runner does with one attempt, against a server that the test plays."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.scripted_fleet import Conversation, ScriptedFleet, lease_of, make_offer, scripted_fleet
from support.scripted_harness import Harnesses, RunningRunner, message, running_runner
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import error_pb2, event_pb2
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.outputs import Exited, HarnessEvent, Preview, ProtocolError, Ready, Settle


@pytest.fixture
async def fleet() -> AsyncIterator[ScriptedFleet]:
    async with scripted_fleet() as fleet:
        yield fleet


@pytest.fixture
def harnesses() -> Harnesses:
    return Harnesses()


@pytest.fixture
async def runner(fleet: ScriptedFleet, harnesses: Harnesses, tmp_path: Path) -> AsyncIterator[RunningRunner]:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch, capacity=4) as runner:
        yield runner


@pytest.fixture
async def stream(fleet: ScriptedFleet, runner: RunningRunner) -> Conversation:
    stream = await fleet.stream()
    await stream.welcome()
    return stream


def is_dir(path: str) -> bool:
    return Path(path).is_dir()


async def test_echo_answers(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path, pools=["gpu"], display_name="here"):
        stream = await fleet.stream()
        hello = await stream.welcome()
        assert (hello.pools, hello.harness_profiles, hello.display_name) == (["gpu"], ["echo"], "here")
        assert stream.metadata["authorization"] == "Bearer tlk_secret"
        await stream.granted(4)
        offer = make_offer(text="what is it?")
        await stream.offer(offer)
        said = await stream.finish(offer)
        assert said[0].WhichOneof("message") == "harness_ready"
        events = [event for each in said for event in each.append.events]
        assert events[0].agent_message.parts[0].text == "what is it?"
        assert events[1].model_called.usage.output_tokens == 3
        assert said[-1].settle.outcome == pb.Settle.OUTCOME_SUCCEEDED
        assert [lease_of(each).message_no for each in said] == list(range(1, len(said) + 1))
        await stream.granted(4)


async def test_harness_is_told_its_turn(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer(text="and now?", model_route="fast", history_omitted=7, profile="echo")
    offer.agent_version.instructions = "Be brief."
    tool = offer.agent_version.tools.add(name="search", description="Finds.")
    tool.parameters.update({"type": "object", "maxProperties": 2})
    offer.history.add(seq=3, type="user.message").user_message.parts.add(text="first")
    use = offer.history.add(seq=4, type="agent.tool_use").agent_tool_use
    use.call_id, use.name = "c1", "search"
    use.arguments.update({"query": "x", "limit": 3})
    result = offer.history.add(seq=5, type="agent.tool_result").agent_tool_result
    result.call_id, result.is_error = "c1", True
    result.parts.add(text="nothing")
    offer.history.add(seq=6, type="agent.something_new")
    await stream.offer(offer)
    harness = await harnesses.next()
    start = harness.sent[0]
    assert start["message"] == {"parts": [{"text": "and now?"}], "text": "and now?"}
    assert start["history"] == [
        {"seq": 3, "type": "user.message", "text": "first"},
        {
            "seq": 4,
            "type": "agent.tool_use",
            "text": "",
            "call_id": "c1",
            "name": "search",
            "arguments": {"query": "x", "limit": 3},
        },
        {"seq": 5, "type": "agent.tool_result", "text": "nothing", "call_id": "c1", "is_error": True},
        {"seq": 6, "type": "agent.something_new", "text": ""},
    ]
    assert start["history_omitted"] == 7
    assert start["instructions"] == "Be brief."
    assert start["tools"][0]["input_schema"] == {"type": "object", "maxProperties": 2}
    assert 500 < start["deadline_seconds"] <= 600
    assert start["attempt_kind"] == "INITIAL"
    assert start["model_route"] == "fast"
    assert is_dir(start["workdir"])
    harness.succeed()
    await stream.finish(offer)
    await stream.granted(4)
    assert not is_dir(start["workdir"])


async def test_what_waits_goes_in_one_append_and_a_lone_event_goes_at_once(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome(max_messages=2)
        offer = make_offer()
        await stream.offer(offer)
        harness = await harnesses.next()
        harness.say(Ready(), message("lone"))
        await stream.take("harness_ready")
        assert len((await stream.take("append")).events) == 1
        # Two are unacknowledged: whatever comes now waits, and goes together.
        harness.say(*(message(str(number)) for number in range(100)), Settle("succeeded"))
        await stream.ack(offer, 1)
        first = await stream.take("append")
        await stream.ack(offer, 2)
        second = await stream.take("append")
        texts = [event.agent_message.parts[0].text for each in (first, second) for event in each.events]
        assert len(first.events) == 64
        assert texts == [str(number) for number in range(100)]


async def test_unacked_messages_slow_the_harness_down(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome(max_messages=1, heartbeat=0.05)
        offer = make_offer()
        await stream.offer(offer)
        harness = await harnesses.next()
        harness.say(Ready(), *(message(str(number)) for number in range(1000)), Settle("succeeded"))
        await stream.take("harness_ready")
        # A heartbeat says that there was nothing that might be written.
        await stream.heartbeat()
        await stream.heartbeat()
        assert harness.taken < 300
        await stream.ack(offer, 1)
        said = await stream.finish(offer)
        assert sum(len(each.append.events) for each in said) == 1000


async def test_previews_are_sent_unnumbered(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready(), Preview("he"), Preview("llo"), message("hello"), Settle("succeeded"))
    await stream.finish(offer)
    previews = [each.preview for each in stream.said if each.WhichOneof("message") == "preview"]
    assert "".join(each.text for each in previews) == "hello"
    assert AttemptKey.of(previews[0]) == AttemptKey.of(offer)
    assert stream.numbers() == [1, 2, 3]


@pytest.mark.parametrize(
    ("output", "code"),
    [
        (Settle("failed", "search.index_missing", "No index."), "search.index_missing"),
        (ProtocolError("harness.protocol_error", "Line 3 is not JSON."), "harness.protocol_error"),
        (Exited(1, "boom"), "harness.exited"),
        (HarnessEvent("agent.message", {"parts": [{"texts": "typo"}]}), "harness.protocol_error"),
        (HarnessEvent("user.message", {"parts": []}), "harness.protocol_error"),
    ],
)
async def test_a_bad_end_fails_the_run(stream: Conversation, harnesses: Harnesses, output: object, code: str) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready(), output)  # pyright: ignore[reportArgumentType]
    said = await stream.finish(offer)
    assert said[-1].settle.outcome == pb.Settle.OUTCOME_FAILED
    assert said[-1].settle.error.code == code
    assert said[-1].settle.error.message
    await stream.granted(4)
    assert harness.closed or harness.killed.is_set()


async def test_a_wrong_field_is_named(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready(), HarnessEvent("agent.tool_result", {"call_id": "c", "is_error": "perhaps"}))
    said = await stream.finish(offer)
    assert "is_error" in said[-1].settle.error.message or "isError" in said[-1].settle.error.message


async def test_a_refused_event_is_told_to_the_harness_and_the_run_goes_on(
    stream: Conversation, harnesses: Harnesses
) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready(), HarnessEvent("agent.tool_use", {"call_id": "c", "name": "rm", "arguments": {}}))
    await stream.take("harness_ready")
    await stream.take("append")
    reason = error_pb2.ERROR_REASON_PERMISSION_MISSING
    rejection = pb.Rejection(message_no=2, event_index=0, reason=reason, message="No tool rm.")
    await stream.ack(offer, 2, rejection)
    await asyncio.wait_for(harness.told.wait(), 10)
    assert harness.sent[-1]["type"] == "log"
    assert "agent.tool_use: PERMISSION_MISSING: No tool rm." in harness.sent[-1]["message"]
    harness.say(Settle("succeeded"))
    assert (await stream.finish(offer))[-1].settle.outcome == pb.Settle.OUTCOME_SUCCEEDED


async def test_a_refused_end_is_said_otherwise(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.succeed()
    await stream.take("harness_ready")
    settle = await stream.take("settle")
    refusal = pb.Rejection(message_no=settle.lease.message_no, reason=error_pb2.ERROR_REASON_ILLEGAL_TRANSITION)
    await stream.ack(offer, settle.lease.message_no, refusal)
    again = await stream.take("settle")
    assert (again.outcome, again.error.code) == (pb.Settle.OUTCOME_FAILED, "runner.end_refused")
    assert again.lease.message_no == settle.lease.message_no + 1
    await stream.ack(offer, again.lease.message_no)
    await stream.granted(4)


async def test_interrupt_lets_the_harness_finish_its_sentence(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready())
    await stream.take("harness_ready")
    key = AttemptKey.of(offer)._asdict()
    await stream.say(interrupt=pb.Interrupt(**key, grace=timedelta(seconds=10)))
    await asyncio.wait_for(harness.interrupted.wait(), 10)
    harness.say(message("as far as I came"), Settle("succeeded"))
    said = await stream.finish(offer)
    assert said[0].append.events[0].agent_message.parts[0].text == "as far as I came"
    assert said[-1].settle.outcome == pb.Settle.OUTCOME_STOPPED
    assert not harness.killed.is_set()


async def test_a_harness_that_ignores_the_interrupt_is_killed(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    await stream.say(interrupt=pb.Interrupt(**AttemptKey.of(offer)._asdict(), grace=timedelta(seconds=0.3)))
    said = await stream.finish(offer)
    assert harness.interrupted.is_set()
    assert harness.killed.is_set()
    assert said[-1].settle.outcome == pb.Settle.OUTCOME_STOPPED


async def test_cancel_ends_the_harness(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    await stream.say(cancel=pb.Cancel(**AttemptKey.of(offer)._asdict(), grace=timedelta(seconds=10)))
    said = await stream.finish(offer)
    assert harness.canceled.is_set()
    assert said[-1].settle.outcome == pb.Settle.OUTCOME_STOPPED


async def test_a_stop_before_accepted_starts_no_harness(stream: Conversation, harnesses: Harnesses) -> None:
    offer = make_offer()
    await stream.say(offer=offer)
    await stream.take("accept")
    await stream.say(cancel=pb.Cancel(**AttemptKey.of(offer)._asdict(), grace=timedelta(seconds=10)))
    await stream.accepted(offer)
    assert (await stream.take("settle")).outcome == pb.Settle.OUTCOME_STOPPED
    assert harnesses.launched == []


@pytest.mark.case(37)
async def test_a_lost_lease_kills_the_harness_and_nothing_more_is_said(
    stream: Conversation, harnesses: Harnesses
) -> None:
    offer = make_offer()
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready())
    await stream.take("harness_ready")
    lost = pb.LeaseLost(**AttemptKey.of(offer)._asdict(), reason=error_pb2.ERROR_REASON_STALE_ATTEMPT)
    await stream.say(lease_lost=lost)
    await asyncio.wait_for(harness.killed.wait(), 10)
    harness.say(message("too late"), Settle("succeeded"))
    await stream.granted(4)
    other = make_offer(2)
    await stream.offer(other)
    (await harnesses.next()).succeed()
    assert {AttemptKey.of(lease_of(each)) for each in await stream.finish(other)} == {AttemptKey.of(other)}


async def test_a_harness_that_cannot_be_started_gives_the_run_back(fleet: ScriptedFleet, tmp_path: Path) -> None:
    harnesses = {"repo": ["/no/such/program"]}
    async with running_runner(fleet.address, tmp_path, harnesses=harnesses):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer(profile="repo")
        await stream.offer(offer)
        abandon = await stream.take("abandon")
        assert abandon.lease.message_no == 1
        assert "/no/such/program" in abandon.reason
        await stream.ack(offer, 1)
        await stream.granted(4)


async def test_messages_of_unknown_kinds_are_skipped(stream: Conversation, harnesses: Harnesses) -> None:
    unknown = pb.ConnectResponse()
    unknown.MergeFromString(bytes([0xA2, 0x06, 0x00]))  # field 100, an empty message
    await stream.context.write(unknown)
    await stream.say(ack=pb.Ack(session_id="sess_x", run_id="run_x", attempt_no=1, through=5))
    offer = make_offer(history=[event_pb2.Event(seq=1, type="x.y")])
    await stream.offer(offer)
    (await harnesses.next()).succeed()
    await stream.finish(offer)
