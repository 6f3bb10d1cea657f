"""`turnlog run …`"""

from __future__ import annotations

import typer

from turnlog_client import v1
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.options import Limit, Reason, RequestId, RunId, SessionId, page_size
from turnlog_client.cli.output import shown

app = typer.Typer(no_args_is_help=True, help="Runs: the executions of a Session's turns.")


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="run")


@command(app, "list")
async def list_runs(cli: Cli, session: SessionId, limit: Limit = 50) -> None:
    """Lists a Session's Runs, newest first."""
    await cli.out.rows(
        cli.t.runs.list.each(session, page_size=page_size(limit)),
        {
            "RUN": lambda each: each.run_id,
            "STATUS": lambda each: each.status,
            "ATTEMPT": lambda each: each.attempt_no or "",
            "CREATED": lambda each: each.create_time,
            "ENDED": lambda each: each.end_time,
            "WHY": lambda each: each.error.code if each.error else each.pending_reason,
        },
        limit,
    )


@command(app, "show")
async def show(cli: Cli, session: SessionId, run: RunId) -> None:
    """Shows one Run, and why it has not started if it has not."""
    cli.out.resource((await cli.t.runs.get(session, run)).run)


@command(app, "attempts")
async def attempts(cli: Cli, session: SessionId, run: RunId, limit: Limit = 50) -> None:
    """Lists a Run's attempts, oldest first."""
    await cli.out.rows(
        cli.t.runs.list_attempts.each(session, run, page_size=page_size(limit)),
        {
            "ATTEMPT": lambda each: each.attempt_no,
            "KIND": lambda each: each.kind,
            "STATUS": lambda each: each.status,
            "RUNNER": lambda each: each.runner_id,
            "ACCEPTED": lambda each: each.accept_time,
            "ENDED": lambda each: each.end_time,
            "WHY": lambda each: each.error.code if each.error else "",
        },
        limit,
    )


@command(app, "cancel")
async def cancel(cli: Cli, session: SessionId, run: RunId, reason: Reason = "", request_id: RequestId = "") -> None:
    """Cancels one Run, in whatever state it is. The Session stays open."""
    answer = await cli.t.runs.cancel(request_id=request_id, session_id=session, run_id=run, reason=reason)
    now = answer.run or v1.Run()
    cli.out.answer(answer, f"{now.run_id}  {shown(now.status)}")
