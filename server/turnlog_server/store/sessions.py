"""Sessions as they stand, and the reads of their logs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from turnlog_server.domain.session import SessionFacts, SessionState
from turnlog_server.store.arrays import Blobs, Ints, Texts
from turnlog_server.store.codec import facts_of, state_of
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database

Stored = tuple[SessionFacts, SessionState]
Place = tuple[int, str]
"""Where a Session stands in a list: create_time and id."""

SESSION_READ: LiteralString = """
SELECT h.session_id, s.facts, t.state
  FROM session_heads h
  JOIN sessions s ON s.session_id = h.session_id
  JOIN session_states t ON t.session_id = h.session_id
 WHERE h.session_id = ANY(%(ids)s::text[]) AND h.head_seq >= 0"""

SESSION_LOCK: LiteralString = """
SELECT h.head_seq FROM session_heads h WHERE h.session_id = %(id)s::text FOR UPDATE OF h"""

SESSION_GET: LiteralString = """
SELECT s.facts, t.state, e.acl_epoch
  FROM sessions s
  JOIN session_states t ON t.session_id = s.session_id
  JOIN workspace_epochs e ON e.workspace_id = s.workspace_id
 WHERE s.session_id = %(id)s::text AND s.workspace_id = %(ws)s::text"""

# One page looks at `scan` Sessions at most, so that a filter which matches few cannot make a page read everything, and
# brings `bytes` of them at most, but for the first that matches: a match without its facts belongs to the next page.
SESSION_LIST: LiteralString = """
SELECT c.session_id, c.create_time, c.hit,
       CASE WHEN c.hit AND (c.total <= %(bytes)s::int8 OR c.total = c.own) THEN c.facts END, c.state
  FROM (SELECT m.session_id, m.create_time, m.facts, m.state, m.hit, m.own,
               sum(m.own) OVER (ORDER BY m.create_time DESC, m.session_id DESC) AS total
          FROM (SELECT p.session_id, p.create_time, p.facts, t.state, h.hit,
                       CASE WHEN h.hit THEN octet_length(p.facts) + octet_length(t.state) ELSE 0 END AS own
                  FROM (SELECT s.session_id, s.create_time, s.facts, s.labels
                          FROM sessions s
                         WHERE s.workspace_id = %(ws)s::text
                           AND (s.create_time, s.session_id) < (%(before)s::int8, %(before_id)s::text)
                         ORDER BY s.create_time DESC, s.session_id DESC
                         LIMIT %(scan)s::int8) p
                  JOIN session_states t ON t.session_id = p.session_id
                  CROSS JOIN LATERAL (
                    SELECT p.labels @> %(labels)s::jsonb
                       AND (cardinality(%(statuses)s::text[]) = 0 OR t.status = ANY(%(statuses)s::text[])) AS hit) h
               ) m) c
 ORDER BY c.create_time DESC, c.session_id DESC"""

# Rows stop before `bytes` is passed, but for the first: a page is never empty because its first event is large.
EVENT_LIST: LiteralString = """
SELECT h.head_seq, w.acl_epoch, p.seq, p.type, p.body
  FROM session_heads h
  JOIN sessions s ON s.session_id = h.session_id
  JOIN workspace_epochs w ON w.workspace_id = s.workspace_id
  LEFT JOIN LATERAL (
    SELECT q.seq, q.type, q.body
      FROM (SELECT e.seq, e.type, e.body, sum(length(e.body)) OVER (ORDER BY e.seq) AS total, length(e.body) AS own
              FROM (SELECT v.seq, v.type, v.body
                      FROM events v
                     WHERE v.session_id = h.session_id AND v.seq > %(after)s::int8 AND v.seq <= %(through)s::int8
                       AND (cardinality(%(types)s::text[]) = 0 OR v.type = ANY(%(types)s::text[]))
                     ORDER BY v.seq
                     LIMIT %(count)s::int8) e) q
     WHERE q.total <= %(bytes)s::int8 OR q.total = q.own
  ) p ON true
 WHERE h.session_id = %(id)s::text AND h.head_seq >= 0 AND s.workspace_id = %(ws)s::text
 ORDER BY p.seq"""

# The event that started a turn, and the newest of the conversation beside those that start turns to come.
EVENT_CONVERSATION: LiteralString = """
SELECT c.seq, c.body
  FROM (SELECT t.seq, t.body, sum(length(t.body)) OVER (ORDER BY t.seq DESC) AS total
          FROM (SELECT e.seq, e.body
                  FROM events e
                 WHERE e.session_id = %(id)s::text AND e.seq <= %(head)s::int8 AND e.type = ANY(%(types)s::text[])
                   AND e.seq <> ALL(%(without)s::int8[])
                 ORDER BY e.seq DESC
                 LIMIT %(count)s::int8) t) c
 WHERE c.total <= %(bytes)s::int8
 UNION ALL
