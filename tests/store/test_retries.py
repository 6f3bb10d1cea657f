"""Real conflicts and lost connections: the operation runs again and its caller does not notice."""

import asyncio

import pytest
from support.observer import CountingObserver
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store.database import Database
from turnlog_server.store.errors import ErrorClass
from turnlog_server.store.operation import MAX_ATTEMPTS

CREATE = "CREATE TABLE pair (name TEXT PRIMARY KEY, n INT8 NOT NULL)"
FILL = "INSERT INTO pair VALUES ('a', 0), ('b', 0)"
TOTAL = "SELECT sum(n)::int8 FROM pair"
ADD = "UPDATE pair SET n = n + 1 WHERE name = %s::text"

# A transaction that fails at COMMIT and not before: the first one of each sequence.
FAILS_AT_COMMIT = """
CREATE SEQUENCE tries;
CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('tries') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '40001'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON pair DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION fail_once();
"""


@pytest.fixture
def observer():
    return CountingObserver()


@pytest.fixture
async def serializable(empty_dsn, observer):
    database = await Database.open(empty_dsn, pool_size=4, force_dialect="crdb", observer=observer)
    for sql in (CREATE, FILL):
        await database.write("prepare", sql)
    yield database
    await database.close()


async def total(database):
    [(n,)] = await database.read("total", TOTAL)
    return n


@pytest.mark.case(73)
async def test_a_serialization_failure_never_reaches_the_caller(serializable, observer):
    met = asyncio.Barrier(2)
    calls = dict.fromkeys("ab", 0)

    def adding(name):
        async def add(conn):
            calls[name] += 1
            await (await conn.execute(TOTAL)).fetchall()
            if calls[name] == 1:
                await met.wait()  # both have read what the other will change
            await conn.execute(ADD, (name,))

        return add

    await asyncio.gather(serializable.run("add", adding("a")), serializable.run("add", adding("b")))
    assert await total(serializable) == 2
    assert sum(calls.values()) >= 3
    assert observer.failures[ErrorClass.RETRY] == sum(calls.values()) - 2
    assert observer.unknown == []


@pytest.mark.case(73)
async def test_many_on_one_row_all_succeed(serializable):
    async def add(conn):
        await conn.execute(ADD, ("a",))

    await asyncio.gather(*(serializable.run("add", add) for _ in range(20)))
    assert await total(serializable) == 20


async def test_a_deadlock_is_one_more_try(serializable, observer):
    met = asyncio.Barrier(2)
    calls = 0

    def adding(first, second):
        async def add(conn):
            nonlocal calls
            calls += 1
            await conn.execute("SET LOCAL deadlock_timeout = '10ms'")
            await conn.execute(ADD, (first,))
            if calls <= 2:
                await met.wait()  # each holds what the other wants
            await conn.execute(ADD, (second,))

        return add

    await asyncio.gather(serializable.run("ab", adding("a", "b")), serializable.run("ba", adding("b", "a")))
    assert await total(serializable) == 4
    assert observer.failures[ErrorClass.RETRY] >= 1


async def test_a_failure_at_commit_that_the_server_is_sure_of_is_one_more_try(serializable, observer):
    async with await serializable.connect("test") as conn:
        for statement in FAILS_AT_COMMIT.replace("$$;", "$$|").replace("tries;", "tries|").split("|"):
            await conn.execute(statement)

    async def add(conn):
        await conn.execute(ADD, ("a",))

    await serializable.run("add", add)
    assert await total(serializable) == 1
    assert observer.failures == {ErrorClass.RETRY: 1}
    assert observer.unknown == []


async def test_a_session_that_is_ended_in_the_body_is_one_more_try(serializable, observer):
    calls = 0

    async def add(conn):
        nonlocal calls
        calls += 1
        await conn.execute(ADD, ("a",))
        if calls == 1:
            await conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    await serializable.run("add", add)
    assert calls == 2
    assert await total(serializable) == 1
    assert observer.failures == {ErrorClass.RESET: 1}


async def test_conflicts_without_end_are_contention(serializable):
    calls = 0

    async def conflict(conn):
        nonlocal calls
        calls += 1
        await conn.execute("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")

    with pytest.raises(Refusal) as caught:
        await serializable.run("conflict", conflict)
    assert caught.value.reason is Reason.CONTENTION
    assert caught.value.retry_after
    assert calls == MAX_ATTEMPTS
    assert "40001" not in caught.value.message


async def test_no_try_begins_that_its_deadline_forbids(serializable):
    async def conflict(conn):
        await conn.execute("DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$")

    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(Refusal) as caught:
        await serializable.run("conflict", conflict, deadline=started + 0.1)
    assert caught.value.reason is Reason.CONTENTION
    assert loop.time() - started < 1


async def test_a_deadline_that_is_past_is_not_begun(serializable):
    async def never(conn):
        raise AssertionError("it was begun")

    with pytest.raises(Refusal) as caught:
        await serializable.run("never", never, deadline=asyncio.get_running_loop().time() - 1)
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
