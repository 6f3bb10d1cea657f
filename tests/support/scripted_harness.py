"""Harnesses and runners inside the test's own process, for tests of the runner daemon."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.scripted_fleet import Conversation
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_client.runner.attempt import Launch
from turnlog_client.runner.daemon import Runner, boot_clock
from turnlog_client.runner.folder import RunnerFolder
from turnlog_client.runner.launcher import launcher
from turnlog_client.runner.options import Command, RunnerOptions, Timing
from turnlog_client.runner.outputs import Exited, HarnessEvent, HarnessRun, Output, Ready, Settle

PATIENCE = 20.0

QUICK = Timing(backoff_first=0.02, backoff_most=0.1, refused_first=0.05, refused_most=0.2, tick=0.02, farewell=2.0)
"""Waits that a test can afford."""


def message(text: str) -> HarnessEvent:
    """An `agent.message`."""
    return HarnessEvent("agent.message", {"parts": [{"text": text}]})


class ScriptedHarness:
    """A harness that a test plays. See `HarnessRun`.

    sent: the messages that it was sent. interrupted, canceled, killed: set when it was told so.
    """

    def __init__(self, profile: str, work_dir: Path) -> None:
        self.profile = profile
        self.work_dir = work_dir
        self.sent: list[dict[str, Any]] = []
        self.started = asyncio.Event()
        self.told = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.canceled = asyncio.Event()
        self.killed = asyncio.Event()
        self.closed = False
        self.taken = 0
        self._outputs: asyncio.Queue[Output] = asyncio.Queue()

    def say(self, *outputs: Output) -> None:
        """Lets the runner hear something."""
        for output in outputs:
            self._outputs.put_nowait(output)

    def succeed(self) -> None:
        """Ready and done."""
        self.say(Ready(), Settle("succeeded"))

    async def send(self, message: dict[str, Any]) -> None:
        """Takes a message."""
        self.sent.append(message)
        (self.started if message["type"] == "start" else self.told).set()

    async def __aiter__(self) -> AsyncIterator[Output]:
        while True:
            output = await self._outputs.get()
            self.taken += 1
            yield output
            if isinstance(output, Settle | Exited):
                return

    async def interrupt(self, reason: str = "") -> None:
        """Is told to stop."""
        self.interrupted.set()

    async def cancel(self, reason: str = "", grace: float = 5.0) -> None:
        """Is told to stop and gone."""
        self.canceled.set()
        await self.kill()

    async def close(self, grace: float = 2.0) -> None:
        """Nothing is left."""
        self.closed = True

    async def kill(self, grace: float = 1.0) -> None:
        """Is gone."""
        self.killed.set()
        self.say(Exited(-9))


@dataclass
class Harnesses:
    """Launches scripted harnesses and hands them to the test."""

    launched: list[ScriptedHarness] = field(default_factory=list)
    _fresh: "asyncio.Queue[ScriptedHarness]" = field(default_factory=asyncio.Queue)

    async def launch(self, profile: str, attempt: str, work_dir: Path) -> HarnessRun:
        """Starts one."""
        harness = ScriptedHarness(profile, work_dir)
        self.launched.append(harness)
        self._fresh.put_nowait(harness)
        return harness

    async def next(self) -> ScriptedHarness:
        """The next one that the runner starts, once it was told its turn."""
        async with asyncio.timeout(PATIENCE):
            harness = await self._fresh.get()
            await harness.started.wait()
            return harness


async def begun(stream: Conversation, offer: pb.Offer, harnesses: Harnesses) -> ScriptedHarness:
    """A Run whose harness is ready and acknowledged."""
    await stream.offer(offer)
    harness = await harnesses.next()
    harness.say(Ready())
    await stream.take("harness_ready")
    await stream.ack(offer, 1)
    return harness


class Clock:
    """A clock that runs, and that a test can move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return boot_clock() + self.ahead


@dataclass
class RunningRunner:
    """A runner at work inside the test."""

    runner: Runner
    folder: RunnerFolder
    task: "asyncio.Task[int]"

    async def exit_code(self) -> int:
        """Waits for its end."""
        async with asyncio.timeout(PATIENCE):
            return await self.task


@asynccontextmanager
async def running_runner(
    address: str,
    data_dir: Path,
    *,
    harnesses: Mapping[str, Command] | None = None,
    launch: Launch | None = None,
    clock: Callable[[], float] = boot_clock,
    timing: Timing = QUICK,
    **more: Any,
) -> AsyncIterator[RunningRunner]:
    """A runner with everything real but, where given, its harnesses and its clock."""
    options = RunnerOptions(
        address=address,
        harnesses=harnesses or {"echo": "echo"},
        data_dir=data_dir,
        timing=timing,
        **{"key": "tlk_secret", **more},
    )
    folder = RunnerFolder(options.data_dir, options.work_dir)
    runner = Runner(options, folder, launch or launcher(options, folder.runner_id), clock)
    task = asyncio.create_task(runner.run())
    try:
        yield RunningRunner(runner, folder, task)
    finally:
        task.cancel()
        await asyncio.wait([task])
        folder.close()
