"""The first workspace, and what `dev` starts with."""

import asyncio

import pytest
from turnlog_server.domain.access import Role
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.workspace import SubjectKind
from turnlog_server.service.bootstrap import DevSecrets, ensure_dev, key_create, workspace_create
from turnlog_server.service.catalogue import Catalogue
from turnlog_server.service.credentials import Authenticator
from turnlog_server.store.agents import agent_named, deployment_named
from turnlog_server.store.execute import reading


async def test_a_workspace_comes_with_a_manager_and_a_key_that_works(database):
    made = await workspace_create(database, "acme")
    caller = await Authenticator(database).authenticate(made.secret)
    assert (caller.workspace_id, caller.role) == (made.workspace.workspace_id, Role.MANAGER)
    assert caller.subject == made.manager.subject_id
    assert made.secret not in repr(made)


async def test_a_workspace_name_is_taken_once(database):
    await workspace_create(database, "acme")
    with pytest.raises(Refusal) as refused:
        await workspace_create(database, "acme")
    assert refused.value.reason is Reason.ALREADY_EXISTS
    assert refused.value.metadata == {"resource": "workspace", "name": "acme"}


async def test_keys_for_new_and_for_known_subjects(database):
    made = await workspace_create(database, "acme")
    by_name = await key_create(database, "acme", role=Role.VIEWER, display_name="reader")
    by_id = await key_create(database, made.workspace.workspace_id, subject=by_name.subject.subject_id)
    assert by_name.subject.kind is SubjectKind.SERVICE_ACCOUNT
    authenticator = Authenticator(database)
    first, second = [await authenticator.authenticate(issued.secret) for issued in (by_name, by_id)]
    assert first.subject == second.subject
    assert first.role is Role.VIEWER
    with pytest.raises(Refusal, match="runner_pools"):
        await key_create(database, "acme", role=Role.RUNNER)
    with pytest.raises(Refusal, match="NOT_FOUND"):
        await key_create(database, "nowhere")


async def test_dev_twice_is_dev_once(database):
    first = await ensure_dev(database, DevSecrets())
    assert await ensure_dev(database, first) == first
    authenticator = Authenticator(database)
    manager = await authenticator.authenticate(first.manager)
    runner = await authenticator.authenticate(first.runner)
    assert manager.role is Role.MANAGER
    assert (runner.role, runner.runner_pools) == (Role.RUNNER, ("default",))

    execute, catalogue = reading(database, "test"), Catalogue(database)
    for name in ("repo", "echo"):
        agent = await agent_named(execute, manager.workspace_id, name)
        deployment = await deployment_named(execute, manager.workspace_id, name)
        assert agent is not None
        assert deployment is not None
        assert (agent.latest_version_number, deployment.current_revision_number) == (1, 1)
        pins = await catalogue.pins_for(manager.workspace_id, deployment.agent_deployment_id, None)
        assert (pins.agent_id, pins.runner_pool, pins.max_duration_seconds) == (agent.agent_id, "default", 600)
    version = await catalogue.version(manager.workspace_id, pins.agent_id, 1)
    assert version.instructions


async def test_dev_replaces_secrets_that_no_longer_work(database):
    first = await ensure_dev(database, DevSecrets())
    lost = await ensure_dev(database, DevSecrets(manager="tlk_nonsense"))
    assert lost.manager != first.manager
    assert lost.runner != first.runner
    authenticator = Authenticator(database)
    assert (await authenticator.authenticate(lost.manager)).subject == (
        await authenticator.authenticate(first.manager)
    ).subject


async def test_two_starts_of_dev_at_once(database):
    both = await asyncio.gather(*(ensure_dev(database, DevSecrets()) for _ in range(4)))
    authenticator = Authenticator(database)
    for made in both:
        assert (await authenticator.authenticate(made.manager)).role is Role.MANAGER
    workspace_id = (await authenticator.authenticate(both[0].manager)).workspace_id
    execute = reading(database, "test")
    deployment = await deployment_named(execute, workspace_id, "repo")
    assert deployment is not None
    assert deployment.current_revision_number == 1
