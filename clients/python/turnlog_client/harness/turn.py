"""What a harness's author holds: the turn, its message, and the ways to say something."""

import asyncio
import base64
import dataclasses
import json
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn

from turnlog_client.harness import limits
from turnlog_client.harness.payloads import clean_text, shape, split_text

LogLevel = Literal["debug", "info", "warning", "error"]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Event = Callable[[str, dict[str, Any]], Awaitable[None]]


class TurnFailed(Exception):
    """Ends the turn as failed. Raised by `Turn.fail`; let it pass."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What the turn is asked. `text` is all its parts joined; `parts` are the texts one by one."""

    text: str
    parts: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One earlier event of the conversation.

    seq: its place in the Session's log. type: such as `user.message`. text: what it says, empty where it says nothing.
    raw: all that the runner gave, with the keys of its type.
    """

    seq: int
    type: str
    text: str
    raw: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent's version enables. input_schema: JSON Schema of its arguments, None where none is given."""

    name: str
    description: str
    input_schema: Mapping[str, Any] | None


class Turn:
    """One turn to answer.

    Everything that is awaited here waits while the runner is busy, so that nothing piles up.
    `interrupted` is set when the turn should come to an end: say what there is to say and return. On a cancel
    `asyncio.CancelledError` is raised where the answer awaits; long work without an await belongs in
    `asyncio.to_thread`, or neither can be seen.
    """

    def __init__(self, start: Mapping[str, Any], send: Send, model: str) -> None:
        self._send = send
        self._model = model
        self._deadline = time.monotonic() + start.get("deadline_seconds", math.inf)
        self._max_preview = start.get("limits", {}).get("max_preview_bytes", limits.MAX_PREVIEW_BYTES)
        self.session_id: str = start["session_id"]
        self.run_id: str = start["run_id"]
        self.attempt_no: int = start["attempt_no"]
        """From 1. Above 1, an earlier attempt at the same turn came to nothing; its events are in the log."""
        self.attempt_kind: str = start.get("attempt_kind", "INITIAL")
        self.message = Message(start["message"]["text"], tuple(part["text"] for part in start["message"]["parts"]))
        self.history: Sequence[HistoryRecord] = tuple(
            HistoryRecord(each["seq"], each["type"], each.get("text", ""), each) for each in start.get("history", ())
        )
        """The conversation before this message, oldest first."""
        self.history_omitted: int = start.get("history_omitted", 0)
        """Records that were left out at the old end of `history`."""
        self.instructions: str = start.get("instructions", "")
        self.tools: Sequence[Tool] = tuple(
            Tool(each["name"], each.get("description", ""), each.get("input_schema")) for each in start.get("tools", ())
        )
        """What the agent may call. A call of any other tool is refused and does not reach the log."""
        self.workdir = Path(start.get("workdir") or ".")
        """The turn's own folder, removed after it."""
        self.env_root = Path(start["env_root"]) if start.get("env_root") else None
        """Where staged inputs are, None when there are none."""
        self.raw: Mapping[str, Any] = start
        """The start message as it came."""
        self.interrupted = asyncio.Event()

    def remaining(self) -> float:
        """Seconds until the attempt's deadline, below 0 once it has passed; infinity where there is none."""
        return self._deadline - time.monotonic()

    async def say(self, text: str, *, usage: Mapping[str, Any] | None = None, model: str | None = None) -> None:
        """Adds a message to the Session's log.

        usage: what the model call behind it used: input_tokens, output_tokens, cached_tokens, amount_nanos, currency.
        A text over the limit of one event is cut at a code point and says so at its end.
        """
        if usage is not None:
            await self.model_called(usage, model=model)
        await self._event("agent.message", {"parts": [{"text": text}]})

    async def preview(self, text: str) -> None:
        """Shows text at once to those who watch. It is not kept: say it all with `say` in the end."""
        for piece in split_text(clean_text(text), self._max_preview):
            await self._send({"type": "preview", "text": piece})

    def tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> "ToolCall":
        """A tool call around a block: `async with turn.tool("search", {"query": q}) as call: call.result(...)`.

        The call is in the log before the block runs, and its result after it, whatever happens inside.
        """
        return ToolCall(self._event, name, arguments or {})

    async def model_called(self, usage: Mapping[str, Any], *, model: str | None = None) -> None:
        """Reports one model call. `say(..., usage=...)` does it too."""
        await self._event("model.called", {"model": self._model if model is None else model, "usage": dict(usage)})

    async def log(self, level: LogLevel, message: str) -> None:
        """A line for the runner's log, not for the Session's."""
        await self._send({"type": "log", "level": level, "message": clean_text(message)})

    def fail(self, code: str, message: str) -> NoReturn:
        """Ends the turn as failed. code: dotted and lower-case, such as `search.index_missing`."""
        raise TurnFailed(code, message)

    async def _event(self, event_type: str, payload: dict[str, Any]) -> None:
        shaped, _ = shape(event_type, payload)
        await self._send({"type": "event", "event_type": event_type, "payload": shaped})


class ToolCall:
    """One call of a tool, from `Turn.tool`. Without a result it answers with empty text."""

    def __init__(self, event: Event, name: str, arguments: Mapping[str, Any]) -> None:
        self._event = event
        self._name = name
        self._arguments = arguments
        self._result: dict[str, Any] = {"parts": []}
        # Unique also over the attempts of a Run, whose events stay in the log.
        self.call_id = f"call_{secrets.token_hex(8)}"

    def result(self, value: object, *, media_type: str = "") -> None:
        """What the tool answered: text as it is, bytes as bytes, anything else as JSON.

        media_type: of bytes, such as `image/png`. Output over the limit of one event is cut and marked as truncated.
        """
        if isinstance(value, bytes | bytearray | memoryview):
            # Cut before it is encoded: 64 MB of base64 would be made only to be thrown away.
            raw = memoryview(value)
            data = base64.b64encode(raw[: limits.MAX_EVENT_BYTES]).decode()
            self._result = {"data": data, "media_type": media_type, "truncated": len(raw) > limits.MAX_EVENT_BYTES}
        else:
            text = value if isinstance(value, str) else json.dumps(to_json(value), ensure_ascii=False)
            self._result = {"parts": [{"text": text}]}

    def error(self, text: str) -> None:
        """The tool failed, and the turn goes on. An exception that leaves the block is recorded the same way."""
        self._result = {"parts": [{"text": text}], "is_error": True}

    async def __aenter__(self) -> "ToolCall":
        arguments = to_json(self._arguments)
        await self._event("agent.tool_use", {"call_id": self.call_id, "name": self._name, "arguments": arguments})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self.error("canceled")
        elif error is not None:
            self.error(f"{type(error).__name__}: {error}")
        await self._event("agent.tool_result", {"call_id": self.call_id, **self._result})


def to_json(value: object) -> Any:
    """`value` as JSON can hold it: dataclasses and mappings as objects, iterables as arrays, the rest as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(child) for key, child in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray | memoryview):
        return [to_json(child) for child in value]
    return str(value)
