"""`turnlog session …`"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import Annotated, Literal

import typer

from turnlog_client import v1
from turnlog_client.cli import chat
from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.exits import Exit
from turnlog_client.cli.names import starting_deployment_id
from turnlog_client.cli.options import (
    ActingPrincipal,
    AgentDeployment,
    Labels,
    Limit,
    Reason,
    RequestId,
    SessionId,
    duration,
    page_size,
    pairs,
    worth_saying,
)
from turnlog_client.cli.output import shown
from turnlog_client.cli.transcript import Transcript
from turnlog_client.cli.watch import Quiet, Watch, exit_of_run, exit_of_session, view_for
from turnlog_client.errors import InvalidRequest

app = typer.Typer(no_args_is_help=True, help="Sessions: durable conversations with an agent.")


class StatusName(StrEnum):
    """The statuses, as people type them."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    RECONCILING = "reconciling"
    IDLE = "idle"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


Text = Annotated[str, typer.Argument(help="What to say; - reads it from stdin.", metavar="TEXT")]
IfBusyName = Literal["enqueue", "reject", "interrupt"]
Types = Annotated[
    list[str] | None, typer.Option("--type", help="Only these event types, such as agent.message; repeatable.")
]
AfterSeq = Annotated[int, typer.Option(min=0, help="Only events after this seq; 0 is the start.")]

_ENDED = {"completed", "failed", "canceled"}


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    chat.register(app)
    root.add_typer(app, name="session")


def text_of(text: str) -> str:
    """The text, or stdin where it is `-`. Raises InvalidRequest where there is none."""
    return worth_saying(sys.stdin.read() if text == "-" else text)


@command(app, "create")
async def create(
    cli: Cli,
    agent_deployment: AgentDeployment = "",
    principal: ActingPrincipal = "",
    message: Annotated[str | None, typer.Option(help="The first message, which starts the first turn.")] = None,
    label: Labels = None,
    one_shot: Annotated[
        bool, typer.Option("--one-shot", help="Take one turn only: its success completes the Session.")
    ] = False,
    revision: Annotated[int | None, typer.Option(help="The revision; the current one if left out.")] = None,
    request_id: RequestId = "",
) -> None:
    """Creates a Session, and starts its first turn where there is a message.

    Where no terminal reads it, the Session's id is all that is printed.
    """
    made = await cli.t.sessions.create(
        await starting_deployment_id(cli, agent_deployment),
        principal=principal,
        first_message=text_of(message) if message is not None else None,
        labels=pairs(label, "--label"),
        reusable=False if one_shot else None,
        revision_number=revision,
        request_id=request_id,
    )
    session = made.session or v1.Session()
    said = "  ".join(each for each in (session.session_id, made.run_id, shown(session.status)) if each)
    cli.out.answer(made, said, made=session.session_id)


@command(app, "list")
async def list_sessions(
    cli: Cli,
    label: Labels = None,
    status: Annotated[list[StatusName] | None, typer.Option(help="Only in this status; repeatable.")] = None,
    limit: Limit = 50,
) -> None:
    """Lists Sessions, newest first."""
    wanted = [v1.SessionStatus[each.name] for each in status or ()]
    labels = pairs(label, "--label")
    await cli.out.rows(
        cli.t.sessions.list.each(labels=labels, statuses=wanted, page_size=page_size(limit)),
        {
            "SESSION": lambda each: each.session_id,
            "STATUS": lambda each: each.status,
            "SEQ": lambda each: each.head_seq,
            "QUEUED": lambda each: each.queued_turns or "",
            "UPDATED": lambda each: each.update_time,
            "LABELS": lambda each: each.labels,
        },
        limit,
    )


@command(app, "show")
async def show(cli: Cli, session: SessionId) -> None:
    """Shows one Session."""
    cli.out.resource((await cli.t.sessions.get(session)).session)


@command(app, "steer")
async def steer(
    cli: Cli,
    session: SessionId,
    text: Text,
    principal: ActingPrincipal = "",
    if_busy: Annotated[IfBusyName | None, typer.Option(help="While a turn is active; enqueue if left out.")] = None,
    expected_head_seq: Annotated[int | None, typer.Option(min=0, help="Only if this is the newest event.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Show the turn until it ends.")] = False,
    request_id: RequestId = "",
) -> Exit | None:
    """Says something to a Session, which starts a turn."""
    answer = await cli.t.sessions.steer(
        session,
        text_of(text),
        principal=principal,
        if_busy=v1.IfBusy[if_busy.upper()] if if_busy else v1.IfBusy.UNSPECIFIED,
        expected_head_seq=expected_head_seq,
        request_id=request_id,
    )
    blocked = f"  waits behind {answer.blocked_by}, which needs an answer" if answer.blocked_by else ""
    cli.out.answer(answer, f"{answer.run_id}  seq {answer.seq}{blocked}")
    if not follow:
        return None
    view = view_for(cli)
    if isinstance(view, Transcript):
        view.hidden.add(answer.seq)
    return await Watch(cli, session, view).follow(until=answer, previews=cli.out.live)


