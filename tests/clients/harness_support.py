"""Harnesses made of a few lines of Python, and what tests ask of them."""

import os
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
from turnlog_client.runner.harness_process import HarnessProcess
from turnlog_client.runner.outputs import HarnessRun, Output
from turnlog_client.runner.proctree import harness_environment
from turnlog_client.runner.start import start_message

RAW = """
import json, os, signal, subprocess, sys, time
def put(**message):
    sys.stdout.write(json.dumps(message) + "\\n")
    sys.stdout.flush()
def event(kind, **payload):
    put(type="event", event_type=kind, payload=payload)
"""
"""What a harness without the library needs."""

READY = RAW + 'start = json.loads(sys.stdin.readline())\nput(type="ready", protocol=1)\n'
"""The same, with the turn begun."""

LIBRARY = "from turnlog_client.harness import Harness, Turn\nimport asyncio, os, sys\n"
"""The beginning of a harness with the library."""


def python(*pieces: str) -> list[str]:
    """The command that runs these pieces of Python, each with its own indentation."""
    return [sys.executable, "-c", "\n".join(textwrap.dedent(piece) for piece in pieces)]


async def spawned(argv: list[str], workdir: Path, *, runner_id: str = "rnr_test", **env: str) -> HarnessProcess:
    """A harness process that has not been sent anything."""
    return await HarnessProcess.spawn(
        argv, runner_id=runner_id, attempt_id="run_1.1", workdir=workdir, env=harness_environment(extra=env)
    )


def start(text: str = "hello", **more: Any) -> dict[str, Any]:
    """A start message."""
    return start_message(session_id="sess_1", run_id="run_1", parts=[text], **more)


async def outputs_of(run: HarnessRun) -> list[Output]:
    """All outputs, and the harness gone after them."""
    outputs = [output async for output in run]
    await run.close()
    return outputs


async def conversation(argv: list[str], workdir: Path, text: str = "hello", **more: Any) -> list[Output]:
    """One turn from start to end."""
    run = await spawned(argv, workdir)
    await run.send(start(text, workdir=str(workdir), **more))
    return await outputs_of(run)


async def next_of(outputs: AsyncIterator[Output], kind: type[Output]) -> Output:
    """The first output of a kind, and all before it passed over."""
    async for output in outputs:
        if isinstance(output, kind):
            return output
    raise AssertionError(f"no {kind.__name__}")


def alive(pids: list[int]) -> list[int]:
    """Those that still run. A zombie does not."""
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(pids: list[int]) -> None:
    """Ends what a test has started and a failure has left."""
    for pid in pids:
        if _runs(pid):
            os.kill(pid, 9)
