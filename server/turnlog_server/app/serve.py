"""One process: a door, a database, and the replica between them; how they come up, and how they go down in order.

The door is open before there is a database, so that health can say NOT_SERVING and calls are told to come again.
Going down, nothing that was admitted is lost: health says NOT_SERVING, the replica refuses what is new, ends its
follows, tells its runners, and finishes its lane; then the calls in flight end, then the connections to the database,
and an embedded PostgreSQL last of all.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Protocol, TypeVar

import structlog

from turnlog_server.app.door import Door
from turnlog_server.app.embedded import require_free
from turnlog_server.app.keeper import KeptPostgres
from turnlog_server.app.loop import settle
from turnlog_server.app.metrics import Endpoint, Metrics
from turnlog_server.app.replica import Replica
from turnlog_server.app.settings import Settings
from turnlog_server.app.stopping import Stopping
from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.database import Database
from turnlog_server.store.migrate import migrate, schema_require

T = TypeVar("T")

log = structlog.get_logger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.2, 5.0
HEALTH_INTERVAL = 0.25
# For how long nobody may have called before the port is closed. Who calls is told SERVER_DRAINING, which sends clients
# elsewhere; one that calls while gRPC closes the port is told CANCELLED, which says nothing. A proxy goes on to send
# calls until it has looked at our health.
FAREWELL = 0.25
# Clients that know no other replica may call for ever.
LONGEST_FAREWELL = 2.0
# What calls in flight get after the drain even where it took all of its time.
LEAST_GRACE = 0.5


class Companion(Protocol):
    """What starts and stops with a server: see `dev`."""

    async def prepare(self, database: Database, address: str) -> None:
        """The database is there and nobody is served yet."""
        ...

    async def ready(self, runner_connected: asyncio.Event) -> None:
        """Calls are answered. runner_connected: set once there is a runner."""
        ...

    async def stop(self) -> None:
        """The server goes down, after this."""
        ...


class Node:
    """migrating: bring the schema up to date first. companion: told how it goes."""

    def __init__(self, settings: Settings, *, migrating: bool, companion: Companion) -> None:
        self._settings = settings
        self._migrating = migrating
        self._companion = companion
        self._metrics = Metrics()
        self._stopping = Stopping()
        self._door: Door | None = None
        self._endpoint: Endpoint | None = None
        self._postgres: KeptPostgres | None = None
        self._database: Database | None = None
        self._replica: Replica | None = None

    async def run(self) -> None:
        """Serves until a signal asks it to stop.

        Raises SettingsError, EmbeddedError and StoreSetupError, whose messages are for the operator.
        """
        with self._stopping.on_signals():
            try:
                await self._stopping.unless_asked(self._come_up())
                if not self._stopping.asked.is_set():
                    await self._stopping.unless_asked(self._serve())
            finally:
                await self._go_down()

    async def _come_up(self) -> None:
        settings = self._settings
        if settings.dsn is None:
            # Before the port, of which nobody knows whose it is: the folder's lock knows the process.
            require_free(settings.data_dir)
        self._door = door = Door(settings)
        await door.open()
        log.info("listening", address=door.address, tls=settings.tls_cert is not None)
        if settings.metrics_listen:
            self._endpoint = self._metrics.serve(settings.metrics_listen)
            log.info("metrics", port=self._endpoint.server_port)
        dsn = settings.dsn
        if dsn is None:
            self._postgres = await KeptPostgres.start(settings, self._metrics, self._look_at_health)
            dsn = self._postgres.dsn
        self._database = database = await self._until_there(lambda: self._fit(dsn))
        await self._companion.prepare(database, door.address)
        self._replica = replica = await self._until_there(lambda: Replica.open(database, settings, self._metrics))
        replica.add_to(door.server)
        await replica.start()
        settle()
        door.admit()
        self._look_at_health()

    async def _fit(self, dsn: str) -> Database:
        """The database with a schema that this server can serve on."""
        settings = self._settings
        if self._migrating:
            await migrate(dsn)
        database = await Database.open(
            dsn, pool_size=settings.pool_size, force_dialect=settings.force_dialect, observer=self._metrics
        )
        try:
            await schema_require(database)
        except BaseException:
            await database.close()
            raise
        return database

    async def _until_there(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Waits for an absent database. The store says what is wrong at each try, so tries become rare."""
        pause, waiting = FIRST_PAUSE, False
        while True:
            try:
                return await attempt()
            except Refusal as refusal:
                if not waiting:
                    waiting = True
                    log.warning("waiting for the database: NOT_SERVING until it is there", reason=refusal.reason.value)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(MAX_PAUSE, pause * 2)

    async def _serve(self) -> None:
        await asyncio.gather(self._watch_health(), self._companion.ready(self._metrics.runner_seen))

    async def _watch_health(self) -> None:
        while True:
            self._look_at_health()
            await asyncio.sleep(HEALTH_INTERVAL)

    def _look_at_health(self) -> None:
        embedded_runs = self._postgres is None or self._postgres.running
        # Not before a replica was admitted.
        if self._door is not None and self._door.admits and self._replica is not None:
            self._set_ready(self._door, self._replica.healthy() and embedded_runs)

    def _set_ready(self, door: Door, ready: bool) -> None:
        if door.health.ready is not ready:
            log.info("serving" if ready else "not serving: the database cannot be reached")
        door.health.set_ready(ready)
        self._metrics.ready(ready)

    async def _go_down(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.drain_grace_seconds
        self._metrics.ready(False)
        if self._door is not None:
            self._door.health.close()
        await self._step("companion", self._companion.stop(), self._settings.drain_grace_seconds)
        if (replica := self._replica) is not None:
            replica.drain()
            bound = min(LONGEST_FAREWELL, deadline - loop.time())
            await self._step("farewell", farewell(lambda: replica.turned_away_at), bound)
            # Those that did not hear of the drain wait for a database that may be away for long.
            replica.cut(follows_only=True)
        if self._door is not None:
            await self._close_door(self._door, max(LEAST_GRACE, deadline - loop.time()))
        if self._replica is not None:
            await self._step("replica", self._replica.close(), None)
            if (drained := self._replica.drained) is not None:
                log.info("drained", **asdict(drained))
        if self._database is not None:
            await self._step("database", self._database.close(), None)
        if self._postgres is not None:
            await self._step("postgres", self._postgres.stop(), None)
        if self._endpoint is not None:
            self._endpoint.shutdown()
            self._endpoint.server_close()
        log.info("stopped")

    async def _step(self, name: str, work: Awaitable[None], seconds: float | None) -> None:
        """One step down. Whatever becomes of it, the next one follows."""
        try:
            if seconds is None:
                await work
            else:
                await self._stopping.unless_hurried(work, seconds)
        except Exception:
            log.exception("a step of stopping failed", step=name)

    async def _close_door(self, door: Door, grace: float) -> None:
        # The end of the grace is ours to call, so that what it cuts can be counted.
        closing = asyncio.create_task(door.close(grace + LEAST_GRACE))
        await self._stopping.unless_hurried(asyncio.shield(closing), grace)
        if not closing.done():
            if self._replica is not None and self._replica.drained is not None:
                self._replica.drained.calls_cut = self._replica.calls
                self._replica.cut()
                await self._stopping.unless_hurried(asyncio.shield(closing), FAREWELL)
            await door.close(0)
        await closing


async def farewell(last_call: Callable[[], float]) -> None:
    """Returns once nobody has called for a while. last_call: when that was, in the time of the event loop."""
    now = asyncio.get_running_loop().time
    while True:
        rest = last_call() + FAREWELL - now()
        if rest <= 0:
            return
        await asyncio.sleep(rest)
