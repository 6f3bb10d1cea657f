"""The log statement: a batch of Sessions, each moved by a compare on its head, in one statement and one commit.

Every arm is joined to the heads that moved. A Session whose head moved meanwhile, that is locked elsewhere, whose
request id is known or whose workspace's permissions changed is absent from the answer, and nothing of it is written.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, LiteralString, NamedTuple

from turnlog_server.domain.session import SessionFacts
from turnlog_server.store import log_sql, prepared
from turnlog_server.store.codec import encode
from turnlog_server.store.connections import Connection, positional
from turnlog_server.store.dialect import Dialect
from turnlog_server.store.log_sql import INT8, NAME, TEXT, UTF8, Arm, Kind

DELETED = -1
"""The head of a Session that was deleted: no compare of a stale reader can succeed on it."""


class RequestRow(NamedTuple):
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


_QUEUE_COLUMNS = attrgetter(
    "workspace_id", "pool", "harness_profile_id", "run_id", "attempt_no", "state", "runner_id", "runner_epoch"
)

Rows = Iterable[Sequence[Any]]

# What a Session adds to each table, from the number of shards.
_ROWS: Final[dict[Arm, Callable[[SessionWrite, int], Rows]]] = {
    log_sql.EVENTS: lambda write, _: write.events,
    log_sql.REQUESTS: lambda write, _: [(*row[:5], *row[6:]) for row in write.requests],
    log_sql.RUNS: lambda write, _: write.runs,
    log_sql.ATTEMPTS: lambda write, _: write.attempts,
    log_sql.QUEUE: lambda write, shards: (
        [(shard_of(write.session_id, shards), *_QUEUE_COLUMNS(write.queue))] if write.queue is not None else ()
    ),
    log_sql.TIMERS: lambda write, shards: (
        [(shard_of(write.session_id, shards), write.due_at)] if write.due_at is not None else ()
    ),
    log_sql.DELETED: lambda write, _: ((),) if write.deleted else (),
}

# Of each Session: the parameter, its type, and the value.
_MOVES: Final[tuple[tuple[str, Kind, Callable[[SessionWrite], Any]], ...]] = (
    ("s_id", TEXT, attrgetter("session_id")),
    ("s_head", INT8, attrgetter("new_head")),
    ("s_status", TEXT, attrgetter("status")),
    ("s_state", UTF8, attrgetter("state")),
    ("s_expected", INT8, attrgetter("expected")),
    ("s_unlogged", INT8, attrgetter("expected_unlogged")),
    ("s_new_unlogged", INT8, attrgetter("new_unlogged")),
)
_MAKES: Final[tuple[tuple[str, Kind, Callable[[SessionWrite], Any]], ...]] = (
    *_MOVES[:4],
    ("f_time", INT8, attrgetter("facts.create_time")),
    ("f_labels", UTF8, lambda write: encode(write.facts.labels if write.facts else {})),
    ("f_facts", UTF8, lambda write: encode(write.facts)),
)


async def session_create(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Makes Sessions; returns those that were made. A request id that is known raises a unique violation."""
    return await _write(conn, dialect, writes, epochs, _MAKES, log_sql.create_one, log_sql.create)


async def event_append(
    conn: Connection, dialect: Dialect, writes: list[SessionWrite], epochs: dict[str, int]
) -> set[str]:
    """Moves Sessions; returns those that were moved."""
    return await _write(conn, dialect, writes, epochs, _MOVES, log_sql.append_one, log_sql.append)


def shard_of(session_id: str, shards: int) -> int:
    """The shard of a Session, from the randomness of its id."""
    return int.from_bytes(session_id[-4:].encode()) % shards


def _lone(writes: list[SessionWrite]) -> bool:
    """Whether there is a form of its own for this: one Session, with one row in each table, or several events."""
    if len(writes) != 1 or writes[0].deleted:
        return False
    write = writes[0]
    return len(write.requests) <= 1 and len(write.runs) <= 1 and len(write.attempts) <= 1


Params = dict[str, bytes]
Fields = Collection[tuple[str, Kind, Callable[[SessionWrite], Any]]]


def _one(write: SessionWrite, epochs: dict[str, int], fields: Fields, shards: int) -> tuple[Params, tuple[Arm, ...]]:
    """The parameters of a single Session, and the arms that it needs."""
    params = {name: kind.one(value(write)) for name, kind, value in fields}
    params["w_id"] = TEXT.one(write.workspace_id)
    params["w_epoch"] = INT8.one(epochs[write.workspace_id])
    needed: list[Arm] = []
    for arm, rows_of in _ROWS.items():
        rows = [*rows_of(write, shards)]
        if not rows:
            continue
        needed.append(arm)
        if len(rows) == 1:
            for (_, param, kind), value in zip(arm.columns, rows[0], strict=True):
                params[param] = kind.one(value)
        else:
            for (_, param, kind), values in zip(arm.columns, zip(*rows, strict=True), strict=True):
                params[param] = kind.many(values)
    return params, tuple(needed)


def _batch(
    writes: list[SessionWrite], epochs: dict[str, int], fields: Fields, shards: int
) -> tuple[Params, tuple[Arm, ...]]:
    """The parameters of several, and the arms that they need."""
    params = {name: kind.many([value(write) for write in writes]) for name, kind, value in fields}
    params["s_ws"] = TEXT.many([write.workspace_id for write in writes])
    params["w_id"] = TEXT.many(epochs)
    params["w_epoch"] = INT8.many(epochs.values())
    needed: list[Arm] = []
    for arm, rows_of in _ROWS.items():
        rows = [(write.session_id, *row) for write in writes for row in rows_of(write, shards)]
        if not rows:
            continue
        needed.append(arm)
        ids, *columns = zip(*rows, strict=True)
        params[arm.name + "_session_id"] = NAME.many(ids)
        for (_, param, kind), values in zip(arm.columns, columns, strict=True):
            params[param] = kind.many(values)
    return params, tuple(needed)


async def _write(
    conn: Connection,
    dialect: Dialect,
    writes: list[SessionWrite],
    epochs: dict[str, int],
    fields: Fields,
    lone: Callable[..., LiteralString],
    batch: Callable[[tuple[Arm, ...]], LiteralString],
) -> set[str]:
    """Runs the form of the statement that these writes need; returns the Sessions that were written."""
    if _lone(writes):
        params, arms = _one(writes[0], epochs, fields, dialect.claim_shards)
        sql = lone(arms, many=len(writes[0].events) > 1)
    else:
        params, arms = _batch(writes, epochs, fields, dialect.claim_shards)
        sql = batch(arms)
    query, names = positional(dialect.sql(sql))
    result = await prepared.execute(conn, query, [params[name] for name in names])
    return {(result.get_value(row, 0) or b"").decode() for row in range(result.ntuples)}
