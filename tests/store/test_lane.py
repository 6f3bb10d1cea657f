"""The lane against a real database: what it admits is in order, once, and as the tables beside the log say."""

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from support.lanes import (
    AUTHOR,
    differences,
    epoch,
    eventually,
    interrupt,
    log_of,
    message,
    raise_epoch,
    replicas,
    report,
)
from turnlog_server.domain import limits
from turnlog_server.domain.commands import (
    AppendReports,
    CompleteSession,
    DeleteSession,
    HarnessReady,
    IfBusy,
    TimeUp,
)
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import Status
from turnlog_server.store.database import Database
from turnlog_server.store.sweeps import Sweeps
from turnlog_server.wire.events import encode


async def refused(awaitable):
    with pytest.raises(Refusal) as caught:
        await awaitable
    return caught.value


@pytest.fixture
async def two(database):
    async with replicas(database, 2) as lanes:
        yield lanes
        assert await differences(database) == []


@pytest.fixture
async def one(two):
    return two[0]


# Order.


@pytest.mark.rule("R2", "R31", "R32")
async def test_lanes_that_fight_over_sessions_leave_no_gap_and_lose_nothing(database):
    async with replicas(database, 3) as lanes:
        sessions = [await lanes[0].create() for _ in range(4)]
        told: list[tuple[str, int, str]] = []

        async def write(lane, session_id, number):
            for turn in range(8):
                text = f"{number} {turn}"
                result = await lane.do(session_id, message(text))
                told.append((session_id, result.answer.seq, text))

        await asyncio.gather(
            *(write(lane, session_id, n) for n, lane in enumerate(lanes * 2) for session_id in sessions)
        )
        assert len({(session_id, seq) for session_id, seq, _ in told}) == len(told) == 3 * 2 * 4 * 8
        for session_id in sessions:
            log = await log_of(database, session_id)
            assert log.seqs == list(range(1, log.head + 1))
            assert all(before.time <= after.time for before, after in pairwise(log.events))
            assert len({event.event_id for event in log.events}) == log.head
            assert Counter(log.types)["user.message"] == 48
            # Each writer's own messages stand in the order in which it sent them.
            for number in range(6):
                mine = [seq for sid, seq, text in told if sid == session_id and text.startswith(f"{number} ")]
                assert mine == sorted(mine)
        for lane in lanes:
            heads: dict[str, int] = {}
            for commit in lane.published:
                seqs = [event.seq for event, _ in commit.events]
                assert seqs == list(range(seqs[0], seqs[-1] + 1))
                assert seqs[0] > heads.get(commit.facts.session_id, 0)
                heads[commit.facts.session_id] = seqs[-1]
        published = Counter(c.facts.session_id for lane in lanes for c in lane.published for _ in c.events)
        for session_id in sessions:
            assert published[session_id] == (await log_of(database, session_id)).head
        assert await differences(database) == []


async def test_commands_that_come_together_are_one_commit(one, database):
    sessions = [await one.create() for _ in range(6)]
    one.counts.batches.clear()
    await asyncio.gather(*(one.do(session_id, message()) for session_id in sessions for _ in range(5)))
    assert max(commands for commands, _ in one.counts.batches) > 5
    assert sum(commands for commands, _ in one.counts.batches) == 30


# Memory.


async def test_what_is_remembered_and_stale_loses_the_compare_and_is_decided_again(two, database):
    first, second = two
    session_id = await first.create()
    await second.do(session_id, message("second"))
    again = first.counts.looked_again
    result = await first.do(session_id, message("first"))
    assert result.answer.seq == (await log_of(database, session_id)).head - 1
    assert first.counts.looked_again == again + 1
    assert [e.type for e in (await log_of(database, session_id)).events].count("user.message") == 2


async def test_a_refusal_from_a_stale_memory_is_decided_on_what_the_database_says(two, database):
    first, second = two
    session_id = await first.create(text="hello")
    # As far as the first knows, a turn is active, and the head is where it was.
    await second.do(session_id, interrupt())
    head = (await log_of(database, session_id)).head
    result = await first.do(session_id, message(if_busy=IfBusy.REJECT, expected_head=head))
    assert result.answer.seq == head + 1
    await second.do(session_id, interrupt())
    assert (await first.do(session_id, CompleteSession(AUTHOR))).state.status is Status.COMPLETED
    # And the other way about: what was allowed is not any more.
    assert (await refused(second.do(session_id, message()))).reason is Reason.SESSION_TERMINAL


async def test_a_command_that_does_nothing_answers_from_what_is_stored(two, database):
    first, second = two
    session_id = await first.create(text="hello")
    lease = await second.accept(session_id)
    # The first remembers a Run that nobody holds.
    ready = HarnessReady(replace(lease, message_no=1), "svc_1")
    assert (await first.do(session_id, ready, None)).state.status is Status.RUNNING
    assert (await second.do(session_id, ready, None)).answer.duplicate
    assert (await log_of(database, session_id)).types.count("session.status_running") == 1


