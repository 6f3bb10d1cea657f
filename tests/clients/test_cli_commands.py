"""The command line against a scripted server: flags, answers, exit codes."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
import typer
from grpc import StatusCode
from scripted import (
    APPENDED,
    CREATED,
    SESSION,
    Refusal,
    ScriptedServer,
    batch,
    script,
    status_event,
    turn,
)
from terminal import on_terminal, turnlog
from turnlog.runner.v1 import runner_pb2, runner_service_pb2
from turnlog.v1 import (
    access_pb2,
    access_service_pb2,
    agent_service_pb2,
    event_service_pb2,
    run_pb2,
    run_service_pb2,
    session_pb2,
    session_service_pb2,
)
from turnlog_client.cli import main
from turnlog_client.cli.app import app
from turnlog_client.cli.exits import MEANINGS, Exit
from turnlog_client.cli.options import duration


@pytest.mark.rule("R13a")
async def test_the_named_commands_and_flags_are_rpcs_of_the_contract(scripted: ScriptedServer) -> None:
    scripted.on("CreateSession", CREATED)
    scripted.on("AppendEvent", APPENDED)
    scripted.on("FollowEvents", script(*turn()))
    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=SESSION))
    made = await turnlog(scripted, "session", "create", "--agent-deployment", "adep_1", "--principal", "prn_1")
    assert (made.code, made.out) == (0, "sess_1\n")
    steered = await turnlog(scripted, "session", "steer", "sess_1", "hello", "--principal", "prn_1")
    assert (steered.code, steered.out) == (0, "run_1  seq 4\n")
    followed = await turnlog(scripted, "session", "follow", "sess_1", "--until-boundary")
    assert followed.code == 0
    assert "It is in retry.py." in followed.out
    chatted = await turnlog(scripted, "session", "chat", "sess_1", stdin="hello\n")
    assert chatted.code == 0
    [create] = scripted.requests("CreateSession")
    assert (create.agent_deployment_id, create.principal) == ("adep_1", "prn_1")
    assert [each.principal for each in scripted.requests("AppendEvent")] == ["prn_1", ""]
    [until_turn, until_run] = [each.until for each in scripted.requests("FollowEvents")]
    assert (until_turn.boundary, until_turn.run_id) == (event_service_pb2.FollowUntil.BOUNDARY_TURN, "")
    assert until_run.run_id == "run_1"


async def test_a_create_prints_the_id_alone_where_no_person_reads(scripted: ScriptedServer) -> None:
    scripted.on("CreateSession", CREATED)
    arguments = ["session", "create", "--agent-deployment", "adep_1"]
    # As a CI system does that wants colours: it is a pipe all the same.
    assert (await turnlog(scripted, *arguments, FORCE_COLOR="1")).out == "sess_1\n"
    assert "sess_1  run_1  pending" in await on_terminal(scripted, *arguments)
    assert (await turnlog(scripted, *arguments, "--json")).lines[0]["run_id"] == "run_1"


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["session", "steer", "sess_1", ""], ""),
        (["session", "steer", "sess_1", " \n"], ""),
        (["session", "steer", "sess_1", "-"], "\n"),
        (["session", "create", "--agent-deployment", "adep_1", "--message", ""], ""),
        (["session", "chat", "sess_1", ""], ""),
        (["session", "chat", "--new", "  "], ""),
    ],
)
async def test_nothing_said_starts_no_turn(scripted: ScriptedServer, arguments: list[str], stdin: str) -> None:
    done = await turnlog(scripted, *arguments, stdin=stdin)
    assert (done.code, done.out) == (2, "")
    assert "give a text" in done.err
    assert not scripted.received


async def test_what_is_advised_about_a_busy_session_can_be_typed(scripted: ScriptedServer) -> None:
    busy = Refusal(StatusCode.FAILED_PRECONDITION, "SESSION_BUSY", run_id="run_9")
    scripted.on("CompleteSession", busy)
    done = await turnlog(scripted, "session", "complete", "sess_1")
    assert done.code == 5
    assert "turnlog session wait ID" in done.err
    assert "turnlog run cancel ID RUN" in done.err
    assert "--if-busy" not in done.err


@pytest.mark.parametrize(
    ("refusal", "code", "told"),
    [
        (Refusal(StatusCode.NOT_FOUND, "NOT_FOUND", resource="session"), 3, "turnlog server info"),
        (Refusal(StatusCode.PERMISSION_DENIED, "PERMISSION_MISSING", verb="READ"), 4, "turnlog role set"),
        (Refusal(StatusCode.UNAUTHENTICATED, "CREDENTIAL_EXPIRED"), 4, "turnlog key create"),
        (Refusal(StatusCode.FAILED_PRECONDITION, "SESSION_BUSY", run_id="run_9"), 5, "turnlog session wait"),
        (Refusal(StatusCode.UNAVAILABLE, "SERVER_DRAINING", retry_after=60.0), 6, "Try again"),
        (Refusal(StatusCode.INTERNAL, "INTERNAL", call_id="r1"), 1, "the call_id"),
        (
            Refusal(StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", fields={"session_id": "must start so"}),
            2,
            "must start so",
        ),
    ],
    ids=lambda value: value.code.name if isinstance(value, Refusal) else "",
)
async def test_a_refusal_says_what_happened_and_what_to_do(
    scripted: ScriptedServer, refusal: Refusal, code: int, told: str
) -> None:
    scripted.on("GetSession", refusal)
    plain = await turnlog(scripted, "session", "show", "sess_1")
    assert (plain.code, plain.out) == (code, "")
    assert "error: refused" in plain.err
    assert told in plain.err
    machine = await turnlog(scripted, "session", "show", "sess_1", "--json")
    assert (machine.code, machine.out) == (code, "")
    assert machine.error["reason"] in plain.err
    assert machine.error["exit_code"] == code


async def test_a_server_that_is_not_there(scripted: ScriptedServer) -> None:
    done = await turnlog(scripted, "--address", "127.0.0.1:9", "--key", "tlk_k", "session", "show", "sess_1", "--json")
    assert done.code == 6
    assert "127.0.0.1:9" in done.error["next"]


async def test_lists_are_json_lines_over_all_pages_or_one_table(scripted: ScriptedServer) -> None:
    def page(request: session_service_pb2.ListSessionsRequest, context: object) -> Any:
        number = int(request.page_token or 0)
        made = session_pb2.Session(
            session_id=f"sess_{number}", status="SESSION_STATUS_IDLE", head_seq=2**60, labels={"team": "a b"}
        )
        made.update_time.seconds = 1_700_000_000
        return session_service_pb2.ListSessionsResponse(sessions=[made], next_page_token=str(number + 1))

    scripted.on("ListSessions", page)
    arguments = ["session", "list", "--label", "team=a b", "--status", "idle", "--limit", "3"]
    machine = await turnlog(scripted, *arguments, "--json")
    assert machine.code == 0
    assert [each["session_id"] for each in machine.lines] == ["sess_0", "sess_1", "sess_2"]
    assert machine.lines[0]["status"] == "SESSION_STATUS_IDLE"
    assert machine.lines[0]["head_seq"] == str(2**60), "as proto JSON has it"
    assert json.loads(machine.err)["limit"] == 3, "what is left out is said"
    plain = await turnlog(scripted, *arguments)
    assert [line.split()[:2] for line in plain.out.splitlines()[1:]] == [[f"sess_{n}", "idle"] for n in range(3)]
    assert "\x1b" not in plain.out
    for told in (plain.out, (await turnlog(scripted, "session", "list", "--limit", "1", FORCE_COLOR="1")).out):
        assert not re.search(r" (\x1b\[[0-9;]*m)*$", told, re.MULTILINE), "no space ends a line"
    request = scripted.requests("ListSessions")[0]
    assert (dict(request.labels), list(request.statuses), request.page_size) == ({"team": "a b"}, [7], 3)


async def test_answers_of_changes_are_whole_for_machines(scripted: ScriptedServer) -> None:
    key = access_pb2.ApiKey(api_key_id="key_1", subject="prn_1")
    scripted.on("CreateApiKey", access_service_pb2.CreateApiKeyResponse(api_key=key, secret="tlk_secret"))
    arguments = ["key", "create", "prn_1", "--name", "laptop", "--expires-in", "30d", "--pool", "gpu"]
    machine = await turnlog(scripted, *arguments, "--json", "--request-id", "mine")
    assert machine.lines == [{"api_key": {"api_key_id": "key_1", "subject": "prn_1"}, "secret": "tlk_secret"}]
    plain = await turnlog(scripted, *arguments)
    assert plain.out == "tlk_secret\n", "a key file"
    assert "key_1" in plain.err
    assert "key_1  tlk_secret" in await on_terminal(scripted, *arguments)
    first, second, _ = scripted.requests("CreateApiKey")
    assert first.request_id == "mine"
    assert second.request_id != "mine"
    assert first.HasField("expire_time")
    assert list(first.runner_pools) == ["gpu"]


def test_ctrl_c_while_the_program_is_still_loading_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: object = None) -> None:
            if fullname == "turnlog_client.cli.app":
                raise KeyboardInterrupt

    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
    monkeypatch.delitem(sys.modules, "turnlog_client.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--address", "127.0.0.1"], "name one, such as 127.0.0.1:7777"),
        (["--address", "::1"], "name one, such as 127.0.0.1:7777"),
        (["--tls-ca", "/nope"], "--tls-ca"),
        (["--status", "Idle"], "'--status': 'Idle' is not one of"),
        (["--limit", "-1"], "'--limit': must be at least 0"),
        (["--limit", "many"], "'--limit': must be a whole number"),
    ],
)
async def test_what_was_typed_wrong_is_named(scripted: ScriptedServer, arguments: list[str], says: str) -> None:
    own = {"--status", "--limit"} & {*arguments}
    where = [[], arguments] if own else [arguments, []]
    done = await turnlog(scripted, *where[0], "session", "list", *where[1], "--json")
    assert done.code == 2
    assert says in done.error["message"]


async def test_nothing_is_deleted_unasked(scripted: ScriptedServer) -> None:
    scripted.on("DeleteSession", session_service_pb2.DeleteSessionResponse())
    unasked = await turnlog(scripted, "session", "delete", "sess_1")
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert not scripted.requests("DeleteSession")
    assert (await turnlog(scripted, "session", "delete", "sess_1", "--yes")).out == "sess_1  deleted\n"


async def test_publishing_reads_files(scripted: ScriptedServer, tmp_path: Path) -> None:
    scripted.on("PublishAgentVersion", agent_service_pb2.PublishAgentVersionResponse())
    (tmp_path / "told.md").write_text("Be short.\n")
    schema = {"type": "object", "properties": {"query": {"type": "string"}}}
    (tmp_path / "tools.json").write_text(json.dumps([{"name": "read", "parameters": schema}]))
    done = await turnlog(
        scripted, "agent", "publish", "agt_1", "--instructions-file", "told.md", "--tool", "search=Finds text",
        "--tools-file", "tools.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    [request] = scripted.requests("PublishAgentVersion")
    assert request.instructions == "Be short.\n"
    assert [(tool.name, tool.description) for tool in request.tools] == [("search", "Finds text"), ("read", "")]
    assert request.tools[1].parameters["type"] == "object"
    broken = await turnlog(scripted, "agent", "publish", "agt_1", "--tools-file", "told.md", cwd=tmp_path)
    assert broken.code == 2
    missing = await turnlog(scripted, "agent", "publish", "agt_1", "--instructions-file", "none", cwd=tmp_path)
    assert (missing.code, "none" in missing.err) == (2, True)


async def test_run_show_says_why_it_is_pending(scripted: ScriptedServer) -> None:
    run = run_pb2.Run(run_id="run_1", status="RUN_STATUS_READY", pending_reason="no runner is connected")
    scripted.on("GetRun", run_service_pb2.GetRunResponse(run=run))
    done = await turnlog(scripted, "run", "show", "sess_1", "run_1")
    assert "no runner is connected" in done.out
    assert "ready" in done.out


async def test_runners_are_listed_and_drained(scripted: ScriptedServer) -> None:
    runner = runner_pb2.Runner(runner_id="rnr_1", connected=True, pools=["default"], held_runs=2)
    scripted.on("ListRunners", runner_service_pb2.ListRunnersResponse(runners=[runner]))
    scripted.on("DrainRunner", runner_service_pb2.DrainRunnerResponse(runner=runner))
    listed = await turnlog(scripted, "runner", "list")
    assert "connected" in listed.out
    assert (await turnlog(scripted, "runner", "list", "--json")).lines[0]["runner_id"] == "rnr_1"
    assert (await turnlog(scripted, "runner", "drain", "rnr_1")).out == "rnr_1  draining, 2 held\n"


async def test_a_profile_is_found_and_an_unsafe_one_refused(scripted: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / ".turnlog" / "profile.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"address": scripted.address, "key": "tlk_p", "agent_deployment_id": "adep_p"}))
    path.chmod(0o644)
    refused = await turnlog(None, "session", "create", cwd=tmp_path)
    assert (refused.code, f"chmod 600 {path}" in refused.err) == (2, True)
    path.chmod(0o600)
    scripted.on("CreateSession", CREATED)
    assert (await turnlog(None, "session", "create", cwd=tmp_path)).code == 0
    [call] = scripted.received
    assert (call.request.agent_deployment_id, call.metadata["authorization"]) == ("adep_p", "Bearer tlk_p")


async def test_colour_only_where_a_person_looks(scripted: ScriptedServer) -> None:
    preview = event_service_pb2.FollowEventsResponse(preview=event_service_pb2.Preview(attempt_no=1, text="It is"))
    running = batch(status_event(4, "running", active_run_id="run_1"))
    scripted.on("FollowEvents", script(running, preview, *turn()))
    arguments = ["session", "follow", "sess_1", "--until-boundary"]
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert coloured.search(await on_terminal(scripted, *arguments))
    assert "\x1b" not in await on_terminal(scripted, *arguments, NO_COLOR="1")
    assert "\x1b" not in (await turnlog(scripted, *arguments)).out
    assert [each.previews for each in scripted.requests("FollowEvents")] == [True, True, False]
    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=SESSION))
    for shown in (["session", "show", "sess_1"], ["--help"]):
        assert "\x1b[2m" in await on_terminal(scripted, *shown)
        assert "\x1b" not in await on_terminal(scripted, *shown, NO_COLOR="1")


async def test_usage_errors_are_two_and_json_where_asked(scripted: ScriptedServer) -> None:
    plain = await turnlog(scripted, "session", "steer", "sess_1")
    assert (plain.code, "TEXT" in plain.err) == (2, True)
    machine = await turnlog(scripted, "session", "nothing", "--json")
    assert machine.error["exit_code"] == 2
    assert (await turnlog(scripted, "key", "rotate", "key_1", "--overlap", "soon")).code == 2
    assert (await turnlog(scripted, "session", "create", "--label", "x")).code == 2


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_every_command_has_json_and_help() -> None:
    for path, command in COMMANDS.items():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {"--json", "--address", "--key", "--profile"} <= flags, path
        assert command.help, path


def test_changing_commands_take_a_request_id() -> None:
    reading = {"list", "show", "events", "follow", "wait", "chat", "attempts", "versions", "version", "revisions",
               "revision", "info", "start", "check-harness"}  # fmt: skip
    for path, command in COMMANDS.items():
        if path[-1] not in reading:
            assert "--request-id" in {flag for parameter in command.params for flag in parameter.opts}, path


def test_exit_codes_are_one_table() -> None:
    assert set(MEANINGS) == set(Exit)
    assert [int(code) for code in Exit] == [0, 1, 2, 3, 4, 5, 6, 7, 130]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("15m", 900), ("1.5h", 5400), ("30d", 2592000)])
def test_durations(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)
