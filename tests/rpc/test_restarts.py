"""A Session outlives whatever serves it: processes are killed in the middle, and nothing that was told is lost."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from support.replicas import Live, Refused, Space, fresh, live_replica, make_space
from support.story import legal, statuses, story
from turnlog.v1 import session_pb2
from turnlog_server.app.embedded import EmbeddedPostgres
from turnlog_server.store.migrate import migrate

QUICK = (
    "--safety-poll-seconds", "0.2", "--runner-lease-ttl-seconds", "1", "--runner-heartbeat-seconds", "0.3",
    "--stop-grace-seconds", "1", "--startup-allowance-seconds", "2", "--progress-seconds", "0.5",
)  # fmt: skip


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Where a PostgreSQL lives through its deaths. Its socket's path has to be short."""
    root = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def killed(live: Live, postgres: EmbeddedPostgres | None = None) -> None:
    """kill -9."""
    live.kill()
    await live.process.wait()
    if postgres is not None:
        os.kill(postgres.pid, signal.SIGKILL)
        await postgres.exited()
        await postgres.stop()


async def replays_clean(dsn: str) -> None:
    """`turnlog-server check --replay` finds every stored state to be what its log says."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "turnlog-server"), "check", "--replay",
        env=dict(os.environ) | {"TURNLOG_DATABASE_URL": dsn},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()


@pytest.mark.rule("R1", "R2", "R32", "R175")
async def test_server_database_and_runner_are_killed() -> None:
    """One Session is idle, one has a running Run, one a queued turn. All go on from where they were."""
    with folder() as root:
        postgres = await EmbeddedPostgres.start(root, fsync=False)
        await migrate(postgres.dsn)
        async with live_replica(postgres.dsn, *QUICK) as live:
            space = await make_space(live)
            idle = (await space.session("one")).session.session_id
            async with space.runner() as runner:
                offer = await runner.start()
                await runner.append(offer, "answered")
                await runner.settle(offer)
                busy = (await space.session("two")).session.session_id
                await space.say(busy, "three")
                offer = await runner.start()
                await runner.append(offer, "half of an answer")
                before = {each: await space.log(each) for each in (idle, busy)}
                session = await space.get(idle)
                asked = {"request_id": fresh(), "expected_head_seq": session.head_seq}
                await killed(live, postgres)
        postgres = await EmbeddedPostgres.start(root, fsync=False)
        async with live_replica(postgres.dsn, *QUICK) as live:
            space = replace(space, live=live, rpc=live.rpc(space.key))
            assert await space.get(idle) == session
            assert await space.log(idle) == before[idle]
            appended = await space.say(idle, "and on", **asked)
            assert appended.seq == session.head_seq + 1
            assert (await space.log(busy))[: len(before[busy])] == before[busy]
            done = set()
            async with space.runner() as runner:
                while len(done) < 3:
                    offer = await runner.start()
                    done.add(offer.run_id)
                    await runner.settle(offer)
            for each in (idle, busy):
                log = await space.log(each)
                assert [event.seq for event in log] == list(range(1, len(log) + 1))
                assert log[: len(before[each])] == before[each]
                assert legal(statuses(log))
                assert story(log).status == (await space.get(each)).status == session_pb2.SESSION_STATUS_IDLE
            # The Run that was half done kept its identity and got another attempt.
            runs = (await space.rpc.call("ListRuns", session_id=busy)).runs
            assert [(run.attempt_no, run.run_id in done) for run in reversed(runs)] == [(2, True), (1, True)]
        await replays_clean(postgres.dsn)
        await postgres.stop()


@pytest.mark.rule("R1", "R31")
@pytest.mark.case(21)
async def test_whatever_moment_the_server_ends_at(dsn: str) -> None:
    """Ended under writes, again and again: what was acknowledged is there, what was not is there after its retry."""
    told: dict[str, int] = {}
    async with live_replica(dsn, *QUICK) as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        await _write_and_end(space, session_id, told, signal.SIGKILL)
    for end in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, None):
        async with live_replica(dsn, *QUICK) as live:
            space = replace(space, live=live, rpc=live.rpc(space.key))
            head = len(await space.log(session_id))
            assert head >= max(told.values())
            for above in (head + 1, head + 1_000):
                with pytest.raises(Refused) as refused:
                    await space.rpc.stream("FollowEvents", session_id=session_id, after_seq=above).frame()
                assert refused.value.metadata == {"head_seq": str(head)}
            if end is not None:
                await _write_and_end(space, session_id, told, end)
                continue
            await asyncio.gather(*(_append(space, session_id, text, told) for text, seq in told.items() if not seq))
            log = await space.log(session_id)
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            assert {e.user_interrupt.reason: e.seq for e in log if e.type == "user.interrupt"} == told
            assert len(log) == len(told) + 2
    await replays_clean(dsn)


async def _write_and_end(space: Space, session_id: str, told: dict[str, int], end: signal.Signals) -> None:
    """Retries what is open and writes more; when a third of it is answered the server is killed, or told to go."""
    texts = [*(text for text, seq in told.items() if not seq), *(fresh() for _ in range(60))]
    told.update(dict.fromkeys(texts, 0))
    writing = [asyncio.create_task(_append(space, session_id, text, told)) for text in texts]
    for answered, one in enumerate(asyncio.as_completed(writing)):
        await one
        if answered == len(texts) // 3:
            space.live.kill(end)
    assert await space.live.process.wait() == (0 if end is signal.SIGTERM else -end)


async def _append(space: Space, session_id: str, text: str, told: dict[str, int]) -> None:
    """One interrupt of an idle Session under an id of its own; what becomes of it is noted."""
    with contextlib.suppress(Refused):
        answer = await space.rpc.call(
            "AppendEvent",
            session_id=session_id,
            request_id=text,
            authored_by=space.subject,
            caused_by={"kind": "KIND_API"},
            user_interrupt={"reason": text},
        )
        told[text] = answer.seq


@pytest.mark.rule("R1", "R59")
async def test_no_timer_ever_touches_an_idle_session(space: Space) -> None:
    session_id = (await space.session("one")).session.session_id
    async with space.runner() as runner:
        await runner.settle(await runner.start())
    async with await psycopg.AsyncConnection.connect(space.live.dsn) as conn:
        found = await conn.execute("SELECT due_at FROM timers WHERE session_id = %s AND due_at > 0", [session_id])
        assert await found.fetchall() == []
