"""The proxy that plays CockroachDB: what it refuses, what its faults leave behind, and that a suite runs on it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from psycopg import crdb, errors
from support.engines import engine
from support.wire import CRDB_VERSION, Fails, WireProxy, wire_proxy

pytestmark = pytest.mark.only_on("postgresql", reason="it brings its own engine")

ROOT = Path(__file__).parents[2]
REFUSED = {
    "LISTEN news": "42601",
    "NOTIFY news": "42601",
    "LOCK TABLE t": "42601",
    "VACUUM t": "42601",
    "SELECT pg_notify('news', 'x')": "42883",
    "SELECT pg_advisory_xact_lock(1)": "42883",
    "SELECT t.xmin FROM t": "42703",
    "WITH a AS (INSERT INTO t VALUES (1) RETURNING i) UPDATE t SET i = 2": "0A000",
    "SELECT i FROM (WITH a AS (DELETE FROM t RETURNING i) SELECT i FROM a) x": "0A000",
    "CREATE TABLE u (i INT8, CONSTRAINT u_i UNIQUE (i) DEFERRABLE)": "0A000",
}
PASSED = ["SELECT 1", "ANALYZE t", "SELECT i FROM t ORDER BY i FOR UPDATE SKIP LOCKED", "INSERT INTO t VALUES (3)"]


@pytest.fixture
async def proxy(empty_dsn: str) -> AsyncIterator[WireProxy]:
    """One before a database with a table."""
    async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as conn:
        await conn.execute("CREATE TABLE t (i INT8)")
    async with wire_proxy(empty_dsn) as proxy:
        proxy.crdb_version = CRDB_VERSION
        yield proxy


@pytest.fixture
async def conn(proxy: WireProxy) -> AsyncIterator[crdb.AsyncCrdbConnection]:
    """A connection as the service has it to CockroachDB."""
    async with await crdb.AsyncCrdbConnection.connect(proxy.dsn, autocommit=True) as conn:
        yield conn


async def test_the_driver_takes_it_for_cockroachdb(conn: crdb.AsyncCrdbConnection) -> None:
    assert (conn.info.vendor, conn.info.server_version) == ("CockroachDB", 260201)
    assert conn.info.parameter_status("server_version") == "13.0.0"


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("statement", REFUSED)
async def test_what_cockroachdb_refuses(conn: crdb.AsyncCrdbConnection, statement: str, prepare: bool) -> None:
    with pytest.raises(psycopg.Error) as refused:
        await conn.execute(statement, prepare=prepare)  # type: ignore[arg-type]
    assert refused.value.sqlstate == REFUSED[statement]
    assert await (await conn.execute("SELECT count(*) FROM t")).fetchone() == (0,)


@pytest.mark.parametrize("statement", PASSED)
async def test_what_passes(conn: crdb.AsyncCrdbConnection, statement: str) -> None:
    await conn.execute(statement)  # type: ignore[arg-type]


async def test_statements_of_others_are_passed_on(proxy: WireProxy) -> None:
    proxy.only = "turnlog/"
    proxy.fault = lambda _: "cut-before"
    async with await psycopg.AsyncConnection.connect(proxy.dsn, autocommit=True) as conn:
        await conn.execute("LISTEN news")
    with pytest.raises(psycopg.OperationalError):
        async with await psycopg.AsyncConnection.connect(proxy.dsn, application_name="turnlog/pool") as conn:
            await conn.execute("SELECT 1")


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(
    ("code", "error"), [("40001", errors.SerializationFailure), ("40003", errors.StatementCompletionUnknown)]
)
async def test_a_statement_that_fails_was_carried_out_or_not(
    proxy: WireProxy,
    conn: crdb.AsyncCrdbConnection,
    code: str,
    error: type[Exception],
    prepare: bool,
    applied: bool,
) -> None:
    fault = Fails(code, applied)
    proxy.fault = lambda statement: fault if statement.startswith("INSERT") else None
    with pytest.raises(error):
        await conn.execute("INSERT INTO t VALUES (7) RETURNING i", prepare=prepare)
    assert await (await conn.execute("SELECT i FROM t")).fetchall() == ([(7,)] if applied else [])
    assert proxy.done == {fault: 1}


@pytest.mark.parametrize("applied", [False, True])
async def test_a_commit_that_fails_leaves_no_transaction(
    proxy: WireProxy, conn: crdb.AsyncCrdbConnection, applied: bool
) -> None:
    proxy.fault = lambda statement: Fails("40003", applied) if statement == "COMMIT" else None
    await conn.execute("BEGIN")
    await conn.execute("INSERT INTO t VALUES (7)")
    with pytest.raises(errors.StatementCompletionUnknown):
        await conn.execute("COMMIT")
    assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    assert await (await conn.execute("SELECT i FROM t")).fetchall() == ([(7,)] if applied else [])


@pytest.mark.parametrize("applied", [False, True])
async def test_a_session_that_is_ended(
    proxy: WireProxy, conn: crdb.AsyncCrdbConnection, empty_dsn: str, applied: bool
) -> None:
    proxy.fault = lambda statement: Fails("57P01", applied) if statement.startswith("INSERT") else None
    with pytest.raises(errors.AdminShutdown):
        await conn.execute("INSERT INTO t VALUES (7)")
    assert conn.closed
    async with await psycopg.AsyncConnection.connect(empty_dsn) as other:
        assert await (await other.execute("SELECT i FROM t")).fetchall() == ([(7,)] if applied else [])


async def suite(*arguments: str, **environment: str) -> tuple[int, str]:
    """A pytest of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments,
        cwd=ROOT, env=os.environ | environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.slow
async def test_the_suite_runs_on_a_cluster_that_somebody_names(proxy: WireProxy) -> None:
    code, said = await suite(
        "--engine", "crdb", "tests/rpc/test_first_turn.py", "tests/store/test_lane_counts.py", CRDB_DSN=proxy.dsn
    )  # fmt: skip
    assert code == 0, said
    assert "passed" in said
    assert "skipped" not in said
    assert any("INSERT INTO events" in statement for statement in proxy.heard)
    assert any(statement.startswith("CREATE TABLE") for statement in proxy.heard)


async def test_without_a_cluster_that_engine_says_what_it_needs() -> None:
    assert engine.name == "postgresql"
    code, said = await suite("--engine", "crdb", "tests/store/test_lane_counts.py", CRDB_DSN="")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "CRDB_DSN" in said
