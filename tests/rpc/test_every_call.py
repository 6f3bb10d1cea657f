"""What holds for every RPC of AccessService and AgentService alike: who may, who may know, and once."""

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from support.tenants import SERVICES, Replica, request_id, tenant
from turnlog_server.domain.access import PERMISSIONS, VERBS, Role, Verb
from turnlog_server.domain.refusals import Reason, Refusal

METHODS = {method.name: service.full_name for service in SERVICES for method in service.methods}
MUTATIONS = sorted(
    method.name
    for service in SERVICES
    for method in service.methods
    if "request_id" in method.input_type.fields_by_name
)


async def refused(awaitable):
    with pytest.raises(Refusal) as caught:
        await awaitable
    return caught.value


async def world(replica, database):
    """A workspace with one of everything; for each RPC the fields of a request that is in order."""
    one = await tenant(database)
    call = replica.call
    principal = (await call(one.manager, "CreatePrincipal", display_name="p", role="ROLE_MANAGER")).principal
    account = (await call(one.manager, "CreateServiceAccount", display_name="s")).service_account
    key = (await call(one.manager, "CreateApiKey", subject=account.service_account_id, display_name="k")).api_key
    agent = (await call(one.manager, "CreateAgent", name="agent")).agent
    await call(one.manager, "PublishAgentVersion", agent_id=agent.agent_id)
    harness = (await call(one.manager, "CreateHarnessProfile", name="harness")).harness_profile
    sandbox = (await call(one.manager, "CreateSandboxProfile", name="box", max_duration_seconds=1)).sandbox_profile
    deployment = (await call(one.manager, "CreateDeployment", name="prod")).agent_deployment
    revision = {
        "agent_deployment_id": deployment.agent_deployment_id,
        "agent_id": agent.agent_id,
        "harness_profile_id": harness.harness_profile_id,
        "sandbox_profile_id": sandbox.sandbox_profile_id,
    }
    await call(one.manager, "PublishDeploymentRevision", **revision)
    agent_id, key_id = {"agent_id": agent.agent_id}, {"api_key_id": key.api_key_id}
    subject, deployment_id = (
        {"subject": principal.principal_id},
        {"agent_deployment_id": revision["agent_deployment_id"]},
    )
    return one, {
        "GetWorkspace": {},
        "SetConcurrencyLimit": {"max_concurrent_runs": 7},
        "CreatePrincipal": {"display_name": "p"},
        "GetPrincipal": {"principal_id": principal.principal_id},
        "ListPrincipals": {},
        "CreateServiceAccount": {"display_name": "s"},
        "GetServiceAccount": {"service_account_id": account.service_account_id},
        "ListServiceAccounts": {},
        "SetRole": subject | {"role": "ROLE_VIEWER"},
        "RemoveRole": subject,
        "CreateApiKey": subject | {"display_name": "k"},
        "GetApiKey": key_id,
        "ListApiKeys": {},
        "RotateApiKey": key_id | {"overlap": Duration(seconds=9)},
        "RevokeApiKey": key_id,
        "CreateRunnerPool": {"name": "new"},
        "GetRunnerPool": {"name": "default"},
        "ListRunnerPools": {},
        "CreateAgent": {"name": "new"},
        "GetAgent": agent_id,
        "ListAgents": {},
        "PublishAgentVersion": agent_id | {"instructions": "new"},
        "GetAgentVersion": agent_id | {"version_number": 1},
        "ListAgentVersions": agent_id,
        "CreateHarnessProfile": {"name": "new"},
        "GetHarnessProfile": {"harness_profile_id": harness.harness_profile_id},
        "ListHarnessProfiles": {},
        "CreateSandboxProfile": {"name": "new", "max_duration_seconds": 5},
        "GetSandboxProfile": {"sandbox_profile_id": sandbox.sandbox_profile_id},
        "ListSandboxProfiles": {},
        "CreateDeployment": {"name": "new"},
        "GetDeployment": deployment_id,
        "ListDeployments": {},
        "PublishDeploymentRevision": revision,
        "GetDeploymentRevision": deployment_id | {"revision_number": 1},
        "ListDeploymentRevisions": deployment_id,
    }


OTHERWISE = {
    "SetConcurrencyLimit": {"max_concurrent_runs": 8},
    "SetRole": {"role": "ROLE_PUBLISHER"},
    "RotateApiKey": {"overlap": Duration(seconds=8)},
    "PublishAgentVersion": {"instructions": "other"},
    "CreateSandboxProfile": {"max_duration_seconds": 6},
    "PublishDeploymentRevision": {"model_route": "other"},
    "CreateDeployment": {"name": "other"},
    "CreateRunnerPool": {"description": "other"},
    "CreateAgent": {"description": "other"},
    "CreateHarnessProfile": {"description": "other"},
    "CreatePrincipal": {"display_name": "other"},
    "CreateServiceAccount": {"display_name": "other"},
    "CreateApiKey": {"display_name": "other"},
}
"""For each mutation what makes it another request under the same id."""


@pytest.fixture
def replica(database):
    return Replica(database)


async def test_every_rpc_is_in_this_table(replica, database):
    _, calls = await world(replica, database)
    assert calls.keys() == METHODS.keys()


async def test_every_rpc_works_for_a_manager(replica, database):
    one, calls = await world(replica, database)
    for rpc, fields in calls.items():
        await replica.call(one.manager, rpc, **fields)


