"""The door to the database: opening, reading, writing, and what a connection is like."""

import asyncio
import contextlib

import psycopg
import pytest
from support.observer import CountingObserver
from support.wire import wire_proxy
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store.connections import connection_kwargs
from turnlog_server.store.database import Database
from turnlog_server.store.dialect import COCKROACH
from turnlog_server.store.errors import Duplicate, StoreFault, StoreSetupError
from turnlog_server.store.operation import MAX_BUSY

SETTING = "SELECT current_setting(%s::text)"
CRDB = "CockroachDB CCL {version} (x86_64-pc-linux-gnu)"


@pytest.fixture
async def table(database):
    async def create(conn):
        await conn.execute("CREATE TABLE t (i INT8, CONSTRAINT t_pkey PRIMARY KEY (i))")

    await database.run("create", create)


async def setting(database, name):
    [(value,)] = await database.read("setting", SETTING, (name,))
    return value


async def test_settings_of_every_connection(database):
    assert await setting(database, "default_transaction_isolation") == database.dialect.isolation
    assert await setting(database, "statement_timeout") == "5s"
    assert await setting(database, "idle_in_transaction_session_timeout") == "5s"
    assert await setting(database, "enable_seqscan") == "off"
    async with await database.connect("lane") as conn:
        for name, value in (("statement_timeout", "5s"), ("application_name", "turnlog/lane")):
            assert await (await conn.execute(SETTING, (name,))).fetchone() == (value,)
        assert conn.autocommit


async def test_integers_are_of_one_type_whatever_their_size(database):
    sql = "SELECT pg_typeof(%s)::text, pg_typeof(%s)::text, pg_typeof(%s)::text"
    assert await database.read("types", sql, (1, 70000, [1, 2])) == [("bigint", "bigint", "bigint[]")]


async def test_bytes_come_back_as_they_went(database):
    payload = bytes(range(256))
    assert await database.read("bytes", "SELECT %s::bytea", (payload,)) == [(payload,)]


async def test_a_transaction_is_all_or_nothing(database, table):
    async def insert(conn):
        await conn.execute("INSERT INTO t VALUES (1)")
        await conn.execute("INSERT INTO t VALUES (2)")
        return "done"

    async def refuse(conn):
        await conn.execute("INSERT INTO t VALUES (3)")
        raise Refusal(Reason.SESSION_BUSY, "no")

    assert await database.run("insert", insert) == "done"
    with pytest.raises(Refusal, match="SESSION_BUSY"):
        await database.run("refuse", refuse)
    assert await database.read("all", "SELECT i FROM t ORDER BY i") == [(1,), (2,)]


async def test_one_statement_writes_and_returns(database, table):
    sql = "INSERT INTO t VALUES (%s::int8) RETURNING i"
    assert await database.write("insert", sql, (1,)) == [(1,)]
    assert await database.write("delete", "DELETE FROM t") == []


@pytest.mark.parametrize("way", ["run", "write"])
async def test_a_key_that_is_taken_is_named_and_not_tried_again(database, table, way):
    calls = 0

    async def insert(conn):
        nonlocal calls
        calls += 1
        await conn.execute("INSERT INTO t VALUES (1)")

    await database.run("insert", insert)
    again = {
        "run": lambda: database.run("insert", insert),
        "write": lambda: database.write("insert", "INSERT INTO t VALUES (1)"),
    }[way]
    with pytest.raises(Duplicate) as caught:
        await again()
    assert caught.value.constraint == "t_pkey"
    assert not caught.value.after_unknown
    assert calls == (2 if way == "run" else 1)


async def test_a_statement_that_is_wrong_is_a_fault_of_ours(database):
    with pytest.raises(StoreFault) as caught:
        await database.read("wrong", "SELECT nothing FROM nowhere")
    assert caught.value.sqlstate == "42P01"


@pytest.mark.parametrize("statement", ["SELECT 1/0", "COMMIT"])
async def test_a_body_may_not_swallow_an_error_or_end_its_transaction(database, table, statement):
    async def body(conn):
        await conn.execute("INSERT INTO t VALUES (1)")
        with contextlib.suppress(psycopg.Error):
            await conn.execute(statement)

    with pytest.raises(RuntimeError, match="body"):
        await database.run("body", body)
    assert await database.read("still well", "SELECT 1") == [(1,)]


