"""The log statement: a batch of Sessions, each moved by a compare on its head, in one statement and one commit.

Every arm is joined to the heads that moved. A Session whose head moved meanwhile, that is locked elsewhere, whose
request id is known or whose workspace's permissions changed is absent from the answer, and nothing of it is written.
"""

from dataclasses import dataclass, field
from typing import LiteralString

from turnlog_server.domain.session import SessionFacts
from turnlog_server.store.arrays import Blobs, Ints, Texts, Utf8s
from turnlog_server.store.codec import encode
from turnlog_server.store.connections import Connection
from turnlog_server.store.dialect import Dialect

DELETED = -1
"""The head of a Session that was deleted: no compare of a stale reader can succeed on it."""


@dataclass(frozen=True, slots=True)
class RequestRow:
    """A request id with what its request came to."""

    scope: str
    caller: str
    method: str
    request_id: str
    fingerprint: bytes
    resource_id: str
    seq: int
    event_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """Where a Session's Run stands in the queue: READY, HELD by a runner, or GONE."""

    workspace_id: str
    pool: str
    harness_profile_id: str
    run_id: str
    attempt_no: int
    state: str
    runner_id: str = ""
    runner_epoch: int = 0


@dataclass(slots=True)
class SessionWrite:
    """What one batch does to one Session.

    workspace_id: whose permission epoch has to stand.
    expected: the head that it was decided on; 0 for a Session that is made by it.
    due_at: None leaves the timer row as it is; 0 clears it; microseconds otherwise.
    """

    session_id: str
    workspace_id: str
    expected: int
    new_head: int
    status: str
    state: bytes
    facts: SessionFacts | None = None
    events: list[tuple[int, str, bytes]] = field(default_factory=list)
    requests: list[RequestRow] = field(default_factory=list)
    runs: list[tuple[str, int, str, bytes]] = field(default_factory=list)
    attempts: list[tuple[str, int, bytes]] = field(default_factory=list)
    queue: QueueRow | None = None
    due_at: int | None = None
    deleted: bool = False


_REQUESTED: LiteralString = """
asked AS MATERIALIZED (
  SELECT a.session_id, a.scope, a.caller, a.method, a.request_id, a.fingerprint, a.resource_id, a.seq, a.event_id,
         a.run_id
    FROM unnest(%(q_sid)s::text[], %(q_scope)s::text[], %(q_caller)s::text[], %(q_method)s::text[], %(q_id)s::text[],
                %(q_print)s::bytea[], %(q_resource)s::text[], %(q_seq)s::int8[], %(q_event)s::text[], %(q_run)s::text[])
      AS a(session_id, scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)),
allowed AS MATERIALIZED (
  SELECT e.workspace_id
    FROM unnest(%(w_id)s::text[], %(w_epoch)s::int8[]) AS a(workspace_id, epoch)
    JOIN workspace_epochs e ON e.workspace_id = a.workspace_id AND e.acl_epoch = a.epoch)"""

