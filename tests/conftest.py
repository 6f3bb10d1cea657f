"""Fixtures for every test: a real PostgreSQL, and databases on it."""

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest
from support.postgres import PostgresServer, postgres_running
from turnlog_server.store.database import Database


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a tool beyond Python run where it is found."""
    for mark in item.iter_markers("system"):
        for tool in mark.args:
            if shutil.which(tool) is None:
                pytest.skip(f"needs {tool}")


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
