"""The log statement: a batch of Sessions, each moved by a compare on its head, in one statement and one commit.

Every arm is joined to the heads that moved. A Session whose head moved meanwhile, that is locked elsewhere, whose
request id is known or whose workspace's permissions changed is absent from the answer, and nothing of it is written.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, LiteralString, NamedTuple

from turnlog_server.domain.session import SessionFacts
from turnlog_server.store.arrays import Blobs, Ints, Texts, Utf8s
from turnlog_server.store.codec import encode
from turnlog_server.store.connections import Connection, RawBinaryCursor, positional
from turnlog_server.store.dialect import Dialect

DELETED = -1
"""The head of a Session that was deleted: no compare of a stale reader can succeed on it."""


class RequestRow(NamedTuple):
    """A request id with what its request came to, in the order of its columns."""

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
    expected_unlogged: how many writes had left that head as it is: they are compared, too.
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
    expected_unlogged: int = 0
    new_unlogged: int = 0


# The statements are put together from these, and only from those that a batch has rows for: each takes time of the
# server and of the driver even where it writes nothing, and most batches need few.
_WANT: LiteralString = """
want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.expected, w.new_head, w.unlogged, w.new_unlogged
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_expected)s::int8[], %(s_head)s::int8[], %(s_unlogged)s::int8[],
                %(s_new_unlogged)s::int8[])
      AS w(session_id, workspace_id, expected, new_head, unlogged, new_unlogged)),"""

_ALLOWED: LiteralString = """
allowed AS MATERIALIZED (
  SELECT e.workspace_id
    FROM unnest(%(w_id)s::text[], %(w_epoch)s::int8[]) AS a(workspace_id, epoch)
    JOIN workspace_epochs e ON e.workspace_id = a.workspace_id AND e.acl_epoch = a.epoch),"""

_ASKED: LiteralString = """
asked AS MATERIALIZED (
  SELECT a.session_id, a.scope, a.caller, a.method, a.request_id, a.fingerprint, a.resource_id, a.seq, a.event_id,
         a.run_id
    FROM unnest(%(q_sid)s::text[], %(q_scope)s::text[], %(q_caller)s::text[], %(q_method)s::text[], %(q_id)s::text[],
                %(q_print)s::bytea[], %(q_resource)s::text[], %(q_seq)s::int8[], %(q_event)s::text[], %(q_run)s::text[])
      AS a(session_id, scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)),"""

_KNOWN: LiteralString = """
known AS MATERIALIZED (
  SELECT a.session_id
    FROM asked a
    JOIN request_ids r
      ON r.scope = a.scope AND r.caller = a.caller AND r.method = a.method AND r.request_id = a.request_id),"""

# `(x IN (…)) IS TRUE` keeps the planner from turning it into a nested loop over the batch: it hashes the batch instead.
_NOT_KNOWN: LiteralString = """
     AND (w.session_id IN (SELECT k.session_id FROM known k)) IS NOT TRUE"""

_MOVED: tuple[LiteralString, LiteralString] = (
    """
locked AS MATERIALIZED (
  SELECT h.session_id, w.expected, w.new_head, w.unlogged, w.new_unlogged
    FROM want w
    JOIN session_heads h ON h.session_id = w.session_id AND h.head_seq = w.expected AND h.unlogged = w.unlogged
   WHERE (w.workspace_id IN (SELECT l.workspace_id FROM allowed l)) IS TRUE""",
    """
   ORDER BY h.session_id
     FOR UPDATE OF h {head_lock_skip}),
