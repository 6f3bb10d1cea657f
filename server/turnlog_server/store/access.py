"""Workspaces, their permission epochs, subjects and runner pools."""

from collections.abc import Sequence

from turnlog_server.domain.access import Role
from turnlog_server.domain.pages import FIRST_NAME, NEWEST, Page, Window
from turnlog_server.domain.workspace import RunnerPool, Subject, SubjectKind, Workspace
from turnlog_server.store.database import Row
from turnlog_server.store.execute import Execute, first
from turnlog_server.store.times import micros

WORKSPACE_PKEY = "workspaces_pkey"
WORKSPACE_NAME = "workspaces_name"
POOL_PKEY = "runner_pools_pkey"

WORKSPACE_INSERT = """
INSERT INTO workspaces (workspace_id, name) VALUES (%(workspace_id)s::text, %(name)s::text)
RETURNING workspace_id, name, max_concurrent_runs, create_time
"""

WORKSPACE_FIND = """
SELECT workspace_id, name, max_concurrent_runs, create_time FROM workspaces WHERE workspace_id = %(workspace_id)s::text
"""

WORKSPACE_NAMED = """
SELECT workspace_id, name, max_concurrent_runs, create_time FROM workspaces WHERE name = %(name)s::text
"""

WORKSPACE_LIMIT = """
UPDATE workspaces SET max_concurrent_runs = %(limit)s::int8 WHERE workspace_id = %(workspace_id)s::text
RETURNING workspace_id, name, max_concurrent_runs, create_time
"""

EPOCH_INSERT = "INSERT INTO workspace_epochs (workspace_id, acl_epoch) VALUES (%(workspace_id)s::text, 1)"

EPOCH_READ = "SELECT acl_epoch FROM workspace_epochs WHERE workspace_id = %(workspace_id)s::text"

EPOCH_RAISE = """
UPDATE workspace_epochs SET acl_epoch = acl_epoch + 1 WHERE workspace_id = %(workspace_id)s::text
RETURNING acl_epoch
"""

SUBJECT_INSERT = """
INSERT INTO subjects (subject_id, workspace_id, kind, display_name, role, create_time)
VALUES (%(subject_id)s::text, %(workspace_id)s::text, %(kind)s::text, %(display_name)s::text, %(role)s::text,
        %(create_time)s::int8)
"""

SUBJECT_FIND = """
SELECT subject_id, workspace_id, kind, display_name, role, create_time
  FROM subjects
 WHERE subject_id = %(subject_id)s::text AND workspace_id = %(workspace_id)s::text
"""

SUBJECT_LIST = """
SELECT subject_id, workspace_id, kind, display_name, role, create_time
  FROM subjects
 WHERE workspace_id = %(workspace_id)s::text AND kind = %(kind)s::text
   AND (create_time, subject_id) < (%(after_time)s::int8, %(after_id)s::text)
 ORDER BY create_time DESC, subject_id DESC
 LIMIT %(limit)s::int8
"""

SUBJECT_SET_ROLE = """
UPDATE subjects SET role = %(role)s::text
 WHERE subject_id = %(subject_id)s::text AND workspace_id = %(workspace_id)s::text
"""

SUBJECT_MANAGERS = """
SELECT count(subject_id) FROM subjects WHERE workspace_id = %(workspace_id)s::text AND role = 'MANAGER'
"""

POOL_INSERT = """
INSERT INTO runner_pools (workspace_id, name, description, create_time)
VALUES (%(workspace_id)s::text, %(name)s::text, %(description)s::text, %(create_time)s::int8)
"""

POOL_FIND = """
SELECT workspace_id, name, description, create_time
  FROM runner_pools
 WHERE workspace_id = %(workspace_id)s::text AND name = ANY(%(names)s::text[])
"""

POOL_LIST = """
SELECT workspace_id, name, description, create_time
  FROM runner_pools
 WHERE workspace_id = %(workspace_id)s::text AND name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s::int8
"""


async def workspace_insert(execute: Execute, workspace_id: str, name: str) -> Workspace:
    """Make a workspace, with its first permission epoch."""
    rows = await execute(WORKSPACE_INSERT, {"workspace_id": workspace_id, "name": name})
    await execute(EPOCH_INSERT, {"workspace_id": workspace_id})
    return _workspace(rows[0])


