"""A runner that comes back while what it said on the stream before is still on its way into the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from support.fleet import attempts_of, event, held, runner_row, status
from support.lanes import eventually
from support.replicas import QUICK, FakeRunner, Space, accept_of, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb

# Longer than any test: nothing here is put right by the start-up clock.
PATIENT = (*QUICK, "--startup-allowance-seconds", "300")
WAITING = (
    "SELECT count(*) FROM pg_locks k JOIN pg_class c ON c.oid = k.relation"
    " WHERE NOT k.granted AND c.relname = 'run_attempts'"
    " AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
)


class Dam:
    """Holds back every commit that starts an attempt, until it is opened."""

    def __init__(self, holding: psycopg.AsyncConnection, looking: psycopg.AsyncConnection) -> None:
        self._holding = holding
        self._looking = looking

    async def reached(self) -> None:
        """Returns once such a commit waits."""

        async def waits() -> bool:
            row = await (await self._looking.execute(WAITING)).fetchone()
            return row is not None and row[0] > 0

        await eventually(waits, 20.0)

    async def open(self) -> None:
        await self._holding.rollback()


@asynccontextmanager
async def dam(dsn: str) -> AsyncIterator[Dam]:
    async with (
        await psycopg.AsyncConnection.connect(dsn) as holding,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as looking,
    ):
        await holding.execute("LOCK TABLE run_attempts IN SHARE ROW EXCLUSIVE MODE")
        yield Dam(holding, looking)
        await holding.rollback()


async def accept_and_vanish(space: Space, dam: Dam) -> tuple[pb.Offer, dict[str, str]]:
    """An Accept that waits in the lane, and whose stream is gone."""
    async with space.runner() as runner:
        offer = await runner.offer()
        await runner.send(accept=accept_of(offer))
        await dam.reached()
        return offer, {"runner_id": runner.runner_id, "instance_id": runner.instance_id}


@asynccontextmanager
async def coming_back(space: Space, **hello: object) -> AsyncIterator[tuple[FakeRunner, asyncio.Task[pb.Welcome]]]:
    """The same process again, once the server has begun to take it in."""
    rpc = space.live.rpc(space.runner_key)
    runner = FakeRunner(rpc, harness=space.harness, display_name="back", **hello)  # type: ignore[arg-type]
    welcome = asyncio.create_task(runner.welcome())

    async def seen() -> bool:
        return (await runner_row(space, runner.runner_id)).display_name == "back"

    try:
        await eventually(seen, 20.0)
        yield runner, welcome
    finally:
        runner.hang_up()


@pytest.mark.case(43)
async def test_an_accept_in_the_lane_belongs_to_the_process_that_comes_back_with_it(dsn: str) -> None:
    async with live_replica(dsn, *PATIENT) as live:
        space = await make_space(live)
        created = await space.session("hello")
        async with dam(dsn) as commits:
            offer, same = await accept_and_vanish(space, commits)
            async with coming_back(space, **same, held=[held(offer)]) as (runner, welcome):
                await commits.open()
                assert [state.run_id for state in (await welcome).held] == [created.run_id]
                await runner.ready(offer)
                await runner.settle(offer)
        found = await attempts_of(space, created.session.session_id, created.run_id)
        assert [status(attempt) for attempt in found] == ["SETTLED"]


@pytest.mark.case(43)
async def test_an_accept_in_the_lane_that_nobody_comes_back_with_is_lost_at_once(dsn: str) -> None:
    async with live_replica(dsn, *PATIENT) as live:
        space = await make_space(live)
        created = await space.session("hello")
        async with dam(dsn) as commits:
            _, same = await accept_and_vanish(space, commits)
            async with coming_back(space, **same) as (runner, welcome):
                await commits.open()
                assert list((await welcome).held) == []
                again = await runner.start()
                assert (again.run_id, again.attempt_no) == (created.run_id, 2)
                await runner.settle(again)
        found = await attempts_of(space, created.session.session_id, created.run_id)
        assert [status(attempt) for attempt in found] == ["LOST", "SETTLED"]


@pytest.mark.case(43)
async def test_an_accept_in_the_lane_of_another_replica_is_lost_once_it_is_in_the_log(dsn: str) -> None:
    async with live_replica(dsn, *PATIENT) as live, live_replica(dsn, *PATIENT) as other:
        space = await make_space(live)
        created = await space.session("hello")
        session_id = created.session.session_id
        there = space.on(other)
        async with dam(dsn) as commits:
            offer, same = await accept_and_vanish(space, commits)
            async with coming_back(there, **same, held=[held(offer)]) as (runner, welcome):
                # This one knows nothing of the other's lane, and so the runner drops it.
                assert list((await welcome).held) == []
                await commits.open()
                await event(there, session_id, "run.attempt_started")
                again = await runner.start()
                assert (again.run_id, again.attempt_no) == (created.run_id, 2)
                await runner.settle(again)
        found = await attempts_of(there, session_id, created.run_id)
        assert [status(attempt) for attempt in found] == ["LOST", "SETTLED"]