@command(app, "events")
async def events(cli: Cli, session: SessionId, after_seq: AfterSeq = 0, type: Types = None, limit: Limit = 100) -> None:
    """Lists what is in the log now."""
    await cli.out.rows(
        cli.t.events.list.each(session, after_seq=after_seq, types=type or [], page_size=page_size(limit)),
        {
            "SEQ": lambda each: each.seq,
            "TIME": lambda each: each.create_time,
            "TYPE": lambda each: each.type,
            "RUN": lambda each: each.run_id,
        },
        limit,
    )


@command(app, "follow")
async def follow(
    cli: Cli,
    session: SessionId,
    until_boundary: Annotated[
        bool, typer.Option("--until-boundary", help="Stop at the end of the turn; the exit code says how it ended.")
    ] = False,
    until: Annotated[
        Literal["turn", "action_required", "terminal"] | None,
        typer.Option(help="Stop at this boundary; at `terminal` if left out."),
    ] = None,
    run: Annotated[str | None, typer.Option(help="Stop when this Run's turn ends, run_…", metavar="RUN")] = None,
    after_seq: AfterSeq = 0,
    type: Types = None,
    previews: Annotated[
        bool | None, typer.Option(help="Show text in the making; by default where a person looks.")
    ] = None,
) -> Exit | None:
    """Shows a Session's events and goes on live; survives whatever happens to the connection."""
    if run is not None and not run.startswith("run_"):
        raise InvalidRequest(f"{run!r} is not a Run's id.")
    boundary = run or until or ("turn" if until_boundary else "terminal")
    live = cli.out.live if previews is None else previews
    return await Watch(cli, session, view_for(cli)).follow(
        after_seq=after_seq, types=type or (), until=boundary, previews=live
    )


@command(app, "wait")
async def wait(
    cli: Cli,
    session: SessionId,
    run: Annotated[str | None, typer.Option(help="Wait for this Run, run_…", metavar="RUN")] = None,
    timeout: Annotated[str | None, typer.Option(help="Give up after this, such as 90s or 15m.")] = None,
) -> Exit:
    """Waits until no turn is active, and says by its exit code how the last one, or the Run, ended."""
    limit = duration(timeout).total_seconds() if timeout else None
    try:
        async with asyncio.timeout(limit):
            return await _wait(cli, session, run)
    except TimeoutError:
        cli.out.note(f"{session} is still at work after {timeout}.", session_id=session)
        return Exit.UNAVAILABLE


async def _wait(cli: Cli, session_id: str, run_id: str | None) -> Exit:
    watch = Watch(cli, session_id, Quiet(cli.out.stderr))
    while True:
        session = (await cli.t.sessions.get(session_id)).session or v1.Session()
        if run_id:
            run = (await cli.t.runs.get(session_id, run_id)).run or v1.Run()
            if run.end_time:
                cli.out.resource(run)
                return exit_of_run(run)
        elif shown(session.status) in {"idle", *_ENDED}:
            cli.out.resource(session)
            return exit_of_session(session)
        # Read first, then follow from what was read: a turn that ends in between is seen by the follow.
        await watch.follow(after_seq=session.head_seq, until=run_id or "turn")


@command(app, "interrupt")
async def interrupt(
    cli: Cli,
    session: SessionId,
    reason: Reason = "",
    run: Annotated[str, typer.Option(help="Only if this Run is the active one, run_…", metavar="RUN")] = "",
    principal: ActingPrincipal = "",
    request_id: RequestId = "",
) -> None:
    """Stops the turn in progress. The Session stays open."""
    answer = await cli.t.sessions.interrupt(
        session, reason=reason, run_id=run, principal=principal, request_id=request_id
    )
    cli.out.answer(answer, f"{answer.run_id or 'no turn was active'}  seq {answer.seq}")


@command(app, "cancel")
async def cancel(cli: Cli, session: SessionId, reason: Reason = "", request_id: RequestId = "") -> None:
    """Ends a Session as canceled, whatever its turn does."""
    answer = await cli.t.sessions.cancel(session, reason=reason, request_id=request_id)
    cli.out.answer(answer, _line(answer.session))


@command(app, "complete")
async def complete(cli: Cli, session: SessionId, request_id: RequestId = "") -> None:
    """Ends an idle Session as completed."""
    answer = await cli.t.sessions.complete(session, request_id=request_id)
    cli.out.answer(answer, _line(answer.session))


@command(app, "delete")
async def delete(
    cli: Cli,
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    request_id: RequestId = "",
) -> None:
    """Deletes an idle or ended Session for good. Asks first; without a terminal to ask on, --yes has to be given."""
    if not yes:
        if not (cli.out.live and sys.stdin.isatty()):
            raise InvalidRequest(f"Nobody can be asked whether to delete {session} for good: say --yes.")
        typer.confirm(f"Delete {session} and its log for good?", abort=True)
    answer = await cli.t.sessions.delete(session, request_id=request_id)
    cli.out.answer(answer, f"{session}  deleted")


def _line(session: v1.Session | None) -> str:
    return f"{session.session_id}  {shown(session.status)}  seq {session.head_seq}" if session else ""
