"""Harness profiles and sandbox profiles. Neither ever changes."""

from collections.abc import Sequence

from turnlog_server.domain.agents import HarnessProfile, SandboxProfile
from turnlog_server.domain.pages import FIRST_NAME, Page, Window
from turnlog_server.store.execute import Execute, first

HARNESS_NAME = "harness_profiles_name"
SANDBOX_NAME = "sandbox_profiles_name"

HARNESS_INSERT = """
INSERT INTO harness_profiles (harness_profile_id, workspace_id, name, description, create_time)
VALUES (%(harness_profile_id)s::text, %(workspace_id)s::text, %(name)s::text, %(description)s::text,
        %(create_time)s::int8)
"""

HARNESS_FIND = """
SELECT harness_profile_id, workspace_id, name, description, create_time
  FROM harness_profiles
 WHERE harness_profile_id = %(harness_profile_id)s::text AND workspace_id = %(workspace_id)s::text
"""

HARNESS_NAMED = """
SELECT name, harness_profile_id FROM harness_profiles
 WHERE workspace_id = %(workspace_id)s::text AND name = ANY(%(names)s::text[])
"""

HARNESS_LIST = """
SELECT harness_profile_id, workspace_id, name, description, create_time
  FROM harness_profiles
 WHERE workspace_id = %(workspace_id)s::text AND name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s::int8
"""

SANDBOX_INSERT = """
INSERT INTO sandbox_profiles (sandbox_profile_id, workspace_id, name, max_duration_seconds, create_time)
VALUES (%(sandbox_profile_id)s::text, %(workspace_id)s::text, %(name)s::text, %(max_duration_seconds)s::int8,
        %(create_time)s::int8)
"""

SANDBOX_FIND = """
SELECT sandbox_profile_id, workspace_id, name, max_duration_seconds, create_time
  FROM sandbox_profiles
 WHERE sandbox_profile_id = %(sandbox_profile_id)s::text AND workspace_id = %(workspace_id)s::text
"""

SANDBOX_NAMED = """
SELECT sandbox_profile_id, workspace_id, name, max_duration_seconds, create_time
  FROM sandbox_profiles
 WHERE workspace_id = %(workspace_id)s::text AND name = %(name)s::text
"""

SANDBOX_LIST = """
SELECT sandbox_profile_id, workspace_id, name, max_duration_seconds, create_time
  FROM sandbox_profiles
 WHERE workspace_id = %(workspace_id)s::text AND name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s::int8
"""


async def harness_insert(execute: Execute, profile: HarnessProfile) -> None:
    """Add a harness profile."""
    params = {
        "harness_profile_id": profile.harness_profile_id,
        "workspace_id": profile.workspace_id,
        "name": profile.name,
        "description": profile.description,
        "create_time": profile.create_time,
    }
    await execute(HARNESS_INSERT, params)


async def harness_find(execute: Execute, workspace_id: str, harness_profile_id: str) -> HarnessProfile | None:
    """A harness profile of this workspace."""
    params = {"workspace_id": workspace_id, "harness_profile_id": harness_profile_id}
    row = await first(execute, HARNESS_FIND, params)
    return HarnessProfile(*row) if row else None


async def harness_named(execute: Execute, workspace_id: str, names: Sequence[str]) -> dict[str, str]:
    """The ids of those harness profiles that exist, by name."""
    if not names:
        return {}
    rows = await execute(HARNESS_NAMED, {"workspace_id": workspace_id, "names": list(names)})
    return {name: harness_profile_id for name, harness_profile_id in rows}


async def harness_list(execute: Execute, workspace_id: str, window: Window) -> Page[HarnessProfile]:
    """Harness profiles, by name."""
    (after,) = window.after or FIRST_NAME
    rows = await execute(HARNESS_LIST, {"workspace_id": workspace_id, "after": after, "limit": window.size + 1})
    return Page(tuple(HarnessProfile(*row) for row in rows[: window.size]), more=len(rows) > window.size)


async def sandbox_insert(execute: Execute, profile: SandboxProfile) -> None:
    """Add a sandbox profile."""
    params = {
        "sandbox_profile_id": profile.sandbox_profile_id,
        "workspace_id": profile.workspace_id,
        "name": profile.name,
        "max_duration_seconds": profile.max_duration_seconds,
        "create_time": profile.create_time,
    }
    await execute(SANDBOX_INSERT, params)


async def sandbox_find(execute: Execute, workspace_id: str, sandbox_profile_id: str) -> SandboxProfile | None:
    """A sandbox profile of this workspace."""
    params = {"workspace_id": workspace_id, "sandbox_profile_id": sandbox_profile_id}
    row = await first(execute, SANDBOX_FIND, params)
    return SandboxProfile(*row) if row else None


async def sandbox_named(execute: Execute, workspace_id: str, name: str) -> SandboxProfile | None:
    """A sandbox profile by its name."""
    row = await first(execute, SANDBOX_NAMED, {"workspace_id": workspace_id, "name": name})
    return SandboxProfile(*row) if row else None


async def sandbox_list(execute: Execute, workspace_id: str, window: Window) -> Page[SandboxProfile]:
    """Sandbox profiles, by name."""
    (after,) = window.after or FIRST_NAME
    rows = await execute(SANDBOX_LIST, {"workspace_id": workspace_id, "after": after, "limit": window.size + 1})
    return Page(tuple(SandboxProfile(*row) for row in rows[: window.size]), more=len(rows) > window.size)
