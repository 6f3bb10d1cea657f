"""Statements prepared by us on a connection, run past the driver's cursors.

The log statement is most of what an append costs. A cursor looks up an adapter for each of its parameters, and waits by
a task of its own; here the values come in their binary form already, and one reader on the socket is all.
"""

import asyncio
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from turnlog_server.store.connections import Connection

_names: WeakKeyDictionary[Connection, dict[bytes, bytes]] = WeakKeyDictionary()

_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


async def execute(conn: Connection, sql: bytes, params: Sequence[bytes]) -> PGresult:
    """Run a statement with `$1` placeholders, prepared the first time that the connection sees it.

    params: in binary form, of the types that the statement casts them to.

    Returns the result in binary form. Raises what the driver raises. When it is cancelled the connection is of no use.
    """
    pgconn = conn.pgconn
    names = _names.setdefault(conn, {})
    if (name := names.get(sql)) is None:
        name = b"turnlog_%d" % len(names)
        pgconn.send_prepare(name, sql)
        await _result(pgconn)
        names[sql] = name
    pgconn.send_query_prepared(name, params, [Format.BINARY] * len(params), Format.BINARY)
    return await _result(pgconn)


async def _result(pgconn: PGconn) -> PGresult:
    while pgconn.flush():  # more than the socket takes at once
        await _ready(pgconn, writing=True)
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():
            await _ready(pgconn)
        if (result := pgconn.get_result()) is None:
            break
        results.append(result)
    for result in results:
        if result.status in _FAILED:
            raise error_from_result(result)
    return results[0]


async def _ready(pgconn: PGconn, *, writing: bool = False) -> None:
    """Take in what the server says. While writing, return when there is room for more, too."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[bool] = loop.create_future()
    socket = pgconn.socket
    loop.add_reader(socket, _resolve, ready, True)
    if writing:
        loop.add_writer(socket, _resolve, ready, False)
    try:
        readable = await ready
    finally:
        loop.remove_reader(socket)
        if writing:
            loop.remove_writer(socket)
    if readable:
        pgconn.consume_input()


def _resolve(ready: asyncio.Future[bool], readable: bool) -> None:
    if not ready.done():
        ready.set_result(readable)
