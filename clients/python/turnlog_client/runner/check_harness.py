"""Tries a harness against the protocol, with a few scripted conversations, and says what to mend."""

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnlog_client.harness import limits
from turnlog_client.runner.command import resolve_command
from turnlog_client.runner.harness_process import HarnessProcess
from turnlog_client.runner.outputs import Exited, HarnessEvent, Output, Preview, ProtocolError, Ready, Settle
from turnlog_client.runner.proctree import harness_environment
from turnlog_client.runner.start import start_message

READY_SECONDS = 60.0
"""The start-up time that the control plane allows by default."""

INTERRUPT_SECONDS = 10.0
"""The grace after an interrupt, before the control plane ends the attempt itself."""

CANCEL_SECONDS = 5.0
"""The grace after a cancel, before the runner kills."""

EXIT_SECONDS = 2.0
"""The grace after a settle, before the runner kills."""

_AWKWARD = (
    'Grüße, \U0001f469\u200d\U0001f4bb 你好 שלום\u200f e\u0301 \ufeff | quote " backslash \\ slash / tab \t line \n '
    "separators \u2028\u2029 next line \u0085 form feed \f zero \u0000 delete \u007f end"
)
_LARGE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """What one conversation showed.

    name: what was tried. passed: whether the harness did right. seconds: how long it took.
    detail: what was seen. mend: what to change in the harness; empty when it passed.
    """

    name: str
    passed: bool
    seconds: float
    detail: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All checks of one harness. notes: what is allowed and worth knowing, such as the tools that it calls."""

    argv: tuple[str, ...]
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


@dataclass(slots=True)
class _Seen:
    """What one conversation gave."""

    outputs: list[Output] = field(default_factory=list)
    timed_out: str = ""
    stderr: str = ""
    exit_seconds: float | None = None

    @property
    def last(self) -> Output | None:
        return self.outputs[-1] if self.outputs else None

    def events(self, event_type: str) -> list[HarnessEvent]:
        return [each for each in self.outputs if isinstance(each, HarnessEvent) and each.type == event_type]


class _Wrong(Exception):
    """A check that failed: what was seen, and what to mend."""

    def __init__(self, detail: str, mend: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.mend = mend


async def check_harness(
    argv: Sequence[str],
    *,
    on_line: Callable[[str], None],
    tools: Sequence[str] = (),
    message: str = "What can you do?",
    turn_seconds: float = 120.0,
    env: Mapping[str, str] | None = None,
) -> Report:
    """Runs every check against the command `argv`, one process each. Paths in it are relative to the current folder.

    on_line: called with one line of text for each check as it ends, and with what to mend below a failed one.
    tools: names of the tools that the harness is told it may call. message: what the harness is asked.
    turn_seconds: how long a turn may take. env: the harness's environment, by default this one without Turnlog's own.
    Raises FileNotFoundError or PermissionError when the command cannot be started.
    """
    argv = resolve_command(argv, Path.cwd())
    checker = _Checker(argv, tools, message, turn_seconds, harness_environment() if env is None else env)
    checks: list[Check] = []
    for name, conversation in checker.conversations():
        began = time.monotonic()
        try:
            detail, mend = await conversation(), ""
        except _Wrong as wrong:
            detail, mend = wrong.detail, wrong.mend
        check = Check(name, not mend, time.monotonic() - began, detail, mend)
        checks.append(check)
        on_line(f"{'ok  ' if check.passed else 'FAIL'} {name}: {detail} ({check.seconds:.1f} s)")
        if mend:
            on_line(f"     to mend: {mend}")
            if not checker.was_ready:
                # The others would wait as long, or die of the same.
                checker.notes.append("The other checks are left out: they need a harness that gets ready.")
                break
    notes = tuple(checker.notes)
    for note in notes:
        on_line(f"note {note}")
    return Report(tuple(argv), tuple(checks), notes)


class _Checker:
    def __init__(
        self, argv: Sequence[str], tools: Sequence[str], message: str, turn_seconds: float, env: Mapping[str, str]
    ) -> None:
        self._argv = argv
        self._tools = tools
        self._message = message
        self._turn_seconds = turn_seconds
        self._env = env
        self.notes: list[str] = []
        self.was_ready = False
        """Whether the harness said ready in the last conversation."""

    def conversations(self) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
        return [
            ("simple turn", self._simple),
            ("interrupt in the middle", self._interrupt),
            ("cancel", self._cancel),
            ("unknown messages and keys", self._unknown),
            ("unicode and U+0000", self._unicode),
            ("large message", self._large),
        ]

    async def _simple(self) -> str:
        seen = await self._converse(self._message)
        self._must_settle(seen)
        self._must_exit(seen)
        self._must_pair_calls(seen)
        messages, previews = len(seen.events("agent.message")), sum(isinstance(each, Preview) for each in seen.outputs)
        if not messages:
            self.notes.append("The turn ended without an agent.message: whoever asked sees no answer.")
        if not seen.events("model.called"):
            self.notes.append("No model.called was sent: the Run shows no usage.")
        return f"{messages} message(s), {len(seen.events('agent.tool_use'))} tool call(s), {previews} preview(s)"

    async def _interrupt(self) -> str:
        seen = await self._converse(
            self._message, after_ready=lambda run: run.interrupt("check"), patience=INTERRUPT_SECONDS
        )
        if seen.timed_out == "settle":
            raise _Wrong(
                f"did not settle within {INTERRUPT_SECONDS:.0f} s of an interrupt",
                "Read stdin while the turn goes on, and settle soon after an interrupt. With the Python library: look "
                "at turn.interrupted, and do long work in asyncio.to_thread.",
            )
        self._must_settle(seen)
        return "settled"

    async def _cancel(self) -> str:
        took = 0.0

        async def cancel(run: HarnessProcess) -> None:
            nonlocal took
            began = time.monotonic()
            await run.cancel("check", CANCEL_SECONDS)
            took = time.monotonic() - began

        seen = await self._converse(self._message, after_ready=cancel)
        if took >= CANCEL_SECONDS:
            raise _Wrong(
                f"had to be told by signals {CANCEL_SECONDS:.0f} s after a cancel",
                "Exit soon after a cancel. With the Python library: let asyncio.CancelledError pass, and do long work "
                "in asyncio.to_thread.",
            )
        if isinstance(seen.last, ProtocolError) or seen.timed_out or not self.was_ready:
            self._must_settle(seen)
        self._must_exit(seen)
        return "ended by itself"

    async def _unknown(self) -> str:
        unknown = {"type": "from_a_later_version", "anything": [1, {"deep": None}]}
        seen = await self._converse(self._message, after_start=unknown, more={"from_a_later_version": {"x": 1}})
        self._must_settle(
            seen, "Ignore messages whose type you do not know, and keys that you do not know; a log message may say so."
        )
        return "ignored"

    async def _unicode(self) -> str:
        seen = await self._converse(_AWKWARD)
        self._must_settle(
            seen,
            "Read stdin as UTF-8 and split it at LF only (U+2028 and U+0085 are not line ends), parse each line as "
            "JSON, and write JSON with all control characters escaped.",
        )
        return "understood"

    async def _large(self) -> str:
        seen = await self._converse("All work and no play. " * (_LARGE_BYTES // 22))
        self._must_settle(
            seen,
            f"Read lines of up to {limits.MAX_START_BYTES >> 20} MiB, whatever the default of your line reader is, and "
            "wait until all is written before you exit: process.exit() in Node does not.",
        )
        return f"a message of {_LARGE_BYTES >> 20} MiB"

    async def _converse(
        self,
        text: str,
        *,
        after_start: dict[str, Any] | None = None,
        more: dict[str, Any] | None = None,
        after_ready: Callable[[HarnessProcess], Awaitable[None]] | None = None,
        patience: float | None = None,
    ) -> _Seen:
        """One conversation from start to exit. patience: seconds for the turn after ready."""
        with tempfile.TemporaryDirectory(prefix="turnlog-check-") as folder:
            run = await HarnessProcess.spawn(
                self._argv,
                runner_id="check-harness",
                attempt_id=f"check-{os.getpid()}",
                workdir=Path(folder),
                env=self._env,
            )
            seen = _Seen()
            asked: list[asyncio.Task[None]] = []

            async def listen(limit: asyncio.Timeout) -> None:
                async for output in run:
                    seen.outputs.append(output)
                    if isinstance(output, Ready):
                        limit.reschedule(asyncio.get_running_loop().time() + (patience or self._turn_seconds))
                        if after_ready:
                            asked.append(asyncio.ensure_future(after_ready(run)))

            try:
                start = start_message(
                    session_id="sess_check",
                    run_id="run_check",
                    parts=[text],
                    workdir=folder,
                    tools=[{"name": name} for name in self._tools],
                )
                sending = asyncio.create_task(self._send(run, {**start, **(more or {})}, after_start))
                try:
                    async with asyncio.timeout(READY_SECONDS) as limit:
                        await listen(limit)
                except TimeoutError:
                    seen.timed_out = "settle" if seen.outputs else "ready"
                sending.cancel()
                began = time.monotonic()
                if isinstance(seen.last, Settle):
                    await run.close(EXIT_SECONDS)
                    seen.exit_seconds = time.monotonic() - began
            finally:
                await run.kill(0)
                await asyncio.gather(*asked, return_exceptions=True)
            seen.stderr = run.stderr_tail
            self.was_ready = any(isinstance(each, Ready) for each in seen.outputs)
            return seen

    async def _send(self, run: HarnessProcess, *messages: dict[str, Any] | None) -> None:
        for message in messages:
            if message is not None:
                with contextlib.suppress(OSError):
                    await run.send(message)

    def _must_settle(self, seen: _Seen, mend: str = "") -> None:
        last = seen.last
        if seen.timed_out == "ready":
            raise _Wrong(
                f"no ready within {READY_SECONDS:.0f} s",
                mend or 'Write {"type":"ready","protocol":1} and flush stdout when start-up is done.',
            )
        if seen.timed_out:
            raise _Wrong(
                f"no settle within {self._turn_seconds:.0f} s of the ready",
                mend or 'Write {"type":"settle","outcome":"succeeded"} and flush stdout when the turn is over.',
            )
        if isinstance(last, ProtocolError):
            raise _Wrong(last.message, f"Write only JSON objects of the protocol to stdout, one a line. {mend}".strip())
        if isinstance(last, Exited):
            raise _Wrong(last.message, f"Write a settle before you exit, also when the turn failed. {mend}".strip())
        if isinstance(last, Settle) and last.error_code in {"harness.unhandled", "harness.protocol_error"}:
            raise _Wrong(f"settled as failed, {last.error_code}: {last.message}", mend or "Handle what was raised.")

    def _must_exit(self, seen: _Seen) -> None:
        if seen.exit_seconds is not None and seen.exit_seconds >= EXIT_SECONDS:
            raise _Wrong(
                f"still ran {EXIT_SECONDS:.0f} s after its settle and was killed",
                "Exit after the settle: one process does one turn.",
            )

    def _must_pair_calls(self, seen: _Seen) -> None:
        calls = [each.payload["call_id"] for each in seen.events("agent.tool_use")]
        results = [each.payload["call_id"] for each in seen.events("agent.tool_result")]
        if len(set(calls)) != len(calls):
            raise _Wrong("one call_id was used for two calls", "Give every tool call an id of its own.")
        if sorted(calls) != sorted(results):
            raise _Wrong(
                f"{len(calls)} tool call(s) and {len(results)} result(s) do not match",
                "Send one agent.tool_result for each agent.tool_use, with its call_id, also when the tool failed.",
            )
        foreign = {each.payload["name"] for each in seen.events("agent.tool_use")} - set(self._tools)
        if foreign:
            self.notes.append(
                f"Calls the tool(s) {', '.join(sorted(foreign))}, which it was not given: the agent's version must "
                "enable them."
            )
