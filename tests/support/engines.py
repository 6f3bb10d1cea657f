"""The databases that the whole suite can run on: `pytest --engine NAME`.

postgresql      what the service is shipped with: READ COMMITTED, LISTEN, claims with SKIP LOCKED.
crdb-switches   PostgreSQL asked for what CockroachDB would be: SERIALIZABLE, no LISTEN, no SKIP LOCKED, small batches.
crdb-wire       PostgreSQL behind a proxy that calls itself CockroachDB, refuses what that refuses, and lets statements
                of server processes fail now and then. What runs inside the tests' own process goes by a calm way, for
                such tests count failures of their own.
crdb            a real cluster, named by CRDB_DSN. Its databases come and go on it, so give it one for tests.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from turnlog_server.store.database import Database

ENGINES = ("postgresql", "crdb-switches", "crdb-wire", "crdb")
# One statement in so many of a server process fails.
EVERY = int(os.environ.get("TURNLOG_TEST_FAULT_EVERY", "200"))
# On tables as small as those of tests PostgreSQL reads whole tables, and then everybody's writes conflict.
BY_INDEX = {f"enable_{name}": "off" for name in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")} | {"jit": "off"}
PATIENCE = 30.0


@dataclass
class Engine:
    """The engine of this run.

    environment: what server processes are told beside the address.
    postgres_settings: of the PostgreSQL underneath.
    through: from a database's own address to the one that tests see.
    outside: from that to the one that server processes see.
    weather: the faults that they met, once the proxy is gone.
    """

    name: str = "postgresql"
    environment: dict[str, str] = field(default_factory=dict)
    postgres_settings: dict[str, str] = field(default_factory=dict)
    through: Callable[[str], str] = lambda dsn: dsn
    outside: Callable[[str], str] = lambda dsn: dsn
    weather: dict[str, int] = field(default_factory=dict)

    def use(self, name: str) -> None:
        """From here on everything runs on this one."""
        self.name = name
        if name == "crdb-switches":
            self.environment = {"TURNLOG_FORCE_DIALECT": "crdb"}
            # Most tests open a Database without saying how.
            Database.open.__func__.__kwdefaults__["force_dialect"] = "crdb"
        if name == "crdb-wire":
            self.postgres_settings = BY_INDEX

    def for_process(self, dsn: str) -> dict[str, str]:
        """The environment of a server process on this database."""
        return self.environment | {"TURNLOG_DATABASE_URL": self.outside(dsn)}

    @asynccontextmanager
    async def before(self, upstream: str) -> AsyncIterator[None]:
        """Stands before a PostgreSQL where the engine is a proxy."""
        if self.name != "crdb-wire":
            yield
            return
        async with wire_process(upstream, EVERY, os.getpid()) as proxy:
            self.through = proxy.calm
            self.outside = proxy.rough
            yield
        self.weather = proxy.met


engine = Engine()


class WireProcess:
    """The proxy as a process, with a calm address and one with weather.

    met, statements: the faults that servers met and all that they sent, once the proxy is gone.
    """

    def __init__(self, process: asyncio.subprocess.Process, told: dict[str, str]) -> None:
        self.process = process
        self.met: dict[str, int] = {}
        self.statements: list[str] = []
        self._calm, self._rough = (_place(told[name]) for name in ("calm", "rough"))

    def calm(self, dsn: str) -> str:
        """The way to a database of the upstream on which nothing fails."""
        return make_conninfo(dsn, **self._calm)

    def rough(self, dsn: str) -> str:
        """The other way, for an address that leads by the proxy or to its upstream; others stay as they are."""
        return make_conninfo(dsn, **self._rough) if _place(dsn) == self._calm else dsn


@asynccontextmanager
async def wire_process(upstream: str, every: int, seed: int) -> AsyncIterator[WireProcess]:
    """`wire_process.py` before a server, one statement in `every` failing."""
    folder = tempfile.mkdtemp(prefix="tlw-", dir="/tmp")
    here = Path(__file__).parent
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(here / "wire_process.py"), upstream, folder, str(every), str(seed),
        stdin=pipe, stdout=pipe, env=os.environ | {"PYTHONPATH": str(here.parent)},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            proxy = WireProcess(process, json.loads(await process.stdout.readline()))
        yield proxy
        process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            told = json.loads(await process.stdout.read())
            proxy.met, proxy.statements = told["faults"], told["statements"]
    finally:
        if process.returncode is None:
            process.stdin.close()
        await process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _place(dsn: str) -> dict[str, str]:
    given = conninfo_to_dict(dsn)
    return {"host": str(given.get("host") or ""), "port": str(given.get("port") or "5432")}
