"""AccessService."""

from turnlog.v1 import access_service_pb2 as pb

from turnlog_server.domain.workspace import SubjectKind
from turnlog_server.service.access import Access
from turnlog_server.service.context import CallContext
from turnlog_server.wire import access as wire
from turnlog_server.wire.pages import fill, window
from turnlog_server.wire.times import length, optional_moment


class AccessServicer:
    """One method an RPC: unwrap, call, wrap."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def GetWorkspace(self, ctx: CallContext, request: pb.GetWorkspaceRequest) -> pb.GetWorkspaceResponse:
        """Reads the caller's workspace."""
        workspace = await self._access.get_workspace(ctx)
        return pb.GetWorkspaceResponse(workspace=wire.workspace_message(workspace))

    async def SetConcurrencyLimit(
        self, ctx: CallContext, request: pb.SetConcurrencyLimitRequest
    ) -> pb.SetConcurrencyLimitResponse:
        """Sets or clears the limit of Runs at once."""
        limit = request.max_concurrent_runs if request.HasField("max_concurrent_runs") else None
        made = await self._access.set_concurrency_limit(ctx, limit)
        return pb.SetConcurrencyLimitResponse(workspace=wire.workspace_message(made.item), replayed=made.replayed)

    async def CreatePrincipal(self, ctx: CallContext, request: pb.CreatePrincipalRequest) -> pb.CreatePrincipalResponse:
        """Creates a principal."""
        role = wire.role_of(request.role)
        made = await self._access.create_subject(ctx, SubjectKind.PRINCIPAL, request.display_name, role)
        return pb.CreatePrincipalResponse(principal=wire.principal_message(made.item), replayed=made.replayed)

    async def GetPrincipal(self, ctx: CallContext, request: pb.GetPrincipalRequest) -> pb.GetPrincipalResponse:
        """Reads one principal."""
        subject = await self._access.get_subject(ctx, SubjectKind.PRINCIPAL, request.principal_id)
        return pb.GetPrincipalResponse(principal=wire.principal_message(subject))

    async def ListPrincipals(self, ctx: CallContext, request: pb.ListPrincipalsRequest) -> pb.ListPrincipalsResponse:
        """Lists principals, newest first."""
        page = await self._access.list_subjects(ctx, SubjectKind.PRINCIPAL, window(request, int, str))
        return fill(request, pb.ListPrincipalsResponse(), "principals", page, wire.principal_message)

    async def CreateServiceAccount(
        self, ctx: CallContext, request: pb.CreateServiceAccountRequest
    ) -> pb.CreateServiceAccountResponse:
        """Creates a service account."""
        role = wire.role_of(request.role)
        made = await self._access.create_subject(ctx, SubjectKind.SERVICE_ACCOUNT, request.display_name, role)
        return pb.CreateServiceAccountResponse(
            service_account=wire.service_account_message(made.item), replayed=made.replayed
        )

    async def GetServiceAccount(
        self, ctx: CallContext, request: pb.GetServiceAccountRequest
    ) -> pb.GetServiceAccountResponse:
        """Reads one service account."""
        subject = await self._access.get_subject(ctx, SubjectKind.SERVICE_ACCOUNT, request.service_account_id)
        return pb.GetServiceAccountResponse(service_account=wire.service_account_message(subject))

    async def ListServiceAccounts(
        self, ctx: CallContext, request: pb.ListServiceAccountsRequest
    ) -> pb.ListServiceAccountsResponse:
        """Lists service accounts, newest first."""
        page = await self._access.list_subjects(ctx, SubjectKind.SERVICE_ACCOUNT, window(request, int, str))
        response = pb.ListServiceAccountsResponse()
        return fill(request, response, "service_accounts", page, wire.service_account_message)

    async def SetRole(self, ctx: CallContext, request: pb.SetRoleRequest) -> pb.SetRoleResponse:
        """Gives a subject its role."""
        made = await self._access.set_role(ctx, request.subject, wire.role_of(request.role))
        return pb.SetRoleResponse(role=wire.role_number(made.item.role), replayed=made.replayed)

    async def RemoveRole(self, ctx: CallContext, request: pb.RemoveRoleRequest) -> pb.RemoveRoleResponse:
        """Takes a subject's role away."""
        made = await self._access.remove_role(ctx, request.subject)
        return pb.RemoveRoleResponse(replayed=made.replayed)

    async def CreateApiKey(self, ctx: CallContext, request: pb.CreateApiKeyRequest) -> pb.CreateApiKeyResponse:
        """Makes a key."""
        issued = await self._access.create_key(
            ctx,
            request.subject,
            request.display_name,
            list(request.runner_pools),
            optional_moment("expire_time", request),
        )
        return pb.CreateApiKeyResponse(
            api_key=wire.api_key_message(issued.api_key), secret=issued.secret, replayed=issued.replayed
        )

    async def GetApiKey(self, ctx: CallContext, request: pb.GetApiKeyRequest) -> pb.GetApiKeyResponse:
        """Reads one key."""
        key = await self._access.get_key(ctx, request.api_key_id)
        return pb.GetApiKeyResponse(api_key=wire.api_key_message(key))

    async def ListApiKeys(self, ctx: CallContext, request: pb.ListApiKeysRequest) -> pb.ListApiKeysResponse:
        """Lists keys, newest first."""
        page = await self._access.list_keys(ctx, window(request, int, str))
        return fill(request, pb.ListApiKeysResponse(), "api_keys", page, wire.api_key_message)

    async def RotateApiKey(self, ctx: CallContext, request: pb.RotateApiKeyRequest) -> pb.RotateApiKeyResponse:
        """Makes a key in place of another."""
        issued = await self._access.rotate_key(ctx, request.api_key_id, length("overlap", request.overlap))
        return pb.RotateApiKeyResponse(
            api_key=wire.api_key_message(issued.api_key), secret=issued.secret, replayed=issued.replayed
        )

    async def RevokeApiKey(self, ctx: CallContext, request: pb.RevokeApiKeyRequest) -> pb.RevokeApiKeyResponse:
        """Ends a key at once."""
        made = await self._access.revoke_key(ctx, request.api_key_id)
        return pb.RevokeApiKeyResponse(api_key=wire.api_key_message(made.item), replayed=made.replayed)

    async def CreateRunnerPool(
        self, ctx: CallContext, request: pb.CreateRunnerPoolRequest
    ) -> pb.CreateRunnerPoolResponse:
        """Creates a runner pool."""
        made = await self._access.create_pool(ctx, request.name, request.description)
        return pb.CreateRunnerPoolResponse(runner_pool=wire.runner_pool_message(made.item), replayed=made.replayed)

    async def GetRunnerPool(self, ctx: CallContext, request: pb.GetRunnerPoolRequest) -> pb.GetRunnerPoolResponse:
        """Reads one runner pool."""
        pool = await self._access.get_pool(ctx, request.name)
        return pb.GetRunnerPoolResponse(runner_pool=wire.runner_pool_message(pool))

    async def ListRunnerPools(self, ctx: CallContext, request: pb.ListRunnerPoolsRequest) -> pb.ListRunnerPoolsResponse:
        """Lists runner pools, by name."""
        page = await self._access.list_pools(ctx, window(request, str))
        return fill(request, pb.ListRunnerPoolsResponse(), "runner_pools", page, wire.runner_pool_message)