@pytest.mark.only_on("postgresql", "crdb-switches", reason="CockroachDB has no LOCK TABLE")
async def test_a_lock_that_is_held_for_long_is_contention(database, table):
    calls = 0

    async def impatient(conn):
        nonlocal calls
        calls += 1
        await conn.execute("SET LOCAL lock_timeout = '10ms'")
        await conn.execute("LOCK TABLE t")

    async with await database.connect("holder") as holder:
        await holder.execute("BEGIN")
        await holder.execute("LOCK TABLE t")
        with pytest.raises(Refusal) as caught:
            await database.run("impatient", impatient)
    assert caught.value.reason is Reason.CONTENTION
    assert caught.value.retry_after
    assert calls == MAX_BUSY


async def test_a_server_that_is_short_of_something_is_a_quota(database):
    async def full(conn):
        await conn.execute("DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$")

    deadline = asyncio.get_running_loop().time() + 1
    with pytest.raises(Refusal) as caught:
        await database.run("full", full, deadline=deadline)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert caught.value.retry_after
    assert asyncio.get_running_loop().time() < deadline + 0.5


async def test_a_prepared_statement_survives_a_change_of_its_table(database, table):
    sql = "SELECT i FROM t"
    for _ in range(40):  # until it is prepared on every connection
        await database.read("all", sql)
    await database.write("alter", "ALTER TABLE t ALTER COLUMN i TYPE TEXT")
    for _ in range(10):
        assert await database.read("all", sql) == []


async def test_a_read_moves_to_another_connection(empty_dsn):
    observer = CountingObserver()
    database = await Database.open(empty_dsn, pool_size=3, observer=observer)
    with psycopg.connect(empty_dsn, autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert await database.read("one", "SELECT 1") == [(1,)]
    await database.close()


async def test_a_database_that_is_closed_refuses(empty_dsn):
    database = await Database.open(empty_dsn, pool_size=1)
    await database.close()
    with pytest.raises(Refusal) as caught:
        await database.read("one", "SELECT 1")
    assert caught.value.reason is Reason.STORE_UNAVAILABLE


async def test_a_database_out_of_reach_is_refused_without_telling_where_it_is():
    with pytest.raises(Refusal) as caught:
        await Database.open("host=/nowhere/at/all dbname=secret user=somebody")
    assert caught.value.reason is Reason.STORE_UNAVAILABLE
    for word in ("nowhere", "secret", "somebody"):
        assert word not in str(caught.value)


async def test_opening_waits_for_a_database_that_comes(empty_dsn):
    async with wire_proxy(empty_dsn) as proxy:
        await proxy.stop()
        opening = asyncio.create_task(Database.open(proxy.dsn, pool_size=1, wait=30))
        done, _ = await asyncio.wait({opening}, timeout=0.3)
        assert not done
        await proxy.start()
        await (await opening).close()


async def test_an_address_that_is_none():
    with pytest.raises(StoreSetupError, match="connection string"):
        await Database.open("what is this")


async def test_cockroachdb_is_known_by_its_own_parameter(empty_dsn):
    async with wire_proxy(empty_dsn) as proxy:
        proxy.crdb_version = CRDB.format(version="v26.2.1")
        database = await Database.open(proxy.dsn, pool_size=1)
        assert database.dialect is COCKROACH
        assert await setting(database, "default_transaction_isolation") == "serializable"
        async with await database.connect("lane") as conn:
            assert conn.info.vendor == "CockroachDB"
        await database.close()


@pytest.mark.parametrize("version", ["v25.2.12", "v24.3.31", "of our own"])
async def test_a_cockroachdb_that_can_lose_data_is_refused(empty_dsn, version):
    async with wire_proxy(empty_dsn) as proxy:
        proxy.crdb_version = CRDB.format(version=version)
        with pytest.raises(StoreSetupError, match="CockroachDB"):
            await Database.open(proxy.dsn)


def test_the_operator_may_set_what_we_only_have_defaults_for():
    kwargs = connection_kwargs(COCKROACH, "postgresql://a,b/db?connect_timeout=17&sslmode=verify-full", "lane")
    assert kwargs["connect_timeout"] == "17"
    assert kwargs["sslmode"] == "verify-full"
    assert kwargs["load_balance_hosts"] == "random"
    assert kwargs["tcp_user_timeout"] == "10000"
