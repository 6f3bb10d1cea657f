"""A lease: the right to do alone, for a while, what only one process at a time should do.

There are no advisory locks on CockroachDB, and behind a pooler they end up with somebody else. A row does the same on
both engines, and it expires by the clock of the database when its holder dies. The fence rises with every holder: what
is written under a lease names it, so that a holder that was only slow cannot write after its successor.
"""

from turnlog_server.store.connections import Connection

LEASE_TAKE = """
INSERT INTO leases AS l (name, holder, fence, expires_at)
VALUES (%(name)s::text, %(holder)s::text, 1, now() + %(seconds)s::float8 * interval '1 second')
ON CONFLICT (name) DO UPDATE
   SET holder = excluded.holder, fence = l.fence + 1, expires_at = excluded.expires_at
 WHERE l.expires_at <= now() OR l.holder = excluded.holder
RETURNING fence
"""

LEASE_RENEW = """
UPDATE leases
   SET expires_at = now() + %(seconds)s::float8 * interval '1 second'
 WHERE name = %(name)s::text AND holder = %(holder)s::text AND fence = %(fence)s::int8 AND expires_at > now()
RETURNING fence
"""

LEASE_RELEASE = """
UPDATE leases
   SET expires_at = now()
 WHERE name = %(name)s::text AND holder = %(holder)s::text AND fence = %(fence)s::int8
"""


async def lease_take(conn: Connection, name: str, holder: str, seconds: float) -> int | None:
    """The fence under which `holder` now holds the lease, or None while another holds it.

    Taking it again extends it under a new fence; so this may be sent again when its answer was lost.
    """
    cursor = await conn.execute(LEASE_TAKE, {"name": name, "holder": holder, "seconds": seconds})
    row = await cursor.fetchone()
    return row[0] if row else None


async def lease_renew(conn: Connection, name: str, holder: str, fence: int, seconds: float) -> bool:
    """Extend a lease that is still held. False: it is lost, for good."""
    cursor = await conn.execute(LEASE_RENEW, {"name": name, "holder": holder, "fence": fence, "seconds": seconds})
    return await cursor.fetchone() is not None


async def lease_release(conn: Connection, name: str, holder: str, fence: int) -> None:
    """Let the next one have it at once. Nothing happens when it is already lost."""
    await conn.execute(LEASE_RELEASE, {"name": name, "holder": holder, "fence": fence})
