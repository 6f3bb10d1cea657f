"""Runs an author's `answer` as a harness process: one turn over stdin and stdout, then the process ends."""

import asyncio
import contextlib
import json
import re
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from turnlog_client.harness import limits, schema
from turnlog_client.harness.payloads import clean_text, cut_text, encode_line
from turnlog_client.harness.stdio import Stdio
from turnlog_client.harness.turn import Turn, TurnFailed

Answer = Callable[[Turn], Awaitable[None]]


class Harness:
    """A harness made of one coroutine function.

    answer: is given the turn; when it returns the turn has succeeded, when it raises it has failed.
    prepare: start-up work, such as loading a model, done before the harness says that it is ready.
    name: how the harness is called in logs; by default the name of the program.
    model: the model's name where `say` and `model_called` give none.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        prepare: Callable[[], Awaitable[None]] | None = None,
        name: str = "",
        model: str = "",
    ) -> None:
        self._answer = answer
        self._prepare = prepare
        self._name = name or Path(sys.argv[0]).stem
        self._model = model

    def run(self) -> None:
        """Serves one turn and returns. Everything printed meanwhile goes to stderr, which is the runner's log."""
        stdio = Stdio.take()
        with contextlib.suppress(BrokenPipeError):
            asyncio.run(self._serve(stdio))

    async def _serve(self, stdio: Stdio) -> None:
        await _Served(self, stdio).serve()

    async def prepare(self) -> None:
        """Does the start-up work, if there is any."""
        if self._prepare is not None:
            await self._prepare()

    def turn(self, start: dict[str, Any], send: Callable[[dict[str, Any]], Awaitable[None]]) -> Turn:
        """The turn that a start message describes."""
        return Turn(start, send, self._model)

    async def answer(self, turn: Turn) -> None:
        """Does the turn."""
        await self._answer(turn)

    def ready(self) -> dict[str, Any]:
        """The ready message."""
        return {"type": "ready", "protocol": limits.PROTOCOL, "name": self._name}


class _Served:
    """One turn of one harness."""

    def __init__(self, harness: Harness, stdio: Stdio) -> None:
        self._harness = harness
        self._stdio = stdio
        self._start: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._turn: Turn | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._interrupted = False
        self._logs: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        # SIGTERM is a cancel that comes by another way, so that an answer's `finally` runs.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._cancel)
        self._stdio.read_lines(self._line, self._end)
        self._task = asyncio.create_task(self._work())
        await asyncio.wait([self._task])
        error = _error_of(self._task, self._cancelled)
        outcome: dict[str, Any] = {"type": "settle", "outcome": "failed" if error else "succeeded"}
        if error:
            outcome["error"] = error
        if self._logs:
            await asyncio.wait(self._logs)
        await self._send(outcome)

    async def _work(self) -> None:
        await self._harness.prepare()
        await self._send(self._harness.ready())
        self._turn = self._harness.turn(await self._start, self._send)
        if self._interrupted:
            self._turn.interrupted.set()
        await self._harness.answer(self._turn)

    async def _send(self, message: dict[str, Any]) -> None:
        await self._stdio.write(encode_line(message))

    def _line(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line.decode())
            kind = message["type"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._complain(f"not a message: {type(error).__name__}: {error}")
            return
        match kind:
            case "start":
                self._started(message)
            case "interrupt":
                self._interrupted = True
                if self._turn is not None:
                    self._turn.interrupted.set()
            case "cancel":
                self._cancel()
            case "log":
                print(f"runner: {message.get('level', 'info')}: {message.get('message', '')}", file=sys.stderr)
            case _:
                self._complain(f"unknown message type {kind!r} is ignored")

    def _started(self, message: dict[str, Any]) -> None:
        if self._start.done():
            self._complain("a second start is ignored: one process does one turn")
            return
        try:
            if message.get("protocol") != limits.PROTOCOL:
                raise TurnFailed(
                    "harness.protocol_unsupported",
                    f"The runner speaks version {message.get('protocol')} of the harness protocol, "
                    f"this harness {limits.PROTOCOL}.",
                )
            schema.check("start", message)
        except (TurnFailed, schema.SchemaError) as error:
            failed = error if isinstance(error, TurnFailed) else TurnFailed("harness.protocol_error", f"start: {error}")
            self._start.set_exception(failed)
        else:
            self._start.set_result(message)

    def _end(self) -> None:
        # The end of the input after a start says nothing: a turn may be tried by hand with `echo … | harness`.
        if not self._start.done():
            self._start.set_exception(TurnFailed("harness.protocol_error", "stdin ended before a start message."))

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def _complain(self, message: str) -> None:
        task = asyncio.ensure_future(self._send({"type": "log", "level": "error", "message": clean_text(message)}))
        self._logs.add(task)
        task.add_done_callback(self._logs.discard)


def _error_of(task: asyncio.Task[None], cancelled: bool) -> dict[str, str] | None:
    """How the work ended, as the error of a settle, None when it ended well."""
    if task.cancelled():
        by_whom = "on the runner's request" if cancelled else "by the harness itself"
        return {"code": "harness.canceled", "message": f"The turn was canceled {by_whom}."}
    error = task.exception()
    if error is None:
        return None
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, TurnFailed):
        code, message = error.code, error.message
        if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", code) or len(code) > 128:
            code, message = "harness.failed", f"{code}: {message}"
    else:
        traceback.print_exception(error)
        code, message = "harness.unhandled", f"{type(error).__name__}: {error}"
    return {"code": code, "message": cut_text(clean_text(message), limits.MAX_ERROR_MESSAGE_BYTES)[0]}
