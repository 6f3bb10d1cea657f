"""Batches whose answer is lost: each command lands once, and nobody is told anything before that is known."""

import asyncio
import random
from dataclasses import replace

import pytest
from support.lanes import (
    AUTHOR,
    differences,
    eventually,
    interrupt,
    log_of,
    message,
    replicas,
    report,
)
from support.wire import wire_proxy
from turnlog_server.domain.commands import AppendReports, CancelSession, DeleteSession, HarnessReady, Outcome, Settle
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import Status
from turnlog_server.service import lane as lane_module
from turnlog_server.service.clock import Clock
from turnlog_server.store.database import Database

WRITES = ("UPDATE session_heads", "INSERT INTO session_heads")


class Faults:
    """The faults for the log statements to come, one each."""

    def __init__(self, *faults):
        self.faults = list(faults)

    def __call__(self, statement):
        if not self.faults or not any(write in statement for write in WRITES):
            return None
        return self.faults.pop(0)


@pytest.fixture
async def both(force_dialect, dsn):
    """A lane behind the proxy, the proxy, and a lane that sees the database as it is."""
    async with wire_proxy(dsn) as proxy:
        behind = await Database.open(proxy.dsn, pool_size=2, force_dialect=force_dialect)
        direct = await Database.open(dsn, pool_size=2, force_dialect=force_dialect)
        async with replicas(behind) as (lane,), replicas(direct) as (other,):
            yield lane, proxy, other
            proxy.fault = Faults()
            proxy.release.set()
            assert await differences(direct) == []
        await behind.close()
        await direct.close()


def published(lane, session_id):
    return [
        event.seq for commit in lane.published if commit.facts.session_id == session_id for event, _ in commit.events
    ]


cuts = pytest.mark.parametrize("cut", ["cut-after", "cut-before"])


@pytest.mark.rule("R31", "R36")
@pytest.mark.case(63, 75)
@cuts
async def test_a_message_whose_commit_is_unknown_lands_once(both, cut):
    lane, proxy, other = both
    session_id = await lane.create()
    proxy.fault = Faults(cut)
    sent = await lane.do(session_id, message(), "same")
    log = await log_of(other.db, session_id)
    assert log.types.count("user.message") == 1
    assert log.events[sent.answer.seq - 1].event_id == sent.answer.event_id
    again = await other.do(session_id, message(), "same")
    assert again.replayed
    assert again.answer == replace(sent.answer, blocked_by="")


