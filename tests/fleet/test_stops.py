"""Interrupts and cancels, in whatever state they meet a Run and a Session."""

import pytest
from support.fleet import (
    CANCELED,
    INTERRUPTED,
    RUNNING,
    SUCCEEDED,
    attempts_of,
    ended,
    event,
    reason,
    run_of,
    seen,
    status,
    types,
)
from support.replicas import FakeRunner, Refused, Space, accept_of, said
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import session_pb2

IDLE = session_pb2.SESSION_STATUS_IDLE
SESSION_CANCELED = session_pb2.SESSION_STATUS_CANCELED
INTERRUPTED_STOP = session_pb2.STOP_REASON_INTERRUPTED


async def brought_to(runner: FakeRunner, state: str) -> pb.Offer | None:
    """The first Run of the workspace, in this state."""
    if state == "ready":
        return None
    offer = await runner.offer()
    if state == "offered":
        return offer
    await runner.accept(offer)
    if state == "running":
        await runner.ready(offer)
    return offer


async def stop_with(space: Space, how: str, session_id: str, run_id: str) -> None:
    """An interrupt, a cancel of the Run, or one of the Session."""
    match how:
        case "interrupt":
            await space.interrupt(session_id)
        case "cancel run":
            await space.rpc.call("CancelRun", session_id=session_id, run_id=run_id)
        case "cancel session":
            await space.rpc.call("CancelSession", session_id=session_id)


@pytest.mark.rule("R63")
@pytest.mark.parametrize("how", ["interrupt", "cancel run", "cancel session"])
@pytest.mark.parametrize("state", ["ready", "offered", "provisioning", "running"])
async def test_a_run_is_stopped_in_every_state(space: Space, state: str, how: str) -> None:
    created = await space.session("hello")
    session_id, run_id = created.session.session_id, created.run_id
    expected = INTERRUPTED if how == "interrupt" else CANCELED
    async with space.runner() as runner:
        offer = await brought_to(runner, state)
        await stop_with(space, how, session_id, run_id)
        if offer is not None and state == "offered":
            # The Offer was for a Run that is over by now.
            await runner.send(accept=accept_of(offer))
            assert reason(await runner.expect("lease_lost")) == "LEASE_LOST"
        elif offer is not None:
            told = await runner.expect("interrupt" if how == "interrupt" else "cancel")
            assert (told.run_id, told.attempt_no) == (run_id, 1)
            assert 0 < told.grace.ToMicroseconds() <= 1_000_000
            if state == "running":
                # What it had to say before it stopped is not lost.
                assert (await runner.append(offer, "last words")).through == 2
            await runner.settle(offer, "OUTCOME_STOPPED")
        run = await ended(space, session_id, run_id)
        assert run.status == expected
        assert seen(runner, "lease_lost") == [] or state == "offered"
    session = await space.get(session_id)
    if how == "cancel session":
        assert session.status == SESSION_CANCELED
        with pytest.raises(Refused) as refused:
            await space.say(session_id)
        assert refused.value.reason == "SESSION_TERMINAL"
    else:
        # Neither is the end of the Session.
        assert session.status == IDLE
        again = await space.say(session_id)
        async with space.runner() as runner:
            offer = await runner.start()
            assert offer.run_id == again.run_id
            await runner.settle(offer)
    log = await types(space, session_id)
    assert log.count("run.interrupted") + log.count("run.canceled") == 1
    assert log.count("run.attempt_started") == log.count("run.attempt_ended")


