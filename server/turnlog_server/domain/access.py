"""Who may do what. Roles are fixed; one table says which verb each RPC needs, and docs and tests are made from it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from turnlog_server.domain.refusals import Reason, Refusal


class Verb(StrEnum):
    """What can be done with a thing. CLAIM is a runner's: take Runs from a pool."""

    DISCOVER = "DISCOVER"
    READ = "READ"
    USE = "USE"
    WRITE = "WRITE"
    PUBLISH = "PUBLISH"
    MANAGE = "MANAGE"
    CLAIM = "CLAIM"


class Role(StrEnum):
    """What a subject may do in its workspace."""

    NONE = ""
    VIEWER = "VIEWER"
    CONTRIBUTOR = "CONTRIBUTOR"
    PUBLISHER = "PUBLISHER"
    MANAGER = "MANAGER"
    RUNNER = "RUNNER"


class Scope(StrEnum):
    """On what a verb is asked for. The workspace covers all in it."""

    WORKSPACE = "workspace"
    AGENT = "agent"
    SESSION = "session"
    RUNNER_POOL = "runner pool"


_READ: Final = frozenset({Verb.DISCOVER, Verb.READ})
_CONTRIBUTE: Final = _READ | {Verb.USE, Verb.WRITE}
_PUBLISH: Final = _CONTRIBUTE | {Verb.PUBLISH}
VERBS: Final[dict[Role, frozenset[Verb]]] = {
    Role.NONE: frozenset(),
    Role.VIEWER: _READ,
    Role.CONTRIBUTOR: _CONTRIBUTE,
    Role.PUBLISHER: _PUBLISH,
    Role.MANAGER: _PUBLISH | {Verb.MANAGE},
    Role.RUNNER: frozenset({Verb.CLAIM}),
}


@dataclass(frozen=True, slots=True)
class Permission:
    """What an RPC needs."""

    verb: Verb
    scope: Scope


def _rows(service: str, verb: Verb, scope: Scope, methods: str) -> dict[str, Permission]:
    return {f"{service}/{method}": Permission(verb, scope) for method in methods.split()}


_SESSIONS: Final = "turnlog.v1.SessionService"
_EVENTS: Final = "turnlog.v1.EventService"
_RUNS: Final = "turnlog.v1.RunService"
_AGENTS: Final = "turnlog.v1.AgentService"
_ACCESS: Final = "turnlog.v1.AccessService"
_RUNNERS: Final = "turnlog.runner.v1.RunnerService"

PERMISSIONS: Final[dict[str, Permission]] = {
    **_rows(_SESSIONS, Verb.WRITE, Scope.SESSION, "CreateSession DeleteSession CompleteSession CancelSession"),
    **_rows(_SESSIONS, Verb.READ, Scope.SESSION, "GetSession"),
    **_rows(_SESSIONS, Verb.DISCOVER, Scope.SESSION, "ListSessions"),
    **_rows(_EVENTS, Verb.WRITE, Scope.SESSION, "AppendEvent"),
    **_rows(_EVENTS, Verb.READ, Scope.SESSION, "ListEvents FollowEvents FollowSessions"),
    **_rows(_RUNS, Verb.READ, Scope.SESSION, "GetRun ListRuns ListAttempts"),
    **_rows(_RUNS, Verb.WRITE, Scope.SESSION, "CancelRun"),
    **_rows("turnlog.v1.RequestService", Verb.DISCOVER, Scope.WORKSPACE, "GetRequest"),
    **_rows("turnlog.v1.ServerService", Verb.DISCOVER, Scope.WORKSPACE, "GetServerInfo"),
    **_rows(_AGENTS, Verb.READ, Scope.AGENT, "GetAgent GetAgentVersion GetHarnessProfile GetSandboxProfile"),
    **_rows(_AGENTS, Verb.READ, Scope.AGENT, "GetDeployment GetDeploymentRevision"),
    **_rows(_AGENTS, Verb.DISCOVER, Scope.AGENT, "ListAgents ListAgentVersions ListHarnessProfiles"),
    **_rows(_AGENTS, Verb.DISCOVER, Scope.AGENT, "ListSandboxProfiles ListDeployments ListDeploymentRevisions"),
    **_rows(_AGENTS, Verb.PUBLISH, Scope.AGENT, "CreateAgent PublishAgentVersion CreateDeployment"),
    **_rows(_AGENTS, Verb.PUBLISH, Scope.AGENT, "PublishDeploymentRevision"),
    **_rows(_AGENTS, Verb.MANAGE, Scope.WORKSPACE, "CreateHarnessProfile CreateSandboxProfile"),
    **_rows(_ACCESS, Verb.DISCOVER, Scope.WORKSPACE, "GetWorkspace"),
    **_rows(_ACCESS, Verb.READ, Scope.WORKSPACE, "GetPrincipal ListPrincipals GetServiceAccount ListServiceAccounts"),
    **_rows(_ACCESS, Verb.READ, Scope.WORKSPACE, "GetRunnerPool ListRunnerPools"),
    **_rows(_ACCESS, Verb.MANAGE, Scope.WORKSPACE, "SetConcurrencyLimit CreatePrincipal CreateServiceAccount SetRole"),
    **_rows(_ACCESS, Verb.MANAGE, Scope.WORKSPACE, "RemoveRole CreateApiKey GetApiKey ListApiKeys RotateApiKey"),
    **_rows(_ACCESS, Verb.MANAGE, Scope.WORKSPACE, "RevokeApiKey CreateRunnerPool"),
    **_rows(_RUNNERS, Verb.CLAIM, Scope.RUNNER_POOL, "Connect"),
    **_rows(_RUNNERS, Verb.READ, Scope.RUNNER_POOL, "ListRunners"),
    **_rows(_RUNNERS, Verb.MANAGE, Scope.RUNNER_POOL, "DrainRunner"),
}
"""Every RPC that needs a credential, by `package.Service/Method`. Health and reflection need none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as of one permission epoch of its workspace.

    subject: the principal or service account behind the key.
    expire_time: microseconds, 0 for never.
    """

    workspace_id: str
    subject: str
    api_key_id: str
    role: Role
    epoch: int
    runner_pools: tuple[str, ...] = ()
    expire_time: int = 0


def require(caller: Caller, method: str) -> None:
    """Refuses what the caller's role does not cover."""
    needed = PERMISSIONS[method]
    if needed.verb not in VERBS[caller.role]:
        raise Refusal(
            Reason.PERMISSION_MISSING,
            f"This needs {needed.verb} on the {needed.scope}, which your role does not give: ask a manager for it.",
            {"verb": needed.verb.value, "scope": needed.scope.value},
        )


def covers(giver: Role, given: Role) -> bool:
    """True when one who has `giver` may give `given`: never more than the giver has. Managers make runners."""
    return VERBS[given] <= VERBS[giver] or (giver is Role.MANAGER and given is Role.RUNNER)
