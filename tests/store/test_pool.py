"""The pool under callers that leave, and without a database."""

import asyncio
import random

import pytest
from support.wire import wire_proxy
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store.database import GRACE, Database

POOL = 5
ONE = "SELECT 1"


@pytest.fixture
async def proxy(empty_dsn):
    async with wire_proxy(empty_dsn) as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy):
    database = await Database.open(proxy.dsn, pool_size=POOL)
    yield database
    await proxy.stop()
    await database.close()


def soon(seconds):
    return asyncio.get_running_loop().time() + seconds


async def usable(database):
    """Ten normal calls at once, each with time enough and no more."""
    answers = await asyncio.gather(*(database.read("normal", ONE, deadline=soon(5)) for _ in range(10)))
    assert answers == [[(1,)]] * 10
    stats = database.pool_stats()
    assert stats["pool_size"] == POOL
    assert stats.get("requests_waiting", 0) == 0


@pytest.mark.case(66)
async def test_deadlines_of_a_few_milliseconds_cost_no_connection(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=POOL)
    numbers = random.Random(66)

    async def caller():
        outcomes = set()
        for _ in range(25):
            try:
                await database.read("short", "SELECT pg_sleep(0.005)", deadline=soon(numbers.uniform(0.001, 0.02)))
                outcomes.add("OK")
            except Refusal as refusal:
                outcomes.add(refusal.reason)
        return outcomes

    outcomes = set().union(*await asyncio.gather(*(caller() for _ in range(40))))
    assert Reason.DEADLINE_EXCEEDED in outcomes
    assert outcomes <= {"OK", Reason.DEADLINE_EXCEEDED}
    await usable(database)
    await database.close()


@pytest.mark.case(66)
async def test_a_caller_that_leaves_while_its_connection_is_on_its_way_back_costs_no_connection(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=POOL)
    pool = database._pool
    reads = (database.read("short", "SELECT pg_sleep(0.02)", deadline=soon(0.05)) for _ in range(POOL))
    calls = [asyncio.create_task(read) for read in reads]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pool._pool
    async with pool._lock:  # as it is under load: who returns a connection waits
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [outcome.reason for outcome in outcomes] == [Reason.DEADLINE_EXCEEDED] * POOL
        await asyncio.sleep(3 * GRACE)  # longer than an operation that nobody waits for may go on
    await usable(database)
    await database.close()


@pytest.mark.case(66)
async def test_callers_that_are_cancelled_cost_no_connection(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=POOL)
    numbers = random.Random(6)

    async def body(conn):
        await conn.execute("SELECT pg_sleep(0.005)")

    async def caller():
        for _ in range(10):
            call = asyncio.create_task(database.run("short", body))
            _, pending = await asyncio.wait({call}, timeout=numbers.uniform(0.001, 0.02))
            for task in pending:
                task.cancel()
            await asyncio.gather(call, return_exceptions=True)

    await asyncio.gather(*(caller() for _ in range(40)))
    await usable(database)
    await database.close()


@pytest.mark.case(67)
@pytest.mark.parametrize("way", ["read", "write", "run"])
@pytest.mark.parametrize("loss", ["refuses", "is silent"])
async def test_without_a_database_a_call_ends_at_its_deadline(behind, proxy, loss, way):
    if loss == "refuses":
        await proxy.stop()
    else:
        proxy.silent = True

    async def body(conn):
        await conn.execute(ONE)

    call = {
        "read": lambda until: behind.read("read", ONE, deadline=until),
        "write": lambda until: behind.write("write", ONE, deadline=until),
        "run": lambda until: behind.run("run", body, deadline=until),
    }[way]
    for _ in range(2):
        until = soon(0.5)
        with pytest.raises(Refusal) as caught:
            await call(until)
        assert soon(0) - until < 0.5
        assert caught.value.reason in (Reason.STORE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED, Reason.OUTCOME_UNKNOWN)
    if loss == "refuses":
        assert caught.value.reason is Reason.STORE_UNAVAILABLE


@pytest.mark.case(67)
async def test_the_pool_comes_back_with_the_database(behind, proxy):
    await proxy.stop()
    with pytest.raises(Refusal):
        await behind.read("one", ONE, deadline=soon(0.5))
    await proxy.start()
    assert await behind.read("one", ONE, deadline=soon(20)) == [(1,)]


async def test_connections_that_all_died_cost_one_call_no_more_than_a_moment(behind, proxy):
    await usable(behind)
    proxy.cut_all()
    await usable(behind)


async def test_closing_waits_for_what_is_in_flight(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=1)
    call = asyncio.create_task(database.read("slow", "SELECT pg_sleep(0.2), 7"))
    await asyncio.sleep(0)
    await database.close()
    assert (await call)[0][1] == 7
