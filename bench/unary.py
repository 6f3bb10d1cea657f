"""Unary calls, by the Go client: what an append costs beside an empty call, and beside a transaction for each event."""

import statistics
from typing import Any

from world import APPEND, BENCH, EMPTY, Load, World
from yardsticks import commit_delay, single_commits

Report = dict[str, Any]

IN_FLIGHT = 64
ONE_TRANSACTION = BENCH + "AppendOneTransaction"
UNCHECKED = BENCH + "AppendUnchecked"
# A Session takes a hundred queued turns at most; these many Sessions have room for several windows.
SESSIONS = 1_000
CURVE = (1, 4, 16, 64, 256)
WINDOWS = 4


class Side:
    """One side of a comparison: a method, measured in several short windows.

    sessions: calls go to so many Sessions in turn.
    single: interrupts of 1 KB on idle Sessions, one event each, and no bound on how many; otherwise messages of 1 KB,
    each of which begins or queues a turn.
    """

    def __init__(
        self,
        world: World,
        load: Load,
        method: str,
        in_flight: int,
        *,
        sessions: int = SESSIONS,
        single: bool = False,
    ) -> None:
        self._world = world
        self._load = load
        self._method = method
        self._in_flight = in_flight
        self._count = 0 if method == EMPTY else sessions
        self._rest = b"" if method == EMPTY else world.interrupt if single else world.message
        self._sessions: list[str] = []
        self._windows: list[Report] = []

    async def window(self, seconds: float) -> None:
        """One of them."""
        if len(self._sessions) < self._count:
            self._sessions = await self._world.sessions(self._count)
        self._windows.append(
            await self._load.measure(self._method, self._in_flight, seconds, sessions=self._sessions, rest=self._rest)
        )

    def report(self) -> Report:
        """The middle of the windows."""
        return {key: statistics.median(each[key] for each in self._windows) for key in self._windows[0]}


async def side_by_side(sides: dict[str, Side], seconds: float) -> dict[str, Report]:
    """Window by window, so that what disturbs the machine disturbs all sides."""
    for _ in range(WINDOWS):
        for side in sides.values():
            await side.window(seconds / WINDOWS)
    return {name: side.report() for name, side in sides.items()}


async def at_64(world: World, load: Load, seconds: float) -> dict[str, Report]:
    """Lines 1, 2, 13 and 16."""
    sides = {
        "empty": Side(world, load, EMPTY, IN_FLIGHT),
        "append": Side(world, load, APPEND, IN_FLIGHT),
        "single": Side(world, load, APPEND, IN_FLIGHT, single=True),
        "unchecked": Side(world, load, UNCHECKED, IN_FLIGHT),
        "one_transaction": Side(world, load, ONE_TRANSACTION, IN_FLIGHT),
        "hot": Side(world, load, APPEND, IN_FLIGHT, sessions=1, single=True),
        "hot_one_transaction": Side(world, load, ONE_TRANSACTION, IN_FLIGHT, sessions=1, single=True),
    }
    return await side_by_side(sides, seconds)


async def alone(world: World, load: Load, seconds: float) -> dict[str, Report]:
    """Line 5: one caller at a time."""
    sides = {
        "empty": Side(world, load, EMPTY, 1),
        "append": Side(world, load, APPEND, 1, sessions=SESSIONS // 10),
        "one_transaction": Side(world, load, ONE_TRANSACTION, 1, sessions=SESSIONS // 10),
    }
    commit = await single_commits(world, seconds / 2)
    found = await side_by_side(sides, seconds)
    again = await single_commits(world, seconds / 2)
    return {**found, "commit": {key: (commit[key] + again[key]) / 2 for key in commit}}


async def flush(world: World, load: Load, seconds: float) -> dict[str, Report]:
    """Line 6: the same appends on a disk that takes two milliseconds longer to say that it has written."""
    sides = {"quick": Side(world, load, APPEND, IN_FLIGHT), "slow": Side(world, load, APPEND, IN_FLIGHT)}
    try:
        for _ in range(WINDOWS):
            for name, side in sides.items():
                await commit_delay(world, 2_000 if name == "slow" else 0)
                await side.window(seconds / WINDOWS)
    finally:
        await commit_delay(world, 0)
    return {name: side.report() for name, side in sides.items()}


async def curve(world: World, load: Load, seconds: float) -> dict[str, list[Report]]:
    """Throughput and latency against concurrency."""
    methods = {"empty": EMPTY, "append": APPEND, "one_transaction": ONE_TRANSACTION}
    found: dict[str, list[Report]] = {name: [] for name in methods}
    for in_flight in CURVE:
        for name, method in methods.items():
            side = Side(world, load, method, in_flight)
            await side.window(seconds)
            found[name].append(side.report())
    return found
