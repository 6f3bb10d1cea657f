"""Who may do what: principals, service accounts, keys and runner pools of one workspace."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from turnlog_server.domain import access, ids
from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.credentials import (
    CHANCE_BYTES,
    ApiKey,
    check_expiry,
    check_key,
    check_rotation,
    make_secret,
    successor_expiry,
)
from turnlog_server.domain.names import check_id, check_name, check_text, known
from turnlog_server.domain.pages import Page, Window
from turnlog_server.domain.workspace import (
    RunnerPool,
    Subject,
    SubjectKind,
    Workspace,
    kind_of,
    require_covers,
    require_manager_left,
)
from turnlog_server.service.context import CallContext
from turnlog_server.service.credentials import wall_clock
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.once import Change, Changes, Made
from turnlog_server.store.access import (
    POOL_PKEY,
    pool_find,
    pool_insert,
    pool_list,
    subject_find,
    subject_insert,
    subject_list,
    subject_managers,
    subject_set_role,
    workspace_find,
    workspace_limit,
)
from turnlog_server.store.credentials import key_end, key_find, key_insert, key_list
from turnlog_server.store.database import Database
from turnlog_server.store.execute import Execute, reading


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key that was made. `secret` is empty when the request was replayed: it is not kept."""

    api_key: ApiKey
    secret: str
    replayed: bool


