"""A harness inside the runner that says back what it was told: for first steps, tests and measurements."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from turnlog_client.harness.limits import MAX_PREVIEW_BYTES
from turnlog_client.harness.payloads import shape, split_text
from turnlog_client.runner.outputs import HarnessEvent, Output, Preview, Ready, Settle


class EchoHarness:
    """Answers a turn with its own text: ready, one preview, one message, its usage in words, settle.

    delay: seconds between ready and the answer, cut short by an interrupt. See `HarnessRun`.
    """

    def __init__(self, *, delay: float = 0.0) -> None:
        self._delay = delay
        self._start: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._interrupted = asyncio.Event()
        self._stopped = asyncio.Event()

    async def send(self, message: dict[str, Any]) -> None:
        """Takes a `start`; other messages mean nothing to it."""
        if message["type"] == "start" and not self._start.done():
            self._start.set_result(message)

    async def __aiter__(self) -> AsyncIterator[Output]:
        yield Ready("echo")
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait([self._start, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self._start.done() and self._delay > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._interrupted.wait(), self._delay)
        if self._stopped.is_set():
            yield Settle("failed", "harness.canceled", "The turn was canceled on the runner's request.")
            return
        text: str = self._start.result()["message"]["text"]
        for piece in split_text(text, MAX_PREVIEW_BYTES)[:1]:
            yield Preview(piece)
        payload, cut = shape("agent.message", {"parts": [{"text": text}]})
        yield HarnessEvent("agent.message", payload, cut)
        words = len(text.split())
        usage = {"input_tokens": words, "output_tokens": words}
        yield HarnessEvent("model.called", {"model": "echo", "usage": usage})
        yield Settle("succeeded")

    async def interrupt(self, reason: str = "") -> None:
        """Answers at once."""
        self._interrupted.set()

    async def cancel(self, reason: str = "", grace: float = 5.0) -> None:
        """Settles as failed at once."""
        await self.kill()

    async def close(self, grace: float = 2.0) -> None:
        """There is nothing to wait for."""
        await self.kill()

    async def kill(self, grace: float = 1.0) -> None:
        """There is nothing to kill: an iteration that still goes on ends."""
        self._stopped.set()
        self._interrupted.set()
