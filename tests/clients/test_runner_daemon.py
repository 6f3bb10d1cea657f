"""The runner as a process, with harnesses that are processes: what signals do to it, and what it leaves behind."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from support.runner_daemon import daemon, logged
from support.scripted_fleet import Conversation, ScriptedFleet, make_offer, scripted_fleet
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import error_pb2
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.proctree import RUNNER

FAMILY = """
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
def put(**message):
    print(json.dumps(message), flush=True)
start = json.loads(sys.stdin.readline())
put(type="ready", protocol=1)
put(type="event", event_type="agent.message", payload={"parts": [{"text": f"{os.getpid()} {child.pid}"}]})
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "log":
        child.kill()
        put(type="settle", outcome="succeeded")
"""
"""A harness with a child of its own, in another process group. It settles when the server refuses something of it."""

HARNESSES = {"family": [sys.executable, "-c", FAMILY]}


@pytest.fixture
async def fleet() -> AsyncIterator[ScriptedFleet]:
    async with scripted_fleet() as fleet:
        yield fleet


async def family(stream: Conversation, offer: pb.Offer) -> list[psutil.Process]:
    """Starts the Run and gives the harness and its child, once both live."""
    await stream.offer(offer)
    await stream.take("harness_ready")
    append = await stream.take("append")
    await stream.ack(offer, append.lease.message_no)
    text: str = append.events[0].agent_message.parts[0].text
    return [psutil.Process(int(pid)) for pid in text.split()]


async def end_of(stream: Conversation, offer: pb.Offer) -> None:
    """Makes the harness settle."""
    reason = error_pb2.ERROR_REASON_PERMISSION_MISSING
    await stream.ack(offer, 2, pb.Rejection(message_no=2, reason=reason))


async def gone(processes: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 20)
    assert alive == []


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(20):
        return await process.wait()


async def test_it_says_in_one_line_what_it_serves(fleet: ScriptedFleet, tmp_path: Path) -> None:
    harnesses = {"repo": HARNESSES["family"], "echo": "echo"}
    async with daemon(fleet.address, tmp_path, harnesses=harnesses, key="tlk_secret") as process:
        record = await logged(process, "serving")
        runner_id = (await (await fleet.stream()).welcome()).runner_id
        assert record["message"] == f"runner {runner_id} serving pools default, harnesses repo, echo"
        assert record["runner_id"] == runner_id
        assert record["level"] == "info"


@pytest.mark.case(57)
async def test_killed_it_leaves_nothing_and_comes_back_as_another_life(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES) as process:
        stream = await fleet.stream()
        before = await stream.welcome()
        processes = await family(stream, make_offer(profile="family"))
        process.kill()
        await ended(process)
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES):
        after = await (await fleet.stream()).welcome()
        await gone(processes)
        assert after.runner_id == before.runner_id
        assert after.instance_id != before.instance_id
        assert list(after.held) == []


async def test_what_an_earlier_life_left_is_killed_before_hello(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES) as process:
        runner_id = (await (await fleet.stream()).welcome()).runner_id
        process.kill()
        await ended(process)
    left = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(600)", env={**os.environ, RUNNER: runner_id}
    )
    (tmp_path / "work" / "attempt-old").mkdir()
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES) as process:
        stream = await fleet.stream()
        await stream.take("hello")
        assert await ended(left) == -signal.SIGKILL
        assert list((tmp_path / "work").iterdir()) == []


async def test_two_runners_do_not_share_a_folder(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES):
        await (await fleet.stream()).welcome()
        async with daemon(fleet.address, tmp_path, harnesses=HARNESSES) as second:
            record = await logged(second, "Another runner uses")
            assert record["level"] == "error"
            assert await ended(second) == 2


@pytest.mark.case(49)
async def test_sigterm_lets_the_run_end(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES, drain_grace=600) as process:
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer(profile="family")
        processes = await family(stream, offer)
        process.send_signal(signal.SIGTERM)
        await stream.granted(0)
        assert all(each.is_running() for each in processes)
        await end_of(stream, offer)
        settle = await stream.take("settle")
        assert settle.outcome == pb.Settle.OUTCOME_SUCCEEDED
        await stream.ack(offer, settle.lease.message_no)
        await stream.take("goodbye")
        assert await ended(process) == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_gives_the_run_back(fleet: ScriptedFleet, tmp_path: Path, second: signal.Signals) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES, drain_grace=600) as process:
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer(profile="family")
        processes = await family(stream, offer)
        process.send_signal(signal.SIGTERM)
        await stream.granted(0)
        process.send_signal(second)
        abandon = await stream.take("abandon")
        await gone(processes)
        await stream.ack(offer, abandon.lease.message_no)
        await stream.take("goodbye")
        assert await ended(process) == 0


@pytest.mark.case(37)
async def test_a_lost_lease_kills_the_whole_tree(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer(profile="family")
        processes = await family(stream, offer)
        lost = pb.LeaseLost(**AttemptKey.of(offer)._asdict(), reason=error_pb2.ERROR_REASON_LEASE_LOST)
        await stream.say(lease_lost=lost)
        await gone(processes)
        await stream.granted(4)


@pytest.mark.case(37)
async def test_stopped_for_longer_than_its_lease_it_gives_up_what_it_held(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with daemon(fleet.address, tmp_path, harnesses=HARNESSES) as process:
        stream = await fleet.stream()
        before = await stream.welcome(ttl=3.0)
        processes = await family(stream, make_offer(profile="family"))
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3.2):
                await stream.next()
        process.send_signal(signal.SIGCONT)
        after = await (await fleet.stream()).welcome()
        assert list(after.held) == []
        assert after.instance_id != before.instance_id
        await gone(processes)
        assert stream.numbers() == [1, 2]
