"""The time that events and deadlines are stamped with: the database's, so that replicas agree whatever theirs says."""

import time
from collections.abc import Awaitable, Callable


class Clock:
    """The database's clock, carried on by this machine's monotonic one between two looks."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        # Until the first look the machine's own clock has to do.
        self._offset = int(time.time() * 1_000_000) - int(monotonic() * 1_000_000)

    def now(self) -> int:
        """Microseconds since the epoch."""
        return int(self._monotonic() * 1_000_000) + self._offset

    @property
    def skew(self) -> int:
        """How far this machine's clock is ahead of the database's, in microseconds."""
        return int(time.time() * 1_000_000) - self.now()

    async def look(self, read: Callable[[], Awaitable[int]]) -> None:
        """Asks the database. The answer belongs to the middle of the round trip."""
        before = self._monotonic()
        stated = await read()
        after = self._monotonic()
        self._offset = stated - int((before + after) / 2 * 1_000_000)
