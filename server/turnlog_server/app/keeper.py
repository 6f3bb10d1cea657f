"""The embedded PostgreSQL, started again whenever it dies."""

import asyncio
import random
from collections.abc import Callable
from typing import Self

import structlog

from turnlog_server.app.embedded import EmbeddedError, EmbeddedPostgres
from turnlog_server.app.metrics import Metrics
from turnlog_server.app.settings import Settings

log = structlog.get_logger(__name__)

FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0


class KeptPostgres:
    """A PostgreSQL in `data_dir`. Its address outlives its deaths.

    on_change: called when it has died, and when it is back.
    """

    def __init__(
        self, settings: Settings, metrics: Metrics, on_change: Callable[[], None], postgres: EmbeddedPostgres
    ) -> None:
        self.dsn = postgres.dsn
        self._settings = settings
        self._metrics = metrics
        self._on_change = on_change
        self._postgres: EmbeddedPostgres | None = postgres
        self._task = asyncio.create_task(self._keep(postgres), name="keep the embedded postgres")

    @classmethod
    async def start(cls, settings: Settings, metrics: Metrics, on_change: Callable[[], None]) -> Self:
        """Raises EmbeddedError."""
        return cls(settings, metrics, on_change, await _start(settings))

    @property
    def running(self) -> bool:
        """False from its death until it is ready again."""
        return self._postgres is not None

    async def stop(self) -> None:
        """Stops it for good."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._postgres is not None:
            await self._postgres.stop()

    async def _keep(self, postgres: EmbeddedPostgres) -> None:
        while True:
            code = await postgres.exited()
            self._postgres = None
            self._on_change()
            self._metrics.embedded_restarted()
            log.error("the embedded PostgreSQL died and is started again", exit_code=code, its_log=str(postgres.log))
            # Frees the folder; nobody may interrupt that half-way.
            await asyncio.shield(postgres.stop())
            self._postgres = postgres = await self._start_again()
            self._on_change()
            log.info("the embedded PostgreSQL is back")

    async def _start_again(self) -> EmbeddedPostgres:
        pause = FIRST_PAUSE
        while True:
            try:
                return await _start(self._settings)
            except EmbeddedError as error:
                log.error("the embedded PostgreSQL cannot be started", error=str(error))
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(MAX_PAUSE, pause * 2)


async def _start(settings: Settings) -> EmbeddedPostgres:
    return await EmbeddedPostgres.start(
        settings.data_dir, binaries=settings.postgres_bin, fsync=settings.embedded_fsync
    )
