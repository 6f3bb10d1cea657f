"""What has to be looked at again and again: due timers, rows of deleted Sessions, old request ids, other replicas."""

from typing import LiteralString

from turnlog_server.store.arrays import Ints, Texts
from turnlog_server.store.database import Database

TIMER_DUE: LiteralString = """
SELECT t.session_id
  FROM timers t
 WHERE t.shard = ANY(%(shards)s::int8[]) AND t.due_at > 0
   AND t.due_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::int8
 ORDER BY t.shard, t.due_at, t.session_id
 LIMIT %(count)s::int8"""

TIMER_NEXT: LiteralString = """
SELECT (min(n.due_at) - extract(epoch FROM clock_timestamp()) * 1000000)::float8 / 1000000::float8
  FROM (SELECT t.due_at FROM timers t
         WHERE t.shard = ANY(%(shards)s::int8[]) AND t.due_at > 0
         ORDER BY t.shard, t.due_at LIMIT 1) n"""

DELETED_LIST: LiteralString = """
SELECT d.session_id FROM deleted_sessions d ORDER BY d.session_id LIMIT %(count)s::int8"""

DELETED_EVENTS: LiteralString = """
DELETE FROM events e
 WHERE e.session_id = %(id)s::text
   AND e.seq IN (SELECT v.seq FROM events v WHERE v.session_id = %(id)s::text ORDER BY v.seq LIMIT 1000)
RETURNING e.seq"""

DELETED_RUNS: LiteralString = "DELETE FROM runs r WHERE r.session_id = %(id)s::text"
DELETED_ATTEMPTS: LiteralString = "DELETE FROM run_attempts a WHERE a.session_id = %(id)s::text"
DELETED_STATE: LiteralString = "DELETE FROM session_states s WHERE s.session_id = %(id)s::text"
DELETED_QUEUE: LiteralString = "DELETE FROM run_queue q WHERE q.session_id = %(id)s::text"
DELETED_TIMER: LiteralString = "DELETE FROM timers t WHERE t.session_id = %(id)s::text"
DELETED_HEAD: LiteralString = "DELETE FROM session_heads h WHERE h.session_id = %(id)s::text"
DELETED_DONE: LiteralString = "DELETE FROM deleted_sessions d WHERE d.session_id = %(id)s::text"

REQUEST_SWEEP: LiteralString = """
DELETE FROM request_ids r
 WHERE (r.scope, r.caller, r.method, r.request_id) IN (
   SELECT o.scope, o.caller, o.method, o.request_id
     FROM request_ids o
    WHERE o.accept_time < now() - %(hours)s::float8 * interval '1 hour'
    ORDER BY o.accept_time
    LIMIT 1000)
RETURNING r.request_id"""

REPLICA_SAY: LiteralString = """
INSERT INTO replicas (replica_id, expires_at)
VALUES (%(id)s::text, now() + %(ttl)s::float8 * interval '1 second')
ON CONFLICT (replica_id) DO UPDATE SET expires_at = excluded.expires_at"""

REPLICA_OTHERS: LiteralString = """
SELECT r.replica_id, r.expires_at > now() FROM replicas r WHERE r.replica_id <> %(id)s::text ORDER BY r.replica_id"""

REPLICA_GO: LiteralString = "DELETE FROM replicas r WHERE r.replica_id = ANY(%(ids)s::text[])"


class Sweeps:
    """Bounded looks, each of which may be repeated by any replica."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._shards = Ints(range(db.dialect.claim_shards))

    async def due(self, count: int) -> list[str]:
        """Sessions with a timer that is due, by the database's clock."""
        rows = await self._db.read("timer_due", TIMER_DUE, {"shards": self._shards, "count": count})
        return [row[0] for row in rows]

    async def next_due(self) -> float | None:
        """Seconds until the next timer; None when there is none."""
        rows = await self._db.read("timer_next", TIMER_NEXT, {"shards": self._shards})
        return rows[0][0] if rows else None

    async def deleted(self, count: int) -> list[str]:
        """Sessions whose rows still have to go."""
        return [row[0] for row in await self._db.read("deleted_list", DELETED_LIST, {"count": count})]

    async def sweep_session(self, session_id: str) -> None:
        """Removes the rows of a deleted Session, events in batches; may be repeated at any point."""
        params = {"id": session_id}
        while await self._db.write("deleted_events", DELETED_EVENTS, params):
            pass
        await self._db.write("deleted_attempts", DELETED_ATTEMPTS, params)
        await self._db.write("deleted_runs", DELETED_RUNS, params)
        await self._db.write("deleted_queue", DELETED_QUEUE, params)
        await self._db.write("deleted_timer", DELETED_TIMER, params)
        await self._db.write("deleted_state", DELETED_STATE, params)
        # Last, for until then the head says that the Session is gone.
        await self._db.write("deleted_head", DELETED_HEAD, params)
        await self._db.write("deleted_done", DELETED_DONE, params)

    async def forget_requests(self, hours: float) -> int:
        """Removes a batch of request ids that are older; returns how many."""
        return len(await self._db.write("request_sweep", REQUEST_SWEEP, {"hours": hours}))

    async def replica(self, replica_id: str, ttl: float) -> int:
        """Says that this replica lives; returns how many others do."""
        await self._db.write("replica_say", REPLICA_SAY, {"id": replica_id, "ttl": ttl})
        others = await self._db.read("replica_others", REPLICA_OTHERS, {"id": replica_id})
        if gone := [row[0] for row in others if not row[1]]:
            await self._db.write("replica_go", REPLICA_GO, {"ids": Texts(gone)})
        return sum(1 for row in others if row[1])

    async def replica_gone(self, replica_id: str) -> None:
        """This replica stops."""
        await self._db.write("replica_go", REPLICA_GO, {"ids": Texts([replica_id])})
