"""Agents, versions, deployments and revisions in the tables."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnlog_server.domain.agents import (
    Agent,
    AgentVersion,
    Deployment,
    HarnessProfile,
    RevisionParts,
    RevisionPlan,
    SandboxProfile,
    Tool,
)
from turnlog_server.domain.limits import RESPONSE_BYTES
from turnlog_server.domain.pages import Window
from turnlog_server.domain.workspace import RunnerPool
from turnlog_server.store.access import pool_insert
from turnlog_server.store.agents import (
    AGENT_NAME,
    agent_advance,
    agent_find,
    agent_insert,
    agent_list,
    agent_named,
    deployment_advance,
    deployment_insert,
    deployment_named,
    revision_find,
    revision_insert,
    revision_list,
    revision_parts,
    revision_pins,
    version_find,
    version_insert,
    version_list,
)
from turnlog_server.store.errors import Duplicate
from turnlog_server.store.execute import reading, within
from turnlog_server.store.profiles import harness_insert, harness_named, sandbox_insert, sandbox_named

SLOW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
AGENT = Agent("agt_1", "ws_1", "support", "helps", 0, 5)
PLAN = RevisionPlan("adep_1", "agt_1", None, "hpr_1", "spr_1", "default", "fast")


async def written(database, *writes):
    """Runs each `write(execute)` in one transaction."""

    async def body(conn):
        return [await write(within(conn)) for write in writes]

    return await database.run("test", body)


def version(number, instructions="Help.", tools=()):
    return AgentVersion("agt_1", "ws_1", number, instructions, tuple(tools), 7)


async def parts(execute):
    await agent_insert(execute, AGENT)
    await version_insert(execute, version(await agent_advance(execute, "ws_1", "agt_1")))
    await harness_insert(execute, HarnessProfile("hpr_1", "ws_1", "repo", "", 1))
    await sandbox_insert(execute, SandboxProfile("spr_1", "ws_1", "small", 60, 1))
    await pool_insert(execute, RunnerPool("ws_1", "default", "", 1))
    await deployment_insert(execute, Deployment("adep_1", "ws_1", "prod", 0, 1))


async def test_an_agent_reads_back_in_its_workspace_alone(database):
    await written(database, lambda execute: agent_insert(execute, AGENT))
    execute = reading(database, "test")
    assert await agent_find(execute, "ws_1", "agt_1") == AGENT
    assert await agent_named(execute, "ws_1", "support") == AGENT
    assert await agent_find(execute, "ws_2", "agt_1") is None
    assert await agent_named(execute, "ws_2", "support") is None
    assert (await agent_list(execute, "ws_2", Window(None, 5))).items == ()


async def test_a_name_is_unique_in_its_workspace(database):
    await written(database, lambda execute: agent_insert(execute, AGENT))
    with pytest.raises(Duplicate) as taken:
        await written(database, lambda execute: agent_insert(execute, Agent("agt_2", "ws_1", "support", "", 0, 1)))
    assert taken.value.constraint == AGENT_NAME
    await written(database, lambda execute: agent_insert(execute, Agent("agt_2", "ws_2", "support", "", 0, 1)))


@SLOW
@given(instructions=TEXT, tools=st.lists(st.builds(Tool, TEXT, TEXT, TEXT), max_size=3))
async def test_a_version_keeps_every_character(database, instructions, tools):
    made = version(1, instructions, tools)

    async def replace(execute):
        await execute("DELETE FROM agent_versions", ())
        await version_insert(execute, made)

    await written(database, replace)
    assert await version_find(reading(database, "test"), "ws_1", "agt_1", 1) == made


async def test_numbers_rise_by_one_and_belong_to_the_workspace(database):
    await written(database, parts)
    taken = await written(
        database,
        lambda execute: agent_advance(execute, "ws_1", "agt_1"),
        lambda execute: agent_advance(execute, "ws_2", "agt_1"),
        lambda execute: deployment_advance(execute, "ws_1", "adep_1"),
        lambda execute: deployment_advance(execute, "ws_2", "adep_1"),
    )
    assert taken == [2, None, 1, None]


async def test_a_page_of_versions_is_cut_by_bytes(database):
    large = "x" * (1024 * 1024)

    async def rows(execute):
        await agent_insert(execute, AGENT)
        for number in range(1, 13):
            await version_insert(execute, version(number, large if number > 2 else "small"))

    await written(database, rows)
    execute, window, numbers = reading(database, "test"), Window(None, 500), []
    while True:
        page = await version_list(execute, "ws_1", "agt_1", window)
        assert sum(len(item.instructions) for item in page.items) <= RESPONSE_BYTES + len(large)
        numbers += [item.version_number for item in page.items]
        if not page.more:
            break
        window = Window(page.items[-1].position, 500)
    assert numbers == list(range(12, 0, -1))
    assert (await version_list(execute, "ws_2", "agt_1", Window(None, 5))).items == ()


async def test_the_last_page_of_versions_says_so(database):
    async def rows(execute):
        await agent_insert(execute, AGENT)
        for number in (1, 2):
            await version_insert(execute, version(number))

    await written(database, rows)
    execute = reading(database, "test")
    assert (await version_list(execute, "ws_1", "agt_1", Window(None, 1))).more
    assert not (await version_list(execute, "ws_1", "agt_1", Window(None, 2))).more
    assert not (await version_list(execute, "ws_1", "agt_none", Window(None, 2))).more


async def test_what_of_a_plan_exists(database):
    await written(database, parts)
    execute = reading(database, "test")
    assert await revision_parts(execute, "ws_1", PLAN) == RevisionParts(1, 1, harness=True, sandbox=True, pool=True)
    nothing = RevisionParts(None, None, harness=False, sandbox=False, pool=False)
    assert await revision_parts(execute, "ws_2", PLAN) == nothing
    other = RevisionPlan("adep_1", "agt_1", 2, "hpr_2", "spr_2", "gpu")
    assert await revision_parts(execute, "ws_1", other) == RevisionParts(1, None, False, False, False)


async def test_a_revision_and_what_it_pins(database):
    revision = PLAN.revision("ws_1", 1, 1, 9)
    await written(database, parts, lambda execute: revision_insert(execute, revision))
    execute = reading(database, "test")
    assert await revision_find(execute, "ws_1", "adep_1", 1) == revision
    assert (await revision_list(execute, "ws_1", "adep_1", Window(None, 5))).items == (revision,)
    pins = await revision_pins(execute, "ws_1", "adep_1", 1)
    assert pins is not None
    assert (pins.deployment_id, pins.revision_number, pins.agent_version_number) == ("adep_1", 1, 1)
    assert (pins.harness_profile_id, pins.sandbox_profile_id) == ("hpr_1", "spr_1")
    assert (pins.runner_pool, pins.max_duration_seconds) == ("default", 60)
    assert await revision_pins(execute, "ws_2", "adep_1", 1) is None
    assert await revision_pins(execute, "ws_1", "adep_1", 2) is None


async def test_profiles_and_deployments_by_name(database):
    await written(database, parts)
    execute = reading(database, "test")
    assert await harness_named(execute, "ws_1", ["repo", "gone"]) == {"repo": "hpr_1"}
    assert await harness_named(execute, "ws_2", ["repo"]) == {}
    assert (await sandbox_named(execute, "ws_1", "small")) == SandboxProfile("spr_1", "ws_1", "small", 60, 1)
    deployment = await deployment_named(execute, "ws_1", "prod")
    assert deployment == Deployment("adep_1", "ws_1", "prod", 0, 1)
