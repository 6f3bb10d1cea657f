"""One harness process: what is heard from it, and that nothing of it is left."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from harness_support import RAW, READY, alive, conversation, end, outputs_of, python, spawned, start
from turnlog_client.runner import keeper, proctree
from turnlog_client.runner.harness_process import HarnessProcess
from turnlog_client.runner.outputs import (
    Exited,
    HarnessEvent,
    HarnessRun,
    Output,
    Preview,
    ProtocolError,
    Ready,
    Settle,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="a child subreaper is Linux's")

TREE = """
def child(*argv, **options):
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, **options).pid
def orphan(environment):
    # Forked twice, in a session of its own, its parent gone.
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        pid = child("sleep", "1000", env=environment, stdout=subprocess.DEVNULL)
        os.write(writer, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 100))
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); time.sleep(1000)"
stubborn = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
stubborn.stdout.readline()
tree = {
    "itself": os.getpid(),
    "child": child("sleep", "1000"),
    "session": child("sleep", "1000", start_new_session=True),
    "stubborn": stubborn.pid,
    "grandchild": int(subprocess.run(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True).stdout),
    "orphan": orphan(dict(os.environ)),
}
if sys.platform == "linux":
    tree["wiped"] = orphan({"PATH": os.environ["PATH"]})
put(type="preview", text=json.dumps(tree))
"""
"""A harness with every kind of descendant; it tells their pids when all of them run."""


async def next_of(outputs: AsyncIterator[Output], kind: type[Output]) -> Output:
    async for output in outputs:
        if isinstance(output, kind):
            return output
    raise AssertionError(f"no {kind.__name__}")


async def grown(run: HarnessProcess) -> dict[str, int]:
    """The pids of the tree of a harness that runs TREE."""
    await run.send(start())
    outputs = run.__aiter__()
    preview = await next_of(outputs, Preview)
    assert isinstance(preview, Preview)
    tree = json.loads(preview.text)
    assert alive(list(tree.values())) == list(tree.values())
    return tree


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


@pytest.mark.rule("R175")
@pytest.mark.parametrize("grace", [0, 0.3])
async def test_kill_ends_the_whole_tree(tmp_path: Path, grace: float) -> None:
    run = await spawned(python(READY, TREE, "time.sleep(1000)"), tmp_path)
    tree = await grown(run)
    try:
        await run.kill(grace)
        assert alive([run.pid, *tree.values()]) == []
    finally:
        end(list(tree.values()))


async def test_sigterm_comes_before_sigkill(tmp_path: Path) -> None:
    said = tmp_path / "said"
    code = f"""
    def leave(*_):
        open({str(said)!r}, "w").write("goodbye")
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    put(type="preview", text="armed")
    while True:
        time.sleep(1000)
    """
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    await next_of(run.__aiter__(), Preview)
    await run.kill(grace=30)
    assert said.read_text() == "goodbye"


async def test_a_second_kill_without_grace_ends_the_grace_of_the_first(tmp_path: Path) -> None:
    # A handler, and not SIG_IGN, which its children would inherit.
    deaf = "signal.signal(signal.SIGTERM, lambda *_: None)"
    run = await spawned(python(READY, deaf, TREE, "time.sleep(1000)"), tmp_path)
    tree = await grown(run)
    patient = asyncio.create_task(run.kill(grace=1000))
    await asyncio.to_thread(psutil.Process(tree["orphan"]).wait, 30)
    assert not patient.done()
    await run.kill(0)
    await patient
    assert alive(list(tree.values())) == []


async def test_a_caller_that_is_cancelled_leaves_no_tree_behind(tmp_path: Path) -> None:
    run = await spawned(python(READY, TREE, "time.sleep(1000)"), tmp_path)
    tree = await grown(run)
    caller = asyncio.create_task(run.kill(0.2))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await run.kill(0)
    assert alive(list(tree.values())) == []


@linux
@pytest.mark.parametrize("ending", ["put(type='settle', outcome='succeeded')", "sys.exit(3)"])
async def test_what_a_harness_leaves_running_ends_with_it(tmp_path: Path, ending: str) -> None:
    # Its children hold its pipes: without their end there would be no end of its output.
    run = await spawned(python(READY, TREE, ending), tmp_path)
    await run.send(start())
    outputs = [output async for output in run]
    preview = next(output for output in outputs if isinstance(output, Preview))
    await run.close()
    assert alive(list(json.loads(preview.text).values())) == []


async def test_a_harness_does_not_outstay_its_settle(tmp_path: Path) -> None:
    code = "put(type='settle', outcome='succeeded'); time.sleep(1000)"
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    assert [output async for output in run][-1] == Settle("succeeded")
    await run.close(grace=0.1)
    assert not alive([run.pid])


@linux
async def test_the_tree_ends_also_when_its_keeper_was_killed(tmp_path: Path) -> None:
    run = await spawned(python(READY, TREE, "put(type='preview', text='x' * 200_000)", "time.sleep(1000)"), tmp_path)
    tree = await grown(run)
    # What wiped its environment is lost with the one process that knew it by descent.
    wiped = tree.pop("wiped")
    try:
        os.kill(run.pid, signal.SIGKILL)
        await run.kill()
        assert alive([run.pid, *tree.values()]) == []
    finally:
        end([wiped, *tree.values()])


@linux
async def test_a_pipe_that_is_held_open_by_nobody_knows_whom_ends_all_the_same(tmp_path: Path) -> None:
    code = """
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        holder = subprocess.Popen(["sleep", "1000"], env={"PATH": os.environ["PATH"]})
        os.write(writer, str(holder.pid).encode())
        os._exit(0)
    put(type="preview", text=os.read(reader, 100).decode())
    for _ in range(3):
        put(type="preview", text="x" * 60_000)
    time.sleep(1000)
    """
    run = await spawned(python(READY, code), tmp_path)
    await run.send(start())
    outputs = run.__aiter__()
    holder = await next_of(outputs, Preview)
    assert isinstance(holder, Preview)
    try:
        os.kill(run.pid, signal.SIGKILL)
        await run.kill(0)
        rest = [output async for output in outputs]
        assert isinstance(rest[-1], Exited)
        assert rest[-1].code == -9
        assert alive([int(holder.text)]) == [int(holder.text)]
    finally:
        end([int(holder.text)])


RUNNER = """
import asyncio, json, sys
from pathlib import Path
sys.path.insert(0, {support!r})
from harness_support import READY, python, spawned, start
from turnlog_client.runner.outputs import Preview
async def main():
    run = await spawned(python(READY, {tree!r}, "time.sleep(1000)"), Path({folder!r}), runner_id={runner_id!r})
    await run.send(start())
    async for output in run:
        if isinstance(output, Preview):
            print(json.dumps({{"keeper": run.pid, **json.loads(output.text)}}), flush=True)
asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def runner_process(
    tmp_path: Path, runner_id: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, int]]]:
    """Another process with a harness, and the pids of that harness's tree."""
    code = RUNNER.format(support=str(Path(__file__).parent), tree=TREE, folder=str(tmp_path), runner_id=runner_id)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    tree: dict[str, int] = {}
    try:
        tree = json.loads(await process.stdout.readline())
        assert alive(list(tree.values())) == list(tree.values())
        yield process, tree
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        end(list(tree.values()))
        await process.wait()


@linux
@pytest.mark.rule("R175")
async def test_a_killed_runner_takes_its_harnesses_with_it(tmp_path: Path) -> None:
    async with runner_process(tmp_path, "rnr_killed") as (process, tree):
        handles = [psutil.Process(pid) for pid in tree.values()]
        process.kill()
        _, left = await asyncio.to_thread(psutil.wait_procs, handles, 30)
        assert left == []


@pytest.mark.rule("R175")
async def test_leftovers_of_a_killed_runner_are_killed_by_its_next_life(tmp_path: Path) -> None:
    async with (
        runner_process(tmp_path, "rnr_other") as (_, others),
        runner_process(tmp_path, "rnr_killed") as (process, tree),
    ):
        # Without its keeper the tree has nobody but the runner's next life.
        os.kill(tree["keeper"], signal.SIGKILL)
        process.kill()
        await process.wait()
        marked = [pid for name, pid in tree.items() if name != "wiped"]
        left = alive(marked)
        assert len(left) >= 6
        assert await proctree.kill_leftovers("rnr_killed") >= 6
        assert alive(marked) == []
        assert await proctree.kill_leftovers("rnr_killed") == 0
        assert alive(list(others.values())) == list(others.values())


async def test_a_runner_inside_a_harness_does_not_kill_itself(tmp_path: Path) -> None:
    code = f"""
    sys.path[:0] = {sys.path!r}
    import asyncio
    from turnlog_client.runner.proctree import kill_leftovers
    left = subprocess.Popen(["sleep", "1000"])
    put(type="preview", text=str(asyncio.run(kill_leftovers("rnr_test"))))
    put(type="settle", outcome="succeeded")
    """
    _, preview, settle = await conversation(python(READY, code), tmp_path)
    assert preview == Preview("1")
    assert settle == Settle("succeeded")


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


@linux
async def test_the_keeper_costs_little(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", keeper.__file__, str(reader), "--", "true", pass_fds=[reader]
        )
        assert await process.wait() == 0
        # A few tens of milliseconds; the bound only says that nothing heavy is imported.
        assert time.monotonic() - began < 2
    finally:
        os.close(reader)
        os.close(writer)