# `(x IN (…)) IS TRUE` keeps the planner from turning it into a nested loop over the batch: it hashes the batch instead.
_ARMS: LiteralString = """
ev AS (
  INSERT INTO events (session_id, seq, type, body)
  SELECT e.session_id, e.seq, e.type, e.body
    FROM unnest(%(e_sid)s::text[], %(e_seq)s::int8[], %(e_type)s::text[], %(e_body)s::bytea[])
      AS e(session_id, seq, type, body)
   WHERE (e.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
rq AS (
  INSERT INTO request_ids (scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)
  SELECT a.scope, a.caller, a.method, a.request_id, a.fingerprint, a.resource_id, a.seq, a.event_id, a.run_id
    FROM asked a
   WHERE (a.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
ru AS (
  INSERT INTO runs (session_id, run_id, trigger_seq, status, run)
  SELECT r.session_id, r.run_id, r.trigger_seq, r.status, r.run
    FROM unnest(%(r_sid)s::text[], %(r_id)s::text[], %(r_seq)s::int8[], %(r_status)s::text[], %(r_run)s::text[])
      AS r(session_id, run_id, trigger_seq, status, run)
   WHERE (r.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id, run_id) DO UPDATE SET status = excluded.status, run = excluded.run),
ra AS (
  INSERT INTO run_attempts (session_id, run_id, attempt_no, attempt)
  SELECT a.session_id, a.run_id, a.attempt_no, a.attempt
    FROM unnest(%(a_sid)s::text[], %(a_run)s::text[], %(a_no)s::int8[], %(a_attempt)s::text[])
      AS a(session_id, run_id, attempt_no, attempt)
   WHERE (a.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id, run_id, attempt_no) DO UPDATE SET attempt = excluded.attempt),
qu AS (
  INSERT INTO run_queue (session_id, workspace_id, pool, harness_profile_id, shard, run_id, attempt_no, state,
                         runner_id, runner_epoch)
  SELECT u.session_id, u.workspace_id, u.pool, u.profile, u.shard, u.run_id, u.attempt_no, u.state,
         u.runner_id, u.runner_epoch
    FROM unnest(%(u_sid)s::text[], %(u_ws)s::text[], %(u_pool)s::text[], %(u_profile)s::text[], %(u_shard)s::int8[],
                %(u_run)s::text[], %(u_no)s::int8[], %(u_state)s::text[], %(u_runner)s::text[], %(u_epoch)s::int8[])
      AS u(session_id, workspace_id, pool, profile, shard, run_id, attempt_no, state, runner_id, runner_epoch)
   WHERE (u.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id) DO UPDATE SET
    run_id = excluded.run_id, attempt_no = excluded.attempt_no, state = excluded.state, ready_at = now(),
    runner_id = excluded.runner_id, runner_epoch = excluded.runner_epoch, offered_until = NULL),
ti AS (
  INSERT INTO timers (session_id, shard, due_at)
  SELECT t.session_id, t.shard, t.due_at
    FROM unnest(%(t_sid)s::text[], %(t_shard)s::int8[], %(t_due)s::int8[]) AS t(session_id, shard, due_at)
   WHERE (t.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id) DO UPDATE SET due_at = excluded.due_at)"""

EVENT_APPEND: LiteralString = (
    """
WITH want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.expected, w.new_head
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_expected)s::int8[], %(s_head)s::int8[])
      AS w(session_id, workspace_id, expected, new_head)),"""
    + _REQUESTED
    + """,
known AS MATERIALIZED (
  SELECT a.session_id
    FROM asked a
    JOIN request_ids r
      ON r.scope = a.scope AND r.caller = a.caller AND r.method = a.method AND r.request_id = a.request_id),
locked AS MATERIALIZED (
  SELECT h.session_id, w.expected, w.new_head
    FROM want w
    JOIN session_heads h ON h.session_id = w.session_id AND h.head_seq = w.expected
   WHERE (w.workspace_id IN (SELECT l.workspace_id FROM allowed l)) IS TRUE
     AND (w.session_id IN (SELECT k.session_id FROM known k)) IS NOT TRUE
   ORDER BY h.session_id
     FOR UPDATE OF h {head_lock_skip}),
moved AS (
  UPDATE session_heads h SET head_seq = l.new_head
    FROM locked l
   WHERE h.session_id = l.session_id AND h.head_seq = l.expected
  RETURNING h.session_id),"""
    + _ARMS
    + """,
st AS (
  UPDATE session_states s SET status = n.status, state = n.state
    FROM unnest(%(s_id)s::text[], %(s_status)s::text[], %(s_state)s::text[]) AS n(session_id, status, state)
   WHERE s.session_id = n.session_id AND (n.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
de AS (
  INSERT INTO deleted_sessions (session_id)
  SELECT d.session_id FROM unnest(%(d_id)s::text[]) AS d(session_id)
   WHERE (d.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
go AS (
  DELETE FROM sessions s
   WHERE s.session_id = ANY(%(d_id)s::text[]) AND (s.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE)
SELECT m.session_id FROM moved m"""
)

# A Session that is made has no head to compare: its request id has to be new, and the unique key decides that.
SESSION_CREATE: LiteralString = (
    """
WITH want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.new_head, w.status, w.state, w.create_time, w.labels, w.facts
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_head)s::int8[], %(s_status)s::text[], %(s_state)s::text[],
                %(f_time)s::int8[], %(f_labels)s::text[], %(f_facts)s::text[])
      AS w(session_id, workspace_id, new_head, status, state, create_time, labels, facts)),"""
    + _REQUESTED
    + """,
moved AS (
  INSERT INTO session_heads (session_id, head_seq)
  SELECT w.session_id, w.new_head FROM want w
   WHERE (w.workspace_id IN (SELECT l.workspace_id FROM allowed l)) IS TRUE
  RETURNING session_id),"""
    + _ARMS
    + """,
se AS (
  INSERT INTO sessions (session_id, workspace_id, create_time, labels, facts)
  SELECT w.session_id, w.workspace_id, w.create_time, w.labels::jsonb, w.facts FROM want w
   WHERE (w.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
st AS (
  INSERT INTO session_states (session_id, status, state)
  SELECT w.session_id, w.status, w.state FROM want w
   WHERE (w.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE)
SELECT m.session_id FROM moved m"""
)


