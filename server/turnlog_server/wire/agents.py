"""Agents, versions, profiles, deployments and revisions as messages of the contract."""

import json
from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct
from turnlog.v1 import agent_pb2 as pb
from turnlog.v1 import agent_service_pb2 as service_pb

from turnlog_server.domain.agents import (
    AGENT_VERSION_BYTES,
    DEFAULT_POOL,
    Agent,
    AgentVersion,
    Deployment,
    DeploymentRevision,
    HarnessProfile,
    RevisionPlan,
    SandboxProfile,
    Tool,
)
from turnlog_server.wire.requests import check_struct, too_large
from turnlog_server.wire.times import timestamp

# Whole numbers up to here are the same as integer and as the double that a Struct holds.
_EXACT: Final = 2**53


def agent_message(agent: Agent) -> pb.Agent:
    """An agent."""
    return pb.Agent(
        agent_id=agent.agent_id,
        name=agent.name,
        description=agent.description,
        latest_version_number=agent.latest_version_number,
        create_time=timestamp(agent.create_time),
    )


def agent_version_message(version: AgentVersion) -> pb.AgentVersion:
    """A version of an agent."""
    return pb.AgentVersion(
        agent_id=version.agent_id,
        version_number=version.version_number,
        instructions=version.instructions,
        tools=map(tool_message, version.tools),
        create_time=timestamp(version.create_time),
    )


def tool_message(tool: Tool) -> pb.Tool:
    """A tool."""
    message = pb.Tool(name=tool.name, description=tool.description)
    if tool.parameters:
        json_format.Parse(tool.parameters, message.parameters)
    return message


def harness_profile_message(profile: HarnessProfile) -> pb.HarnessProfile:
    """A harness profile."""
    return pb.HarnessProfile(
        harness_profile_id=profile.harness_profile_id,
        name=profile.name,
        description=profile.description,
        create_time=timestamp(profile.create_time),
    )


def sandbox_profile_message(profile: SandboxProfile) -> pb.SandboxProfile:
    """A sandbox profile."""
    return pb.SandboxProfile(
        sandbox_profile_id=profile.sandbox_profile_id,
        name=profile.name,
        max_duration_seconds=profile.max_duration_seconds,
        create_time=timestamp(profile.create_time),
    )


def deployment_message(deployment: Deployment) -> pb.AgentDeployment:
    """A deployment."""
    return pb.AgentDeployment(
        agent_deployment_id=deployment.agent_deployment_id,
        name=deployment.name,
        current_revision_number=deployment.current_revision_number,
        create_time=timestamp(deployment.create_time),
    )


def revision_message(revision: DeploymentRevision) -> pb.AgentDeploymentRevision:
    """A revision of a deployment."""
    return pb.AgentDeploymentRevision(
        agent_deployment_id=revision.agent_deployment_id,
        revision_number=revision.revision_number,
        agent_id=revision.agent_id,
        agent_version_number=revision.agent_version_number,
        harness_profile_id=revision.harness_profile_id,
        sandbox_profile_id=revision.sandbox_profile_id,
        runner_pool=revision.runner_pool,
        model_route=revision.model_route,
        create_time=timestamp(revision.create_time),
    )


def tools_of(request: service_pb.PublishAgentVersionRequest) -> tuple[Tool, ...]:
    """The tools of a version that is to be published. Refuses what is too large to travel in an offer."""
    if request.ByteSize() > AGENT_VERSION_BYTES:
        advice = "Shorten the instructions, or describe fewer tools."
        raise too_large("agent_version_bytes", AGENT_VERSION_BYTES, request.ByteSize(), advice)
    return tuple(_tools(request.tools))


def _tools(messages: Iterable[pb.Tool]) -> Iterable[Tool]:
    for at, message in enumerate(messages):
        parameters = ""
        if message.HasField("parameters"):
            check_struct(f"tools[{at}].parameters", message.parameters)
            parameters = _json(message.parameters)
        yield Tool(message.name, message.description, parameters)


def plan_of(request: service_pb.PublishDeploymentRevisionRequest) -> RevisionPlan:
    """What of a deployment is to be published."""
    return RevisionPlan(
        request.agent_deployment_id,
        request.agent_id,
        request.agent_version_number if request.HasField("agent_version_number") else None,
        request.harness_profile_id,
        request.sandbox_profile_id,
        request.runner_pool or DEFAULT_POOL,
        request.model_route,
    )


def _json(struct: Struct) -> str:
    """A Struct as JSON text, the same for the same content."""
    whole = _whole(json_format.MessageToDict(struct))
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _whole(value: Any) -> Any:
    """A Struct knows no integers, and a schema that says 1.0 where its author wrote 1 reads badly."""
    match value:
        case dict():
            return {key: _whole(inner) for key, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case float() if value.is_integer() and abs(value) <= _EXACT and str(value) != "-0.0":
            return int(value)
        case _:
            return value
