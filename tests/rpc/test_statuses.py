"""The ten statuses: what leads to each, the event that tells it, and that no Session ever goes another way."""

from collections.abc import Awaitable, Callable

import pytest
from support.replicas import FakeRunner, Refused, Space
from support.story import TERMINAL, legal, statuses, story
from turnlog.v1 import run_pb2, session_pb2

Way = Callable[[Space, FakeRunner], Awaitable[str]]
TURN = ["pending", "provisioning", "running"]


async def _created(space: Space, text: str = "hello", **fields: object) -> str:
    return (await space.session(text, **fields)).session.session_id


async def succeeds(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    await runner.settle(await runner.start())
    return session_id


async def fails(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.start()
    await runner.settle(offer, "OUTCOME_FAILED", error={"code": "harness.broken", "message": "It broke."})
    return session_id


async def is_interrupted(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.start()
    await space.interrupt(session_id)
    await runner.expect("interrupt")
    await runner.settle(offer, "OUTCOME_STOPPED")
    return session_id


async def is_interrupted_before_it_was_claimed(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    await space.interrupt(session_id)
    return session_id


async def is_interrupted_while_it_starts(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.offer()
    await runner.accept(offer)
    await space.interrupt(session_id)
    await runner.expect("interrupt")
    await runner.settle(offer, "OUTCOME_STOPPED")
    return session_id


async def has_its_run_canceled(space: Space, runner: FakeRunner) -> str:
    created = await space.session("hello")
    offer = await runner.start()
    await space.rpc.call("CancelRun", session_id=created.session.session_id, run_id=created.run_id)
    await runner.expect("cancel")
    await runner.settle(offer, "OUTCOME_STOPPED")
    return created.session.session_id


async def is_completed(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, "")
    await space.rpc.call("CompleteSession", session_id=session_id)
    return session_id


async def is_canceled_idle(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, "")
    await space.rpc.call("CancelSession", session_id=session_id)
    return session_id


async def is_canceled_pending(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    await space.rpc.call("CancelSession", session_id=session_id)
    return session_id


async def is_canceled_running(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.start()
    await space.rpc.call("CancelSession", session_id=session_id)
    await runner.expect("cancel")
    await runner.settle(offer, "OUTCOME_STOPPED")
    return session_id


async def one_shot_succeeds(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, reusable=False)
    await runner.settle(await runner.start())
    return session_id


async def one_shot_fails(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, reusable=False)
    offer = await runner.start()
    await runner.settle(offer, "OUTCOME_FAILED", error={"code": "harness.broken"})
    return session_id


async def one_shot_is_interrupted(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, reusable=False)
    await space.interrupt(session_id)
    return session_id


async def is_given_back_and_succeeds(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.start()
    await runner.send(abandon={"lease": runner.lease(offer), "reason": "The machine goes down."})
    await runner.expect("ack")
    await runner.settle(await runner.start())
    return session_id


async def starts_too_slowly_and_succeeds(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.offer()
    await runner.accept(offer)
    await runner.expect("lease_lost")
    await runner.settle(await runner.start())
    return session_id


async def has_two_turns(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    await space.say(session_id, "and then?")
    for _ in range(2):
        await runner.settle(await runner.start())
    return session_id


async def is_interrupted_for_another_message(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space)
    offer = await runner.start()
    await space.say(session_id, "rather this", if_busy="IF_BUSY_INTERRUPT")
    await runner.expect("interrupt")
    await runner.settle(offer, "OUTCOME_STOPPED")
    await runner.settle(await runner.start())
    return session_id


async def comes_back_later(space: Space, runner: FakeRunner) -> str:
    session_id = await _created(space, "")
    for text in ("one", "two"):
        await space.say(session_id, text)
        await runner.settle(await runner.start())
    await space.rpc.call("CompleteSession", session_id=session_id)
    return session_id


WAYS: dict[Way, tuple[list[str], str]] = {
    succeeds: ([*TURN, "idle"], "END_TURN"),
    fails: ([*TURN, "idle"], "FAILED"),
    is_interrupted: ([*TURN, "idle"], "INTERRUPTED"),
    is_interrupted_before_it_was_claimed: (["pending", "idle"], "INTERRUPTED"),
    is_interrupted_while_it_starts: (["pending", "provisioning", "idle"], "INTERRUPTED"),
    has_its_run_canceled: ([*TURN, "idle"], "CANCELED"),
    is_completed: (["idle", "completed"], "COMPLETED"),
    is_canceled_idle: (["idle", "canceled"], "CANCELED"),
    is_canceled_pending: (["pending", "canceled"], "CANCELED"),
    is_canceled_running: ([*TURN, "canceled"], "CANCELED"),
    one_shot_succeeds: ([*TURN, "completed"], "END_TURN"),
    one_shot_fails: ([*TURN, "failed"], "FAILED"),
    one_shot_is_interrupted: (["pending", "idle"], "INTERRUPTED"),
    is_given_back_and_succeeds: ([*TURN, *TURN, "idle"], "END_TURN"),
    starts_too_slowly_and_succeeds: (["pending", "provisioning", *TURN, "idle"], "END_TURN"),
    has_two_turns: ([*TURN, "idle", *TURN, "idle"], "END_TURN"),
    is_interrupted_for_another_message: ([*TURN, "idle", *TURN, "idle"], "END_TURN"),
    comes_back_later: (["idle", *TURN, "idle", *TURN, "idle", "completed"], "COMPLETED"),
}


@pytest.mark.rule(
    "R3", "R20", "R33", "R49", "R50", "R51", "R55", "R56", "R57", "R58", "R59", "R60", "R61", "R62", "R63"
)
@pytest.mark.case(109)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_session_that(space: Space, way: Way) -> None:
    path, stop_reason = WAYS[way]
    async with space.runner() as runner:
        session_id = await way(space, runner)
    log = await space.log(session_id)
    assert statuses(log) == path
    assert legal(path)
    session = await space.get(session_id)
    assert session_pb2.StopReason.Name(session.stop_reason) == f"STOP_REASON_{stop_reason}"
    # The stored Session, its Runs and attempts are what a fold over the log says, and nothing else.
    told = story(log)
    assert told.head == session.head_seq == len(log)
    assert told.status == session.status == session_pb2.SessionStatus.Value(f"SESSION_STATUS_{path[-1].upper()}")
    assert told.stop_reason == session.stop_reason
    assert (told.active_run_id, told.queued) == (session.active_run_id, session.queued_turns) == ("", 0)
    assert told.error == session.last_error.code
    runs = {run.run_id: run for run in (await space.rpc.call("ListRuns", session_id=session_id)).runs}
    assert runs.keys() == told.runs.keys()
    for run_id, run in runs.items():
        of_log = told.runs[run_id]
        assert (run.status, run.attempt_no, run.error.code) == (of_log.status, of_log.attempt_no, of_log.error)
        assert (run.trigger.event_id, run.trigger.seq, run.trigger.type) == of_log.trigger
        listed = await space.rpc.call("ListAttempts", session_id=session_id, run_id=run_id)
        assert {attempt.attempt_no: attempt.status for attempt in listed.attempts} == of_log.attempts
    # Each status says why it came, in the event as well as in the Session.
    for event in log:
        if event.type.startswith("session.status_"):
            changed = getattr(event, event.WhichOneof("payload"))
            name = event.type.removeprefix("session.status_")
            assert session_pb2.SessionStatus.Name(changed.status) == f"SESSION_STATUS_{name.upper()}"
            boundary = session_pb2.StatusBoundary.Name(changed.boundary).removeprefix("STATUS_BOUNDARY_")
            if name in TERMINAL:
                assert boundary == "TERMINAL"
            elif name == "idle" and changed.ended_run_id:
                assert boundary == "TURN"
                assert changed.stop_reason
            else:
                assert boundary in ("NONE", "UNSPECIFIED")


def test_the_ways_meet_every_status_that_needs_no_wait() -> None:
    met = {status for path, _ in WAYS.values() for status in path}
    assert met == {"idle", "pending", "provisioning", "running", "completed", "failed", "canceled"}


@pytest.mark.rule("R60")
@pytest.mark.parametrize("way", [is_completed, one_shot_fails, is_canceled_idle], ids=lambda way: way.__name__)
async def test_what_is_over_takes_nothing_more(space: Space, way: Way) -> None:
    async with space.runner() as runner:
        session_id = await way(space, runner)
    before = await space.log(session_id)
    for attempt in (
        space.say(session_id),
        space.interrupt(session_id),
        space.rpc.call("CompleteSession", session_id=session_id),
        space.rpc.call("CancelSession", session_id=session_id),
    ):
        with pytest.raises(Refused) as refused:
            await attempt
        assert (refused.value.code.name, refused.value.reason) == ("FAILED_PRECONDITION", "SESSION_TERMINAL")
        assert refused.value.metadata["status"] == statuses(before)[-1]
    assert await space.log(session_id) == before


@pytest.mark.rule("R60", "R63")
async def test_every_other_status_takes_an_interrupt_and_is_not_ended_by_it(space: Space) -> None:
    session_id = await _created(space)
    async with space.runner() as runner:
        offer = await runner.start()
        await space.interrupt(session_id)
        await space.interrupt(session_id)
        await runner.expect("interrupt")
        await runner.append(offer, "one last word")
        await runner.settle(offer, "OUTCOME_STOPPED")
        await space.interrupt(session_id)
        assert (await space.get(session_id)).status == session_pb2.SESSION_STATUS_IDLE
        assert (await space.say(session_id, "again")).run_id
        offer = await runner.start()
        await runner.settle(offer)
    log = await space.log(session_id)
    # What the harness said between the interrupt and its settlement is kept.
    assert [event.type for event in log].count("user.interrupt") == 3
    assert ("agent.message", "one last word") in story(log).messages
    assert statuses(log) == [*TURN, "idle", *TURN, "idle"]


@pytest.mark.case(109)
async def test_a_fresh_session_is_not_taken_for_a_finished_one(space: Space) -> None:
    session = (await space.session()).session
    assert session.status == session_pb2.SESSION_STATUS_IDLE
    assert session.stop_reason == session_pb2.STOP_REASON_UNSPECIFIED
    assert (await space.log(session.session_id))[-1].session_status_idle.boundary in (
        session_pb2.STATUS_BOUNDARY_NONE,
        session_pb2.STATUS_BOUNDARY_UNSPECIFIED,
    )


@pytest.mark.rule("R34", "R49")
async def test_accepted_is_not_finished(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    second = await space.say(session_id, "and this")
    assert second.seq
    assert not {"status", "outcome", "result"} & {field.name for field in second.DESCRIPTOR.fields}
    run = (await space.rpc.call("GetRun", session_id=session_id, run_id=second.run_id)).run
    assert run.status == run_pb2.RUN_STATUS_QUEUED
    assert not run.HasField("start_time")
    assert run.pending_reason
    session = await space.get(session_id)
    assert session.status == session_pb2.SESSION_STATUS_PENDING
    assert session.queued_turns == 1
