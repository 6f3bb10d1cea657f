"""The first workspace, the first keys, and all that `turnlog-server dev` starts with.

Nobody calls here, so nobody's permission is asked: whoever can run these commands has the database.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from turnlog_server.domain import ids
from turnlog_server.domain.access import Role
from turnlog_server.domain.agents import (
    DEFAULT_POOL,
    Agent,
    AgentVersion,
    Deployment,
    HarnessProfile,
    RevisionPlan,
    SandboxProfile,
    Tool,
    check_parts,
)
from turnlog_server.domain.credentials import (
    CHANCE_BYTES,
    ApiKey,
    Secret,
    check_expiry,
    check_key,
    make_secret,
    parse_secret,
)
from turnlog_server.domain.limits import PAGE_MAXIMUM
from turnlog_server.domain.names import already_exists, check_name, known
from turnlog_server.domain.pages import Window
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.workspace import RunnerPool, Subject, SubjectKind, Workspace, kind_of
from turnlog_server.service.credentials import wall_clock
from turnlog_server.store import access as stored
from turnlog_server.store import agents, credentials, profiles
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database
from turnlog_server.store.errors import Duplicate
from turnlog_server.store.execute import Execute, reading, within

T = TypeVar("T")

DEV_WORKSPACE: Final = "default"
DEV_MANAGER: Final = "dev"
DEV_RUNNER: Final = "dev runner"
DEV_SANDBOX: Final = "default"
DEV_SANDBOX_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class DevAgent:
    """An agent that `dev` makes, with a harness profile and a deployment of the same name."""

    name: str
    description: str
    harness: str
    instructions: str
    tools: tuple[Tool, ...] = ()


DEV_AGENTS: Final = (
    DevAgent(
        "repo",
        "Answers questions about a source tree.",
        "Reads a source tree; needs no model and no network.",
        "Answer the question about the source tree. Search it, read what you found, and cite each claim as file:line.",
        (
            Tool(
                "search",
                "Finds the lines of the source tree that match a text.",
                '{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}',
            ),
            Tool(
                "read",
                "Reads lines of one file of the source tree.",
                '{"type":"object","properties":{"path":{"type":"string"},"start_line":{"type":"integer"},'
                '"end_line":{"type":"integer"}},"required":["path"]}',
            ),
        ),
    ),
    DevAgent("echo", "Says again what it is told.", "Repeats the message.", "Say again what you are told."),
)
"""What `dev` offers."""


@dataclass(frozen=True, slots=True)
class IssuedWorkspace:
    """A workspace, its first manager and the manager's key. The secret is shown once."""

    workspace: Workspace
    manager: Subject
    api_key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A subject and its key. The secret is shown once."""

    subject: Subject
    api_key: ApiKey
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DevSecrets:
    """The secrets that `dev` keeps in files: of the person who tries it out, and of the runner. Empty for none yet."""

    manager: str = field(default="", repr=False)
    runner: str = field(default="", repr=False)


async def workspace_create(db: Database, name: str, *, manager: str = "first manager") -> IssuedWorkspace:
    """Make a workspace with a principal that manages it, and that principal's key.

    Raises Refusal(ALREADY_EXISTS) where the name is taken.
    """
    check_name("name", name)
    workspace_id = _id(ids.WORKSPACE)
    subject = Subject(_id(ids.PRINCIPAL), workspace_id, SubjectKind.PRINCIPAL, manager, Role.MANAGER, wall_clock())
    key, secret = _new_key(subject, manager)
    pool = RunnerPool(workspace_id, DEFAULT_POOL, "Where Runs go by default.", wall_clock())

    async def body(conn: Connection) -> Workspace:
        execute = within(conn)
        workspace = await stored.workspace_insert(execute, workspace_id, name)
        await stored.subject_insert(execute, subject)
        await credentials.key_insert(execute, key, secret.digest)
        await stored.pool_insert(execute, pool)
        return workspace

    try:
        workspace = await db.run("workspace_create", body, keyed=False)
    except Duplicate as taken:
        found = await stored.workspace_named(reading(db, "workspace_create"), name)
        if found is None:
            raise
        if found.workspace_id != workspace_id:
            raise already_exists("workspace", name) from taken
        workspace = found
    return IssuedWorkspace(workspace, subject, key, secret.text)


async def key_create(
    db: Database,
    workspace: str,
    *,
    subject: str = "",
    kind: SubjectKind = SubjectKind.SERVICE_ACCOUNT,
    role: Role = Role.MANAGER,
    display_name: str = "",
    runner_pools: Sequence[str] = (),
    expire_time: int | None = None,
) -> IssuedKey:
    """Make a key, for a subject that exists or for a new one.

    workspace: its name or its id.
    subject: whom the key speaks for; empty for a new one of this kind and role.
    """
    execute = reading(db, "key_create")
    home = await _workspace(execute, workspace)
    if subject:
        found = await stored.subject_find(execute, home.workspace_id, subject)
        speaker = known(found, kind_of(subject).resource, subject)
    else:
        name = check_name("display_name", display_name or role.lower())
        speaker = Subject(_id(kind.prefix), home.workspace_id, kind, name, role, wall_clock())
    check_key(speaker.role, runner_pools, list(await stored.pool_find(execute, home.workspace_id, runner_pools)))
    expires = check_expiry(expire_time, wall_clock())
    key, secret = _new_key(speaker, display_name or speaker.display_name, runner_pools, expires)

    async def body(conn: Connection) -> None:
        inside = within(conn)
        await stored.epoch_raise(inside, home.workspace_id)
        if not subject:
            await stored.subject_insert(inside, speaker)
        await credentials.key_insert(inside, key, secret.digest)

    try:
        await db.run("key_create", body, keyed=False)
    except Duplicate as echo:
        # Ids are new, so only an earlier attempt of this very call can have used them.
        if not echo.after_unknown:
            raise
    return IssuedKey(speaker, key, secret.text)


async def ensure_dev(db: Database, saved: DevSecrets) -> DevSecrets:
    """Make what is missing of the workspace that `dev` offers; returns the secrets that work.

    saved: what an earlier call returned. A secret that no longer works is replaced by a new key.
    """
    execute = reading(db, "ensure_dev")
    manager = saved.manager
    if await stored.workspace_named(execute, DEV_WORKSPACE) is None:
        # Taken all the same: another start was quicker.
        with suppress(Refusal):
            manager = (await workspace_create(db, DEV_WORKSPACE, manager=DEV_MANAGER)).secret
    home = (await _workspace(execute, DEV_WORKSPACE)).workspace_id
    if not await _works(execute, home, manager, Role.MANAGER):
        manager = await _dev_key(db, home, SubjectKind.PRINCIPAL, Role.MANAGER, DEV_MANAGER, [])
    pool = RunnerPool(home, DEFAULT_POOL, "Where Runs go unless their deployment says otherwise.", wall_clock())
    await _ensure(db, partial(_pool, workspace_id=home), partial(stored.pool_insert, pool=pool))
    runner = saved.runner
    if not await _works(execute, home, runner, Role.RUNNER):
        runner = await _dev_key(db, home, SubjectKind.SERVICE_ACCOUNT, Role.RUNNER, DEV_RUNNER, [DEFAULT_POOL])
    sandbox = await _ensure_sandbox(db, home)
    for agent in DEV_AGENTS:
        await _ensure_agent(db, home, agent, sandbox)
    return DevSecrets(manager, runner)


async def _dev_key(
    db: Database, workspace_id: str, kind: SubjectKind, role: Role, name: str, runner_pools: Sequence[str]
) -> str:
    """A new key, for the subject that an earlier start made if it is still there."""
    window, subject = Window(None, PAGE_MAXIMUM), ""
    execute = reading(db, "ensure_dev")
    while not subject:
        page = await stored.subject_list(execute, workspace_id, kind, window)
        found = [item.subject_id for item in page.items if item.display_name == name and item.role is role]
        subject = found[0] if found else ""
        if not page.more:
            break
        window = Window(page.items[-1].position, PAGE_MAXIMUM)
    issued = await key_create(
        db, workspace_id, subject=subject, kind=kind, role=role, display_name=name, runner_pools=runner_pools
    )
    return issued.secret


async def _works(execute: Execute, workspace_id: str, text: str, role: Role) -> bool:
    secret = parse_secret(text)
    found = await credentials.credential_by_prefix(execute, secret.prefix) if secret else None
    if secret is None or found is None or found.revoked or not secret.proves(found.digest):
        return False
    caller = found.caller
    expired = bool(caller.expire_time) and caller.expire_time <= wall_clock()
    return caller.workspace_id == workspace_id and caller.role is role and not expired


async def _ensure_sandbox(db: Database, workspace_id: str) -> SandboxProfile:
    profile = SandboxProfile(_id(ids.SANDBOX_PROFILE), workspace_id, DEV_SANDBOX, DEV_SANDBOX_SECONDS, wall_clock())
    find = partial(profiles.sandbox_named, workspace_id=workspace_id, name=DEV_SANDBOX)
    return await _ensure(db, find, partial(profiles.sandbox_insert, profile=profile))


async def _ensure_agent(db: Database, workspace_id: str, dev: DevAgent, sandbox: SandboxProfile) -> None:
    """An agent with its harness profile and its deployment, all of one name, each with its first number published."""
    now, named = wall_clock(), {"workspace_id": workspace_id, "name": dev.name}
    harness = HarnessProfile(_id(ids.HARNESS_PROFILE), workspace_id, dev.name, dev.harness, now)
    harness_id = await _ensure(db, partial(_harness_id, **named), partial(profiles.harness_insert, profile=harness))
    agent = await _ensure(
        db,
        partial(agents.agent_named, **named),
        partial(agents.agent_insert, agent=Agent(_id(ids.AGENT), workspace_id, dev.name, dev.description, 0, now)),
    )
    deployment = await _ensure(
        db,
        partial(agents.deployment_named, **named),
        partial(
            agents.deployment_insert,
            deployment=Deployment(_id(ids.DEPLOYMENT), workspace_id, dev.name, 0, now),
        ),
    )

    async def publish_version(execute: Execute) -> bool:
        number = await agents.agent_advance(execute, workspace_id, agent.agent_id)
        version = AgentVersion(agent.agent_id, workspace_id, 1, dev.instructions, dev.tools, now)
        if number == 1:
            await agents.version_insert(execute, version)
        return number == 1

    async def publish_revision(execute: Execute) -> bool:
        number = await agents.deployment_advance(execute, workspace_id, deployment.agent_deployment_id)
        plan = RevisionPlan(
            deployment.agent_deployment_id, agent.agent_id, None, harness_id, sandbox.sandbox_profile_id
        )
        if number == 1:
            version = check_parts(plan, await agents.revision_parts(execute, workspace_id, plan))
            await agents.revision_insert(execute, plan.revision(workspace_id, 1, version, now))
        return number == 1

    if not agent.latest_version_number:
        await _publish_first(db, publish_version)
    if not deployment.current_revision_number:
        await _publish_first(db, publish_revision)


async def _publish_first(db: Database, publish: Callable[[Execute], Awaitable[bool]]) -> None:
    """Publish under number 1, unless another start did so meanwhile."""

    async def body(conn: Connection) -> None:
        if not await publish(within(conn)):
            raise _Published

    with suppress(_Published):
        await db.run("ensure_dev", body, keyed=False)


class _Published(Exception):
    """Rolls back."""


async def _ensure(
    db: Database, find: Callable[[Execute], Awaitable[T | None]], insert: Callable[[Execute], Awaitable[None]]
) -> T:
    """What is found, or what is found once it was inserted, by us or by another start at the same moment."""
    execute = reading(db, "ensure_dev")
    if (found := await find(execute)) is not None:
        return found

    async def body(conn: Connection) -> None:
        await insert(within(conn))

    with suppress(Duplicate):
        await db.run("ensure_dev", body, keyed=False)
    found = await find(execute)
    assert found is not None, "inserted, or there was one"
    return found


async def _pool(execute: Execute, workspace_id: str) -> RunnerPool | None:
    return (await stored.pool_find(execute, workspace_id, [DEFAULT_POOL])).get(DEFAULT_POOL)


async def _harness_id(execute: Execute, workspace_id: str, name: str) -> str | None:
    return (await profiles.harness_named(execute, workspace_id, [name])).get(name)


async def _workspace(execute: Execute, wanted: str) -> Workspace:
    found = await stored.workspace_named(execute, wanted) or await stored.workspace_find(execute, wanted)
    return known(found, "workspace", wanted)


def _new_key(
    subject: Subject, name: str, runner_pools: Sequence[str] = (), expire_time: int = 0
) -> tuple[ApiKey, Secret]:
    secret = make_secret(secrets.token_bytes(CHANCE_BYTES))
    key = ApiKey(
        _id(ids.API_KEY),
        subject.workspace_id,
        subject.subject_id,
        name,
        secret.prefix,
        tuple(runner_pools),
        wall_clock(),
        expire_time,
    )
    return key, secret


def _id(prefix: str) -> str:
    return ids.make_id(prefix, secrets.token_bytes(ids.CHANCE_BYTES))
