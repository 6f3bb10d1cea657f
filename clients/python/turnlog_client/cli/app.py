"""The root of the command line, and what happens before and after every command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from turnlog_client.cli import access, agent, deployment, request, runner, server, session, workspace
from turnlog_client.cli import run as run_commands
from turnlog_client.cli.command import Address, Globals, Json, Key, ProfileFile
from turnlog_client.cli.exits import MEANINGS, Exit
from turnlog_client.cli.plain import plain

# Base of every error of the command line itself; typer has a copy of click of its own, so it is not click's.
UsageError: type[Exception] = typer.BadParameter.__mro__[2]

EPILOG = "Exit codes:\n\n" + "\n\n".join(f"{int(code)}  {meaning}" for code, meaning in MEANINGS.items())

app = typer.Typer(
    name="turnlog",
    no_args_is_help=True,
    add_completion=False,
    epilog=EPILOG,
    help="Durable agent Sessions: start them, steer them, follow them.",
    rich_markup_mode="rich",
)
for each in (session, run_commands, agent, deployment, access, workspace, request, runner, server):
    each.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"turnlog {version('turnlog')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    address: Address = None,
    key: Key = None,
    profile: ProfileFile = None,
    as_json: Json = False,
    tls_ca: Annotated[
        Path | None, typer.Option(help="Trust servers that this CA vouches for (PEM).", exists=True, readable=True)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Your own certificate (PEM), for mTLS.", exists=True, readable=True)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).", exists=True, readable=True)] = None,
    plaintext: Annotated[
        bool, typer.Option("--plaintext", help="Send the key unencrypted, also beyond this machine.")
    ] = False,
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """What holds for every command. The server comes from these options, TURNLOG_ADDRESS and TURNLOG_KEY, or a
    profile: --profile, TURNLOG_PROFILE, .turnlog/profile.json here or above, or in your configuration folder."""
    context.obj = Globals(as_json, address, key, profile, tls_ca, tls_cert, tls_key, plaintext)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and answers its exit code."""
    if os.environ.get("NO_COLOR"):
        # As in `output`: help goes without dim and bold, too. Imported only here, as typer does: it takes its time.
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None
    try:
        code = typer.main.get_command(app).main(list(arguments), prog_name="turnlog", standalone_mode=False)
        return code if isinstance(code, int) else Exit.OK
    except UsageError as error:
        error.message = plain(error.message)  # pyright: ignore[reportAttributeAccessIssue]
        if "--json" in arguments:
            told = {"message": error.format_message(), "exit_code": int(Exit.USAGE)}  # pyright: ignore[reportAttributeAccessIssue]
            print(json.dumps({"error": told}), file=sys.stderr)
        else:
            error.show()  # pyright: ignore[reportAttributeAccessIssue]
        return Exit.USAGE
    except (typer.Abort, KeyboardInterrupt):
        return Exit.CTRL_C