class Access:
    """The use cases of AccessService."""

    def __init__(
        self,
        db: Database,
        epochs: Epochs,
        *,
        now: Callable[[], int] = wall_clock,
        chance: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """now: microseconds since the epoch.

        chance: as many random bytes as it is asked for.
        """
        self._db = db
        self._changes = Changes(db, epochs)
        self._now = now
        self._chance = chance

    async def get_workspace(self, ctx: CallContext) -> Workspace:
        """The caller's workspace."""
        access.require(ctx.caller, ctx.method)
        return await _workspace(self._reading(ctx), ctx.caller.workspace_id)

    async def set_concurrency_limit(self, ctx: CallContext, limit: int | None) -> Made[Workspace]:
        """Set how many Runs may hold a runner at once; None lifts the limit."""
        access.require(ctx.caller, ctx.method)

        async def effect(execute: Execute, caller: Caller) -> Workspace:
            changed = await workspace_limit(execute, caller.workspace_id, limit)
            return known(changed, "workspace", caller.workspace_id)

        async def find(name: str) -> Workspace:
            return await _workspace(self._reading(ctx), name)

        change = Change(effect, lambda workspace: workspace.workspace_id, find, changes_access=True)
        return await self._changes.make(ctx, change)

    async def create_subject(self, ctx: CallContext, kind: SubjectKind, name: str, role: Role) -> Made[Subject]:
        """Add a principal or a service account."""
        access.require(ctx.caller, ctx.method)
        check_name("display_name", name)
        identity = ids.make_id(kind.prefix, self._chance(ids.CHANCE_BYTES))
        subject = Subject(identity, ctx.caller.workspace_id, kind, name, role, self._now())

        async def effect(execute: Execute, caller: Caller) -> Subject:
            require_covers(caller, role)
            await subject_insert(execute, subject)
            return subject

        return await self._changes.make(ctx, self._subject_change(ctx, effect, own=identity))

    async def get_subject(self, ctx: CallContext, kind: SubjectKind, subject_id: str) -> Subject:
        """One principal or service account."""
        access.require(ctx.caller, ctx.method)
        return await _subject(self._reading(ctx), ctx.caller.workspace_id, kind, subject_id)

    async def list_subjects(self, ctx: CallContext, kind: SubjectKind, window: Window) -> Page[Subject]:
        """Principals or service accounts, newest first."""
        access.require(ctx.caller, ctx.method)
        return await subject_list(self._reading(ctx), ctx.caller.workspace_id, kind, window)

    async def set_role(self, ctx: CallContext, subject_id: str, role: Role) -> Made[Subject]:
        """Give a subject its one role, in place of the one it has; NONE takes it away."""
        access.require(ctx.caller, ctx.method)

        async def effect(execute: Execute, caller: Caller) -> Subject:
            subject = await _subject(execute, caller.workspace_id, kind_of(subject_id), subject_id)
            require_covers(caller, role)
            require_manager_left(subject, role, await subject_managers(execute, caller.workspace_id))
            await subject_set_role(execute, caller.workspace_id, subject_id, role)
            return replace(subject, role=role)

        return await self._changes.make(ctx, self._subject_change(ctx, effect))

    async def remove_role(self, ctx: CallContext, subject_id: str) -> Made[Subject]:
        """Take a subject's role away."""
        return await self.set_role(ctx, subject_id, Role.NONE)

    async def create_key(
        self, ctx: CallContext, subject_id: str, name: str, runner_pools: Sequence[str], expire_time: int | None
    ) -> IssuedKey:
        """Make a key that speaks for a subject."""
        access.require(ctx.caller, ctx.method)
        check_name("display_name", name)
        now = self._now()

        async def successor(execute: Execute, caller: Caller) -> ApiKey:
            subject = await _subject(execute, caller.workspace_id, kind_of(subject_id), subject_id)
            require_covers(caller, subject.role)
            pools = await pool_find(execute, caller.workspace_id, runner_pools)
            check_key(subject.role, runner_pools, list(pools))
            expires = check_expiry(expire_time, now)
            return ApiKey("", caller.workspace_id, subject_id, name, "", tuple(runner_pools), now, expires)

        return await self._issue(ctx, successor)

    async def rotate_key(self, ctx: CallContext, api_key_id: str, overlap: int) -> IssuedKey:
        """Make a key in place of another, which goes on for `overlap` microseconds."""
        access.require(ctx.caller, ctx.method)
        now = self._now()

        async def successor(execute: Execute, caller: Caller) -> ApiKey:
            old = await _key(execute, caller.workspace_id, api_key_id)
            check_rotation(old, now)
            subject = await _subject(execute, caller.workspace_id, kind_of(old.subject), old.subject)
            require_covers(caller, subject.role)
            if overlap:
                await key_end(execute, replace(old, expire_time=min(now + overlap, old.expire_time or now + overlap)))
            else:
                await key_end(execute, replace(old, revoke_time=now))
            return replace(old, create_time=now, expire_time=successor_expiry(old, now), rotated_from=api_key_id)

        return await self._issue(ctx, successor)

    async def get_key(self, ctx: CallContext, api_key_id: str) -> ApiKey:
        """One key."""
        access.require(ctx.caller, ctx.method)
        return await _key(self._reading(ctx), ctx.caller.workspace_id, api_key_id)

    async def list_keys(self, ctx: CallContext, window: Window) -> Page[ApiKey]:
        """Keys, newest first."""
        access.require(ctx.caller, ctx.method)
        return await key_list(self._reading(ctx), ctx.caller.workspace_id, window)

    async def revoke_key(self, ctx: CallContext, api_key_id: str) -> Made[ApiKey]:
        """End a key at once. One that is revoked already stays as it is."""
        access.require(ctx.caller, ctx.method)
        now = self._now()

        async def effect(execute: Execute, caller: Caller) -> ApiKey:
            key = await _key(execute, caller.workspace_id, api_key_id)
            revoked = key if key.revoke_time else replace(key, revoke_time=now)
            await key_end(execute, revoked)
            return revoked

        return await self._changes.make(ctx, self._key_change(ctx, effect))

    async def create_pool(self, ctx: CallContext, name: str, description: str) -> Made[RunnerPool]:
        """Add a runner pool."""
        access.require(ctx.caller, ctx.method)
        check_text("description", description)
        pool = RunnerPool(ctx.caller.workspace_id, name, description, self._now())

        async def effect(execute: Execute, caller: Caller) -> RunnerPool:
            await pool_insert(execute, pool)
            return pool

        async def find(name: str) -> RunnerPool:
            return await _pool(self._reading(ctx), ctx.caller.workspace_id, name)

        unique = {POOL_PKEY: ("runner pool", name)}
        return await self._changes.make(ctx, Change(effect, lambda pool: pool.name, find, unique=unique))

    async def get_pool(self, ctx: CallContext, name: str) -> RunnerPool:
        """One runner pool."""
        access.require(ctx.caller, ctx.method)
        return await _pool(self._reading(ctx), ctx.caller.workspace_id, name)

    async def list_pools(self, ctx: CallContext, window: Window) -> Page[RunnerPool]:
        """Runner pools, by name."""
        access.require(ctx.caller, ctx.method)
        return await pool_list(self._reading(ctx), ctx.caller.workspace_id, window)

    def _reading(self, ctx: CallContext) -> Execute:
        return reading(self._db, ctx.rpc, ctx.deadline)

    async def _issue(self, ctx: CallContext, successor: Callable[[Execute, Caller], Awaitable[ApiKey]]) -> IssuedKey:
        """Make a key with a new id and secret out of what `successor` says of the rest."""
        secret = make_secret(self._chance(CHANCE_BYTES))
        identity = ids.make_id(ids.API_KEY, self._chance(ids.CHANCE_BYTES))

        async def effect(execute: Execute, caller: Caller) -> ApiKey:
            key = replace(await successor(execute, caller), api_key_id=identity, prefix=secret.prefix)
            await key_insert(execute, key, secret.digest)
            return key

        made = await self._changes.make(ctx, self._key_change(ctx, effect, own=identity))
        return IssuedKey(made.item, "" if made.replayed else secret.text, made.replayed)

    def _subject_change(
        self, ctx: CallContext, effect: Callable[[Execute, Caller], Awaitable[Subject]], own: str = ""
    ) -> Change[Subject]:
        async def find(name: str) -> Subject:
            return await _subject(self._reading(ctx), ctx.caller.workspace_id, kind_of(name), name)

        return Change(effect, lambda subject: subject.subject_id, find, own, changes_access=True)

    def _key_change(
        self, ctx: CallContext, effect: Callable[[Execute, Caller], Awaitable[ApiKey]], own: str = ""
    ) -> Change[ApiKey]:
        async def find(name: str) -> ApiKey:
            return await _key(self._reading(ctx), ctx.caller.workspace_id, name)

        return Change(effect, lambda key: key.api_key_id, find, own, changes_access=True)


async def _workspace(execute: Execute, workspace_id: str) -> Workspace:
    return known(await workspace_find(execute, workspace_id), "workspace", workspace_id)


async def _subject(execute: Execute, workspace_id: str, kind: SubjectKind, subject_id: str) -> Subject:
    found = await subject_find(execute, workspace_id, check_id(kind.resource, subject_id))
    return known(found if found and found.kind is kind else None, kind.resource, subject_id)


async def _key(execute: Execute, workspace_id: str, api_key_id: str) -> ApiKey:
    return known(await key_find(execute, workspace_id, check_id("API key", api_key_id)), "API key", api_key_id)


async def _pool(execute: Execute, workspace_id: str, name: str) -> RunnerPool:
    found = await pool_find(execute, workspace_id, [check_id("runner pool", name)])
    return known(found.get(name), "runner pool", name)
