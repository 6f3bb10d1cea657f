"""What the drivers of peers share: jobs as JSON lines in, reports out, and callers with one call in flight each."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

Call = Callable[[], Awaitable[object]]


async def serve(measure: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]], **ready: Any) -> None:
    """Says that it is ready, with what is known of the peer, and measures until its input ends."""
    print(json.dumps(ready), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await measure(json.loads(line))), flush=True)


async def closed(job: dict[str, Any], caller: Callable[[int], Call]) -> dict[str, Any]:
    """Calls per second and milliseconds a call. `caller(number)` makes what one caller does again and again."""
    start = time.perf_counter() + job["warmup"]
    stop = start + job["seconds"]
    taken: list[float] = []

    async def call(one: Call) -> None:
        while (began := time.perf_counter()) < stop:
            await one()
            ended = time.perf_counter()
            if began >= start and ended < stop:
                taken.append(ended - began)

    await asyncio.gather(*(call(caller(number)) for number in range(job["callers"])))
    if not taken:
        raise RuntimeError(f"no call began and ended within {job['seconds']:g} seconds")
    taken.sort()
    at = [taken[min(len(taken) - 1, int(len(taken) * share))] * 1000 for share in (0.5, 0.99)]
    rate = len(taken) / job["seconds"]
    return {"callers": job["callers"], "calls": len(taken), "rate": rate, "p50": at[0], "p99": at[1]}
