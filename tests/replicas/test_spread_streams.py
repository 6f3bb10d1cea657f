"""Streams on one replica, calls to others: a runner's, a follower's, and the health that a proxy goes by."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.fleet import INTERRUPTED, SUCCEEDED, ended, held, run_of
from support.fronted import Fronted, fronted, seqs_up_to
from support.postgres import PostgresServer
from support.replicas import Follow, fresh
from support.story import text_of
from turnlog.runner.v1 import runner_service_pb2 as pb

pytestmark = pytest.mark.system("haproxy")

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def previews(*follows: Follow) -> list[str]:
    """All previewed texts that came so far."""
    return [frame.preview.text for f in follows for frame in f.frames if frame.WhichOneof("frame") == "preview"]


async def previewed(follow: Follow) -> str:
    """The next preview's text."""
    while True:
        frame = await follow.frame()
        if frame.WhichOneof("frame") == "preview":
            return frame.preview.text


async def say_preview(runner: Any, offer: pb.Offer, text: str) -> None:
    """Text in the making."""
    of = {"session_id": offer.session_id, "run_id": offer.run_id, "attempt_no": offer.attempt_no}
    await runner.send(preview=pb.PreviewText(**of, text=text))


@pytest.mark.rule("R21", "R31", "R41", "R63")
async def test_a_runner_on_one_replica_works_for_callers_on_the_others(trio: Fronted) -> None:
    """Turns are queued and stopped on two replicas, executed on the third, and followed wherever the proxy leads."""
    a, b, c = trio.each(await trio.space())
    created = await b.session("one")
    session_id = created.session.session_id
    follows = [each.rpc.stream("FollowEvents", session_id=session_id) for each in (a, b, c)]
    async with a.runner() as runner:
        offer = await runner.start()
        assert offer.run_id == created.run_id
        queued = [await (b, c)[number % 2].say(session_id, text) for number, text in enumerate(("two", "three"))]
        await runner.append(offer, "answer to one")
        await runner.settle(offer)
        second = await runner.start()
        assert second.run_id == queued[0].run_id
        await c.interrupt(session_id)
        await runner.expect("interrupt")
        await runner.settle(second, "OUTCOME_STOPPED")
        third = await runner.start()
        assert third.run_id == queued[1].run_id
        await runner.append(third, "answer to three")
        await runner.settle(third)
    assert (await ended(b, session_id, third.run_id)).status == SUCCEEDED
    assert (await run_of(c, session_id, second.run_id)).status == INTERRUPTED
    head = (await c.get(session_id)).head_seq
    for follow in follows:
        assert await seqs_up_to(follow, head, []) == list(range(1, head + 1))
        follow.cancel()
    answers = [text_of(event.agent_message) for event in await c.log(session_id) if event.type == "agent.message"]
    assert answers == ["answer to one", "answer to three"]


@pytest.mark.rule("R40")
async def test_previews_go_to_the_runners_replica_live_and_nowhere_else(trio: Fronted) -> None:
    a, b, c = trio.each(await trio.space())
    session_id = (await c.session("hello")).session.session_id
    near, far, third = (each.rpc.stream("FollowEvents", session_id=session_id, previews=True) for each in (a, b, c))
    unasked = a.rpc.stream("FollowEvents", session_id=session_id)
    async with a.runner() as runner:
        offer = await runner.start()
        for follow in (near, far, third, unasked):
            await follow.event("session.status_running")
        await say_preview(runner, offer, "on a")
        assert await previewed(near) == "on a"
        # Nobody is told what was said before he came.
        late = a.rpc.stream("FollowEvents", session_id=session_id, previews=True)
        await late.until("caught_up")
        await runner.append(offer, "first half")
        # The runner's stream moves: from now on it is promised there.
        same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id, "held": [held(offer)]}
        async with b.runner(**same) as moved:
            moved.messages = runner.messages
            await say_preview(moved, offer, "on b")
            assert await previewed(far) == "on b"
            await moved.append(offer, "second half")
            await moved.settle(offer)
            await say_preview(moved, offer, "after the end")
            # Its next word was heard, so that one was, too.
            await b.say(session_id, "again")
            await moved.settle(await moved.start())
    again = [each.rpc.stream("FollowEvents", session_id=session_id, previews=True) for each in (a, b)]
    head = (await c.get(session_id)).head_seq
    every = (near, far, third, unasked, late, *again)
    for follow in every:
        whole = await seqs_up_to(follow, head, [event.seq for f in follow.frames for event in f.events.events])
        assert whole == list(range(1, head + 1))
        follow.cancel()
    assert (previews(near), previews(far)) == (["on a"], ["on b"])
    assert previews(third, unasked, late, *again) == []
    assert not any("on a" in str(event) or "on b" in str(event) for event in await c.log(session_id))


@pytest.fixture
def stranger(postgres: PostgresServer, dsn: str) -> Iterator[str]:
    """The test's database for a user of its own, who can be kept out."""
    name = fresh("stranger").replace("-", "_")
    postgres.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
    yield make_conninfo(dsn, user=name)
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{name}'")
    postgres.execute(f"DROP ROLE {name}")


async def health(address: str) -> int:
    """What Health/Check answers."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        return (await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)).status


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.only_on("postgresql", "crdb-switches", reason="ends connections of one user of PostgreSQL")
async def test_a_replica_without_its_database_gets_no_calls_until_it_is_back(
    postgres: PostgresServer, dsn: str, stranger: str
) -> None:
    async with fronted(dsn, dsn, stranger) as trio:
        space, proxy, outcast = await trio.space(), trio.proxy, trio.lives[2]
        user = conninfo_to_dict(stranger)["user"]
        postgres.execute(f"ALTER ROLE {user} NOLOGIN")
        postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'")
        await proxy.until(2, up=False)
        assert await health(outcast.address) == NOT_SERVING
        # Nobody tries again here: none is led there.
        for _ in range(12):
            await space.session()
            assert await health(proxy.address) == SERVING
        postgres.execute(f"ALTER ROLE {user} LOGIN")
        await proxy.until(2, up=True)
        assert await health(outcast.address) == SERVING
        assert await outcast.metric("turnlog_requests_total", method="CreateSession", code="OK") == 0
        await asyncio.gather(*(space.session() for _ in range(6)))
        assert await outcast.metric("turnlog_requests_total", method="CreateSession", code="OK") > 0
