"""The texts of the log statement.

A statement is put together from one arm for each table, and only from those that a batch has rows for: each takes time
of the server and of the driver even where it writes nothing, and most batches need few. For one Session there is a form
of its own, without arrays where a table gets one row; it is what a lone caller waits for. More forms than these would
each be prepared on each connection.

Parameters are named after their arm and their column: `ev_seq`.
"""

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, LiteralString, NamedTuple

from turnlog_server.store import arrays


class Kind(NamedTuple):
    """A type of the database with the binary form of a value, and of an array of values."""

    sql: LiteralString
    one: Callable[[Any], bytes]
    many: Callable[[Collection[Any]], bytes]


TEXT: Final = Kind("text", str.encode, arrays.texts)
NAME: Final = Kind("text", str.encode, arrays.names)
UTF8: Final = Kind("text", bytes, arrays.utf8s)
BYTEA: Final = Kind("bytea", bytes, arrays.blobs)
INT8: Final = Kind("int8", struct.Struct(">q").pack, arrays.ints)

_KINDS: Final = {"": TEXT, "name": NAME, "utf8": UTF8, "bytea": BYTEA, "int8": INT8}


class Column(NamedTuple):
    """name: that of the table. param: that of the placeholder."""

    name: LiteralString
    param: LiteralString
    kind: Kind


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One table's part of the log statement.

    into: the table, with the column that holds the Session's id ahead of the columns.
    columns: the others, in the order of their values.
    conflict: what becomes of a row that is there.
    """

    name: LiteralString
    into: LiteralString
    columns: tuple[Column, ...]
    conflict: LiteralString = ""

    def batch(self) -> LiteralString:
        """Rows of several Sessions, of which those count whose head moved."""
        # `(x IN (…)) IS TRUE` keeps the planner from a nested loop over the batch: it hashes the batch instead.
        names: LiteralString = ", ".join(["session_id", *[column.name for column in self.columns]])
        picked: LiteralString = ", ".join(["x.session_id", *["x." + column.name for column in self.columns]])
        given = [Column("session_id", self.name + "_session_id", NAME), *self.columns]
        arrays: LiteralString = ", ".join([_array(column.param, column.kind) for column in given])
        source: LiteralString = "FROM unnest(" + arrays + ")\n      AS x(" + names + ")\n   WHERE "
        return self._insert(picked, source + "(x.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE")

    def lone(self, *, many: bool) -> LiteralString:
        """One row, or many, of the one Session that there is."""
        if not many:
            values: list[LiteralString] = [_value(column.param, column.kind) for column in self.columns]
            return self._insert(", ".join(["m.session_id", *values]), "FROM moved m")
        names: LiteralString = ", ".join([column.name for column in self.columns])
        picked: LiteralString = ", ".join(["m.session_id", *["x." + column.name for column in self.columns]])
        arrays: LiteralString = ", ".join([_array(column.param, column.kind) for column in self.columns])
        return self._insert(picked, "FROM moved m CROSS JOIN unnest(" + arrays + ")\n      AS x(" + names + ")")

    def _insert(self, picked: LiteralString, source: LiteralString) -> LiteralString:
        columns: LiteralString = "".join([", " + column.name for column in self.columns])
        insert: LiteralString = "  INSERT INTO " + self.into + columns + ")\n  SELECT " + picked + "\n    " + source
        return "\n" + self.name + " AS (\n" + insert + self.conflict + "),"


def _array(param: LiteralString, kind: Kind) -> LiteralString:
    return "%(" + param + ")s::" + kind.sql + "[]"


def _value(param: LiteralString, kind: Kind) -> LiteralString:
    return "%(" + param + ")s::" + kind.sql


def _arm(name: LiteralString, into: LiteralString, columns: LiteralString, conflict: LiteralString = "") -> Arm:
    """Columns by name; behind a colon the type where it is not text."""
    parted = [column.partition(":") for column in columns.split()]
    return Arm(
        name, into, tuple(Column(column, name + "_" + column, _KINDS[kind]) for column, _, kind in parted), conflict
    )


EVENTS: Final = _arm("ev", "events (session_id", "seq:int8 type:name body:bytea")
# Its own table's name for the Session is what the request made or changed.
REQUESTS: Final = _arm(
    "rq", "request_ids (resource_id", "scope caller method request_id fingerprint:bytea seq:int8 event_id run_id"
)
RUNS: Final = _arm(
    "ru",
    "runs (session_id",
    "run_id trigger_seq:int8 status run:utf8",
    "\n  ON CONFLICT (session_id, run_id) DO UPDATE SET status = excluded.status, run = excluded.run",
)
ATTEMPTS: Final = _arm(
    "ra",
    "run_attempts (session_id",
    "run_id attempt_no:int8 attempt:utf8",
    "\n  ON CONFLICT (session_id, run_id, attempt_no) DO UPDATE SET attempt = excluded.attempt",
)
QUEUE: Final = _arm(
    "qu",
    "run_queue (session_id",
    "shard:int8 workspace_id pool harness_profile_id run_id attempt_no:int8 state runner_id runner_epoch:int8",
    """
  ON CONFLICT (session_id) DO UPDATE SET
    run_id = excluded.run_id, attempt_no = excluded.attempt_no, state = excluded.state, ready_at = now(),
    runner_id = excluded.runner_id, runner_epoch = excluded.runner_epoch, offered_until = NULL""",
)
TIMERS: Final = _arm(
    "ti",
    "timers (session_id",
    "shard:int8 due_at:int8",
    "\n  ON CONFLICT (session_id) DO UPDATE SET due_at = excluded.due_at",
)
# A Session of this is the last of its batch's form: deleting is rare, and has no lone form.
DELETED: Final = _arm("de", "deleted_sessions (session_id", "")

WRITES: Final = (EVENTS, REQUESTS, RUNS, ATTEMPTS, QUEUE, TIMERS)

_ALLOWED: LiteralString = """
allowed AS MATERIALIZED (
  SELECT e.workspace_id
    FROM unnest(%(w_id)s::text[], %(w_epoch)s::int8[]) AS a(workspace_id, epoch)
    JOIN workspace_epochs e ON e.workspace_id = a.workspace_id AND e.acl_epoch = a.epoch),"""

_KNOWN: LiteralString = """
known AS MATERIALIZED (
  SELECT a.session_id
    FROM unnest(%(rq_session_id)s::text[], %(rq_scope)s::text[], %(rq_caller)s::text[], %(rq_method)s::text[],
                %(rq_request_id)s::text[])
      AS a(session_id, scope, caller, method, request_id)
    JOIN request_ids r
      ON r.scope = a.scope AND r.caller = a.caller AND r.method = a.method AND r.request_id = a.request_id),"""

_NOT_KNOWN: LiteralString = """
     AND (w.session_id IN (SELECT k.session_id FROM known k)) IS NOT TRUE"""

_LOCKED: LiteralString = """
want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.expected, w.new_head, w.unlogged, w.new_unlogged
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_expected)s::int8[], %(s_head)s::int8[], %(s_unlogged)s::int8[],
                %(s_new_unlogged)s::int8[])
      AS w(session_id, workspace_id, expected, new_head, unlogged, new_unlogged)),
