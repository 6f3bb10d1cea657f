"""Runs and attempts as they stand."""

from typing import LiteralString

from turnlog_server.domain.session import Attempt, Run
from turnlog_server.store.codec import attempt_of, run_of
from turnlog_server.store.database import Database

RUN_GET: LiteralString = """
SELECT r.run
  FROM runs r
  JOIN sessions s ON s.session_id = r.session_id
 WHERE r.session_id = %(session)s::text AND r.run_id = %(run)s::text AND s.workspace_id = %(ws)s::text"""

RUN_LIST: LiteralString = """
SELECT r.run
  FROM runs r
 WHERE r.session_id = %(session)s::text AND r.trigger_seq < %(before)s::int8
 ORDER BY r.trigger_seq DESC
 LIMIT %(count)s::int8"""

ATTEMPT_LIST: LiteralString = """
SELECT a.attempt
  FROM run_attempts a
 WHERE a.session_id = %(session)s::text AND a.run_id = %(run)s::text AND a.attempt_no > %(after)s::int8
 ORDER BY a.attempt_no
 LIMIT %(count)s::int8"""

# Why a Run is still pending: whether anybody could take it at all.
RUNNER_COUNT: LiteralString = """
SELECT count(*) FILTER (WHERE r.lease_expires_at > now()),
       count(*) FILTER (WHERE r.lease_expires_at > now() AND NOT r.draining AND r.hello LIKE %(pool)s::text),
       count(*) FILTER (WHERE r.lease_expires_at > now() AND NOT r.draining AND r.hello LIKE %(pool)s::text
                          AND r.hello LIKE %(profile)s::text)
  FROM runners r
 WHERE r.workspace_id = %(ws)s::text"""


class Runs:
    """Reads of Runs, through the pool."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, workspace_id: str, session_id: str, run_id: str, deadline: float | None = None) -> Run | None:
        """One Run; None where the workspace has it not."""
        params = {"ws": workspace_id, "session": session_id, "run": run_id}
        rows = await self._db.read("run_get", RUN_GET, params, deadline=deadline)
        return run_of(rows[0][0]) if rows else None

    async def page(self, session_id: str, before: int, count: int, deadline: float | None = None) -> list[Run]:
        """Newest first, those that were triggered before this seq."""
        params = {"session": session_id, "before": before, "count": count}
        rows = await self._db.read("run_list", RUN_LIST, params, deadline=deadline)
        return [run_of(row[0]) for row in rows]

    async def attempts(
        self, session_id: str, run_id: str, after: int, count: int, deadline: float | None = None
    ) -> list[Attempt]:
        """Oldest first, those after this number."""
        params = {"session": session_id, "run": run_id, "after": after, "count": count}
        rows = await self._db.read("attempt_list", ATTEMPT_LIST, params, deadline=deadline)
        return [attempt_of(row[0]) for row in rows]

    async def runners(self, workspace_id: str, pool: str, profile_id: str) -> tuple[int, int, int]:
        """Connected runners: all; of the pool; of the pool and serving the harness profile."""
        params = {"ws": workspace_id, "pool": f'%"{pool}"%', "profile": f'%"{profile_id}"%'}
        return (await self._db.read("runner_count", RUNNER_COUNT, params))[0]  # type: ignore[return-value]