@pytest.mark.rule("R63")
@pytest.mark.parametrize("how", ["interrupt", "cancel run", "cancel session"])
async def test_a_stop_that_nobody_answers_is_carried_out_by_the_server(space: Space, how: str) -> None:
    created = await space.session("hello")
    session_id, run_id = created.session.session_id, created.run_id
    async with space.runner() as deaf:
        offer = await deaf.start()
        await stop_with(space, how, session_id, run_id)
        run = await ended(space, session_id, run_id)
        assert run.status == (INTERRUPTED if how == "interrupt" else CANCELED)
        # The attempt is fenced: whatever it says from here on is not heard.
        before = await space.log(session_id)
        await deaf.send(append=pb.Append(lease=deaf.lease(offer), events=[said("I was not done")]))
        await deaf.expect("lease_lost")
        await deaf.send(settle=pb.Settle(lease=deaf.lease(offer), outcome="OUTCOME_SUCCEEDED"))
        assert reason(await deaf.expect("lease_lost")) == "ALREADY_SETTLED"
        assert await space.log(session_id) == before
    [attempt] = await attempts_of(space, session_id, run_id)
    assert status(attempt) == ("INTERRUPTED" if how == "interrupt" else "CANCELED")
    requested = next(e for e in before if e.type == "run.stop_requested")
    last = next(e for e in before if e.type == "run.attempt_ended")
    assert last.create_time.ToMicroseconds() >= requested.run_stop_requested.grace_deadline.ToMicroseconds()


