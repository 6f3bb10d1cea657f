"""Two replicas whose machines are ten minutes apart: leases and due times go by the clock of the database."""

import asyncio
import glob
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from support.fleet import SUCCEEDED, ended, event, held, runner_row, seen
from support.fronted import note
from support.replicas import QUICK, FakeRunner, Live, accept_of, fresh, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb

pytestmark = pytest.mark.system("faketime")

AHEAD, BEHIND = 300, -300
LEASE = timedelta(seconds=2)
# A busy machine may take that long to look; clocks that are believed show as five minutes.
NEAR = timedelta(seconds=60)
RUNNERS, SILENT, RUNS = 10, 4, 24


def clock_of(seconds: int) -> dict[str, str]:
    """The environment of a process whose machine's clock is wrong. Time still passes as it does.

    As the program `faketime` sets it, which itself may stumble over what one that was killed has left in /dev/shm.
    """
    [library] = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    return {"LD_PRELOAD": library, "FAKETIME": f"{seconds:+}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


@pytest.fixture(scope="module")
async def skewed(postgres: Any, schema_template: str) -> AsyncIterator[tuple[Live, Live]]:
    """One replica five minutes ahead, one five minutes behind."""
    dsn = postgres.database_create(schema_template)
    async with AsyncExitStack() as stack:
        starting = (live_replica(dsn, *QUICK, environment=clock_of(seconds)) for seconds in (AHEAD, BEHIND))
        ahead, behind = await asyncio.gather(*map(stack.enter_async_context, starting))
        yield ahead, behind
    postgres.database_drop(dsn)


async def database_time(dsn: str) -> datetime:
    """What the database takes for now."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
    assert row is not None
    return row[0]


def instant(timestamp: Any) -> datetime:
    """A timestamp of the contract."""
    return timestamp.ToDatetime(tzinfo=UTC)


async def execute(runner: FakeRunner) -> None:
    """Takes whatever comes, as long as it may."""
    while True:
        offer = await runner.offer(timeout=60)
        await runner.send(accept=accept_of(offer))
        while (got := await runner.receive()).WhichOneof("message") not in ("accepted", "lease_lost"):
            pass
        if got.WhichOneof("message") == "accepted":
            await runner.ready(offer)
            await runner.append(offer, runner.runner_id)
            await runner.settle(offer)


def one_at_a_time(log: list[Any]) -> None:
    """No attempt starts before the one before it ended, and nobody says anything but the one that is under way."""
    current: dict[str, int] = {}
    for each in log:
        if each.type == "run.attempt_started":
            assert each.run_id not in current
            current[each.run_id] = each.attempt_no
        elif each.type == "run.attempt_ended":
            assert current.pop(each.run_id) == each.attempt_no
        elif each.type == "agent.message":
            assert current[each.run_id] == each.attempt_no
    assert current == {}


@pytest.mark.rule("R19", "R22", "R175")
@pytest.mark.case(40)
async def test_no_run_has_two_leases_and_none_ends_early(skewed: tuple[Live, Live]) -> None:
    """Of ten runners some fall silent with a Run in hand. Whichever replica notices, it is when the lease is over."""
    # Their clocks are wrong, or this would show nothing.
    for live, seconds in zip(skewed, (AHEAD, BEHIND), strict=True):
        said_at = datetime.fromisoformat(live.logged("serving")["time"])
        assert abs(said_at - datetime.now(UTC) - timedelta(seconds=seconds)) < NEAR
    here = await make_space(skewed[0])
    spaces = (here, here.on(skewed[1]))
    async with AsyncExitStack() as stack:
        dying = [await stack.enter_async_context(spaces[number % 2].runner(beats=False)) for number in range(SILENT)]
        made = [await spaces[number % 2].session("hello") for number in range(RUNS)]
        offers = [await runner.start() for runner in dying]
        last_word = await database_time(here.live.dsn)
        busy = [await stack.enter_async_context(spaces[number % 2].runner()) for number in range(RUNNERS - SILENT)]
        working = [asyncio.create_task(execute(runner)) for runner in busy]
        for each in made:
            assert (await ended(here, each.session.session_id, each.run_id, timeout=90)).status == SUCCEEDED
        for runner, offer in zip(dying, offers, strict=True):
            row = await runner_row(here, runner.runner_id)
            lost = await event(here, offer.session_id, "run.attempt_ended")
            assert lost.run_attempt_ended.error.code == "runtime.runner_lost"
            assert instant(lost.create_time) >= instant(row.lease_expire_time)
            # The last renewal was for a word that was said before, or just now.
            assert abs(instant(row.lease_expire_time) - LEASE - last_word) < NEAR
            assert instant(lost.create_time) - instant(row.lease_expire_time) < NEAR
            assert (await runner.refused()).reason == "LEASE_LOST"
            # Whoever comes back too late has nothing any more.
            same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id, "held": [held(offer)]}
            async with here.runner(**same) as late:
                assert [each.held for each in seen(late, "welcome")] == [[]]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    for each in made:
        one_at_a_time(await here.log(each.session.session_id))


@pytest.mark.rule("R31", "R171", "R178")
@pytest.mark.case(40)
async def test_events_and_due_times_are_stamped_by_one_clock(skewed: tuple[Live, Live]) -> None:
    here = await make_space(skewed[0])
    spaces = (here, here.on(skewed[1]))
    session_id = (await here.session()).session.session_id
    for number in range(6):
        before = await database_time(here.live.dsn)
        await note(spaces[number % 2], session_id, fresh())
        stamped = instant((await here.log(session_id))[-1].create_time)
        assert before - NEAR < stamped < await database_time(here.live.dsn) + NEAR
    for accepting, looking in (spaces, spaces[::-1]):
        created = await looking.session("hello")
        async with accepting.runner() as runner:
            offer = await runner.offer()
            accepted: pb.Accepted = await runner.accept(offer)
            deadline = instant(accepted.startup_deadline)
            assert abs(deadline - await database_time(here.live.dsn)) < NEAR
            # It never starts: whichever replica looks first, that is seen when it is due.
            over = await event(looking, created.session.session_id, "run.attempt_ended")
            assert over.run_attempt_ended.status == 5  # ATTEMPT_STATUS_STARTUP_TIMEOUT
            assert deadline <= instant(over.create_time) < deadline + NEAR
            # Else the next runner would be offered it again.
            await looking.rpc.call("CancelSession", session_id=offer.session_id)
