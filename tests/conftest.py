"""Fixtures for every test: a real PostgreSQL, and databases on it."""

import os

# Read when gRPC starts: see `turnlog_server.app.cli`.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hypothesis
import pytest
import structlog
from support.engines import ENGINES, engine
from support.postgres import Cluster, PostgresServer, postgres_running
from support.replicas import QUICK, Live, Space, live_replica, make_space
from turnlog_server.store.database import Database

weather: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--engine`: see `support.engines`."""
    parser.addoption("--engine", choices=ENGINES, default="postgresql", help="the database that the suite runs on")


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the engine."""
    engine.use(config.getoption("engine"))
    if engine.name == "crdb" and not os.environ.get("CRDB_DSN"):
        raise pytest.UsageError("--engine crdb needs CRDB_DSN, the address of a CockroachDB cluster for tests")


def pytest_report_header() -> str:
    """Says the engine."""
    return f"engine: {engine.name}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Beside PostgreSQL, the switches of one dialect are enough: those of the engine."""
    if engine.name == "postgresql":
        return
    other = None if engine.name == "crdb-switches" else "crdb"
    ours, dropped = [], []
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        (dropped if "force_dialect" in params and params["force_dialect"] == other else ours).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = ours


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tells the process that gathers the results which faults were met."""
    weather.update(engine.weather)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["weather"] = engine.weather


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes that from a worker that is done."""
    weather.update(getattr(node, "workeroutput", {}).get("weather", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which faults the servers met."""
    if weather:
        terminalreporter.section("faults that server processes met")
        for fault, times in sorted(weather.items()):
            terminalreporter.write_line(f"{times:6} {fault}")


# Values of every frame take seconds to draw, in which the event loop stands.
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], structlog.dev.ConsoleRenderer(
    colors=False, exception_formatter=structlog.dev.plain_traceback)])  # fmt: skip

# Machines are shared and noisy: how long an example takes says nothing.
hypothesis.settings.register_profile(
    "turnlog", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("turnlog")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a tool beyond Python run where it is found; in CI a tool that is missing is a failure."""
    for mark in item.iter_markers("only_on"):
        if engine.name not in mark.args:
            pytest.skip(f"not on {engine.name}: {mark.kwargs['reason']}")
    for mark in item.iter_markers("system"):
        for tool in mark.args:
            if shutil.which(tool) is None:
                (pytest.fail if os.environ.get("TURNLOG_REQUIRE_SYSTEM") else pytest.skip)(f"needs {tool}")


@pytest.fixture(scope="session")
async def postgres() -> AsyncIterator[PostgresServer | Cluster]:
    """One database server for the whole run."""
    if engine.name == "crdb":
        yield Cluster(os.environ["CRDB_DSN"])
        return
    async with postgres_running(**engine.postgres_settings) as server, engine.before(server.dsn):
        yield server


@pytest.fixture(scope="session")
async def schema_template(postgres: PostgresServer | Cluster) -> str:
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


@pytest.fixture(params=[None, "crdb"], ids=["own", "crdb-switches"])
def force_dialect(request: pytest.FixtureRequest) -> str | None:
    """Each set of dialect switches."""
    return request.param


@pytest.fixture
async def database(force_dialect: str | None, dsn: str) -> AsyncIterator[Database]:
    """An open Database, under each set of dialect switches."""
    database = await Database.open(dsn, pool_size=4, force_dialect=force_dialect)
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
