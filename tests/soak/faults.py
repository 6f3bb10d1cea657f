"""What is done to the part of the world that is not watched."""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

from soak.world import World

SHARE = 0.4


class Faults:
    """Each kind in turn, in an order that the seed gives, one every `pause` seconds."""

    def __init__(self, world: World, seed: int, pause: float) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._pause = pause
        self.done: Counter[str] = Counter()
        self.times: list[tuple[float, str]] = []
        self.wrong: list[str] = []
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "replica killed": self._kill_replica,
            "replica drained": self._drain_replica,
            "runner killed": self._kill_runner,
            "runner drained": self._drain_runner,
            "connections cut": self._cut_connections,
        }

    async def until(self, end: float) -> None:
        """One after the other, the last well before `end` of the monotonic clock; longer until each kind was there."""
        order: list[str] = []
        while self.missing or time.monotonic() + 2 * self._pause < end:
            await asyncio.sleep(self._pause)
            if not order:
                order = self._random.sample(sorted(self.kinds), len(self.kinds))
            name = order.pop()
            self.times.append((time.monotonic(), name))
            await self.kinds[name]()
            self.done[name] += 1
        await asyncio.sleep(max(0.0, end - time.monotonic()))

    @property
    def missing(self) -> int:
        """Kinds that did not come."""
        return len(self.kinds.keys() - self.done.keys())

    async def _kill_replica(self) -> None:
        await self._world.end_mortal(signal.SIGKILL)

    async def _drain_replica(self) -> None:
        self._expect("replica", await self._world.end_mortal(signal.SIGTERM))

    async def _kill_runner(self) -> None:
        await self._world.end_runner(signal.SIGKILL)

    async def _drain_runner(self) -> None:
        self._expect("runner", await self._world.end_runner(signal.SIGTERM))

    async def _cut_connections(self) -> None:
        await asyncio.to_thread(self._world.cut_connections, SHARE)

    def _expect(self, who: str, code: int) -> None:
        if code != 0:
            self.wrong.append(f"a {who} that was asked to stop ended with {code}")