locked AS MATERIALIZED (
  SELECT h.session_id, w.expected, w.new_head, w.unlogged, w.new_unlogged
    FROM want w
    JOIN session_heads h ON h.session_id = w.session_id AND h.head_seq = w.expected AND h.unlogged = w.unlogged
   WHERE (w.workspace_id IN (SELECT l.workspace_id FROM allowed l)) IS TRUE"""

_MOVED: LiteralString = """
   ORDER BY h.session_id
     FOR UPDATE OF h {head_lock_skip}),
moved AS (
  UPDATE session_heads h SET head_seq = l.new_head, unlogged = l.new_unlogged
    FROM locked l
   WHERE h.session_id = l.session_id AND h.head_seq = l.expected AND h.unlogged = l.unlogged
  RETURNING h.session_id),"""

_STATES_MOVED: LiteralString = """
st AS (
  UPDATE session_states s SET status = n.status, state = n.state
    FROM unnest(%(s_id)s::text[], %(s_status)s::text[], %(s_state)s::text[]) AS n(session_id, status, state)
   WHERE s.session_id = n.session_id AND (n.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE)
SELECT m.session_id FROM moved m"""

_SESSIONS_DELETED: LiteralString = """
go AS (
  DELETE FROM sessions s
   WHERE s.session_id = ANY(%(de_session_id)s::text[])
     AND (s.session_id IN (SELECT m.session_id FROM moved m)) IS TRUE),"""

_MADE: LiteralString = """
want AS MATERIALIZED (
  SELECT w.session_id, w.workspace_id, w.new_head, w.status, w.state, w.create_time, w.labels, w.facts
    FROM unnest(%(s_id)s::text[], %(s_ws)s::text[], %(s_head)s::int8[], %(s_status)s::text[], %(s_state)s::text[],
                %(f_time)s::int8[], %(f_labels)s::text[], %(f_facts)s::text[])
      AS w(session_id, workspace_id, new_head, status, state, create_time, labels, facts)),
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

# Locked before it is written, so that one that is locked elsewhere is absent from the answer, as in a batch: whoever
# waited for the lock would go by a permission epoch of before.
_LONE_LOCKED: LiteralString = """
locked AS MATERIALIZED (
  SELECT h.session_id FROM session_heads h
   WHERE h.session_id = %(s_id)s::text AND h.head_seq = %(s_expected)s::int8 AND h.unlogged = %(s_unlogged)s::int8
     AND EXISTS (SELECT 1 FROM workspace_epochs e
                  WHERE e.workspace_id = %(w_id)s::text AND e.acl_epoch = %(w_epoch)s::int8)"""

_LONE_NOT_KNOWN: LiteralString = """
     AND NOT EXISTS (SELECT 1 FROM request_ids r
                      WHERE r.scope = %(rq_scope)s::text AND r.caller = %(rq_caller)s::text
                        AND r.method = %(rq_method)s::text AND r.request_id = %(rq_request_id)s::text)"""

_LONE_MOVED: LiteralString = """
     FOR UPDATE OF h {head_lock_skip}),
moved AS (
  UPDATE session_heads h SET head_seq = %(s_head)s::int8, unlogged = %(s_new_unlogged)s::int8
    FROM locked l
   WHERE h.session_id = l.session_id AND h.head_seq = %(s_expected)s::int8 AND h.unlogged = %(s_unlogged)s::int8
  RETURNING h.session_id),"""

_LONE_STATE_MOVED: LiteralString = """
st AS (
  UPDATE session_states s SET status = %(s_status)s::text, state = %(s_state)s::text
    FROM moved m
   WHERE s.session_id = m.session_id)
SELECT m.session_id FROM moved m"""

_LONE_MADE: LiteralString = """
moved AS (
  INSERT INTO session_heads (session_id, head_seq)
  SELECT %(s_id)s::text, %(s_head)s::int8 FROM workspace_epochs e
   WHERE e.workspace_id = %(w_id)s::text AND e.acl_epoch = %(w_epoch)s::int8
  RETURNING session_id),"""

_LONE_SESSION_MADE: LiteralString = """
se AS (
  INSERT INTO sessions (session_id, workspace_id, create_time, labels, facts)
  SELECT m.session_id, %(w_id)s::text, %(f_time)s::int8, %(f_labels)s::text::jsonb, %(f_facts)s::text FROM moved m),
st AS (
  INSERT INTO session_states (session_id, status, state)
  SELECT m.session_id, %(s_status)s::text, %(s_state)s::text FROM moved m)
SELECT m.session_id FROM moved m"""


@lru_cache
def append(arms: tuple[Arm, ...]) -> LiteralString:
    """Moves Sessions that exist."""
    known, not_known = (_KNOWN, _NOT_KNOWN) if REQUESTS in arms else ("", "")
    deleted: LiteralString = _SESSIONS_DELETED if DELETED in arms else ""
    moved: LiteralString = "WITH" + _ALLOWED + known + _LOCKED + not_known + _MOVED
    return moved + "".join([arm.batch() for arm in arms]) + deleted + _STATES_MOVED


@lru_cache
def create(arms: tuple[Arm, ...]) -> LiteralString:
    """Makes Sessions. There is no head to compare: the request id has to be new, and the unique key decides that."""
    return "WITH" + _ALLOWED + _MADE + "".join([arm.batch() for arm in arms]) + _SESSIONS_MADE


@lru_cache
def append_one(arms: tuple[Arm, ...], *, many: bool) -> LiteralString:
    """Moves one Session, with one row in each table; many: several events."""
    not_known: LiteralString = _LONE_NOT_KNOWN if REQUESTS in arms else ""
    moved: LiteralString = "WITH" + _LONE_LOCKED + not_known + _LONE_MOVED
    return moved + "".join([arm.lone(many=many and arm is EVENTS) for arm in arms]) + _LONE_STATE_MOVED


@lru_cache
def create_one(arms: tuple[Arm, ...], *, many: bool) -> LiteralString:
    """Makes one Session, as `append_one` moves one."""
    return "WITH" + _LONE_MADE + "".join([arm.lone(many=many and arm is EVENTS) for arm in arms]) + _LONE_SESSION_MADE


# With every arm.
EVENT_APPEND: LiteralString = append((*WRITES, DELETED))
EVENT_APPEND_ONE: LiteralString = append_one(WRITES, many=False)
EVENTS_APPEND_ONE: LiteralString = append_one(WRITES, many=True)
SESSION_CREATE: LiteralString = create(WRITES)
SESSION_CREATE_ONE: LiteralString = create_one(WRITES, many=False)
SESSION_CREATE_ONE_TURN: LiteralString = create_one(WRITES, many=True)
