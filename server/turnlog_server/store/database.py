"""The one door to the database: a pool, and the runner that knows what may be tried again.

A caller never waits beyond its deadline. Its operation runs in a task of its own; when the caller leaves, by deadline
or by cancellation, a statement in flight gets a moment to end by itself and is cancelled then, and a COMMIT in flight
is left to end, because a cancelled COMMIT is one whose outcome nobody knows.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, LiteralString, Self, TypeVar
from weakref import WeakKeyDictionary

import psycopg
import structlog
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from turnlog_server.domain.refusals import Refusal
from turnlog_server.store.connections import (
    Connection,
    command,
    configure,
    connection_class,
    connection_kwargs,
    dial,
    patience,
    probe,
    unavailable,
)
from turnlog_server.store.dialect import Dialect
from turnlog_server.store.errors import DROPS_CONNECTION, STALE_PLANS, Phase, StoreFault, sqlstate_of
from turnlog_server.store.hints import PG_NOTIFY, HintSource, Listener, NoHints
from turnlog_server.store.observer import SilentObserver, StoreObserver
from turnlog_server.store.operation import Operation

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]

log = structlog.get_logger(__name__)

# Unary calls without a deadline of their own get this long.
DEFAULT_BUDGET = 30.0
HINT_BUDGET = 1.0
# How long one attempt waits for a connection. Short, because asking again makes the pool try to connect again.
BORROW_SLICE = 2.0
# A connection that worked within this time is lent without asking it whether it still lives.
TRUST = 1.0
PROOF = "SELECT 1"
# How long a statement whose caller has left may go on. A cancelled one costs a connection to cancel it with.
GRACE = 0.1
# All connections are replaced no more often than this.
RENEW_INTERVAL = 1.0
MAX_LIFETIME = 20 * 60.0
RECONNECT_TIMEOUT = 5.0


class Database:
    """A database that is known to be fit, and a pool of connections to it."""

    def __init__(self, dsn: str, dialect: Dialect, *, pool_size: int, observer: StoreObserver) -> None:
        """Use `open`."""
        self.dialect = dialect
        self._dsn = dsn
        self._observer = observer
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # When each connection last answered, when any did, and when one last turned out dead: then all are asked
        # before they are used.
        self._proven: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()
        self._reached = self._doubted = self._renewed = 0.0
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            connection_class=connection_class(dialect),
            kwargs=connection_kwargs(dialect, dsn, "pool"),
            min_size=pool_size,
            max_size=pool_size,
            open=False,
            configure=self._configure,
            name="store",
            # Each process a little other, so that the replicas of a deployment do not reconnect together.
            max_lifetime=MAX_LIFETIME * random.uniform(0.8, 1.0),
            reconnect_timeout=RECONNECT_TIMEOUT,
        )

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        pool_size: int = 8,
        force_dialect: str | None = None,
        wait: float | None = None,
        observer: StoreObserver | None = None,
    ) -> Self:
        """Look at the database and fill the pool.

        wait: for how many seconds to try again while the database cannot be reached; None tries once.

        Raises StoreSetupError for a database that cannot be served as it is, Refusal(STORE_UNAVAILABLE) for one that
        cannot be reached.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (wait or 0.0)
        while True:
            try:
                dialect = await probe(dsn, force_dialect)
                break
            except psycopg.Error as exc:
                log.warning("the database cannot be reached", error=str(exc))
                pause = random.uniform(0.2, 0.6)
                if loop.time() + pause > until:
                    raise unavailable() from exc
                await asyncio.sleep(pause)
        database = cls(dsn, dialect, pool_size=pool_size, observer=observer or SilentObserver())
        try:
            await database._pool.open(wait=True, timeout=max(10.0, until - loop.time()))
        except psycopg.Error as exc:
            await database.close()
            raise unavailable() from exc
        database._observer.pool_opened(database.pool_stats)
        return database

    async def close(self) -> None:
        """Let operations in flight end, for a moment, and close the pool."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        await self._pool.close()

    def pool_stats(self) -> Mapping[str, int]:
        """The pool's figures of this moment, by psycopg_pool's names."""
        return self._pool.get_stats()

    async def run(
        self,
        op: str,
        fn: Callable[[Connection], Awaitable[T]],
        *,
        deadline: float | None = None,
        keyed: bool = True,
        replay_keys: Collection[str] = (),
    ) -> T:
        """Run `fn` in one write transaction, again and again until it is committed or the time is up.

        fn: may be called many times; takes every value from outside, changes nothing but the database, and lets the
            driver's errors pass.
        deadline: in the time of the event loop.
        keyed: the caller holds a key under which it may send the same once more.
        replay_keys: unique constraints whose violation says that this operation was carried out before.

        Raises Duplicate for a violated unique key, StoreFault for what no try can help, and Refusal with
        OUTCOME_UNKNOWN, CONTENTION, STORE_UNAVAILABLE, QUOTA_EXCEEDED or DEADLINE_EXCEEDED when it gave up. Any other
        exception of `fn` rolls back and passes.
        """

        async def attempt(operation: Operation) -> T:
            return await self._transaction(operation, fn)

        return await self._supervise(Operation(op, self._until(deadline), keyed, replay_keys), attempt)

    async def write(
        self,
        op: str,
        sql: LiteralString,
        params: Params = (),
        *,
        deadline: float | None = None,
        keyed: bool = True,
        replay_keys: Collection[str] = (),
    ) -> list[Row]:
        """Run one write statement that commits by itself, under the rules of `run`; returns its RETURNING rows.

        One round trip where `run` takes three; CockroachDB repeats such a statement by itself.
        """

        async def attempt(operation: Operation) -> list[Row]:
            return await self._statement(operation, Phase.COMMITTING, sql, params)

        return await self._supervise(Operation(op, self._until(deadline), keyed, replay_keys), attempt)

    async def read(
        self, op: str, sql: LiteralString, params: Params = (), *, deadline: float | None = None
    ) -> list[Row]:
        """Run one statement that changes nothing and return its rows, again on a new connection where one is lost."""

        async def attempt(operation: Operation) -> list[Row]:
            return await self._statement(operation, Phase.READ, sql, params)

        return await self._supervise(Operation(op, self._until(deadline), keyed=False), attempt)

    async def connect(self, purpose: str) -> Connection:
        """A connection of its own for a lane, a listener or a migration, with everything that those of the pool have.

        Raises Refusal(STORE_UNAVAILABLE).
        """
        try:
            return await dial(self._dsn, self.dialect, purpose)
        except psycopg.Error as exc:
            log.warning("the database cannot be reached", purpose=purpose, error=str(exc))
            raise unavailable() from exc

    async def listen(self, channel: str, on_hint: Callable[[str], None], on_lost: Callable[[], None]) -> HintSource:
        """Hear hints, on PostgreSQL; where the dialect polls, the source that never has any.

        on_hint: called on the event loop with the payload of each.
        on_lost: hints may have been missed: called when the connection is lost, and once more when another listens.
        """
        log.info("hints", source=self.dialect.hint_source, database=self.dialect.name)
        if self.dialect.hint_source == "poll":
            return NoHints()
        return Listener(channel, lambda: self.connect("listener"), on_hint, on_lost, self._observer)

    async def hint(self, channel: str, payload: str) -> None:
        """Send a hint to the other replicas, if the database can. One that is lost is not worth a second try."""
        if self.dialect.hint_sink == "none":
            return
        deadline = asyncio.get_running_loop().time() + HINT_BUDGET
        with contextlib.suppress(Refusal, StoreFault):
            await self.write("hint", PG_NOTIFY, (channel, payload), deadline=deadline, keyed=False)

    def _until(self, deadline: float | None) -> float:
        return asyncio.get_running_loop().time() + DEFAULT_BUDGET if deadline is None else deadline

    async def _supervise(self, operation: Operation, attempt: Callable[[Operation], Awaitable[T]]) -> T:
        if self._closed:
            raise unavailable("The server is shutting down; nothing was changed. Try another replica.")
        operation.observer = self._observer
        task = asyncio.create_task(operation.drive(attempt), name=f"store {operation.op}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait({task}, timeout=max(0.0, operation.deadline - asyncio.get_running_loop().time()))
        except asyncio.CancelledError:
            self._abandon(operation, task)
            raise
        if task.done():
            return task.result()
        self._abandon(operation, task)
        raise operation.out_of_time(reachable=self._reached >= self._doubted)

    def _abandon(self, operation: Operation, task: asyncio.Task[Any]) -> None:
        operation.abandoned = True
        task.add_done_callback(_forget)
        if operation.phase is Phase.BORROW:
            self._cancel(operation, task)
        else:
            asyncio.get_running_loop().call_later(GRACE, self._cancel, operation, task)

    def _cancel(self, operation: Operation, task: asyncio.Task[Any]) -> None:
        # On its way back a connection would be lost to the pool; what follows that asks whether it is abandoned.
        if operation.phase is not Phase.COMMITTING and not operation.giving_back:
            task.cancel()

    async def _transaction(self, operation: Operation, fn: Callable[[Connection], Awaitable[T]]) -> T:
        conn = await self._borrow(operation)
        try:
            operation.phase = Phase.BODY
            await command(conn, "BEGIN")
            result = await fn(conn)
            if conn.info.transaction_status is not TransactionStatus.INTRANS:
                raise RuntimeError(f"{operation.op}: the body ended its transaction or swallowed an error of it")
            operation.leave_if_abandoned()
            operation.phase = Phase.COMMITTING
            with patience(conn):
                said = await command(conn, "COMMIT")
            if said != "COMMIT":
                operation.phase = Phase.BODY
                raise RuntimeError(f"{operation.op}: the server answered {said} to COMMIT")
            operation.phase = Phase.DONE
            return result
        except Exception as exc:
            await self._failed(operation, conn, exc)
            raise
        finally:
            await self._give_back(operation, conn)

    async def _statement(self, operation: Operation, phase: Phase, sql: LiteralString, params: Params) -> list[Row]:
        conn = await self._borrow(operation)
        try:
            operation.phase = phase
            with patience(conn):
                cursor = await conn.execute(sql, params)
            operation.phase = Phase.DONE
            return await cursor.fetchall() if cursor.description else []
        except Exception as exc:
            await self._failed(operation, conn, exc)
            raise
        finally:
            await self._give_back(operation, conn)

    async def _failed(self, operation: Operation, conn: Connection, exc: Exception) -> None:
        if operation.failed(exc) in DROPS_CONNECTION:
            await conn.close()
        now = asyncio.get_running_loop().time()
        if sqlstate_of(exc) in STALE_PLANS and now - self._renewed > RENEW_INTERVAL:
            # What one connection has prepared in vain, the others have, too.
            self._renewed = now
            await self._pool.drain()

    async def _borrow(self, operation: Operation) -> Connection:
        operation.phase = Phase.BORROW
        while True:
            operation.leave_if_abandoned()
            try:
                conn = await self._pool.getconn(timeout=BORROW_SLICE)
            except Exception as exc:
                operation.failed(exc)
                raise
            alive = False
            try:
                alive = await self._alive(conn)
            finally:
                if not alive:
                    await self._give_back(operation, conn)
            if alive:
                return conn

    async def _alive(self, conn: Connection) -> bool:
        """Whether a connection can be used. The pool would do this, too, but pauses for seconds between dead ones."""
        loop = asyncio.get_running_loop()
        proven = self._proven.get(conn, 0.0)
        if proven > self._doubted and loop.time() - proven < TRUST:
            return True
        try:
            with patience(conn, TRUST):
                await command(conn, PROOF)
        except psycopg.Error:
            await conn.close()
            return False
        self._proven[conn] = self._reached = loop.time()
        return True

    async def _give_back(self, operation: Operation, conn: Connection) -> None:
        """Return a connection without a transaction on it, or broken, and then the pool makes a new one."""
        operation.giving_back = True
        try:
            await self._return(conn)
        finally:
            operation.giving_back = False

    async def _return(self, conn: Connection) -> None:
        """Must not be cancelled: the pool would count the connection as lent for ever."""
        now = asyncio.get_running_loop().time()
        if conn.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                with patience(conn):
                    await command(conn, "ROLLBACK")
            except psycopg.Error:
                await conn.close()
        if conn.info.transaction_status is TransactionStatus.IDLE:
            self._proven[conn] = self._reached = now
        else:
            # In a state that nobody can vouch for.
            self._doubted = now
            await conn.close()
        await self._pool.putconn(conn)

    async def _configure(self, conn: Connection) -> None:
        await configure(conn, self.dialect.settings)


def _forget(task: asyncio.Task[Any]) -> None:
    """Look at the outcome of an operation that nobody waits for, so that the event loop does not complain."""
    if not task.cancelled() and (exc := task.exception()) is not None:
        log.debug("an operation failed after its caller had left", error=repr(exc))