SELECT g.seq, g.body FROM events g WHERE g.session_id = %(id)s::text AND g.seq = %(trigger)s::int8
 ORDER BY 1"""

EVENT_AT: LiteralString = """
SELECT w.ord - 1
  FROM unnest(%(ids)s::text[], %(seqs)s::int8[], %(bodies)s::bytea[]) WITH ORDINALITY AS w(session_id, seq, body, ord)
  JOIN events e ON e.session_id = w.session_id AND e.seq = w.seq AND e.body = w.body"""

HEAD_POLL: LiteralString = """
SELECT h.session_id, h.head_seq FROM session_heads h WHERE h.session_id = ANY(%(ids)s::text[])"""

EPOCH_POLL: LiteralString = """
SELECT e.workspace_id, e.acl_epoch FROM workspace_epochs e WHERE e.workspace_id = ANY(%(ids)s::text[])"""

CLOCK_READ: LiteralString = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"


@dataclass(frozen=True, slots=True)
class Listed:
    """One row that a list of Sessions looked at: whether it matches, and the Session if it does and still fitted."""

    place: Place
    hit: bool
    stored: Stored | None


FILTERED_SPAN = 20_000
# As the table's own rule has it.
LARGEST_BODY = 270_336


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a log, with the head and the permission epoch that held when it was read.

    reached: everything up to here was looked at; what was left out for its type is passed as well.
    """

    head_seq: int
    epoch: int
    events: list[tuple[int, str, bytes]]
    reached: int


async def session_read(conn: Connection, session_ids: Sequence[str]) -> dict[str, Stored]:
    """The Sessions of these ids that exist, on the lane's own connection."""
    cursor = await conn.execute(SESSION_READ, {"ids": Texts(session_ids)})
    return {row[0]: (facts_of(row[1]), state_of(row[2])) for row in await cursor.fetchall()}


async def session_lock(conn: Connection, session_id: str) -> Stored | None:
    """The Session, which nobody else may write until the transaction ends."""
    await conn.execute(SESSION_LOCK, {"id": session_id})
    # Read only once it is locked: what one statement joins to a row that it had to wait for is older than that row.
    return (await session_read(conn, [session_id])).get(session_id)


async def event_matches(conn: Connection, wanted: Sequence[tuple[str, int, bytes]]) -> list[int]:
    """Of (session_id, seq, body), the places of those that stand in a log just so."""
    params = {
        "ids": Texts(row[0] for row in wanted),
        "seqs": Ints(row[1] for row in wanted),
        "bodies": Blobs(row[2] for row in wanted),
    }
    cursor = await conn.execute(EVENT_AT, params)
    return [row[0] for row in await cursor.fetchall()]


async def epoch_read(conn: Connection, workspace_ids: Sequence[str]) -> dict[str, int]:
    """The permission epochs of these workspaces, on the lane's own connection."""
    cursor = await conn.execute(EPOCH_POLL, {"ids": Texts(workspace_ids)})
    return {row[0]: row[1] for row in await cursor.fetchall()}


