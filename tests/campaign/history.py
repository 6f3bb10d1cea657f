"""What everybody saw during a campaign, one JSON line each, in the order in which it happened.

`t` is nanoseconds of one monotonic clock, that of the process which writes. The lines:

    {"op": "call", "id", "client", "method", "session", "request", "marker"}    a try was sent
    {"op": "ok", "id", "session", "seq", "event", "run"}                          its answers: it is durable,
    {"op": "refused", "id", "reason"}                                             it was refused,
    {"op": "unknown", "id", "reason"}                                             or nobody knows
    {"op": "head", "client", "session", "began", "seq"}                           a read that was sent at `began`
    {"op": "seen", "follower", "session", "events": [[seq, digest], …]}           what a follow delivered
    {"op": "revoked", "client"}                                                   the key of this client, by an answer
    {"op": "fault", "kind", …}                                                    for people

`request` names a request over all of its tries. `marker` is a text that its event carries, and no other: empty where
its effect is an event without room for one.
"""

import hashlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]

FENCED = "sent without a lease"
"""The reason of a `refused` that nobody answered: its runner knew, when it sent this, that it had lost the lease."""


def digest(body: bytes) -> str:
    """The bytes of an event, short enough for a line."""
    return hashlib.sha256(body).hexdigest()[:24]


class History:
    """Writes lines; a line is in the file before the one who saw it goes on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1 << 16)
        self._ids = itertools.count(1)
        self.counts: Counter[str] = Counter()

    def call(self, client: str, method: str, session: str, request: str, marker: str) -> int:
        """A try is about to be sent; the id that its answer names."""
        number = next(self._ids)
        self.write(op="call", id=number, client=client, method=method, session=session, request=request, marker=marker)
        return number

    def ok(self, number: int, session: str, seq: int = 0, event: str = "", run: str = "") -> None:
        self.write(op="ok", id=number, session=session, seq=seq, event=event, run=run)

    def refused(self, number: int, reason: str) -> None:
        self.counts[f"refused {reason}"] += 1
        self.write(op="refused", id=number, reason=reason)

    def unknown(self, number: int, reason: str) -> None:
        self.counts[f"unknown {reason}"] += 1
        self.write(op="unknown", id=number, reason=reason)

    def head(self, client: str, session: str, began: int, seq: int) -> None:
        self.write(op="head", client=client, session=session, began=began, seq=seq)

    def seen(self, follower: str, session: str, events: list[tuple[int, str]]) -> None:
        self.counts["events seen"] += len(events)
        self.write(op="seen", follower=follower, session=session, events=events)

    def fault(self, kind: str, **more: Any) -> None:
        self.write(op="fault", kind=kind, **more)

    def write(self, **line: Any) -> None:
        self.counts[line["op"]] += 1
        self._file.write(json.dumps({"t": time.monotonic_ns()} | line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        self._file.close()


def lines_of(path: Path) -> Iterator[Line]:
    """The lines of a file."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)
