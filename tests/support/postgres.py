"""A real database server for the tests: one for all of them, and on it one database for each."""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from support.engines import engine
from turnlog_server.app.embedded import EmbeddedPostgres
from turnlog_server.store.migrate import migrate

TEMPLATE = "turnlog_template"
# Ten servers with a pool each, and then some.
MAX_CONNECTIONS = "300"


class PostgresServer:
    """A running server. `dsn` leads to its maintenance database; tests take `database_create`."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.dsn = server.dsn
        self.data = server.data
        self.pid = server.pid
        self.log = server.log
        self._numbers = itertools.count(1)

    def dsn_of(self, database: str) -> str:
        """The connection string of another database of this server, by the way of the engine."""
        return engine.through(make_conninfo(self.dsn, dbname=database))

    def execute(self, statement: str) -> None:
        """Run a statement in the maintenance database."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(sql.SQL(statement))  # type: ignore[arg-type]

    def database_create(self, template: str | None = None) -> str:
        """A new database, empty or a copy of `template`; returns its connection string."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return self.dsn_of(name)

    def database_drop(self, dsn: str) -> None:
        """Drop a database, whoever is still connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {conninfo_to_dict(dsn)['dbname']} WITH (FORCE)")

    async def template_create(self) -> str:
        """A database with the schema of this server, to be copied; returns its name."""
        self.execute(f"CREATE DATABASE {TEMPLATE}")
        await migrate(self.dsn_of(TEMPLATE))
        return TEMPLATE


class Cluster:
    """A CockroachDB cluster of somebody's, used like a PostgresServer. It copies no database, so each is migrated."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._numbers = itertools.count(1)

    def database_create(self, template: str | None = None) -> str:
        """A new database, empty or with the schema; returns its connection string."""
        name = f"turnlog_test_{os.getpid()}_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        dsn = make_conninfo(self.dsn, dbname=name)
        if template:
            program = Path(sys.executable).with_name("turnlog-server")
            environment = os.environ | {"TURNLOG_DATABASE_URL": dsn}
            subprocess.run([program, "migrate"], env=environment, check=True, capture_output=True, timeout=600)
        return dsn

    def database_drop(self, dsn: str) -> None:
        """Drop a database with all that is in it."""
        self._execute(f"DROP DATABASE IF EXISTS {conninfo_to_dict(dsn)['dbname']} CASCADE")

    async def template_create(self) -> str:
        """What `database_create` takes for a database with the schema."""
        return TEMPLATE

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(sql.SQL(statement))  # type: ignore[arg-type]


@asynccontextmanager
async def postgres_running(**settings: str) -> AsyncIterator[PostgresServer]:
    """A server of its own that loses its data in a power cut, which is what makes it fast."""
    root = _short_folder()
    settings = {"max_connections": MAX_CONNECTIONS} | settings
    try:
        server = await EmbeddedPostgres.start(root, fsync=False, settings=settings)
        try:
            yield PostgresServer(server)
        finally:
            await server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _short_folder() -> Path:
    # The path of a Unix socket is short: below /tmp, whatever TMPDIR says.
    root = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    root.chmod(0o755)  # as root, PostgreSQL runs as another user
    return root
