"""What a server process owes to its machine, and replicas to each other."""

import asyncio

import psutil
import pytest
from support.postgres import PostgresServer
from support.replicas import QUICK, Follow, Space, live_replica, make_space

WARM_UP, STREAMS, AT_ONCE = 300, 1500, 30
GROWTH_BYTES = 20 * 1024 * 1024


async def _open_and_cancel(space: Space, session_id: str, count: int) -> None:
    async def one() -> None:
        follow: Follow = space.rpc.stream("FollowEvents", session_id=session_id)
        await follow.until("caught_up")
        follow.cancel()

    for _ in range(count // AT_ONCE):
        await asyncio.gather(*(one() for _ in range(AT_ONCE)))


@pytest.mark.case(1)
async def test_streams_that_clients_cancel_leave_no_memory_behind(postgres: PostgresServer, dsn: str) -> None:
    async with live_replica(dsn, *QUICK) as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        process = psutil.Process(live.process.pid)
        await _open_and_cancel(space, session_id, WARM_UP)
        before = process.memory_info().rss
        await _open_and_cancel(space, session_id, STREAMS)
        assert process.memory_info().rss - before < GROWTH_BYTES


@pytest.mark.case(12)
async def test_a_server_forks_nothing_while_it_serves(space: Space) -> None:
    process = psutil.Process(space.live.process.pid)
    session_id = (await space.session()).session.session_id
    for _ in range(20):
        await asyncio.gather(*(space.rpc.call("GetSession", session_id=session_id) for _ in range(20)))
        assert process.children(recursive=True) == []


@pytest.mark.case(82)
async def test_what_one_replica_admitted_the_other_lists(postgres: PostgresServer, dsn: str) -> None:
    async with live_replica(dsn, *QUICK) as one, live_replica(dsn, *QUICK) as other:
        space = await make_space(one)
        reader = other.rpc(space.key)
        session_id = (await space.session()).session.session_id
        for _ in range(50):
            said = await space.say(session_id)
            page = await reader.call("ListEvents", session_id=session_id, after_seq=said.seq - 1)
            assert page.events[0].event_id == said.event_id
            assert page.head_seq >= said.seq
