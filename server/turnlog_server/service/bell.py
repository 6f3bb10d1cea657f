"""What wakes a follower."""

import asyncio


class Bell:
    """What a follower sleeps on: it rings when something happens, and at a time at the latest, or too early: that time
    is mostly overtaken by events, and setting it back each time would cost more than looking up for nothing now and
    then."""

    __slots__ = ("_rung", "_sleeper", "_timer")

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Something happened."""
        self._rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def hush(self) -> None:
        """What rang so far is being seen to."""
        self._rung = False

    async def sleep(self, until: float) -> None:
        """Until it rings. until: in the time of the event loop."""
        if self._rung:
            return
        loop = asyncio.get_running_loop()
        if self._timer is None or self._timer.when() > until:
            self.close()
            self._timer = loop.call_at(until, self._late) if until < float("inf") else None
        self._sleeper = loop.create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def close(self) -> None:
        """No more by the time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        self.ring()
