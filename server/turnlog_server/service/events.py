"""Use cases of reading logs: a page, a follow, many follows."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from turnlog_server.domain import limits
from turnlog_server.domain.access import require
from turnlog_server.domain.asked import FollowOptions
from turnlog_server.domain.refusals import Reason, Refusal, invalid, not_found
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


class Alarm:
    """Rings at a time at the latest, and maybe too early: what it waits for is mostly overtaken by events, and setting
    it back each time would cost more than looking up for nothing now and then."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None

    def by(self, when: float) -> None:
        """Ring then, unless it rings earlier anyway. when: in the time of the event loop."""
        if self._timer is not None and self._timer.when() <= when:
            return
        self.close()
        if when < float("inf"):
            self._timer = asyncio.get_running_loop().call_at(when, self._rings)

    def close(self) -> None:
        """Does not ring any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rings(self) -> None:
        self._timer = None
        self._ring()


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
        self, ctx: CallContext, session_id: str, after: int, options: FollowOptions
    ) -> AsyncGenerator[bytes]:
        """Frames of one Session, until the follow ends."""
        require(ctx.caller, ctx.method)
        if options.run_id:
            run = await self._runs.get(ctx.caller.workspace_id, session_id, options.run_id, ctx.deadline)
            if run is None:
                raise not_found("run", options.run_id)
        async with contextlib.aclosing(self.follow_many(ctx, [(session_id, after)], options)) as frames:
            async for _, frame in frames:
                yield frame

    async def follow_many(
        self, ctx: CallContext, places: list[tuple[str, int]], options: FollowOptions
    ) -> AsyncGenerator[tuple[str, bytes]]:
        """Frames of several Sessions with the Session's id; ends when every one's follow did."""
        require(ctx.caller, ctx.method)
        if len({session_id for session_id, _ in places}) != len(places):
            raise invalid("sessions", "names a Session twice")
        wake = asyncio.Event()
        alarm = Alarm(wake.set)
        dirty: dict[Cursor, None] = {}
        watch = Watch(ctx.caller, ctx.judge, self._epochs, self._now)
        cursors = [self._cursor(watch, place, options, wake, dirty) for place in places]
        opened: list[Cursor] = []
        self._observer.follower_opened()
        self._follows += 1
        try:
            for cursor in cursors:
                opened.append(cursor)
                await cursor.open()
                if cursor.ended:
                    yield cursor.session_id, cursor.farewell()
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
                await watch.check()
                wake.clear()
                for cursor in list(dirty):
                    # Taken out first: a wake that comes while it works puts it back.
                    dirty.pop(cursor, None)
                    frames = await cursor.step()
                    for frame in frames:
                        yield cursor.session_id, frame
                    if cursor.ended:
                        dirty.pop(cursor, None)
                        del live[cursor]
                    elif frames:
                        _spoke(live, cursor)
                        if cursor.behind:
                            dirty[cursor] = None
                for cursor in self._silent(live):
                    yield cursor.session_id, cursor.progress()
                if live and not dirty:
                    silence = next(iter(live.values())) + self._settings.progress_seconds
                    alarm.by(min(silence, _now() + watch.remaining))
                    await wake.wait()
        finally:
            alarm.close()
            self._follows -= 1
            self._observer.follower_closed()
            for cursor in opened:
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
        wake: asyncio.Event,
        dirty: dict[Cursor, None],
    ) -> Cursor:
        session_id, after = place

        def woken() -> None:
            if cursor.opened:
                dirty[cursor] = None
                wake.set()

        cursor = Cursor(self._hub, self._store, self._frames, watch, session_id, after, options, woken)
        return cursor


def _spoke(live: dict[Cursor, float], cursor: Cursor) -> None:
    del live[cursor]
    live[cursor] = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
