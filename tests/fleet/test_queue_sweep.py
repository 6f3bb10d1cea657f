"""The queue follows from the Sessions, whoever meddled with its rows: what is missing, stale or needless is mended."""

from typing import Any

import psycopg
import pytest
from support.fleet import attempts_of, status
from support.lanes import LaneReplica, eventually, replicas
from support.replicas import Space
from turnlog_server.service.queue_sweep import QueueSweeper
from turnlog_server.store.database import Database
from turnlog_server.store.queue import Place
from turnlog_server.store.queue_sweep import QueueSweep

COLUMNS = "run_id, attempt_no, state, runner_id, runner_epoch, pool, shard"


async def changed(space: Space, sql: str, *values: Any) -> int:
    """Changes rows behind the server's back; how many."""
    async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as db:
        return (await db.execute(sql, values)).rowcount  # type: ignore[arg-type]


async def row_of(space: Space, session_id: str) -> tuple[Any, ...] | None:
    async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as db:
        found = await db.execute(f"SELECT {COLUMNS} FROM run_queue WHERE session_id = %s", [session_id])  # type: ignore[arg-type]
        return await found.fetchone()


async def until_row(space: Space, session_id: str, wanted: tuple[Any, ...] | None) -> None:
    async def there() -> bool:
        return await row_of(space, session_id) == wanted

    await eventually(there, 30.0)


async def mended(space: Space, was: str) -> float:
    return await space.live.metric("turnlog_queue_rows_mended_total", was=was)


async def test_a_run_whose_row_is_gone_is_claimed_all_the_same(space: Space) -> None:
    before = await mended(space, "missing")
    created = await space.session("hello")
    assert await changed(space, "DELETE FROM run_queue WHERE session_id = %s", created.session.session_id) == 1
    async with space.runner() as runner:
        offer = await runner.start()
        assert (offer.run_id, offer.attempt_no) == (created.run_id, 1)
        await runner.settle(offer)
    assert await mended(space, "missing") == before + 1
    said = [line for line in space.live.log.read_text().splitlines() if created.session.session_id in line]
    assert any('"a row of the queue was mended"' in line and '"missing"' in line for line in said)


async def test_a_run_whose_row_is_of_another_time_is_claimed_all_the_same(space: Space) -> None:
    before = await mended(space, "stale")
    created = await space.session("hello")
    sql = "UPDATE run_queue SET attempt_no = 7, run_id = 'run_old' WHERE session_id = %s"
    assert await changed(space, sql, created.session.session_id) == 1
    async with space.runner() as runner:
        offer = await runner.start()
        assert (offer.run_id, offer.attempt_no) == (created.run_id, 1)
        await runner.settle(offer)
    assert await mended(space, "stale") == before + 1


async def test_a_runner_that_dies_is_missed_although_the_row_of_what_it_held_was_gone(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        await runner.start()
        row = await row_of(space, session_id)
        assert row is not None
        assert row[2:4] == ("HELD", runner.runner_id)
        assert await changed(space, "DELETE FROM run_queue WHERE session_id = %s", session_id) == 1
        await until_row(space, session_id, row)
    async with space.runner() as other:
        offer = await other.start()
        assert (offer.run_id, offer.attempt_no) == (created.run_id, 2)
        await other.settle(offer)
    assert [status(each) for each in await attempts_of(space, session_id, created.run_id)] == ["LOST", "SETTLED"]


async def test_a_row_without_a_reason_is_removed(space: Space) -> None:
    before = await mended(space, "needless")
    idle = (await space.session()).session.session_id
    nobody = "sess_" + "0" * 26
    for session_id in (idle, nobody):
        sql = (
            "INSERT INTO run_queue"
            " (session_id, workspace_id, pool, harness_profile_id, shard, run_id, attempt_no, state)"
            " VALUES (%s, %s, 'default', 'hpr_1', 0, 'run_none', 1, 'READY')"
        )
        await changed(space, sql, session_id, space.workspace_id)
    for session_id in (idle, nobody):
        await until_row(space, session_id, None)
    assert await mended(space, "needless") == before + 2
    # What is right stays: a Run that waits, and what a Session leaves behind whose turn is over.
    created = await space.session("hello")
    async with space.runner() as runner:
        await runner.settle(await runner.start())
        waiting = await space.session("and another")
        rows = [await row_of(space, each.session.session_id) for each in (created, waiting)]
        assert [row[2] for row in rows if row is not None] == ["GONE", "READY"]
        again = await runner.start()
        assert again.run_id == waiting.run_id
        await runner.settle(again)


class Sweeper:
    """One replica's, which looks when it is told to."""

    def __init__(self, database: Database, holder: str) -> None:
        self.claimable: list[Place] = []
        self.mended: list[str] = []
        sweep = QueueSweep(database, holder)
        self.look = QueueSweeper(sweep, 10.0, self.claimable.append, self.mended.append).look


async def _rows(database: Database, sql: str) -> list[Any]:
    return await database.run("look", lambda conn: _all(conn, sql))


async def _all(conn: Any, sql: str) -> list[Any]:
    cursor = await conn.execute(sql)
    return await cursor.fetchall() if cursor.description else []


ROWS = f"SELECT session_id, {COLUMNS} FROM run_queue ORDER BY session_id"


async def _busy(lane: LaneReplica) -> None:
    """Runs that wait and Runs that are held, and a Session that is idle."""
    for number in range(6):
        session_id = await lane.create(text="hello")
        if number % 2:
            await lane.accept(session_id)
    await lane.create()


async def test_what_the_commits_wrote_is_right_and_what_is_made_again_is_the_same(database: Database) -> None:
    async with replicas(database) as (lane,):
        await _busy(lane)
        rows, sweeper = await _rows(database, ROWS), Sweeper(database, "one")
        await sweeper.look()
        assert sweeper.mended == []
        assert await _rows(database, ROWS) == rows
        await _rows(database, "DELETE FROM run_queue")
        await sweeper.look()
        assert sweeper.mended == ["missing"] * 6
        assert len(sweeper.claimable) == 3
        assert await _rows(database, ROWS) == rows


async def test_pages_reach_every_session(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog_server.service.queue_sweep.PAGE", 2)
    async with replicas(database) as (lane,):
        await _busy(lane)
        await _rows(database, "UPDATE run_queue SET attempt_no = 99")
        sweeper = Sweeper(database, "one")
        for _ in range(8):
            await sweeper.look()
        assert sweeper.mended == ["stale"] * 6


async def test_one_replica_looks_at_a_time(database: Database) -> None:
    async with replicas(database) as (lane,):
        await _busy(lane)
        first, second = Sweeper(database, "one"), Sweeper(database, "two")
        await first.look()
        await _rows(database, "DELETE FROM run_queue")
        await second.look()
        assert second.mended == []
        await first.look()
        assert first.mended == ["missing"] * 6
        # The first died: its lease runs out.
        await _rows(database, "UPDATE leases SET expires_at = now() - interval '1 second'")
        await _rows(database, "DELETE FROM run_queue")
        await second.look()
        assert second.mended == ["missing"] * 6


async def test_a_session_that_moved_meanwhile_is_left_to_its_own_commit(database: Database) -> None:
    async with replicas(database) as (lane,):
        session_id = await lane.create(text="hello")
        sweep = QueueSweep(database, "one")
        [found] = (await sweep.compare("", 10)).compared
        assert found.row is not None
        await lane.accept(session_id)
        rows = await _rows(database, ROWS)
        assert not await sweep.mend(found, found.row)
        assert not await sweep.remove(found)
        assert await _rows(database, ROWS) == rows
