"""Agents, what they run on, and where they are deployed. Times are microseconds since the epoch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnlog_server.domain.limits import MIB
from turnlog_server.domain.pages import Position
from turnlog_server.domain.refusals import Reason, Refusal, invalid, not_found

AGENT_VERSION_BYTES: Final = 1 * MIB
"""Most that an agent version may weigh as a message: it travels in every Offer, beside history and trigger."""

DEFAULT_POOL: Final = "default"


@dataclass(frozen=True, slots=True)
class Agent:
    """The name under which versions are published; `latest_version_number` 0 before the first."""

    agent_id: str
    workspace_id: str
    name: str
    description: str
    latest_version_number: int
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are by name."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that an agent may call.

    parameters: the JSON Schema of its arguments as JSON text; empty for any.
    """

    name: str
    description: str = ""
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class AgentVersion:
    """What an agent is, at one moment. Immutable."""

    agent_id: str
    workspace_id: str
    version_number: int
    instructions: str
    tools: tuple[Tool, ...]
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are newest first."""
        return (self.version_number,)


@dataclass(frozen=True, slots=True)
class HarnessProfile:
    """Which harness a runner must be able to start. Immutable."""

    harness_profile_id: str
    workspace_id: str
    name: str
    description: str
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are by name."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """Bounds of an execution environment. Immutable."""

    sandbox_profile_id: str
    workspace_id: str
    name: str
    max_duration_seconds: int
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are by name."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A place where an agent is made available; `current_revision_number` 0 before the first revision."""

    agent_deployment_id: str
    workspace_id: str
    name: str
    current_revision_number: int
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are by name."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class DeploymentRevision:
    """What a deployment runs, at one moment. Immutable. `model_route` empty leaves it to the harness."""

    agent_deployment_id: str
    workspace_id: str
    revision_number: int
    agent_id: str
    agent_version_number: int
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str
    model_route: str
    create_time: int

    @property
    def position(self) -> Position:
        """Lists are newest first."""
        return (self.revision_number,)


@dataclass(frozen=True, slots=True)
class RevisionPlan:
    """A revision before it has a number. `agent_version_number` None means the agent's latest."""

    agent_deployment_id: str
    agent_id: str
    agent_version_number: int | None
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str = DEFAULT_POOL
    model_route: str = ""

    @property
    def references(self) -> tuple[tuple[str, str], ...]:
        """What it names, each as resource and id."""
        return (
            ("agent deployment", self.agent_deployment_id),
            ("agent", self.agent_id),
            ("harness profile", self.harness_profile_id),
            ("sandbox profile", self.sandbox_profile_id),
            ("runner pool", self.runner_pool),
        )

    def revision(self, workspace_id: str, number: int, agent_version_number: int, now: int) -> DeploymentRevision:
        """What is published."""
        return DeploymentRevision(
            self.agent_deployment_id,
            workspace_id,
            number,
            self.agent_id,
            agent_version_number,
            self.harness_profile_id,
            self.sandbox_profile_id,
            self.runner_pool,
            self.model_route,
            now,
        )


@dataclass(frozen=True, slots=True)
class RevisionParts:
    """What of a plan exists in the workspace: latest_version None where there is no such agent.

    version: the number that the revision is to name, None where there is no such version.
    """

    latest_version: int | None
    version: int | None
    harness: bool
    sandbox: bool
    pool: bool


def check_tools(tools: Sequence[Tool]) -> None:
    """Refuses two tools of one name: a call could not tell which is meant."""
    seen = Counter[str]()
    for at, tool in enumerate(tools):
        seen[tool.name] += 1
        if seen[tool.name] > 1:
            raise invalid(f"tools[{at}].name", f"{tool.name} is listed twice; names must differ")


def check_parts(plan: RevisionPlan, parts: RevisionParts) -> int:
    """The number of the agent version that a plan comes to. Refuses a plan of which something does not exist."""
    if parts.latest_version is None:
        raise not_found("agent", plan.agent_id)
    if plan.agent_version_number is None and not parts.latest_version:
        raise _nothing_published("agent version", plan.agent_id, "PublishAgentVersion")
    if parts.version is None:
        raise not_found("agent version", version_name(plan.agent_id, plan.agent_version_number or 0))
    if not parts.harness:
        raise not_found("harness profile", plan.harness_profile_id)
    if not parts.sandbox:
        raise not_found("sandbox profile", plan.sandbox_profile_id)
    if not parts.pool:
        raise not_found("runner pool", plan.runner_pool)
    return parts.version


def require_revision(deployment_id: str, number: int) -> int:
    """The number, unless it is that of a deployment on which nothing was published."""
    if not number:
        raise _nothing_published("agent deployment revision", deployment_id, "PublishDeploymentRevision")
    return number


def version_name(parent: str, number: int) -> str:
    """How one version of something is called in refusals and remembered for its request, such as `agt_…/3`."""
    return f"{parent}/{number}"


def version_named(name: str) -> tuple[str, int]:
    """What `version_name` was made from."""
    parent, _, number = name.rpartition("/")
    return parent, int(number)


def _nothing_published(resource: str, parent: str, remedy: str) -> Refusal:
    return Refusal(
        Reason.NOT_FOUND,
        f"Nothing was published on {parent} yet: call {remedy} first.",
        {"resource": resource, "id": version_name(parent, 0)},
    )
