"""Hints between replicas that are lost cost time, never an event: what listens dies, or hears nothing."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from support.fleet import SUCCEEDED, ended
from support.fronted import Fronted, note, seqs_up_to
from support.replicas import QUICK, Follow, Live, Refused, Space, fresh, live_replica, make_space

pytestmark = pytest.mark.only_on("postgresql", reason="CockroachDB does not notify")

LISTENERS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'turnlog/listener'"


async def deafen(dsn: str) -> int:
    """Ends every connection that listens for hints; returns how many there were."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(f"SELECT pg_terminate_backend(pid) {LISTENERS}")
        return len(await cursor.fetchall())


async def listening(dsn: str, count: int) -> None:
    """Returns once so many connections have asked for hints."""
    async with asyncio.timeout(30), await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        while True:
            cursor = await connection.execute(f"SELECT pid {LISTENERS} AND state = 'idle' AND query LIKE 'LISTEN %'")
            if len(await cursor.fetchall()) == count:
                return
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def unheard(dsn: str) -> Iterator[list[int]]:
    """Meanwhile nothing comes out of the connections that listen, and they look as if they were well."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        pids = [row[0] for row in connection.execute(f"SELECT pid {LISTENERS}").fetchall()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def stopped(pid: int) -> bool:
    """Whether the process stands still."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")


async def turns(spaces: list[Space], worker: Space, done: list[str]) -> None:
    """Turns that begin on every replica are executed by a runner on one of them."""
    async with worker.runner() as runner:
        for number in range(6):
            space = spaces[number % len(spaces)]
            created = await space.session("hello")
            offer = await runner.start()
            assert offer.run_id == created.run_id
            await runner.settle(offer)
            assert (await ended(space, created.session.session_id, created.run_id)).status == SUCCEEDED
            done.append(created.run_id)


@pytest.mark.rule("R31", "R41")
@pytest.mark.system("haproxy")
async def test_listeners_that_are_killed_again_and_again_under_load(trio: Fronted) -> None:
    space = await trio.space()
    session_id = (await space.session()).session.session_id
    follows = [each.rpc.stream("FollowEvents", session_id=session_id) for each in trio.each(space)]
    before = [await live.metric("turnlog_hints_lost_total") for live in trio.lives]
    killed, heads, done = 0, [0], []

    async def talk() -> None:
        for _ in range(40):
            heads.append((await note(space, session_id, fresh())).seq)

    load = asyncio.gather(*(talk() for _ in range(4)), turns(trio.each(space), space.on(trio.lives[0]), done))
    while not load.done() or killed < 9:
        killed += await deafen(space.live.dsn)
        await asyncio.sleep(0.05)
    await load
    assert len(done) == 6
    for follow in follows:
        assert await seqs_up_to(follow, max(heads), []) == list(range(1, max(heads) + 1))
        follow.cancel()
    lost = [await live.metric("turnlog_hints_lost_total") for live in trio.lives]
    assert all(now > then for now, then in zip(lost, before, strict=True))


@pytest.mark.rule("R41")
@pytest.mark.system("haproxy")
async def test_hints_that_nobody_hears_are_made_up_for_by_looking(trio: Fronted) -> None:
    """The connections that listen are open, and silent: only the poll finds what the others wrote."""
    a, b, c = trio.each(await trio.space())
    session_id = (await a.session()).session.session_id
    follows = [each.rpc.stream("FollowEvents", session_id=session_id) for each in (a, b, c)]
    for follow in follows:
        await follow.until("caught_up")
    with unheard(a.live.dsn) as pids:
        assert len(pids) == 3
        for number in range(10):
            head = (await note((a, b, c)[number % 3], session_id, fresh())).seq
            # Each time all of them get it, not only once all is over.
            for follow in follows:
                assert (await follow.events(1))[-1].seq == head
        done: list[str] = []
        await turns([a, b, c], b, done)
        assert len(done) == 6
        assert all(map(stopped, pids))
    for follow in follows:
        follow.cancel()