async def test_a_timer_that_means_nothing_writes_nothing(one, database):
    session_id = await one.create(text="hello")
    head = (await log_of(database, session_id)).head
    result = await one.do(session_id, TimeUp(), None, own=True)
    assert result.answer.event_id == ""
    assert (await log_of(database, session_id)).head == head


# Request ids.


@pytest.mark.rule("R5", "R36")
async def test_a_request_id_that_is_sent_fifty_times_at_once_lands_once(two, database):
    session_id = await two[0].create()
    results = await asyncio.gather(*(two[n % 2].do(session_id, message(), "same") for n in range(50)))
    assert len({(r.answer.seq, r.answer.event_id, r.answer.run_id) for r in results}) == 1
    assert sum(not result.replayed for result in results) == 1
    assert (await log_of(database, session_id)).types.count("user.message") == 1


@pytest.mark.rule("R5", "R36")
async def test_a_session_that_is_asked_for_many_times_at_once_is_made_once(two, database):
    made = await asyncio.gather(*(two[n % 2].create("make", text="hello") for n in range(20)))
    assert len(set(made)) == 1
    assert await database.read("count", "SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.rule("R5", "R36")
async def test_another_request_under_the_same_id_is_refused_also_while_the_first_is_on_its_way(two, database):
    first, second = two
    session_id = await first.create()
    running = asyncio.create_task(first.do(session_id, message(), "same"))
    await asyncio.sleep(0)
    for lane in (first, second):
        refusal = await refused(lane.do(session_id, message("other"), "same", fingerprint=b"other"))
        assert refusal.reason is Reason.REQUEST_ID_REUSED
        assert refusal.metadata == {"request_id": "same"}
    await running
    assert (await refused(first.do(session_id, message("other"), "same", fingerprint=b"other"))).metadata
    assert (await log_of(database, session_id)).types.count("user.message") == 1


async def test_a_replay_tells_how_the_session_stands_now(two, database):
    first, second = two
    session_id = await first.create()
    sent = await first.do(session_id, message(), "one")
    await second.do(session_id, interrupt())
    again = await first.do(session_id, message(), "one")
    assert again.replayed
    assert again.answer.seq == sent.answer.seq
    assert again.state.head_seq == (await log_of(database, session_id)).head


async def test_what_was_refused_is_not_remembered(one):
    session_id = await one.create(text="hello")
    busy = message(if_busy=IfBusy.REJECT)
    assert (await refused(one.do(session_id, busy, "same"))).reason is Reason.SESSION_BUSY
    await one.do(session_id, interrupt())
    assert not (await one.do(session_id, busy, "same")).replayed


# Permission.


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_epoch_that_moved_between_judgement_and_commit_is_judged_again(one, database, allowed):
    session_id = await one.create()
    await raise_epoch(database)
    if not allowed:
        one.refuse = Refusal(Reason.PERMISSION_MISSING, "no more")
    head, judged = (await log_of(database, session_id)).head, one.judged
    attempt = one.do(session_id, message())
    if allowed:
        assert (await attempt).answer.seq == head + 1
        assert one.published[-1].epoch == await epoch(database)
    else:
        assert (await refused(attempt)).reason is Reason.PERMISSION_MISSING
        assert (await log_of(database, session_id)).head == head
    assert one.judged > judged


async def test_a_session_of_another_workspace_is_not_there(one, database):
    session_id = await one.create()
    one.caller = replace(one.caller, workspace_id="ws_2", subject="prn_2")
    await database.write("ws", "INSERT INTO workspace_epochs (workspace_id, acl_epoch) VALUES ('ws_2', 1)")
    foreign = await refused(one.do(session_id, message()))
    absent = await refused(one.do("sess_" + "0" * 26, message()))
    assert foreign.reason is absent.reason is Reason.NOT_FOUND
    assert foreign.message.replace(session_id, "") == absent.message.replace("sess_" + "0" * 26, "")


# Bounds.


async def test_a_command_that_cannot_be_written_fails_alone(database):
    def encoder(event):
        if b"poison" in event.payload:
            raise ValueError("cannot be written")
        return encode(event)

    async with replicas(database, encoder=encoder) as (lane,):
        sessions = [await lane.create() for _ in range(3)]
        outcomes = await asyncio.gather(
            *(lane.do(sid, message(text)) for sid in sessions for text in ("before", "poison", "after")),
            return_exceptions=True,
        )
        assert [isinstance(outcome, Refusal) for outcome in outcomes] == [False, True, False] * 3
        assert {outcome.reason for outcome in outcomes if isinstance(outcome, Refusal)} == {Reason.INTERNAL}
        for session_id in sessions:
            log = await log_of(database, session_id)
            assert log.types.count("user.message") == 2
        assert await differences(database) == []


async def test_a_batch_has_bounds(one, database):
    sessions = [await one.create() for _ in range(20)]
    one.counts.batches.clear()
    await asyncio.gather(*(one.do(sessions[n % 20], message(), size=100) for n in range(600)))
    most = max(commands for commands, _ in one.counts.batches)
    assert most <= limits.BATCH_COMMANDS
    one.counts.batches.clear()
    await asyncio.gather(*(one.do(sessions[0], message(), size=limits.BATCH_BYTES // 4) for _ in range(12)))
    assert max(commands for commands, _ in one.counts.batches) == 4


async def test_a_full_queue_refuses_at_once_and_says_when_to_come_again(one):
    session_id = await one.create()
    for size, fits in ((100, limits.LANE_REQUESTS), (limits.MIB, limits.LANE_BYTES // limits.MIB)):
        calls = [asyncio.create_task(one.do(session_id, message(), size=size)) for _ in range(fits + 3)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        full = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
        assert len(full) == 3
        assert {refusal.reason for refusal in full} == {Reason.QUOTA_EXCEEDED}
        assert all(refusal.retry_after for refusal in full)


# Ends.


@pytest.mark.rule("R60")
async def test_a_deleted_session_is_gone_for_every_lane(two, database):
    first, second = two
    session_id = await first.create(text="hello")
    assert (await refused(second.do(session_id, DeleteSession(AUTHOR)))).reason is Reason.SESSION_BUSY
    await first.do(session_id, interrupt())
    await second.do(session_id, DeleteSession(AUTHOR), "delete")
    assert second.published[-1].deleted
    for lane in two:
        assert (await refused(lane.do(session_id, message()))).reason is Reason.NOT_FOUND
        assert (await refused(lane.do(session_id, DeleteSession(AUTHOR)))).reason is Reason.NOT_FOUND
    assert (await first.do(session_id, DeleteSession(AUTHOR), "delete")).replayed
    sweeps = Sweeps(database)
    assert await sweeps.deleted(10) == [session_id]
    await sweeps.sweep_session(session_id)
    for table in ("events", "runs", "run_attempts", "run_queue", "timers", "session_states", "session_heads"):
        assert await database.read("left", f"SELECT count(*) FROM {table}") == [(0,)]
    assert await sweeps.deleted(10) == []


async def test_what_comes_behind_a_delete_in_its_batch_is_not_found(one):
    session_id = await one.create()
    gone, late = await asyncio.gather(
        one.do(session_id, DeleteSession(AUTHOR)), one.do(session_id, message()), return_exceptions=True
    )
    assert not isinstance(gone, Refusal)
    assert late.reason is Reason.NOT_FOUND


async def test_a_lane_that_closes_carries_out_what_waits_and_takes_nothing_more(database):
    async with replicas(database) as (lane,):
        session_id = await lane.create()
        calls = [asyncio.create_task(lane.do(session_id, message())) for _ in range(40)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(lane.lane.close())
        await asyncio.sleep(0)
        refusal = await refused(lane.do(session_id, message()))
        assert refusal.reason is Reason.SERVER_DRAINING
        assert refusal.retry_after
        assert len(await asyncio.gather(*calls)) == 40
        await closing
        assert (await log_of(database, session_id)).types.count("user.message") == 40


async def test_what_a_runner_says_is_one_commit_in_its_order(one, database):
    session_id = await one.create(text="hello")
    lease = await one.accept(session_id)
    await one.do(session_id, HarnessReady(replace(lease, message_no=1), "svc_1"), None)
    said = [[report(f"{number} {part}") for part in range(10)] for number in range(5)]
    appends = [
        AppendReports(replace(lease, message_no=2 + number), "svc_1", tuple(part)) for number, part in enumerate(said)
    ]
    results = await asyncio.gather(*(one.do(session_id, append, None) for append in appends))
    assert [result.answer.duplicate for result in results] == [False] * 5
    log = await log_of(database, session_id)
    assert log.state.active.live.last_message_no == 6
    bodies = await database.read("said", "SELECT body FROM events WHERE type = 'agent.message' ORDER BY seq")
    sent = [payload for part in said for _, payload in part]
    assert [body.endswith(payload) for (body,), payload in zip(bodies, sent, strict=True)] == [True] * 50
    # Sent again after a reconnect, each is known.
    again = await asyncio.gather(*(one.do(session_id, append, None) for append in appends))
    assert all(result.answer.duplicate for result in again)
    assert (await log_of(database, session_id)).head == log.head


@pytest.mark.only_on("postgresql", reason="CockroachDB has no SKIP LOCKED: there the others wait")
async def test_a_session_that_is_locked_elsewhere_holds_up_no_other_and_is_judged_when_it_is_free(dsn):
    database = await Database.open(dsn, pool_size=2)
    async with replicas(database) as (lane,), await database.connect("other") as other:
        locked, free = await lane.create(), await lane.create()
        await lane.do(locked, message("first"))
        await other.execute("BEGIN")
        await other.execute("SELECT 1 FROM session_heads WHERE session_id = %s FOR UPDATE", (locked,))
        waiting = asyncio.create_task(lane.do(locked, message("second")))
        await eventually(lambda: lane.counts.looked_again > 0)
        await lane.do(free, message("meanwhile"))
        assert not waiting.done()
        await raise_epoch(database)
        lane.refuse = Refusal(Reason.PERMISSION_MISSING, "revoked")
        await other.execute("ROLLBACK")
        assert (await refused(waiting)).reason is Reason.PERMISSION_MISSING
    await database.close()
