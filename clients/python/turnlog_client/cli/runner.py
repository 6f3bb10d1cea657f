"""`turnlog runner …`"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnlog_client.cli.command import Cli, command
from turnlog_client.cli.exits import Exit
from turnlog_client.cli.options import Limit, RequestId, duration, page_size, pairs
from turnlog_client.errors import InvalidRequest
from turnlog_client.messages.turnlog.runner import v1 as runner_v1

if TYPE_CHECKING:
    from turnlog_client.runner.options import Command

app = typer.Typer(no_args_is_help=True, help="Runners: what executes Runs.")


def register(root: typer.Typer) -> None:
    """Adds the commands to the root."""
    root.add_typer(app, name="runner")


@command(app, "start", connects=False)
def start(
    cli: Cli,
    harness: Annotated[
        list[str],
        typer.Option(help="PROFILE=COMMAND, the harness profile and how to start it. COMMAND `echo` is built in."),
    ],
    pool: Annotated[list[str] | None, typer.Option(help="A pool to claim from; `default` if left out.")] = None,
    capacity: Annotated[int, typer.Option(min=1, help="How many Runs at once.")] = 4,
    data_dir: Annotated[Path, typer.Option(help="The runner's own folder; its id is kept there.")] = Path(
        ".turnlog/runner"
    ),
    work_dir: Annotated[Path | None, typer.Option(help="Where harnesses get their working folders.")] = None,
    name: Annotated[str, typer.Option(help="For people; the host's name if left out.")] = "",
    key_file: Annotated[Path | None, typer.Option(help="A file that holds the key; may change.")] = None,
    drain_grace: Annotated[str, typer.Option(help="What Runs get to finish after SIGTERM.")] = "10m",
    exit_when_refused: Annotated[
        bool, typer.Option("--exit-when-refused", help="End when the server refuses the runner, with code 4 or 2.")
    ] = False,
) -> Exit:
    """Starts a runner and keeps it connected until SIGTERM or Ctrl-C, which let its Runs finish."""
    from turnlog_client.runner.daemon import run_runner
    from turnlog_client.runner.logs import configure
    from turnlog_client.runner.options import OptionsError, RunnerOptions, Tls

    configure(as_json=cli.out.as_json)
    client = cli.connect(key_elsewhere=key_file is not None)
    # Resolved for each address: there may be several.
    tls = client.tls
    try:
        options = RunnerOptions(
            address=client.profile.address,
            key="" if key_file else client.profile.key,
            key_file=key_file,
            harnesses=harness_commands(harness),
            data_dir=data_dir,
            work_dir=work_dir,
            pools=tuple(pool or ()),
            capacity=capacity,
            display_name=name,
            drain_grace=duration(drain_grace).total_seconds(),
            tls=Tls(_path(tls.ca_file), _path(tls.cert_file), _path(tls.key_file), tls.server_name or "")
            if isinstance(tls, Tls)
            else tls,
            exit_when_refused=exit_when_refused,
        )
        return Exit(cli.run(run_runner(options)))
    except OptionsError as error:
        raise InvalidRequest(str(error)) from error


@command(app, "list")
async def list_runners(cli: Cli, limit: Limit = 50) -> None:
    """Lists the workspace's runners, by id."""
    await cli.out.rows(
        cli.t.runners.list.each(page_size=page_size(limit)),
        {
            "RUNNER": lambda each: each.runner_id,
            "NAME": lambda each: each.display_name,
            "STATE": lambda each: "draining" if each.draining else "connected" if each.connected else "lost",
            "RUNS": lambda each: each.held_runs,
            "POOLS": lambda each: each.pools,
            "HARNESSES": lambda each: each.harness_profiles,
            "VERSION": lambda each: each.version,
        },
        limit,
    )


@command(app, "drain")
async def drain(
    cli: Cli,
    runner: Annotated[str, typer.Argument(help="rnr_…", metavar="RUNNER")],
    request_id: RequestId = "",
) -> None:
    """Tells a runner to take no new Runs, to end those that it holds, and to go."""
    answer = await cli.t.runners.drain(request_id=request_id, runner_id=runner)
    now = answer.runner or runner_v1.Runner()
    cli.out.answer(answer, f"{now.runner_id}  draining, {now.held_runs} held")


@command(app, "check-harness", connects=False)
def check_harness(
    cli: Cli,
    argv: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The harness and its arguments.")],
    tool: Annotated[list[str] | None, typer.Option(help="A tool that it is told it may call; repeatable.")] = None,
    message: Annotated[str, typer.Option(help="What it is asked.")] = "What can you do?",
) -> Exit:
    """Tries a harness against the protocol and says what to mend. Needs no server."""
    from turnlog_client.runner.check_harness import check_harness as check

    def on_line(line: str) -> None:
        if not cli.out.as_json:
            cli.out.say(line)

    report = cli.run(check(argv, on_line=on_line, tools=tool or (), message=message))
    if cli.out.as_json:
        for each in report.checks:
            cli.out.line(asdict(each))
        for note in report.notes:
            cli.out.note(note)
    return Exit.OK if report.passed else Exit.FAILED


def harness_commands(texts: list[str]) -> dict[str, Command]:
    """What `--harness` says. Files in it are those of the current folder: a harness runs in a folder of its own."""
    from turnlog_client.runner.command import resolve_command

    return {
        profile: "echo" if line == "echo" else tuple(resolve_command(shlex.split(line), Path.cwd()))
        for profile, line in pairs(texts, "--harness", "PROFILE=COMMAND").items()
    }


def _path(path: str | Path | None) -> Path | None:
    return Path(path) if path else None
