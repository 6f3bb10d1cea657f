"""Bring the schema of a database to what this server needs, whoever else tries the same at that moment.

Any number of servers may start at once on an empty database: the one that holds the lease migrates, the others wait
until its work is recorded. One that dies in the middle leaves a lease that expires and steps that can be run again.
A server that finds a newer schema serves on, unless a step that it does not know says that it must not.
"""

import asyncio
import os
import random
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import LiteralString, TypeVar, cast

import psycopg
import structlog

from turnlog_server.store.connections import Connection, dial, probe, unavailable
from turnlog_server.store.database import Database
from turnlog_server.store.dialect import Dialect
from turnlog_server.store.errors import ErrorClass, Phase, StoreSetupError, classify, is_lost, sqlstate_of
from turnlog_server.store.leases import lease_release, lease_renew, lease_take
from turnlog_server.store.steps import SETUP_TABLE_EXISTS, Step, steps_known

log = structlog.get_logger(__name__)

STEPS_RECORDED = "SELECT number, breaking FROM schema_steps ORDER BY number"

STEP_RECORD = """
INSERT INTO schema_steps (number, name, breaking, applied_at)
SELECT %(number)s::int8, %(name)s::text, %(breaking)s::bool, now()
 WHERE EXISTS (SELECT 1 FROM leases
                WHERE name = %(lease)s::text AND holder = %(holder)s::text AND fence = %(fence)s::int8)
ON CONFLICT (number) DO NOTHING
"""

SETUP_DROP_INDEX = "DROP INDEX IF EXISTS {index}"

