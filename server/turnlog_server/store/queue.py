"""The queue: an index of Runs that may be claimed or are held, one row for each Session. Never the truth.

A reservation is outside the log: it keeps other replicas from offering the same Run for a few seconds. A workspace
with a limit takes a slot with the reservation. The slot belongs to the row; the commit that ends the attempt frees it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from turnlog_server.store.arrays import Texts
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database

OFFER_SECONDS = 5
# A reservation that nobody took for this long gives its slot back.
STALE_SLOT_SECONDS = 60

# `IS TRUE` keeps the planner, where it has no statistics yet, from walking the index of all READY rows for each pick.
RUN_RESERVE: LiteralString = """
WITH pick AS MATERIALIZED (
  SELECT q.session_id
    FROM run_queue q
   WHERE q.state = 'READY' AND q.workspace_id = %(ws)s::text AND q.pool = %(pool)s::text
     AND q.harness_profile_id = %(profile)s::text AND q.shard = %(shard)s::int8
     AND (q.offered_until IS NULL OR q.offered_until < now())
     AND (q.runner_id <> '' OR NOT %(slotted)s::bool)
     AND NOT (q.run_id = ANY(%(without)s::text[]))
     AND (%(counted)s::bool
          OR (SELECT w.max_concurrent_runs FROM workspaces w WHERE w.workspace_id = %(ws)s::text) IS NULL)
   ORDER BY q.ready_at, q.session_id
   LIMIT %(count)s::int8
   {claim_lock})
UPDATE run_queue q SET runner_id = %(runner)s::text, offered_until = now() + %(seconds)s::float8 * interval '1 second'
  FROM pick p
 WHERE q.session_id = p.session_id AND (q.state = 'READY') IS TRUE
   AND (q.offered_until IS NULL OR q.offered_until < now())
RETURNING q.session_id, q.run_id, q.attempt_no"""

RUN_UNRESERVE: LiteralString = """
UPDATE run_queue q SET runner_id = '', offered_until = NULL
 WHERE q.session_id = %(session)s::text AND q.run_id = %(run)s::text AND q.state = 'READY'
   AND q.runner_id = %(runner)s::text"""

WORKSPACE_LIMIT: LiteralString = """
SELECT w.max_concurrent_runs FROM workspaces w WHERE w.workspace_id = %(ws)s::text"""

# Writes nothing new; the row lock makes those who reserve in a limited workspace take turns.
WORKSPACE_TURN: LiteralString = """
UPDATE workspaces w SET name = w.name WHERE w.workspace_id = %(ws)s::text RETURNING w.max_concurrent_runs"""

SLOT_SWEEP: LiteralString = """
UPDATE run_queue q SET runner_id = '', offered_until = NULL
 WHERE q.workspace_id = %(ws)s::text AND q.state = 'READY' AND q.runner_id <> ''
   AND q.offered_until < now() - %(seconds)s::float8 * interval '1 second'"""

SLOT_COUNT: LiteralString = """
SELECT count(*) FROM run_queue q WHERE q.workspace_id = %(ws)s::text AND q.state <> 'GONE' AND q.runner_id <> ''"""

QUEUE_LOOK: LiteralString = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(q.ready_at)), 0)::float8
  FROM (SELECT r.ready_at FROM run_queue r
         WHERE r.state = 'READY' AND r.workspace_id = %(ws)s::text AND r.pool = %(pool)s::text
           AND r.harness_profile_id = %(profile)s::text AND r.shard = %(shard)s::int8
         ORDER BY r.ready_at
         LIMIT 1000) q"""

ATTEMPT_HELD: LiteralString = """
SELECT q.session_id, q.run_id, q.attempt_no
  FROM run_queue q
 WHERE q.state = 'HELD' AND q.runner_id = %(runner)s::text AND q.workspace_id = %(ws)s::text
   AND q.runner_epoch < %(epoch)s::int8"""

