"""The schema appears once, whoever starts it and however often."""

import asyncio

import psycopg
import pytest
from turnlog_server.store.database import Database
from turnlog_server.store.errors import StoreSetupError
from turnlog_server.store.leases import lease_take
from turnlog_server.store.migrate import LEASE, migrate, schema_require, schema_status
from turnlog_server.store.steps import step_of, steps_known

LABELS = tuple(f"{step.number:04}_{step.name}" for step in steps_known())


async def test_an_empty_database_gets_every_step_and_a_second_run_none(empty_dsn):
    first = await migrate(empty_dsn)
    second = await migrate(empty_dsn)
    assert first.applied == LABELS
    assert first.already == ()
    assert second.applied == ()
    assert second.already == LABELS


@pytest.mark.case(79)
async def test_ten_starters_at_once_on_an_empty_database(empty_dsn):
    reports = await asyncio.gather(*(migrate(empty_dsn) for _ in range(10)))
    assert sorted(len(report.applied) for report in reports) == [0] * 9 + [len(LABELS)]
    database = await Database.open(empty_dsn, pool_size=1)
    await schema_require(database)
    await database.close()


async def test_every_step_can_run_twice(empty_dsn):
    await migrate(empty_dsn)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("DELETE FROM schema_steps")
    assert (await migrate(empty_dsn)).applied == LABELS


async def test_status_before_and_after(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=1)
    want = steps_known()[-1].number
    assert await schema_status(database) == (0, want)
    with pytest.raises(StoreSetupError, match="turnlog-server migrate"):
        await schema_require(database)
    await migrate(empty_dsn)
    assert await schema_status(database) == (want, want)
    await schema_require(database)
    await database.close()


@pytest.mark.case(79)
async def test_an_older_server_serves_on_a_newer_schema_unless_a_step_forbids_it(dsn):
    database = await Database.open(dsn, pool_size=1)
    newer = step_of(9001, "later", "CREATE TABLE IF NOT EXISTS later (i INT8)")
    await migrate(dsn, steps=[*steps_known(), newer])
    assert await schema_status(database) == (9001, steps_known()[-1].number)
    await schema_require(database)

    text = "-- breaking: rows move\nCREATE TABLE IF NOT EXISTS moved (i INT8)"
    await migrate(dsn, steps=[*steps_known(), newer, step_of(9002, "moved", text)])
    with pytest.raises(StoreSetupError, match="newer release"):
        await schema_require(database)
    await database.close()


async def test_a_holder_that_died_is_waited_for_by_the_clock_of_the_database(empty_dsn):
    await migrate(empty_dsn, steps=steps_known()[:2])
    extra = step_of(9001, "later", "CREATE TABLE IF NOT EXISTS later (i INT8)")
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as conn:
        assert await lease_take(conn, LEASE, "dead", 1.0) is not None
        started = asyncio.get_running_loop().time()
        report = await migrate(empty_dsn, steps=[*steps_known()[:2], extra])
    assert report.applied == ("9001_later",)
    assert asyncio.get_running_loop().time() - started > 0.5


async def test_a_holder_that_lives_is_not_waited_for_without_end(empty_dsn):
    await migrate(empty_dsn, steps=steps_known()[:2])
    extra = step_of(9001, "later", "CREATE TABLE IF NOT EXISTS later (i INT8)")
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as conn:
        await lease_take(conn, LEASE, "slow", 60.0)
        with pytest.raises(StoreSetupError, match="Another server"):
            await migrate(empty_dsn, steps=[*steps_known()[:2], extra], lease_wait=0.3)


async def test_a_step_that_takes_longer_than_the_lease_keeps_it(empty_dsn):
    await migrate(empty_dsn, steps=steps_known()[:2])
    slow = step_of(9001, "slow", "SELECT pg_sleep(2)", verify="SELECT true")
    both = await asyncio.gather(
        *(migrate(empty_dsn, steps=[*steps_known()[:2], slow], lease_seconds=0.6) for _ in range(2))
    )
    assert sorted(len(report.applied) for report in both) == [0, 1]


async def test_a_step_without_effect_is_an_error(empty_dsn):
    step = step_of(9001, "nothing", "SELECT 1", verify="SELECT false")
    with pytest.raises(StoreSetupError, match="9001_nothing"):
        await migrate(empty_dsn, steps=[*steps_known()[:2], step])


async def test_a_step_that_the_database_refuses_is_an_error(empty_dsn):
    step = step_of(9001, "wrong", "CREATE TABLE IF NOT EXISTS wrong (i NOSUCHTYPE)")
    with pytest.raises(StoreSetupError, match="could not be changed"):
        await migrate(empty_dsn, steps=[*steps_known()[:2], step])
    # The lease is free again: the next one does not wait for it to expire.
    assert (await asyncio.wait_for(migrate(empty_dsn), 10)).applied == LABELS[2:]


async def test_an_index_whose_build_failed_is_built_again(empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE t (i INT8)")
        conn.execute("INSERT INTO t VALUES (1), (1)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            conn.execute("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS t_i ON t (i)")
        conn.execute("DELETE FROM t")
        step = step_of(9001, "t_i", "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS t_i ON t (i)")
        await migrate(empty_dsn, steps=[*steps_known()[:2], step])
        [(valid,)] = conn.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = 't_i'::regclass").fetchall()
    assert valid


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CREATE TABLE IF NOT EXISTS a (i INT8)", {"name": "a"}),
        ("-- why\nCREATE INDEX IF NOT EXISTS a_i ON a (i)", {"name": "a_i"}),
        ("ALTER TABLE a\n  ADD COLUMN IF NOT EXISTS b INT8", {"name": "a", "column": "b"}),
        ("DROP TABLE IF EXISTS a", {"name": "a"}),
    ],
)
def test_what_to_look_for_follows_from_the_statement(text, names):
    assert step_of(1, "x", text).names == names


def test_a_statement_that_says_nothing_needs_a_query_beside_it():
    with pytest.raises(ValueError, match="verify"):
        step_of(1, "x", "UPDATE a SET i = 1")
