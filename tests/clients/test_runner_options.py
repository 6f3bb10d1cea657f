"""What a runner is started with, its folder, and its log."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from turnlog_client.cli.runner import harness_commands
from turnlog_client.runner.daemon import run_runner
from turnlog_client.runner.events import EventError, runner_event
from turnlog_client.runner.folder import RunnerFolder
from turnlog_client.runner.logs import About, JsonFormatter, TextFormatter
from turnlog_client.runner.options import OptionsError, RunnerOptions


def options(**changed: Any) -> RunnerOptions:
    return RunnerOptions(**{"address": "a:1", "harnesses": {"echo": "echo"}, "data_dir": Path("x")} | changed)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"address": " , "}, "needs the server's address"),
        ({"address": "a:1,b"}, "'b' names no port"),
        ({"harnesses": {}}, "at least one harness"),
        ({"harnesses": {"repo": "python agent.py"}}, "list of arguments"),
        ({"harnesses": {"repo": []}}, "is empty"),
        ({"capacity": 0}, "between 1 and 1000"),
        ({"capacity": 1001}, "between 1 and 1000"),
    ],
)
def test_wrong_options_say_what_to_do(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        options(**changed)


def test_what_is_left_out_has_a_meaning() -> None:
    made = options(address="a:1, b:2", pools=["x", "x", "y"])
    assert made.addresses == ["a:1", "b:2"]
    assert made.served_pools == ["x", "y"]
    assert options().served_pools == ["default"]
    assert options().shown_name


def test_a_harness_is_found_where_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "my harness.mjs").touch()
    monkeypatch.chdir(tmp_path / "here")
    assert harness_commands(["echo=echo", "node=node '../my harness.mjs' --fast"]) == {
        "echo": "echo",
        "node": ("node", f"{tmp_path}/my harness.mjs", "--fast"),
    }


def test_the_key_is_not_printed() -> None:
    assert "tlk_secret" not in repr(options(key="tlk_secret", environment={"TOKEN": "tlk_secret"}))


@pytest.mark.parametrize("held", ["", "tlk_1 tlk_2", "subject  svc_1\nkey  tlk_1\n"])
async def test_a_key_file_that_holds_no_key_is_told_at_once(
    tmp_path: Path, held: str, caplog: pytest.LogCaptureFixture
) -> None:
    key_file = tmp_path / "runner.key"
    key_file.write_text(held)
    assert await run_runner(options(data_dir=tmp_path / "data", key_file=key_file)) == 2
    assert [each.message for each in caplog.records] == [f"{key_file} must be one `tlk_…` token and nothing else."]


async def test_a_key_file_that_is_not_there_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await run_runner(options(data_dir=tmp_path / "data", key_file=tmp_path / "none")) == 2
    told = f"Cannot read the key file {tmp_path / 'none'}: No such file or directory."
    assert [each.message for each in caplog.records] == [told]


async def test_a_harness_that_is_not_there_is_told_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    harnesses = {"echo": "echo", "repo": ("nosuch", "--fast")}
    assert await run_runner(options(data_dir=tmp_path / "data", harnesses=harnesses)) == 2
    assert [each.message for each in caplog.records] == ["The harness repo cannot be started: nosuch was not found."]


def test_a_folder_keeps_its_id_and_keeps_others_out(tmp_path: Path) -> None:
    folder = RunnerFolder(tmp_path)
    assert folder.runner_id.startswith("rnr_")
    assert len(folder.runner_id) == 30
    with pytest.raises(OptionsError, match="Another runner uses"):
        RunnerFolder(tmp_path)
    folder.close()
    again = RunnerFolder(tmp_path)
    assert again.runner_id == folder.runner_id
    again.close()


def test_an_id_that_is_none_is_refused_and_the_folder_stays_free(tmp_path: Path) -> None:
    (tmp_path / "runner_id").write_text("rnr_x")
    for _ in range(2):
        with pytest.raises(OptionsError, match="holds no runner's id"):
            RunnerFolder(tmp_path)


def test_work_folders_of_an_earlier_life_are_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = RunnerFolder(tmp_path / "data", tmp_path / "work")
    left = folder.make_work_dir()
    (left / "file").write_text("x")
    (tmp_path / "work" / "mine").mkdir()
    folder.remove_work_dirs()
    assert [each.name for each in (tmp_path / "work").iterdir()] == ["mine"]
    folder.close()


class Keeper(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


def record(logger: logging.Logger, *, error: bool = False) -> logging.LogRecord:
    handler = Keeper()
    logger.addHandler(handler)
    try:
        about = About(logger, {"run_id": "run_1", "attempt_no": 2})
        if error:
            try:
                raise ValueError("no")
            except ValueError:
                about.exception("Broken.")
        else:
            about.warning("%s it.", "Lost", extra={"reason": "WHY"})
    finally:
        logger.removeHandler(handler)
    return handler.kept[0]


def test_log_lines_for_machines() -> None:
    line = json.loads(JsonFormatter().format(record(logging.getLogger("turnlog.runner.test"))))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "turnlog.runner.test",
        "message": "Lost it.",
        "run_id": "run_1",
        "attempt_no": 2,
        "reason": "WHY",
    }
    broken = json.loads(JsonFormatter().format(record(logging.getLogger("turnlog.runner.test"), error=True)))
    assert "ValueError: no" in broken["exception"]


def test_log_lines_for_people() -> None:
    line = TextFormatter().format(record(logging.getLogger("turnlog.runner.test")))
    assert line.endswith("WARNING Lost it.  (run_1, attempt 2)")


def test_events_of_harnesses() -> None:
    result = {"call_id": "c", "parts": [{"text": "a\x00b"}], "data": "AAEC", "truncated": True}
    event = runner_event("agent.tool_result", result)
    assert event.agent_tool_result.parts[0].text == "a\x00b"
    assert event.agent_tool_result.data == b"\x00\x01\x02"
    assert event.agent_tool_result.truncated
    called = runner_event("model.called", {"model": "m", "usage": {"input_tokens": sys.maxsize}})
    assert called.model_called.usage.input_tokens == sys.maxsize


@pytest.mark.parametrize(
    ("event_type", "payload", "text"),
    [
        ("agent.message", {"parts": [{"txt": "x"}]}, "txt"),
        ("agent.tool_use", {"call_id": 7}, "call_?[iI]d"),
        ("agent.tool_result", {"is_error": "perhaps"}, "is_?[eE]rror"),
        ("agent.message", {"parts": [{"text": "x" * (256 << 10)}]}, "more than 262144"),
        ("session.created", {}, "not an event that a harness may send"),
    ],
)
def test_a_wrong_event_names_what_is_wrong(event_type: str, payload: dict[str, Any], text: str) -> None:
    with pytest.raises(EventError, match=text):
        runner_event(event_type, payload)
