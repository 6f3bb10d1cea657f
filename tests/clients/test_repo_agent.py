"""The example harness in real processes: ten questions with known answers, and what may happen to it."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness_support import outputs_of, spawned, start
from turnlog_client.runner.check_harness import check_harness
from turnlog_client.runner.harness_process import HarnessProcess
from turnlog_client.runner.outputs import HarnessEvent, Output, Preview, Settle

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "examples" / "repo_agent"
FIXTURE = AGENT / "fixture_tree"
TOOLS = [{"name": "search"}, {"name": "read"}]
SUITE = json.loads((AGENT / "questions.json").read_text())["questions"]

CITED = re.compile(r"([\w./-]+\.\w+):(\d+)")


def command(tree: Path) -> list[str]:
    return [sys.executable, str(AGENT), "--tree", str(tree)]


async def asked(
    tree: Path, question: str, workdir: Path, tools: list[dict[str, Any]] | None = None, **more: Any
) -> list[Output]:
    run = await spawned(command(tree), workdir)
    await run.send(start(question, tools=TOOLS if tools is None else tools, **more))
    return await outputs_of(run)


def payloads(outputs: list[Output], event_type: str) -> list[dict[str, Any]]:
    return [each.payload for each in outputs if isinstance(each, HarnessEvent) and each.type == event_type]


def said(outputs: list[Output]) -> str:
    (message,) = payloads(outputs, "agent.message")
    return message["parts"][0]["text"]


def line_of(tree: Path, path: str, anchor: str) -> int:
    lines = (tree / path).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if anchor in line)


@pytest.mark.parametrize("case", SUITE, ids=[case["question"] for case in SUITE])
async def test_questions_with_known_answers(case: dict[str, Any], tmp_path: Path) -> None:
    outputs = await asked(FIXTURE, case["question"], tmp_path)
    assert outputs[-1] == Settle("succeeded")
    text = said(outputs)
    for expected in case["says"]:
        assert expected in text
    if case.get("unanswered"):
        assert text.startswith("I found no answer to that in this tree.")
        return
    assert "found no answer" not in text
    wanted = (case["path"], line_of(FIXTURE, case["path"], case["anchor"]))
    # Not buried in a list: among what was read and is shown.
    shown = [(path, int(line)) for path, line in CITED.findall(text.partition("See also:")[0])]
    assert any(path == wanted[0] and abs(line - wanted[1]) <= 2 for path, line in shown[:2]), (wanted, shown)


@pytest.mark.parametrize("case", SUITE, ids=[case["question"] for case in SUITE])
async def test_every_citation_is_what_stands_there(case: dict[str, Any], tmp_path: Path) -> None:
    text = said(await asked(FIXTURE, case["question"], tmp_path))
    for block in re.findall(r"```\n(.*?)```", text, re.DOTALL):
        assert block.strip()
    for path, line in CITED.findall(text):
        assert 1 <= int(line) <= len((FIXTURE / path).read_text().splitlines())


@pytest.mark.parametrize(
    ("question", "path", "anchor"),
    [
        ("How are the leftovers of a killed runner killed?", "runner/proctree.py", "async def kill_leftovers("),
        ("What is the longest line of a harness that is kept whole?", "harness/limits.py", "MAX_LINE_BYTES = "),
        ("Where is a lone surrogate replaced?", "harness/payloads.py", "def clean_text("),
        ("Why is the write to stdout shielded?", "harness/stdio.py", "# Shielded:"),
        ("Where is `resolve_command` defined?", "runner/command.py", "def resolve_command("),
    ],
)
async def test_it_answers_about_the_project_itself(question: str, path: str, anchor: str, tmp_path: Path) -> None:
    tree = ROOT / "clients" / "python"
    text = said(await asked(tree, question, tmp_path))
    whole = f"turnlog_client/{path}"
    wanted = line_of(tree, whole, anchor)
    shown = [(each, int(line)) for each, line in CITED.findall(text.partition("See also:")[0])]
    assert any(each == whole and abs(line - wanted) <= 3 for each, line in shown), (wanted, text)


@pytest.mark.parametrize(
    ("question", "path", "says"),
    [
        ("Where is the retry policy for lost commits?", "store/errors.py", "`classify`"),
        ("Where is it decided that a request id is unique?", "store/log_sql.py", "the unique key decides that"),
        ("How long does the lane linger?", "service/lane_queue.py", "LINGER_SECONDS = 0.002"),
        ("Why is a COMMIT in flight not cancelled when its caller leaves?", "store/database.py", "nobody knows"),
        ("Where are secrets hidden in logs?", "app/logs.py", "`without_secrets`"),
    ],
)
async def test_it_answers_about_the_server(question: str, path: str, says: str, tmp_path: Path) -> None:
    text = said(await asked(ROOT / "server", question, tmp_path))
    shown = text.partition("See also:")[0]
    assert f"turnlog_server/{path}" in {each for each, _ in CITED.findall(shown)}, text
    assert says in shown


async def test_a_turn_shows_its_steps_and_its_usage(tmp_path: Path) -> None:
    outputs = await asked(FIXTURE, "How large may a payload be?", tmp_path)
    uses, results = payloads(outputs, "agent.tool_use"), payloads(outputs, "agent.tool_result")
    assert [use["name"] for use in uses] == ["search", "read", "read"]
    assert uses[1]["arguments"] == {"path": "jobq/job.py", "start_line": 7, "end_line": 13}
    assert [use["call_id"] for use in uses] == [result["call_id"] for result in results]
    assert "10 | MAX_PAYLOAD_BYTES = 64 * 1024" in results[1]["parts"][0]["text"]
    previews = "".join(output.text for output in outputs if isinstance(output, Preview))
    assert previews.rstrip() == said(outputs)
    (called,) = payloads(outputs, "model.called")
    assert called["usage"]["input_tokens"] > 0
    assert called["usage"]["output_tokens"] == len(said(outputs).encode()) // 4


async def test_a_question_that_points_is_about_what_was_asked_before(tmp_path: Path) -> None:
    history = [
        {"seq": 1, "type": "user.message", "text": "Where is `gives_up` defined?"},
        {"seq": 2, "type": "agent.message", "text": "jobq/retry.py:24"},
    ]
    text = said(await asked(FIXTURE, "And who calls it?", tmp_path, history=history))
    assert f"jobq/queue.py:{line_of(FIXTURE, 'jobq/queue.py', 'gives_up(')}" in text


async def test_a_greeting_is_answered_with_what_it_can_do(tmp_path: Path) -> None:
    text = said(await asked(FIXTURE, "What can you do?", tmp_path))
    assert "I answer questions about the source tree" in text
    assert "README.md:1" in text
    assert "A small job queue on SQLite" in text


async def test_without_its_tools_it_looks_at_nothing(tmp_path: Path) -> None:
    outputs = await asked(FIXTURE, "How large may a payload be?", tmp_path, tools=[{"name": "search"}])
    assert "I was not given the tool(s) read" in said(outputs)
    assert payloads(outputs, "agent.tool_use") == []


async def test_a_tree_that_is_not_there_fails_the_turn_with_a_reason(tmp_path: Path) -> None:
    settle = (await asked(tmp_path / "nowhere", "Where is it?", tmp_path))[-1]
    assert isinstance(settle, Settle)
    assert settle.error_code == "repo_agent.no_tree"
    assert "nowhere" in settle.message


async def test_it_passes_the_check_of_harnesses() -> None:
    lines: list[str] = []
    report = await check_harness(
        command(FIXTURE), on_line=lines.append, tools=["search", "read"], message="How large may a payload be?"
    )
    assert report.passed, lines
    assert report.notes == ()


async def slowed(tree: Path, workdir: Path, delay: str) -> HarnessProcess:
    run = await spawned(command(tree), workdir, REPO_AGENT_DELAY=delay)
    await run.send(start("How large may a payload be?", tools=TOOLS))
    return run


@pytest.mark.parametrize("delay", ["0.3", "1000"])
async def test_an_interrupt_is_answered_within_a_second(tmp_path: Path, delay: str) -> None:
    run = await slowed(FIXTURE, tmp_path, delay)
    outputs: list[Output] = []
    asked_at = 0.0
    async for output in run:
        outputs.append(output)
        searching = isinstance(output, HarnessEvent) and output.type == "agent.tool_use"
        if not asked_at and (searching or delay == "1000"):
            asked_at = time.monotonic()
            await run.interrupt()
    took = time.monotonic() - asked_at
    await run.close()
    assert outputs[-1] == Settle("succeeded")
    assert said(outputs).startswith("Stopped by an interrupt: ")
    assert took < 1


async def test_an_interrupt_stops_a_search_in_a_large_tree(tmp_path: Path) -> None:
    tree, workdir = tmp_path / "tree", tmp_path / "work"
    tree.mkdir()
    workdir.mkdir()
    line = "def payload_limit(): return retry_payload(large_payload)\n"
    for number in range(120):
        (tree / f"module_{number}.py").write_text(line * 8000)
    run = await spawned(command(tree), workdir)
    await run.send(start("How large may a payload be?", tools=TOOLS))
    outputs: list[Output] = []
    asked_at = 0.0
    async for output in run:
        outputs.append(output)
        if isinstance(output, HarnessEvent) and output.type == "agent.tool_use" and not asked_at:
            asked_at = time.monotonic()
            await run.interrupt()
    assert time.monotonic() - asked_at < 1
    await run.close()
    assert said(outputs).startswith("Stopped by an interrupt")
    assert [result.get("is_error") for result in payloads(outputs, "agent.tool_result")] == [True]


async def test_a_cancel_ends_it_by_itself(tmp_path: Path) -> None:
    run = await slowed(FIXTURE, tmp_path, "1000")
    async for output in run:
        if not isinstance(output, Settle):
            cancelling = asyncio.create_task(run.cancel(grace=30))
    await cancelling


@pytest.fixture
def odd_tree(tmp_path: Path) -> Path:
    """A tree with one source file, and all that is not one."""
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "limits.py").write_bytes(b"# \xff\xfe not UTF-8\r\nMAX_PAYLOAD = 3\r\n")
    (tree / "src" / "binary.py").write_bytes(b"\0\1\2MAX_PAYLOAD = 4\n" * 100)
    with open(tree / "src" / "huge.py", "wb") as huge:
        huge.truncate(10 << 30)
    (tree / "src" / "one_line.py").write_text("MAX_PAYLOAD = 5 #" + "x" * 400_000)
    (tree / "src" / "loop").symlink_to(tree / "src")
    (tree / "src" / "itself.py").symlink_to("itself.py")
    (tree / "outside.py").symlink_to(tmp_path / "secret.py")
    (tmp_path / "secret.py").write_text("MAX_PAYLOAD = 6\n")
    os.mkfifo(tree / "src" / "fifo.py")
    for skipped in (".git", ".venv", "node_modules", "ignored"):
        (tree / skipped).mkdir()
        (tree / skipped / "limits.py").write_text("MAX_PAYLOAD = 7\n")
    (tree / ".gitignore").write_text("# rules\nignored/\n")
    os.makedirs(os.fsencode(tree) + b"/caf\xe9")
    with open(os.fsencode(tree) + b"/caf\xe9/payload.py", "w") as odd:
        odd.write("payload = 'unrelated'\n")
    return tree


async def test_files_that_are_no_source_do_no_harm(odd_tree: Path, tmp_path: Path) -> None:
    outputs = await asked(odd_tree, "How large may a payload be?", tmp_path)
    assert outputs[-1] == Settle("succeeded")
    text = said(outputs)
    assert "`MAX_PAYLOAD = 3`, at src/limits.py:2." in text
    assert not re.search(r"MAX_PAYLOAD = [467]", text)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A Git checkout with an ignored file, whose configuration names a program."""
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / "deep" / ".gitignore").write_text("generated_*\n")
    (tree / "deep" / "generated_limits.py").write_text("MAX_PAYLOAD = 8\n")
    (tree / "deep" / "limits.py").write_text("MAX_PAYLOAD = 9\n")
    subprocess.run(["git", "-C", str(tree), "config", "core.fsmonitor", f"touch {tmp_path / 'trap'};"], check=True)
    return tree


@pytest.mark.system("git")
async def test_in_a_checkout_git_says_what_belongs_to_it(checkout: Path, tmp_path: Path) -> None:
    text = said(await asked(checkout, "How large may a payload be?", tmp_path))
    assert "`MAX_PAYLOAD = 9`, at deep/limits.py:1." in text
    assert "= 8" not in text
    # A program that a checkout names is not run.
    assert not (tmp_path / "trap").exists()
