"""The database of a command: one that is given, the embedded one of a running server, or one started for a moment."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnlog_server.app.embedded import EmbeddedPostgres, running_dsn
from turnlog_server.app.settings import Settings
from turnlog_server.store.database import Database
from turnlog_server.store.migrate import migrate, schema_require

COMMAND_POOL = 2


@asynccontextmanager
async def database_address(settings: Settings) -> AsyncIterator[str]:
    """Where it is. Raises EmbeddedError."""
    given = settings.dsn or running_dsn(settings.data_dir)
    if given is not None:
        yield given
        return
    postgres = await EmbeddedPostgres.start(
        settings.data_dir, binaries=settings.postgres_bin, fsync=settings.embedded_fsync
    )
    try:
        yield postgres.dsn
    finally:
        await postgres.stop()


@asynccontextmanager
async def database_open(settings: Settings) -> AsyncIterator[Database]:
    """Open, with the schema of this release; the embedded one is brought up to date first.

    Raises EmbeddedError, StoreSetupError, and Refusal where it cannot be reached.
    """
    async with database_address(settings) as dsn:
        if settings.dsn is None:
            await migrate(dsn)
        database = await Database.open(dsn, pool_size=COMMAND_POOL, force_dialect=settings.force_dialect)
        try:
            await schema_require(database)
            yield database
        finally:
            await database.close()
