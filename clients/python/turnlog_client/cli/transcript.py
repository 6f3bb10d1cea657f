"""A Session's events as people read them.

It only ever appends to what is on the screen, so that a pipe, a log file and a terminal show the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from textwrap import indent
from typing import Any

from rich.console import Console
from turnlog.v1 import run_pb2

from turnlog_client.cli.flow import Flow
from turnlog_client.cli.output import clean
from turnlog_client.follow import FollowedEvent, FollowedPreview, Interruption

_STYLES = {"running": "green", "failed": "red", "idle": "bold", "completed": "bold green", "canceled": "yellow"}

_ENDS = {
    run_pb2.ATTEMPT_STATUS_LOST: "runner lost",
    run_pb2.ATTEMPT_STATUS_STARTUP_TIMEOUT: "start-up timed out",
    run_pb2.ATTEMPT_STATUS_ABANDONED: "given back",
    run_pb2.ATTEMPT_STATUS_DEADLINE: "deadline passed",
}

# The arguments of a tool that say which lines of which file.
_PLACE = ("path", "start_line", "end_line")


class Transcript:
    """Prints what a follow brings. `hidden` are seqs that the reader already knows, such as what was just typed."""

    def __init__(self, console: Console, *, hidden: frozenset[int] = frozenset()) -> None:
        self._flow = Flow(console)
        self.hidden = set(hidden)
        self._open = ""
        self._status = ""
        self._run_id = ""
        self._lost = ""
        self._again = ""
        self._reconnecting: int | None = None
        self._early: list[FollowedPreview] = []
        self._previewed = self._space = ""
        self._preview_attempt = 0
        self._broken = False
        self._calls: dict[str, tuple[str, datetime, bool]] = {}
        self._began: datetime | None = None
        self._verdict = ""
        self._attempts = 0

    def event(self, event: FollowedEvent) -> None:
        """Shows one event."""
        self._reconnecting = None
        if event.seq in self.hidden:
            return
        if not event.known:
            self._line(f"  ? {event.type} (seq {event.seq}): newer than this client", "dim")
            return
        kind, _, name = event.type.partition(".")
        if kind == "session" and name.startswith("status_"):
            self._status_changed(event, name.removeprefix("status_"))
        elif show := getattr(self, f"_show_{kind}_{name}", None):
            show(event, event.payload)

    def preview(self, preview: FollowedPreview) -> None:
        """Shows text in the making."""
        if self._status in ("pending", "provisioning"):
            # A preview may overtake the event that says `running`; shown now, it would tear the status line apart.
            self._early.append(preview)
            return
        if preview.attempt_no != self._preview_attempt:
            self._break_preview()
            self._preview_attempt = preview.attempt_no
        if self._open != "message":
            self._broken = self._broken or bool(self._previewed)
            self._begin("message", "  ")
        # Space at the end waits: the message that this becomes may end before it.
        whole = self._previewed + self._space + preview.text
        before, self._previewed = len(self._previewed), whole.rstrip()
        self._space = whole[len(self._previewed) :]
        self._flow.write(_indented(self._previewed[before:]), more=True)

    def interrupted(self, interruption: Interruption) -> None:
        """Says that the connection is being made again."""
        [seq] = interruption.cursors.values()
        # An outage is told once, not at every attempt.
        if self._reconnecting != seq:
            self._reconnecting = seq
            self.remark(f"reconnecting from seq {seq}")
        self._break_preview()

    def remark(self, text: str) -> None:
        """A line that is not from the log."""
        self._line(f"  … {text}", "dim")

    def close(self) -> None:
        """Ends the line that is open."""
        if self._open:
            self._flow.end_line()
            self._open = ""

    # What each type of event looks like, by its dotted name.

    def _show_user_message(self, event: FollowedEvent, _: Any) -> None:
        self._line("> " + event.text.replace("\n", "\n  "), "bold cyan")

    def _show_user_interrupt(self, event: FollowedEvent, payload: Any) -> None:
        self._line(
            f"  ✋ interrupted by {event.raw.authored_by}{': ' if payload.reason else ''}{payload.reason}", "yellow"
        )

    def _show_agent_message(self, event: FollowedEvent, _: Any) -> None:
        text = event.text
        if self._open == "message" and not self._broken and text.startswith(self._previewed):
            self._write(_indented(text[len(self._previewed) :].rstrip()))
            self.close()
        else:
            # What was previewed is not how it came to be: the durable text replaces it whole.
            self._line(indent(text, "  "))
        self._forget_preview()

    def _show_agent_tool_use(self, event: FollowedEvent, payload: Any) -> None:
        arguments = _plain(payload.arguments)
        self._calls[payload.call_id] = (payload.name, event.create_time, bool(_place(arguments)))
        self._begin(f"call {payload.call_id}", "")
        self._write(f"  ⚙ {clean(payload.name):<6} {clean(_shown(arguments))}".rstrip(), "cyan")

    def _show_agent_tool_result(self, event: FollowedEvent, payload: Any) -> None:
        name, since, is_place = self._calls.pop(payload.call_id, ("?", event.create_time, False))
        if is_place and not payload.is_error:
            # What was read is what stands there.
            told = ""
        else:
            told = _summary(event.text) or (
                f"{len(payload.data)} bytes {payload.media_type}" if payload.data else "done"
            )
        seconds = (event.create_time - since).total_seconds()
        if seconds >= 0.1:
            told += f" in {seconds:.1f} s"
        if payload.truncated:
            told += " (cut)"
        style = "red" if payload.is_error else "dim"
        if self._open == f"call {payload.call_id}":
            self._write(f"   {clean(told.strip())}".rstrip(), style)
            self.close()
        else:
            self._line(f"    ↳ {name}   {told.strip() or 'done'}", style)

    def _show_run_queued(self, event: FollowedEvent, payload: Any) -> None:
        self._began = self._began or event.create_time
        if payload.turns_ahead:
            plural = "s" if payload.turns_ahead > 1 else ""
            self.remark(f"{event.run_id} is queued behind {payload.turns_ahead} turn{plural}")

    def _show_run_attempt_started(self, event: FollowedEvent, _: Any) -> None:
        if event.raw.attempt_no > 1:
            self._again = f"attempt {event.raw.attempt_no}"

    def _show_run_attempt_ended(self, event: FollowedEvent, payload: Any) -> None:
        if payload.status in _ENDS:
            self._lost = f"{_ENDS[payload.status]}, attempt {event.raw.attempt_no}"

    def _show_run_stop_requested(self, event: FollowedEvent, payload: Any) -> None:
        self.remark("stopping; the harness has its grace")

    def _show_run_succeeded(self, event: FollowedEvent, payload: Any) -> None:
        self._run_ended(event, "")

    def _show_run_failed(self, event: FollowedEvent, payload: Any) -> None:
        self._run_ended(event, f"failed: {payload.error.code}: {payload.error.message}")

    def _show_run_interrupted(self, event: FollowedEvent, payload: Any) -> None:
        self._run_ended(event, "interrupted")

    def _show_run_canceled(self, event: FollowedEvent, payload: Any) -> None:
        self._run_ended(event, "canceled")

    def _run_ended(self, event: FollowedEvent, verdict: str) -> None:
        self._verdict = verdict
        self._attempts = event.payload.attempts  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    def _status_changed(self, event: FollowedEvent, status: str) -> None:
        payload: Any = event.payload
        before, self._status = self._status, status
        if payload.boundary > 1:
            self._boundary(event, status)
            return
        note = ""
        if status == "pending":
            note, self._lost = self._lost, ""
        elif status == "running":
            note, self._again = self._again, ""
        if self._open != "status":
            head = "" if payload.active_run_id == self._run_id else f"{event.session_id}  {payload.active_run_id}  "
            self._begin("status", "")
            self._write(head, "dim")
            if not head and before:
                self._write(f"{before} → ", "dim")
            self._run_id = payload.active_run_id
            self._began = self._began or event.create_time
        else:
            self._write(" → ", "dim")
        self._write(status, _STYLES.get(status, ""))
        if note:
            self._write(f" ({note})", "yellow")
        early, self._early = self._early, []
        if status == "running":
            for preview in early:
                self.preview(preview)

    def _boundary(self, event: FollowedEvent, status: str) -> None:
        parts = [self._verdict] if self._verdict else []
        if self._attempts:
            parts.append(f"{self._attempts} attempt{'s' if self._attempts > 1 else ''}")
        if self._began:
            parts.append(f"{(event.create_time - self._began).total_seconds():.1f} s")
        parts.append(f"seq {event.seq}")
        style = "red" if self._verdict.startswith("failed") else _STYLES.get(status, "")
        self._line(" · ".join([status, *parts]), style)
        self._run_id, self._began, self._verdict, self._attempts = "", None, "", 0
        self._lost = self._again = ""

    # The screen: complete lines, or one line that stays open.

    def _line(self, text: str, style: str = "") -> None:
        self.close()
        self._write(clean(text), style)
        self._flow.end_line()

    def _begin(self, kind: str, text: str) -> None:
        self.close()
        self._open = kind
        self._write(text)

    def _write(self, text: str, style: str = "") -> None:
        self._flow.write(text, style)

    def _break_preview(self) -> None:
        if self._open == "message":
            self.close()
        self._forget_preview()

    def _forget_preview(self) -> None:
        self._previewed = self._space = ""
        self._broken = False


def _indented(text: str) -> str:
    """As it goes on behind what stands there, two columns in; empty lines stay empty."""
    return re.sub(r"\n(?=[^\n])", "\n  ", clean(text))


def _shown(arguments: Mapping[str, Any]) -> str:
    if len(arguments) == 1:
        [value] = arguments.values()
        return _argument(value)
    place = _place(arguments)
    rest = [f"{key}={_argument(arguments[key])}" for key in sorted(arguments) if not place or key not in _PLACE]
    return " ".join([place, *rest] if place else rest)


def _place(arguments: Mapping[str, Any]) -> str:
    """Lines of a file as people cite them, `path:20-22`, where that is what the arguments name."""
    path, first, last = (arguments.get(key) for key in _PLACE)
    if not (isinstance(path, str) and path and isinstance(first, float)):
        return ""
    through = f"-{last:.0f}" if isinstance(last, float) and last > first else ""
    return f"{path}:{first:.0f}{through}"


def _plain(struct: Any) -> Mapping[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(struct)


def _argument(value: Any) -> str:
    if isinstance(value, str) and value and " " not in value:
        return _cut(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _cut(json.dumps(value, ensure_ascii=False))


def _summary(text: str) -> str:
    lines = text.strip().splitlines()
    return (_cut(lines[0]) + (" …" if len(lines) > 1 else "")) if lines else ""


def _cut(text: str, most: int = 72) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