ATTEMPT_ORPHANS: LiteralString = """
SELECT q.session_id, q.run_id, q.attempt_no, q.runner_id
  FROM run_queue q
  JOIN runners r ON r.workspace_id = q.workspace_id AND r.runner_id = q.runner_id
 WHERE q.state = 'HELD' AND q.runner_epoch < r.epoch
 ORDER BY q.runner_id, q.session_id
 LIMIT %(count)s::int8"""


@dataclass(frozen=True, slots=True)
class Place:
    """Which Runs a runner may take. `profile` is the id of a harness profile."""

    workspace_id: str
    pool: str
    profile: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """A Run that is to be offered, with the number that its attempt will have."""

    session_id: str
    run_id: str
    attempt_no: int


class Queue:
    """Reservations and looks at what is held."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.shards = db.dialect.claim_shards

    async def reserve(
        self, place: Place, shard: int, runner_id: str, count: int, without: Sequence[str] = ()
    ) -> list[Reserved]:
        """At most `count` Runs of one shard, oldest first, for OFFER_SECONDS. without: ids of Runs to leave alone."""
        ws = {"ws": place.workspace_id}
        params = {
            **ws,
            "pool": place.pool,
            "profile": place.profile,
            "shard": shard,
            "runner": runner_id,
            "count": count,
            "slotted": False,
            "counted": False,
            "without": Texts(without),
            "seconds": float(OFFER_SECONDS),
        }
        rows = await self._db.write("run_reserve", self._db.dialect.sql(RUN_RESERVE), params, keyed=False)
        if rows:
            return [Reserved(*row) for row in rows]
        # Nothing that waits, or a workspace that counts, where the statement above takes nothing.
        if (await self._db.read("workspace_limit", WORKSPACE_LIMIT, ws))[0][0] is None:
            return []
        counted = {**params, "counted": True}
        return await self._db.run("run_reserve", lambda conn: self._limited(conn, counted, count), keyed=False)

    async def _limited(self, conn: Connection, params: dict[str, object], count: int) -> list[Reserved]:
        limit = await (await conn.execute(WORKSPACE_TURN, {"ws": params["ws"]})).fetchone()
        if limit is None:
            return []
        await conn.execute(SLOT_SWEEP, {"ws": params["ws"], "seconds": float(STALE_SLOT_SECONDS)})
        taken = await (await conn.execute(SLOT_COUNT, {"ws": params["ws"]})).fetchone()
        free: int = limit[0] - taken[0] if limit[0] is not None and taken is not None else count
        wanted = {**params, "count": min(count, free)} if free > 0 else {**params, "slotted": True}
        cursor = await conn.execute(self._db.dialect.sql(RUN_RESERVE), wanted)
        return [Reserved(*row) for row in await cursor.fetchall()]

    async def unreserve(self, session_id: str, run_id: str, runner_id: str) -> None:
        """Gives a Run back that was offered and not taken."""
        params = {"session": session_id, "run": run_id, "runner": runner_id}
        await self._db.write("run_unreserve", RUN_UNRESERVE, params)

    async def held(self, workspace_id: str, runner_id: str, below_epoch: int) -> list[Reserved]:
        """Attempts that this runner accepted under an older epoch."""
        params = {"ws": workspace_id, "runner": runner_id, "epoch": below_epoch}
        rows = await self._db.read("attempt_held", ATTEMPT_HELD, params)
        return [Reserved(*row) for row in rows]

    async def orphans(self, count: int) -> list[Reserved]:
        """Attempts of runners that were declared lost since they accepted."""
        rows = await self._db.read("attempt_orphans", ATTEMPT_ORPHANS, {"count": count})
        return [Reserved(*row[:3]) for row in rows]

    async def look(self, place: Place) -> tuple[int, float]:
        """How many Runs wait at a place, up to a thousand a shard, and the age of the oldest in seconds."""
        waiting, oldest = 0, 0.0
        for shard in range(self.shards):
            params = {"ws": place.workspace_id, "pool": place.pool, "profile": place.profile, "shard": shard}
            count, age = (await self._db.read("queue_look", QUEUE_LOOK, params))[0]
            waiting, oldest = waiting + count, max(oldest, age)
        return waiting, oldest
