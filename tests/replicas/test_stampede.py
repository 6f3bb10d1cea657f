"""A server that is killed under hundreds of runners and followers, who all come back at once."""

import asyncio
import os
import random
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import grpc
import psycopg
import pytest
from support.fleet import attempts_of, held, status
from support.replicas import FakeRunner, Live, Refused, Rpc, Space, fresh, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_client.client import Turnlog

# By ten it is a fleet of 2,000 runners and 5,000 followers.
SIZE = int(os.environ.get("TURNLOG_TEST_STAMPEDE", "1"))
RUNNERS, HOLDING, FOLLOWERS, SESSIONS = 200 * SIZE, 20, 500 * SIZE, 20
CONNECTIONS = 4 * SIZE
POOL = 4
# The lane's connection, the listener's, and the one that looks.
OTHERS = 3
PATIENCE = 120
ARGUMENTS = ("--pool-size", str(POOL), "--runner-lease-ttl-seconds", "60", "--runner-heartbeat-seconds", "20")
CUTS = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)


@dataclass
class Crowd:
    """Everybody's state. seen: last seq of each follower. told: seqs of acknowledged appends, by Session."""

    space: Space
    sessions: list[str]
    back: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    seen: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    told: dict[str, list[int]] = field(default_factory=dict)

    async def follow(self, client: Turnlog, number: int) -> None:
        """Follows for ever; what comes has no gap and comes once, or the test ends here."""
        session_id = self.sessions[number % SESSIONS]
        follow = client.events.follow(session_id, on_interrupted=lambda _: self.cut.add(number))
        self.seen[number] = 0
        async for event in follow:
            assert event.seq == self.seen[number] + 1
            self.seen[number] = event.seq

    async def talk(self, client: Turnlog, number: int) -> None:
        """Appends to one Session after another; one that fails for good ends the test."""
        while not self.over.is_set():
            session_id = random.choice(self.sessions)
            answer = await client.sessions.interrupt(session_id, reason=f"{number} {fresh()}")
            self.told.setdefault(session_id, []).append(answer.seq)
            await asyncio.sleep(0.02)

    async def caught_up(self) -> None:
        """Returns once every follower has what was appended until now."""
        heads = [max(self.told.get(session_id, [2])) for session_id in self.sessions]
        async with asyncio.timeout(PATIENCE):
            while any(self.seen.get(number, 0) < heads[number % SESSIONS] for number in range(FOLLOWERS)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def connected(rpc: Rpc, space: Space, earlier: FakeRunner | None = None, *offers: pb.Offer) -> FakeRunner:
    """A runner's stream, however often it has to ask. It comes back with what it holds."""
    same: dict[str, Any] = {}
    if earlier is not None:
        same = {"runner_id": earlier.runner_id, "instance_id": earlier.instance_id, "held": list(map(held, offers))}
    pause = 0.1
    async with asyncio.timeout(PATIENCE):
        while True:
            runner = FakeRunner(rpc, harness=space.harness, **same)
            try:
                await runner.welcome()
            except Refused as refused:
                if refused.code not in CUTS:
                    raise
            else:
                return runner
            await asyncio.sleep(random.uniform(0, pause))
            pause = min(2.0, pause * 2)


async def database_connections(dsn: str) -> int:
    """How many there are to this database, this one left out."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        row = await (await connection.execute(count)).fetchone()
    assert row is not None
    return row[0]


async def most_connections(dsn: str, over: asyncio.Event) -> int:
    """The most at one moment."""
    most = 0
    while not over.is_set():
        most = max(most, await database_connections(dsn))
        await asyncio.sleep(0.1)
    return most


def free_address() -> str:
    """Where a server may listen, and another one after it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.only_on("postgresql", "crdb-switches", reason="counts connections of PostgreSQL")
@pytest.mark.rule("R31", "R41", "R175")
@pytest.mark.case(46)
async def test_all_come_back_to_a_server_that_was_killed(dsn: str) -> None:
    listen = free_address()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(live_replica(dsn, *ARGUMENTS, listen=listen))
        space = await make_space(first)
        sessions = [(await space.session()).session.session_id for _ in range(SESSIONS)]
        crowd = Crowd(space, sessions)
        connect = [Turnlog.connect(listen, space.key, patience=PATIENCE) for _ in range(CONNECTIONS)]
        clients = [await stack.enter_async_context(client) for client in connect]
        async with asyncio.TaskGroup() as group:
            following = [
                group.create_task(crowd.follow(clients[number % CONNECTIONS], number)) for number in range(FOLLOWERS)
            ]
            talking = [group.create_task(crowd.talk(clients[number], number)) for number in range(4)]
            rpcs = [first.rpc(space.runner_key) for _ in range(CONNECTIONS)]
            runners = await asyncio.gather(*(connected(rpcs[n % CONNECTIONS], space) for n in range(RUNNERS)))
            turns = [await space.session("hello") for _ in range(HOLDING)]
            offers = await asyncio.gather(*(runner.start() for runner in runners[:HOLDING]))
            await crowd.caught_up()
            first.kill()
            await first.process.wait()
            second = await stack.enter_async_context(live_replica(dsn, *ARGUMENTS, listen=listen))
            looking = asyncio.create_task(most_connections(dsn, crowd.over))
            holdings = [[offer] for offer in offers] + [[] for _ in runners[HOLDING:]]
            runners = await asyncio.gather(
                *(connected(rpcs[n % CONNECTIONS], space, earlier, *holdings[n]) for n, earlier in enumerate(runners))
            )
            await crowd.caught_up()
            # All of them were cut off and are there again; nobody was given up, nothing of theirs was lost.
            assert len(crowd.cut) == FOLLOWERS
            await second.until_metric("turnlog_followers", FOLLOWERS)
            await second.until_metric("turnlog_runners_connected", RUNNERS)
            await settled(space.on(second), runners, offers, turns)
            crowd.over.set()
            await asyncio.gather(*talking)
            await crowd.caught_up()
            for task in following:
                task.cancel()
        assert await looking <= POOL + OTHERS
        await short_of_nothing(second)
        log = {session_id: await space.on(second).log(session_id) for session_id in sessions}
        assert {each: sorted(seqs) for each, seqs in crowd.told.items()} == {
            each: [event.seq for event in events if event.type == "user.interrupt"] for each, events in log.items()
        }


async def settled(space: Space, runners: list[FakeRunner], offers: list[pb.Offer], turns: list[Any]) -> None:
    """What was in hand when the server died ends as it began: one attempt each."""
    for runner, offer in zip(runners, offers, strict=False):
        runner.messages[offer.run_id, offer.attempt_no] = 1
        await runner.settle(offer)
    for turn in turns:
        attempts = await attempts_of(space, turn.session.session_id, turn.run_id)
        assert [status(attempt) for attempt in attempts] == ["SETTLED"]


async def short_of_nothing(live: Live) -> None:
    """No operation had to be tried again, for want of a connection or for anything else."""
    for error_class in ("backoff", "busy", "reset", "ambiguous", "fatal"):
        assert await live.metric("turnlog_store_failures_total", error_class=error_class) == 0
    assert await live.metric("turnlog_pool_connections", state="waiting") == 0
