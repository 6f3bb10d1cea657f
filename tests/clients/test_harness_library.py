"""The author's library, in real processes."""

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness_support import LIBRARY, conversation, outputs_of, python, spawned, start
from turnlog_client.harness import limits
from turnlog_client.harness.payloads import encode_line
from turnlog_client.harness.turn import to_json
from turnlog_client.runner.outputs import Exited, HarnessEvent, Output, Preview, Ready, Settle


def said(outputs: list[Output]) -> list[str]:
    return [
        each.payload["parts"][0]["text"]
        for each in outputs
        if isinstance(each, HarnessEvent) and "parts" in each.payload
    ]


def by_hand(argv: list[str], stdin: bytes) -> tuple[int, list[dict[str, Any]], str]:
    """A harness without a runner: exit code, lines of stdout, stderr."""
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=60, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


async def test_a_turn_has_what_the_start_message_says(tmp_path: Path) -> None:
    code = """
    async def answer(turn: Turn):
        print("for people")
        os.system("echo from a child; cat")
        await turn.preview("look")
        facts = [turn.session_id, turn.run_id, turn.attempt_no, turn.attempt_kind, turn.message.parts,
                 turn.instructions, [t.name for t in turn.tools], [(h.seq, h.type, h.text) for h in turn.history],
                 turn.history_omitted, str(turn.workdir) == os.getcwd(), turn.env_root, 0 < turn.remaining() <= 60,
                 turn.interrupted.is_set()]
        await turn.say(turn.message.text)
        await turn.say(repr(facts), usage={"output_tokens": 3}, model="m-1")
    Harness(answer, name="mine").run()
    """
    history = [{"seq": 2, "type": "user.message", "text": "hi"}, {"seq": 5, "type": "agent.tool_use", "name": "t"}]
    outputs = await conversation(
        python(LIBRARY, code),
        tmp_path,
        "a\x00b",
        attempt_no=2,
        attempt_kind="RECOVERY",
        history=history,
        instructions="Be kind.",
        tools=[{"name": "search"}],
        deadline_seconds=60,
    )
    facts = (
        "['sess_1', 'run_1', 2, 'RECOVERY', ('a\\x00b',), 'Be kind.', ['search'], "
        "[(2, 'user.message', 'hi'), (5, 'agent.tool_use', '')], 0, True, None, True, False]"
    )
    assert outputs == [
        Ready("mine"),
        Preview("look"),
        HarnessEvent("agent.message", {"parts": [{"text": "a\x00b"}]}),
        HarnessEvent("model.called", {"model": "m-1", "usage": {"output_tokens": 3}}),
        HarnessEvent("agent.message", {"parts": [{"text": facts}]}),
        Settle("succeeded"),
    ]


async def test_tool_calls_and_results_come_in_pairs_whatever_happens(tmp_path: Path) -> None:
    code = """
    import dataclasses
    @dataclasses.dataclass
    class Hit:
        path: str
        line: int
    async def answer(turn: Turn):
        async with turn.tool("text", {"q": 1}) as call:
            call.result("plain")
        async with turn.tool("objects") as call:
            call.result([Hit("a.py", 3)])
        async with turn.tool("bytes") as call:
            call.result(bytes(range(256)), media_type="image/png")
        async with turn.tool("nothing"):
            pass
        async with turn.tool("failing") as call:
            call.error("no such file")
        async with turn.tool("large") as call:
            call.result(b"x" * (64 << 20))
        async with turn.tool("raising"):
            raise LookupError("gone")
    Harness(answer).run()
    """
    outputs = await conversation(python(LIBRARY, code), tmp_path)
    events = [each for each in outputs if isinstance(each, HarnessEvent)]
    uses, results = events[::2], events[1::2]
    assert [each.payload["name"] for each in uses] == [
        "text",
        "objects",
        "bytes",
        "nothing",
        "failing",
        "large",
        "raising",
    ]
    assert [each.payload["call_id"] for each in uses] == [each.payload["call_id"] for each in results]
    assert len({each.payload["call_id"] for each in uses}) == 7
    text, objects, raw, nothing, failing, large, raising = [each.payload for each in results]
    assert uses[0].payload["arguments"] == {"q": 1}
    assert text["parts"] == [{"text": "plain"}]
    assert json.loads(objects["parts"][0]["text"]) == [{"path": "a.py", "line": 3}]
    assert (base64.b64decode(raw["data"]), raw["media_type"]) == (bytes(range(256)), "image/png")
    assert nothing["parts"] == []
    assert (failing["parts"], failing["is_error"]) == ([{"text": "no such file"}], True)
    assert large["truncated"] is True
    assert set(base64.b64decode(large["data"])) == {ord("x")}
    assert (raising["parts"], raising["is_error"]) == ([{"text": "LookupError: gone"}], True)
    assert outputs[-1] == Settle("failed", "harness.unhandled", "LookupError: gone")


