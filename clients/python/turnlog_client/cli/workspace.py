"""`turnlog workspace …`"""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.options import RequestId

app = typer.Typer(no_args_is_help=True, help="The workspace of your key.")


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="workspace")


@command(app, "show")
async def show(cli: Cli) -> None:
    """Shows the workspace."""
    cli.out.resource((await cli.t.access.get_workspace()).workspace)


@command(app, "set-limit")
async def set_limit(
    cli: Cli,
    runs: Annotated[int, typer.Argument(min=0, help="Most Runs at once; 0 for no limit.", metavar="RUNS")],
    request_id: RequestId = "",
) -> None:
    """Sets how many Runs may hold a runner at once. Runs that hold one go on."""
    answer = await cli.t.access.set_concurrency_limit(request_id=request_id, max_concurrent_runs=runs or None)
    workspace = answer.workspace or v1.Workspace()
    cli.out.answer(answer, f"{workspace.workspace_id}  {workspace.max_concurrent_runs or 'no limit'}")