@pytest.mark.case(63)
@cuts
async def test_a_session_whose_creation_is_unknown_is_made_once(both, cut):
    lane, proxy, other = both
    proxy.fault = Faults(cut)
    session_id = await lane.create("make", text="hello")
    assert await other.create("make", text="hello") == session_id
    assert await other.db.read("count", "SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.case(75)
@cuts
@pytest.mark.parametrize("step", ["accept", "ready", "append", "settle"])
async def test_what_a_runner_says_lands_once_without_any_request_id(both, cut, step):
    lane, proxy, other = both
    session_id = await lane.create(text="hello")
    faults = lambda now: setattr(proxy, "fault", Faults(cut) if now == step else Faults())  # noqa: E731
    faults("accept")
    lease = await lane.accept(session_id)
    commands = {
        "ready": HarnessReady(replace(lease, message_no=1), "svc_1"),
        "append": AppendReports(replace(lease, message_no=2), "svc_1", (report("a"), report("b"))),
        "settle": Settle(replace(lease, message_no=3), Outcome.SUCCEEDED),
    }
    for name, command in commands.items():
        faults(name)
        result = await lane.do(session_id, command, None)
        assert result.answer.refused is None
    log = await log_of(other.db, session_id)
    assert log.types[5:] == [
        "run.attempt_started",
        "session.status_provisioning",
        "session.status_running",
        "agent.message",
        "agent.message",
        "run.attempt_ended",
        "run.succeeded",
        "session.status_idle",
    ]


@pytest.mark.case(75)
@cuts
async def test_an_end_whose_commit_is_unknown_is_not_refused_for_having_happened(both, cut):
    lane, proxy, other = both
    session_id = await lane.create(text="hello")
    proxy.fault = Faults(cut)
    ended = await lane.do(session_id, CancelSession(AUTHOR))
    assert ended.state.status is Status.CANCELED
    proxy.fault = Faults(cut)
    # A deletion writes no event: its request id tells.
    await lane.do(session_id, DeleteSession(AUTHOR), "delete")
    assert (await log_of(other.db, session_id)).head == -1


@pytest.mark.case(63, 75)
async def test_many_cuts_in_a_row_and_every_command_once(both):
    lane, proxy, other = both
    chance = random.Random(7)
    sessions = [await lane.create() for _ in range(3)]
    proxy.fault = Faults(*(chance.choice(["cut-after", "cut-before", None]) for _ in range(25)))

    async def talk(session_id):
        return [await lane.do(session_id, message(str(number)), f"r{number}") for number in range(15)]

    told = dict(zip(sessions, await asyncio.gather(*map(talk, sessions)), strict=True))
    for session_id, results in told.items():
        log = await log_of(other.db, session_id)
        assert log.types.count("user.message") == 15
        assert [log.events[r.answer.seq - 1].event_id for r in results] == [r.answer.event_id for r in results]
        # Others heard no event twice, and none that is not there.
        heard = published(lane, session_id)
        assert heard == sorted(set(heard))
        assert set(heard) <= set(log.seqs)


@pytest.mark.case(63)
async def test_a_commit_is_found_also_when_others_have_written_since(both):
    lane, proxy, other = both
    session_id = await lane.create()
    proxy.fault = Faults("hold-reply")
    sending = asyncio.create_task(lane.do(session_id, message("mine"), "same"))
    await proxy.held.wait()
    # It is in the log, and the lane does not know: nobody behind it is told anything.
    assert not sending.done()
    assert published(lane, session_id) == [1, 2]
    await other.do(session_id, message("theirs"))
    proxy.cut_all()
    sent = await sending
    log = await log_of(other.db, session_id)
    assert log.types.count("user.message") == 2
    assert log.events[sent.answer.seq - 1].event_id == sent.answer.event_id
    assert sent.state.head_seq == log.head


@pytest.mark.case(63, 75)
async def test_without_a_request_id_it_is_found_by_what_was_sent(both):
    lane, proxy, other = both
    session_id = await lane.create(text="hello")
    lease = await lane.accept(session_id)
    await lane.do(session_id, HarnessReady(replace(lease, message_no=1), "svc_1"), None)
    proxy.fault = Faults("hold-reply")
    append = AppendReports(replace(lease, message_no=2), "svc_1", (report("a"),))
    sending = asyncio.create_task(lane.do(session_id, append, None))
    await proxy.held.wait()
    await other.do(session_id, message("theirs"))
    proxy.cut_all()
    sent = await sending
    log = await log_of(other.db, session_id)
    assert not sent.answer.duplicate
    assert log.types.count("agent.message") == 1
    assert log.events[sent.answer.seq - 1].event_id == sent.answer.event_id
    assert lane.counts.applied == 1


@pytest.mark.case(96)
async def test_a_deadline_before_the_batch_drops_the_command_and_one_inside_it_does_not(both):
    lane, proxy, other = both
    session_id = await lane.create()
    proxy.fault = Faults("hold-reply")
    inside = asyncio.create_task(lane.do(session_id, message("inside"), "inside", seconds=0.15))
    await proxy.held.wait()
    before = asyncio.create_task(lane.do(session_id, message("before"), "before", seconds=0.05))
    for call in (before, inside):
        with pytest.raises(Refusal) as refused:
            await call
        assert refused.value.reason is Reason.DEADLINE_EXCEEDED
    proxy.release.set()
    # The lane is free again once this is through.
    await lane.do(session_id, message("after"))
    assert (await log_of(other.db, session_id)).types.count("user.message") == 2
    assert (await other.do(session_id, message("inside"), "inside")).replayed
    assert not (await other.do(session_id, message("before"), "before")).replayed


@pytest.mark.case(96)
async def test_what_was_in_a_batch_is_carried_out_also_when_that_batch_lost_and_its_caller_left(both):
    lane, proxy, other = both
    session_id = await lane.create()
    await other.do(session_id, message("theirs"))  # what the lane remembers is stale from here on
    proxy.fault = Faults("hold-reply")
    calling = asyncio.create_task(lane.do(session_id, message("mine"), "mine", seconds=0.1))
    await proxy.held.wait()
    with pytest.raises(Refusal) as refused:
        await calling
    assert refused.value.reason is Reason.DEADLINE_EXCEEDED
    assert (await log_of(other.db, session_id)).types.count("user.message") == 1
    proxy.release.set()
    await lane.do(session_id, message("after"))
    assert (await log_of(other.db, session_id)).types.count("user.message") == 3
    assert (await other.do(session_id, message("mine"), "mine")).replayed


@pytest.mark.case(96)
async def test_a_caller_that_leaves_does_not_take_its_twin_with_it(both):
    lane, proxy, other = both
    session_id = await lane.create()
    proxy.fault = Faults("hold-reply")
    first = asyncio.create_task(lane.do(session_id, message()))
    await proxy.held.wait()
    gone = asyncio.create_task(lane.do(session_id, message("twin"), "twin"))
    stays = asyncio.create_task(lane.do(session_id, message("twin"), "twin"))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    proxy.release.set()
    await first
    assert (await stays).answer.seq
    assert (await log_of(other.db, session_id)).types.count("user.message") == 2


async def test_a_database_that_is_away_for_a_moment_costs_time_and_nothing_else(both):
    lane, proxy, other = both
    session_id = await lane.create()
    await proxy.stop()
    calls = [asyncio.create_task(lane.do(session_id, message())) for _ in range(5)]
    await asyncio.sleep(0.3)
    await proxy.start()
    assert len({result.answer.seq for result in await asyncio.gather(*calls)}) == 5
    assert (await log_of(other.db, session_id)).types.count("user.message") == 5


async def test_a_database_that_stays_away_is_said_to_be(both, monkeypatch):
    monkeypatch.setattr(lane_module, "GIVE_UP_SECONDS", 0.2)
    lane, proxy, other = both
    # Not remembered by this lane, so that it has to read before it can send anything.
    session_id = await other.create()
    await proxy.stop()
    with pytest.raises(Refusal) as refused:
        await lane.do(session_id, message())
    assert refused.value.reason is Reason.STORE_UNAVAILABLE
    assert refused.value.retry_after
    await proxy.start()
    await lane.do(session_id, interrupt())
    assert (await log_of(other.db, session_id)).types[-1] == "user.interrupt"


async def test_what_was_sent_and_cannot_be_looked_up_is_said_to_be_unknown(both, monkeypatch):
    monkeypatch.setattr(lane_module, "GIVE_UP_SECONDS", 0.2)
    lane, proxy, other = both
    session_id = await lane.create()
    proxy.fault = Faults("hold-reply")
    sending = asyncio.create_task(lane.do(session_id, message(), "same"))
    await proxy.held.wait()
    await proxy.stop()
    with pytest.raises(Refusal) as refused:
        await sending
    assert refused.value.reason is Reason.OUTCOME_UNKNOWN
    assert refused.value.retry_after
    await proxy.start()
    assert (await lane.do(session_id, message(), "same")).replayed

    async def once():
        return (await log_of(other.db, session_id)).types.count("user.message") == 1

    await eventually(once)


@pytest.mark.case(63)
async def test_two_tries_that_are_the_same_to_the_byte_count_as_one_command(force_dialect, dsn):
    async with wire_proxy(dsn) as proxy:
        database = await Database.open(proxy.dsn, pool_size=2, force_dialect=force_dialect)
        # Behind the log's times: every try is stamped with that of the last event.
        async with replicas(database, clock=Clock(lambda: 0.0)) as (lane,):
            session_id = await lane.create()
            proxy.fault = Faults("cut-before", "cut-after")
            sent = await lane.do(session_id, message(), None)
            assert (await log_of(database, session_id)).types.count("user.message") == 1
            assert sent.answer.seq == 3
            assert (lane.counts.missing, lane.counts.applied) == (1, 1)
        await database.close()
