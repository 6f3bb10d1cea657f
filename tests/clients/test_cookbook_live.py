"""Every line of the cookbook, run against a real server."""

import asyncio
import itertools
import os
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from live import LiveServer, live_server
from test_cookbook import RECIPES, Recipe
from turnlog_client import Turnlog, v1

NOBODY = "nobody"
"""A pool without runners: a turn there stays active."""


class World:
    """What the lines speak of; fresh for every line, since many of them end what they name."""

    def __init__(self, t: Turnlog) -> None:
        self._t = t
        self._numbers = itertools.count()

    async def build(self) -> None:
        """Makes what lines share."""
        t = self._t
        self._agent = (await t.agents.create_agent(name=self._name())).agent or v1.Agent()
        await t.agents.publish_agent_version(agent_id=self._agent.agent_id, instructions="Be short.")
        self._harness = (
            await t.agents.create_harness_profile(name=self._name())
        ).harness_profile or v1.HarnessProfile()
        made = await t.agents.create_sandbox_profile(name=self._name(), max_duration_seconds=60)
        self._sandbox = made.sandbox_profile or v1.SandboxProfile()
        await t.access.create_runner_pool(name=NOBODY)
        self._scratch = await self._deployment()
        self._done = uuid.uuid4().hex
        await t.sessions.create(request_id=self._done)

    async def variables(self, recipe: Recipe) -> dict[str, str]:
        """The shell variables of one line."""
        t, lines = self._t, recipe.command + recipe.grpcurl
        names = {"ADDRESS": t.profile.address, "KEY": t.profile.key, "SUBJECT": await t.server.subject()}
        names |= {"REQUEST": uuid.uuid4().hex, "NAME": self._name(), "DONE": self._done}
        names |= {"AGENT": self._agent.agent_id, "HARNESS": self._harness.harness_profile_id}
        names |= {"SANDBOX": self._sandbox.sandbox_profile_id}
        mine = recipe.path[0] == "deployment"
        names["DEPLOYMENT"] = self._scratch if mine else t.profile.agent_deployment_id
        if "$SESSION" in lines:
            deployment = self._scratch if recipe.needs == "busy" else t.profile.agent_deployment_id
            started = await t.sessions.create(deployment, first_message="hello")
            names["SESSION"] = started.session.session_id if started.session else ""
            names["RUN"] = started.run_id
            if recipe.needs != "busy":
                async for _ in t.events.follow(names["SESSION"], until=started):
                    pass
        if "$PRINCIPAL" in lines or "$APIKEY" in lines:
            made = await t.access.create_principal(display_name="Ada", role=v1.Role.VIEWER)
            names["PRINCIPAL"] = made.principal.principal_id if made.principal else ""
            key = await t.access.create_api_key(subject=names["PRINCIPAL"], display_name="laptop")
            names["APIKEY"] = key.api_key.api_key_id if key.api_key else ""
        if "$ACCOUNT" in lines:
            account = await t.access.create_service_account(display_name="nightly")
            names["ACCOUNT"] = account.service_account.service_account_id if account.service_account else ""
        if "$RUNNER" in lines:
            names["RUNNER"] = (await anext(t.runners.list.each())).runner_id
        return names

    async def _deployment(self) -> str:
        made = (await self._t.agents.create_deployment(name=self._name())).agent_deployment or v1.AgentDeployment()
        await self._t.agents.publish_deployment_revision(
            agent_deployment_id=made.agent_deployment_id,
            agent_id=self._agent.agent_id,
            harness_profile_id=self._harness.harness_profile_id,
            sandbox_profile_id=self._sandbox.sandbox_profile_id,
            runner_pool=NOBODY,
        )
        return made.agent_deployment_id

    def _name(self) -> str:
        return f"name-{next(self._numbers)}"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    async with live_server(tmp_path_factory.mktemp("cookbook")) as running:
        yield running


@pytest.fixture(scope="module")
async def world(server: LiveServer) -> AsyncIterator[World]:
    async with Turnlog.connect(profile=server.profile) as t:
        made = World(t)
        await made.build()
        yield made


async def failures(world: World, lines: list[tuple[Recipe, str]], folder: Path) -> list[str]:
    """Runs the lines, a few at a time; answers what failed. A runner is drained last: others need it."""
    turns = asyncio.Semaphore(3)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    async def run(recipe: Recipe, line: str) -> str:
        async with turns:
            variables = await world.variables(recipe)
            environment = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **variables}
            environment |= {"TURNLOG_ADDRESS": variables["ADDRESS"], "TURNLOG_KEY": variables["KEY"]}
            process = await asyncio.create_subprocess_exec(
                "bash", "-c", line, env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            try:
                async with asyncio.timeout(30):
                    said, _ = await process.communicate()
            except TimeoutError:
                process.kill()
                return f"{line}\n  did not end"
            return "" if process.returncode == 0 else f"{line}\n  {process.returncode}: {said.decode()[-600:]}"

    last = [each for each in lines if "drain" in each[1]]
    told = await asyncio.gather(*(run(*each) for each in lines if each not in last))
    told += [await run(*each) for each in last]
    return [each for each in told if each]


@pytest.mark.rule("R17")
async def test_every_command_of_the_cookbook_works(world: World, tmp_path: Path) -> None:
    failed = await failures(world, [(recipe, recipe.command) for recipe in RECIPES], tmp_path)
    assert not failed, "\n".join(failed)


@pytest.mark.rule("R17")
@pytest.mark.system("grpcurl")
async def test_every_grpcurl_line_of_the_cookbook_works(world: World, tmp_path: Path) -> None:
    failed = await failures(world, [(recipe, recipe.grpcurl) for recipe in RECIPES], tmp_path)
    assert not failed, "\n".join(failed)
