"""A database grown quickly, with rows that `turnlog-server check --replay` finds nothing wrong with.

One Session is made by the server as any Session is, and copied by SQL under other ids: an event's bytes do not name
the Session, so that a copy is what the server would have written, had all these Sessions had the same conversation.
"""

import time
from collections.abc import Sequence

import psycopg
from world import World

# Per table, the columns in which the id of the Session stands inside of something else.
TABLES: dict[str, tuple[str, ...]] = {
    "session_heads": (),
    "sessions": ("facts",),
    "session_states": (),
    "events": (),
    "runs": (),
    "run_attempts": (),
    "run_queue": (),
    "timers": (),
    "request_ids": ("scope", "resource_id"),
}
COLUMNS = """
SELECT attname FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
# Random, as the server's ids are; of their 32 digits these use 16.
NAMES = """
CREATE TEMP TABLE named ON COMMIT DROP AS
SELECT 'sess_' || left(md5(random()::text || n::text), 26) AS session_id FROM generate_series(1, %s::int8) n"""
AT_ONCE = 5_000


class Template:
    """A Session to copy, kept aside: what becomes of the original does not matter."""

    def __init__(self, world: World, name: str, session_id: str, events: int) -> None:
        self._world = world
        self._name = name
        self._session_id = session_id
        self.events = events

    @classmethod
    async def keep(cls, world: World, name: str, session_id: str) -> "Template":
        """Keeps a Session as it is now."""
        async with await psycopg.AsyncConnection.connect(world.dsn) as conn:
            await conn.execute(f"CREATE SCHEMA {name}".encode())
            for table in TABLES:
                key = "resource_id" if table == "request_ids" else "session_id"
                kept = f"CREATE TABLE {name}.{table} AS SELECT * FROM {table} WHERE {key} = '{session_id}'"
                await conn.execute(kept.encode())
            counted = await (await conn.execute(f"SELECT count(*) FROM {name}.events".encode())).fetchone()
        assert counted is not None
        return cls(world, name, session_id, counted[0])

    async def copy(self, count: int, say: str = "") -> list[str]:
        """So many more of it; returns the ids of the last of them."""
        made: list[str] = []
        began, done = time.monotonic(), 0
        async with await psycopg.AsyncConnection.connect(self._world.dsn, autocommit=True) as conn:
            # Nothing of a benchmark's filling has to survive a power cut.
            await conn.execute("SET synchronous_commit = off")
            statements = [await self._statement(conn, table) for table in TABLES]
            while done < count:
                share = min(AT_ONCE, count - done)
                async with conn.transaction():
                    await conn.execute(NAMES, (share,))
                    for statement in statements:
                        await conn.execute(statement)
                    made = [row[0] for row in await (await conn.execute("SELECT session_id FROM named")).fetchall()]
                done += share
                if say and (done // AT_ONCE) % 20 == 0:
                    print(f"{say}: {done:,} of {count:,} after {time.monotonic() - began:.0f} s", flush=True)
        return made

    async def _statement(self, conn: psycopg.AsyncConnection, table: str) -> bytes:
        columns = [row[0] for row in await (await conn.execute(COLUMNS, (table,))).fetchall()]
        inside = TABLES[table]
        values = [self._value(table, column, inside) for column in columns]
        copied = f"INSERT INTO {table} SELECT {', '.join(values)} FROM named n CROSS JOIN {self._name}.{table} t"
        return copied.encode()

    def _value(self, table: str, column: str, inside: Sequence[str]) -> str:
        if column == "session_id":
            return "n.session_id"
        if table == "request_ids" and column == "request_id":
            return "n.session_id || t.seq::text"
        return f"replace(t.{column}, '{self._session_id}', n.session_id)" if column in inside else f"t.{column}"


async def settle_down(world: World) -> dict[str, int]:
    """What autovacuum would do in its own time, and all that was written on the disk; returns how much there is."""
    async with await psycopg.AsyncConnection.connect(world.dsn, autocommit=True) as conn:
        await conn.execute("VACUUM (ANALYZE)")
        await conn.execute("CHECKPOINT")
        counts = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM run_queue WHERE state = 'READY'), "
        found = await (await conn.execute(counts + "pg_database_size(current_database())")).fetchone()
    assert found is not None
    return {"events": found[0], "queued": found[1], "bytes": found[2]}
