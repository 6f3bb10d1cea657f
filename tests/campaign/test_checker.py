"""The checker finds what is broken, by name: each bug is planted in what a real campaign left behind."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from support.postgres import PostgresServer
from support.real_runner import real_runner
from support.replicas import QUICK, Rpc, live_replica, make_space

from campaign.checker import Verdict, check
from campaign.clients import Client, World
from campaign.followers import Follower
from campaign.history import History, Line, lines_of
from campaign.planted import BUGS
from campaign.scripted import Scripted
from campaign.tampering import Tampered

RUNS = 20
HARNESS = f"{sys.executable} -S -E {Path(__file__).with_name('harness.py')}"


@dataclass
class Recorded:
    """A campaign without faults: its database, and its history."""

    dsn: str
    lines: list[Line]


@pytest.fixture(scope="module")
async def recorded(
    postgres: PostgresServer, schema_template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Recorded]:
    dsn = postgres.database_create(schema_template)
    folder = tmp_path_factory.mktemp("recorded")
    history = History(folder / "history.jsonl")
    async with live_replica(dsn, *QUICK) as live:
        space = await make_space(live, max_duration=10)
        world = World([live.address], space.key, space.subject, space.deployment_id, history, "1", most_sessions=5)
        world.ends = ("ok", "ok", "fail", "exit")
        rpc = Rpc(live.address, space.key)
        clients = [Client(world, f"client-{number}") for number in range(3)]
        scripted = Scripted(world, "scripted", space.runner_key, space.harness, 2.0)
        async with real_runner(live.address, space.runner_key, folder / "runner", f"{space.harness}={HARNESS}"):
            working = [asyncio.create_task(each.run()) for each in (*clients, scripted)]
            following = asyncio.create_task(_follow(world, rpc))
            async with asyncio.timeout(90):
                await _until(lambda: world.ended >= RUNS)
                world.paused.set()
                await _until(lambda: not world.busy and not world.waiting)
            async with asyncio.timeout(30):
                while not await _caught_up(world, rpc):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            for task in (*working, following):
                task.cancel()
            await asyncio.gather(*working, following, return_exceptions=True)
        for each in clients:
            await each.close()
        await rpc.close()
    history.close()
    yield Recorded(dsn, list(lines_of(folder / "history.jsonl")))
    postgres.database_drop(dsn)


async def _until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 many write what is looked at
        await asyncio.sleep(0.02)


async def _follow(world: World, rpc: Rpc) -> None:
    async with asyncio.TaskGroup() as group:
        while True:
            session = await world.opened.get()
            name = f"follower-{session.session_id}"
            group.create_task(Follower(world, session, name, [rpc], reports=True).run())


async def _caught_up(world: World, rpc: Rpc) -> bool:
    for session_id, known in world.sessions.items():
        if (await rpc.call("GetSession", session_id=session_id)).session.head_seq != known.seen:
            return False
    return True


def _checked(recorded: Recorded, tamper: Callable[[Tampered], None]) -> Verdict:
    """What is found once it was tampered with, in a transaction that leaves nothing behind."""
    with psycopg.connect(recorded.dsn) as conn, conn.transaction(force_rollback=True):
        tampered = Tampered(conn, [dict(line) for line in recorded.lines])
        tamper(tampered)
        return check(sorted(tampered.lines, key=lambda line: line["t"]), conn)


@pytest.mark.slow
async def test_what_is_whole_is_found_whole(recorded: Recorded) -> None:
    verdict = _checked(recorded, lambda _: None)
    assert verdict.broken == []
    assert verdict.counts["runs"] >= RUNS
    assert verdict.counts["followers"] >= 5
    assert verdict.counts["requests ok"] >= RUNS


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
async def test_what_is_broken_is_found_by_its_name(recorded: Recorded, name: str) -> None:
    guarantee, says, tamper = BUGS[name]
    found = [str(each) for each in _checked(recorded, tamper).broken if each.guarantee == guarantee]
    assert any(says in each for each in found), found


def test_the_checker_shares_nothing_with_the_server() -> None:
    script = "import sys; from campaign import checker; print([m for m in sys.modules if 'turnlog_' in m])"
    ran = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr
