"""`turnlog-server workspace …` and `turnlog-server key …`: what nobody can do over gRPC before there is a key."""

import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from turnlog_server.app.database import database_open
from turnlog_server.app.flags import with_settings
from turnlog_server.app.logs import configure
from turnlog_server.app.loop import run
from turnlog_server.app.settings import Settings
from turnlog_server.domain.access import Role
from turnlog_server.domain.names import known
from turnlog_server.domain.workspace import SubjectKind, Workspace
from turnlog_server.service import bootstrap
from turnlog_server.store import access as stored
from turnlog_server.store.connections import Connection
from turnlog_server.store.database import Database
from turnlog_server.store.execute import reading, within
from turnlog_server.store.workspaces import workspace_list

workspaces = typer.Typer(no_args_is_help=True, help="Workspaces: the tenants of a database.")
keys = typer.Typer(no_args_is_help=True, help="API keys.")

Named = Annotated[str, typer.Argument(metavar="WORKSPACE", help="Its name or ws_… id.")]
RoleName = Literal["manager", "publisher", "contributor", "viewer", "runner"]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(workspaces, name="workspace")
    root.add_typer(keys, name="key")


@workspaces.command("create")
@with_settings
def create(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    as_json: Json = False,
) -> None:
    """Make a workspace with its first manager, and show the manager's key, once."""

    async def work(db: Database) -> None:
        issued = await bootstrap.workspace_create(db, name)
        answer = {
            "workspace_id": issued.workspace.workspace_id,
            "name": issued.workspace.name,
            "subject": issued.manager.subject_id,
            "api_key_id": issued.api_key.api_key_id,
            "key": issued.secret,
        }
        _answer(answer, as_json)

    _with_database(settings, work)


@workspaces.command("list")
@with_settings
def list_all(settings: Settings, as_json: Json = False) -> None:
    """List all workspaces, by name."""

    async def work(db: Database) -> None:
        for workspace in await workspace_list(db):
            if as_json:
                print(json.dumps(asdict(workspace)))
            else:
                print(_line(workspace))

    _with_database(settings, work)


@workspaces.command("set-limit")
@with_settings
def set_limit(
    settings: Settings,
    workspace: Named,
    max_concurrent_runs: Annotated[
        str, typer.Argument(metavar="LIMIT", help="Runs that may hold a runner at once, or `none`.")
    ],
    as_json: Json = False,
) -> None:
    """Bound how many Runs of a workspace may hold a runner at once."""
    if max_concurrent_runs != "none" and not max_concurrent_runs.isdigit():
        says = f"{max_concurrent_runs!r} is neither a whole number nor `none`, which stands for no bound"
        raise typer.BadParameter(says, param_hint="LIMIT")
    limit = None if max_concurrent_runs == "none" else int(max_concurrent_runs)

    async def work(db: Database) -> None:
        found = await _workspace(db, workspace)

        async def body(conn: Connection) -> Workspace | None:
            return await stored.workspace_limit(within(conn), found.workspace_id, limit)

        changed = known(await db.run("workspace_limit", body), "workspace", workspace)
        print(json.dumps(asdict(changed)) if as_json else _line(changed))

    _with_database(settings, work)


@keys.command("create")
@with_settings
def key_create(
    settings: Settings,
    workspace: Named,
    subject: Annotated[
        str, typer.Option(help="Whom it speaks for, prn_… or svc_…; a new service account if left out.")
    ] = "",
    role: Annotated[RoleName, typer.Option(help="Of a new subject.")] = "manager",
    person: Annotated[
        bool, typer.Option("--person", help="The new subject is a person, not a service account.")
    ] = False,
    name: Annotated[str, typer.Option(help="For people.")] = "",
    runner_pool: Annotated[list[str] | None, typer.Option(help="A pool that a runner with it may claim from.")] = None,
    expires_in_days: Annotated[float, typer.Option(help="0 for never.", min=0)] = 0.0,
    as_json: Json = False,
) -> None:
    """Make a key and show it, once."""
    expires = datetime.now(UTC) + timedelta(days=expires_in_days) if expires_in_days else None

    async def work(db: Database) -> None:
        issued = await bootstrap.key_create(
            db,
            workspace,
            subject=subject,
            kind=SubjectKind.PRINCIPAL if person else SubjectKind.SERVICE_ACCOUNT,
            role=Role[role.upper()],
            display_name=name,
            runner_pools=runner_pool or (),
            expire_time=int(expires.timestamp() * 1_000_000) if expires is not None else None,
        )
        answer = {
            "subject": issued.subject.subject_id,
            "role": issued.subject.role.value,
            "api_key_id": issued.api_key.api_key_id,
            "key": issued.secret,
        }
        _answer(answer, as_json)

    _with_database(settings, work)


def _with_database(settings: Settings, work: Any) -> None:
    configure("warning", settings.log_format)

    async def opened() -> None:
        async with database_open(settings) as db:
            await work(db)

    run(opened)


async def _workspace(db: Database, wanted: str) -> Workspace:
    execute = reading(db, "workspace_find")
    found = await stored.workspace_named(execute, wanted) or await stored.workspace_find(execute, wanted)
    return known(found, "workspace", wanted)


def _line(workspace: Workspace) -> str:
    limit = "no limit" if workspace.max_concurrent_runs is None else f"at most {workspace.max_concurrent_runs} Runs"
    return f"{workspace.workspace_id}  {workspace.name:<24} {limit}"


def _answer(answer: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer))
        return
    shown = dict(answer)
    # The key alone where no person reads: `turnlog-server key create … > FILE` makes a key file.
    beside = not sys.stdout.isatty()
    if beside:
        print(shown.pop("key"))
    for name, value in shown.items():
        typer.echo(f"{name:<14} {value}", err=beside)
    typer.echo("The key is shown this once: keep it where only its user can read it.", err=beside)
