"""Hints from other replicas that a Session grew. The log is the truth: a hint that is lost costs time, never an event.

On PostgreSQL one connection listens; on CockroachDB nothing does, and whoever wants to know polls.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

import psycopg
import structlog
from psycopg import sql

from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.connections import Connection, patience
from turnlog_server.store.observer import StoreObserver

log = structlog.get_logger(__name__)

PG_NOTIFY = "SELECT pg_notify(%s::text, %s::text)"
PROOF = "SELECT 1"

# A session that is silent for this long is asked whether it still lives, and has so long to answer.
SILENCE = 15.0
PROOF_TIME = 2.0
FIRST_PAUSE = 0.1
MAX_PAUSE = 5.0


class HintSource(Protocol):
    """Where hints come from.

    listening: set while a hint that is sent will be heard.
    """

    listening: asyncio.Event

    async def close(self) -> None:
        """Listen no longer."""
        ...


class NoHints:
    """For a database that does not notify: `listening` is never set."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()

    async def close(self) -> None:
        pass


class Listener:
    """Listens on one channel with a connection of its own, and connects again for ever."""

    def __init__(
        self,
        channel: str,
        connect: Callable[[], Awaitable[Connection]],
        on_hint: Callable[[str], None],
        on_lost: Callable[[], None],
        observer: StoreObserver,
    ) -> None:
        self.listening = asyncio.Event()
        self._channel = channel
        self._connect = connect
        self._on_hint = on_hint
        self._on_lost = on_lost
        self._observer = observer
        self._failures = 0
        self._task = asyncio.create_task(self._run(), name=f"listen {channel}")

    async def close(self) -> None:
        """Listen no longer."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        missed = False
        while True:
            try:
                await self._session(missed)
            except (psycopg.Error, Refusal) as exc:
                log.info("the connection that listens for hints is lost", error=str(exc))
            if self.listening.is_set():
                self.listening.clear()
                self._observer.hints_lost()
                self._call(self._on_lost)
            missed = True
            pause = min(MAX_PAUSE, FIRST_PAUSE * 2.0**self._failures)
            self._failures += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))

    async def _session(self, missed: bool) -> None:
        conn = await self._connect()
        try:
            with patience(conn):
                await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)), prepare=False)
            self._failures = 0
            self.listening.set()
            if missed:
                # Between the loss, which was told, and now others may have sent what nobody heard.
                self._call(self._on_lost)
            while True:
                async with contextlib.aclosing(conn.notifies(timeout=SILENCE)) as notifies:
                    async for notify in notifies:
                        self._call(self._on_hint, notify.payload)
                with patience(conn, PROOF_TIME):
                    await conn.execute(PROOF)
        finally:
            await conn.close()

    def _call(self, callback: Callable[..., None], *args: str) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a receiver of hints failed", channel=self._channel)
