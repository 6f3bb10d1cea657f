"""The services whose RPCs need no code of their own: a table each."""

from __future__ import annotations

import turnlog_client.messages.turnlog.runner.v1 as runner_v1
import turnlog_client.messages.turnlog.v1 as v1
from turnlog_client.stubs import Paged, Service, Unary


class Runs(Service):
    """RunService: the executions of a Session's turns."""

    NAME = "turnlog.v1.RunService"

    get = Unary("GetRun", v1.GetRunRequest, v1.GetRunResponse)
    list = Paged("ListRuns", v1.ListRunsRequest, v1.ListRunsResponse, lambda page: page.runs)
    list_attempts = Paged("ListAttempts", v1.ListAttemptsRequest, v1.ListAttemptsResponse, lambda page: page.attempts)
    cancel = Unary("CancelRun", v1.CancelRunRequest, v1.CancelRunResponse)


class Requests(Service):
    """RequestService: what became of a request whose answer was lost."""

    NAME = "turnlog.v1.RequestService"

    get = Unary("GetRequest", v1.GetRequestRequest, v1.GetRequestResponse)


class Agents(Service):
    """AgentService: agents, what they run on, and where they are deployed."""

    NAME = "turnlog.v1.AgentService"

    create_agent = Unary("CreateAgent", v1.CreateAgentRequest, v1.CreateAgentResponse)
    get_agent = Unary("GetAgent", v1.GetAgentRequest, v1.GetAgentResponse)
    list_agents = Paged("ListAgents", v1.ListAgentsRequest, v1.ListAgentsResponse, lambda page: page.agents)
    publish_agent_version = Unary("PublishAgentVersion", v1.PublishAgentVersionRequest, v1.PublishAgentVersionResponse)
    get_agent_version = Unary("GetAgentVersion", v1.GetAgentVersionRequest, v1.GetAgentVersionResponse)
    list_agent_versions = Paged(
        "ListAgentVersions",
        v1.ListAgentVersionsRequest,
        v1.ListAgentVersionsResponse,
        lambda page: page.agent_versions,
    )
    create_harness_profile = Unary(
        "CreateHarnessProfile", v1.CreateHarnessProfileRequest, v1.CreateHarnessProfileResponse
    )
    get_harness_profile = Unary("GetHarnessProfile", v1.GetHarnessProfileRequest, v1.GetHarnessProfileResponse)
    list_harness_profiles = Paged(
        "ListHarnessProfiles",
        v1.ListHarnessProfilesRequest,
        v1.ListHarnessProfilesResponse,
        lambda page: page.harness_profiles,
    )
    create_sandbox_profile = Unary(
        "CreateSandboxProfile", v1.CreateSandboxProfileRequest, v1.CreateSandboxProfileResponse
    )
    get_sandbox_profile = Unary("GetSandboxProfile", v1.GetSandboxProfileRequest, v1.GetSandboxProfileResponse)
    list_sandbox_profiles = Paged(
        "ListSandboxProfiles",
        v1.ListSandboxProfilesRequest,
        v1.ListSandboxProfilesResponse,
        lambda page: page.sandbox_profiles,
    )
    create_deployment = Unary("CreateDeployment", v1.CreateDeploymentRequest, v1.CreateDeploymentResponse)
    get_deployment = Unary("GetDeployment", v1.GetDeploymentRequest, v1.GetDeploymentResponse)
    list_deployments = Paged(
        "ListDeployments",
        v1.ListDeploymentsRequest,
        v1.ListDeploymentsResponse,
        lambda page: page.agent_deployments,
    )
    publish_deployment_revision = Unary(
        "PublishDeploymentRevision", v1.PublishDeploymentRevisionRequest, v1.PublishDeploymentRevisionResponse
    )
    get_deployment_revision = Unary(
        "GetDeploymentRevision", v1.GetDeploymentRevisionRequest, v1.GetDeploymentRevisionResponse
    )
    list_deployment_revisions = Paged(
        "ListDeploymentRevisions",
        v1.ListDeploymentRevisionsRequest,
        v1.ListDeploymentRevisionsResponse,
        lambda page: page.agent_deployment_revisions,
    )


class Access(Service):
    """AccessService: who may do what in the workspace of your key."""

    NAME = "turnlog.v1.AccessService"

    get_workspace = Unary("GetWorkspace", v1.GetWorkspaceRequest, v1.GetWorkspaceResponse)
    set_concurrency_limit = Unary("SetConcurrencyLimit", v1.SetConcurrencyLimitRequest, v1.SetConcurrencyLimitResponse)
    create_principal = Unary("CreatePrincipal", v1.CreatePrincipalRequest, v1.CreatePrincipalResponse)
    get_principal = Unary("GetPrincipal", v1.GetPrincipalRequest, v1.GetPrincipalResponse)
    list_principals = Paged(
        "ListPrincipals", v1.ListPrincipalsRequest, v1.ListPrincipalsResponse, lambda page: page.principals
    )
    create_service_account = Unary(
        "CreateServiceAccount", v1.CreateServiceAccountRequest, v1.CreateServiceAccountResponse
    )
    get_service_account = Unary("GetServiceAccount", v1.GetServiceAccountRequest, v1.GetServiceAccountResponse)
    list_service_accounts = Paged(
        "ListServiceAccounts",
        v1.ListServiceAccountsRequest,
        v1.ListServiceAccountsResponse,
        lambda page: page.service_accounts,
    )
    set_role = Unary("SetRole", v1.SetRoleRequest, v1.SetRoleResponse)
    remove_role = Unary("RemoveRole", v1.RemoveRoleRequest, v1.RemoveRoleResponse)
    create_api_key = Unary("CreateApiKey", v1.CreateApiKeyRequest, v1.CreateApiKeyResponse)
    get_api_key = Unary("GetApiKey", v1.GetApiKeyRequest, v1.GetApiKeyResponse)
    list_api_keys = Paged("ListApiKeys", v1.ListApiKeysRequest, v1.ListApiKeysResponse, lambda page: page.api_keys)
    rotate_api_key = Unary("RotateApiKey", v1.RotateApiKeyRequest, v1.RotateApiKeyResponse)
    revoke_api_key = Unary("RevokeApiKey", v1.RevokeApiKeyRequest, v1.RevokeApiKeyResponse)
    create_runner_pool = Unary("CreateRunnerPool", v1.CreateRunnerPoolRequest, v1.CreateRunnerPoolResponse)
    get_runner_pool = Unary("GetRunnerPool", v1.GetRunnerPoolRequest, v1.GetRunnerPoolResponse)
    list_runner_pools = Paged(
        "ListRunnerPools", v1.ListRunnerPoolsRequest, v1.ListRunnerPoolsResponse, lambda page: page.runner_pools
    )


class Runners(Service):
    """RunnerService, as operators use it. Runners themselves use its Connect, see `turnlog_client.runner`."""

    NAME = "turnlog.runner.v1.RunnerService"

    list = Paged("ListRunners", runner_v1.ListRunnersRequest, runner_v1.ListRunnersResponse, lambda page: page.runners)
    drain = Unary("DrainRunner", runner_v1.DrainRunnerRequest, runner_v1.DrainRunnerResponse)
