"""Follows a Session for a command: shows what comes, says why a Run waits, and knows how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

from turnlog_client import v1
from turnlog_client.cli.command import Cli
from turnlog_client.cli.exits import Exit
from turnlog_client.cli.output import as_dict
from turnlog_client.cli.transcript import Transcript
from turnlog_client.errors import TurnlogError
from turnlog_client.events import Until
from turnlog_client.follow import Follow, FollowedEvent, FollowedPreview, Interruption

# A Run that is not taken within this many seconds is asked about, and again as often.
ASK_AFTER = 1.5
ASK_EVERY = 4.0

_WAITING = (v1.RunStatus.QUEUED, v1.RunStatus.RESOLVING, v1.RunStatus.READY)

# By number: what is followed is raw, what is read is not.
_EXIT_OF_STOP = {
    v1.StopReason.FAILED.value: Exit.FAILED,
    v1.StopReason.INTERRUPTED.value: Exit.STOPPED,
    v1.StopReason.CANCELED.value: Exit.STOPPED,
}

_EXIT_OF_RUN = {
    "run.succeeded": Exit.OK,
    "run.failed": Exit.FAILED,
    "run.interrupted": Exit.STOPPED,
    "run.canceled": Exit.STOPPED,
}


class View(Protocol):
    """What shows a follow."""

    def event(self, event: FollowedEvent) -> None: ...
    def preview(self, preview: FollowedPreview) -> None: ...
    def interrupted(self, interruption: Interruption) -> None: ...
    def remark(self, text: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """A follow as JSON lines: each event as the log has it; previews, where wanted, as `{"preview": …}`."""

    def __init__(self, cli: Cli) -> None:
        self._out = cli.out

    def event(self, event: FollowedEvent) -> None:
        self._out.line(as_dict(event.raw))

    def preview(self, preview: FollowedPreview) -> None:
        told = {"run_id": preview.run_id, "attempt_no": preview.attempt_no, "text": preview.text}
        self._out.line({"preview": told})

    def interrupted(self, interruption: Interruption) -> None:
        [seq] = interruption.cursors.values()
        self._out.note(f"reconnecting from seq {seq}", after_seq=seq, reason=interruption.error.reason)

    def remark(self, text: str) -> None:
        self._out.note(text)

    def close(self) -> None:
        pass


class Quiet(Transcript):
    """Shows nothing but what keeps one waiting."""

    def event(self, event: FollowedEvent) -> None:
        pass


def view_for(cli: Cli) -> View:
    """The view that the command line asked for."""
    return Lines(cli) if cli.out.as_json else Transcript(cli.out.console)


class Watch:
    """One Session, followed once or turn after turn."""

    def __init__(self, cli: Cli, session_id: str, view: View) -> None:
        self._cli = cli
        self._session_id = session_id
        self._view = view
        self._asking: asyncio.Task[None] | None = None
        self._outcome: Exit | None = None
        self._run_id = ""
        self.seq = 0
        """The last seq that was shown or passed over."""

    async def follow(
        self,
        *,
        after_seq: int | None = None,
        types: Iterable[str] = (),
        until: Until = None,
        previews: bool = False,
    ) -> Exit:
        """Shows until the follow ends by itself; answers how the turn, or the Session, ended."""
        self._outcome = None
        self._run_id = _run_id(until)
        follow = self._cli.t.events.follow(
            self._session_id,
            after_seq=after_seq,
            types=types,
            until=until,
            previews=previews,
            unknown="yield",  # what is shown is not folded: an event that is not known cannot mislead
            on_interrupted=self._view.interrupted,
        )
        try:
            await self._show(follow)
        finally:
            self.seq = follow.seq
            self._stop_asking()
            self._view.close()
            await follow.aclose()
        return self._outcome if self._outcome is not None else await self._ask_outcome()

    async def _show(self, follow: Follow) -> None:
        async for frame in follow.frames():
            if isinstance(frame, FollowedEvent):
                self._notice(frame)
                self._view.event(frame)
            elif isinstance(frame, FollowedPreview):
                self._view.preview(frame)

    def _notice(self, event: FollowedEvent) -> None:
        payload: Any = event.payload
        if event.type in ("run.queued", "run.ready"):
            self._start_asking(event.run_id)
        elif event.type == "run.attempt_started":
            self._stop_asking()
        elif event.type in _EXIT_OF_RUN:
            if self._run_id in ("", event.run_id):
                self._outcome = _EXIT_OF_RUN[event.type]
        elif getattr(payload, "boundary", 0) > 1 and not self._run_id:
            self._outcome = _EXIT_OF_STOP.get(payload.stop_reason, Exit.OK)

    async def _ask_outcome(self) -> Exit:
        """How it ended, where a filter or a cursor kept the event that says so from us."""
        if self._run_id:
            return exit_of_run((await self._cli.t.runs.get(self._session_id, self._run_id)).run)
        return exit_of_session((await self._cli.t.sessions.get(self._session_id)).session)

    def _start_asking(self, run_id: str) -> None:
        self._stop_asking()
        self._asking = asyncio.ensure_future(self._say_why_it_waits(run_id))

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def _say_why_it_waits(self, run_id: str) -> None:
        told, pause = "", ASK_AFTER
        while True:
            await asyncio.sleep(pause)
            pause = ASK_EVERY
            try:
                run = (await self._cli.t.runs.get(self._session_id, run_id)).run
            except TurnlogError:
                continue  # The follow itself says what is wrong.
            if run is None or run.status not in _WAITING:
                return
            if run.pending_reason and run.pending_reason != told:
                told = run.pending_reason
                self._view.remark(told)


def _run_id(until: Until) -> str:
    run_id = until if isinstance(until, str) else getattr(until, "run_id", "")
    return run_id if run_id.startswith("run_") else ""


def exit_of_run(run: v1.Run | None) -> Exit:
    """The exit code that a Run's status means."""
    status = run.status if run else None
    if status is v1.RunStatus.FAILED:
        return Exit.FAILED
    return Exit.STOPPED if status in (v1.RunStatus.INTERRUPTED, v1.RunStatus.CANCELED) else Exit.OK


def exit_of_session(session: v1.Session | None) -> Exit:
    """The exit code that the way in which a Session's last turn stopped means."""
    if session is None:
        return Exit.OK
    if session.status is v1.SessionStatus.FAILED:
        return Exit.FAILED
    return _EXIT_OF_STOP.get(session.stop_reason.value, Exit.OK)
