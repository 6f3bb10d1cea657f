"""Due times, by the database's clock: a due row becomes a command of the lane, and `decide` says what it means."""

import asyncio
from collections.abc import Callable

from turnlog_server.domain.commands import TimeUp
from turnlog_server.domain.limits import REQUEST_ID_HOURS
from turnlog_server.service.background import Background
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Submission
from turnlog_server.store.sweeps import Sweeps

DUE_AT_ONCE = 256
DELETED_AT_ONCE = 16
SHORTEST_NAP = 0.02


class Timers:
    """Wakes Sessions whose time has come, and clears away what is gone."""

    def __init__(self, lane: Lane, sweeps: Sweeps, longest_nap: float, fired: Callable[[], None]) -> None:
        self._lane = lane
        self._sweeps = sweeps
        self._longest_nap = longest_nap
        self._fired = fired
        self._tasks = Background()

    def start(self) -> None:
        """Begins to look."""
        self._tasks.repeat("timers", self._look, 0.0)
        self._tasks.repeat("deleted sessions", self._clear_deleted, self._longest_nap)
        self._tasks.repeat("request ids", self._forget_requests, 60.0)

    async def close(self) -> None:
        """Stops."""
        await self._tasks.close()

    async def _look(self) -> None:
        due = await self._sweeps.due(DUE_AT_ONCE)
        if due:
            await asyncio.gather(*(self._wake(session_id) for session_id in due), return_exceptions=True)
        if len(due) < DUE_AT_ONCE:
            next_due = await self._sweeps.next_due()
            nap = self._longest_nap if next_due is None else min(self._longest_nap, next_due)
            await asyncio.sleep(max(SHORTEST_NAP, nap))

    async def _wake(self, session_id: str) -> None:
        self._fired()
        future = asyncio.get_running_loop().create_future()
        await self._lane.internal(Submission(session_id, TimeUp(), 256, future))

    async def _clear_deleted(self) -> None:
        for session_id in await self._sweeps.deleted(DELETED_AT_ONCE):
            await self._sweeps.sweep_session(session_id)

    async def _forget_requests(self) -> None:
        # An hour more than is promised, so that no promise rests on the exactness of a clock.
        while await self._sweeps.forget_requests(REQUEST_ID_HOURS + 1.0):
            pass
