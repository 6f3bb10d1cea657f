"""`check --replay` against the real tables: nothing to say of a sound database, and every change by hand is seen."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.lanes import AUTHOR, LaneReplica, differences, interrupt, log_of, message, replicas, report
from support.server_process import ran
from turnlog_server.app.replay_run import replay
from turnlog_server.domain.commands import AppendReports, AttemptLost, CancelSession, HarnessReady, Outcome, Settle
from turnlog_server.domain.events import ModelCalled
from turnlog_server.domain.session import Cost
from turnlog_server.store.database import Database


async def full(lane: LaneReplica) -> str:
    """A Session with a Run that ended after two attempts, one that is held, and two that wait."""
    session_id = await lane.create(text="hello")
    lease = await lane.accept(session_id)
    await lane.do(session_id, HarnessReady(replace(lease, message_no=1), "svc_1"), None)
    await lane.do(session_id, AttemptLost(lease.run_id, 1, "gone"), None, own=True)
    lease = await lane.accept(session_id)
    await lane.do(session_id, HarnessReady(replace(lease, message_no=1), "svc_1"), None)
    called = b"\x92\x03\x05\x0a\x01m\x12\x00"  # model_called{model: "m", usage: {}}
    reports = (report("hi"), (ModelCalled(Cost()), called))
    await lane.do(session_id, AppendReports(replace(lease, message_no=2), "svc_1", reports), None)
    await lane.do(session_id, message("next"))
    await lane.do(session_id, message("and next"), "kept")
    await lane.do(session_id, Settle(replace(lease, message_no=3), Outcome.SUCCEEDED), None)
    await lane.accept(session_id)
    await lane.do(session_id, message("and another"))
    return session_id


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[Database]:
    """Under one dialect: nothing that is compared depends on it."""
    database = await Database.open(dsn, pool_size=2)
    yield database
    await database.close()


@pytest.fixture
async def lane(database: Database) -> AsyncIterator[LaneReplica]:
    async with replicas(database) as (lane,):
        yield lane


async def test_a_sound_database_has_no_difference(lane: LaneReplica, database: Database) -> None:
    sound = [await full(lane) for _ in range(3)]
    idle = await lane.create()
    await lane.do(idle, interrupt())
    over = await full(lane)
    await lane.do(over, CancelSession(AUTHOR))
    assert await differences(database) == []
    done = await replay(database, lambda difference: None)
    assert (done.sessions, done.differences, done.skipped) == (5, 0, 0)
    assert done.events == sum([(await log_of(database, session_id)).head for session_id in (*sound, idle, over)])


STATE = "UPDATE session_states SET state = replace(state, {})"
LAST = "seq = (SELECT max(seq) FROM events)"
PLANTED = {
    "the status beside the state": ("UPDATE session_states SET status = 'idle'", "OneCommit", "session_states.status"),
    "the status": (
        STATE.format("""'"status":"provisioning","stop', '"status":"running","stop'"""),
        "OneCommit",
        "status",
    ),
    "the head of the state": (STATE.format("""'"head_seq":', '"head_seq":1'"""), "OneCommit", "head_seq"),
    "the queue of the state": (STATE.format("""'"trigger_seq":', '"trigger_seq":9'"""), "OneCommit", "queue"),
    "what was pinned": ("UPDATE sessions SET facts = replace(facts, 'agt_1', 'agt_2')", "OneCommit", "sessions.facts"),
    "the workspace": ("UPDATE sessions SET workspace_id = 'ws_2'", "OneCommit", "sessions.workspace_id"),
    "the creation": ("UPDATE sessions SET create_time = 1", "OneCommit", "sessions.create_time"),
    "a session without a state": ("DELETE FROM session_states", "OneCommit", "no row in session_states"),
    "a state without a session": ("DELETE FROM sessions", "OneCommit", "no row in sessions"),
    "a run's status": ("UPDATE runs SET status = 'failed' WHERE status = 'succeeded'", "OneCommit", "status is failed"),
    "a run": ("UPDATE runs SET run = replace(run, 'queued', 'running')", "OneCommit", "run.status"),
    "a run's place": ("UPDATE runs SET trigger_seq = 99 WHERE status = 'succeeded'", "OneCommit", "trigger_seq"),
    "a run that is gone": ("DELETE FROM runs WHERE status = 'succeeded'", "OneCommit", "runs lacks"),
    "a run too many": (
        "INSERT INTO runs SELECT session_id, 'run_none', 99, status, run FROM runs LIMIT 1",
        "OneCommit",
        "run_none, of which the log knows nothing",
    ),
    "an attempt": (
        "UPDATE run_attempts SET attempt = replace(attempt, '\"lost\"', '\"settled\"')",
        "OneCommit",
        "1].status is settled",
    ),
    "an attempt that is gone": ("DELETE FROM run_attempts WHERE attempt_no = 2", "OneCommit", "run_attempts lacks"),
    "an attempt too many": (
        "INSERT INTO run_attempts"
        " SELECT session_id, run_id, 9, replace(attempt, '\"attempt_no\":1', '\"attempt_no\":9')"
        " FROM run_attempts WHERE attempt_no = 1 LIMIT 1",
        "OneCommit",
        "9] is unknown to the log",
    ),
    "the place in the queue": ("UPDATE run_queue SET state = 'READY'", "OneCommit", "run_queue"),
    "whose run it is": ("UPDATE run_queue SET runner_id = 'rnr_2'", "OneCommit", "run_queue"),
    "a place that is gone": ("DELETE FROM run_queue", "OneCommit", "run_queue"),
    "the timer": ("UPDATE timers SET due_at = due_at + 1", "OneCommit", "timers.due_at"),
    "a timer that is gone": ("DELETE FROM timers", "OneCommit", "timers.due_at"),
    "a request's event": ("UPDATE request_ids SET seq = seq - 1 WHERE request_id = 'kept'", "Idempotent", "'kept'"),
    "an event that is missing": ("DELETE FROM events WHERE seq = 4", "Gapless", "event 5 follows event 3"),
    "the last event": (f"DELETE FROM events WHERE {LAST}", "Durable", "the log ends at"),
    "a head that lags": ("UPDATE session_heads SET head_seq = head_seq - 1", "OneCommit", "behind the head"),
    "an event's type": ("UPDATE events SET type = 'run.ready' WHERE type = 'run.queued'", "OneCommit", "is stored as"),
    "a body that is no event": ("UPDATE events SET body = 'zz' WHERE seq = 3", "Durable", "event 3 cannot be read"),
    "a body of another event": (
        "UPDATE events e SET body = (SELECT o.body FROM events o WHERE o.seq = 1) WHERE seq = 3",
        "Unique",
        "events 1 and 3",
    ),
    "a body that says something else": (
        "UPDATE events SET body = replace(encode(body, 'escape'), 'rnr_1', 'rnr_7')::bytea"
        " WHERE type = 'run.attempt_started' AND encode(body, 'escape') LIKE '%%rnr_1%%'",
        "OneCommit",
        "runner_id",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_a_planted_difference_is_seen(lane: LaneReplica, database: Database, planted: str) -> None:
    await full(lane)
    statement, guarantee, says = PLANTED[planted]
    await database.write("plant", statement)  # type: ignore[arg-type]
    found = await differences(database)
    assert any(each.startswith(f"{guarantee}: ") and says in each for each in found), found


async def test_the_command_says_so_and_fails(lane: LaneReplica, database: Database, dsn: str, tmp_path: Path) -> None:
    session_id = await full(lane)
    code, said = await ran("check", "--replay", "--insecure", cwd=tmp_path, database_url=dsn)
    assert code == 0, said
    await database.write("plant", "DELETE FROM timers")
    code, said = await ran("check", "--replay", "--insecure", cwd=tmp_path, database_url=dsn)
    assert code != 0
    assert session_id in said
    assert "timers.due_at" in said
