"""How a connection to the database is made, told what it is for, and broken."""

import asyncio
import contextlib
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, LiteralString, cast

import psycopg
from psycopg import AsyncConnection, AsyncCursor, adapters, crdb, pq
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper, Int8Dumper

from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store import arrays
from turnlog_server.store.dialect import Dialect, detect
from turnlog_server.store.errors import StoreSetupError

Connection = AsyncConnection[TupleRow]

# Above the number of statement texts of this package, so that none is prepared twice.
PREPARED_MAX = 256

_PARAMETER = re.compile(r"%\((\w+)\)s")

SETTING = "set_config(%s::text, %s::text, false)"
SETUP_BACKEND = "SELECT pg_backend_pid()"

# Defaults for a connection string that says nothing of them. They bound how long a dead peer goes unnoticed.
TRANSPORT: Mapping[str, str] = {
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}

# Two sessions, addressed in an order in which a pooler that gives a server connection per statement must mix them up,
# whether it hands out the one used last or the one unused longest.
POOLER_PROBE = (0, 1, 1, 0, 0, 1)


# How long a server may take over a COMMIT or a ROLLBACK before its connection is cut.
PATIENCE = 10.0


class BinaryCursor(AsyncCursor[Any]):
    """Results come in binary: text would double the bytes of every payload."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.format = pq.Format.BINARY


@lru_cache(maxsize=PREPARED_MAX)
def positional(sql: LiteralString) -> tuple[bytes, tuple[str, ...]]:
    """A statement with `$1` for `%(name)s`, as the server reads it, and the names in the order of their numbers."""
    numbers: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", sql)
    return text.encode(), tuple(numbers)


def conninfo(dsn: str, purpose: str) -> dict[str, Any]:
    """`dsn` as parameters, with our defaults where it is silent, named after what the connection is for."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as exc:
        raise StoreSetupError("The database address is not a PostgreSQL connection string or URL.") from exc
    params: dict[str, Any] = {**TRANSPORT, **given}
    if "," in str(params.get("host") or ""):
        params.setdefault("load_balance_hosts", "random")
    params["application_name"] = f"turnlog/{purpose}"
    params["client_encoding"] = "utf8"
    return params


def psql(dsn: str) -> str:
    """The command by which a person tries the same address; a password is not in it."""
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return "psql"
    names = ("host", "port", "user", "dbname", "sslmode")
    shown: dict[str, Any] = {name: given[name] for name in names if given.get(name)}
    return shlex.join(["psql", make_conninfo(**shown)])


def connection_class(dialect: Dialect) -> type[Connection]:
    """CockroachDB wants strings, nulls and JSON with other type numbers than PostgreSQL."""
    return crdb.AsyncCrdbConnection if dialect.engine == "cockroachdb" else AsyncConnection


def _with_one_integer(given: AdaptersMap) -> AdaptersMap:
    # The driver picks the width of an integer by its value, which would prepare one statement in many variants.
    ours = AdaptersMap(given)
    ours.register_dumper(int, Int8Dumper)
    ours.register_dumper(int, Int8BinaryDumper)
    arrays.register(ours)
    return ours


ADAPTERS = {"postgresql": _with_one_integer(adapters), "cockroachdb": _with_one_integer(crdb.adapters)}


def connection_kwargs(dialect: Dialect, dsn: str, purpose: str) -> dict[str, Any]:
    """What every connection of ours is made with."""
    return {
        "autocommit": True,
        "prepare_threshold": 5,
        "context": ADAPTERS[dialect.engine],
        "cursor_factory": BinaryCursor,
        **conninfo(dsn, purpose),
    }


async def configure(conn: Connection, settings: Mapping[str, str]) -> None:
    """Give a fresh connection our session settings, in one round trip."""
    conn.prepared_max = PREPARED_MAX
    if settings:
        text = "SELECT " + ", ".join([SETTING] * len(settings))
        pairs = [part for pair in settings.items() for part in pair]
        await conn.execute(cast(LiteralString, text), pairs, prepare=False)


async def dial(
    dsn: str,
    dialect: Dialect,
    purpose: str,
    *,
    settings: Mapping[str, str] | None = None,
    prepare_threshold: int | None = 5,
) -> Connection:
    """A connection outside the pool. Raises what the driver raises.

    settings: on top of the dialect's.
    """
    kwargs: dict[str, Any] = connection_kwargs(dialect, dsn, purpose) | {"prepare_threshold": prepare_threshold}
    conn = await connection_class(dialect).connect(**kwargs)
    try:
        await configure(conn, {**dialect.settings, **(settings or {})})
    except BaseException:
        await conn.close()
        raise
    return conn


async def command(conn: Connection, text: LiteralString) -> str:
    """Run BEGIN, COMMIT or ROLLBACK; returns what the server says it did.

    A server that is asked to commit a failed transaction answers ROLLBACK and no error.
    """
    cursor = AsyncCursor(conn)  # in text, so that the driver sends one simple message
    await cursor.execute(text, prepare=False)
    return cursor.statusmessage or ""


async def probe(dsn: str, force: str | None = None) -> Dialect:
    """Ask a server what it is, and refuse one that cannot be served.

    Raises StoreSetupError with the sentence that says why, or what the driver raises.
    """
    params = conninfo(dsn, "probe")
    async with await AsyncConnection.connect(autocommit=True, prepare_threshold=None, **params) as first:
        stated = first.info.parameter_status("crdb_version")
        dialect = detect(stated, force)
        version = crdb.CrdbConnectionInfo.parse_crdb_version(stated) if stated else first.info.server_version
        if version is None:
            raise StoreSetupError("The server calls itself CockroachDB but does not tell its version.")
        if complaint := dialect.version_complaint(version):
            raise StoreSetupError(complaint)
        async with await AsyncConnection.connect(autocommit=True, prepare_threshold=None, **params) as second:
            await _refuse_statement_pooling(first, second)
    return dialect


async def _refuse_statement_pooling(first: Connection, second: Connection) -> None:
    seen: tuple[set[int], set[int]] = set(), set()
    for which in POOLER_PROBE:
        cursor = await (first, second)[which].execute(SETUP_BACKEND)
        for (backend,) in await cursor.fetchall():
            seen[which].add(backend)
    if len(seen[0]) != 1 or len(seen[1]) != 1 or seen[0] & seen[1]:
        raise StoreSetupError(
            "A pooler in transaction mode stands before the database, where session settings, prepared statements "
            "and LISTEN of one client end up in the session of another: connect directly, or through a pooler in "
            "session mode."
        )


def cut(conn: Connection) -> None:
    """Break a connection under whoever waits on it, who then sees it lost at once.

    The descriptor stays open: closing it here would let its number be used again while the event loop still watches it.
    """
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(conn.pgconn.socket)) as peer:
        peer.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def patience(conn: Connection, seconds: float = PATIENCE) -> Iterator[None]:
    """Bound what may not be cancelled: a server that is silent for longer loses the connection."""
    timer = asyncio.get_running_loop().call_later(seconds, cut, conn)
    try:
        yield
    finally:
        timer.cancel()


def unavailable(message: str = "") -> Refusal:
    """The refusal for a database that cannot be reached. It tells nothing of where that database is."""
    return Refusal(
        Reason.STORE_UNAVAILABLE,
        message or "The database cannot be reached at the moment; nothing was changed. Try again shortly.",
        retry_after=1.0,
    )
