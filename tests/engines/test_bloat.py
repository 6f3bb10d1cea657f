"""Heartbeats over leases: they leave nothing behind in indexes, and claims do not get slower by them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from support.lanes import eventually
from support.sql_lint import casts
from turnlog_server.store.database import Database
from turnlog_server.store.queue import RUN_RESERVE
from turnlog_server.store.runners import RunnerKey, Runners

pytestmark = pytest.mark.only_on("postgresql", reason="looks at PostgreSQL's plans and statistics")

LEASES, BEATS, RUNS = 200, 200, 2_000
FILL_RUNNERS = """
INSERT INTO runners (workspace_id, runner_id, instance, epoch, lease_expires_at, draining, hello)
SELECT 'ws', 'r' || g, 'instance', 1, now(), false, repeat('h', 300) FROM generate_series(1, %s::int8) AS g"""
FILL_QUEUE = """
INSERT INTO run_queue (session_id, workspace_id, pool, harness_profile_id, shard, run_id, attempt_no, state)
SELECT 's' || g, 'ws', 'default', 'hpr', 0, 'r' || g, 1, 'READY' FROM generate_series(1, %s::int8) AS g"""
CLAIM: dict[str, Any] = {
    "ws": "ws", "pool": "default", "profile": "hpr", "shard": 0, "slotted": False, "count": 4, "runner": "r1",
    "seconds": 5.0,
}  # fmt: skip
NOTHING: dict[str, Any] = {"bool": False, "text[]": []}
UPDATES = """
SELECT s.n_tup_upd, s.n_tup_hot_upd FROM pg_stat_user_tables s WHERE s.relname = 'runners'"""
INDEX_BYTES = """
SELECT sum(pg_relation_size(i.indexrelid))::int8 FROM pg_index i WHERE i.indrelid = 'runners'::regclass"""


class Watched:
    """A database with leases and a queue, and a connection with the service's settings that looks at it."""

    def __init__(self, db: Database, looking: psycopg.AsyncConnection) -> None:
        self._db = db
        self._looking = looking
        self._runners = Runners(db, 60.0)

    async def beat(self, times: int) -> None:
        """So many heartbeats of every runner."""
        keys = [RunnerKey("ws", f"r{number + 1}", 1) for number in range(LEASES)]
        for _ in range(times):
            assert len(await self._runners.renew(keys)) == LEASES

    async def one(self, sql: str) -> Any:
        """The first row."""
        return await (await self._looking.execute(sql)).fetchone()  # type: ignore[arg-type]

    async def claim(self) -> tuple[set[str], int]:
        """By which indexes a claim finds its Runs, and how many pages it touches; it is taken back."""
        sql = self._db.dialect.sql(RUN_RESERVE)
        claim = {name: CLAIM[name] if name in CLAIM else NOTHING[kind] for name, kind in casts(sql).items()}
        async with self._looking.transaction(force_rollback=True):
            explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql
            plan = (await (await self._looking.execute(explain, claim)).fetchone())[0][0]["Plan"]  # type: ignore
        assert plan["Actual Rows"] == CLAIM["count"]
        return set(indexes(plan)), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def indexes(plan: dict[str, Any]) -> list[str]:
    """The indexes of a plan; a scan without one is its type."""
    inner = [name for each in plan.get("Plans", ()) for name in indexes(each)]
    own = plan.get("Index Name") or (plan["Node Type"] if plan["Node Type"].endswith("Scan") else "")
    return [*inner, own] if own and own != "CTE Scan" else inner


@pytest.fixture
async def watched(dsn: str) -> AsyncIterator[Watched]:
    """Leases of many runners and a queue of many Runs."""
    db = await Database.open(dsn, pool_size=2)
    await db.write("fill", FILL_RUNNERS, (LEASES,))
    await db.write("fill", FILL_QUEUE, (RUNS,))
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as looking:
        await looking.execute("ANALYZE")
        for name, value in db.dialect.settings.items():
            await looking.execute(f"SET {name} = '{value}'")  # type: ignore[arg-type]
        yield Watched(db, looking)
    await db.close()


@asynccontextmanager
async def long_read(dsn: str) -> AsyncIterator[None]:
    """A read that sees the tables as they now are, such as a backup, for as long as the block."""
    async with await psycopg.AsyncConnection.connect(dsn) as reader:
        await reader.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await reader.execute("SELECT count(*) FROM runners")
        yield


@pytest.mark.case(78)
async def test_a_heartbeat_writes_to_no_index(watched: Watched) -> None:
    before = await watched.one(INDEX_BYTES)
    await watched.beat(BEATS)
    total = LEASES * BEATS

    async def counted() -> bool:
        return (await watched.one(UPDATES))[0] >= total

    await eventually(counted, 30)
    updates, hot = await watched.one(UPDATES)
    # The page of a row is full now and then, until what is dead there is cleared away.
    assert hot > 0.8 * updates
    assert (await watched.one(INDEX_BYTES))[0] <= 4 * before[0]


@pytest.mark.case(78)
async def test_claims_touch_no_more_pages_after_many_heartbeats_beside_a_long_read(watched: Watched, dsn: str) -> None:
    found_by, pages = await watched.claim()
    assert {name for name in found_by if name.startswith("run_queue")} == {"run_queue_ready", "run_queue_pkey"}
    assert not any(name.endswith("Scan") for name in found_by)
    async with long_read(dsn):
        await watched.beat(BEATS)
        found_by_after, pages_after = await watched.claim()
    assert found_by_after == found_by
    assert pages_after < 2 * pages
