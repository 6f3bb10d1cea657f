"""Redis: XADD of 1 KB, each caller with a connection and a stream of its own. argv: the port."""

import os
import sys
from typing import Any

import uvloop
from closed import Call, closed, serve
from redis.asyncio import Redis

PORT = int(sys.argv[1])
BODY = os.urandom(1000)


def caller(number: int) -> Call:
    redis = Redis(port=PORT, single_connection_client=True)

    async def call() -> None:
        await redis.xadd(f"s{number}", {"body": BODY})

    return call


async def measure(job: dict[str, Any]) -> dict[str, Any]:
    return await closed(job, caller)


async def main() -> None:
    info = await Redis(port=PORT).info("server")
    await serve(measure, version=info["redis_version"])


uvloop.run(main())
