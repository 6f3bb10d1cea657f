"""The hub: what was committed, handed to the followers of this replica; the log is the truth, a notification a hint.

A Session that is followed here has a ring of its newest events, contiguous and serialised once. A commit of this
replica goes straight into the ring. Word of a commit elsewhere is a hint to read the log once for all followers. One
poll behind all of them finds what a lost hint did not tell. A follower that fell out of the ring reads the log itself.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog

from turnlog_server.domain.events import Event
from turnlog_server.domain.refusals import Refusal
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.lane import Committed
from turnlog_server.store.errors import StoreFault
from turnlog_server.store.sessions import Sessions

log = structlog.get_logger(__name__)

RING_EVENTS = 2_048
RING_BYTES = 2 * 1024 * 1024
FILL_EVENTS = 512
FILL_BYTES = 1024 * 1024
PREVIEWS = 64

Framer = Callable[[bytes], bytes]
Decoder = Callable[[bytes], Event]


@dataclass(slots=True)
class Entry:
    """One event, ready to be sent. `event` is read from the bytes only when somebody asks for it."""

    seq: int
    type: str
    framed: bytes
    body: bytes
    event: Event | None = None


@dataclass(slots=True, eq=False)
class Subscription:
    """A follower's place at a ring. `wake` is called whenever there may be something to do."""

    ring: "Ring"
    wake: Callable[[], None]
    previews: deque[tuple[str, int, str]] | None = None


# An empty deque takes as much room as all the rest of a ring, and most Sessions that are followed are idle.
_NOTHING: Final[deque[Entry]] = deque(maxlen=0)


