"""A wire proxy that cuts connections at chosen statements, and counts each cut."""

import asyncio
import random
import re
from collections import Counter
from pathlib import Path

from support.wire import Fault, WireProxy

WRITES = re.compile(r"^\s*(WITH|INSERT|UPDATE|DELETE|COMMIT)", re.IGNORECASE)


class CuttingProxy(WireProxy):
    """armed: how many of the next writing statements are to be cut, of each kind."""

    def __init__(self, upstream: str, folder: Path, seed: str) -> None:
        super().__init__(upstream, folder)
        self.folder = folder
        self.fault = self._choose
        self.armed: Counter[Fault] = Counter()
        self.cuts: Counter[str] = Counter()
        self._random = random.Random(seed)

    def arm(self, fault: Fault, count: int) -> None:
        self.armed[fault] += count

    def disarm(self) -> None:
        self.armed.clear()

    async def hush(self, seconds: float) -> None:
        """Swallows everything for so long; then the connections are cut, for what was swallowed is gone."""
        self.silent = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self.silent = False
            self.cut_all()

    def _choose(self, statement: str) -> Fault | None:
        if self.silent or not WRITES.match(statement) or self._random.random() > 0.3:
            return None
        fault = next((fault for fault, left in self.armed.items() if left > 0), None)
        if fault is not None:
            self.armed[fault] -= 1
            self.cuts[fault] += 1
        return fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await super()._serve(reader, writer)
        except OSError:
            # PostgreSQL is away.
            writer.transport.abort()
