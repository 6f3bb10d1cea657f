"""Servers on the engines that the suite does not run on by itself."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace

import pytest
from support.engines import BY_INDEX, wire_process
from support.postgres import PostgresServer
from support.replicas import QUICK, Live, Space, live_replica, make_space

# One statement in so many of a server fails: far more than in a run of the whole suite, for these tests are short.
EVERY = 25


@dataclass
class Elsewhere:
    """A database with the schema on another engine.

    dsn: the calm way to it. outside: the way that servers take.
    met: the faults of servers, once the test is over.
    """

    name: str
    dsn: str
    outside: str
    environment: dict[str, str] = field(default_factory=dict)

    def replica(self, *arguments: str) -> AbstractAsyncContextManager[Live]:
        """A server process on it."""
        return live_replica(self.outside, *QUICK, *arguments, environment=self.environment)

    async def space(self, live: Live) -> Space:
        """A workspace on it."""
        return await make_space(replace(live, dsn=self.dsn))


@pytest.fixture(params=["crdb-switches", "crdb-wire"])
async def elsewhere(request: pytest.FixtureRequest, postgres: PostgresServer, dsn: str) -> AsyncIterator[Elsewhere]:
    """Each of the other engines, on a database of its own."""
    async with AsyncExitStack() as stack:
        if request.param == "crdb-switches":
            yield Elsewhere(request.param, dsn, dsn, {"TURNLOG_FORCE_DIALECT": "crdb"})
            return
        for name, value in BY_INDEX.items():
            postgres.execute(f"ALTER DATABASE {dsn.split('dbname=')[1].split()[0]} SET {name} = {value}")
        proxy = await stack.enter_async_context(wire_process(dsn, EVERY, os.getpid()))
        yield Elsewhere(request.param, proxy.calm(dsn), proxy.rough(proxy.calm(dsn)))