async def workspace_find(execute: Execute, workspace_id: str) -> Workspace | None:
    """A workspace by its id."""
    row = await first(execute, WORKSPACE_FIND, {"workspace_id": workspace_id})
    return _workspace(row) if row else None


async def workspace_named(execute: Execute, name: str) -> Workspace | None:
    """A workspace by its name."""
    row = await first(execute, WORKSPACE_NAMED, {"name": name})
    return _workspace(row) if row else None


async def workspace_limit(execute: Execute, workspace_id: str, limit: int | None) -> Workspace | None:
    """Set how many Runs may hold a runner at once; None lifts the limit."""
    row = await first(execute, WORKSPACE_LIMIT, {"workspace_id": workspace_id, "limit": limit})
    return _workspace(row) if row else None


async def epoch_read(execute: Execute, workspace_id: str) -> int | None:
    """The permission epoch, as this transaction sees it."""
    row = await first(execute, EPOCH_READ, {"workspace_id": workspace_id})
    return row[0] if row else None


async def epoch_raise(execute: Execute, workspace_id: str) -> int | None:
    """Begin a new permission epoch; returns it. Whoever changes access does this first, and so one after another."""
    row = await first(execute, EPOCH_RAISE, {"workspace_id": workspace_id})
    return row[0] if row else None


async def subject_insert(execute: Execute, subject: Subject) -> None:
    """Add a subject."""
    params = {
        "subject_id": subject.subject_id,
        "workspace_id": subject.workspace_id,
        "kind": subject.kind.value,
        "display_name": subject.display_name,
        "role": subject.role.value,
        "create_time": subject.create_time,
    }
    await execute(SUBJECT_INSERT, params)


async def subject_find(execute: Execute, workspace_id: str, subject_id: str) -> Subject | None:
    """A subject of this workspace."""
    row = await first(execute, SUBJECT_FIND, {"workspace_id": workspace_id, "subject_id": subject_id})
    return _subject(row) if row else None


async def subject_list(execute: Execute, workspace_id: str, kind: SubjectKind, window: Window) -> Page[Subject]:
    """Subjects of one kind, newest first."""
    after_time, after_id = window.after or NEWEST
    params = {"workspace_id": workspace_id, "kind": kind.value, "after_time": after_time, "after_id": after_id}
    rows = await execute(SUBJECT_LIST, params | {"limit": window.size + 1})
    return Page(tuple(_subject(row) for row in rows[: window.size]), more=len(rows) > window.size)


async def subject_set_role(execute: Execute, workspace_id: str, subject_id: str, role: Role) -> None:
    """Give a subject this role in place of the one it has."""
    await execute(SUBJECT_SET_ROLE, {"workspace_id": workspace_id, "subject_id": subject_id, "role": role.value})


async def subject_managers(execute: Execute, workspace_id: str) -> int:
    """How many managers the workspace has."""
    rows = await execute(SUBJECT_MANAGERS, {"workspace_id": workspace_id})
    return rows[0][0]


async def pool_insert(execute: Execute, pool: RunnerPool) -> None:
    """Add a runner pool."""
    params = {
        "workspace_id": pool.workspace_id,
        "name": pool.name,
        "description": pool.description,
        "create_time": pool.create_time,
    }
    await execute(POOL_INSERT, params)


async def pool_find(execute: Execute, workspace_id: str, names: Sequence[str]) -> dict[str, RunnerPool]:
    """Those of the pools that exist, by name."""
    rows = await execute(POOL_FIND, {"workspace_id": workspace_id, "names": list(names)}) if names else []
    return {pool.name: pool for pool in map(_pool, rows)}


async def pool_list(execute: Execute, workspace_id: str, window: Window) -> Page[RunnerPool]:
    """Runner pools, by name."""
    (after,) = window.after or FIRST_NAME
    rows = await execute(POOL_LIST, {"workspace_id": workspace_id, "after": after, "limit": window.size + 1})
    return Page(tuple(_pool(row) for row in rows[: window.size]), more=len(rows) > window.size)


def _workspace(row: Row) -> Workspace:
    workspace_id, name, limit, create_time = row
    return Workspace(workspace_id, name, limit, micros(create_time))


def _subject(row: Row) -> Subject:
    subject_id, workspace_id, kind, display_name, role, create_time = row
    return Subject(subject_id, workspace_id, SubjectKind(kind), display_name, Role(role), create_time)


def _pool(row: Row) -> RunnerPool:
    return RunnerPool(*row)
