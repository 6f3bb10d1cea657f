"""Ways to break what a campaign left behind, for a checker to find."""

from collections.abc import Callable
from typing import Any

from turnlog.v1.event_pb2 import Event

from campaign.history import Line
from campaign.stored import Conn


class Tampered:
    """The database and the history of a campaign, to be broken."""

    def __init__(self, conn: Conn, lines: list[Line]) -> None:
        self.conn = conn
        self.lines = lines

    def sql(self, statement: str, *values: Any) -> list[tuple]:
        cursor = self.conn.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def events(self, *kinds: str) -> list[tuple[str, Event]]:
        """All events of these types, each with its Session."""
        rows = self.sql("SELECT session_id, body FROM events WHERE type = ANY(%s) ORDER BY 1, seq", list(kinds))
        return [(session_id, Event.FromString(bytes(body))) for session_id, body in rows]

    def event(self, kind: str, wanted: Callable[[Event], bool] = lambda _: True) -> tuple[str, Event]:
        """The first of this type."""
        return next(found for found in self.events(kind) if wanted(found[1]))

    def write(self, session_id: str, seq: int, event: Event) -> None:
        """Puts this in the place of what is there."""
        statement = "UPDATE events SET type = %s, body = %s WHERE session_id = %s AND seq = %s"
        self.sql(statement, event.type, event.SerializeToString(), session_id, seq)

    def append(self, session_id: str, event: Event, **fields: Any) -> Event:
        """A copy of the event at the end of the log, with its own place and id."""
        head = self.sql("UPDATE session_heads SET head_seq = head_seq + 1 WHERE session_id = %s RETURNING head_seq",
                        session_id)[0][0]  # fmt: skip
        copy = Event(**({"seq": head, "event_id": f"evt_copy{head}"} | fields))
        merged = Event.FromString(event.SerializeToString() + copy.SerializeToString())
        last = self.sql("SELECT body FROM events WHERE session_id = %s AND seq = %s", session_id, head - 1)[0][0]
        merged.create_time.CopyFrom(Event.FromString(bytes(last)).create_time)
        statement = "INSERT INTO events (session_id, seq, type, body) VALUES (%s, %s, %s, %s)"
        self.sql(statement, session_id, head, merged.type, merged.SerializeToString())
        return merged

    def line(self, op: str, wanted: Callable[[Line], bool] = lambda _: True) -> Line:
        """The first line of this kind."""
        return next(line for line in self.lines if line["op"] == op and wanted(line))

    def call_of(self, answer: Line) -> Line:
        """What it answers."""
        return self.line("call", lambda line: line["id"] == answer["id"])

    def add(self, **line: Any) -> None:
        """A line at the end."""
        self.lines.append({"t": self.lines[-1]["t"] + 1} | line)