@pytest.mark.parametrize(
    ("body", "settle"),
    [
        ("turn.fail('search.index_missing', 'No index.')", Settle("failed", "search.index_missing", "No index.")),
        ("turn.fail('Not Dotted', 'x')", Settle("failed", "harness.failed", "Not Dotted: x")),
        ("raise ValueError('é' * 5000)", Settle("failed", "harness.unhandled", f"ValueError: {'é' * 506}")),
        ("sys.exit(3)", None),
        ("os._exit(4)", None),
        ("pass", Settle("succeeded")),
    ],
)
async def test_how_an_answer_ends_is_how_the_turn_ends(tmp_path: Path, body: str, settle: Settle | None) -> None:
    outputs = await conversation(
        python(LIBRARY, f"async def answer(turn):\n    {body}\nHarness(answer).run()"), tmp_path
    )
    if settle is not None:
        assert outputs[-1] == settle
    else:
        assert isinstance(outputs[-1], Exited)


async def test_interrupt_sets_the_event_and_the_turn_goes_on_to_its_end(tmp_path: Path) -> None:
    code = """
    async def answer(turn: Turn):
        await turn.preview("waiting")
        await turn.interrupted.wait()
        await turn.say("This far I came.")
    Harness(answer).run()
    """
    run = await spawned(python(LIBRARY, code), tmp_path)
    await run.send(start())
    outputs = []
    async for output in run:
        outputs.append(output)
        if isinstance(output, Preview):
            await run.interrupt()
    await run.close()
    assert said(outputs) == ["This far I came."]
    assert outputs[-1] == Settle("succeeded")


@pytest.mark.parametrize("how", ["cancel", "SIGTERM"])
async def test_cancel_raises_where_the_answer_waits_and_its_clean_up_runs(tmp_path: Path, how: str) -> None:
    code = """
    async def answer(turn: Turn):
        async with turn.tool("sleep"):
            try:
                await turn.preview("waiting")
                await asyncio.sleep(1000)
            finally:
                await turn.say("cleaned up")
    Harness(answer).run()
    """
    run = await spawned(python(LIBRARY, code), tmp_path)
    await run.send(start())
    outputs: list[Output] = []
    stopping: asyncio.Task[None] | None = None
    async for output in run:
        outputs.append(output)
        if isinstance(output, Preview):
            stopping = asyncio.create_task(run.cancel(grace=30) if how == "cancel" else run.kill(grace=30))
    assert stopping is not None
    await stopping
    assert said(outputs) == ["cleaned up", "canceled"]
    assert isinstance(outputs[-1], Settle)
    assert outputs[-1].error_code == "harness.canceled"


