"""AgentService from the request to the tables and back."""

import asyncio

import pytest
from support.tenants import Replica, request_id, tenant
from turnlog_server.domain.limits import RESPONSE_BYTES
from turnlog_server.domain.refusals import Reason, Refusal


@pytest.fixture
def replica(database):
    return Replica(database)


async def refused(awaitable):
    with pytest.raises(Refusal) as caught:
        await awaitable
    return caught.value


async def parts(replica, bearer):
    """One of each that a revision names, as its fields."""
    agent = (await replica.call(bearer, "CreateAgent", name="support")).agent
    await replica.call(bearer, "PublishAgentVersion", agent_id=agent.agent_id, instructions="Help.")
    harness = (await replica.call(bearer, "CreateHarnessProfile", name="repo")).harness_profile
    sandbox = (await replica.call(bearer, "CreateSandboxProfile", name="s", max_duration_seconds=60)).sandbox_profile
    deployment = (await replica.call(bearer, "CreateDeployment", name="prod")).agent_deployment
    return {
        "agent_deployment_id": deployment.agent_deployment_id,
        "agent_id": agent.agent_id,
        "harness_profile_id": harness.harness_profile_id,
        "sandbox_profile_id": sandbox.sandbox_profile_id,
    }


@pytest.mark.parametrize(
    ("create", "fields", "noun"),
    [
        ("CreateAgent", {"description": "d"}, "agent"),
        ("CreateHarnessProfile", {"description": "d"}, "harness_profile"),
        ("CreateSandboxProfile", {"max_duration_seconds": 60}, "sandbox_profile"),
        ("CreateDeployment", {}, "agent_deployment"),
    ],
)
async def test_named_things_are_made_read_listed_and_taken(replica, database, create, fields, noun):
    one = await tenant(database)
    made = {name: await replica.call(one.manager, create, name=name, **fields) for name in ("zebra", "alpha")}
    item = getattr(made["zebra"], noun)
    assert item.name == "zebra"
    for field, value in fields.items():
        assert getattr(item, field) == value
    get, list_ = create.replace("Create", "Get"), create.replace("Create", "List") + "s"
    found = await replica.call(one.manager, get, **{f"{noun}_id": getattr(item, f"{noun}_id")})
    assert getattr(found, noun) == item
    listed = await replica.call(one.manager, list_)
    assert [each.name for each in getattr(listed, f"{noun}s")] == ["alpha", "zebra"]

    taken = await refused(replica.call(one.manager, create, name="alpha", **fields))
    assert taken.reason is Reason.ALREADY_EXISTS
    assert taken.metadata == {"resource": noun.replace("_", " "), "name": "alpha"}
    other = await tenant(database)
    await replica.call(other.manager, create, name="alpha", **fields)


@pytest.mark.rule("R14")
async def test_versions_are_numbered_and_never_change(replica, database):
    one = await tenant(database)
    agent_id = (await replica.call(one.manager, "CreateAgent", name="a")).agent.agent_id
    tool = {"name": "search", "description": "finds", "parameters": {"type": "object", "minimum": 1}}
    first = await replica.call(
        one.manager, "PublishAgentVersion", agent_id=agent_id, instructions="One \0 \U0001f600", tools=[tool]
    )
    second = await replica.call(one.manager, "PublishAgentVersion", agent_id=agent_id, instructions="Two")
    assert [each.agent_version.version_number for each in (first, second)] == [1, 2]
    fresh = Replica(database)
    for made in (first, second):
        number = made.agent_version.version_number
        found = await fresh.call(one.manager, "GetAgentVersion", agent_id=agent_id, version_number=number)
        assert found.agent_version == made.agent_version
    listed = await replica.call(one.manager, "ListAgentVersions", agent_id=agent_id)
    assert list(listed.agent_versions) == [second.agent_version, first.agent_version]
    assert (await replica.call(one.manager, "GetAgent", agent_id=agent_id)).agent.latest_version_number == 2
    twice = await refused(
        replica.call(one.manager, "PublishAgentVersion", agent_id=agent_id, tools=[{"name": "a"}, {"name": "a"}])
    )
    assert twice.fields[0].field == "tools[1].name"


async def test_publishers_at_once_get_numbers_without_holes(replica, database):
    one = await tenant(database)
    agent_id = (await replica.call(one.manager, "CreateAgent", name="a")).agent.agent_id
    made = await asyncio.gather(
        *(replica.call(one.manager, "PublishAgentVersion", agent_id=agent_id, instructions=str(n)) for n in range(8))
    )
    assert sorted(each.agent_version.version_number for each in made) == list(range(1, 9))


@pytest.mark.case(7)
async def test_pages_of_large_versions_stay_within_a_message(replica, database):
    one = await tenant(database)
    agent_id = (await replica.call(one.manager, "CreateAgent", name="a")).agent.agent_id
    tools = [{"name": f"t{n}", "description": "x" * 16_000} for n in range(55)]
    for _ in range(9):
        await replica.call(one.manager, "PublishAgentVersion", agent_id=agent_id, tools=tools)
    numbers, page_token = [], ""
    while True:
        page = await replica.call(
            one.manager, "ListAgentVersions", agent_id=agent_id, page_size=500, page_token=page_token
        )
        assert page.ByteSize() <= RESPONSE_BYTES
        numbers += [version.version_number for version in page.agent_versions]
        page_token = page.next_page_token
        if not page_token:
            break
    assert numbers == list(range(9, 0, -1))


