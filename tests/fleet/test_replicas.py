"""Several replicas on one database: bounds that hold across them, hints between them, and what a restart finds."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from support.fleet import INTERRUPTED, SUCCEEDED, ended, event, run_of, seen
from support.postgres import PostgresServer
from support.replicas import QUICK, FakeRunner, Live, Space, accept_of, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb


@pytest.fixture(scope="module")
async def pair(postgres: PostgresServer, schema_template: str) -> AsyncIterator[tuple[Live, Live]]:
    """Two replicas on one database."""
    dsn = postgres.database_create(schema_template)
    async with live_replica(dsn, *QUICK) as one, live_replica(dsn, *QUICK) as two:
        yield one, two
    postgres.database_drop(dsn)


class Hands:
    """How many Runs are in the hands of runners: from Accepted to Settle, which is less than what the server counts."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def work(self, runner: FakeRunner) -> None:
        """Takes whatever comes, as long as it may."""
        while True:
            offer = await runner.offer(timeout=60)
            await runner.send(accept=accept_of(offer))
            while (got := await runner.receive()).WhichOneof("message") not in ("accepted", "lease_lost"):
                pass
            if got.WhichOneof("message") == "accepted":
                self.now += 1
                self.most = max(self.most, self.now)
                await runner.ready(offer)
                await runner.append(offer, "word")
                self.now -= 1
                await runner.settle(offer)


async def most_held(space: Space, done: asyncio.Event) -> int:
    """The most Runs of the workspace that the database held at one moment, looked at all the time."""
    held = "SELECT count(*) FROM run_queue WHERE workspace_id = %s AND state = 'HELD'"
    most = 0
    async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as connection:
        while not done.is_set():
            row = await (await connection.execute(held, [space.workspace_id])).fetchone()
            assert row is not None
            most = max(most, row[0])
            await asyncio.sleep(0.002)
    return most


@pytest.mark.rule("R21")
@pytest.mark.case(52)
async def test_a_workspace_never_holds_more_runs_than_it_may(pair: tuple[Live, Live]) -> None:
    cap, sessions, each, runners = 3, 15, 2, 6
    here = await make_space(pair[0])
    there = here.on(pair[1])
    await here.rpc.call("SetConcurrencyLimit", max_concurrent_runs=cap)
    made: list[tuple[str, list[str]]] = []
    for number in range(sessions):
        space = (here, there)[number % 2]
        created = await space.session("first")
        session_id = created.session.session_id
        more = [(await space.say(session_id, "next")).run_id for _ in range(each - 1)]
        made.append((session_id, [created.run_id, *more]))
    hands, done = Hands(), asyncio.Event()
    sampling = asyncio.create_task(most_held(here, done))
    working: list[asyncio.Task[None]] = []
    for number in range(runners):
        live = pair[number % 2]
        runner = FakeRunner(live.rpc(here.runner_key), harness=here.harness)
        await runner.welcome()
        working.append(asyncio.create_task(hands.work(runner)))
    for session_id, runs in made:
        for run_id in runs:
            assert (await ended(here, session_id, run_id, timeout=60)).status == SUCCEEDED
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    done.set()
    # It was met, or this would show nothing.
    assert 2 <= hands.most <= cap
    assert await sampling <= cap
    for session_id, _ in made:
        log = [e for e in await here.log(session_id) if e.type in ("run.attempt_started", "run.attempt_ended")]
        # Never two of one Session at a time, and each once.
        assert [e.type for e in log] == ["run.attempt_started", "run.attempt_ended"] * each
        assert len({e.run_id for e in log}) == each


@pytest.mark.case(52)
async def test_a_run_at_the_limit_of_its_workspace_says_so_and_goes_on_when_it_is_raised(space: Space) -> None:
    await space.rpc.call("SetConcurrencyLimit", max_concurrent_runs=1)
    first, second = await space.session("first"), await space.session("second")
    async with space.runner() as runner:
        offer = await runner.start(credits=2)
        other = second if offer.run_id == first.run_id else first
        waiting = await run_of(space, other.session.session_id, other.run_id)
        assert "as many Runs as it may" in waiting.pending_reason
        assert len(seen(runner, "offer")) == 1
        await space.rpc.call("SetConcurrencyLimit")
        again = await runner.expect("offer")
        assert again.run_id == other.run_id


async def test_a_word_on_one_replica_is_heard_by_a_runner_on_another(pair: tuple[Live, Live]) -> None:
    here = await make_space(pair[0])
    there = here.on(pair[1])
    async with there.runner() as runner:
        await runner.send(ready=pb.Ready(credits=1))
        # Claimable here, offered there.
        created = await here.session("hello")
        session_id = created.session.session_id
        offer = await runner.expect("offer")
        await runner.accept(offer)
        await runner.ready(offer)
        await here.interrupt(session_id)
        await runner.expect("interrupt")
        await runner.settle(offer, "OUTCOME_STOPPED")
    assert (await run_of(here, session_id, created.run_id)).status == INTERRUPTED


