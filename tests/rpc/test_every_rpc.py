"""What holds for every RPC of the contract on a running server: who gets in, what strangers learn, what `{}` means."""

import re
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.replicas import METHODS, SERVICES, Live, Refused, Rpc, Space, make_space
from turnlog_server.domain.access import PERMISSIONS, VERBS, Role

WITHOUT_KEY = {
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}
NEEDS_NOTHING = {
    "GetServerInfo", "GetWorkspace", "ListSessions", "ListPrincipals", "ListServiceAccounts", "ListApiKeys",
    "ListRunnerPools", "ListAgents", "ListHarnessProfiles", "ListSandboxProfiles", "ListDeployments", "ListRunners",
}  # fmt: skip
"""The RPCs whose request may be empty."""

EVERY = sorted(METHODS)


def full_name(method: MethodDescriptor) -> str:
    """As the permission table spells it."""
    return f"{method.containing_service.full_name}/{method.name}"


async def refusal(rpc: Rpc, name: str, raw: bytes = b"") -> Refused:
    """What the call ends with; as a unary call, for a refused stream has no messages either."""
    with pytest.raises(Refused) as refused:
        await rpc.send(name, raw)
    return refused.value


@pytest.mark.parametrize("name", EVERY)
async def test_nobody_without_a_key_gets_in(space: Space, name: str) -> None:
    nonsense = ("nonsense", space.key[:-1] + ("a" if space.key[-1] != "a" else "b"), "tlk_" + "0" * 65)
    for key in (None, *nonsense):
        refused = await refusal(space.live.rpc(key), name)
        assert (refused.code.name, refused.reason) == ("UNAUTHENTICATED", "CREDENTIAL_INVALID")
    unbearing = Rpc(space.live.address, None, authorization=f"Basic {space.key}")
    assert (await refusal(unbearing, name)).reason == "CREDENTIAL_INVALID"
    await unbearing.close()


@pytest.fixture(scope="module")
async def roles(live: Live) -> dict[Role, Rpc]:
    """A key of each role, in one workspace."""
    space = await make_space(live)
    named = [role for role in Role if role is not Role.NONE]
    return {role: live.rpc(await space.key_for(role, *(["default"] if role is Role.RUNNER else []))) for role in named}


@pytest.mark.parametrize("name", EVERY)
async def test_a_role_that_lacks_the_verb_gets_no_further(roles: dict[Role, Rpc], name: str) -> None:
    needed = PERMISSIONS[full_name(METHODS[name])]
    lacking = [role for role in roles if needed.verb not in VERBS[role]]
    assert lacking
    for role in lacking:
        refused = await refusal(roles[role], name)
        assert (refused.code.name, refused.reason) == ("PERMISSION_DENIED", "PERMISSION_MISSING"), role
        assert refused.metadata == {"verb": needed.verb.value, "scope": needed.scope.value}


def test_the_table_and_its_page_have_every_rpc_and_no_other() -> None:
    assert PERMISSIONS.keys() == {full_name(method) for method in METHODS.values()}
    page = (Path(__file__).parents[2] / "docs" / "permissions.md").read_text()
    rows: dict[str, list[str]] = {}
    service = ""
    for line in page.splitlines():
        if line.startswith("## "):
            service = line.removeprefix("## ")
        elif row := re.fullmatch(r"\| `(\w+)` \| (.*) \|", line):
            rows[f"{service}/{row[1]}"] = [cell.strip() for cell in row[2].split("|")]
    assert {name: rows[name][:2] for name in rows if "/" in name and "." in name} == {
        name: [needed.verb.value, needed.scope.value] for name, needed in PERMISSIONS.items()
    }
    for name in WITHOUT_KEY:
        assert name.rpartition(".")[2] in page


@pytest.mark.case(85)
@pytest.mark.parametrize("name", EVERY)
async def test_an_empty_request_is_no_request(space: Space, name: str) -> None:
    rpc = space.rpc if name != "Connect" else space.live.rpc(space.runner_key)
    if name in NEEDS_NOTHING:
        await rpc.send(name, b"")
        return
    refused = await refusal(rpc, name)
    assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "INVALID_FIELD")
    assert refused.fields
    assert refused.metadata["field"] in refused.fields


IDS = {
    "session_id": "sess", "run_id": "run", "agent_deployment_id": "adep", "agent_id": "agt", "api_key_id": "key",
    "principal_id": "prn", "service_account_id": "sac", "harness_profile_id": "hpr", "sandbox_profile_id": "spr",
    "runner_id": "rnr", "subject": "prn", "name": "pool",
}  # fmt: skip
"""Fields that name a thing."""

BESIDE = {
    "AppendEvent": {"caused_by": {"kind": "KIND_API"}, "user_message": {"parts": [{"text": "hello"}]}},
    "GetRequest": {"method": "AppendEvent", "request_id": "known"},
    "SetRole": {"role": "ROLE_VIEWER"},
    "RotateApiKey": {"overlap": {"seconds": 1}},
    "GetAgentVersion": {"version_number": 1},
    "GetDeploymentRevision": {"revision_number": 1},
    "CreateApiKey": {"display_name": "x"},
}
"""What else a request of that RPC needs."""


