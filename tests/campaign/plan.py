"""Which faults fall, when, and in what order: chosen by the seed alone."""

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator

from campaign.faults import KINDS, Kind
from campaign.history import History
from campaign.scene import Scene

# Of faults that last, so many at a time: with more, nothing would work in between.
AT_ONCE = 5


class Storm:
    """Lets faults fall. counts: those that fell, by kind, without those of proxies. kills: of processes."""

    def __init__(self, scene: Scene, history: History, rate: float, kinds: list[str] | None = None) -> None:
        self._scene = scene
        self._history = history
        self._rate = rate
        self._possible = [KINDS[name] for name in kinds or KINDS if KINDS[name].possible(scene)]
        self.skipped = sorted(name for name in kinds or KINDS if not KINDS[name].possible(scene))
        self._chance = random.Random(f"{scene.seed}/plan")
        self._needs: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        self.kills = 0

    def plan(self) -> Iterator[Kind]:
        """Every kind once, in some order, then by weight without end."""
        once = list(self._possible)
        self._chance.shuffle(once)
        yield from once
        while True:
            yield from self._chance.choices(self._possible, [kind.weight for kind in self._possible], k=1)

    async def fall(self, kind: Kind) -> None:
        """Begins a fault, and waits until the next one is due."""
        chance = random.Random(self._chance.random())
        gap = self._chance.expovariate(self._rate)
        await self._places.acquire()
        task = asyncio.create_task(self._act(kind, chance))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(gap)

    async def over(self) -> None:
        """Returns when no fault lasts any more."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _act(self, kind: Kind, chance: random.Random) -> None:
        try:
            async with self._needs[kind.needs] if kind.needs else contextlib.nullcontext():
                self._history.fault(kind.name)
                if (fell := await kind.act(self._scene, chance)) is not False:
                    self.counts[kind.name] += 1
                    self.kills += int(fell or 0) if kind.kills else 0
        finally:
            self._places.release()

    def raise_if_broken(self) -> None:
        """A fault that could not fall is a defect of the campaign."""
        for task in self._tasks:
            if task.done():
                task.result()
