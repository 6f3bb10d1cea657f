"""One run: fill, warm up, rest, load with faults, rest, check. It finds figures; `verdicts` says what they mean."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from soak.faults import Faults
from soak.load import Load
from soak.sampler import Sampler
from soak.verdicts import Bounds, back, judge
from soak.world import World

REST_SECONDS: Final = 90
FILLING: Final = 32
"""Sessions that are made at a time before the run."""


async def soak(folder: Path, *, seconds: float, seed: int, fill: int, bounds: Bounds) -> dict[str, Any]:
    """What was found, and the verdicts.

    fill: Sessions to make first. A replica remembers the newest 20,000, and what it remembers is no leak.
    """
    began = time.time()
    async with World.open(folder) as world:
        load = Load(world.space, world.addresses, seed)
        sampler = Sampler(world, load, pause=max(1.0, min(5.0, seconds / 60)))
        await _fill(world, fill)
        async with load.running():
            await asyncio.sleep(min(60.0, seconds / 5))
        before = await _rest(sampler)
        faults = Faults(world, seed, pause=max(5.0, min(30.0, seconds / 8)))
        started = time.monotonic()
        await _under_load(load, sampler, faults, seconds)
        after = await _rest(sampler, lambda sample: all(line.holds for line in back(before, sample, bounds)))
        replay, said = await world.check()
    found = {
        "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)),
        "minutes": seconds / 60,
        "seed": seed,
        "filled": fill,
        "before": before,
        "after": after,
        "samples": sampler.samples,
        "calls": dict(load.calls),
        "refused": dict(load.refused),
        "unexpected": load.unexpected + faults.wrong + ([said] if replay else []),
        "faults": dict(faults.done),
        "fault_times": [(at - sampler.started, name) for at, name in faults.times if at > started],
        "missing_faults": faults.missing,
        "replay": replay,
    }
    return found | {"verdicts": judge(found, bounds)}


async def _under_load(load: Load, sampler: Sampler, faults: Faults, seconds: float) -> None:
    """The part that is judged. Whatever ends first by an error ends it."""
    async with load.running():
        tasks = [
            asyncio.create_task(sampler.sampling()),
            asyncio.create_task(faults.until(time.monotonic() + seconds)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _rest(sampler: Sampler, quiet: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
    """How it is without load: looks until nothing is under way and all is quiet, or until that never came."""
    until = time.monotonic() + REST_SECONDS
    while True:
        await asyncio.sleep(1)
        sample = await sampler.sample()
        at_rest = sample["queued"] == 0 and sample["follows"] == 0 and quiet(sample)
        if at_rest or time.monotonic() > until:
            return sample | {"tables": await sampler.tables()}


async def _fill(world: World, sessions: int) -> None:
    """Makes Sessions that the replica does not know from their creation, and makes it read them: one it made itself
    takes a third of the memory, and each that replaces such a one would look like a leak.
    """
    elsewhere = world.space.on(world.mortal)
    left = iter(range(sessions))

    async def fill() -> None:
        for _ in left:
            made = await elsewhere.session(labels={"by": "filling"})
            await world.space.rpc.call("CompleteSession", session_id=made.session.session_id)

    await asyncio.gather(*(fill() for _ in range(FILLING)))