@pytest.fixture(scope="module")
async def neighbours(live: Live) -> tuple[Rpc, str, dict[str, str]]:
    """A caller of one workspace, its subject, and the ids of things in another."""
    space, other = await make_space(live), await make_space(live)
    created = await space.session("hello")
    pins = created.session.pins
    await space.say(created.session.session_id, request_id="known")
    account = (await space.rpc.call("CreateServiceAccount", display_name="x")).service_account.service_account_id
    await space.rpc.call("CreateRunnerPool", name="secret")
    async with space.runner() as runner:
        pass
    return (
        other.rpc,
        other.subject,
        {
            "session_id": created.session.session_id,
            "run_id": created.run_id,
            "agent_deployment_id": pins.agent_deployment_id,
            "agent_id": pins.agent_id,
            "harness_profile_id": pins.harness_profile_id,
            "sandbox_profile_id": pins.sandbox_profile_id,
            "api_key_id": (await space.rpc.call("ListApiKeys")).api_keys[0].api_key_id,
            "principal_id": space.subject,
            "service_account_id": account,
            "runner_id": runner.runner_id,
            "subject": account,
            "name": "secret",
        },
    )


def names_something(name: str) -> bool:
    """Whether the RPC names a thing that has to exist."""
    makes = name.startswith("Create") and name not in ("CreateSession", "CreateApiKey")
    named = METHODS[name].input_type.fields_by_name.keys() & IDS.keys()
    return name == "FollowSessions" or (not makes and bool(named))


@pytest.mark.parametrize("name", [name for name in EVERY if names_something(name)])
async def test_what_is_of_another_workspace_is_unknown_to_the_byte(
    neighbours: tuple[Rpc, str, dict[str, str]], name: str
) -> None:
    rpc, subject, ids = neighbours
    fields = METHODS[name].input_type.fields_by_name
    named = {field: ids[field] for field in IDS if field in fields}
    if "display_name" in fields:
        named.pop("name", None)
    nowhere = {field: _nowhere(value) for field, value in named.items()}

    async def shown(things: dict[str, str]) -> tuple[str, str, bytes]:
        request = {**BESIDE.get(name, {}), **things}
        if name == "AppendEvent":
            request["authored_by"] = subject
        if name == "FollowSessions":
            things = {"session_id": ids["session_id"] if things is named else _nowhere(ids["session_id"])}
            request = {"sessions": [things]}
        refused = await refusal(rpc, name, rpc.request(name, **request).SerializeToString())
        message, status = refused.message, refused.status.SerializeToString()
        for field in things:
            message = message.replace(things[field], "it")
            status = status.replace(things[field].encode(), b"it".ljust(len(things[field]), b"."))
        return refused.code.name, message, status

    real, made_up = await shown(named), await shown(nowhere)
    assert real == made_up
    assert real[0] == "NOT_FOUND"


def _nowhere(identity: str) -> str:
    """Another of the same kind and length."""
    prefix, _, rest = identity.rpartition("_")
    return f"{prefix}_{'0' * len(rest)}" if prefix else "z" * len(identity)


@pytest.mark.rule("R17")
@pytest.mark.case(93)
async def test_health_and_reflection_alone_need_no_key_and_show_every_type(space: Space) -> None:
    async with grpc.aio.insecure_channel(space.live.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "liveness"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)

        async def ask(**fields: str) -> reflection_pb2.ServerReflectionResponse:
            call = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**fields)]), timeout=10)
            async for answer in call:
                return answer
            raise AssertionError("no answer")

        listed = {each.name for each in (await ask(list_services="")).list_services_response.service}
        assert listed == {service.full_name for service in SERVICES.values()} | WITHOUT_KEY
        for symbol in (
            *(service.full_name for service in SERVICES.values()),
            *(method.input_type.full_name for method in METHODS.values()),
            *(method.output_type.full_name for method in METHODS.values()),
            "google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RetryInfo", "google.rpc.Status",
        ):  # fmt: skip
            answer = await ask(file_containing_symbol=symbol)
            files = [
                descriptor_pb2.FileDescriptorProto.FromString(raw)
                for raw in answer.file_descriptor_response.file_descriptor_proto
            ]
            package, _, last = symbol.rpartition(".")
            found = [file for file in files if file.package == package]
            assert any(last in {each.name for each in (*file.message_type, *file.service)} for file in found), symbol


async def test_every_refusal_is_of_the_domain_and_short(space: Space) -> None:
    """One ErrorInfo each, and a message that fits where messages are shown."""
    for name in EVERY:
        if name in NEEDS_NOTHING:
            continue
        rpc = space.rpc if name != "Connect" else space.live.rpc(space.runner_key)
        refused = await refusal(rpc, name, b"\xff\xff\xff")
        assert refused.code.name == "INVALID_ARGUMENT"
        kinds = [detail.type_url.rpartition(".")[2] for detail in refused.status.details]
        assert kinds.count("ErrorInfo") == 1
        assert "RetryInfo" not in kinds
        assert 0 < len(refused.message.encode()) <= 1024
