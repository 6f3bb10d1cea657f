"""One harness process: what is heard from it, in order, in bounds, and how its end is told."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

import psutil
import pytest
from harness_support import RAW, READY, alive, conversation, next_of, outputs_of, python, spawned, start
from turnlog_client.runner.outputs import (
    Exited,
    HarnessEvent,
    HarnessRun,
    Preview,
    ProtocolError,
    Ready,
    Settle,
)


async def test_one_turn(tmp_path: Path) -> None:
    outputs = await conversation(
        python(
            READY,
            """
            put(type="preview", text="he")
            event("agent.message", parts=[{"text": start["message"]["text"] + " " + os.getcwd()}])
            put(type="settle", outcome="succeeded")
            """,
        ),
        tmp_path,
        "you: \x00 \u2028 😀",
    )
    text = f"you: \x00 \u2028 😀 {tmp_path}"
    assert outputs == [
        Ready(),
        Preview("he"),
        HarnessEvent("agent.message", {"parts": [{"text": text}]}),
        Settle("succeeded"),
    ]


async def test_the_protocol_is_that_of_every_harness(tmp_path: Path) -> None:
    run: HarnessRun = await spawned(python("pass"), tmp_path)
    await outputs_of(run)


@pytest.mark.parametrize(("code", "expected"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9), ("pass", 0)])
async def test_exit_without_settle_tells_how_and_the_last_words(tmp_path: Path, code: str, expected: int) -> None:
    outputs = await conversation(python(READY, "print('x' * 9000, 'no licence', file=sys.stderr)", code), tmp_path)
    last = outputs[-1]
    assert isinstance(last, Exited)
    assert last.code == expected
    assert last.error_code == "harness.exited"
    assert last.stderr_tail.rstrip().endswith("no licence")
    assert len(last.stderr_tail) <= 4096
    assert str(abs(expected)) in last.message
    assert "no licence" in last.message
    assert len(last.message.encode()) <= 1024


async def test_a_broken_line_ends_the_attempt(tmp_path: Path) -> None:
    code = "print('Traceback: oh'); sys.stdout.flush(); time.sleep(1000)"
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    outputs = [output async for output in run]
    await run.kill(0)
    assert outputs[0] == Ready()
    assert isinstance(outputs[1], ProtocolError)
    assert "Line 2" in outputs[1].message
    assert len(outputs) == 2


async def test_a_last_line_without_line_break_counts_when_it_is_whole(tmp_path: Path) -> None:
    whole = python(READY, """sys.stdout.write('{"type":"settle","outcome":"succeeded"}')""")
    assert (await conversation(whole, tmp_path))[-1] == Settle("succeeded")
    torn = python(READY, """sys.stdout.write('{"type":"settle","outc'); sys.stdout.flush(); os._exit(5)""")
    last = (await conversation(torn, tmp_path))[-1]
    assert isinstance(last, Exited)
    assert last.code == 5


async def test_what_follows_a_settle_is_not_heard(tmp_path: Path) -> None:
    code = "put(type='settle', outcome='failed', error={'code': 'a.b', 'message': 'c'}); print('garbage')"
    assert await conversation(python(READY, code), tmp_path) == [Ready(), Settle("failed", "a.b", "c")]


async def test_stdout_closed_by_a_harness_that_stays_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog_client.runner.harness_process._EXIT_PATIENCE", 0.2)
    run = await spawned(python(READY, "os.close(1); time.sleep(1000)"), tmp_path)
    await run.send(start())
    outputs = [output async for output in run]
    assert isinstance(outputs[-1], ProtocolError)
    assert "closed its stdout" in outputs[-1].message
    await run.kill(0)
    assert not alive([run.pid])


async def test_an_unknown_type_is_answered_with_an_error_log(tmp_path: Path) -> None:
    code = """
    put(type="ask", question="?")
    answer = json.loads(sys.stdin.readline())
    put(type="preview", text=answer["type"] + " " + answer["level"] + " " + answer["message"])
    put(type="settle", outcome="succeeded")
    """
    _, preview, _ = await conversation(python(READY, code), tmp_path)
    assert isinstance(preview, Preview)
    assert preview.text.startswith("log error Message type 'ask'")


async def test_commands_that_cannot_be_started_are_errors_at_once(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(FileNotFoundError):
        await spawned(["no-such-program"], tmp_path)
    with pytest.raises(FileNotFoundError):
        await spawned(["./no/such/program"], tmp_path)
    with pytest.raises(PermissionError):
        await spawned([str(plain)], tmp_path)
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    with contextlib.suppress(FileNotFoundError):
        last = (await conversation([str(plain)], tmp_path))[-1]
        assert isinstance(last, Exited)
        assert last.code == 127
        assert "cannot be started" in last.stderr_tail


async def test_the_environment_is_what_is_given_and_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_API_KEY", "tlk_secret")
    monkeypatch.setenv("PLAIN", "kept")
    code = """
    put(type="preview", text=json.dumps({k: v for k, v in os.environ.items() if k[:7] in ("TURNLOG", "PLAIN", "MORE")}))
    put(type="settle", outcome="succeeded")
    """
    run = await spawned(python(READY, code), tmp_path, MORE="given")
    await run.send(start())
    _, preview, _ = await outputs_of(run)
    assert isinstance(preview, Preview)
    seen = json.loads(preview.text)
    assert len(seen.pop("TURNLOG_SPAWN")) == 32
    assert seen == {"PLAIN": "kept", "MORE": "given", "TURNLOG_RUNNER": "rnr_test", "TURNLOG_ATTEMPT": "run_1.1"}


async def test_a_flood_of_stderr_does_not_stop_the_turn(tmp_path: Path) -> None:
    code = "sys.stderr.write('y' * (8 << 20)); sys.stderr.flush(); put(type='settle', outcome='succeeded')"
    assert (await conversation(python(READY, code), tmp_path))[-1] == Settle("succeeded")


async def test_a_slow_consumer_slows_the_harness(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    code = f"""
    progress = os.open({str(progress)!r}, os.O_CREAT | os.O_WRONLY)
    for number in range(200):
        put(type="preview", text="x" * 60000)
        os.pwrite(progress, str(number).encode(), 0)
    put(type="settle", outcome="succeeded")
    """
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    outputs = run.__aiter__()
    await next_of(outputs, Preview)
    harness = psutil.Process(run.pid).children()[0] if sys.platform == "linux" else psutil.Process(run.pid)
    before = -1
    # Held up in its write: asleep, and no further than it was.
    while harness.status() != psutil.STATUS_SLEEPING or before != int(progress.read_text() or -1):
        before = int(progress.read_text() or -1)
        await asyncio.sleep(0.05)
    assert before < 20
    rest = [output async for output in outputs]
    assert len(rest) == 200
    assert rest[-1] == Settle("succeeded")
    await run.close()


async def test_a_harness_that_reads_nothing_can_be_interrupted_and_killed(tmp_path: Path) -> None:
    run = await spawned(python(RAW, "put(type='ready', protocol=1); time.sleep(1000)"), tmp_path)
    sending = asyncio.create_task(run.send(start("x" * (4 << 20))))
    assert await next_of(run.__aiter__(), Ready) == Ready()
    assert not sending.done()
    await run.interrupt()
    await run.kill()
    await sending
    assert not alive([run.pid])
    await run.send({"type": "interrupt"})


async def test_interrupt_reaches_the_harness(tmp_path: Path) -> None:
    code = "put(type='preview', text=sys.stdin.readline()); put(type='settle', outcome='succeeded')"
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    outputs = run.__aiter__()
    await next_of(outputs, Ready)
    await run.interrupt("enough")
    preview, settle = [output async for output in outputs]
    assert isinstance(preview, Preview)
    assert json.loads(preview.text) == {"type": "interrupt", "reason": "enough"}
    assert settle == Settle("succeeded")
    await run.close()


async def test_the_settle_of_a_canceled_harness_is_still_heard(tmp_path: Path) -> None:
    code = "sys.stdin.readline(); put(type='settle', outcome='failed', error={'code': 'a.canceled'})"
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    outputs = run.__aiter__()
    await next_of(outputs, Ready)
    await run.cancel()
    assert [output async for output in outputs] == [Settle("failed", "a.canceled")]


LARGE = """
import asyncio, resource, sys
from pathlib import Path
sys.path.insert(0, {support!r})
from harness_support import READY, python, spawned, start
HARNESS = '''
put(type="preview", text="first")
out = sys.stdout.buffer
out.write(b'{{"type":"event","event_type":"agent.tool_result","payload":{{"call_id":"c","parts":[{{"text":"')
for _ in range(1024):
    out.write(("é" * 32768).encode())
out.write(b'"}}],"is_error":true}}}}\\\\n')
out.flush()
put(type="settle", outcome="succeeded")
'''
async def main():
    run = await spawned(python(READY, HARNESS), Path({folder!r}))
    await run.send(start())
    before = result = None
    async for output in run:
        if before is None:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        last, result = output, getattr(output, "payload", result)
    await run.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    text = result["parts"][0]["text"]
    print(grown, type(last).__name__, last.outcome, len(text.encode()), set(text), result["truncated"], end=" ")
    print(result["is_error"])
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss")
async def test_a_line_of_64_megabytes_is_cut_in_bounded_memory(tmp_path: Path) -> None:
    code = LARGE.format(support=str(Path(__file__).parent), folder=str(tmp_path))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    grown_kib, rest = out.decode().split(maxsplit=1)
    kept = (256 << 10) - (4 << 10)
    assert rest.strip() == f"Settle succeeded {kept} {{'é'}} True True"
    assert int(grown_kib) < 24 << 10