LEASE = "schema"
LEASE_SECONDS = 15.0
LEASE_WAIT = 120.0
# For how long to come back to a database that was lost in the middle.
COME_BACK = 60.0
# Two starters that create the same table at the same moment meet in the catalogue, whatever IF NOT EXISTS says.
CREATE_RACES = frozenset({"23505", "42P07", "42710", "XX000"})
TRIES = 20
WAITED_OUT = frozenset({ErrorClass.RETRY, ErrorClass.BUSY, ErrorClass.BACKOFF})
OPERATOR_CANCELED = "57014"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration did: the steps that it applied, and those that it found."""

    applied: tuple[str, ...]
    already: tuple[str, ...]


class LeaseLostError(Exception):
    """Another migrates now."""


async def migrate(
    dsn: str,
    *,
    wait: float | None = None,
    lease_wait: float = LEASE_WAIT,
    lease_seconds: float = LEASE_SECONDS,
    steps: Sequence[Step] | None = None,
) -> MigrationReport:
    """Apply the steps that the database does not have.

    wait: for how many seconds to try again while the database cannot be reached; None tries once.
    lease_wait: for how many seconds to wait while another migrates.

    Raises StoreSetupError where the operator must act, Refusal(STORE_UNAVAILABLE) where the database is out of reach.
    """
    migration = _Migration(dsn, steps_known() if steps is None else steps, lease_wait, lease_seconds)
    loop = asyncio.get_running_loop()
    until = loop.time() + (wait or 0.0)
    while True:
        try:
            return await migration.run()
        except (psycopg.Error, LeaseLostError) as exc:
            if isinstance(exc, psycopg.Error) and not is_lost(exc):
                log.error("the migration failed", sqlstate=sqlstate_of(exc), error=str(exc))
                raise StoreSetupError(f"The schema could not be changed: {str(exc).splitlines()[0]}.") from exc
            log.warning("the migration is interrupted", error=str(exc))
            if migration.began is not None:
                until = max(until, migration.began + COME_BACK)
            pause = random.uniform(0.2, 0.6)
            if loop.time() + pause > until:
                raise unavailable() from exc
            await asyncio.sleep(pause)


async def schema_status(database: Database) -> tuple[int, int]:
    """The number of the last step that the database has, 0 without any, and of the last that this server knows."""
    recorded = await _recorded_by(database)
    return max(recorded, default=0), steps_known()[-1].number


async def schema_require(database: Database) -> None:
    """Raise StoreSetupError where this server cannot serve on the schema that is there."""
    recorded = await _recorded_by(database)
    known = {step.number for step in steps_known()}
    if missing := known - recorded.keys():
        raise StoreSetupError(
            f"The schema of the database lacks {len(missing)} of {len(known)} steps: run `turnlog-server migrate`."
        )
    if any(breaking for number, breaking in recorded.items() if number not in known):
        raise StoreSetupError(
            "The schema of the database was changed by a newer release in a way that this one cannot serve: upgrade it."
        )


async def _recorded_by(database: Database) -> dict[int, bool]:
    [(exists,)] = await database.read("schema_status", SETUP_TABLE_EXISTS, {"name": "schema_steps"})
    return dict(await database.read("schema_status", STEPS_RECORDED)) if exists else {}


class _Migration:
    def __init__(self, dsn: str, steps: Sequence[Step], lease_wait: float, lease_seconds: float) -> None:
        # When the database was first reached.
        self.began: float | None = None
        self._dsn = dsn
        self._steps = steps
        self._lease_wait = lease_wait
        self._lease_seconds = lease_seconds
        # Known to itself when it comes back after a lost connection.
        self._holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"
        self._applied: list[str] = []

    async def run(self) -> MigrationReport:
        dialect = await probe(self._dsn)
        self.began = self.began or asyncio.get_running_loop().time()
        async with self._connection(dialect) as conn:
            if await self._missing(conn):
                for step in steps_known()[:2]:
                    await _again(partial(conn.execute, step.sql), also=CREATE_RACES)
                fence = await self._wait_for_lease(conn)
                if fence is not None:
                    await self._migrate(conn, dialect, fence)
        labels = (f"{step.number:04}_{step.name}" for step in self._steps)
        return MigrationReport(tuple(self._applied), tuple(label for label in labels if label not in self._applied))

    @asynccontextmanager
    async def _connection(self, dialect: Dialect) -> AsyncIterator[Connection]:
        # A statement may take as long as it needs, and is never prepared. It does not wait long for a lock, though:
        # all that come after it would wait behind it.
        settings = {"statement_timeout": "0"}
        conn = await dial(self._dsn, dialect, "migrate", settings=settings, prepare_threshold=None)
        try:
            yield conn
        finally:
            await conn.close()

    async def _missing(self, conn: Connection) -> list[Step]:
        recorded: set[int] = set()
        if await _answers(conn, SETUP_TABLE_EXISTS, {"name": "schema_steps"}):
            cursor = await _again(partial(conn.execute, STEPS_RECORDED))
            recorded = {number for number, _ in await cursor.fetchall()}
        return [step for step in self._steps if step.number not in recorded]

    async def _wait_for_lease(self, conn: Connection) -> int | None:
        """The fence, or None when another has migrated meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._lease_wait
        take = partial(lease_take, conn, LEASE, self._holder, self._lease_seconds)
        while (fence := await _again(take)) is None:
            if loop.time() > until:
                raise StoreSetupError("Another server is still changing the schema: see to it, or wait for longer.")
            await asyncio.sleep(random.uniform(0.05, 0.15))
            if not await self._missing(conn):
                return None
        return fence

    async def _migrate(self, conn: Connection, dialect: Dialect, fence: int) -> None:
        lost = asyncio.Event()
        keeper = asyncio.create_task(self._keep_lease(dialect, fence, lost), name="keep the schema lease")
        applied = 0
        try:
            for step in await self._missing(conn):
                if lost.is_set():
                    raise LeaseLostError("the lease was lost")
                await self._apply(conn, step, fence)
                applied += 1
            for table, statement in dialect.post_schema:
                if await _answers(conn, SETUP_TABLE_EXISTS, {"name": table}):
                    await _again(partial(conn.execute, statement))
        finally:
            if applied:
                log.info("steps of the schema are applied", count=applied)
            keeper.cancel()
            await asyncio.wait({keeper})
            with suppress(psycopg.Error):
                await lease_release(conn, LEASE, self._holder, fence)

    async def _keep_lease(self, dialect: Dialect, fence: int, lost: asyncio.Event) -> None:
        """On a connection of its own, since a step may take longer than the lease."""
        while True:
            try:
                async with self._connection(dialect) as conn:
                    while not lost.is_set():
                        await asyncio.sleep(self._lease_seconds / 3)
                        if not await lease_renew(conn, LEASE, self._holder, fence, self._lease_seconds):
                            lost.set()
                    return
            except psycopg.Error as exc:
                # Should it stay away for longer than the lease lasts, then the next renewal says that it is lost.
                log.warning("the lease on the schema could not be renewed", error=str(exc))
                await asyncio.sleep(self._lease_seconds / 6)

    async def _apply(self, conn: Connection, step: Step, fence: int) -> None:
        label = f"{step.number:04}_{step.name}"
        if step.index and not await _answers(conn, step.verify, step.names):
            # Left behind, and not valid, by a build that failed: IF NOT EXISTS would be content with it.
            await _again(partial(conn.execute, cast(LiteralString, SETUP_DROP_INDEX.format(index=step.index))))
        await _again(partial(conn.execute, step.sql))
        if not await _answers(conn, step.verify, step.names):
            raise StoreSetupError(f"Step {label} of the schema ran without an error and had no effect.")
        record = {"number": step.number, "name": step.name, "breaking": step.breaking}
        lease = {"lease": LEASE, "holder": self._holder, "fence": fence}
        cursor = await _again(partial(conn.execute, STEP_RECORD, record | lease))
        if cursor.rowcount == 0 and step in await self._missing(conn):
            raise LeaseLostError("the lease was lost")
        self._applied.append(label)
        log.debug("a step of the schema is applied", step=label)


async def _again(send: Callable[[], Awaitable[T]], *, also: Collection[str] = ()) -> T:
    """Send an idempotent statement until no conflict stands in its way."""
    for left in reversed(range(TRIES)):
        try:
            return await send()
        except psycopg.Error as exc:
            code = sqlstate_of(exc)
            waits = classify(exc, Phase.READ) in WAITED_OUT and code != OPERATOR_CANCELED
            if not left or not (waits or code in also):
                raise
        await asyncio.sleep(random.uniform(0.02, 0.2))
    raise AssertionError("the last try returns or raises")


async def _answers(conn: Connection, query: LiteralString, names: Mapping[str, str]) -> bool:
    row = await (await _again(partial(conn.execute, query, names or None))).fetchone()
    return row is not None and row[0] is True
