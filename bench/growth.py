"""Measures what becomes of a server as its database grows, and what those cost who only wait.

Two databases on one PostgreSQL, a small one and a large one, with a server each, measured in turn; a line's figure is
the median of the ratios. Exit code 1 when a gate does not hold.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import runs
from filling import Template, settle_down
from psycopg.conninfo import make_conninfo
from streams import Runner
from table import Line, Repetition, judged, keep, machine, over, report
from unary import IN_FLIGHT, Side, side_by_side
from world import APPEND, HERE, Client, Load, World, loading, open_postgres, run, serving

Report = dict[str, Any]
SMALL, LARGE = "small", "large"
EVENTS = {SMALL: 10_000, LARGE: 10_000_000}
QUEUED = {SMALL: 1_000, LARGE: 1_000_000}
CLAIMED = 500
TEXT = "An answer of an agent, of about the length that most of them have: a hundred characters, more or less."
MESSAGES = 5
SETTLING_SECONDS = 2.0


def _kilobytes(part: str) -> Any:
    return lambda repetition: repetition["memory"][part] / 1000


LINES = (
    Line("14a", "append, 10 million events ÷ 10 thousand", over("append", LARGE, SMALL), 0.9, 1),
    Line("14b", "claims, 1 million Runs queued ÷ 1 thousand", over("claims", LARGE, SMALL), 0.9, 1),
    Line("15a", "an idle follower, in KB", _kilobytes("follower"), 30, 10, higher=False),
    # 0, as far as the memory of two processes can be compared.
    Line("15b", "a waiting Session, in KB", _kilobytes("session"), 0.01, 0, higher=False),
)


class Grown:
    """One of the databases: its world, and a copy of a Session whose Run waits."""

    def __init__(self, world: World, load: Load, waiting: Template) -> None:
        self.world = world
        self.load = load
        self.waiting = waiting

    async def claims(self) -> Report:
        """Some of the Runs that wait; as many come in their place."""
        found = await runs.drain(self.world, CLAIMED)
        await self.waiting.copy(CLAIMED)
        return found


async def append(grown: dict[str, Grown], seconds: float) -> dict[str, Report]:
    """Messages to a thousand new Sessions of each."""
    return await side_by_side(
        {name: Side(each.world, each.load, APPEND, IN_FLIGHT) for name, each in grown.items()}, seconds
    )


async def idle(grown: Grown, followers: int) -> float:
    """Bytes of the server's memory that a follower costs of whose Session nothing is heard."""
    sessions = await grown.world.sessions(followers)
    await grown.load.follow(min(100, followers), sessions)
    await grown.load.unfollow()
    await asyncio.sleep(SETTLING_SECONDS)
    before = resident(grown.world.server_pid)
    await grown.load.follow(followers, sessions)
    await asyncio.sleep(SETTLING_SECONDS)
    after = resident(grown.world.server_pid)
    await grown.load.unfollow()
    return (after - before) / followers


def resident(pid: int) -> int:
    """What a process has in memory, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not say")


async def grow(dsn: str, log: Path, events: int, queued: int, name: str) -> tuple[World, Template, Report]:
    """Makes a world with so much in it. Its server has ended: the next one starts with this database."""
    async with serving(dsn, log) as (address, pid):
        world = await World.furnish(address, dsn, pid)
        done = await Template.keep(world, "done", await _conversation(world))
        (session_id,) = await world.sessions(1, turn=True)
        waiting = await Template.keep(world, "waiting", session_id)
        await world.client.channel.close()
    await done.copy(max(0, events - queued * waiting.events) // done.events, say=f"{name}: Sessions that ended a turn")
    await waiting.copy(queued, say=f"{name}: Sessions whose Run waits")
    return world, waiting, await settle_down(world)


async def _conversation(world: World) -> str:
    """A Session with a turn that is over, of about a hundred events."""
    runner = Runner(world, TEXT)
    (session_id,) = await world.sessions(1, turn=True)
    await runner.take(1)
    for _ in range(MESSAGES):
        await runner.append_once()
    await runner.settle()
    await runner.close()
    return session_id


@asynccontextmanager
async def worlds(share: float) -> AsyncIterator[tuple[dict[str, Grown], dict[str, Any]]]:
    """Both, served; and what is known of them."""
    async with open_postgres() as postgres, AsyncExitStack() as stack:
        folder = postgres.data.parent
        known: dict[str, Any] = {}
        made: dict[str, Grown] = {}
        for name in (SMALL, LARGE):
            async with await psycopg.AsyncConnection.connect(postgres.dsn, autocommit=True) as conn:
                await conn.execute(f"CREATE DATABASE {name}".encode())
            dsn, log = make_conninfo(postgres.dsn, dbname=name), folder / f"{name}.log"
            part = share if name == LARGE else 1.0
            counts = round(EVENTS[name] * part), round(QUEUED[name] * part)
            world, waiting, size = await grow(dsn, log, *counts, name)
            address, pid = await stack.enter_async_context(serving(dsn, log))
            known[name] = {**size, "resident": resident(pid)}
            world = replace(world, address=address, server_pid=pid, client=Client(address, world.key))
            load = await stack.enter_async_context(loading(world))
            made[name] = Grown(world, load, waiting)
            print(f"{name}: {known[name]}", file=sys.stderr, flush=True)
        yield made, known
        for grown in made.values():
            await grown.world.client.channel.close()


async def measure(repetitions: int, seconds: float, share: float, followers: int) -> dict[str, Any]:
    """The whole run."""
    async with worlds(share) as (grown, known):
        found: dict[str, Any] = {"machine": await machine(grown[SMALL].world), "seconds": seconds, "repetitions": []}
        found["databases"] = known
        waiting = {name: (known[name]["resident"], known[name]["queued"]) for name in known}
        (least, few), (most, many) = waiting[SMALL], waiting[LARGE]
        session = max(0.0, (most - least) / (many - few))
        await append(grown, 0.5)
        for number in range(repetitions):
            print(f"repetition {number + 1} of {repetitions}", file=sys.stderr, flush=True)
            order = (SMALL, LARGE) if number % 2 else (LARGE, SMALL)
            repetition: Repetition = {
                "append": await append(grown, seconds),
                "claims": {name: await grown[name].claims() for name in order},
                "memory": {"session": session},
            }
            found["repetitions"].append(repetition)
        # Once: what a process has given back to nobody would be missing from a second time.
        found["repetitions"][0]["memory"]["follower"] = await idle(grown[SMALL], followers)
    found["lines"] = [judged(line, found["repetitions"]) for line in LINES]
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--share", type=float, default=1.0, help="of the large database; less proves little")
    parser.add_argument("--followers", type=int, default=10_000)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    found = run(measure(given.repetitions, given.seconds, given.share, given.followers))
    stem = keep(found, given.results, "growth")
    print(report(found))
    for name, size in found["databases"].items():
        print(f"{name}: {size['events']:,} events, {size['queued']:,} Runs queued, {size['bytes'] / 1e9:.1f} GB")
    print(f"kept in {stem}.json")
    return 1 if any(line["holds"] is False for line in found["lines"]) else 0


if __name__ == "__main__":
    sys.exit(main())
