"""Agents, what they run on, and where they are deployed. What is published never changes."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from turnlog_server.domain import access, ids
from turnlog_server.domain.access import Caller
from turnlog_server.domain.agents import (
    Agent,
    AgentVersion,
    Deployment,
    DeploymentRevision,
    HarnessProfile,
    RevisionPlan,
    SandboxProfile,
    Tool,
    check_parts,
    check_tools,
    version_name,
    version_named,
)
from turnlog_server.domain.names import check_id, check_name, check_text, known
from turnlog_server.domain.pages import Page, Window
from turnlog_server.service.catalogue import Catalogue
from turnlog_server.service.context import CallContext
from turnlog_server.service.credentials import wall_clock
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.once import Change, Changes, Made
from turnlog_server.store.agents import (
    AGENT_NAME,
    DEPLOYMENT_NAME,
    agent_advance,
    agent_find,
    agent_insert,
    agent_list,
    deployment_advance,
    deployment_find,
    deployment_insert,
    deployment_list,
    revision_insert,
    revision_list,
    revision_parts,
    version_insert,
    version_list,
)
from turnlog_server.store.database import Database
from turnlog_server.store.execute import Execute, reading
from turnlog_server.store.profiles import (
    HARNESS_NAME,
    SANDBOX_NAME,
    harness_find,
    harness_insert,
    harness_list,
    sandbox_find,
    sandbox_insert,
    sandbox_list,
)

T = TypeVar("T")


class Agents(Catalogue):
    """The use cases of AgentService, on top of what admission and offers read."""

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
        super().__init__(db)
        self._changes = Changes(db, epochs)
        self._now = now
        self._chance = chance

    async def create_agent(self, ctx: CallContext, name: str, description: str) -> Made[Agent]:
        """Add an agent, without a version."""
        access.require(ctx.caller, ctx.method)
        check_text("description", description)
        agent = Agent(self._id(ids.AGENT), ctx.caller.workspace_id, name, description, 0, self._now())
        unique = (AGENT_NAME, "agent", name)
        return await self._create(ctx, agent, agent.agent_id, agent_insert, _agent, unique)

    async def get_agent(self, ctx: CallContext, agent_id: str) -> Agent:
        """One agent."""
        access.require(ctx.caller, ctx.method)
        return await _agent(self._reading(ctx), ctx.caller.workspace_id, agent_id)

    async def list_agents(self, ctx: CallContext, window: Window) -> Page[Agent]:
        """Agents, by name."""
        access.require(ctx.caller, ctx.method)
        return await agent_list(self._reading(ctx), ctx.caller.workspace_id, window)

    async def publish_version(
        self, ctx: CallContext, agent_id: str, instructions: str, tools: Sequence[Tool]
    ) -> Made[AgentVersion]:
        """Publish a version of an agent; it gets the next number."""
        access.require(ctx.caller, ctx.method)
        check_tools(tools)
        now = self._now()

        async def effect(execute: Execute, caller: Caller) -> AgentVersion:
            workspace_id = caller.workspace_id
            advanced = await agent_advance(execute, workspace_id, check_id("agent", agent_id))
            number = known(advanced, "agent", agent_id)
            version = AgentVersion(agent_id, workspace_id, number, instructions, tuple(tools), now)
            await version_insert(execute, version)
            return version

        async def find(name: str) -> AgentVersion:
            return await self.version(ctx.caller.workspace_id, *version_named(name), deadline=ctx.deadline)

        change = Change(effect, lambda version: version_name(version.agent_id, version.version_number), find)
        return await self._changes.make(ctx, change)

    async def get_version(self, ctx: CallContext, agent_id: str, version_number: int) -> AgentVersion:
        """One version of an agent."""
        access.require(ctx.caller, ctx.method)
        return await self.version(ctx.caller.workspace_id, agent_id, version_number, deadline=ctx.deadline)

    async def list_versions(self, ctx: CallContext, agent_id: str, window: Window) -> Page[AgentVersion]:
        """Versions of an agent, newest first."""
        access.require(ctx.caller, ctx.method)
        execute = self._reading(ctx)
        await _agent(execute, ctx.caller.workspace_id, agent_id)
        return await version_list(execute, ctx.caller.workspace_id, agent_id, window)

    async def create_harness_profile(self, ctx: CallContext, name: str, description: str) -> Made[HarnessProfile]:
        """Add a harness profile."""
        access.require(ctx.caller, ctx.method)
        check_text("description", description)
        profile = HarnessProfile(self._id(ids.HARNESS_PROFILE), ctx.caller.workspace_id, name, description, self._now())
        unique = (HARNESS_NAME, "harness profile", name)
        return await self._create(ctx, profile, profile.harness_profile_id, harness_insert, _harness, unique)

    async def get_harness_profile(self, ctx: CallContext, harness_profile_id: str) -> HarnessProfile:
        """One harness profile."""
        access.require(ctx.caller, ctx.method)
        return await _harness(self._reading(ctx), ctx.caller.workspace_id, harness_profile_id)

    async def list_harness_profiles(self, ctx: CallContext, window: Window) -> Page[HarnessProfile]:
        """Harness profiles, by name."""
        access.require(ctx.caller, ctx.method)
        return await harness_list(self._reading(ctx), ctx.caller.workspace_id, window)

    async def create_sandbox_profile(self, ctx: CallContext, name: str, max_duration: int) -> Made[SandboxProfile]:
        """Add a sandbox profile; `max_duration` in seconds."""
        access.require(ctx.caller, ctx.method)
        profile = SandboxProfile(
            self._id(ids.SANDBOX_PROFILE), ctx.caller.workspace_id, name, max_duration, self._now()
        )
        unique = (SANDBOX_NAME, "sandbox profile", name)
        return await self._create(ctx, profile, profile.sandbox_profile_id, sandbox_insert, _sandbox, unique)

    async def get_sandbox_profile(self, ctx: CallContext, sandbox_profile_id: str) -> SandboxProfile:
        """One sandbox profile."""
        access.require(ctx.caller, ctx.method)
        return await _sandbox(self._reading(ctx), ctx.caller.workspace_id, sandbox_profile_id)

    async def list_sandbox_profiles(self, ctx: CallContext, window: Window) -> Page[SandboxProfile]:
        """Sandbox profiles, by name."""
        access.require(ctx.caller, ctx.method)
        return await sandbox_list(self._reading(ctx), ctx.caller.workspace_id, window)

    async def create_deployment(self, ctx: CallContext, name: str) -> Made[Deployment]:
        """Add a deployment, without a revision."""
        access.require(ctx.caller, ctx.method)
        deployment = Deployment(self._id(ids.DEPLOYMENT), ctx.caller.workspace_id, name, 0, self._now())
        unique = (DEPLOYMENT_NAME, "agent deployment", name)
        identity = deployment.agent_deployment_id
        return await self._create(ctx, deployment, identity, deployment_insert, _deployment, unique)

    async def get_deployment(self, ctx: CallContext, deployment_id: str) -> Deployment:
        """One deployment."""
        access.require(ctx.caller, ctx.method)
        return await _deployment(self._reading(ctx), ctx.caller.workspace_id, deployment_id)

    async def list_deployments(self, ctx: CallContext, window: Window) -> Page[Deployment]:
        """Deployments, by name."""
        access.require(ctx.caller, ctx.method)
        return await deployment_list(self._reading(ctx), ctx.caller.workspace_id, window)

    async def publish_revision(self, ctx: CallContext, plan: RevisionPlan) -> Made[DeploymentRevision]:
        """Publish a revision of a deployment; it gets the next number, and is current from now on."""
        access.require(ctx.caller, ctx.method)
        if plan.model_route:
            check_name("model_route", plan.model_route)
        for resource, identity in plan.references:
            check_id(resource, identity)
        now = self._now()

        async def effect(execute: Execute, caller: Caller) -> DeploymentRevision:
            workspace_id = caller.workspace_id
            advanced = await deployment_advance(execute, workspace_id, plan.agent_deployment_id)
            number = known(advanced, "agent deployment", plan.agent_deployment_id)
            parts = await revision_parts(execute, workspace_id, plan)
            revision = plan.revision(workspace_id, number, check_parts(plan, parts), now)
            await revision_insert(execute, revision)
            return revision

        async def find(name: str) -> DeploymentRevision:
            return await self.revision(ctx.caller.workspace_id, *version_named(name), deadline=ctx.deadline)

        change = Change(effect, lambda made: version_name(made.agent_deployment_id, made.revision_number), find)
        return await self._changes.make(ctx, change)

    async def get_revision(self, ctx: CallContext, deployment_id: str, revision_number: int) -> DeploymentRevision:
        """One revision of a deployment."""
        access.require(ctx.caller, ctx.method)
        return await self.revision(ctx.caller.workspace_id, deployment_id, revision_number, deadline=ctx.deadline)

    async def list_revisions(self, ctx: CallContext, deployment_id: str, window: Window) -> Page[DeploymentRevision]:
        """Revisions of a deployment, newest first."""
        access.require(ctx.caller, ctx.method)
        execute = self._reading(ctx)
        await _deployment(execute, ctx.caller.workspace_id, deployment_id)
        return await revision_list(execute, ctx.caller.workspace_id, deployment_id, window)

    def _id(self, prefix: str) -> str:
        return ids.make_id(prefix, self._chance(ids.CHANCE_BYTES))

    def _reading(self, ctx: CallContext) -> Execute:
        return reading(self._db, ctx.rpc, ctx.deadline)

    async def _create(
        self,
        ctx: CallContext,
        item: T,
        identity: str,
        insert: Callable[[Execute, T], Awaitable[None]],
        read: Callable[[Execute, str, str], Awaitable[T]],
        unique: tuple[str, str, str],
    ) -> Made[T]:
        """Add something under a name of its own. `unique`: constraint, resource, name."""

        async def effect(execute: Execute, caller: Caller) -> T:
            await insert(execute, item)
            return item

        async def find(name: str) -> T:
            return await read(self._reading(ctx), ctx.caller.workspace_id, name)

        constraint, resource, name = unique
        change = Change(effect, lambda _: identity, find, own=identity, unique={constraint: (resource, name)})
        return await self._changes.make(ctx, change)


async def _agent(execute: Execute, workspace_id: str, agent_id: str) -> Agent:
    return known(await agent_find(execute, workspace_id, check_id("agent", agent_id)), "agent", agent_id)


async def _harness(execute: Execute, workspace_id: str, profile_id: str) -> HarnessProfile:
    resource = "harness profile"
    return known(await harness_find(execute, workspace_id, check_id(resource, profile_id)), resource, profile_id)


async def _sandbox(execute: Execute, workspace_id: str, profile_id: str) -> SandboxProfile:
    resource = "sandbox profile"
    return known(await sandbox_find(execute, workspace_id, check_id(resource, profile_id)), resource, profile_id)


async def _deployment(execute: Execute, workspace_id: str, deployment_id: str) -> Deployment:
    resource = "agent deployment"
    found = await deployment_find(execute, workspace_id, check_id(resource, deployment_id))
    return known(found, resource, deployment_id)