class Sessions:
    """Reads of Sessions and their logs, through the pool."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def get(self, workspace_id: str, session_id: str, deadline: float) -> tuple[Stored, int] | None:
        """The Session and its workspace's permission epoch."""
        params = {"id": session_id, "ws": workspace_id}
        rows = await self._db.read("session_get", SESSION_GET, params, deadline=deadline)
        return ((facts_of(rows[0][0]), state_of(rows[0][1])), rows[0][2]) if rows else None

    async def page(
        self,
        workspace_id: str,
        *,
        labels: str,
        statuses: Sequence[str],
        before: Place,
        scan: int,
        size: int,
        deadline: float,
    ) -> list[Listed]:
        """Newest first, after `before`: at most `scan` rows, and about `size` bytes of Sessions that match."""
        params = {
            "ws": workspace_id,
            "labels": labels,
            "statuses": Texts(statuses),
            "before": before[0],
            "before_id": before[1],
            "scan": scan,
            "bytes": size,
        }
        rows = await self._db.read("session_list", SESSION_LIST, params, deadline=deadline)
        return [
            Listed((row[1], row[0]), row[2], (facts_of(row[3]), state_of(row[4])) if row[3] is not None else None)
            for row in rows
        ]

    async def events(
        self,
        workspace_id: str,
        session_id: str,
        after: int,
        *,
        types: Sequence[str] = (),
        count: int,
        size: int,
        deadline: float | None = None,
    ) -> Page | None:
        """At most `count` events and about `size` bytes after `after`; None where the workspace has no such Session.

        With `types`, one page looks at FILTERED_SPAN events at most: a rare type in a long log holds no connection.
        """
        through = after + FILTERED_SPAN if types else 2**62
        params = {
            "id": session_id,
            "ws": workspace_id,
            "after": after,
            "through": through,
            "types": Texts(types),
            "count": count,
            "bytes": size,
        }
        rows = await self._db.read("event_list", EVENT_LIST, params, deadline=deadline)
        if not rows:
            return None
        head_seq, epoch = rows[0][:2]
        events = [(row[2], row[3], row[4]) for row in rows if row[2] is not None]
        # Neither bound was met, so nothing up to `through` is left.
        whole = len(events) < count and sum(len(event[2]) for event in events) + LARGEST_BODY <= size
        reached = max(after, min(through, head_seq)) if whole or not events else events[-1][0]
        return Page(head_seq, epoch, events, reached)

    async def conversation(
        self,
        session_id: str,
        trigger_seq: int,
        head_seq: int,
        *,
        types: Sequence[str],
        without: Sequence[int],
        count: int,
        size: int,
        deadline: float,
    ) -> tuple[bytes, list[tuple[int, bytes]]]:
        """The event at `trigger_seq`, and the newest others of these types, oldest first, within count and size.

        head_seq: what was written behind it does not count. without: nor do these.
        """
        params = {
            "id": session_id,
            "trigger": trigger_seq,
            "head": head_seq,
            "types": Texts(types),
            "without": Ints((trigger_seq, *without)),
            "count": count,
            "bytes": size,
        }
        rows = await self._db.read("event_conversation", EVENT_CONVERSATION, params, deadline=deadline)
        trigger = next(row[1] for row in rows if row[0] == trigger_seq)
        return trigger, [(row[0], row[1]) for row in rows if row[0] != trigger_seq]

    async def heads(self, session_ids: Sequence[str]) -> dict[str, int]:
        """The heads of these Sessions; one that was deleted is negative or absent."""
        rows = await self._db.read("head_poll", HEAD_POLL, {"ids": Texts(session_ids)})
        return dict(rows)  # type: ignore[arg-type]

    async def epochs(self, workspace_ids: Sequence[str]) -> dict[str, int]:
        """The permission epochs of these workspaces."""
        rows = await self._db.read("epoch_poll", EPOCH_POLL, {"ids": Texts(workspace_ids)})
        return dict(rows)  # type: ignore[arg-type]

    async def now(self) -> int:
        """The database's clock, in microseconds."""
        return (await self._db.read("clock_read", CLOCK_READ))[0][0]
