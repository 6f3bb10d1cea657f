"""`turnlog request …`"""

from __future__ import annotations

from typing import Annotated

import typer

from turnlog_client.cli.command import Cli, command

app = typer.Typer(no_args_is_help=True, help="What became of a request whose answer was lost.")


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="request")


@command(app, "show")
async def show(
    cli: Cli,
    method: Annotated[str, typer.Argument(help="The RPC, such as AppendEvent.", metavar="METHOD")],
    request_id: Annotated[str, typer.Argument(help="The request_id that it carried.", metavar="REQUEST")],
    session: Annotated[str, typer.Option(help="The Session that it named, sess_…, if it named one.")] = "",
) -> None:
    """Shows what one of your own requests did."""
    cli.out.resource(await cli.t.requests.get(method=method, session_id=session, request_id=request_id))
