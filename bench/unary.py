"""Unary calls, by the Go client: what an append costs beside an empty call, and beside a transaction for each event."""

import statistics
import time
from typing import Any

import psycopg

from world import APPEND, BENCH, EMPTY, Load, World

Report = dict[str, Any]

IN_FLIGHT = 64
ONE_TRANSACTION = BENCH + "AppendOneTransaction"
UNCHECKED = BENCH + "AppendUnchecked"
# A Session takes a hundred queued turns at most; these many Sessions have room for several windows.
SESSIONS = 1_000
CURVE = (1, 4, 16, 64, 256)


async def messages(world: World, load: Load, method: str, in_flight: int, seconds: float) -> Report:
    """Messages of 1 KB over many new Sessions: each begins or queues a turn."""
    sessions = await world.sessions(SESSIONS)
    return await load.measure(method, in_flight, seconds, sessions=sessions, rest=world.message)


async def interrupts(world: World, load: Load, method: str, in_flight: int, seconds: float) -> Report:
    """Interrupts of 1 KB on one idle Session: one event each, and no bound on how many."""
    sessions = await world.sessions(1)
    return await load.measure(method, in_flight, seconds, sessions=sessions, rest=world.interrupt)


async def at_64(world: World, load: Load, seconds: float) -> dict[str, Report]:
    """Lines 1, 2, 13 and 16, side by side."""
    return {
        "empty": await load.measure(EMPTY, IN_FLIGHT, seconds),
        "append": await messages(world, load, APPEND, IN_FLIGHT, seconds),
        "unchecked": await messages(world, load, UNCHECKED, IN_FLIGHT, seconds),
        "one_transaction": await messages(world, load, ONE_TRANSACTION, IN_FLIGHT, seconds),
        "hot": await interrupts(world, load, APPEND, IN_FLIGHT, seconds),
        "hot_one_transaction": await interrupts(world, load, ONE_TRANSACTION, IN_FLIGHT, seconds),
    }


async def alone(world: World, load: Load, seconds: float) -> dict[str, Report]:
    """Line 5: one caller at a time."""
    return {
        "empty": await load.measure(EMPTY, 1, seconds),
        "append": await messages(world, load, APPEND, 1, seconds),
        "commit": await single_commits(world, seconds),
        "one_transaction": await messages(world, load, ONE_TRANSACTION, 1, seconds),
    }


async def single_commits(world: World, seconds: float) -> Report:
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


async def curve(world: World, load: Load, seconds: float) -> dict[str, list[Report]]:
    """Throughput and latency against concurrency."""
    return {
        "empty": [await load.measure(EMPTY, each, seconds) for each in CURVE],
        "append": [await messages(world, load, APPEND, each, seconds) for each in CURVE],
        "one_transaction": [await messages(world, load, ONE_TRANSACTION, each, seconds) for each in CURVE],
    }
