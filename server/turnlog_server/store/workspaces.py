"""All workspaces, for the operator: callers never see but their own."""

from typing import LiteralString

from turnlog_server.domain.workspace import Workspace
from turnlog_server.store.database import Database
from turnlog_server.store.times import micros

PAGE = 500

WORKSPACE_LIST: LiteralString = """
SELECT w.workspace_id, w.name, w.max_concurrent_runs, w.create_time FROM workspaces w
 WHERE w.name > %(after)s::text
 ORDER BY w.name
 LIMIT %(count)s::int8"""


async def workspace_list(db: Database) -> list[Workspace]:
    """By name."""
    found: list[Workspace] = []
    while True:
        params = {"after": found[-1].name if found else "", "count": PAGE}
        rows = await db.read("workspace_list", WORKSPACE_LIST, params)
        found.extend(Workspace(row[0], row[1], row[2], micros(row[3])) for row in rows)
        if len(rows) < PAGE:
            return found
