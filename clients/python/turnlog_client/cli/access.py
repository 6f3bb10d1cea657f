"""`turnlog key …`, `turnlog principal …`, `turnlog service-account …`, `turnlog role …` and `turnlog pool …`"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.options import Description, Limit, RequestId, RoleName, duration, page_size, role
from turnlog_client.cli.output import shown

keys = typer.Typer(no_args_is_help=True, help="API keys.")
principals = typer.Typer(no_args_is_help=True, help="Principals: people, and what acts with their authority.")
accounts = typer.Typer(no_args_is_help=True, help="Service accounts: programs.")
roles = typer.Typer(no_args_is_help=True, help="Roles in the workspace.")
pools = typer.Typer(no_args_is_help=True, help="Runner pools.")

KeyId = Annotated[str, typer.Argument(help="key_…", metavar="KEY")]
Subject = Annotated[str, typer.Argument(help="prn_… or svc_…", metavar="SUBJECT")]
DisplayName = Annotated[str, typer.Argument(help="For people.", metavar="NAME")]
OptionalRole = Annotated[RoleName | None, typer.Option("--role", help="Its role in the workspace, at most your own.")]


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(keys, name="key")
    root.add_typer(principals, name="principal")
    root.add_typer(accounts, name="service-account")
    root.add_typer(roles, name="role")
    root.add_typer(pools, name="pool")


@command(keys, "create")
async def create_key(
    cli: Cli,
    subject: Subject,
    name: Annotated[str, typer.Option(help="For people.")],
    pool: Annotated[list[str] | None, typer.Option(help="A pool that a runner may claim from; repeatable.")] = None,
    expires_in: Annotated[str | None, typer.Option(help="How long it works, such as 12h or 30d; for ever.")] = None,
    request_id: RequestId = "",
) -> None:
    """Makes a key. This is the only time that its secret is shown."""
    answer = await cli.t.access.create_api_key(
        request_id=request_id,
        subject=subject,
        display_name=name,
        runner_pools=pool or [],
        expire_time=datetime.now(UTC) + duration(expires_in) if expires_in else None,
    )
    _show_secret(cli, answer)


@command(keys, "list")
async def list_keys(cli: Cli, limit: Limit = 50) -> None:
    """Lists keys, newest first."""
    await cli.out.rows(
        cli.t.access.list_api_keys.each(page_size=page_size(limit)),
        {
            "KEY": lambda each: each.api_key_id,
            "NAME": lambda each: each.display_name,
            "SUBJECT": lambda each: each.subject,
            "PREFIX": lambda each: each.prefix,
            "POOLS": lambda each: each.runner_pools,
            "EXPIRES": lambda each: each.expire_time,
            "REVOKED": lambda each: each.revoke_time,
        },
        limit,
    )


@command(keys, "show")
async def show_key(cli: Cli, key: KeyId) -> None:
    """Shows one key, without its secret, which nobody has."""
    cli.out.resource((await cli.t.access.get_api_key(key)).api_key)


@command(keys, "rotate")
async def rotate_key(
    cli: Cli,
    key: KeyId,
    overlap: Annotated[str | None, typer.Option(help="How long the old key still works, such as 1h.")] = None,
    request_id: RequestId = "",
) -> None:
    """Makes a new key for the same subject and pools. This is the only time that its secret is shown."""
    answer = await cli.t.access.rotate_api_key(
        request_id=request_id, api_key_id=key, overlap=duration(overlap) if overlap else None
    )
    _show_secret(cli, answer)


@command(keys, "revoke")
async def revoke_key(cli: Cli, key: KeyId, request_id: RequestId = "") -> None:
    """Ends a key at once, and the streams that it opened."""
    answer = await cli.t.access.revoke_api_key(request_id=request_id, api_key_id=key)
    cli.out.answer(answer, f"{key}  revoked")


@command(principals, "create")
async def create_principal(
    cli: Cli, name: DisplayName, role_name: OptionalRole = None, request_id: RequestId = ""
) -> None:
    """Creates a principal."""
    answer = await cli.t.access.create_principal(request_id=request_id, display_name=name, role=role(role_name))
    made = answer.principal or v1.Principal()
    cli.out.answer(answer, f"{made.principal_id}  {shown(made.role)}", made=made.principal_id)


@command(principals, "list")
async def list_principals(cli: Cli, limit: Limit = 50) -> None:
    """Lists principals, newest first."""
    await cli.out.rows(
        cli.t.access.list_principals.each(page_size=page_size(limit)),
        {
            "PRINCIPAL": lambda each: each.principal_id,
            "NAME": lambda each: each.display_name,
            "ROLE": lambda each: each.role,
            "CREATED": lambda each: each.create_time,
        },
        limit,
    )


@command(principals, "show")
async def show_principal(
    cli: Cli, principal: Annotated[str, typer.Argument(help="prn_…", metavar="PRINCIPAL")]
) -> None:
    """Shows one principal."""
    cli.out.resource((await cli.t.access.get_principal(principal)).principal)


@command(accounts, "create")
async def create_account(
    cli: Cli, name: DisplayName, role_name: OptionalRole = None, request_id: RequestId = ""
) -> None:
    """Creates a service account."""
    answer = await cli.t.access.create_service_account(request_id=request_id, display_name=name, role=role(role_name))
    made = answer.service_account or v1.ServiceAccount()
    cli.out.answer(answer, f"{made.service_account_id}  {shown(made.role)}", made=made.service_account_id)


@command(accounts, "list")
async def list_accounts(cli: Cli, limit: Limit = 50) -> None:
    """Lists service accounts, newest first."""
    await cli.out.rows(
        cli.t.access.list_service_accounts.each(page_size=page_size(limit)),
        {
            "SERVICE ACCOUNT": lambda each: each.service_account_id,
            "NAME": lambda each: each.display_name,
            "ROLE": lambda each: each.role,
            "CREATED": lambda each: each.create_time,
        },
        limit,
    )


@command(accounts, "show")
async def show_account(cli: Cli, account: Annotated[str, typer.Argument(help="svc_…", metavar="ACCOUNT")]) -> None:
    """Shows one service account."""
    cli.out.resource((await cli.t.access.get_service_account(account)).service_account)


@command(roles, "set")
async def set_role(
    cli: Cli,
    subject: Subject,
    role_name: Annotated[RoleName, typer.Argument(help="What it may do.", metavar="ROLE")],
    request_id: RequestId = "",
) -> None:
    """Gives a subject its one role in the workspace, in place of the one it has."""
    answer = await cli.t.access.set_role(request_id=request_id, subject=subject, role=role(role_name))
    cli.out.answer(answer, f"{subject}  {shown(answer.role)}")


@command(roles, "remove")
async def remove_role(cli: Cli, subject: Subject, request_id: RequestId = "") -> None:
    """Takes a subject's role away, and ends its open streams."""
    answer = await cli.t.access.remove_role(request_id=request_id, subject=subject)
    cli.out.answer(answer, f"{subject}  has no role")


@command(pools, "create")
async def create_pool(
    cli: Cli,
    name: Annotated[str, typer.Argument(help="Unique in the workspace.", metavar="NAME")],
    description: Description = "",
    request_id: RequestId = "",
) -> None:
    """Creates a runner pool."""
    answer = await cli.t.access.create_runner_pool(request_id=request_id, name=name, description=description)
    cli.out.answer(answer, name)


@command(pools, "list")
async def list_pools(cli: Cli, limit: Limit = 50) -> None:
    """Lists runner pools, by name."""
    await cli.out.rows(
        cli.t.access.list_runner_pools.each(page_size=page_size(limit)),
        {
            "POOL": lambda each: each.name,
            "DESCRIPTION": lambda each: each.description,
            "CREATED": lambda each: each.create_time,
        },
        limit,
    )


@command(pools, "show")
async def show_pool(cli: Cli, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Shows one runner pool."""
    cli.out.resource((await cli.t.access.get_runner_pool(name)).runner_pool)


def _show_secret(cli: Cli, answer: v1.CreateApiKeyResponse | v1.RotateApiKeyResponse) -> None:
    made = answer.api_key or v1.ApiKey()
    said = f"{made.api_key_id}  {answer.secret or 'made before; its secret is not kept'}"
    # The secret alone where no person reads: `turnlog key create … > FILE` makes a key file.
    cli.out.answer(answer, said, made=answer.secret)
    if answer.secret:
        cli.out.note(f"Keep the secret of {made.api_key_id} now: it is not shown again.")
