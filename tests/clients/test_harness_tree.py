"""The end of a harness: its whole process tree, whoever started what and however it ended."""

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
from harness_support import READY, alive, conversation, end, next_of, python, spawned, start
from turnlog_client.runner import keeper, proctree
from turnlog_client.runner.harness_process import HarnessProcess
from turnlog_client.runner.outputs import Exited, Preview, Settle

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


async def grown(run: HarnessProcess) -> dict[str, int]:
    """The pids of the tree of a harness that runs TREE."""
    await run.send(start())
    outputs = run.__aiter__()
    preview = await next_of(outputs, Preview)
    assert isinstance(preview, Preview)
    tree = json.loads(preview.text)
    assert alive(list(tree.values())) == list(tree.values())
    return tree


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
