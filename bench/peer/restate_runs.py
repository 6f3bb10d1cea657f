"""Restate: calls of a handler by its ingress, each of which is durable before it begins and when it has ended.

argv: the URLs of its admin, of its ingress and of the service.
"""

import asyncio
import sys
from typing import Any

import aiohttp
import uvloop
from closed import Call, closed, serve

ADMIN, INGRESS, SERVICE = sys.argv[1:]
INPUT = "x" * 200
PATIENCE_SECONDS = 60


async def register(http: aiohttp.ClientSession) -> str:
    """Tells Restate of the service, as soon as both are there; returns Restate's version."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                async with http.post(f"{ADMIN}/deployments", json={"uri": SERVICE}) as answer:
                    if answer.status in (200, 201):
                        break
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.2)
    async with http.get(f"{ADMIN}/version") as answer:
        return (await answer.json()).get("version", "")


async def main() -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def call() -> None:
            async with http.post(f"{INGRESS}/Bench/answer", json=INPUT) as answer:
                body = await answer.read()
                assert answer.status == 200, body

        def caller(_: int) -> Call:
            return call

        async def measure(job: dict[str, Any]) -> dict[str, Any]:
            return await closed(job, caller)

        await serve(measure, version=await register(http))


uvloop.run(main())
