"""What a failure of the database means: may it be tried again, on which connection, and was anything applied?

The answer depends on three things only: the SQLSTATE, the constraint that was violated, and what was in flight when it
happened. Message texts are never read. A connection that dies before COMMIT was sent has applied nothing; one that
dies with COMMIT in flight has applied everything or nothing, and nobody knows which.
"""

from collections.abc import Collection
from enum import StrEnum

import psycopg


class Phase(StrEnum):
    """What is in flight."""

    BORROW = "borrow"  # a connection is awaited; nothing was sent
    READ = "read"  # a statement that changes nothing
    BODY = "body"  # inside an explicit transaction, COMMIT not yet sent
    COMMITTING = "committing"  # COMMIT, or a write that commits by itself, or a pipeline that holds either
    DONE = "done"


class ErrorClass(StrEnum):
    """What to do about a failure."""

    RETRY = "retry"  # not applied; roll back and run again
    REPLAY = "replay"  # applied once, by whoever was first with this key; read what it made
    RESET = "reset"  # not applied; run again on another connection
    AMBIGUOUS = "ambiguous"  # unknown; run the same again, with the same key, on another connection
    BUSY = "busy"  # not applied; somebody holds a lock for long; a few more tries
    BACKOFF = "backoff"  # not applied; the server is short of something; wait longer
    FATAL = "fatal"  # not applied; no try will help


RETRIED = frozenset({ErrorClass.RETRY, ErrorClass.RESET, ErrorClass.AMBIGUOUS, ErrorClass.BUSY, ErrorClass.BACKOFF})
"""Classes after which the operation is run again."""

DROPS_CONNECTION = frozenset({ErrorClass.RESET, ErrorClass.AMBIGUOUS})
"""Classes after which the connection is not used again."""

UNIQUE_VIOLATION = "23505"

CONFLICTS = frozenset({"40001", "40P01", "CR000"})
"""Serialisation failure, deadlock, and CockroachDB's older code for the first. Nothing was applied, at COMMIT too."""

UNKNOWN_RESULTS = frozenset({"40003", "08007"})
"""The server itself says that it does not know."""

STALE_PLANS = frozenset({"0A000", "26000"})
"""A prepared statement whose tables changed, or which a pooler forgot. A new connection cures it, or nothing does."""

LOST = frozenset(
    {
        "57P01",  # the server shuts down, or an operator ended the session
        "57P02",  # it crashed
        "57P03",  # it starts
        "57P05",  # the session was idle for too long
        "25P03",  # the transaction was idle for too long
        "25P04",  # the transaction took too long
        "25006",  # what was the primary is a standby now
        "58C00",  # CockroachDB: a range is unavailable
        "58C01",  # CockroachDB: a connection between nodes failed
        "XXUUU",  # CockroachDB: an error without a code
    }
)
"""The connection, or the node behind it, is of no more use."""


class StoreSetupError(Exception):
    """The database cannot be used as it is. The message is one sentence for the operator."""


class StoreFault(Exception):
    """The database refused a statement and no further try will help: a mistake of ours, or a key that is taken.

    Never shown to a caller: what a noun expects, it catches; the rest is an internal error.
    """

    def __init__(self, op: str, sqlstate: str | None, constraint: str | None, *, after_unknown: bool = False) -> None:
        super().__init__(f"{op}: the database refused the statement ({sqlstate or 'no code'}, {constraint or '-'})")
        self.op = op
        self.sqlstate = sqlstate
        self.constraint = constraint
        # An earlier attempt of the same operation may have been applied: this fault may be its own echo.
        self.after_unknown = after_unknown


class Duplicate(StoreFault):
    """A unique key is taken. `constraint` names it: the key of a request id means replay, another one a conflict."""


def sqlstate_of(exc: BaseException) -> str | None:
    """The code that the server gave, if it gave one."""
    return exc.sqlstate if isinstance(exc, psycopg.Error) else None


def constraint_of(exc: BaseException) -> str | None:
    """The constraint that a statement violated."""
    return exc.diag.constraint_name if isinstance(exc, psycopg.Error) else None


def is_lost(exc: BaseException) -> bool:
    """Whether this is the sign of a connection or a node that is gone."""
    if not isinstance(exc, psycopg.Error):
        return False
    code = exc.sqlstate
    if code is None:
        return isinstance(exc, psycopg.OperationalError)
    return code in LOST or code[:2] == "08"


def classify(exc: BaseException, phase: Phase, replay_keys: Collection[str] = ()) -> ErrorClass:
    """What a failure means.

    replay_keys: the unique constraints whose violation says that this very operation was carried out before.
    """
    code = sqlstate_of(exc)
    committing = phase is Phase.COMMITTING
    if not isinstance(exc, psycopg.Error):
        # Cancelled, timed out, or a mistake of ours: with COMMIT in flight it settles nothing.
        return ErrorClass.AMBIGUOUS if committing else ErrorClass.FATAL
    if code in CONFLICTS:
        return ErrorClass.RETRY
    if code == UNIQUE_VIOLATION:
        return ErrorClass.REPLAY if constraint_of(exc) in replay_keys else ErrorClass.FATAL
    if code in UNKNOWN_RESULTS:
        # Only a write can be half known; a statement inside a transaction falls with the transaction.
        return ErrorClass.AMBIGUOUS if committing else ErrorClass.RESET
    if code in STALE_PLANS:
        return ErrorClass.RESET
    if is_lost(exc):
        return ErrorClass.AMBIGUOUS if committing else ErrorClass.RESET
    if code == "57014":
        return ErrorClass.AMBIGUOUS if committing else ErrorClass.BUSY
    if code == "55P03":
        return ErrorClass.BUSY
    if code is not None and code[:2] == "53":
        return ErrorClass.AMBIGUOUS if committing else ErrorClass.BACKOFF
    return ErrorClass.FATAL
