"""Names for ids on the command line, and what is told where something is missing."""

from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from scripted import CREATED, Refusal, ScriptedServer, script, turn
from terminal import turnlog
from turnlog.v1 import agent_service_pb2

NAMED = [
    (["session", "create", "--agent-deployment"], "CreateSession", "agent_deployment_id", "adep_9"),
    (["session", "chat", "--new", "hello", "--agent-deployment"], "CreateSession", "agent_deployment_id", "adep_9"),
    (["deployment", "show"], "GetDeployment", "agent_deployment_id", "adep_9"),
    (["deployment", "revisions"], "ListDeploymentRevisions", "agent_deployment_id", "adep_9"),
    (["agent", "show"], "GetAgent", "agent_id", "agt_9"),
    (["agent", "publish"], "PublishAgentVersion", "agent_id", "agt_9"),
    (["agent", "versions"], "ListAgentVersions", "agent_id", "agt_9"),
    (["harness-profile", "show"], "GetHarnessProfile", "harness_profile_id", "hpr_9"),
    (["sandbox-profile", "show"], "GetSandboxProfile", "sandbox_profile_id", "spr_9"),
]


def named_things(scripted: ScriptedServer) -> None:
    """One of each kind is called `repo`, behind one that is not, on a page of its own."""

    def listed(kind: str, response: Any, field: str, identity: str) -> None:
        entry = response.DESCRIPTOR.fields_by_name[field].message_type._concrete_class
        first = response(**{field: [entry(name="other", **{identity: f"{kind}_1"})]}, next_page_token="more")
        then = response(**{field: [entry(name="repo", **{identity: f"{kind}_9"})]})
        rpc = response.DESCRIPTOR.name.removesuffix("Response")
        scripted.on(rpc, lambda request, _: then if request.page_token else first)

    listed("adep", agent_service_pb2.ListDeploymentsResponse, "agent_deployments", "agent_deployment_id")
    listed("agt", agent_service_pb2.ListAgentsResponse, "agents", "agent_id")
    listed("hpr", agent_service_pb2.ListHarnessProfilesResponse, "harness_profiles", "harness_profile_id")
    listed("spr", agent_service_pb2.ListSandboxProfilesResponse, "sandbox_profiles", "sandbox_profile_id")


@pytest.mark.parametrize(("arguments", "rpc", "field", "identity"), NAMED, ids=lambda value: str(value))
async def test_a_name_does_for_an_id(
    scripted: ScriptedServer, arguments: list[str], rpc: str, field: str, identity: str
) -> None:
    named_things(scripted)
    scripted.on("CreateSession", CREATED)
    scripted.on("FollowEvents", script(*turn()))
    await turnlog(scripted, *arguments, "repo")
    before = {call.rpc for call in scripted.received}
    assert getattr(scripted.requests(rpc)[0], field) == identity
    scripted.received.clear()
    await turnlog(scripted, *arguments, identity)
    assert getattr(scripted.requests(rpc)[0], field) == identity
    assert len({call.rpc for call in scripted.received}) == len(before) - 1, "an id needs no list"


async def test_a_revision_is_published_by_names(scripted: ScriptedServer) -> None:
    named_things(scripted)
    scripted.on("PublishDeploymentRevision", agent_service_pb2.PublishDeploymentRevisionResponse())
    profiles = ["--agent", "repo", "--harness-profile", "repo", "--sandbox-profile", "repo"]
    done = await turnlog(scripted, "deployment", "publish", "repo", *profiles)
    assert done.code == 0, done.err
    [request] = scripted.requests("PublishDeploymentRevision")
    assert (request.agent_deployment_id, request.agent_id) == ("adep_9", "agt_9")
    assert (request.harness_profile_id, request.sandbox_profile_id) == ("hpr_9", "spr_9")


NOTHING_PUBLISHED = [
    (["session", "create", "--agent-deployment"], "CreateSession", "adep_9", "agent deployment revision",
     "turnlog deployment publish {} --agent"),
    (["session", "chat", "--new", "hello", "--agent-deployment"], "CreateSession", "adep_9",
     "agent deployment revision", "turnlog deployment publish {} --agent"),
    (["deployment", "publish", "repo", "--harness-profile", "repo", "--sandbox-profile", "repo", "--agent"],
     "PublishDeploymentRevision", "agt_9", "agent version", "turnlog agent publish {} --instructions"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "rpc", "identity", "resource", "told"), NOTHING_PUBLISHED)
async def test_where_nothing_is_published_the_command_that_publishes_is_told(
    scripted: ScriptedServer, arguments: list[str], rpc: str, identity: str, resource: str, told: str
) -> None:
    named_things(scripted)
    scripted.on(rpc, Refusal(StatusCode.NOT_FOUND, "NOT_FOUND", resource=resource, id=f"{identity}/0"))
    for typed in ("repo", identity):
        done = await turnlog(scripted, *arguments, typed)
        assert done.code == 3
        assert told.format(typed) in done.err


async def test_without_a_deployment_the_flag_is_told(scripted: ScriptedServer) -> None:
    for arguments in (["create"], ["chat", "--new", "hello"]):
        done = await turnlog(scripted, "session", *arguments)
        assert (done.code, scripted.received) == (2, [])
        assert "--agent-deployment" in done.err
        assert "name" in done.err


async def test_without_a_key_nothing_is_asked(scripted: ScriptedServer) -> None:
    for arguments in (["session", "list"], ["runner", "start", "--harness", "echo=echo"]):
        done = await turnlog(None, *arguments, "--json", TURNLOG_ADDRESS=scripted.address)
        assert (done.code, scripted.received) == (4, [])
        assert done.error["message"] == f"No key was given for {scripted.address}."
        assert "TURNLOG_KEY" in done.error["next"]


async def test_a_harness_is_profile_and_command(scripted: ScriptedServer, tmp_path: Path) -> None:
    done = await turnlog(scripted, "runner", "start", "--harness", "echo", cwd=tmp_path)
    assert (done.code, "'echo' is not PROFILE=COMMAND" in done.err) == (2, True)


async def test_an_unknown_name_is_told_with_where_to_look(scripted: ScriptedServer) -> None:
    named_things(scripted)
    done = await turnlog(scripted, "session", "create", "--agent-deployment", "rope")
    assert (done.code, done.out, scripted.requests("CreateSession")) == (2, "", [])
    assert "no deployment named 'rope'" in done.err
    assert "turnlog deployment list" in done.err
