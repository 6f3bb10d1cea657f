"""Named things on the command line: what takes the id of a deployment, agent or profile takes its name as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from turnlog_client.cli.command import Cli
from turnlog_client.client import Turnlog
from turnlog_client.errors import InvalidRequest


@dataclass(frozen=True)
class _Kind:
    """What can be named. identity: the field of an entry that holds its id."""

    what: str
    prefix: str
    identity: str
    command: str
    entries: Callable[[Turnlog], AsyncIterator[Any]]


_DEPLOYMENT = _Kind(
    "deployment", "adep_", "agent_deployment_id", "deployment list", lambda t: t.agents.list_deployments.each()
)
_AGENT = _Kind("agent", "agt_", "agent_id", "agent list", lambda t: t.agents.list_agents.each())
_HARNESS = _Kind(
    "harness profile",
    "hpr_",
    "harness_profile_id",
    "harness-profile list",
    lambda t: t.agents.list_harness_profiles.each(),
)
_SANDBOX = _Kind(
    "sandbox profile",
    "spr_",
    "sandbox_profile_id",
    "sandbox-profile list",
    lambda t: t.agents.list_sandbox_profiles.each(),
)


async def deployment_id(cli: Cli, given: str) -> str:
    """The id of the deployment that an id or a name means. Raises InvalidRequest."""
    return await _find(cli, given, _DEPLOYMENT)


async def starting_deployment_id(cli: Cli, given: str) -> str:
    """As `deployment_id`, for one to start a Session from; the profile's for nothing."""
    if given:
        return await deployment_id(cli, given)
    if found := cli.t.profile.agent_deployment_id:
        return found
    raise InvalidRequest(
        f"Say which deployment to start from: --agent-deployment, with a name that `turnlog {_DEPLOYMENT.command}` "
        "shows or an id, adep_…"
    )


async def agent_id(cli: Cli, given: str) -> str:
    """As `deployment_id`, for an agent."""
    return await _find(cli, given, _AGENT)


async def harness_profile_id(cli: Cli, given: str) -> str:
    """As `deployment_id`, for a harness profile."""
    return await _find(cli, given, _HARNESS)


async def sandbox_profile_id(cli: Cli, given: str) -> str:
    """As `deployment_id`, for a sandbox profile."""
    return await _find(cli, given, _SANDBOX)


async def _find(cli: Cli, given: str, kind: _Kind) -> str:
    # Ids and names do not meet but by intent, and an id is the surer of the two: it needs no list.
    if given.startswith(kind.prefix):
        return given
    async for entry in kind.entries(cli.t):
        if entry.name == given:
            identity: str = getattr(entry, kind.identity)
            cli.names[identity] = given
            return identity
    raise InvalidRequest(
        f"There is no {kind.what} named {given!r}: give a name that `turnlog {kind.command}` shows, or an id, "
        f"{kind.prefix}…"
    )