async def test_what_one_replica_offers_no_other_does(pair: tuple[Live, Live]) -> None:
    here = await make_space(pair[0])
    there = here.on(pair[1])
    async with here.runner() as one, there.runner() as two:
        for runner in (one, two):
            await runner.send(ready=pb.Ready(credits=1))
        asked = [asyncio.create_task(runner.expect("offer")) for runner in (one, two)]
        first = await here.session("hello")
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        # Both had a place for it, and one has it.
        assert [task.result().run_id for task in done] == [first.run_id]
        second = await here.session("hello")
        assert (await waiting.pop()).run_id == second.run_id


async def test_previews_are_promised_on_the_same_replica_only(pair: tuple[Live, Live]) -> None:
    here = await make_space(pair[0])
    there = here.on(pair[1])
    created = await here.session("hello")
    session_id = created.session.session_id
    near = here.rpc.stream("FollowEvents", session_id=session_id, previews=True)
    far = there.rpc.stream("FollowEvents", session_id=session_id, previews=True)
    async with here.runner() as runner:
        offer = await runner.start()
        await near.event("session.status_running")
        await runner.send(preview=pb.PreviewText(session_id=session_id, run_id=offer.run_id, attempt_no=1, text="…"))
        while (await near.frame()).WhichOneof("frame") != "preview":
            pass
        await runner.append(offer, "all of it")
        await runner.settle(offer)
        for follow in (near, far):
            await follow.event("session.status_idle")
    assert not [frame for frame in far.frames if frame.WhichOneof("frame") == "preview"]
    # What counts is the same on both.
    assert [e.seq for f in far.frames for e in f.events.events] == [e.seq for f in near.frames for e in f.events.events]
    near.cancel()
    far.cancel()


@pytest.mark.case(28)
async def test_commits_do_not_wait_for_hints(pair: tuple[Live, Live]) -> None:
    here = await make_space(pair[0])
    spaces = (here, here.on(pair[1]))
    sessions = [(await here.session()).session.session_id for _ in range(40)]
    waiting: list[str] = []

    async def sample(done: asyncio.Event) -> None:
        async with await psycopg.AsyncConnection.connect(pair[0].dsn, autocommit=True) as connection:
            while not done.is_set():
                cursor = await connection.execute(
                    "SELECT a.query, l.granted FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
                    " WHERE l.locktype = 'object' AND a.datname = current_database()"
                )
                for query, granted in await cursor.fetchall():
                    if not granted and "notify" not in query.lower():
                        waiting.append(query)

    done = asyncio.Event()
    sampling = asyncio.create_task(sample(done))
    follows = [spaces[1].rpc.stream("FollowEvents", session_id=session_id) for session_id in sessions[:5]]
    for _ in range(4):
        await asyncio.gather(*(spaces[n % 2].say(session_id) for n, session_id in enumerate(sessions)))
    for follow in follows:
        assert (await follow.events(3))[0].type == "session.created"
        follow.cancel()
    done.set()
    await sampling
    assert waiting == []


@pytest.mark.case(30)
async def test_followers_come_and_go_by_the_hundred_and_none_misses_anything(pair: tuple[Live, Live]) -> None:
    here = await make_space(pair[0])
    there = here.on(pair[1])
    busy = (await here.session()).session.session_id
    quiet = [(await here.session()).session.session_id for _ in range(20)]
    faithful = there.rpc.stream("FollowEvents", session_id=busy)
    stop = asyncio.Event()
    last = 0

    async def talk() -> None:
        nonlocal last
        while not stop.is_set():
            last = (await here.say(busy, if_busy="IF_BUSY_INTERRUPT")).seq

    async def come_and_go(session_id: str) -> None:
        for _ in range(5):
            follow = there.rpc.stream("FollowEvents", session_id=session_id)
            await follow.until("caught_up")
            follow.cancel()

    talking = asyncio.create_task(talk())
    for start in range(0, len(quiet), 10):
        await asyncio.gather(*(come_and_go(session_id) for session_id in quiet[start : start + 10]))
    stop.set()
    await talking
    seqs: list[int] = []
    while not seqs or seqs[-1] < last:
        seqs += [e.seq for e in await faithful.events(1)]
    assert seqs == list(range(1, len(seqs) + 1))
    faithful.cancel()
    await pair[1].until_metric("turnlog_followers", 0.0)


@pytest.mark.rule("R175")
@pytest.mark.case(57)
async def test_a_server_that_starts_alone_takes_back_what_the_dead_held(dsn: str) -> None:
    async with live_replica(dsn, *QUICK) as first:
        space = await make_space(first)
        created = await space.session("hello")
        session_id = created.session.session_id
        async with space.runner() as runner:
            await runner.start()
            first.kill()
            await first.process.wait()
    # Nobody is there: no runner, no other replica, not the one that offered it.
    async with live_replica(dsn, *QUICK) as second:
        space = space.on(second)
        lost = await event(space, session_id, "run.attempt_ended")
        assert lost.run_attempt_ended.error.code == "runtime.runner_lost"
        assert (await run_of(space, session_id, created.run_id)).status == 3  # RUN_STATUS_READY
        async with space.runner() as runner:
            offer = await runner.start()
            assert (offer.run_id, offer.attempt_no) == (created.run_id, 2)
            await runner.settle(offer)
