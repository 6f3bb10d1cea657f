"""`turnlog deployment …`"""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.names import agent_id, deployment_id, harness_profile_id, sandbox_profile_id
from turnlog_client.cli.options import Limit, RequestId, page_size

app = typer.Typer(no_args_is_help=True, help="Deployments: where Sessions start from.")

DeploymentId = Annotated[str, typer.Argument(help="Its name, or adep_….", metavar="DEPLOYMENT")]


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="deployment")


@command(app, "create")
async def create(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Unique in the workspace.", metavar="NAME")],
    request_id: RequestId = "",
) -> None:
    """Creates a deployment. Sessions can start from it once a revision is published."""
    answer = await cli.t.agents.create_deployment(request_id=request_id, name=name)
    made = answer.agent_deployment or v1.AgentDeployment()
    cli.out.answer(answer, f"{made.agent_deployment_id}  {name}", made=made.agent_deployment_id)


@command(app, "list")
async def list_deployments(cli: Cli, limit: Limit = 50) -> None:
    """Lists deployments, by name."""
    await cli.out.rows(
        cli.t.agents.list_deployments.each(page_size=page_size(limit)),
        {
            "DEPLOYMENT": lambda each: each.agent_deployment_id,
            "NAME": lambda each: each.name,
            "REVISION": lambda each: each.current_revision_number or "",
            "CREATED": lambda each: each.create_time,
        },
        limit,
    )


@command(app, "show")
async def show(cli: Cli, deployment: DeploymentId) -> None:
    """Shows one deployment."""
    cli.out.resource((await cli.t.agents.get_deployment(await deployment_id(cli, deployment))).agent_deployment)


@command(app, "publish")
async def publish(
    cli: Cli,
    deployment: DeploymentId,
    agent: Annotated[str, typer.Option(help="By name or id, agt_…")],
    harness_profile: Annotated[str, typer.Option(help="By name or id, hpr_…")],
    sandbox_profile: Annotated[str, typer.Option(help="By name or id, spr_…")],
    agent_version: Annotated[int | None, typer.Option(min=1, help="The agent's latest if left out.")] = None,
    pool: Annotated[str, typer.Option(help="Whose runners may claim; `default` if left out.")] = "",
    model_route: Annotated[str, typer.Option(help="The model route that the harness is told to use.")] = "",
    request_id: RequestId = "",
) -> None:
    """Publishes an immutable revision; Sessions created from now on pin it."""
    answer = await cli.t.agents.publish_deployment_revision(
        request_id=request_id,
        agent_deployment_id=await deployment_id(cli, deployment),
        agent_id=await agent_id(cli, agent),
        agent_version_number=agent_version,
        harness_profile_id=await harness_profile_id(cli, harness_profile),
        sandbox_profile_id=await sandbox_profile_id(cli, sandbox_profile),
        runner_pool=pool,
        model_route=model_route,
    )
    made = answer.agent_deployment_revision or v1.AgentDeploymentRevision()
    cli.out.answer(answer, f"{deployment}  revision {made.revision_number}")


@command(app, "revisions")
async def revisions(cli: Cli, deployment: DeploymentId, limit: Limit = 50) -> None:
    """Lists a deployment's revisions, newest first."""
    await cli.out.rows(
        cli.t.agents.list_deployment_revisions.each(await deployment_id(cli, deployment), page_size=page_size(limit)),
        {
            "REVISION": lambda each: each.revision_number,
            "AGENT": lambda each: each.agent_id,
            "VERSION": lambda each: each.agent_version_number,
            "HARNESS": lambda each: each.harness_profile_id,
            "POOL": lambda each: each.runner_pool,
            "CREATED": lambda each: each.create_time,
        },
        limit,
    )


@command(app, "revision")
async def revision(
    cli: Cli, deployment: DeploymentId, number: Annotated[int, typer.Argument(min=1, metavar="NUMBER")]
) -> None:
    """Shows one revision of a deployment."""
    found = await cli.t.agents.get_deployment_revision(await deployment_id(cli, deployment), number)
    cli.out.resource(found.agent_deployment_revision)
