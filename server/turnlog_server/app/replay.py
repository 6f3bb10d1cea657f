"""A Session's log folded again and compared with all that is stored beside it. Pure: rows and events come in.

What is compared is everything that the commit of an event wrote: the state, the rows of Runs and attempts, the place
in the queue, the timer, the remembered requests. What proves and counts a lease is not in the log, so it is left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from turnlog_server.domain.decide import next_due
from turnlog_server.domain.events import (
    AttemptEnded,
    AttemptStarted,
    CauseKind,
    Event,
    ModelCalled,
    RunEnded,
    Said,
    SessionCreated,
    StatusChanged,
)
from turnlog_server.domain.fold import facts_of, step
from turnlog_server.domain.session import Attempt, Run, SessionFacts, SessionState
from turnlog_server.domain.status import FIRST, LEGAL, status_of
from turnlog_server.service.batch import queue_row
from turnlog_server.store.codec import run_from_turn
from turnlog_server.store.log import QueueRow
from turnlog_server.store.replay import StoredRequest, StoredRun, StoredSession

FROM_RUNNERS = (Said, ModelCalled, AttemptEnded)


@dataclass(frozen=True, slots=True)
class Difference:
    """A guarantee that does not hold in a Session, and how that shows."""

    guarantee: str
    session_id: str
    what: str


class Replay:
    """One log. Feed it in order, then compare."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._found: list[Difference] = []
        self._state = SessionState()
        self._facts: SessionFacts | None = None
        self._runs: dict[str, Run] = {}
        self._attempts: dict[tuple[str, int], Attempt] = {}
        self._ids: dict[str, int] = {}
        self._ended: set[str] = set()
        self._readable = True
        self._has_status = False
        self.events = 0

    def unreadable(self, seq: int, why: str) -> None:
        """An event cannot be decoded; nothing after it can be folded."""
        self._readable = False
        self._say("Durable", f"event {seq} cannot be read: {why}")

    def feed(self, seq: int, kind: str, event: Event) -> None:
        """The next event, with what its row says of it."""
        if not self._readable:
            return
        before = self._state
        self._check_row(seq, kind, event, before)
        if isinstance(event.fact, SessionCreated) and self._facts is None:
            self._facts = facts_of(self._session_id, event)
        elif self._facts is None:
            self._say("OneCommit", f"event {seq} is {event.type}: nothing precedes session.created")
        self._check_lease(event, before)
        self._check_ends(event)
        self._check_status(event, before)
        self._state, touched = step(before, event)
        if touched is not None:
            run = touched if isinstance(touched, Run) else run_from_turn(touched)
            self._runs[run.run_id] = run
            if run.attempt is not None:
                self._attempts[run.run_id, run.attempt.attempt_no] = run.attempt
        self._ids[event.event_id] = seq
        self.events += 1

    def differences(
        self,
        stored: StoredSession,
        runs: Iterable[StoredRun],
        attempts: Iterable[tuple[str, Attempt]],
        requests: Iterable[StoredRequest],
    ) -> list[Difference]:
        """Everything that was found, in the log and against the rows."""
        if not self._readable:
            return self._found
        if stored.head_seq > self._state.head_seq:
            self._say("Durable", f"the head is {stored.head_seq} and the log ends at {self._state.head_seq}")
        elif stored.head_seq < self._state.head_seq:
            self._say("OneCommit", f"the log goes on to {self._state.head_seq} behind the head, {stored.head_seq}")
        if status_of(self._state) is not self._state.status:
            self._say("OneCommit", f"the last status is {self._state.status}, the Run says {status_of(self._state)}")
        self._compare_session(stored)
        self._compare_runs(runs)
        self._compare_attempts(attempts)
        self._compare_duties(stored)
        for request in requests:
            if request.seq and self._ids.get(request.event_id) != request.seq:
                self._say(
                    "Idempotent",
                    f"request {request.request_id!r} was answered with event {request.seq}, "
                    f"{request.event_id}, which the log does not have there",
                )
        return self._found

    def _say(self, guarantee: str, what: str) -> None:
        self._found.append(Difference(guarantee, self._session_id, what))

    def _check_row(self, seq: int, kind: str, event: Event, before: SessionState) -> None:
        if seq != before.head_seq + 1:
            self._say("Gapless", f"event {seq} follows event {before.head_seq}")
        if event.seq != seq:
            self._say("Ordered", f"event {seq} says of itself that it is event {event.seq}")
        if event.time < before.last_time:
            self._say("Ordered", f"event {seq} is earlier than the one before it")
        if event.event_id in self._ids:
            self._say("Unique", f"events {self._ids[event.event_id]} and {seq} are both {event.event_id}")
        if event.type != kind:
            self._say("OneCommit", f"event {seq} is stored as {kind} and is {event.type}")

    def _check_lease(self, event: Event, before: SessionState) -> None:
        run = before.active
        if isinstance(event.fact, AttemptStarted):
            if run is None or run.run_id != event.run_id or run.live is not None:
                self._say("OneLease", f"event {event.seq} starts an attempt while another holds the lease")
            elif event.attempt_no != run.attempt_no + 1:
                self._say("OneLease", f"event {event.seq} starts attempt {event.attempt_no} after {run.attempt_no}")
        elif event.attempt_no and event.cause.kind is CauseKind.RUNNER and isinstance(event.fact, FROM_RUNNERS):
            live = run.live if run is not None and run.run_id == event.run_id else None
            if live is None or live.attempt_no != event.attempt_no:
                self._say("Fenced", f"event {event.seq} is of attempt {event.attempt_no}, which holds no lease by then")

    def _check_ends(self, event: Event) -> None:
        if event.run_id in self._ended and not isinstance(event.fact, StatusChanged):
            self._say("Settled", f"event {event.seq} is of {event.run_id}, which had ended")
        if isinstance(event.fact, RunEnded):
            self._ended.add(event.run_id)

    def _check_status(self, event: Event, before: SessionState) -> None:
        if not isinstance(event.fact, StatusChanged):
            return
        status = event.fact.status
        if status not in (LEGAL[before.status] if self._has_status else FIRST):
            self._say("OneCommit", f"event {event.seq} shows {status}, which may not follow {before.status}")
        self._has_status = True

    def _compare_session(self, stored: StoredSession) -> None:
        for table, row in (("sessions", stored.facts), ("session_states", stored.state)):
            if row is None:
                self._say("OneCommit", f"there is no row in {table}")
        if stored.facts is not None and self._facts is not None:
            self._compare("sessions.facts", stored.facts, self._facts)
            self._compare_value("sessions.workspace_id", stored.workspace_id, self._facts.workspace_id)
            self._compare_value("sessions.create_time", stored.create_time, self._facts.create_time)
        if stored.state is not None:
            self._compare("session_states.state", _bare_state(stored.state), self._state)
            self._compare_value("session_states.status", stored.status, self._state.status.value)

    def _compare_runs(self, stored: Iterable[StoredRun]) -> None:
        missing = dict(self._runs)
        for row in stored:
            run = missing.pop(row.run_id, None)
            if run is None:
                self._say("OneCommit", f"runs has {row.run_id}, of which the log knows nothing")
                continue
            name = f"runs[{row.run_id}]"
            self._compare(f"{name}.run", _bare_run(row.run), run)
            self._compare_value(f"{name}.status", row.status, run.status.value)
            self._compare_value(f"{name}.trigger_seq", row.trigger_seq, run.trigger_seq)
        for run_id in missing:
            self._say("OneCommit", f"runs lacks {run_id}")
        open_runs = {turn.run_id for turn in self._state.queue}
        if self._state.active is not None:
            open_runs.add(self._state.active.run_id)
        for run_id in self._runs.keys() - self._ended - open_runs:
            self._say("Settled", f"{run_id} neither ended nor waits")
        if self._state.terminal and open_runs:
            self._say("Settled", f"the Session is {self._state.status} and {min(open_runs)} is open")

    def _compare_attempts(self, stored: Iterable[tuple[str, Attempt]]) -> None:
        missing = dict(self._attempts)
        for run_id, row in stored:
            name = f"run_attempts[{run_id}, {row.attempt_no}]"
            attempt = missing.pop((run_id, row.attempt_no), None)
            if attempt is None:
                self._say("OneCommit", f"{name} is unknown to the log")
            else:
                self._compare(name, _bare_attempt(row), attempt)
        for run_id, number in missing:
            self._say("OneCommit", f"run_attempts lacks [{run_id}, {number}]")

    def _compare_duties(self, stored: StoredSession) -> None:
        if self._facts is None:
            return
        # A place that is GONE and a timer that is 0 may as well be absent.
        expected, actual = queue_row(self._facts, self._state), stored.queue
        if actual is not None or (expected is not None and expected.state != "GONE"):
            self._compare_value("run_queue", _bare_place(actual), _bare_place(expected))
        self._compare_value("timers.due_at", stored.due_at or 0, next_due(self._state))

    def _compare(self, name: str, stored: Any, folded: Any) -> None:
        for field in fields(folded):
            self._compare_value(f"{name}.{field.name}", getattr(stored, field.name), getattr(folded, field.name))

    def _compare_value(self, name: str, stored: object, folded: object) -> None:
        if stored != folded:
            self._say("OneCommit", f"{name} is {_short(stored)}, by the log {_short(folded)}")


def _bare_attempt(attempt: Attempt) -> Attempt:
    return replace(attempt, token_hash="", last_message_no=0, runner_epoch=0)


def _bare_run(run: Run) -> Run:
    return replace(run, attempt=_bare_attempt(run.attempt)) if run.attempt is not None else run


def _bare_state(state: SessionState) -> SessionState:
    active = _bare_run(state.active) if state.active is not None else None
    return replace(state, active=active, unlogged=0)


def _bare_place(place: QueueRow | None) -> QueueRow | None:
    """Without what an offer writes beside the log, and without the runner's epoch, which is not in it."""
    if place is None:
        return None
    return replace(place, runner_epoch=0, runner_id=place.runner_id if place.state == "HELD" else "")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
