"""What a stranger makes of a log with nothing but its events: where the Session stands, its Runs, what was said."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from turnlog.v1 import event_pb2, run_pb2, session_pb2

STATUS = "session.status_"
TERMINAL = frozenset({"completed", "failed", "canceled"})
LEGAL = {
    "idle": "pending completed canceled failed",
    "pending": "provisioning idle failed canceled",
    "provisioning": "running pending idle failed canceled",
    "running": "waiting paused reconciling idle pending completed failed canceled",
    "waiting": "running pending paused idle failed canceled",
    "paused": "pending idle failed canceled",
    "reconciling": "idle completed failed canceled",
    "completed": "",
    "failed": "",
    "canceled": "",
}
"""The documented table of legal steps, written down a second time."""


def statuses(log: Iterable[event_pb2.Event]) -> list[str]:
    """The statuses that a log tells, in order."""
    return [event.type.removeprefix(STATUS) for event in log if event.type.startswith(STATUS)]


def legal(path: list[str]) -> bool:
    """Whether a Session may go this way, from its first event on."""
    return path[0] in ("idle", "pending") and all(after in LEGAL[before].split() for before, after in pairwise(path))


def text_of(message: Any) -> str:
    """The text of a message's parts."""
    return "".join(part.text for part in message.parts)


@dataclass
class RunStory:
    """A Run as its events tell it."""

    trigger: tuple[str, int, str]
    status: int = run_pb2.RUN_STATUS_QUEUED
    attempt_no: int = 0
    attempts: dict[int, int] = field(default_factory=dict)
    tokens: int = 0
    nanos: int = 0
    error: str = ""


@dataclass
class Story:
    """A Session as its events tell it."""

    head: int = 0
    status: int = 0
    stop_reason: int = 0
    active_run_id: str = ""
    error: str = ""
    runs: dict[str, RunStory] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)
    calls: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def queued(self) -> int:
        """Turns that wait."""
        return sum(1 for run in self.runs.values() if run.status == run_pb2.RUN_STATUS_QUEUED)


def story(log: Iterable[event_pb2.Event]) -> Story:
    """The fold."""
    told = Story()
    for event in log:
        told.head = event.seq
        payload = getattr(event, event.WhichOneof("payload") or "")
        if event.type.startswith(STATUS):
            told.status, told.stop_reason = payload.status, payload.stop_reason
            told.active_run_id, told.error = payload.active_run_id, payload.error.code
            run = told.runs.get(event.run_id)
            if payload.status == session_pb2.SESSION_STATUS_RUNNING and run is not None:
                run.status = run_pb2.RUN_STATUS_RUNNING
                run.attempts[event.attempt_no] = run_pb2.ATTEMPT_STATUS_RUNNING
        elif event.type in ("user.message", "agent.message"):
            told.messages.append((event.type, text_of(payload)))
        elif event.type == "agent.tool_use":
            told.calls[payload.call_id] = (payload.name, "")
        elif event.type == "agent.tool_result":
            told.calls[payload.call_id] = (told.calls[payload.call_id][0], text_of(payload))
        elif event.type == "run.queued":
            told.runs[event.run_id] = RunStory((payload.trigger_event_id, payload.trigger_seq, payload.trigger_type))
        elif event.run_id in told.runs:
            _of_run(told.runs[event.run_id], event, payload)
    return told


def _of_run(run: RunStory, event: event_pb2.Event, payload: Any) -> None:
    match event.type:
        case "run.ready":
            run.status = run_pb2.RUN_STATUS_READY
        case "run.attempt_started":
            run.status, run.attempt_no = run_pb2.RUN_STATUS_PROVISIONING, event.attempt_no
            run.attempts[event.attempt_no] = run_pb2.ATTEMPT_STATUS_STARTING
        case "run.attempt_ended":
            run.attempts[event.attempt_no] = payload.status
        case "model.called":
            run.tokens += payload.usage.input_tokens + payload.usage.output_tokens
            run.nanos += payload.usage.amount_nanos
        case "run.succeeded" | "run.failed" | "run.interrupted" | "run.canceled":
            run.status, run.error = payload.status, payload.error.code
