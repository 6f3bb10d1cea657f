"""Everything that is stored of Sessions, page by page, for whoever compares it with the logs."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import LiteralString

from turnlog_server.domain.session import Attempt, Run, SessionFacts, SessionState
from turnlog_server.store.codec import attempt_of, facts_of, run_of, state_of
from turnlog_server.store.database import Database
from turnlog_server.store.log import QueueRow

SESSIONS_PAGE = 200
ROWS_PAGE = 500
EVENTS_PAGE = 200

_SESSION: LiteralString = """
SELECT h.session_id, h.head_seq, s.workspace_id, s.create_time, s.facts, t.status, t.state,
       q.workspace_id, q.pool, q.harness_profile_id, q.run_id, q.attempt_no, q.state, q.runner_id, i.due_at
  FROM session_heads h
  LEFT JOIN sessions s ON s.session_id = h.session_id
  LEFT JOIN session_states t ON t.session_id = h.session_id
  LEFT JOIN run_queue q ON q.session_id = h.session_id
  LEFT JOIN timers i ON i.session_id = h.session_id"""

SESSION_SCAN: LiteralString = (
    _SESSION
    + """
 WHERE h.session_id > %(after)s::text
 ORDER BY h.session_id
 LIMIT %(count)s::int8"""
)

SESSION_ROWS: LiteralString = _SESSION + " WHERE h.session_id = %(id)s::text"

EVENT_SCAN: LiteralString = """
SELECT e.seq, e.type, e.body FROM events e
 WHERE e.session_id = %(id)s::text AND e.seq > %(after)s::int8
 ORDER BY e.seq
 LIMIT %(count)s::int8"""

RUN_SCAN: LiteralString = """
SELECT r.run_id, r.trigger_seq, r.status, r.run FROM runs r
 WHERE r.session_id = %(id)s::text AND r.run_id > %(after)s::text
 ORDER BY r.run_id
 LIMIT %(count)s::int8"""

ATTEMPT_SCAN: LiteralString = """
SELECT a.run_id, a.attempt_no, a.attempt FROM run_attempts a
 WHERE a.session_id = %(id)s::text AND (a.run_id, a.attempt_no) > (%(after)s::text, %(after_no)s::int8)
 ORDER BY a.run_id, a.attempt_no
 LIMIT %(count)s::int8"""

REQUEST_SCAN: LiteralString = """
SELECT r.caller, r.method, r.request_id, r.seq, r.event_id FROM request_ids r
 WHERE r.scope = %(id)s::text
   AND (r.caller, r.method, r.request_id) > (%(caller)s::text, %(method)s::text, %(request)s::text)
 ORDER BY r.caller, r.method, r.request_id
 LIMIT %(count)s::int8"""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """The rows of one Session, but for those that there are many of. None for a row that is missing.

    head_seq: negative for a Session that was deleted.
    """

    session_id: str
    head_seq: int
    workspace_id: str | None
    create_time: int | None
    facts: SessionFacts | None
    status: str | None
    state: SessionState | None
    queue: QueueRow | None
    due_at: int | None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A row of `runs`."""

    run_id: str
    trigger_seq: int
    status: str
    run: Run


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """What is remembered of a request in a Session: the event that it became, seq 0 for none."""

    request_id: str
    seq: int
    event_id: str


class StoredLogs:
    """Reads through the pool; nothing is locked, so what others write meanwhile may be seen or not."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def sessions(self) -> AsyncIterator[StoredSession]:
        """All of them, by id."""
        after = ""
        while True:
            params = {"after": after, "count": SESSIONS_PAGE}
            rows = await self._db.read("session_scan", SESSION_SCAN, params)
            for row in rows:
                yield _session(*row)
            if len(rows) < SESSIONS_PAGE:
                return
            after = rows[-1][0]

    async def session(self, session_id: str) -> StoredSession | None:
        """One of them, as it is now."""
        rows = await self._db.read("session_scan", SESSION_ROWS, {"id": session_id})
        return _session(*rows[0]) if rows else None

    async def events(self, session_id: str) -> AsyncIterator[tuple[int, str, bytes]]:
        """seq, type and body, in order."""
        after = 0
        while True:
            params = {"id": session_id, "after": after, "count": EVENTS_PAGE}
            rows = await self._db.read("event_scan", EVENT_SCAN, params)
            for seq, kind, body in rows:
                yield seq, kind, body
            if len(rows) < EVENTS_PAGE:
                return
            after = rows[-1][0]

    async def runs(self, session_id: str) -> AsyncIterator[StoredRun]:
        """By id."""
        after = ""
        while True:
            rows = await self._db.read("run_scan", RUN_SCAN, {"id": session_id, "after": after, "count": ROWS_PAGE})
            for run_id, trigger_seq, status, run in rows:
                yield StoredRun(run_id, trigger_seq, status, run_of(run))
            if len(rows) < ROWS_PAGE:
                return
            after = rows[-1][0]

    async def attempts(self, session_id: str) -> AsyncIterator[tuple[str, Attempt]]:
        """With the id of their Run."""
        after, number = "", 0
        while True:
            params = {"id": session_id, "after": after, "after_no": number, "count": ROWS_PAGE}
            rows = await self._db.read("attempt_scan", ATTEMPT_SCAN, params)
            for run_id, _, attempt in rows:
                yield run_id, attempt_of(attempt)
            if len(rows) < ROWS_PAGE:
                return
            after, number, _ = rows[-1]

    async def requests(self, session_id: str) -> AsyncIterator[StoredRequest]:
        """Those that were made to this Session."""
        caller = method = request = ""
        while True:
            params = {"id": session_id, "caller": caller, "method": method, "request": request, "count": ROWS_PAGE}
            rows = await self._db.read("request_scan", REQUEST_SCAN, params)
            for row in rows:
                yield StoredRequest(row[2], row[3], row[4])
            if len(rows) < ROWS_PAGE:
                return
            caller, method, request = rows[-1][:3]


def _session(
    session_id: str,
    head_seq: int,
    workspace_id: str | None,
    create_time: int | None,
    facts: str | None,
    status: str | None,
    state: str | None,
    *rest: object,
) -> StoredSession:
    *queue, due_at = rest
    return StoredSession(
        session_id,
        head_seq,
        workspace_id,
        create_time,
        facts_of(facts) if facts is not None else None,
        status,
        state_of(state) if state is not None else None,
        QueueRow(*queue) if queue[0] is not None else None,  # type: ignore[arg-type]
        due_at,  # type: ignore[arg-type]
    )
