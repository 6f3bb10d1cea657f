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
