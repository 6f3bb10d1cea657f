"""One follower: replay, then live, never a gap, never a duplicate.

A cursor takes a place at the ring first and reads the log then. What the ring covers comes from the ring, everything
else from the log, page by page; so the hand-over has no seam, and a follower that fell behind simply replays again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from turnlog_server.domain.access import Caller
from turnlog_server.domain.asked import FollowOptions, Until
from turnlog_server.domain.credentials import credential_expired
from turnlog_server.domain.events import RunEnded, StatusChanged
from turnlog_server.domain.refusals import Reason, Refusal, not_found
from turnlog_server.domain.session import Boundary, Status
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.hub import Entry, Hub, Subscription
from turnlog_server.store.sessions import Sessions

PAGE_EVENTS = 512
PAGE_BYTES = 1024 * 1024


ENDS = {
    Until.NEVER: frozenset[Boundary](),
    Until.TURN: frozenset({Boundary.TURN, Boundary.TERMINAL}),
    Until.ACTION_REQUIRED: frozenset({Boundary.TURN, Boundary.TERMINAL, Boundary.ACTION_REQUIRED}),
    Until.TERMINAL: frozenset({Boundary.TERMINAL}),
}


class Frames(Protocol):
    """Frames of a follow as bytes, made by the wire."""

    def events(self, framed: list[bytes]) -> bytes: ...
    def caught_up(self, seq: int) -> bytes: ...
    def progress(self, seq: int) -> bytes: ...
    def preview(self, run_id: str, attempt_no: int, text: str) -> bytes: ...
    def boundary(self, seq: int) -> bytes: ...
    def terminal(self, seq: int) -> bytes: ...


@dataclass(slots=True)
class Watch:
    """The authority behind a stream, judged again whenever the permission epoch moved.

    now: microseconds since the epoch.
    """

    caller: Caller
    judge: Callable[[Caller], Awaitable[Caller]]
    epochs: Epochs
    now: Callable[[], int]

    @property
    def stands(self) -> bool:
        """Whether there is nothing to check."""
        return self._judged and self.remaining > 0

    async def check(self) -> None:
        """Raises the Refusal that ends the stream."""
        # Again, if it moved once more meanwhile: what is delivered next is delivered without another look.
        while not self._judged:
            self.caller = await self.judge(self.caller)
            self.epochs.note(self.caller.workspace_id, self.caller.epoch)
        if self.remaining <= 0:
            raise credential_expired()

    @property
    def _judged(self) -> bool:
        return self.epochs.get(self.caller.workspace_id) in (None, self.caller.epoch)

    @property
    def remaining(self) -> float:
        """For how many seconds more the credential is good."""
        expires = self.caller.expire_time
        return (expires - self.now()) / 1_000_000 if expires else float("inf")


class Cursor:
    """A follower's place in one Session."""

    __slots__ = (
        "_caught_up", "_frames", "_hub", "_options", "_over_at", "_place", "_said", "_sessions", "_wake", "_watch",
        "ended", "opened", "seq", "session_id",
    )  # fmt: skip

    def __init__(
        self,
        hub: Hub,
        sessions: Sessions,
        frames: Frames,
        watch: Watch,
        session_id: str,
        after: int,
        options: FollowOptions,
        wake: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._sessions = sessions
        self._frames = frames
        self._watch = watch
        self.session_id = session_id
        self.seq = after
        self._options = options
        self._wake = wake
        self._place: Subscription | None = None
        self._caught_up = False
        self._said = after
        self._over_at: int | None = None
        self.opened = False
        self.ended = False

    async def open(self) -> None:
        """Takes the place and looks at the Session. Raises NOT_FOUND or CURSOR_AHEAD."""
        workspace_id = self._watch.caller.workspace_id
        self._place = self._hub.join(workspace_id, self.session_id, self._wake, previews=self._options.previews)
        found = await self._sessions.get(workspace_id, self.session_id, deadline=_soon())
        if found is None:
            raise not_found("session", self.session_id)
        (_, state), epoch = found
        self._watch.epochs.note(workspace_id, epoch)
        await self._watch.check()
        if self.seq > state.head_seq:
            raise ahead(state.head_seq)
        self.opened = True
        run_id, active = self._options.run_id, state.active
        if run_id and (active is None or active.run_id != run_id) and all(t.run_id != run_id for t in state.queue):
            # The Run is over: if what told so is not behind the cursor, it will not come again.
            self._over_at = state.head_seq
        self.ended = state.terminal and self.seq == state.head_seq and self._options.until is not Until.NEVER

    def close(self) -> None:
        """Gives the place up."""
        if self._place is not None:
            self._hub.leave(self._place)

    def farewell(self) -> bytes:
        """The last frame of a cursor that had ended when it was opened."""
        return self._frames.terminal(self.seq)

    async def step(self) -> list[bytes]:
        """What can be sent now; empty when there is nothing to do until somebody wakes the follower."""
        assert self._place is not None
        ring = self._place.ring
        frames: list[bytes] = []
        if not self._watch.stands:
            await self._watch.check()
        if ring.deleted:
            raise not_found("session", self.session_id)
        if not ring.covers(self.seq):
            self._caught_up = False
            await self._replay(frames)
        # No `else`: who read to the end of the log is at the ring from there on, and nobody would wake it to say so.
        if not self.ended and ring.covers(self.seq):
            entries = ring.after(self.seq)
            if entries:
                self._deliver(entries, frames, shared=True)
            # Said at the ring's end, and not when nothing new was found there: something may be new every time.
            if not self.ended and not self._caught_up:
                self._caught_up = True
                frames.append(self._frames.caught_up(self.seq))
        if self._over_at is not None and self.seq >= self._over_at and not self.ended and self._waits:
            self.ended = True
            frames.append(self._frames.boundary(self.seq))
        if not self.ended and self._place.previews:
            frames.extend(self._frames.preview(*preview) for preview in self._place.previews)
            self._place.previews.clear()
        return frames

    @property
    def behind(self) -> bool:
        """After a step that sent something: whether there is more, also if nobody wakes the follower."""
        assert self._place is not None
        ring = self._place.ring
        return not self._caught_up or ring.deleted or self.seq < ring.last or not ring.covers(self.seq)

    def progress(self) -> bytes:
        """A cursor to resume from, for a stream that has been silent."""
        self._said = self.seq
        return self._frames.progress(self.seq)

    async def _replay(self, frames: list[bytes]) -> None:
        assert self._place is not None
        caller, types = self._watch.caller, self._options.types
        page = await self._sessions.events(
            caller.workspace_id,
            self.session_id,
            self.seq,
            types=sorted(self._wanted()),
            count=PAGE_EVENTS,
            size=PAGE_BYTES,
        )
        if page is None:
            raise not_found("session", self.session_id)
        self._watch.epochs.note(caller.workspace_id, page.epoch)
        # What is delivered under an epoch is delivered to somebody who was judged under it.
        await self._watch.check()
        entries = [self._hub.entry(*row) for row in page.events]
        if entries:
            self._deliver(entries, frames, shared=False)
        if not self.ended:
            self.seq = max(self.seq, page.reached)
        if self.seq == page.head_seq and not self.ended:
            self._place.ring.seed(page.head_seq)
        self._hub.hint(self.session_id, page.head_seq)
        if types and self.seq > self._said and not self.ended:
            frames.append(self.progress())

    @property
    def _waits(self) -> bool:
        """Whether the follow ends by itself."""
        return self._options.until is not Until.NEVER

    def _wanted(self) -> frozenset[str]:
        """Types to read: a filtered follow that waits for a boundary has to see what marks one."""
        if not self._options.types or not self._waits:
            return self._options.types
        return self._options.types | MARKING_TYPES

    def _deliver(self, entries: Sequence[Entry], frames: list[bytes], *, shared: bool) -> None:
        assert self._place is not None
        taken: list[Entry] = []
        for entry in entries:
            self.seq = entry.seq
            if not self._options.types or entry.type in self._options.types:
                taken.append(entry)
            if self._ends(entry):
                self.ended = True
                break
        size, start = 0, 0
        for index, entry in enumerate(taken):
            size += len(entry.framed)
            if size > PAGE_BYTES and index > start:
                frames.append(self._frames.events([e.framed for e in taken[start:index]]))
                start, size = index, len(entry.framed)
        rest = taken[start:]
        if rest and shared and not self._options.types:
            frames.append(self._place.ring.batch(rest, self._frames.events))
        elif rest:
            frames.append(self._frames.events([entry.framed for entry in rest]))
        if taken:
            self._said = taken[-1].seq
        if self.ended:
            frames.append(self._frames.boundary(self.seq))

    def _ends(self, entry: Entry) -> bool:
        wanted, run_id = ENDS[self._options.until], self._options.run_id
        if not wanted or entry.type not in MARKING_TYPES:
            return False
        event = self._hub.event_of(entry)
        match event.fact:
            case StatusChanged() as status if status.boundary in wanted:
                of_run = run_id in (status.ended_run_id, status.active_run_id)
                return not run_id or of_run or status.boundary is Boundary.TERMINAL
            case RunEnded(was_queued=True):
                return event.run_id == run_id
        return False


MARKING_TYPES = frozenset({f"session.status_{status.value}" for status in Status} | {"run.canceled"})
"""Events that may be the boundary that a follow waits for."""


def ahead(head_seq: int) -> Refusal:
    """A cursor above the head: it would silently wait for an event that gets a lower number."""
    return Refusal(
        Reason.CURSOR_AHEAD,
        f"after_seq lies above the head, which is {head_seq}: follow from {head_seq} or below.",
        {"head_seq": str(head_seq)},
    )


def _soon() -> float:
    return asyncio.get_running_loop().time() + 30.0
