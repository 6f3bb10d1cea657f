"""Connections, streams and time: what callers who are many, slow, gone or impatient cost, and whom."""

import asyncio
import itertools
import random
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.replicas import METHODS, FakeRunner, Refused, Rpc, Space, fresh, live_replica, make_space
from support.wire import WireProxy, wire_proxy

QUICK = ("--safety-poll-seconds", "0.2", "--progress-seconds", "0.5")
POOL = 5
ALLOWED = POOL + 4
"""The pool, the lane, the listener, and what is opened for a moment."""

FOLLOWERS = """
import asyncio, sys
from support.replicas import Rpc

async def main(address, key, session_id, count):
    rpcs = [Rpc(address, key) for _ in range(4)]
    follows = [rpcs[n % 4].stream("FollowEvents", session_id=session_id) for n in range(count)]
    await asyncio.gather(*(follow.until("caught_up") for follow in follows))
    print("following", flush=True)
    await asyncio.gather(*(follow.frame(3600) for follow in follows))

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""


@pytest.fixture(scope="module")
async def own(postgres, schema_template) -> AsyncIterator[tuple[Space, WireProxy]]:
    """A server whose database can be taken away, and a workspace on it; its pool holds five connections."""
    dsn = postgres.database_create(schema_template)
    async with wire_proxy(dsn) as proxy, live_replica(proxy.dsn, *QUICK, "--pool-size", str(POOL)) as live:
        yield await make_space(replace(live, dsn=dsn)), proxy
    postgres.database_drop(dsn)


async def connections(space: Space) -> tuple[int, int]:
    """Connections of the server to its database, and how many of them are idle in a transaction."""
    async with await psycopg.AsyncConnection.connect(space.live.dsn) as conn:
        found = await conn.execute(
            "SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%'"
            " AND state_change < now() - interval '1 second') FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        row = await found.fetchone()
        assert row is not None
        return row


async def usable(space: Space, session_id: str) -> None:
    """Ten calls at once are answered, five of them from the pool at a time."""
    answers = await asyncio.gather(*(space.rpc.call("GetSession", session_id=session_id) for _ in range(10)))
    assert {answer.session.session_id for answer in answers} == {session_id}


async def code(call: Awaitable[object]) -> str:
    """How the call ended."""
    try:
        await call
    except Refused as refused:
        return refused.code.name
    return "OK"


@pytest.mark.case(3)
async def test_clients_that_are_killed_leave_nothing_behind(own: tuple[Space, WireProxy]) -> None:
    space, _ = own
    session_id = (await space.session()).session.session_id
    before = await space.live.metric("turnlog_followers")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", FOLLOWERS, space.live.address, space.key, session_id, "100",
        env={"PYTHONPATH": ":".join(sys.path)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"following\n"
    assert await space.live.metric("turnlog_followers") == before + 100
    process.send_signal(signal.SIGKILL)
    await process.wait()
    await space.live.until_metric("turnlog_followers", before)
    await usable(space, session_id)


@pytest.mark.case(9, 69, 70)
async def test_hundreds_of_streams_take_no_connections(own: tuple[Space, WireProxy]) -> None:
    """Follows of many Sessions, some of whose clients take nothing, and runners: the database sees only the pool."""
    space, _ = own
    ids = [(await space.session()).session.session_id for _ in range(20)]
    rpcs = [space.live.rpc(space.key) for _ in range(4)]
    follows = [
        rpc.stream("FollowEvents", session_id=session_id) for rpc, session_id in itertools.product(rpcs * 3, ids)
    ]
    await asyncio.gather(*(follow.until("caught_up") for follow in follows))
    runners = [FakeRunner(space.live.rpc(space.runner_key), harness=space.harness) for _ in range(20)]
    await asyncio.gather(*(runner.welcome() for runner in runners))
    assert await space.live.metric("turnlog_open_streams", method="FollowEvents") >= len(follows) == 240
    for session_id in ids:
        await space.say(session_id, "x" * 100_000)
        found, stuck = await connections(space)
        assert found <= ALLOWED
        assert not stuck
    # Who reads gets it; who does not is no burden.
    for follow in follows[:40]:
        await follow.event("user.message")
    async with grpc.aio.insecure_channel(space.live.address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await usable(space, ids[0])
    for each in (*follows, *runners):
        each.call.cancel()
    for session_id in ids:
        await space.rpc.call("CancelSession", session_id=session_id)
    await space.live.until_metric("turnlog_followers", 0)


@pytest.mark.case(66)
async def test_callers_that_give_up_cost_no_connection(own: tuple[Space, WireProxy]) -> None:
    space, _ = own
    session_id = (await space.session()).session.session_id
    rpcs = [space.live.rpc(space.key) for _ in range(8)]
    calls = [
        lambda rpc, wait: rpc.call("GetSession", session_id=session_id, timeout=wait),
        lambda rpc, wait: rpc.call("ListEvents", session_id=session_id, timeout=wait),
        lambda rpc, wait: rpc.call("ListRuns", session_id=session_id, timeout=wait),
        lambda rpc, wait: rpc.call("CreateSession", agent_deployment_id=space.deployment_id, timeout=wait),
    ]

    async def impatient(number: int) -> str:
        return await code(random.choice(calls)(rpcs[number % 8], random.uniform(0.001, 0.020)))

    ends: set[str] = set()
    for start in range(0, 2_000, 100):
        ends |= set(await asyncio.gather(*(impatient(number) for number in range(start, start + 100))))
    assert "DEADLINE_EXCEEDED" in ends
    assert ends <= {"OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
    await usable(space, session_id)
    assert await space.live.metric("turnlog_pool_connections", state="waiting") == 0
    await space.live.until_metric(
        "turnlog_pool_connections", await space.live.metric("turnlog_pool_connections", state="open"), state="idle"
    )
    assert (await connections(space))[0] <= ALLOWED


@pytest.mark.case(67)
async def test_a_deadline_holds_on_the_server_too(own: tuple[Space, WireProxy]) -> None:
    """The database takes everything and says nothing: handlers end when their callers did, and work again with it."""
    space, proxy = own
    session_id = (await space.session()).session.session_id
    await usable(space, session_id)
    names = {"GetSession": {}, "ListEvents": {}, "ListRuns": {}, "CompleteSession": {}}

    async def ended() -> float:
        figures = [
            space.live.metric("turnlog_requests_total", method=name, code=end)
            for name in names
            for end in ("DEADLINE_EXCEEDED", "UNAVAILABLE", "CANCELLED", "RESOURCE_EXHAUSTED")
        ]
        return sum(await asyncio.gather(*figures))

    before = await ended()
    proxy.silent = True
    try:
        calls = [space.rpc.call(name, session_id=session_id, timeout=0.5) for name in names for _ in range(5)]
        ends = await asyncio.gather(*(code(call) for call in calls))
        assert set(ends) <= {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
        async with asyncio.timeout(10):
            while await ended() < before + len(ends):  # noqa: ASYNC110 the signal is a figure
                await asyncio.sleep(0.05)
    finally:
        proxy.silent = False
        proxy.cut_all()
    async with asyncio.timeout(30):
        while await code(space.rpc.call("GetSession", session_id=session_id, timeout=2)) != "OK":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await usable(space, session_id)


SECRETS = ("select ", "insert ", "psycopg", "traceback", ".py", "5432", "/tmp", "sqlstate", "postgres", "relation")


@pytest.mark.case(16)
async def test_without_a_database_every_call_ends_and_tells_nothing_of_it(own: tuple[Space, WireProxy]) -> None:
    space, proxy = own
    session_id = (await space.session()).session.session_id
    await space.get(session_id)
    await proxy.stop()
    try:
        ended = await asyncio.gather(
            *(_refused(space.rpc, name, session_id) for name, method in METHODS.items() if not _streams(method))
        )
        for name, refused in ended:
            if refused is None:
                assert name == "GetServerInfo"
                continue
            assert refused.code.name in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INVALID_ARGUMENT", "PERMISSION_DENIED"), (
                name,
                refused,
            )
            _tells_nothing(refused)
        assert {refused.reason for name, refused in ended if name == "GetSession" and refused} == {"STORE_UNAVAILABLE"}
        assert all(refused.retry_after for _, refused in ended if refused and refused.reason == "STORE_UNAVAILABLE")
    finally:
        await proxy.start()
    async with asyncio.timeout(30):
        while await code(space.session("served again", timeout=2)) != "OK":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _streams(method: object) -> bool:
    return method.server_streaming or method.client_streaming  # type: ignore[attr-defined]


async def _refused(rpc: Rpc, name: str, session_id: str) -> tuple[str, Refused | None]:
    fields = METHODS[name].input_type.fields_by_name
    given = {"session_id": session_id} if "session_id" in fields else {}
    given |= {"run_id": "run_" + "0" * 26} if "run_id" in fields else {}
    try:
        await rpc.call(name, timeout=4, **given)
    except Refused as refused:
        return name, refused
    return name, None


def _tells_nothing(refused: Refused) -> None:
    shown = f"{refused.message} {refused.status}".lower()
    for secret in SECRETS:
        assert secret not in shown.replace("turnlog.dev", ""), refused.message
    assert len(refused.message.encode()) <= 1024


@pytest.mark.case(16)
async def test_a_mistake_of_the_server_is_told_by_an_id(own: tuple[Space, WireProxy]) -> None:
    """A table is not what it should be: the caller gets INTERNAL and an id that the log has; others are served."""
    space, _ = own
    created = await space.session("hello")
    session_id = created.session.session_id
    async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as conn:
        await conn.execute("ALTER TABLE runs RENAME COLUMN run TO was_run")
        try:
            with pytest.raises(Refused) as refused:
                await space.rpc.call("GetRun", session_id=session_id, run_id=created.run_id)
            writing = code(space.say(session_id))
            assert (await space.get(session_id)).session_id == session_id
            assert await writing == "INTERNAL"
        finally:
            await conn.execute("ALTER TABLE runs RENAME COLUMN was_run TO run")
    assert (refused.value.code.name, refused.value.reason) == ("INTERNAL", "INTERNAL")
    _tells_nothing(refused.value)
    (call_id,) = refused.value.metadata.values()
    assert call_id in refused.value.message
    assert call_id in await asyncio.to_thread(space.live.log.read_text)
    assert (await space.say(session_id)).seq
    await space.rpc.call("CancelSession", session_id=session_id)


@pytest.mark.case(81)
async def test_a_quiet_follow_stays_quiet_while_others_are_busy(own: tuple[Space, WireProxy]) -> None:
    """Vacuum, statistics and writes elsewhere: one sign of life after another, all with the same cursor."""
    space, _ = own
    quiet, busy = [(await space.session()).session.session_id for _ in range(2)]
    head = (await space.get(quiet)).head_seq
    follow = space.rpc.stream("FollowEvents", session_id=quiet)
    await follow.until("caught_up")
    seen = len(follow.frames)
    stop = asyncio.Event()

    async def disturb() -> int:
        count = 0
        async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as conn:
            while not stop.is_set():
                await conn.execute("VACUUM ANALYZE events")
                await space.interrupt(busy)
                count += 1
        return count

    disturbing = asyncio.create_task(disturb())
    for _ in range(4):
        await follow.frame()
    stop.set()
    disturbed = await disturbing
    frames = follow.frames[seen:]
    assert [frame.WhichOneof("frame") for frame in frames] == ["progress"] * 4
    assert {frame.progress.through_seq for frame in frames} == {head}
    assert disturbed > len(frames)
    follow.cancel()


@asynccontextmanager
async def locked(space: Space, session_id: str) -> AsyncIterator[None]:
    """Somebody else holds the Session's row."""
    async with await psycopg.AsyncConnection.connect(space.live.dsn) as conn:
        await conn.execute("SELECT 1 FROM session_heads WHERE session_id = %s FOR UPDATE", [session_id])
        yield


@pytest.mark.case(96)
async def test_one_locked_session_holds_up_no_other(own: tuple[Space, WireProxy]) -> None:
    """A write that cannot get its row is answered at its deadline; other Sessions are written meanwhile."""
    space, _ = own
    stuck, free = [(await space.session()).session.session_id for _ in range(2)]
    asked = {
        "session_id": stuck,
        "request_id": fresh(),
        "authored_by": space.subject,
        "caused_by": {"kind": "KIND_API"},
        "user_interrupt": {},
    }
    async with locked(space, stuck):
        waiting = asyncio.create_task(code(space.rpc.call("AppendEvent", timeout=0.5, **asked)))
        for _ in range(10):
            assert (await space.interrupt(free)).seq
        assert await waiting in ("DEADLINE_EXCEEDED", "ABORTED")
    # Whatever became of it, the repeat tells, and it is there once.
    again = await space.rpc.call("AppendEvent", **asked)
    log = await space.log(stuck)
    assert [event.seq for event in log if event.type == "user.interrupt"] == [again.seq]
