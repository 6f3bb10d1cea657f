"""AgentService."""

from turnlog.v1 import agent_service_pb2 as pb

from turnlog_server.service.agents import Agents
from turnlog_server.service.context import CallContext
from turnlog_server.wire import agents as wire
from turnlog_server.wire.pages import fill, window


class AgentServicer:
    """One method an RPC: unwrap, call, wrap."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def CreateAgent(self, ctx: CallContext, request: pb.CreateAgentRequest) -> pb.CreateAgentResponse:
        """Creates an agent."""
        made = await self._agents.create_agent(ctx, request.name, request.description)
        return pb.CreateAgentResponse(agent=wire.agent_message(made.item), replayed=made.replayed)

    async def GetAgent(self, ctx: CallContext, request: pb.GetAgentRequest) -> pb.GetAgentResponse:
        """Reads one agent."""
        agent = await self._agents.get_agent(ctx, request.agent_id)
        return pb.GetAgentResponse(agent=wire.agent_message(agent))

    async def ListAgents(self, ctx: CallContext, request: pb.ListAgentsRequest) -> pb.ListAgentsResponse:
        """Lists agents, by name."""
        page = await self._agents.list_agents(ctx, window(request, str))
        return fill(request, pb.ListAgentsResponse(), "agents", page, wire.agent_message)

    async def PublishAgentVersion(
        self, ctx: CallContext, request: pb.PublishAgentVersionRequest
    ) -> pb.PublishAgentVersionResponse:
        """Publishes a version of an agent."""
        tools = wire.tools_of(request)
        made = await self._agents.publish_version(ctx, request.agent_id, request.instructions, tools)
        return pb.PublishAgentVersionResponse(
            agent_version=wire.agent_version_message(made.item), replayed=made.replayed
        )

    async def GetAgentVersion(self, ctx: CallContext, request: pb.GetAgentVersionRequest) -> pb.GetAgentVersionResponse:
        """Reads one version of an agent."""
        version = await self._agents.get_version(ctx, request.agent_id, request.version_number)
        return pb.GetAgentVersionResponse(agent_version=wire.agent_version_message(version))

    async def ListAgentVersions(
        self, ctx: CallContext, request: pb.ListAgentVersionsRequest
    ) -> pb.ListAgentVersionsResponse:
        """Lists versions of an agent, newest first."""
        page = await self._agents.list_versions(ctx, request.agent_id, window(request, int))
        return fill(request, pb.ListAgentVersionsResponse(), "agent_versions", page, wire.agent_version_message)

    async def CreateHarnessProfile(
        self, ctx: CallContext, request: pb.CreateHarnessProfileRequest
    ) -> pb.CreateHarnessProfileResponse:
        """Creates a harness profile."""
        made = await self._agents.create_harness_profile(ctx, request.name, request.description)
        return pb.CreateHarnessProfileResponse(
            harness_profile=wire.harness_profile_message(made.item), replayed=made.replayed
        )

    async def GetHarnessProfile(
        self, ctx: CallContext, request: pb.GetHarnessProfileRequest
    ) -> pb.GetHarnessProfileResponse:
        """Reads one harness profile."""
        profile = await self._agents.get_harness_profile(ctx, request.harness_profile_id)
        return pb.GetHarnessProfileResponse(harness_profile=wire.harness_profile_message(profile))

    async def ListHarnessProfiles(
        self, ctx: CallContext, request: pb.ListHarnessProfilesRequest
    ) -> pb.ListHarnessProfilesResponse:
        """Lists harness profiles, by name."""
        page = await self._agents.list_harness_profiles(ctx, window(request, str))
        response = pb.ListHarnessProfilesResponse()
        return fill(request, response, "harness_profiles", page, wire.harness_profile_message)

    async def CreateSandboxProfile(
        self, ctx: CallContext, request: pb.CreateSandboxProfileRequest
    ) -> pb.CreateSandboxProfileResponse:
        """Creates a sandbox profile."""
        made = await self._agents.create_sandbox_profile(ctx, request.name, request.max_duration_seconds)
        return pb.CreateSandboxProfileResponse(
            sandbox_profile=wire.sandbox_profile_message(made.item), replayed=made.replayed
        )

    async def GetSandboxProfile(
        self, ctx: CallContext, request: pb.GetSandboxProfileRequest
    ) -> pb.GetSandboxProfileResponse:
        """Reads one sandbox profile."""
        profile = await self._agents.get_sandbox_profile(ctx, request.sandbox_profile_id)
        return pb.GetSandboxProfileResponse(sandbox_profile=wire.sandbox_profile_message(profile))

    async def ListSandboxProfiles(
        self, ctx: CallContext, request: pb.ListSandboxProfilesRequest
    ) -> pb.ListSandboxProfilesResponse:
        """Lists sandbox profiles, by name."""
        page = await self._agents.list_sandbox_profiles(ctx, window(request, str))
        response = pb.ListSandboxProfilesResponse()
        return fill(request, response, "sandbox_profiles", page, wire.sandbox_profile_message)

    async def CreateDeployment(
        self, ctx: CallContext, request: pb.CreateDeploymentRequest
    ) -> pb.CreateDeploymentResponse:
        """Creates a deployment."""
        made = await self._agents.create_deployment(ctx, request.name)
        return pb.CreateDeploymentResponse(agent_deployment=wire.deployment_message(made.item), replayed=made.replayed)

    async def GetDeployment(self, ctx: CallContext, request: pb.GetDeploymentRequest) -> pb.GetDeploymentResponse:
        """Reads one deployment."""
        deployment = await self._agents.get_deployment(ctx, request.agent_deployment_id)
        return pb.GetDeploymentResponse(agent_deployment=wire.deployment_message(deployment))

    async def ListDeployments(self, ctx: CallContext, request: pb.ListDeploymentsRequest) -> pb.ListDeploymentsResponse:
        """Lists deployments, by name."""
        page = await self._agents.list_deployments(ctx, window(request, str))
        return fill(request, pb.ListDeploymentsResponse(), "agent_deployments", page, wire.deployment_message)

    async def PublishDeploymentRevision(
        self, ctx: CallContext, request: pb.PublishDeploymentRevisionRequest
    ) -> pb.PublishDeploymentRevisionResponse:
        """Publishes a revision of a deployment."""
        made = await self._agents.publish_revision(ctx, wire.plan_of(request))
        return pb.PublishDeploymentRevisionResponse(
            agent_deployment_revision=wire.revision_message(made.item), replayed=made.replayed
        )

    async def GetDeploymentRevision(
        self, ctx: CallContext, request: pb.GetDeploymentRevisionRequest
    ) -> pb.GetDeploymentRevisionResponse:
        """Reads one revision of a deployment."""
        revision = await self._agents.get_revision(ctx, request.agent_deployment_id, request.revision_number)
        return pb.GetDeploymentRevisionResponse(agent_deployment_revision=wire.revision_message(revision))

    async def ListDeploymentRevisions(
        self, ctx: CallContext, request: pb.ListDeploymentRevisionsRequest
    ) -> pb.ListDeploymentRevisionsResponse:
        """Lists revisions of a deployment, newest first."""
        page = await self._agents.list_revisions(ctx, request.agent_deployment_id, window(request, int))
        response = pb.ListDeploymentRevisionsResponse()
        return fill(request, response, "agent_deployment_revisions", page, wire.revision_message)