async def test_a_runner_may_end_a_run_otherwise_than_it_was_told(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        await space.interrupt(created.session.session_id)
        await runner.expect("interrupt")
        # It had just finished: the truth is better than obedience.
        assert list((await runner.settle(offer)).rejections) == []
    assert (await run_of(space, created.session.session_id, created.run_id)).status == SUCCEEDED


async def test_a_runner_that_is_lost_while_it_stops_ends_the_run_as_told(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        await space.interrupt(session_id)
        await runner.expect("interrupt")
        await runner.send(abandon=pb.Abandon(lease=runner.lease(offer), reason="killed"))
        await runner.expect("ack")
    assert (await run_of(space, session_id, created.run_id)).status == INTERRUPTED
    assert (await types(space, session_id)).count("run.ready") == 1


async def test_a_cancel_of_the_session_overtakes_an_interrupt(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    behind = await space.say(session_id, "behind")
    async with space.runner() as runner:
        offer = await runner.start()
        await space.interrupt(session_id)
        first = await runner.expect("interrupt")
        await space.rpc.call("CancelSession", session_id=session_id)
        second = await runner.expect("cancel")
        # One grace, not two.
        assert second.grace.ToMicroseconds() <= first.grace.ToMicroseconds()
        await runner.settle(offer, "OUTCOME_STOPPED")
    assert (await run_of(space, session_id, created.run_id)).status == CANCELED
    assert (await run_of(space, session_id, behind.run_id)).status == CANCELED
    session = await space.get(session_id)
    assert (session.status, session.queued_turns) == (SESSION_CANCELED, 0)


async def test_a_cancel_of_the_run_overtakes_an_interrupt(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        await space.interrupt(session_id)
        first = await runner.expect("interrupt")
        await space.rpc.call("CancelRun", session_id=session_id, run_id=created.run_id, reason="not needed")
        second = await runner.expect("cancel")
        # One grace, not two.
        assert second.grace.ToMicroseconds() <= first.grace.ToMicroseconds()
        # What is canceled stays so, whoever interrupts it.
        await space.interrupt(session_id)
        await runner.settle(offer, "OUTCOME_STOPPED")
        assert len(seen(runner, "interrupt")) == 1
    log = await space.log(session_id)
    requests = [e.run_stop_requested for e in log if e.type == "run.stop_requested"]
    assert [request.ends_as for request in requests] == [INTERRUPTED, CANCELED]
    assert requests[0].grace_deadline == requests[1].grace_deadline
    assert requests[1].error.message == "not needed"
    run = await run_of(space, session_id, created.run_id)
    assert (run.status, run.error.message) == (CANCELED, "not needed")
    # The Session itself goes on.
    assert log[-1].type == "session.status_idle"


@pytest.mark.parametrize("how", ["interrupt", "cancel run"])
async def test_a_second_stop_is_no_second_request(space: Space, how: str) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        for _ in range(2):
            await stop_with(space, how, session_id, created.run_id)
        await runner.expect("interrupt" if how == "interrupt" else "cancel")
        await runner.settle(offer, "OUTCOME_STOPPED")
        assert len(seen(runner, "interrupt")) + len(seen(runner, "cancel")) == 1
    assert (await types(space, session_id)).count("run.stop_requested") == 1
    ended_as = INTERRUPTED if how == "interrupt" else CANCELED
    assert (await run_of(space, session_id, created.run_id)).status == ended_as


async def test_a_queued_run_is_canceled_where_it_waits(space: Space) -> None:
    created = await space.session("first")
    session_id = created.session.session_id
    second, third = [await space.say(session_id, text) for text in ("second", "third")]
    async with space.runner() as runner:
        offer = await runner.start()
        with pytest.raises(Refused) as refused:
            await space.interrupt(session_id, run_id=second.run_id)
        assert refused.value.reason == "ILLEGAL_TRANSITION"
        await space.rpc.call("CancelRun", session_id=session_id, run_id=second.run_id)
        assert (await run_of(space, session_id, second.run_id)).status == CANCELED
        assert (await run_of(space, session_id, created.run_id)).status == RUNNING
        await runner.settle(offer)
        with pytest.raises(Refused) as refused:
            await space.rpc.call("CancelRun", session_id=session_id, run_id=created.run_id)
        assert refused.value.reason == "ALREADY_SETTLED"
        offer = await runner.start()
        assert offer.run_id == third.run_id
        await runner.settle(offer)


@pytest.mark.rule("R63")
async def test_an_interrupt_of_an_idle_session_stops_nothing(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    await space.interrupt(session_id)
    assert (await space.get(session_id)).status == IDLE
    assert await types(space, session_id) == ["session.created", "session.status_idle", "user.interrupt"]


@pytest.mark.rule("R21", "R63")
async def test_a_message_that_interrupts_goes_before_those_that_wait(space: Space) -> None:
    created = await space.session("first")
    session_id = created.session.session_id
    patient = await space.say(session_id, "patient")
    async with space.runner() as runner:
        offer = await runner.start()
        urgent = await space.say(session_id, "urgent", if_busy="IF_BUSY_INTERRUPT")
        await runner.expect("interrupt")
        with pytest.raises(Refused) as refused:
            await space.say(session_id, "maybe", if_busy="IF_BUSY_REJECT")
        assert (refused.value.reason, refused.value.metadata["run_id"]) == ("SESSION_BUSY", created.run_id)
        await runner.settle(offer, "OUTCOME_STOPPED")
        order = []
        for _ in range(2):
            offer = await runner.start()
            order.append((offer.run_id, offer.trigger.user_message.parts[0].text))
            await runner.settle(offer)
    # Each request has a Run of its own.
    assert order == [(urgent.run_id, "urgent"), (patient.run_id, "patient")]
    assert (await run_of(space, session_id, created.run_id)).status == INTERRUPTED
    assert len({created.run_id, patient.run_id, urgent.run_id}) == 3
    # The turn's end shows before the next begins, in one commit.
    log = await space.log(session_id)
    idle = next(e for e in log if e.type == "session.status_idle")
    assert idle.session_status_idle.stop_reason == INTERRUPTED_STOP
    following = [e.type for e in log if e.seq > idle.seq][:2]
    assert following == ["run.ready", "session.status_pending"]


async def test_a_one_shot_session_survives_an_interrupt_but_takes_no_more(space: Space) -> None:
    created = await space.session("hello", reusable=False)
    session_id = created.session.session_id
    await space.interrupt(session_id)
    assert (await space.get(session_id)).status == IDLE
    with pytest.raises(Refused) as refused:
        await space.say(session_id)
    assert refused.value.reason == "SESSION_NOT_REUSABLE"
    await event(space, session_id, "run.interrupted")
