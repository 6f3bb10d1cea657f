"""What the database holds after a campaign, read with plain SQL: no code of the server has a part in it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import psycopg
from turnlog.v1.event_pb2 import Event


@dataclass
class Stored:
    """One Session."""

    session_id: str
    head: int
    status: str
    rows: list[tuple[int, str, bytes]] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> list[Event]:
        """Its log as clients are to see it."""
        return [Event.FromString(body) for _, _, body in self.rows]


@dataclass(frozen=True)
class Remembered:
    """A request id, with what was answered."""

    resource_id: str
    seq: int
    event_id: str


Conn = psycopg.Connection[tuple[Any, ...]]


def sessions(conn: Conn) -> Iterator[Stored]:
    """Every Session that was not deleted, one after the other, in one transaction."""
    with conn.transaction():
        heads = dict(conn.execute("SELECT session_id, head_seq FROM session_heads").fetchall())
        statuses = dict(conn.execute("SELECT session_id, status FROM session_states").fetchall())
        runs: dict[str, dict[str, str]] = defaultdict(dict)
        for session_id, run_id, status in conn.execute("SELECT session_id, run_id, status FROM runs"):
            runs[session_id][run_id] = status
        with conn.cursor("log") as cursor:
            cursor.itersize = 5000
            cursor.execute("SELECT session_id, seq, type, body FROM events ORDER BY session_id, seq")
            found = set()
            for session_id, rows in groupby(cursor, key=lambda row: row[0]):
                if heads.get(session_id, 0) < 0:
                    continue  # deleted, and not yet swept
                found.add(session_id)
                log = [(seq, kind, bytes(body)) for _, seq, kind, body in rows]
                yield Stored(session_id, heads.get(session_id, 0), statuses.get(session_id, ""), log, runs[session_id])
        for session_id in {each for each, head in heads.items() if head >= 0} - found:
            yield Stored(session_id, heads[session_id], statuses.get(session_id, ""), [], runs[session_id])


def requests(conn: Conn) -> dict[str, list[Remembered]]:
    """The remembered requests, by id."""
    found: dict[str, list[Remembered]] = defaultdict(list)
    for request_id, *answered in conn.execute("SELECT request_id, resource_id, seq, event_id FROM request_ids"):
        found[request_id].append(Remembered(*answered))
    return found
