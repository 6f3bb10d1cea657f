"""API keys, and what they open."""

import json
from dataclasses import dataclass, field

from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.credentials import ApiKey
from turnlog_server.domain.pages import NEWEST, Page, Window
from turnlog_server.store.database import Row
from turnlog_server.store.execute import Execute, first

KEY_PKEY = "api_keys_pkey"

KEY_INSERT = """
INSERT INTO api_keys (api_key_id, workspace_id, subject_id, display_name, prefix, digest, runner_pools,
                      create_time, expire_time, revoke_time, rotated_from)
VALUES (%(api_key_id)s::text, %(workspace_id)s::text, %(subject_id)s::text, %(display_name)s::text, %(prefix)s::text,
        %(digest)s::bytea, %(runner_pools)s::jsonb, %(create_time)s::int8, %(expire_time)s::int8,
        %(revoke_time)s::int8, %(rotated_from)s::text)
"""

KEY_FIND = """
SELECT api_key_id, workspace_id, subject_id, display_name, prefix, runner_pools, create_time, expire_time,
       revoke_time, rotated_from
  FROM api_keys
 WHERE api_key_id = %(api_key_id)s::text AND workspace_id = %(workspace_id)s::text
"""

KEY_LIST = """
SELECT api_key_id, workspace_id, subject_id, display_name, prefix, runner_pools, create_time, expire_time,
       revoke_time, rotated_from
  FROM api_keys
 WHERE workspace_id = %(workspace_id)s::text
   AND (create_time, api_key_id) < (%(after_time)s::int8, %(after_id)s::text)
 ORDER BY create_time DESC, api_key_id DESC
 LIMIT %(limit)s::int8
"""

KEY_END = """
UPDATE api_keys SET expire_time = %(expire_time)s::int8, revoke_time = %(revoke_time)s::int8
 WHERE api_key_id = %(api_key_id)s::text AND workspace_id = %(workspace_id)s::text
"""

# Key, role and epoch in one statement: what it answers was true all at one moment. Sub-selects and no joins: a planner
# that takes a small table for an empty one would read it first, and whole.
_CREDENTIAL = """
SELECT k.api_key_id, k.workspace_id, k.subject_id, k.digest, k.runner_pools, k.expire_time, k.revoke_time,
       (SELECT s.role FROM subjects s WHERE s.subject_id = k.subject_id),
       (SELECT e.acl_epoch FROM workspace_epochs e WHERE e.workspace_id = k.workspace_id)
  FROM api_keys k
"""

CREDENTIAL_BY_PREFIX = _CREDENTIAL + " WHERE k.prefix = %(prefix)s::text"

CREDENTIAL_BY_ID = _CREDENTIAL + " WHERE k.api_key_id = %(api_key_id)s::text"


@dataclass(frozen=True, slots=True)
class Credential:
    """A key as of one permission epoch: what it opens, the digest of its secret, and whether it was revoked."""

    caller: Caller
    digest: bytes = field(repr=False)
    revoked: bool


async def key_insert(execute: Execute, key: ApiKey, digest: bytes) -> None:
    """Add a key."""
    params = {
        "api_key_id": key.api_key_id,
        "workspace_id": key.workspace_id,
        "subject_id": key.subject,
        "display_name": key.display_name,
        "prefix": key.prefix,
        "digest": digest,
        "runner_pools": json.dumps(key.runner_pools),
        "create_time": key.create_time,
        "expire_time": key.expire_time,
        "revoke_time": key.revoke_time,
        "rotated_from": key.rotated_from,
    }
    await execute(KEY_INSERT, params)


async def key_find(execute: Execute, workspace_id: str, api_key_id: str) -> ApiKey | None:
    """A key of this workspace."""
    row = await first(execute, KEY_FIND, {"workspace_id": workspace_id, "api_key_id": api_key_id})
    return _key(row) if row else None


async def key_list(execute: Execute, workspace_id: str, window: Window) -> Page[ApiKey]:
    """Keys, newest first."""
    after_time, after_id = window.after or NEWEST
    params = {"workspace_id": workspace_id, "after_time": after_time, "after_id": after_id, "limit": window.size + 1}
    rows = await execute(KEY_LIST, params)
    return Page(tuple(_key(row) for row in rows[: window.size]), more=len(rows) > window.size)


async def key_end(execute: Execute, key: ApiKey) -> None:
    """Write when a key stops to work, as `key` says."""
    params = {
        "workspace_id": key.workspace_id,
        "api_key_id": key.api_key_id,
        "expire_time": key.expire_time,
        "revoke_time": key.revoke_time,
    }
    await execute(KEY_END, params)


async def credential_by_prefix(execute: Execute, prefix: str) -> Credential | None:
    """The key with this public prefix."""
    row = await first(execute, CREDENTIAL_BY_PREFIX, {"prefix": prefix})
    return _credential(row) if row else None


async def credential_by_id(execute: Execute, api_key_id: str) -> Credential | None:
    """The key with this id."""
    row = await first(execute, CREDENTIAL_BY_ID, {"api_key_id": api_key_id})
    return _credential(row) if row else None


def _key(row: Row) -> ApiKey:
    key_id, workspace_id, subject, name, prefix, pools, create_time, expire_time, revoke_time, rotated_from = row
    ends = (create_time, expire_time, revoke_time)
    return ApiKey(key_id, workspace_id, subject, name, prefix, tuple(pools), *ends, rotated_from)


def _credential(row: Row) -> Credential | None:
    key_id, workspace_id, subject, digest, pools, expire_time, revoke_time, role, epoch = row
    if role is None or epoch is None:
        return None
    caller = Caller(workspace_id, subject, key_id, Role(role), epoch, tuple(pools), expire_time)
    return Credential(caller, bytes(digest), revoked=revoke_time > 0)
