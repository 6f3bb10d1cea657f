"""Behind a pooler: in session mode like without one, in transaction mode not at all."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest
from support.lanes import eventually
from support.pooler import pgbouncer
from support.replicas import QUICK, live_replica, make_space
from support.server_process import ran
from turnlog_server.service.hints import CHANNEL
from turnlog_server.store.database import Database
from turnlog_server.store.errors import StoreSetupError
from turnlog_server.store.migrate import migrate
from turnlog_server.store.steps import steps_known

pytestmark = [pytest.mark.system("pgbouncer"), pytest.mark.only_on("postgresql", reason="PgBouncer serves PostgreSQL")]
# The safety poll is far away: what a follower hears in time, a notification told.
FAR = ("--safety-poll-seconds", "60", "--pool-size", "2")
LARGE = "x" * 200 * 1024
LEASE_SECONDS = 2.0
MIGRATES = """
import asyncio, sys
from turnlog_server.store.migrate import migrate
asyncio.run(migrate(sys.argv[1], lease_seconds=float(sys.argv[2])))
"""
BLOCKED = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'turnlog/migrate' AND wait_event_type = 'Lock'"
)


@pytest.mark.case(72)
@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("round_robin", [0, 1])
async def test_a_pooler_that_mixes_sessions_is_refused(empty_dsn, mode, round_robin):
    with pgbouncer(empty_dsn, mode, round_robin=round_robin) as through:
        with pytest.raises(StoreSetupError, match="session mode"):
            await Database.open(through)
        with pytest.raises(StoreSetupError, match="session mode"):
            await migrate(through)


@pytest.mark.case(72)
async def test_a_pooler_in_session_mode_changes_nothing(empty_dsn):
    with pgbouncer(empty_dsn, "session") as through:
        report = await migrate(through)
        assert report.applied
        database = await Database.open(through, pool_size=2)
        names = ("statement_timeout", "default_transaction_isolation")
        sql = "SELECT current_setting(%s::text), current_setting(%s::text)"
        for _ in range(10):
            assert await database.read("settings", sql, names) == [("5s", "read committed")]
        await database.close()


async def until_notified(dsn: str, write: Callable[[], Awaitable[object]]) -> None:
    """Writes until that is told to others: a replica notifies once it knows that there is another."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        await conn.execute(f"LISTEN {CHANNEL}")
        async with asyncio.timeout(30):
            while True:
                await write()
                async for _ in conn.notifies(timeout=0.3, stop_after=1):
                    return


@pytest.mark.case(31)
async def test_followers_behind_a_pooler_in_session_mode_hear_of_a_large_event_at_once(dsn: str) -> None:
    with pgbouncer(dsn, "session", size=30) as through:
        async with live_replica(through, *QUICK, "--pool-size", "2") as first, live_replica(through, *FAR) as second:
            space = await make_space(first)
            session_id = (await space.session()).session.session_id
            follow = space.on(second).rpc.stream("FollowEvents", session_id=session_id)
            await follow.until("caught_up")
            await until_notified(dsn, lambda: space.say(session_id))
            await space.say(session_id, LARGE)
            while (await follow.event("user.message", timeout=20)).user_message.parts[0].text != LARGE:
                pass
            for live in (first, second):
                assert live.logged("hints")["source"] == "listen"


@pytest.mark.case(31, 72)
async def test_a_server_says_why_it_does_not_start_behind_a_pooler_in_transaction_mode(
    dsn: str, tmp_path: Path
) -> None:
    with pgbouncer(dsn, "transaction") as through:
        code, said = await ran("serve", "--listen", "127.0.0.1:0", cwd=tmp_path, database_url=through)
    assert code != 0
    assert "session mode" in said


@pytest.mark.case(72)
async def test_a_schema_whose_changer_is_killed_behind_a_pooler_is_changed_by_the_next(empty_dsn: str) -> None:
    with pgbouncer(empty_dsn, "session", size=20) as through:
        async with await psycopg.AsyncConnection.connect(empty_dsn) as blocker:
            # A step waits for this, while the lease is held.
            await blocker.execute("CREATE TABLE runs (i INT8)")
            arguments = (sys.executable, "-c", MIGRATES, through, str(LEASE_SECONDS))
            process = await asyncio.create_subprocess_exec(*arguments)
            async with await psycopg.AsyncConnection.connect(empty_dsn, autocommit=True) as looking:

                async def blocked() -> bool:
                    return (await (await looking.execute(BLOCKED)).fetchone()) == (1,)

                await eventually(blocked, 30)
                process.kill()
                await process.wait()
                [left] = await (await looking.execute("SELECT expires_at > now() FROM leases")).fetchall()
            assert left == (True,)
            await blocker.rollback()
        report = await asyncio.wait_for(migrate(through, lease_seconds=LEASE_SECONDS), 60)
    assert report.applied
    assert report.already
    assert len(report.applied) + len(report.already) == len(steps_known())