@pytest.fixture
async def patient(dsn: str) -> AsyncIterator[tuple[Live, Live]]:
    """Two replicas that do not look by themselves for ten minutes; the second one knows the first."""
    arguments = [*QUICK, "--safety-poll-seconds", "600"]
    async with live_replica(dsn, *arguments) as first, live_replica(dsn, *arguments) as second:
        yield first, second


@pytest.mark.rule("R41")
async def test_whoever_could_not_listen_looks_as_soon_as_he_listens_again(patient: tuple[Live, Live]) -> None:
    """What was written while the listener was away comes with its return; no poll helps."""
    here = await make_space(patient[0])
    there = here.on(patient[1])
    session_id = (await here.session()).session.session_id
    follow = here.rpc.stream("FollowEvents", session_id=session_id)
    got = [event.seq for event in await follow.until("caught_up")]
    async with here.runner() as runner:
        for _ in range(8):
            await listening(here.live.dsn, 2)
            assert await deafen(here.live.dsn) == 2
            texts = [fresh() for _ in range(5)]
            head = max([(await note(there, session_id, text)).seq for text in texts])
            created = await there.session("hello")
            got = await seqs_up_to(follow, head, got)
            # And so does a Run that became claimable elsewhere.
            offer = await runner.start()
            assert offer.run_id == created.run_id
            await runner.settle(offer)
    assert got == list(range(1, head + 1))
    assert await here.live.metric("turnlog_hints_lost_total") == 8
    follow.cancel()


async def account_key(space: Space, role: str, *pools: str) -> tuple[str, str]:
    """The id and the secret of a key of its own."""
    account = await space.rpc.call("CreateServiceAccount", display_name=fresh(), role=role)
    subject = account.service_account.service_account_id
    made = await space.rpc.call("CreateApiKey", subject=subject, display_name=fresh(), runner_pools=pools)
    return made.api_key.api_key_id, made.secret


async def ended_with(follow: Follow) -> Refused:
    """Why a follow ends by itself."""
    with pytest.raises(Refused) as refused:
        await follow.until("end")
    return refused.value


@pytest.mark.system("haproxy")
@pytest.mark.parametrize("hints", ["heard", "unheard"])
async def test_what_is_taken_away_on_one_replica_is_gone_on_all(trio: Fronted, hints: str) -> None:
    """Streams end on every replica when their key is revoked or their Session deleted; nothing reaches them after."""
    spaces = a, b, _ = trio.each(await trio.space())
    kept = (await a.session()).session.session_id
    deleted = (await a.session()).session.session_id
    reader_id, reader = await account_key(a, "ROLE_VIEWER")
    runner_id, runner_key = await account_key(a, "ROLE_RUNNER", "default")
    readers = [each.live.rpc(reader).stream("FollowEvents", session_id=kept) for each in spaces]
    followers = [each.rpc.stream("FollowEvents", session_id=deleted) for each in spaces]
    for follow in (*readers, *followers):
        await follow.until("caught_up")
    quiet = unheard(a.live.dsn) if hints == "unheard" else contextlib.nullcontext()
    async with b.runner(key=runner_key) as runner:
        with quiet:
            await a.rpc.call("RevokeApiKey", api_key_id=reader_id)
            # At once, and by each of them: it is for others.
            await asyncio.gather(*(note(each, kept, fresh()) for each in spaces))
            await a.rpc.call("RevokeApiKey", api_key_id=runner_id)
            await a.rpc.call("DeleteSession", session_id=deleted)
            for follow in readers:
                assert (await ended_with(follow)).reason == "CREDENTIAL_INVALID"
            for follow in followers:
                assert (await ended_with(follow)).reason == "NOT_FOUND"
            assert (await runner.refused()).reason == "CREDENTIAL_INVALID"
    for follow in readers:
        assert [event.seq for frame in follow.frames for event in frame.events.events] == [1, 2]
