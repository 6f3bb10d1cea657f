"""Streams whose other side takes nothing.

A timer for each frame would cost more than the frame: one look a second at what is being written is enough.
"""

import asyncio

LOOK_SECONDS = 1.0


class Stalls:
    """What is being written, since when. seconds: how long that may take, and at most LOOK_SECONDS more."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # The oldest first: what is written next goes to the end.
        self._since: dict[asyncio.Timeout, float] = {}
        self._looking: asyncio.TimerHandle | None = None

    def begin(self, stream: asyncio.Timeout) -> None:
        """A frame is handed over. `stream` is around all that the stream does; it runs out when this takes too long."""
        loop = asyncio.get_running_loop()
        self._since[stream] = loop.time()
        if self._looking is None:
            self._looking = loop.call_later(LOOK_SECONDS, self._look)

    def end(self, stream: asyncio.Timeout) -> None:
        """It was taken, or nobody waits for that any more."""
        self._since.pop(stream, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for stream in self._overdue(loop.time() - self._seconds):
            stream.reschedule(loop.time())
        self._looking = loop.call_later(LOOK_SECONDS, self._look) if self._since else None

    def _overdue(self, before: float) -> list[asyncio.Timeout]:
        overdue: list[asyncio.Timeout] = []
        for stream, since in self._since.items():
            if since > before:
                break
            overdue.append(stream)
        for stream in overdue:
            del self._since[stream]
        return overdue
