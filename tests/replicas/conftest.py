"""Several replicas on one database, and a proxy before them."""

from collections.abc import AsyncIterator

import pytest
from support.fronted import Fronted, fronted
from support.postgres import PostgresServer


@pytest.fixture(scope="module")
async def trio(postgres: PostgresServer, schema_template: str) -> AsyncIterator[Fronted]:
    """Three replicas behind a proxy. A test that ends one starts its own."""
    dsn = postgres.database_create(schema_template)
    async with fronted(dsn, dsn, dsn) as trio:
        yield trio
    postgres.database_drop(dsn)
