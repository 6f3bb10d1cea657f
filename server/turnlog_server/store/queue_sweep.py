"""The queue beside the states that it follows from: read page by page, and mended row by row.

State, head and queue row are read in one statement, so a difference is one, and not two moments. A row is mended only
while the head is the one that was read: whoever moves it writes the right row himself.
"""

from dataclasses import dataclass
from typing import LiteralString

from turnlog_server.domain.session import BUSY, SessionFacts, SessionState
from turnlog_server.store.arrays import Texts
from turnlog_server.store.codec import facts_of, state_of
from turnlog_server.store.database import Database
from turnlog_server.store.leases import lease_take
from turnlog_server.store.log import QueueRow, shard_of

LEASE = "queue sweep"
BUSY_STATUSES = Texts(sorted(BUSY))

# Nothing of a Session is read but its id where neither status nor row says that there may be anything to do.
QUEUE_COMPARE: LiteralString = """
SELECT b.session_id, h.head_seq, h.unlogged, f.facts, s.state,
       q.workspace_id, q.pool, q.harness_profile_id, q.run_id, q.attempt_no, q.state, q.runner_id, q.runner_epoch
  FROM (SELECT p.session_id,
               (p.status = ANY(%(busy)s::text[])
                OR coalesce(r.state, 'GONE') <> 'GONE') AS busy
          FROM (SELECT a.session_id, a.status FROM session_states a
                 WHERE a.session_id > %(after)s::text
                 ORDER BY a.session_id
                 LIMIT %(count)s::int8) p
          LEFT JOIN run_queue r ON r.session_id = p.session_id) b
  LEFT JOIN session_heads h ON h.session_id = b.session_id AND b.busy
  LEFT JOIN sessions f ON f.session_id = h.session_id
  LEFT JOIN session_states s ON s.session_id = f.session_id
  LEFT JOIN run_queue q ON q.session_id = s.session_id
 ORDER BY b.session_id"""

QUEUE_STRAYS: LiteralString = """
SELECT p.session_id, s.session_id IS NULL
  FROM (SELECT q.session_id FROM run_queue q
         WHERE q.session_id > %(after)s::text
         ORDER BY q.session_id
         LIMIT %(count)s::int8) p
  LEFT JOIN session_states s ON s.session_id = p.session_id
 ORDER BY p.session_id"""

QUEUE_MEND: LiteralString = """
WITH still AS MATERIALIZED (
  SELECT h.session_id FROM session_heads h
   WHERE h.session_id = %(session)s::text AND h.head_seq = %(head)s::int8 AND h.unlogged = %(unlogged)s::int8
     FOR UPDATE OF h)
INSERT INTO run_queue (session_id, workspace_id, pool, harness_profile_id, shard, run_id, attempt_no, state,
                       runner_id, runner_epoch)
SELECT t.session_id, %(ws)s::text, %(pool)s::text, %(profile)s::text, %(shard)s::int8, %(run)s::text,
       %(attempt)s::int8, %(state)s::text, %(runner)s::text, %(epoch)s::int8
  FROM still t
ON CONFLICT (session_id) DO UPDATE SET
  workspace_id = excluded.workspace_id, pool = excluded.pool, harness_profile_id = excluded.harness_profile_id,
  shard = excluded.shard, run_id = excluded.run_id, attempt_no = excluded.attempt_no, state = excluded.state,
  ready_at = now(), runner_id = excluded.runner_id, runner_epoch = excluded.runner_epoch, offered_until = NULL
RETURNING run_queue.session_id"""

QUEUE_REMOVE: LiteralString = """
WITH still AS MATERIALIZED (
  SELECT h.session_id FROM session_heads h
   WHERE h.session_id = %(session)s::text AND h.head_seq = %(head)s::int8 AND h.unlogged = %(unlogged)s::int8
     FOR UPDATE OF h)
DELETE FROM run_queue q
 WHERE q.session_id = %(session)s::text AND (q.session_id IN (SELECT t.session_id FROM still t)) IS TRUE
RETURNING q.session_id"""

# A Session is made in one commit with its row: where the row is seen, the state is seen.
STRAYS_REMOVE: LiteralString = """
DELETE FROM run_queue q
 WHERE q.session_id = ANY(%(ids)s::text[])
   AND NOT EXISTS (SELECT s.session_id FROM session_states s WHERE s.session_id = q.session_id)
RETURNING q.session_id"""


@dataclass(frozen=True, slots=True)
class Compared:
    """A Session that may have a Run to claim or to hold, with the row that it has; None for none."""

    session_id: str
    head: int
    unlogged: int
    facts: SessionFacts
    state: SessionState
    row: QueueRow | None


@dataclass(frozen=True, slots=True)
class Page:
    """What was read of a walk by id; `after` is where the next page begins, empty at the end."""

    after: str
    compared: list[Compared]


class QueueSweep:
    """Bounded looks and single mends. `holder`: who looks; of all replicas, the one that has the lease."""

    def __init__(self, db: Database, holder: str) -> None:
        self._db = db
        self._holder = holder

    async def mine(self, seconds: float) -> bool:
        """Whether this replica is the one that looks, for so long from now on."""
        fence = await self._db.run("queue_lease", lambda conn: lease_take(conn, LEASE, self._holder, seconds))
        return fence is not None

    async def compare(self, after: str, count: int) -> Page:
        """The Sessions behind this id."""
        rows = await self._db.read(
            "queue_compare", QUEUE_COMPARE, {"after": after, "count": count, "busy": BUSY_STATUSES}
        )
        compared = [
            Compared(
                session_id,
                head,
                unlogged,
                facts_of(facts),
                state_of(state),
                QueueRow(*queue) if queue[0] is not None else None,
            )
            # A Session that is deleted has facts no more, and its rows are swept away as a whole.
            for session_id, head, unlogged, facts, state, *queue in rows
            if facts is not None and state is not None
        ]
        return Page(rows[-1][0] if len(rows) == count else "", compared)

    async def mend(self, found: Compared, row: QueueRow) -> bool:
        """Writes the row; False when the Session has moved meanwhile."""
        params = self._still(found) | {
            "ws": row.workspace_id,
            "pool": row.pool,
            "profile": row.harness_profile_id,
            "shard": shard_of(found.session_id, self._db.dialect.claim_shards),
            "run": row.run_id,
            "attempt": row.attempt_no,
            "state": row.state,
            "runner": row.runner_id,
            "epoch": row.runner_epoch,
        }
        return bool(await self._db.write("queue_mend", QUEUE_MEND, params))

    async def remove(self, found: Compared) -> bool:
        """Removes the row; False when the Session has moved meanwhile."""
        return bool(await self._db.write("queue_remove", QUEUE_REMOVE, self._still(found)))

    async def remove_strays(self, after: str, count: int) -> tuple[list[str], str]:
        """Removes rows behind this id that belong to no Session; which they were, and where the next page begins."""
        rows = await self._db.read("queue_strays", QUEUE_STRAYS, {"after": after, "count": count})
        strays = Texts(session_id for session_id, stray in rows if stray)
        removed = await self._db.write("strays_remove", STRAYS_REMOVE, {"ids": strays}) if strays else []
        return [row[0] for row in removed], rows[-1][0] if len(rows) == count else ""

    @staticmethod
    def _still(found: Compared) -> dict[str, object]:
        return {"session": found.session_id, "head": found.head, "unlogged": found.unlogged}
