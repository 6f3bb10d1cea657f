"""Use cases of reading logs: a page, a follow, many follows."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from turnlog_server.domain import limits
from turnlog_server.domain.access import require
from turnlog_server.domain.asked import FollowOptions
from turnlog_server.domain.refusals import Reason, Refusal, invalid, not_found
from turnlog_server.service.bell import Bell
from turnlog_server.service.context import CallContext
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.follow import Cursor, Frames, Watch, ahead
from turnlog_server.service.hub import Hub
from turnlog_server.store.runs import Runs
from turnlog_server.store.sessions import Page, Sessions

# Pages leave room below the limit of a response for what is around the events.
LIST_BYTES = 3 * limits.MIB


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """progress_seconds: the longest silence of a stream."""

    progress_seconds: float = limits.PROGRESS_SECONDS


class FollowObserver(Protocol):
    """Hooks for metrics; they return at once."""

    def follower_opened(self) -> None: ...
    def follower_closed(self) -> None: ...


class Events:
    """Reads of Sessions' logs."""

    def __init__(
        self,
        hub: Hub,
        store: Sessions,
        runs: Runs,
        frames: Frames,
        epochs: Epochs,
        settings: FollowSettings,
        observer: FollowObserver,
        now: Callable[[], int],
    ) -> None:
        """now: microseconds since the epoch."""
        self._hub = hub
        self._store = store
        self._runs = runs
        self._frames = frames
        self._epochs = epochs
        self._settings = settings
        self._observer = observer
        self._now = now
        self._draining = asyncio.Event()
        self._follows = 0

    def drain(self) -> int:
        """Every follow ends with SERVER_DRAINING; returns how many there are."""
        self._draining.set()
        self._hub.wake_all()
        return self._follows

    async def page(self, ctx: CallContext, session_id: str, after: int, types: list[str], size: int) -> Page:
        """A page of the log."""
        require(ctx.caller, ctx.method)
        page = await self._store.events(
            ctx.caller.workspace_id,
            session_id,
            after,
            types=types,
            count=size,
            size=LIST_BYTES,
            deadline=ctx.deadline,
        )
        if page is None:
            raise not_found("session", session_id)
        self._epochs.note(ctx.caller.workspace_id, page.epoch)
        if page.epoch != ctx.caller.epoch:
            await ctx.judge(ctx.caller)
        if after > page.head_seq:
            raise ahead(page.head_seq)
        return page

    async def follow(
        self,
        ctx: CallContext,
        places: list[tuple[str, int]],
        options: FollowOptions,
        addressed: Callable[[bytes, str], bytes] = lambda frame, _: frame,
    ) -> AsyncGenerator[bytes]:
        """Frames of one Session or of several; ends when every one's follow did.

        places: Sessions with the seq that each is followed from; one where the options name a Run.
        addressed: puts the Session's id to a frame.
        """
        require(ctx.caller, ctx.method)
        if len({session_id for session_id, _ in places}) != len(places):
            raise invalid("sessions", "names a Session twice")
        if options.run_id:
            run = await self._runs.get(ctx.caller.workspace_id, places[0][0], options.run_id, ctx.deadline)
            if run is None:
                raise not_found("run", options.run_id)
        bell = Bell()
        dirty: dict[Cursor, None] = {}
        watch = Watch(ctx.caller, ctx.judge, self._epochs, self._now)
        cursors = [self._cursor(watch, place, options, bell, dirty) for place in places]
        self._observer.follower_opened()
        self._follows += 1
        try:
            for cursor in cursors:
                await cursor.open()
                if cursor.ended:
                    cursor.close()
                    yield addressed(cursor.farewell(), cursor.session_id)
                else:
                    dirty[cursor] = None
            # When each last said something, the one that is silent for longest first.
            live = dict.fromkeys((cursor for cursor in cursors if not cursor.ended), _now())
            while live:
                if self._draining.is_set():
                    raise Refusal(
                        Reason.SERVER_DRAINING,
                        "This replica is going down: follow again from your last seq.",
                        retry_after=0.2,
                    )
                if not watch.stands:
                    await watch.check()
                bell.hush()
                for cursor in list(dirty):
                    # Taken out first: a wake that comes while it works puts it back.
                    dirty.pop(cursor, None)
                    frames = await cursor.step()
                    sent = len(frames)
                    while frames:  # taken out: a follower that sleeps keeps nothing of what it said last
                        yield addressed(frames.pop(0), cursor.session_id)
                    if cursor.ended:
                        dirty.pop(cursor, None)
                        cursor.close()
                        del live[cursor]
                    elif sent:
                        _spoke(live, cursor)
                        if cursor.behind:
                            dirty[cursor] = None
                for cursor in self._silent(live):
                    yield addressed(cursor.progress(), cursor.session_id)
                if live and not dirty:
                    silence = next(iter(live.values())) + self._settings.progress_seconds
                    await bell.sleep(min(silence, _now() + watch.remaining))
        finally:
            bell.close()
            self._follows -= 1
            self._observer.follower_closed()
            for cursor in cursors:
                cursor.close()

    def _silent(self, live: dict[Cursor, float]) -> Iterator[Cursor]:
        """The cursors that owe a sign of life, however much is written that they did not ask for."""
        now = _now()
        while live and next(iter(live.values())) + self._settings.progress_seconds <= now:
            cursor = next(iter(live))
            _spoke(live, cursor)
            yield cursor

    def _cursor(
        self,
        watch: Watch,
        place: tuple[str, int],
        options: FollowOptions,
        bell: Bell,
        dirty: dict[Cursor, None],
    ) -> Cursor:
        session_id, after = place

        def woken() -> None:
            if cursor.opened and not cursor.ended:
                dirty[cursor] = None
                bell.ring()

        cursor = Cursor(self._hub, self._store, self._frames, watch, session_id, after, options, woken)
        return cursor


def _spoke(live: dict[Cursor, float], cursor: Cursor) -> None:
    del live[cursor]
    live[cursor] = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
