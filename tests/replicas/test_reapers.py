"""Two replicas find the same thousand leases expired at one moment, and each Run is given back to the queue once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import psycopg
import pytest
from support.replicas import QUICK, FakeRunner, Rpc, Space, live_replica, make_space

LEASES, AT_ONCE = 1_000, 25
LONG = ("--runner-lease-ttl-seconds", "900", "--runner-heartbeat-seconds", "300", "--startup-allowance-seconds", "900")
# Its own lease time is what a replica waits for after its start, before it declares anybody lost.
REAPING = (*QUICK, "--startup-allowance-seconds", "900")
HELD = "SELECT count(*) FROM run_queue WHERE state = 'HELD'"
WAITING = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'turnlog/lane' AND wait_event_type = 'Lock'"""
COUNTED = """
SELECT count(*) FILTER (WHERE type = 'run.ready'), count(*) FILTER (WHERE type = 'run.attempt_started'),
       count(*) FILTER (WHERE type = 'run.attempt_ended'), count(*) FILTER (WHERE type = 'session.status_pending')
  FROM events GROUP BY session_id"""


async def in_turns(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    """All of them, some at a time."""
    waiting = iter(calls)

    async def work() -> None:
        for call in waiting:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def take(space: Space, rpc: Rpc, ready: bool) -> None:
    """A runner takes one Run, and is never heard of again."""
    runner = FakeRunner(rpc, harness=space.harness, beats=False)
    await runner.welcome()
    offer = await runner.offer(timeout=60)
    await runner.accept(offer)
    if ready:
        await runner.ready(offer)


async def all_held(dsn: str) -> None:
    """A thousand Runs in the hands of a thousand runners, whose replica is killed then."""
    async with live_replica(dsn, *LONG) as live:
        space = await make_space(live)
        await in_turns(lambda: space.session("hello") for _ in range(LEASES))
        # A connection carries so many streams and no more.
        rpcs = [live.rpc(space.runner_key) for _ in range(4)]
        await in_turns(lambda n=n: take(space, rpcs[n % 4], n % 2 == 0) for n in range(LEASES))
        live.kill()
        await live.process.wait()


async def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """What the database says."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        cursor = await connection.execute(query)  # type: ignore[arg-type]
        return await cursor.fetchall() if cursor.description else []


async def until(dsn: str, query: str, count: int) -> None:
    """Returns once the query counts so many."""
    async with asyncio.timeout(90):
        while True:
            if await rows(dsn, query) == [(count,)]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.only_on("postgresql", "crdb-switches", reason="CockroachDB has no LOCK TABLE")
@pytest.mark.rule("R22", "R31", "R175")
@pytest.mark.case(51)
async def test_each_of_a_thousand_runs_is_given_back_once(dsn: str) -> None:
    await all_held(dsn)
    assert await rows(dsn, HELD) == [(LEASES,)]
    async with live_replica(dsn, *REAPING), live_replica(dsn, *REAPING):
        async with await psycopg.AsyncConnection.connect(dsn) as door:
            await door.execute("LOCK TABLE session_heads IN EXCLUSIVE MODE")
            await rows(dsn, "UPDATE runners SET lease_expires_at = now() - interval '1 hour'")
            await until(dsn, WAITING, 2)
        # Both know the same lost attempts now, and are about to write that.
        await until(dsn, HELD, 0)
    # Both are gone, and so is whatever either of them still had to say.
    assert await rows(dsn, COUNTED) == [(2, 1, 1, 2)] * LEASES
    assert await rows(dsn, "SELECT DISTINCT attempt_no, state FROM run_queue") == [(2, "READY")]
    assert await rows(dsn, "SELECT DISTINCT epoch FROM runners") == [(2,)]