@dataclass(slots=True, eq=False)
class Ring:
    """The newest events of one followed Session.

    last: the newest event that is known to be complete up to; -1 until a follower has read the log.
    known_head: what a hint or the poll said; above `last` means that the log has more.
    batches: what was joined last, shared by followers at the same place.
    """

    session_id: str
    workspace_id: str
    last: int = -1
    known_head: int = 0
    deleted: bool = False
    entries: deque[Entry] = field(default_factory=lambda: _NOTHING)
    size: int = 0
    subscriptions: set[Subscription] = field(default_factory=set)
    filling: asyncio.Task[None] | None = None
    batches: dict[tuple[int, int], bytes] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The oldest seq that the ring can serve; `last + 1` for an empty one."""
        return self.last - len(self.entries) + 1

    def covers(self, cursor: int) -> bool:
        """True when what follows the cursor can be served from here."""
        return self.last >= 0 and self.first <= cursor + 1 <= self.last + 1

    def after(self, cursor: int) -> list[Entry]:
        """What follows a cursor that the ring covers: little, mostly, so it is taken from the end."""
        newest = list(islice(reversed(self.entries), self.last - cursor))
        newest.reverse()
        return newest

    def add(self, entries: Iterable[Entry]) -> None:
        """Appends what is contiguous. What is known already is skipped; a gap empties the ring first."""
        if self.entries is _NOTHING:
            self.entries = deque()
        for entry in entries:
            if self.last >= 0 and entry.seq <= self.last:
                continue
            if self.last >= 0 and entry.seq != self.last + 1:
                self.entries.clear()
                self.size = 0
            self.entries.append(entry)
            self.size += len(entry.framed)
            self.last = entry.seq
        while self.entries and (len(self.entries) > RING_EVENTS or self.size > RING_BYTES):
            self.size -= len(self.entries.popleft().framed)
        self.known_head = max(self.known_head, self.last)

    def seed(self, head: int) -> None:
        """A follower read the log up to here and found nothing newer."""
        if self.last < 0:
            self.last = head
            self.known_head = max(self.known_head, head)

    def batch(self, entries: list[Entry], join: Callable[[list[bytes]], bytes]) -> bytes:
        """The entries as one frame, made once for all followers that are at the same place."""
        key = (entries[0].seq, entries[-1].seq)
        made = self.batches.get(key)
        if made is None:
            if len(self.batches) > 8:
                self.batches.clear()
            made = self.batches[key] = join([entry.framed for entry in entries])
        return made

    def wake(self) -> None:
        """Something happened."""
        for subscription in self.subscriptions:
            subscription.wake()


class Hub:
    """All rings of this replica."""

    def __init__(self, sessions: Sessions, epochs: Epochs, framer: Framer, decoder: Decoder) -> None:
        self._sessions = sessions
        self._epochs = epochs
        self._framer = framer
        self._decode = decoder
        self._rings: dict[str, Ring] = {}
        epochs.listen(self._epoch_moved)

    @property
    def followed(self) -> list[str]:
        """The Sessions that somebody follows here."""
        return list(self._rings)

    @property
    def followers(self) -> int:
        """How many follow."""
        return sum(len(ring.subscriptions) for ring in self._rings.values())

    @property
    def workspaces(self) -> set[str]:
        """The workspaces that somebody follows here."""
        return {ring.workspace_id for ring in self._rings.values()}

    def join(
        self, workspace_id: str, session_id: str, wake: Callable[[], None], *, previews: bool = False
    ) -> Subscription:
        """Takes a place. Join first and read the log then, so that nothing falls between."""
        ring = self._rings.get(session_id)
        if ring is None:
            ring = self._rings[session_id] = Ring(session_id, workspace_id)
        subscription = Subscription(ring, wake, deque(maxlen=PREVIEWS) if previews else None)
        ring.subscriptions.add(subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Gives the place up."""
        ring = subscription.ring
        ring.subscriptions.discard(subscription)
        if not ring.subscriptions and self._rings.get(ring.session_id) is ring:
            del self._rings[ring.session_id]

    def entry(self, seq: int, type_: str, body: bytes, event: Event | None = None) -> Entry:
        """An event as it goes over the wire."""
        return Entry(seq, type_, self._framer(body), body, event)

    def event_of(self, entry: Entry) -> Event:
        """What an entry says."""
        if entry.event is None:
            entry.event = self._decode(entry.body)
        return entry.event

    def publish(self, commits: Iterable[Committed]) -> None:
        """This replica committed."""
        for commit in commits:
            self._epochs.note(commit.facts.workspace_id, commit.epoch)
            ring = self._rings.get(commit.facts.session_id)
            if ring is None:
                continue
            ring.deleted = ring.deleted or commit.deleted
            ring.add(self.entry(event.seq, event.type, body, event) for event, body in commit.events)
            ring.wake()

    def preview(self, session_id: str, run_id: str, attempt_no: int, text: str) -> None:
        """Text in the making; who is too slow for it misses some."""
        ring = self._rings.get(session_id)
        if ring is None:
            return
        for subscription in ring.subscriptions:
            if subscription.previews is not None:
                subscription.previews.append((run_id, attempt_no, text))
                subscription.wake()

    def hint(self, session_id: str, head: int) -> None:
        """Another replica committed, or the poll found more. A negative head is that of a deleted Session."""
        ring = self._rings.get(session_id)
        if ring is None:
            return
        if head < 0:
            ring.deleted = True
            ring.wake()
            return
        ring.known_head = max(ring.known_head, head)
        if 0 <= ring.last < ring.known_head and ring.filling is None:
            ring.filling = asyncio.create_task(self._fill(ring), name="fill")

    async def _fill(self, ring: Ring) -> None:
        """Reads what the ring lacks, once for all of its followers."""
        try:
            while ring.last < ring.known_head and ring.subscriptions and not ring.deleted:
                page = await self._sessions.events(
                    ring.workspace_id, ring.session_id, ring.last, count=FILL_EVENTS, size=FILL_BYTES
                )
                if page is None:
                    ring.deleted = True
                    break
                self._epochs.note(ring.workspace_id, page.epoch)
                if not page.events:
                    break
                ring.add([self.entry(*row) for row in page.events])
                ring.known_head = max(ring.known_head, page.head_seq)
                ring.wake()
        except (Refusal, StoreFault):
            log.warning("a followed session could not be read; the next poll tries again", session=ring.session_id)
        finally:
            ring.filling = None
            ring.wake()

    async def poll(self) -> None:
        """The safety poll: one look at heads for all followers."""
        session_ids = list(self._rings)
        if not session_ids:
            return
        heads = await self._sessions.heads(session_ids)
        for session_id in session_ids:
            self.hint(session_id, heads.get(session_id, -1))

    def wake_all(self) -> None:
        """Everybody looks again."""
        for ring in list(self._rings.values()):
            ring.wake()

    def _epoch_moved(self, workspace_id: str, epoch: int) -> None:
        del epoch
        for ring in list(self._rings.values()):
            if ring.workspace_id == workspace_id:
                ring.wake()
