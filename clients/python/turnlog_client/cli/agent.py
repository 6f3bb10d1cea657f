"""`turnlog agent …`, `turnlog harness-profile …` and `turnlog sandbox-profile …`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.names import agent_id, harness_profile_id, sandbox_profile_id
from turnlog_client.cli.options import Description, Limit, RequestId, duration, page_size
from turnlog_client.errors import InvalidRequest
from turnlog_client.messages.google.protobuf import Struct

app = typer.Typer(no_args_is_help=True, help="Agents and their published versions.")
harnesses = typer.Typer(no_args_is_help=True, help="Harness profiles: which harness a runner must be able to start.")
sandboxes = typer.Typer(no_args_is_help=True, help="Sandbox profiles: bounds of an execution.")

AgentId = Annotated[str, typer.Argument(help="Its name, or agt_….", metavar="AGENT")]
Name = Annotated[str, typer.Argument(help="Unique in the workspace, such as `support`.", metavar="NAME")]


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="agent")
    root.add_typer(harnesses, name="harness-profile")
    root.add_typer(sandboxes, name="sandbox-profile")


@command(app, "create")
async def create(cli: Cli, name: Name, description: Description = "", request_id: RequestId = "") -> None:
    """Creates an agent. It does nothing until a version is published and deployed."""
    answer = await cli.t.agents.create_agent(request_id=request_id, name=name, description=description)
    made = answer.agent or v1.Agent()
    cli.out.answer(answer, f"{made.agent_id}  {name}", made=made.agent_id)


@command(app, "list")
async def list_agents(cli: Cli, limit: Limit = 50) -> None:
    """Lists agents, by name."""
    await cli.out.rows(
        cli.t.agents.list_agents.each(page_size=page_size(limit)),
        {
            "AGENT": lambda each: each.agent_id,
            "NAME": lambda each: each.name,
            "VERSION": lambda each: each.latest_version_number or "",
            "DESCRIPTION": lambda each: each.description,
        },
        limit,
    )


@command(app, "show")
async def show(cli: Cli, agent: AgentId) -> None:
    """Shows one agent."""
    cli.out.resource((await cli.t.agents.get_agent(await agent_id(cli, agent))).agent)


@command(app, "publish")
async def publish(
    cli: Cli,
    agent: AgentId,
    instructions: Annotated[str, typer.Option(help="What the agent is told.")] = "",
    instructions_file: Annotated[Path | None, typer.Option(help="A file that holds it.")] = None,
    tool: Annotated[
        list[str] | None, typer.Option(help="A tool that it may call: NAME, or NAME=DESCRIPTION; repeatable.")
    ] = None,
    tools_file: Annotated[
        Path | None, typer.Option(help="JSON: a list of {name, description, parameters: JSON Schema}.")
    ] = None,
    request_id: RequestId = "",
) -> None:
    """Publishes an immutable version. Sessions that exist keep theirs."""
    if instructions_file:
        instructions = instructions_file.read_text("utf-8")
    tools = [v1.Tool(name=each.partition("=")[0], description=each.partition("=")[2]) for each in tool or ()]
    answer = await cli.t.agents.publish_agent_version(
        request_id=request_id,
        agent_id=await agent_id(cli, agent),
        instructions=instructions,
        tools=tools + (_read_tools(tools_file) if tools_file else []),
    )
    version = answer.agent_version or v1.AgentVersion()
    cli.out.answer(answer, f"{agent}  version {version.version_number}")


@command(app, "versions")
async def versions(cli: Cli, agent: AgentId, limit: Limit = 50) -> None:
    """Lists an agent's versions, newest first."""
    await cli.out.rows(
        cli.t.agents.list_agent_versions.each(await agent_id(cli, agent), page_size=page_size(limit)),
        {
            "VERSION": lambda each: each.version_number,
            "CREATED": lambda each: each.create_time,
            "TOOLS": lambda each: ", ".join(tool.name for tool in each.tools),
            "INSTRUCTIONS": lambda each: each.instructions.partition("\n")[0][:60],
        },
        limit,
    )


@command(app, "version")
async def version(cli: Cli, agent: AgentId, number: Annotated[int, typer.Argument(min=1, metavar="NUMBER")]) -> None:
    """Shows one version of an agent."""
    cli.out.resource((await cli.t.agents.get_agent_version(await agent_id(cli, agent), number)).agent_version)


@command(harnesses, "create")
async def create_harness(cli: Cli, name: Name, description: Description = "", request_id: RequestId = "") -> None:
    """Creates a harness profile; runners name the profiles that they serve by it."""
    answer = await cli.t.agents.create_harness_profile(request_id=request_id, name=name, description=description)
    profile = answer.harness_profile or v1.HarnessProfile()
    cli.out.answer(answer, f"{profile.harness_profile_id}  {name}", made=profile.harness_profile_id)


@command(harnesses, "list")
async def list_harnesses(cli: Cli, limit: Limit = 50) -> None:
    """Lists harness profiles, by name."""
    await cli.out.rows(
        cli.t.agents.list_harness_profiles.each(page_size=page_size(limit)),
        {
            "PROFILE": lambda each: each.harness_profile_id,
            "NAME": lambda each: each.name,
            "DESCRIPTION": lambda each: each.description,
        },
        limit,
    )


@command(harnesses, "show")
async def show_harness(
    cli: Cli, profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Its name, or hpr_….")]
) -> None:
    """Shows one harness profile."""
    found = await cli.t.agents.get_harness_profile(await harness_profile_id(cli, profile))
    cli.out.resource(found.harness_profile)


@command(sandboxes, "create")
async def create_sandbox(
    cli: Cli,
    name: Name,
    max_duration: Annotated[str, typer.Option(help="How long an attempt may execute, such as 90s, 15m or 2h.")],
    request_id: RequestId = "",
) -> None:
    """Creates a sandbox profile."""
    answer = await cli.t.agents.create_sandbox_profile(
        request_id=request_id, name=name, max_duration_seconds=int(duration(max_duration).total_seconds())
    )
    profile = answer.sandbox_profile or v1.SandboxProfile()
    cli.out.answer(answer, f"{profile.sandbox_profile_id}  {name}", made=profile.sandbox_profile_id)


@command(sandboxes, "list")
async def list_sandboxes(cli: Cli, limit: Limit = 50) -> None:
    """Lists sandbox profiles, by name."""
    await cli.out.rows(
        cli.t.agents.list_sandbox_profiles.each(page_size=page_size(limit)),
        {
            "PROFILE": lambda each: each.sandbox_profile_id,
            "NAME": lambda each: each.name,
            "SECONDS": lambda each: each.max_duration_seconds,
        },
        limit,
    )


@command(sandboxes, "show")
async def show_sandbox(
    cli: Cli, profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Its name, or spr_….")]
) -> None:
    """Shows one sandbox profile."""
    found = await cli.t.agents.get_sandbox_profile(await sandbox_profile_id(cli, profile))
    cli.out.resource(found.sandbox_profile)


def _read_tools(path: Path) -> list[v1.Tool]:
    try:
        tools: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return [
            v1.Tool(
                name=each["name"],
                description=each.get("description", ""),
                parameters=Struct.from_dict(each["parameters"]) if "parameters" in each else None,
            )
            for each in tools
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"{path} is not a JSON list of tools, each with a name: {error}") from error
