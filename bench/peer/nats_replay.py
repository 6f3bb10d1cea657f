"""NATS JetStream: an ordered consumer reads a stream of messages of 1 KB, kept in files, from its beginning.

argv: the port, and how many messages to write first.
"""

import asyncio
import os
import sys
import time
from importlib.metadata import version
from typing import Any

import nats
import uvloop
from closed import serve

PORT, COUNT = int(sys.argv[1]), int(sys.argv[2])
URL = f"nats://127.0.0.1:{PORT}"
AT_ONCE = 100


async def measure(_: dict[str, Any]) -> dict[str, Any]:
    """One read of all of it, on a connection of its own."""
    client = await nats.connect(URL)
    done, heard, size = asyncio.Event(), 0, 0

    async def hear(message: Any) -> None:
        nonlocal heard, size
        heard += 1
        size += len(message.data)
        if heard == COUNT:
            done.set()

    began = time.perf_counter()
    await client.jetstream().subscribe("bench.>", ordered_consumer=True, cb=hear)
    await asyncio.wait_for(done.wait(), 120)
    took = time.perf_counter() - began
    assert size == COUNT * 1000
    await client.close()
    return {"events": COUNT, "rate": COUNT / took}


async def main() -> None:
    client = await nats.connect(URL)
    stream = client.jetstream()
    await stream.add_stream(name="bench", subjects=["bench.>"], storage="file")
    body = os.urandom(1000)
    for _ in range(COUNT // AT_ONCE):
        await asyncio.gather(*(stream.publish("bench.one", body) for _ in range(AT_ONCE)))
    await client.close()
    await serve(measure, version=version("nats-py"))


uvloop.run(main())