async def session_create(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Makes Sessions; returns those that were made. A request id that is known raises a unique violation."""
    params = _params(writes, epochs, dialect.claim_shards)
    facts = [write.facts for write in writes if write.facts is not None]
    params["f_time"] = Ints(fact.create_time for fact in facts)
    params["f_labels"] = Utf8s(encode(fact.labels) for fact in facts)
    params["f_facts"] = Utf8s(encode(fact) for fact in facts)
    cursor = await conn.execute(dialect.sql(SESSION_CREATE), params)
    return {row[0] for row in await cursor.fetchall()}


async def event_append(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Moves Sessions; returns those that were moved."""
    params = _params(writes, epochs, dialect.claim_shards)
    params["s_expected"] = Ints(write.expected for write in writes)
    params["d_id"] = Texts(write.session_id for write in writes if write.deleted)
    cursor = await conn.execute(dialect.sql(EVENT_APPEND), params)
    return {row[0] for row in await cursor.fetchall()}


def shard_of(session_id: str, shards: int) -> int:
    """The shard of a Session, from the randomness of its id."""
    return int.from_bytes(session_id[-4:].encode()) % shards


def _params(writes: list[SessionWrite], epochs: dict[str, int], shards: int) -> dict[str, object]:
    events = [(w.session_id, *event) for w in writes for event in w.events]
    asked = [(w.session_id, request) for w in writes for request in w.requests]
    runs = [(w.session_id, *run) for w in writes for run in w.runs]
    attempts = [(w.session_id, *attempt) for w in writes for attempt in w.attempts]
    queue = [(w.session_id, w.queue) for w in writes if w.queue is not None]
    timers = [(w.session_id, w.due_at) for w in writes if w.due_at is not None]
    return {
        "w_id": Texts(epochs),
        "w_epoch": Ints(epochs.values()),
        "s_id": Texts(w.session_id for w in writes),
        "s_ws": Texts(w.workspace_id for w in writes),
        "s_head": Ints(w.new_head for w in writes),
        "s_status": Texts(w.status for w in writes),
        "s_state": Utf8s(w.state for w in writes),
        "e_sid": Texts(e[0] for e in events),
        "e_seq": Ints(e[1] for e in events),
        "e_type": Texts(e[2] for e in events),
        "e_body": Blobs(e[3] for e in events),
        "q_sid": Texts(sid for sid, _ in asked),
        "q_scope": Texts(q.scope for _, q in asked),
        "q_caller": Texts(q.caller for _, q in asked),
        "q_method": Texts(q.method for _, q in asked),
        "q_id": Texts(q.request_id for _, q in asked),
        "q_print": Blobs(q.fingerprint for _, q in asked),
        "q_resource": Texts(q.resource_id for _, q in asked),
        "q_seq": Ints(q.seq for _, q in asked),
        "q_event": Texts(q.event_id for _, q in asked),
        "q_run": Texts(q.run_id for _, q in asked),
        "r_sid": Texts(r[0] for r in runs),
        "r_id": Texts(r[1] for r in runs),
        "r_seq": Ints(r[2] for r in runs),
        "r_status": Texts(r[3] for r in runs),
        "r_run": Utf8s(r[4] for r in runs),
        "a_sid": Texts(a[0] for a in attempts),
        "a_run": Texts(a[1] for a in attempts),
        "a_no": Ints(a[2] for a in attempts),
        "a_attempt": Utf8s(a[3] for a in attempts),
        "u_sid": Texts(sid for sid, _ in queue),
        "u_ws": Texts(u.workspace_id for _, u in queue),
        "u_pool": Texts(u.pool for _, u in queue),
        "u_profile": Texts(u.harness_profile_id for _, u in queue),
        "u_shard": Ints(shard_of(sid, shards) for sid, _ in queue),
        "u_run": Texts(u.run_id for _, u in queue),
        "u_no": Ints(u.attempt_no for _, u in queue),
        "u_state": Texts(u.state for _, u in queue),
        "u_runner": Texts(u.runner_id for _, u in queue),
        "u_epoch": Ints(u.runner_epoch for _, u in queue),
        "t_sid": Texts(sid for sid, _ in timers),
        "t_shard": Ints(shard_of(sid, shards) for sid, _ in timers),
        "t_due": Ints(due for _, due in timers),
    }
