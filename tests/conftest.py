"""Fixtures for every test: a real PostgreSQL, and databases on it."""

import os

# Read when gRPC starts: see `turnlog_server.app.cli`.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from support.postgres import PostgresServer, postgres_running
from support.replicas import QUICK, Live, Space, live_replica, make_space
from turnlog_server.store.database import Database


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a tool beyond Python run where it is found; in CI a tool that is missing is a failure."""
    for mark in item.iter_markers("system"):
        for tool in mark.args:
            if shutil.which(tool) is None:
                (pytest.fail if os.environ.get("TURNLOG_REQUIRE_SYSTEM") else pytest.skip)(f"needs {tool}")


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[PostgresServer]:
    """One PostgreSQL for the whole run."""
    async with postgres_running() as server:
        yield server


@pytest.fixture(scope="session")
async def schema_template(postgres: PostgresServer) -> str:
    """The name of a database with the whole schema."""
    return await postgres.template_create()


@pytest.fixture
def dsn(postgres: PostgresServer, schema_template: str) -> Iterator[str]:
    """A database with the schema and no rows, for this test alone."""
    dsn = postgres.database_create(schema_template)
    yield dsn
    postgres.database_drop(dsn)


@pytest.fixture
def empty_dsn(postgres: PostgresServer) -> Iterator[str]:
    """A database without any table, for this test alone."""
    dsn = postgres.database_create()
    yield dsn
    postgres.database_drop(dsn)


@pytest.fixture(params=[None, "crdb"], ids=["postgresql", "crdb-switches"])
async def database(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[Database]:
    """An open Database, under each set of dialect switches."""
    database = await Database.open(dsn, pool_size=4, force_dialect=request.param)
    yield database
    await database.close()


@pytest.fixture(scope="session")
async def live(postgres: PostgresServer, schema_template: str) -> AsyncIterator[Live]:
    """One server process for many tests, its intervals turned down. A test that kills starts its own."""
    dsn = postgres.database_create(schema_template)
    async with live_replica(dsn, *QUICK) as live:
        yield live
    postgres.database_drop(dsn)


@pytest.fixture
async def space(live: Live) -> Space:
    """A workspace of its own on the shared server, with a deployment and keys."""
    return await make_space(live)
