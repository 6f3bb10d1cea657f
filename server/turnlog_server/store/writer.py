"""The lane's connection: reads states, writes batches, and finds out what became of a batch whose answer was lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString, TypeVar

import psycopg
import structlog

from turnlog_server.store.arrays import Texts
from turnlog_server.store.connections import Connection, patience, unavailable
from turnlog_server.store.database import Database
from turnlog_server.store.errors import (
    DROPS_CONNECTION,
    ErrorClass,
    Phase,
    StoreFault,
    classify,
    constraint_of,
    sqlstate_of,
)
from turnlog_server.store.log import RequestRow, SessionWrite, event_append, session_create
from turnlog_server.store.observer import SilentObserver, StoreObserver
from turnlog_server.store.sessions import Stored, epoch_read, event_matches, session_read

T = TypeVar("T")
RequestKey = tuple[str, str, str, str]

log = structlog.get_logger(__name__)

# A Session that is made has a head nobody else can have made: it is there when an earlier try landed after all.
REPLAY_KEYS = ("request_ids_pkey", "session_heads_pkey")

REQUEST_READ: LiteralString = """
SELECT r.scope, r.caller, r.method, r.request_id, r.fingerprint, r.resource_id, r.seq, r.event_id, r.run_id
  FROM unnest(%(scopes)s::text[], %(callers)s::text[], %(methods)s::text[], %(ids)s::text[])
    AS w(scope, caller, method, request_id)
  JOIN request_ids r
    ON r.scope = w.scope AND r.caller = w.caller AND r.method = w.method AND r.request_id = w.request_id"""


class Outcome(StrEnum):
    """What became of a batch.

    DONE: committed; `moved` tells which Sessions. KNOWN: nothing was written, for a request id is in the log already.
    CONFLICT: nothing was written; try again. UNKNOWN: written whole or not at all, look before you try again.
    """

    DONE = "done"
    KNOWN = "known"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of one statement."""

    outcome: Outcome
    moved: frozenset[str] = frozenset()


class LogWriter:
    """One connection of its own, replaced whenever it is lost. Used by one task at a time."""

    def __init__(self, db: Database, observer: StoreObserver | None = None) -> None:
        self._db = db
        self._observer = observer or SilentObserver()
        self._conn: Connection | None = None
        self.dialect = db.dialect

    async def close(self) -> None:
        """Closes the connection."""
        if self._conn is not None:
            await self._conn.close()

    async def sessions(self, session_ids: Sequence[str]) -> dict[str, Stored]:
        """The Sessions that exist."""
        return await self._read(lambda conn: session_read(conn, session_ids))

    async def matching(self, wanted: Sequence[tuple[str, int, bytes]]) -> list[int]:
        """Of (session_id, seq, body), the places of those that stand in a log just so."""
        return await self._read(lambda conn: event_matches(conn, wanted))

    async def epochs(self, workspace_ids: Sequence[str]) -> dict[str, int]:
        """The permission epochs of these workspaces."""
        return await self._read(lambda conn: epoch_read(conn, workspace_ids))

    async def requests(self, keys: Sequence[RequestKey]) -> dict[RequestKey, RequestRow]:
        """Of these request ids, those that were accepted before."""
        params = {
            "scopes": Texts(key[0] for key in keys),
            "callers": Texts(key[1] for key in keys),
            "methods": Texts(key[2] for key in keys),
            "ids": Texts(key[3] for key in keys),
        }

        async def find(conn: Connection) -> dict[RequestKey, RequestRow]:
            cursor = await conn.execute(REQUEST_READ, params)
            rows = [RequestRow(*row) for row in await cursor.fetchall()]
            return {(row.scope, row.caller, row.method, row.request_id): row for row in rows}

        return await self._read(find)

    async def create(self, writes: list[SessionWrite], epochs: dict[str, int]) -> Written:
        """Makes Sessions."""
        return await self._write("session_create", lambda conn: session_create(conn, self.dialect, writes, epochs))

    async def append(self, writes: list[SessionWrite], epochs: dict[str, int]) -> Written:
        """Moves Sessions."""
        return await self._write("event_append", lambda conn: event_append(conn, self.dialect, writes, epochs))

    async def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed:
            self._conn = await self._db.connect("lane")
        return self._conn

    async def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    async def _read(self, run: Callable[[Connection], Awaitable[T]]) -> T:
        """Raises Refusal(STORE_UNAVAILABLE) when no new connection helped either."""
        for attempt in range(10):
            conn = await self._connection()
            try:
                with patience(conn):
                    return await run(conn)
            except psycopg.Error as exc:
                kind = classify(exc, Phase.READ)
                self._observer.failed("lane_read", kind)
                if kind is ErrorClass.FATAL:
                    raise StoreFault("lane_read", sqlstate_of(exc), constraint_of(exc)) from exc
                if attempt == 9:
                    raise unavailable() from exc
                await self._after(kind, attempt)
        raise AssertionError("unreachable")

    async def _write(self, op: str, run: Callable[[Connection], Awaitable[set[str]]]) -> Written:
        conn = await self._connection()
        try:
            with patience(conn):
                return Written(Outcome.DONE, frozenset(await run(conn)))
        except psycopg.Error as exc:
            kind = classify(exc, Phase.COMMITTING, REPLAY_KEYS)
            self._observer.failed(op, kind)
            if kind is ErrorClass.REPLAY:
                return Written(Outcome.KNOWN)
            if kind is ErrorClass.FATAL:
                raise StoreFault(op, sqlstate_of(exc), constraint_of(exc)) from exc
            await self._after(kind, 0)
            if kind is ErrorClass.AMBIGUOUS:
                self._observer.commit_unknown(op)
                log.warning("the outcome of a batch is unknown", op=op, sqlstate=sqlstate_of(exc))
                return Written(Outcome.UNKNOWN)
            return Written(Outcome.CONFLICT)
        except BaseException:
            # Cancelled in the middle: whatever is on this connection, nobody can tell any more.
            await self._drop()
            raise

    async def _after(self, kind: ErrorClass, attempt: int) -> None:
        if kind in DROPS_CONNECTION:
            await self._drop()
        await asyncio.sleep(random.uniform(0, min(1.0, 0.005 * 2**attempt)))