moved AS (
  UPDATE session_heads h SET head_seq = l.new_head, unlogged = l.new_unlogged
    FROM locked l
   WHERE h.session_id = l.session_id AND h.head_seq = l.expected AND h.unlogged = l.unlogged
  RETURNING h.session_id),""",
)

_STATES_MOVED: LiteralString = """
st AS (
  UPDATE session_states s SET status = n.status, state = n.state
    FROM unnest(%(s_id)s::text[], %(s_status)s::text[], %(s_state)s::text[]) AS n(session_id, status, state)
   WHERE s.session_id = n.session_id AND (n.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE)
SELECT m.session_id FROM moved m"""


_WANT_NEW: LiteralString = """
want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.new_head, w.status, w.state, w.create_time, w.labels, w.facts
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_head)s::int8[], %(s_status)s::text[], %(s_state)s::text[],
                %(f_time)s::int8[], %(f_labels)s::text[], %(f_facts)s::text[])
      AS w(session_id, workspace_id, new_head, status, state, create_time, labels, facts)),"""

_MADE: LiteralString = """
moved AS (
  INSERT INTO session_heads (session_id, head_seq)
  SELECT w.session_id, w.new_head FROM want w
   WHERE (w.workspace_id IN (SELECT l.workspace_id FROM allowed l)) IS TRUE
  RETURNING session_id),"""

_SESSIONS_MADE: LiteralString = """
se AS (
  INSERT INTO sessions (session_id, workspace_id, create_time, labels, facts)
  SELECT w.session_id, w.workspace_id, w.create_time, w.labels::jsonb, w.facts FROM want w
   WHERE (w.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
st AS (
  INSERT INTO session_states (session_id, status, state)
  SELECT w.session_id, w.status, w.state FROM want w
   WHERE (w.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE)
SELECT m.session_id FROM moved m"""


@dataclass(frozen=True, slots=True)
class _Arm:
    """One table's part of the log statement.

    columns: the parameters of its rows, in their order, with their types.
    rows: what a Session adds to it, each behind the Session's id.
    """

    sql: LiteralString
    columns: tuple[tuple[str, type[list[Any]]], ...]
    rows: Callable[[SessionWrite, int], Iterable[tuple[Any, ...]]]


def _columns(texts: str) -> tuple[tuple[str, type[list[Any]]], ...]:
    """Parameters by name; behind a colon the type where it is not text."""
    kinds: dict[str, type[list[Any]]] = {"": Texts, "int8": Ints, "bytea": Blobs, "utf8": Utf8s}
    return tuple((name, kinds[kind]) for name, _, kind in (text.partition(":") for text in texts.split()))


_QUEUE_COLUMNS = attrgetter(
    "workspace_id", "pool", "harness_profile_id", "run_id", "attempt_no", "state", "runner_id", "runner_epoch"
)

_EVENTS = _Arm(
    """
ev AS (
  INSERT INTO events (session_id, seq, type, body)
  SELECT e.session_id, e.seq, e.type, e.body
    FROM unnest(%(e_sid)s::text[], %(e_seq)s::int8[], %(e_type)s::text[], %(e_body)s::bytea[])
      AS e(session_id, seq, type, body)
   WHERE (e.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),""",
    _columns("e_sid e_seq:int8 e_type e_body:bytea"),
    lambda write, _: write.events,
)

_REQUESTS = _Arm(
    """
rq AS (
  INSERT INTO request_ids (scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)
  SELECT a.scope, a.caller, a.method, a.request_id, a.fingerprint, a.resource_id, a.seq, a.event_id, a.run_id
    FROM asked a
   WHERE (a.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),""",
    _columns("q_sid q_scope q_caller q_method q_id q_print:bytea q_resource q_seq:int8 q_event q_run"),
    lambda write, _: write.requests,
)

_RUNS = _Arm(
    """
ru AS (
  INSERT INTO runs (session_id, run_id, trigger_seq, status, run)
  SELECT r.session_id, r.run_id, r.trigger_seq, r.status, r.run
    FROM unnest(%(r_sid)s::text[], %(r_id)s::text[], %(r_seq)s::int8[], %(r_status)s::text[], %(r_run)s::text[])
      AS r(session_id, run_id, trigger_seq, status, run)
   WHERE (r.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id, run_id) DO UPDATE SET status = excluded.status, run = excluded.run),""",
    _columns("r_sid r_id r_seq:int8 r_status r_run:utf8"),
    lambda write, _: write.runs,
)

_ATTEMPTS = _Arm(
    """
ra AS (
  INSERT INTO run_attempts (session_id, run_id, attempt_no, attempt)
  SELECT a.session_id, a.run_id, a.attempt_no, a.attempt
    FROM unnest(%(a_sid)s::text[], %(a_run)s::text[], %(a_no)s::int8[], %(a_attempt)s::text[])
      AS a(session_id, run_id, attempt_no, attempt)
   WHERE (a.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id, run_id, attempt_no) DO UPDATE SET attempt = excluded.attempt),""",
    _columns("a_sid a_run a_no:int8 a_attempt:utf8"),
    lambda write, _: write.attempts,
)

_QUEUE = _Arm(
    """
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
    runner_id = excluded.runner_id, runner_epoch = excluded.runner_epoch, offered_until = NULL),""",
    _columns("u_sid u_shard:int8 u_ws u_pool u_profile u_run u_no:int8 u_state u_runner u_epoch:int8"),
    lambda write, shards: (
        [(shard_of(write.session_id, shards), *_QUEUE_COLUMNS(write.queue))] if write.queue is not None else ()
    ),
)

_TIMERS = _Arm(
    """
ti AS (
  INSERT INTO timers (session_id, shard, due_at)
  SELECT t.session_id, t.shard, t.due_at
    FROM unnest(%(t_sid)s::text[], %(t_shard)s::int8[], %(t_due)s::int8[]) AS t(session_id, shard, due_at)
   WHERE (t.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE
  ON CONFLICT (session_id) DO UPDATE SET due_at = excluded.due_at),""",
    _columns("t_sid t_shard:int8 t_due:int8"),
    lambda write, shards: [(shard_of(write.session_id, shards), write.due_at)] if write.due_at is not None else (),
)

_DELETION = _Arm(
    """
de AS (
  INSERT INTO deleted_sessions (session_id)
  SELECT d.session_id FROM unnest(%(d_id)s::text[]) AS d(session_id)
   WHERE (d.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),
go AS (
  DELETE FROM sessions s
   WHERE s.session_id = ANY(%(d_id)s::text[]) AND (s.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),""",
    _columns("d_id"),
    lambda write, _: ((),) if write.deleted else (),
)

_WRITES = (_EVENTS, _REQUESTS, _RUNS, _ATTEMPTS, _QUEUE, _TIMERS)


@lru_cache
def _append(arms: tuple[_Arm, ...]) -> LiteralString:
    """Moves Sessions that exist."""
    asked, known, not_known = (_ASKED, _KNOWN, _NOT_KNOWN) if _REQUESTS in arms else ("", "", "")
    first, then = _MOVED
    return (
        "WITH"
        + (_WANT + asked + _ALLOWED + known + first + not_known + then)
        + "".join(arm.sql for arm in arms)
        + _STATES_MOVED
    )


@lru_cache
def _create(arms: tuple[_Arm, ...]) -> LiteralString:
    """Makes Sessions. There is no head to compare: the request id has to be new, and the unique key decides that."""
    asked = _ASKED if _REQUESTS in arms else ""
    return "WITH" + _WANT_NEW + asked + _ALLOWED + _MADE + "".join(arm.sql for arm in arms) + _SESSIONS_MADE


# With every arm.
EVENT_APPEND: LiteralString = _append((*_WRITES, _DELETION))
SESSION_CREATE: LiteralString = _create(_WRITES)


async def session_create(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Makes Sessions; returns those that were made. A request id that is known raises a unique violation."""
    facts = [write.facts for write in writes if write.facts is not None]
    params: dict[str, object] = {
        "f_time": Ints(fact.create_time for fact in facts),
        "f_labels": Utf8s(encode(fact.labels) for fact in facts),
        "f_facts": Utf8s(encode(fact) for fact in facts),
    }
    arms = _fill(params, _WRITES, writes, epochs, dialect.claim_shards)
    return await _run(conn, dialect.sql(_create(arms)), params)


async def event_append(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Moves Sessions; returns those that were moved."""
    params: dict[str, object] = {
        "s_expected": Ints(write.expected for write in writes),
        "s_unlogged": Ints(write.expected_unlogged for write in writes),
        "s_new_unlogged": Ints(write.new_unlogged for write in writes),
    }
    arms = _fill(params, (*_WRITES, _DELETION), writes, epochs, dialect.claim_shards)
    return await _run(conn, dialect.sql(_append(arms)), params)


def shard_of(session_id: str, shards: int) -> int:
    """The shard of a Session, from the randomness of its id."""
    return int.from_bytes(session_id[-4:].encode()) % shards


def _fill(
    params: dict[str, object],
    arms: Iterable[_Arm],
    writes: list[SessionWrite],
    epochs: dict[str, int],
    shards: int,
) -> tuple[_Arm, ...]:
    """Adds the parameters of a batch; returns the arms that it needs."""
    params["w_id"] = Texts(epochs)
    params["w_epoch"] = Ints(epochs.values())
    params["s_id"] = Texts(write.session_id for write in writes)
    params["s_ws"] = Texts(write.workspace_id for write in writes)
    params["s_head"] = Ints(write.new_head for write in writes)
    params["s_status"] = Texts(write.status for write in writes)
    params["s_state"] = Utf8s(write.state for write in writes)
    needed: list[_Arm] = []
    for arm in arms:
        rows = [(write.session_id, *row) for write in writes for row in arm.rows(write, shards)]
        if rows:
            needed.append(arm)
            for (name, kind), values in zip(arm.columns, zip(*rows, strict=True), strict=True):
                params[name] = kind(values)
    return tuple(needed)


async def _run(conn: Connection, sql: LiteralString, params: dict[str, object]) -> set[str]:
    query, names = positional(sql)
    cursor = RawBinaryCursor(conn)
    await cursor.execute(query, [params[name] for name in names], prepare=True)
    return {row[0] for row in await cursor.fetchall()}
