"""What the database does without us."""

import asyncio
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psycopg
from world import BINARIES, World

# One event as one would write it first: the Session's lock, its next number, the event, its head.
TABLES = """
CREATE TABLE IF NOT EXISTS bench_heads (id int8 PRIMARY KEY, head int8 NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS bench_events
  (id int8, seq int8, type text NOT NULL, body bytea NOT NULL, PRIMARY KEY (id, seq));
INSERT INTO bench_heads SELECT g, 0 FROM generate_series(1, 1000) g ON CONFLICT DO NOTHING;
TRUNCATE bench_events;
UPDATE bench_heads SET head = 0;
"""
SCRIPT = r"""
\set id random(1, 1000)
BEGIN;
SELECT head + 1 AS seq FROM bench_heads WHERE id = :id FOR UPDATE \gset
INSERT INTO bench_events VALUES (:id, :seq, 'agent.message', decode(repeat('ab', 1000), 'hex'));
UPDATE bench_heads SET head = :seq WHERE id = :id;
COMMIT;
"""
CONNECTIONS = 8


async def transactions(world: World, seconds: int) -> dict[str, Any]:
    """A transaction for each event of 1 KB over a thousand Sessions, by pgbench: the least that a client can cost."""
    async with await psycopg.AsyncConnection.connect(world.dsn, autocommit=True) as conn:
        await conn.execute(TABLES)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SCRIPT)
        script.flush()
        process = await asyncio.create_subprocess_exec(
            Path(BINARIES, "pgbench"), "-n", "-M", "prepared", "-f", script.name,
            "-c", str(CONNECTIONS), "-j", "1", "-T", str(seconds), world.dsn,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said = (await process.communicate())[0].decode()
    found = re.search(r"tps = ([\d.]+)", said)
    if process.returncode or found is None:
        raise RuntimeError(f"pgbench: {said}")
    return {"connections": CONNECTIONS, "rate": float(found[1])}


async def commit_delay(world: World, microseconds: int) -> None:
    """Makes every flush of the log this much slower, from now on and for all."""
    async with await psycopg.AsyncConnection.connect(world.dsn, autocommit=True) as conn:
        await conn.execute(f"ALTER SYSTEM SET commit_delay = {microseconds:d}".encode())
        await conn.execute(f"ALTER SYSTEM SET commit_siblings = {0 if microseconds else 5}".encode())
        await conn.execute("SELECT pg_reload_conf()")
        # The setting reaches a connection between two of its statements, a moment after the postmaster was told.
        while (await (await conn.execute("SHOW commit_delay")).fetchone()) != (str(microseconds),):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def single_commits(world: World, seconds: float) -> dict[str, Any]:
    """One row of 1 KB, inserted and committed, as an asyncio client of the database sees it."""
    conn = await psycopg.AsyncConnection.connect(world.dsn, autocommit=True, prepare_threshold=0)
    async with conn:
        await conn.execute("CREATE TABLE IF NOT EXISTS bench_rows (id int8 PRIMARY KEY, body bytea NOT NULL)")
        await conn.execute("TRUNCATE bench_rows")
        body, taken, until = b"x" * 1_000, [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            await conn.execute("INSERT INTO bench_rows VALUES (%s, %b)", (len(taken), body))
            taken.append((time.perf_counter() - began) * 1_000)
    return {"calls": len(taken), "rate": len(taken) / seconds, "p50": statistics.median(taken)}

CLAIMS = """
DROP TABLE IF EXISTS bench_jobs;
CREATE TABLE bench_jobs (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state int2 NOT NULL DEFAULT 0, worker int8,
  attempt int8 NOT NULL DEFAULT 0, lease timestamptz, input bytea NOT NULL, output bytea) WITH (fillfactor = 70);
CREATE INDEX ON bench_jobs (id) WHERE state = 0;
"""
FILL = "INSERT INTO bench_jobs (input) SELECT decode(repeat('ab', 200), 'hex') FROM generate_series(1, %s::int8)"
CLAIM = """
UPDATE bench_jobs SET state = 1, worker = %s, attempt = attempt + 1, lease = now() + interval '30 seconds'
 WHERE id = (SELECT id FROM bench_jobs WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, attempt"""
SETTLE = "UPDATE bench_jobs SET state = 2, output = %s WHERE id = %s AND attempt = %s AND state = 1"
WORKERS = 8


async def workers(world: World, seconds: float) -> dict[str, Any]:
    """Eight workers on a backlog, each of which claims one job by SKIP LOCKED, and settles it: two commits a job."""
    async with await psycopg.AsyncConnection.connect(world.dsn, autocommit=True) as conn:
        await conn.execute(CLAIMS)
        await conn.execute(FILL, (round(5_000 * (seconds + 1)),))
        await conn.execute("VACUUM ANALYZE bench_jobs")
    start = time.perf_counter() + 0.3
    settled = await asyncio.gather(*(_worker(world, number, start, start + seconds) for number in range(WORKERS)))
    return {"workers": WORKERS, "rate": sum(settled) / seconds}


async def _worker(world: World, number: int, start: float, stop: float) -> int:
    settled = 0
    async with await psycopg.AsyncConnection.connect(world.dsn, autocommit=True, prepare_threshold=0) as conn:
        while (now := time.perf_counter()) < stop:
            job = await (await conn.execute(CLAIM, (number,))).fetchone()
            assert job is not None, "the backlog was too short"
            await conn.execute(SETTLE, (b"x" * 200, *job))
            settled += now >= start
    return settled
