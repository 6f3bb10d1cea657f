"""A wire proxy that breaks writing statements, by chance all the time and more in stretches, and counts each."""

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

from support.wire import Cut, Fails, Fault, WireProxy

WRITES = re.compile(r"^\s*(WITH|INSERT|UPDATE|DELETE|COMMIT)", re.IGNORECASE)
WEATHER: list[Fault] = [*["cut-after"] * 6, *["cut-before"] * 2, Fails("40001"), Fails("40P01")]  # type: ignore[list-item]
NAMES: dict[Fault, str] = {
    "cut-after": "cut-after-commit",
    "cut-before": "cut-before-commit",
    Fails("40001"): "fail-to-serialize",
    Fails("40P01"): "fail-by-deadlock",
}


class CuttingProxy(WireProxy):
    """weather: what share of writing statements is broken from `begin` to `calm`.

    armed: how many of the next are to be broken besides, in each way. fell: how many were, by the fault's name.
    """

    def __init__(self, upstream: str, folder: Path, seed: str, weather: float) -> None:
        super().__init__(upstream, folder)
        self.folder = folder
        self.fault = self._choose
        self.armed: Counter[Cut] = Counter()
        self.fell: Counter[str] = Counter()
        self._weather = 0.0
        self._worst = weather
        self._random = random.Random(seed)

    def arm(self, fault: Cut, count: int) -> None:
        self.armed[fault] += count

    def disarm(self) -> None:
        self.armed.clear()

    def begin(self) -> None:
        """The weather sets in."""
        self._weather = self._worst

    def calm(self) -> None:
        """Nothing more is broken."""
        self._weather = 0.0
        self.disarm()

    async def hush(self, seconds: float) -> None:
        """Swallows everything for so long; then the connections are cut, for what was swallowed is gone."""
        self.silent = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.silent = False
            self.cut_all()

    def _choose(self, statement: str) -> Fault | None:
        if self.silent or not WRITES.match(statement):
            return None
        chance = self._random.random()
        fault = self._armed(chance) or (self._random.choice(WEATHER) if chance < self._weather else None)
        if fault is not None:
            self.fell[NAMES[fault]] += 1
        return fault

    def _armed(self, chance: float) -> Cut | None:
        fault = next((fault for fault, left in self.armed.items() if left > 0), None)
        if fault is None or chance > 0.4:
            return None
        self.armed[fault] -= 1
        return fault
