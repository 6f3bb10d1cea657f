"""Tasks beside the calls: repeated ones that survive their own mistakes, and single ones that nobody waits for."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine

import structlog

from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.errors import StoreFault

log = structlog.get_logger(__name__)

PAUSE_AFTER_FAILURE = 0.5


class Background:
    """The tasks of one part of the server; closed together."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def repeat(self, name: str, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Does `work` again and again, `seconds` apart; a failure is logged and followed by another try."""

        async def loop() -> None:
            while True:
                try:
                    await work()
                except (Refusal, StoreFault) as exc:
                    log.warning("work in the background failed", work=name, error=str(exc))
                    await asyncio.sleep(PAUSE_AFTER_FAILURE * random.uniform(0.5, 1.5))
                except Exception:
                    log.exception("work in the background failed", work=name)
                    await asyncio.sleep(PAUSE_AFTER_FAILURE)
                if seconds:
                    # Apart, so that replicas do not all look at the same moment.
                    await asyncio.sleep(seconds * random.uniform(0.8, 1.2))

        self._keep(asyncio.create_task(loop(), name=name))

    def once(self, name: str, work: Coroutine[None, None, object]) -> None:
        """Does `work` without anybody waiting for it; a failure is logged."""

        async def run() -> None:
            try:
                await work
            except (Refusal, StoreFault) as exc:
                log.warning("work in the background failed", work=name, error=str(exc))
            except Exception:
                log.exception("work in the background failed", work=name)

        self._keep(asyncio.create_task(run(), name=name))

    async def close(self) -> None:
        """Cancels everything."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