@pytest.mark.rule("R6", "R9")
async def test_a_revision_pins_what_it_names_and_the_newest_is_current(replica, database):
    one = await tenant(database)
    plan = await parts(replica, one.manager)
    first = (await replica.call(one.manager, "PublishDeploymentRevision", **plan)).agent_deployment_revision
    assert (first.revision_number, first.agent_version_number, first.runner_pool) == (1, 1, "default")
    await replica.call(one.manager, "PublishAgentVersion", agent_id=plan["agent_id"], instructions="Two")
    again = await replica.call(
        one.manager, "PublishDeploymentRevision", **plan, agent_version_number=1, model_route="fast"
    )
    latest = await replica.call(one.manager, "PublishDeploymentRevision", **plan)
    assert again.agent_deployment_revision.agent_version_number == 1
    assert latest.agent_deployment_revision.agent_version_number == 2

    deployment_id = plan["agent_deployment_id"]
    found = await replica.call(
        one.manager, "GetDeploymentRevision", agent_deployment_id=deployment_id, revision_number=2
    )
    assert found.agent_deployment_revision == again.agent_deployment_revision
    listed = await replica.call(one.manager, "ListDeploymentRevisions", agent_deployment_id=deployment_id)
    assert [each.revision_number for each in listed.agent_deployment_revisions] == [3, 2, 1]

    agents = Replica(database).agents
    current = await agents.pins_for(one.workspace_id, deployment_id, None)
    assert (current.revision_number, current.agent_version_number, current.max_duration_seconds) == (3, 2, 60)
    await replica.call(one.manager, "PublishDeploymentRevision", **plan)
    assert (await agents.pins_for(one.workspace_id, deployment_id, None)).revision_number == 4
    assert await agents.pins_for(one.workspace_id, deployment_id, 3) == current
    assert (await agents.revision(one.workspace_id, deployment_id, 2)).model_route == "fast"
    assert (await agents.version(one.workspace_id, plan["agent_id"], 2)).instructions == "Two"
    names = await agents.harness_profile_names(one.workspace_id, ["repo", "gone"])
    assert names == {"repo": plan["harness_profile_id"]}
    assert await agents.harness_profile_names(one.workspace_id, []) == {}


async def test_what_is_cached_of_one_workspace_is_not_there_for_another(replica, database):
    one, other = await tenant(database), await tenant(database)
    plan = await parts(replica, one.manager)
    await replica.call(one.manager, "PublishDeploymentRevision", **plan)
    await replica.agents.pins_for(one.workspace_id, plan["agent_deployment_id"], 1)
    await replica.agents.version(one.workspace_id, plan["agent_id"], 1)
    for read in (
        replica.agents.pins_for(other.workspace_id, plan["agent_deployment_id"], 1),
        replica.agents.pins_for(other.workspace_id, plan["agent_deployment_id"], None),
        replica.agents.version(other.workspace_id, plan["agent_id"], 1),
        replica.agents.revision(other.workspace_id, plan["agent_deployment_id"], 1),
    ):
        assert (await refused(read)).reason is Reason.NOT_FOUND
    assert await replica.agents.harness_profile_names(other.workspace_id, ["repo"]) == {}


async def test_a_revision_of_what_does_not_exist_is_refused_and_takes_no_number(replica, database):
    one, other = await tenant(database), await tenant(database)
    plan, foreign = await parts(replica, one.manager), await parts(replica, other.manager)
    for field, resource in [
        ("agent_deployment_id", "agent deployment"),
        ("agent_id", "agent"),
        ("harness_profile_id", "harness profile"),
        ("sandbox_profile_id", "sandbox profile"),
    ]:
        refusal = await refused(
            replica.call(one.manager, "PublishDeploymentRevision", **plan | {field: foreign[field]})
        )
        assert refusal.reason is Reason.NOT_FOUND
        assert refusal.metadata == {"resource": resource, "id": foreign[field]}
    for extra, resource in [({"runner_pool": "gpu"}, "runner pool"), ({"agent_version_number": 2}, "agent version")]:
        refusal = await refused(replica.call(one.manager, "PublishDeploymentRevision", **plan, **extra))
        assert refusal.metadata["resource"] == resource
    made = await replica.call(one.manager, "PublishDeploymentRevision", **plan)
    assert made.agent_deployment_revision.revision_number == 1


async def test_nothing_published_is_told_with_what_to_do(replica, database):
    one = await tenant(database)
    plan = await parts(replica, one.manager)
    refusal = await refused(replica.agents.pins_for(one.workspace_id, plan["agent_deployment_id"], None))
    assert refusal.reason is Reason.NOT_FOUND
    assert "PublishDeploymentRevision" in refusal.message
    bare = (await replica.call(one.manager, "CreateAgent", name="bare")).agent.agent_id
    refusal = await refused(replica.call(one.manager, "PublishDeploymentRevision", **plan | {"agent_id": bare}))
    assert refusal.reason is Reason.NOT_FOUND
    assert "PublishAgentVersion" in refusal.message


async def test_a_deployment_published_after_it_was_found_missing_is_found(replica, database):
    one = await tenant(database)
    plan = await parts(replica, one.manager)
    asked = (one.workspace_id, plan["agent_deployment_id"], 1)
    await refused(replica.agents.pins_for(*asked))
    await replica.call(one.manager, "PublishDeploymentRevision", **plan)
    assert (await replica.agents.pins_for(*asked)).revision_number == 1


async def test_a_replay_of_a_version_is_that_version_and_not_the_latest(replica, database):
    one = await tenant(database)
    agent_id = (await replica.call(one.manager, "CreateAgent", name="a")).agent.agent_id
    asked = {"agent_id": agent_id, "instructions": "One", "request_id": request_id()}
    made = await replica.call(one.manager, "PublishAgentVersion", **asked)
    await replica.call(one.manager, "PublishAgentVersion", agent_id=agent_id, instructions="Two")
    again = await replica.call(one.manager, "PublishAgentVersion", **asked)
    assert (again.replayed, again.agent_version) == (True, made.agent_version)
