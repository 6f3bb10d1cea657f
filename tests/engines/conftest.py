"""Servers on the engines that the suite does not run on by itself."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import pytest
from psycopg.conninfo import conninfo_to_dict
from support.engines import BY_INDEX, wire_process
from support.postgres import PostgresServer
from support.replicas import QUICK, Live, Space, live_replica, make_space
from support.sql_lint import numbered, pieces, statements
from turnlog_server.store.dialect import COCKROACH

# One statement in so many of a server fails: far more than in a run of the whole suite, for these tests are short.
EVERY = 25
# What makes a transaction or a session, and asks for nothing.
SESSION = re.compile(r"BEGIN|COMMIT|ROLLBACK|DEALLOCATE ALL|SELECT 1$|SELECT set_config\(")


@dataclass
class Elsewhere:
    """A database with the schema on another engine.

    dsn: the calm way to it. outside: the way that servers take.
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
    if request.param == "crdb-switches":
        yield Elsewhere(request.param, dsn, dsn, {"TURNLOG_FORCE_DIALECT": "crdb"})
        return
    for name, value in BY_INDEX.items():
        postgres.execute(f"ALTER DATABASE {conninfo_to_dict(dsn)['dbname']} SET {name} = {value}")
    async with wire_process(dsn, EVERY, os.getpid()) as proxy:
        yield Elsewhere(request.param, proxy.calm(dsn), proxy.rough(proxy.calm(dsn)))
    assert proxy.met
    assert unknown(proxy.statements) == []


def unknown(sent: list[str]) -> list[str]:
    """Of what servers sent, that which no test of statements sees."""
    texts = [re.sub(r"\{(\w+)\}", r"slot_\1", COCKROACH.sql(text)) for text in statements().values()]
    known = {piece for text in texts for piece in pieces(numbered(text)[0])}
    return [text for text in sent if not SESSION.match(text) and not pieces(text) <= known]