async def test_an_interrupt_is_seen_while_the_runner_does_not_read(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    code = f"""
    async def answer(turn: Turn):
        async def flood():
            for _ in range(100):
                await turn.preview("x" * 60_000)
        task = asyncio.create_task(flood())
        await turn.interrupted.wait()
        open({str(seen)!r}, "w").write(str(task.done()))
        await task
    Harness(answer).run()
    """
    run = await spawned(python(LIBRARY, code), tmp_path)
    await run.send(start())
    await run.interrupt()
    while not seen.exists():  # noqa: ASYNC110  another process makes it
        await asyncio.sleep(0.02)
    outputs = await outputs_of(run)
    assert seen.read_text() == "False"
    assert len(outputs) == 102


async def test_start_up_work_comes_before_ready(tmp_path: Path) -> None:
    code = """
    async def prepare():
        raise RuntimeError("no model")
    async def answer(turn: Turn): ...
    Harness(answer, prepare=prepare).run()
    """
    assert await conversation(python(LIBRARY, code), tmp_path) == [
        Settle("failed", "harness.unhandled", "RuntimeError: no model")
    ]


ECHO = python(LIBRARY, "async def answer(turn):\n    await turn.say(turn.message.text)\nHarness(answer).run()")


def test_it_can_be_tried_by_hand(tmp_path: Path) -> None:
    code, lines, _ = by_hand(ECHO, encode_line(start("hi")))
    assert code == 0
    assert [line["type"] for line in lines] == ["ready", "event", "settle"]
    (tmp_path / "in").write_bytes(encode_line(start("hi"))[:-1])
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as stdout:
        subprocess.run(ECHO, stdin=stdin, stdout=stdout, timeout=60, check=True)
    assert (tmp_path / "out").read_bytes().count(b"\n") == 3


@pytest.mark.parametrize(
    ("stdin", "code", "text"),
    [
        (b"", "harness.protocol_error", "stdin ended before a start"),
        (b'{"type":"start","protocol":1}\n', "harness.protocol_error", 'must have the key "session_id"'),
        (encode_line({**start(), "protocol": 2}), "harness.protocol_unsupported", "version 2"),
    ],
)
def test_a_turn_that_cannot_begin_fails_with_a_reason(stdin: bytes, code: str, text: str) -> None:
    _, lines, _ = by_hand(ECHO, stdin)
    assert lines[-1]["error"]["code"] == code
    assert text in lines[-1]["error"]["message"]


def test_what_is_not_understood_is_logged_and_ignored() -> None:
    stdin = b'not json\n\n[]\n{"type":"resume"}\n{"type":"log","level":"error","message":"yours"}\n'
    code, lines, stderr = by_hand(ECHO, stdin + encode_line({**start("hi"), "later": 1}) * 2)
    assert code == 0
    logs = [line["message"] for line in lines if line["type"] == "log"]
    assert len(logs) == 4
    assert "'resume'" in logs[2]
    assert "second start" in logs[3]
    assert "runner: error: yours" in stderr
    assert lines[-1] == {"type": "settle", "outcome": "succeeded"}


def test_a_runner_that_is_gone_ends_the_harness_quietly() -> None:
    process = subprocess.Popen(ECHO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate(encode_line(start()), timeout=60)
    assert stderr == b""


def test_a_harness_needs_nothing_but_the_standard_library() -> None:
    roots = [str(Path(limits.__file__).parents[2])]
    code = f"""
import sys
sys.path[:0] = {roots!r}
import turnlog_client.harness
import os
home = os.path.dirname(os.__file__)
foreign = {{name for name, module in sys.modules.items() if (file := getattr(module, "__file__", None))
           and not file.startswith(home) and not name.startswith("turnlog_client")}}
ours = {{name for name in sys.modules if name.startswith("turnlog_client") and "harness" not in name}}
print(sorted(foreign - {{"__main__"}}), sorted(ours))
"""
    # Without site packages: what is not there cannot be imported either.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ['turnlog_client']"


def test_values_become_json() -> None:
    assert to_json({1: (b"x", 2.5, float("nan"), {3}), "p": Path("/a")}) == {
        "1": ["b'x'", 2.5, "nan", [3]],
        "p": "/a",
    }
