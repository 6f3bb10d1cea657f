"""check-harness: what it says of good and of bad harnesses. And the echo harness."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from harness_support import LIBRARY, RAW, READY, python, start
from turnlog_client.runner import check_harness as module
from turnlog_client.runner.check_harness import Report, check_harness
from turnlog_client.runner.command import resolve_command
from turnlog_client.runner.echo import EchoHarness
from turnlog_client.runner.outputs import HarnessEvent, HarnessRun, Preview, Ready, Settle

GOOD = """
async def answer(turn: Turn):
    async with turn.tool("look") as call:
        call.result("seen")
    await turn.say(turn.message.text, usage={"output_tokens": 1})
Harness(answer).run()
"""
SLOW = """
async def answer(turn: Turn):
    await turn.interrupted.wait()
Harness(answer).run()
"""


async def checked(*code: str, lines: list[str] | None = None, **options: Any) -> Report:
    kept: list[str] = [] if lines is None else lines
    return await check_harness(python(*code), on_line=kept.append, **options)


def failed(report: Report) -> dict[str, str]:
    return {check.name: f"{check.detail} / {check.mend}" for check in report.checks if not check.passed}


async def test_a_good_harness_passes_every_check() -> None:
    lines: list[str] = []
    report = await check_harness(python(LIBRARY, GOOD), on_line=lines.append)
    assert report.passed, failed(report)
    assert len(report.checks) == 6
    assert [line[:4] for line in lines] == ["ok  "] * 6 + ["note"]
    assert "look" in report.notes[0]
    granted = await check_harness(python(LIBRARY, GOOD), on_line=lines.append, tools=["look"])
    assert granted.notes == ()


async def test_a_harness_that_waits_for_its_interrupt_passes_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    report = await checked(LIBRARY, SLOW, turn_seconds=0.3)
    assert {check.name for check in report.checks if check.passed} == {"interrupt in the middle", "cancel"}
    assert "no settle within" in failed(report)["simple turn"]


@pytest.mark.parametrize(
    ("code", "check", "complaint"),
    [
        ("print('hello')", "simple turn", "not JSON"),
        ("pass", "simple turn", "without settling"),
        ("put(type='settle', outcome='succeeded'); time.sleep(1000)", "simple turn", "was killed"),
        (
            "event('agent.tool_use', call_id='a', name='b'); put(type='settle', outcome='succeeded')",
            "simple turn",
            "match",
        ),
        ("time.sleep(1000)", "interrupt in the middle", "turn.interrupted"),
        ("time.sleep(1000)", "cancel", "by signals"),
        ("assert '\\0' not in start['message']['text']", "unicode and U+0000", "without settling"),
    ],
)
async def test_a_bad_harness_is_told_what_to_mend(
    monkeypatch: pytest.MonkeyPatch, code: str, check: str, complaint: str
) -> None:
    for name in ("INTERRUPT_SECONDS", "CANCEL_SECONDS", "EXIT_SECONDS"):
        monkeypatch.setattr(module, name, 0.2)
    lines: list[str] = []
    report = await checked(READY, code, lines=lines, turn_seconds=0.2)
    assert not report.passed
    assert complaint in failed(report)[check]
    assert any(line.strip().startswith("to mend: ") for line in lines)


async def test_no_ready_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READY_SECONDS", 0.2)
    report = await checked(RAW, "time.sleep(1000)")
    assert "flush stdout" in failed(report)["simple turn"]
    assert len(report.checks) == 1, "the others would wait as long"
    assert "left out" in report.notes[-1]


async def test_what_a_harness_that_does_not_start_says_is_shown_once() -> None:
    lines: list[str] = []
    report = await checked("raise SystemExit('no such model')", lines=lines)
    assert not report.passed
    assert sum("no such model" in line for line in lines) == 1


async def test_a_reader_with_a_short_line_limit_is_told() -> None:
    code = """
    line = sys.stdin.readline(1 << 20)
    put(type="ready", protocol=1)
    json.loads(line)
    put(type="settle", outcome="succeeded")
    """
    report = await checked(RAW, code)
    assert list(failed(report)) == ["large message"]
    assert "16 MiB" in failed(report)["large message"]


def test_paths_of_a_command_are_those_of_the_folder_where_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "harness.py").touch()
    (tmp_path / "agents" / "one").mkdir(parents=True)
    (tmp_path / "test").mkdir()
    typed = ["python", "harness.py", "agents/one", "test", "no/such", "--tree", ".", "--config=harness.py", "-c", "a.b"]
    assert resolve_command(typed, tmp_path) == [
        "python",
        f"{tmp_path}/harness.py",
        f"{tmp_path}/agents/one",
        "test",
        "no/such",
        "--tree",
        str(tmp_path),
        f"--config={tmp_path}/harness.py",
        "-c",
        "a.b",
    ]


async def test_an_unknown_command_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        await check_harness(["no-such-harness"], on_line=print)


async def test_echo_says_what_it_was_told() -> None:
    run: HarnessRun = EchoHarness()
    await run.send(start("two words\x00"))
    assert [output async for output in run] == [
        Ready("echo"),
        Preview("two words\x00"),
        HarnessEvent("agent.message", {"parts": [{"text": "two words\x00"}]}),
        HarnessEvent("model.called", {"model": "echo", "usage": {"input_tokens": 2, "output_tokens": 2}}),
        Settle("succeeded"),
    ]
    await run.close()


async def test_echo_answers_an_interrupt_and_stops_on_cancel() -> None:
    run = EchoHarness(delay=1000)
    await run.send(start("a"))
    await run.interrupt()
    assert [output async for output in run][-1] == Settle("succeeded")
    for begun in (True, False):
        run = EchoHarness(delay=1000)
        if begun:
            await run.send(start("a"))
        listening = asyncio.create_task(_all(run))
        await asyncio.sleep(0)
        await run.cancel()
        assert isinstance((await listening)[-1], Settle)


async def _all(run: HarnessRun) -> list[object]:
    return [output async for output in run]
