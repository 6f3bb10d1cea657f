"""One way to run a statement, inside a transaction or alone, so that a noun's functions are written once for both."""

from collections.abc import Awaitable, Callable
from typing import Any, LiteralString

from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database, Params, Row

Execute = Callable[[LiteralString, Params], Awaitable[list[Row]]]
"""Runs one statement and returns its rows."""


def reading(db: Database, op: str, deadline: float | None = None) -> Execute:
    """Each statement alone, changing nothing, and again on a new connection where one is lost."""

    async def execute(sql: LiteralString, params: Params) -> list[Row]:
        return await db.read(op, sql, params, deadline=deadline)

    return execute


def within(conn: Connection) -> Execute:
    """In the transaction that `Database.run` opened on this connection."""

    async def execute(sql: LiteralString, params: Params) -> list[Row]:
        cursor = await conn.execute(sql, params)
        return await cursor.fetchall() if cursor.description else []

    return execute


async def first(execute: Execute, sql: LiteralString, params: Params) -> tuple[Any, ...] | None:
    """The first row, if there is any."""
    rows = await execute(sql, params)
    return rows[0] if rows else None
