"""When to stop: the first signal asks for it, the second cannot wait."""

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Stopping:
    """asked: somebody wants this process to end. hurry: at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()

    def ask(self) -> None:
        """Once to stop, twice to hurry."""
        if self.asked.is_set():
            self.hurry.set()
        self.asked.set()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def unless_asked(self, work: Awaitable[T]) -> T | None:
        """The result of the work, or None when it was given up because somebody asked to stop."""
        return await _first(work, self.asked, None)

    async def unless_hurried(self, work: Awaitable[T], seconds: float) -> T | None:
        """The result of the work, or None when it was given up for its time or a second signal."""
        return await _first(work, self.hurry, seconds)

    def _signalled(self, number: signal.Signals) -> None:
        log.info("stopping at once" if self.asked.is_set() else "stopping", signal=number.name)
        self.ask()


async def _first(work: Awaitable[T], event: asyncio.Event, seconds: float | None) -> T | None:
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        return None
    finally:
        waiting.cancel()
        if not task.done():
            task.cancel()
            # Its own clean-up first. What it says to being given up is of no interest.
            with suppress(asyncio.CancelledError, Exception):
                await task
