"""`turnlog server …`"""

from __future__ import annotations

import typer

from turnlog_client.cli.command import Cli, command

app = typer.Typer(no_args_is_help=True, help="The server that you speak to.")


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="server")


@command(app, "info")
async def info(cli: Cli) -> None:
    """Shows its version, limits and settings, and who you are to it."""
    cli.out.resource(await cli.t.server.info())
