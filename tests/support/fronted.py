"""Several replicas on one database with a proxy before them, and what tests of them share."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from support.haproxy import Proxy, haproxy
from support.replicas import QUICK, Follow, Live, Space, live_replica, make_space


@dataclass
class Fronted:
    """Replicas, and the proxy that spreads calls over them."""

    lives: list[Live]
    proxy: Proxy

    async def space(self) -> Space:
        """A workspace of its own, called through the proxy."""
        return (await make_space(self.lives[0])).on(self.proxy)

    def each(self, space: Space) -> list[Space]:
        """The same workspace by each replica itself."""
        return [space.on(live) for live in self.lives]


@asynccontextmanager
async def fronted(*dsns: str, arguments: Sequence[str] = QUICK) -> AsyncIterator[Fronted]:
    """A replica for each connection string, all of them for one database, and a proxy before them."""
    async with AsyncExitStack() as stack:
        starting = (stack.enter_async_context(live_replica(dsn, *arguments)) for dsn in dsns)
        lives = await asyncio.gather(*starting)
        yield Fronted(lives, await stack.enter_async_context(haproxy(lives)))


async def note(space: Space, session_id: str, text: str, **fields: Any) -> Any:
    """Appends one event with this text that starts nothing: an interrupt of an idle Session."""
    return await space.rpc.call(
        "AppendEvent",
        session_id=session_id,
        authored_by=space.subject,
        caused_by={"kind": "KIND_API"},
        user_interrupt={"reason": text},
        **fields,
    )


async def seqs_up_to(follow: Follow, head: int, got: list[int]) -> list[int]:
    """Adds to what was got until it reaches this seq."""
    while not got or got[-1] < head:
        got += [event.seq for event in await follow.events(1)]
    return got
