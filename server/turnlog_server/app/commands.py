"""`turnlog-server`: run it, look after it, make the first workspace and key."""

import json
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

# Read when gRPC is imported. Its handlers for fork would run, and may block, each time that PostgreSQL is started.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import typer

from turnlog_server.app import admin
from turnlog_server.app.check import Finding, check
from turnlog_server.app.database import database_address, database_open
from turnlog_server.app.flags import with_settings
from turnlog_server.app.logs import configure
from turnlog_server.app.loop import run
from turnlog_server.app.replay import Difference
from turnlog_server.app.settings import Settings
from turnlog_server.store.migrate import migrate

app = typer.Typer(
    name="turnlog-server",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The control plane: a replica, and what an operator needs.",
    epilog="Settings also come from TURNLOG_… variables and from the TOML file that --config names.",
)
admin.register(app)

Json = Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"turnlog-server {version('turnlog')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """What holds for every command."""


@app.command("dev")
@with_settings
def dev(
    settings: Settings,
    with_runner: Annotated[bool, typer.Option("--with-runner", help="Start a runner, too, and keep it.")] = False,
) -> None:
    """Everything for trying it out: database, workspace, keys, an agent, and a profile that `turnlog` finds."""
    from turnlog_server.app.dev import Dev
    from turnlog_server.app.serve import Node

    # What there is to say is the greeting; the rest is in the way.
    said = "log_level" in settings.model_fields_set
    configure(settings.log_level if said else "warning", settings.log_format)
    run(lambda: Node(settings, migrating=True, companion=Dev(settings, with_runner=with_runner)).run())


@app.command("serve")
@with_settings
def serve(
    settings: Settings,
    migrate_first: Annotated[
        bool, typer.Option("--migrate", help="Bring the schema up to date first; always so when it is embedded.")
    ] = False,
) -> None:
    """One replica. Any number may serve one database."""
    from turnlog_server.app.dev import Alone
    from turnlog_server.app.serve import Node

    configure(settings.log_level, settings.log_format)
    run(lambda: Node(settings, migrating=migrate_first or settings.dsn is None, companion=Alone()).run())


@app.command("migrate")
@with_settings
def migrate_schema(
    settings: Settings,
    wait: Annotated[float, typer.Option(help="Seconds to wait for a database that is not there.")] = 0.0,
) -> None:
    """Bring the schema of the database up to date. Any number may do so at once."""
    configure(settings.log_level, settings.log_format)

    async def work() -> None:
        async with database_address(settings) as dsn:
            report = await migrate(dsn, wait=wait)
        for step in report.applied:
            print(step)
        print(f"The schema is up to date: {len(report.applied)} steps applied, {len(report.already)} were there.")

    run(work)


@app.command("check")
@with_settings
def look(
    settings: Settings,
    replay: Annotated[
        bool, typer.Option("--replay", help="Fold every log and compare it with what is stored beside it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Name what is wrong, and the command that mends it. Exit code 1 if something is."""
    # What a look finds wrong is a finding. A replay has none: why it cannot begin, the log says.
    configure("warning" if replay else "error", settings.log_format)
    if not (run(lambda: _replay(settings, as_json)) if replay else run(lambda: _check(settings, as_json))):
        raise typer.Exit(1)


@app.command("healthcheck")
@with_settings
def healthcheck(
    settings: Settings,
    liveness: Annotated[bool, typer.Option(help="Ask for the process alone, not for its database.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds.")] = 3.0,
) -> None:
    """Exit code 0 if the server that listens here serves. For containers."""
    from turnlog_server.app.probe import healthy

    configure("error", settings.log_format)
    if not run(lambda: healthy(settings, liveness=liveness, seconds=timeout)):
        says = f"not serving: nothing that is ready answers at {settings.listen}; `turnlog-server check` may say why"
        typer.echo(says, err=True)
        raise typer.Exit(1)


@app.command("config")
@with_settings
def config(settings: Settings) -> None:
    """Show the settings in force, as TOML. Secrets are hidden."""
    for name, value in settings:
        if value not in (None, ""):
            print(f"{name} = {json.dumps(value if isinstance(value, (bool, int, float)) else str(value))}")


async def _check(settings: Settings, as_json: bool) -> bool:
    ok = True
    async for finding in check(settings):
        ok = ok and finding.ok
        _show(finding, as_json)
    return ok


def _show(finding: Finding, as_json: bool) -> None:
    if as_json:
        line: dict[str, Any] = {"name": finding.name, "ok": finding.ok, "says": finding.says}
        print(json.dumps(line | ({"mend": finding.mend} if finding.mend else {})))
        return
    mark = "ok   " if finding.ok else "WRONG"
    print(f"{mark} {finding.name:<12} {finding.says}")
    if finding.mend:
        print(f"      {'':<12} → {finding.mend}")


async def _replay(settings: Settings, as_json: bool) -> bool:
    from turnlog_server.app.replay_run import replay

    def report(difference: Difference) -> None:
        if as_json:
            shown = {"guarantee": difference.guarantee, "session_id": difference.session_id, "what": difference.what}
            print(json.dumps(shown))
        else:
            print(f"{difference.guarantee}  {difference.session_id}  {difference.what}")

    async with database_open(settings) as database:
        done = await replay(database, report)
    summary = (
        f"{done.sessions} Sessions, {done.events} events, {done.differences} differences"
        f"{f', {done.skipped} Sessions moved all the time' if done.skipped else ''}"
    )
    print(summary, file=sys.stderr if as_json else sys.stdout)
    return not done.differences