async def test_every_rpc_asks_for_just_the_verb_of_its_row(replica, database):
    one, calls = await world(replica, database)
    for role in Role:
        secret = await one.secret(database, role, *(["default"] if role is Role.RUNNER else []))
        for rpc, fields in calls.items():
            needed = PERMISSIONS[f"{METHODS[rpc]}/{rpc}"].verb
            if needed in VERBS[role]:
                if rpc not in MUTATIONS:
                    await replica.call(secret, rpc, **fields)
                continue
            refusal = await refused(replica.call(secret, rpc, **fields))
            assert (refusal.reason, refusal.metadata["verb"]) == (Reason.PERMISSION_MISSING, needed.value), (role, rpc)


async def test_a_stranger_gets_nowhere(replica, database):
    _, calls = await world(replica, database)
    for rpc, fields in calls.items():
        for bearer in ("", "tlk_nonsense", "tlk_" + "0" * 12 + "_" + "0" * 52):
            assert (await refused(replica.call(bearer, rpc, **fields))).reason is Reason.CREDENTIAL_INVALID


async def test_what_is_of_another_workspace_is_unknown_to_the_byte(replica, database):
    _, calls = await world(replica, database)
    other = await tenant(database)
    seen = 0
    for rpc, fields in calls.items():
        ids = _ids(fields)
        if not ids:
            continue
        across = await refused(replica.call(other.manager, rpc, **fields))
        # The same request, about things that are nowhere: each id keeps its prefix and is another.
        nowhere = fields | {name: _nowhere(fields[name]) for name in ids}
        unknown = await refused(replica.call(other.manager, rpc, **nowhere))
        assert across.reason is unknown.reason is Reason.NOT_FOUND, rpc
        real, made_up = (_shown(refusal) for refusal in (across, unknown))
        for name in ids:
            made_up = made_up.replace(nowhere[name], fields[name])
        assert real == made_up, rpc
        seen += 1
    assert seen >= 15


async def test_lists_show_nothing_of_another_workspace(replica, database):
    _, calls = await world(replica, database)
    other = await tenant(database)
    for rpc, fields in calls.items():
        if rpc.startswith("List") and not fields:
            page = await replica.call(other.manager, rpc)
            own = 1 if rpc in ("ListPrincipals", "ListApiKeys", "ListRunnerPools") else 0
            assert sum(len(value) for field, value in page.ListFields() if field.is_repeated) == own, rpc


def _ids(fields):
    return [name for name in fields if name.endswith("_id") or name == "subject"]


def _nowhere(identity):
    prefix, _, rest = identity.rpartition("_")
    return f"{prefix}_{'0' * len(rest)}"


def _shown(refusal):
    return repr((refusal.reason, refusal.message, dict(refusal.metadata), list(refusal.fields), refusal.retry_after))


@pytest.mark.parametrize("rpc", MUTATIONS)
async def test_the_same_request_twice_is_one(replica, database, rpc):
    one, calls = await world(replica, database)
    asked = calls[rpc] | {"request_id": request_id()}
    first = await replica.call(one.manager, rpc, **asked)
    again = await replica.call(one.manager, rpc, **asked)
    assert not first.replayed
    assert again.replayed
    assert _without_secret(again) == _without_secret(first)
    if rpc in OTHERWISE:
        reused = await refused(replica.call(one.manager, rpc, **asked | OTHERWISE[rpc]))
        assert reused.reason is Reason.REQUEST_ID_REUSED
        assert reused.metadata == {"request_id": asked["request_id"]}


@pytest.mark.case(60)
@pytest.mark.parametrize("rpc", MUTATIONS)
async def test_the_same_request_at_once_is_one(replica, database, rpc):
    one, calls = await world(replica, database)
    asked = calls[rpc] | {"request_id": request_id()}
    replicas = [replica, Replica(database, clock=replica.clock)]
    answers = await asyncio.gather(*(replicas[n % 2].call(one.manager, rpc, **asked) for n in range(6)))
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 5
    assert len({_without_secret(answer).SerializeToString(deterministic=True) for answer in answers}) == 1


async def test_another_caller_may_use_the_same_request_id(replica, database):
    one, _ = await world(replica, database)
    other = await one.secret(database, Role.MANAGER)
    asked = {"request_id": request_id()}
    await replica.call(one.manager, "CreateAgent", name="first", **asked)
    assert not (await replica.call(other, "CreateAgent", name="second", **asked)).replayed
    assert not (await replica.call(one.manager, "CreateDeployment", name="first", **asked)).replayed


async def test_a_refused_request_is_not_remembered(replica, database):
    one, _ = await world(replica, database)
    asked = {"request_id": request_id()}
    assert (await refused(replica.call(one.manager, "CreateAgent", name="agent", **asked))).reason is (
        Reason.ALREADY_EXISTS
    )
    assert not (await replica.call(one.manager, "CreateAgent", name="fresh", **asked)).replayed


async def test_a_nul_in_an_id_is_unknown_and_no_mistake_of_ours(replica, database):
    one, calls = await world(replica, database)
    for rpc, fields in calls.items():
        for name in _ids(fields):
            refusal = await refused(replica.call(one.manager, rpc, **fields | {name: fields[name][:5] + "\0"}))
            assert refusal.reason in (Reason.NOT_FOUND, Reason.INVALID_FIELD), (rpc, name)


def test_managers_alone_change_access():
    for rpc in MUTATIONS:
        if METHODS[rpc].endswith("AccessService"):
            assert PERMISSIONS[f"{METHODS[rpc]}/{rpc}"].verb is Verb.MANAGE


def _without_secret(response):
    copy = type(response)()
    copy.CopyFrom(response)
    for field in ("secret", "replayed"):
        if field in copy.DESCRIPTOR.fields_by_name:
            copy.ClearField(field)
    return copy
