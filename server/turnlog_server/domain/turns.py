"""Turns: what callers ask for, and how one turn gives way to the next."""

from turnlog_server.domain import ids
from turnlog_server.domain.commands import (
    Author,
    CancelRun,
    CancelSession,
    CompleteSession,
    Create,
    IfBusy,
    SendInterrupt,
    SendMessage,
)
from turnlog_server.domain.draft import Answer, Draft
from turnlog_server.domain.events import (
    BY_SERVER,
    Cause,
    CauseKind,
    Event,
    RunEnded,
    RunQueued,
    RunReady,
    SessionCreated,
    StatusChanged,
    StopRequested,
    UserInterrupt,
    UserMessage,
)
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import (
    AttemptKind,
    Boundary,
    Run,
    RunError,
    RunStatus,
    Status,
    StopReason,
)
from turnlog_server.domain.status import status_of

STOPS = {
    RunStatus.SUCCEEDED: StopReason.END_TURN,
    RunStatus.FAILED: StopReason.FAILED,
    RunStatus.INTERRUPTED: StopReason.INTERRUPTED,
    RunStatus.CANCELED: StopReason.CANCELED,
}


def create(draft: Draft, command: Create) -> Answer:
    """The Session's first events: created, and a turn where a message came along."""
    facts = draft.facts
    created = draft.emit(
        SessionCreated(
            facts.workspace_id, facts.pins, facts.principal, facts.reusable, tuple(sorted(facts.labels.items()))
        ),
        authenticated_by=command.author.authenticated_by,
        cause=command.author.cause,
    )
    if not command.message:
        draft.emit(StatusChanged(Status.IDLE))
        return Answer(created.seq, created.event_id)
    return _message(draft, command.author, command.message)


def send_message(draft: Draft, command: SendMessage) -> Answer:
    """A turn of its own, now or behind the active one."""
    _expect_head(draft, command.expected_head)
    _expect_open(draft)
    state, session_id = draft.state, draft.facts.session_id
    if not draft.facts.reusable and state.turns:
        raise Refusal(
            Reason.SESSION_NOT_REUSABLE,
            f"Session {session_id} is one-shot and has had its message: create another Session.",
            {"session_id": session_id},
        )
    active = state.active
    if active is not None and command.if_busy is IfBusy.REJECT:
        raise Refusal(
            Reason.SESSION_BUSY,
            f"Session {session_id} has an active turn: wait for {active.run_id}, or append with another if_busy.",
            {"session_id": session_id, "run_id": active.run_id, "pending_action_ids": ""},
        )
    if len(state.queue) >= draft.rules.max_queued_turns:
        raise Refusal(
            Reason.QUOTA_EXCEEDED,
            f"Session {session_id} has {len(state.queue)} queued turns, the most there may be: wait for one to end.",
            {"quota": "queued_turns", "maximum": str(draft.rules.max_queued_turns)},
            retry_after=1.0,
        )
    first = command.if_busy is IfBusy.INTERRUPT
    answer = _message(draft, command.author, command.payload, first=first)
    if first and active is not None:
        stop(draft, active, RunStatus.INTERRUPTED, Cause(CauseKind.SERVER, answer.event_id))
    return answer


def send_interrupt(draft: Draft, command: SendInterrupt) -> Answer:
    """Stops the active turn; on an idle Session it is only recorded."""
    _expect_head(draft, command.expected_head)
    _expect_open(draft)
    active = draft.state.active
    if command.run_id and (active is None or active.run_id != command.run_id):
        raise Refusal(
            Reason.ILLEGAL_TRANSITION,
            f"Run {command.run_id} is not the active one: nothing was interrupted. Use CancelRun for a queued Run.",
            {"from": "not_active", "to": "interrupted"},
        )
    author = command.author
    event = draft.emit(
        UserInterrupt(),
        run_id=active.run_id if active else "",
        authored_by=author.authored_by,
        authenticated_by=author.authenticated_by,
        cause=author.cause,
        payload=command.payload,
    )
    if active is None:
        return Answer(event.seq, event.event_id)
    stop(draft, active, RunStatus.INTERRUPTED, Cause(CauseKind.SERVER, event.event_id))
    return Answer(event.seq, event.event_id, active.run_id)


def cancel_run(draft: Draft, command: CancelRun) -> Answer:
    """Cancels a Run in whatever state it is."""
    state, error = draft.state, _canceled(command.reason, "the Run was canceled")
    active = state.active
    if active is not None and active.run_id == command.run_id:
        stop(draft, active, RunStatus.CANCELED, command.author.cause, error)
        return _last(draft, command.run_id)
    if any(turn.run_id == command.run_id for turn in state.queue):
        draft.emit(
            RunEnded(RunStatus.CANCELED, error, was_queued=True),
            run_id=command.run_id,
            authenticated_by=command.author.authenticated_by,
            cause=command.author.cause,
        )
        return _last(draft, command.run_id)
    raise Refusal(
        Reason.ALREADY_SETTLED,
        f"Run {command.run_id} is not active or queued any more: there is nothing to cancel.",
        {"run_id": command.run_id},
    )


def cancel_session(draft: Draft, command: CancelSession) -> Answer:
    """Ends every turn, then the Session."""
    _expect_open(draft)
    error = _canceled(command.reason, "the Session was canceled")
    cause = command.author.cause
    for turn in draft.state.queue:
        draft.emit(RunEnded(RunStatus.CANCELED, error, was_queued=True), run_id=turn.run_id, cause=cause)
    active = draft.state.active
    if active is None:
        draft.emit(
            StatusChanged(Status.CANCELED, stop_reason=StopReason.CANCELED, boundary=Boundary.TERMINAL), cause=cause
        )
    else:
        stop(draft, active, RunStatus.CANCELED, cause, error, ends_session=True)
    return _last(draft, active.run_id if active else "")


def complete_session(draft: Draft, command: CompleteSession) -> Answer:
    """Ends an idle Session well."""
    _expect_open(draft)
    _expect_idle(draft)
    draft.emit(
        StatusChanged(Status.COMPLETED, stop_reason=StopReason.COMPLETED, boundary=Boundary.TERMINAL),
        cause=command.author.cause,
    )
    return _last(draft, "")


def delete_session(draft: Draft) -> Answer:
    """Only what no turn needs may go."""
    if not draft.state.terminal:
        _expect_idle(draft)
    return Answer(draft.state.head_seq)


def stop(
    draft: Draft,
    run: Run,
    ends_as: RunStatus,
    cause: Cause,
    error: RunError | None = None,
    *,
    ends_session: bool = False,
) -> None:
    """Stops the active Run: at once where no attempt lives, else by asking its runner and giving it its grace.

    A cancel overtakes an interrupt, the end of the Session overtakes both, and the grace that runs stays. No other
    second stop does anything.
    """
    if run.live is not None:
        overtakes = run.stop_as is RunStatus.INTERRUPTED and ends_as is RunStatus.CANCELED
        if run.stop_as is not None and not overtakes and not (ends_session and not draft.state.closing):
            return
        grace = run.grace_deadline if run.stop_as is not None else draft.now + draft.rules.stop_grace
        draft.emit(
            StopRequested(ends_as, grace, ends_session, error),
            run_id=run.run_id,
            attempt_no=run.attempt_no,
            cause=cause,
        )
        return
    end_run(draft, run, ends_as, error, cause, ends_session=ends_session)


def end_run(
    draft: Draft,
    run: Run,
    status: RunStatus,
    error: RunError | None,
    cause: Cause = BY_SERVER,
    *,
    ends_session: bool = False,
) -> None:
    """Ends the active Run and gives the Session to the next turn, or to its end; all in one commit."""
    state = draft.state
    if state.active is not None:
        run = state.active
    draft.emit(RunEnded(status, error, run.cost, run.attempt_no), run_id=run.run_id, cause=cause)
    closing = state.closing or ends_session
    final = _final_status(draft, status, closing=closing)
    draft.emit(
        StatusChanged(
            final,
            stop_reason=StopReason.CANCELED if closing else STOPS[status],
            boundary=Boundary.TURN if final is Status.IDLE else Boundary.TERMINAL,
            error=error if status is RunStatus.FAILED else None,
            ended_run_id=run.run_id,
        )
    )
    if final is Status.IDLE:
        start_next(draft)


def start_next(draft: Draft) -> None:
    """The turn at the head of the queue becomes eligible, if the Session is free."""
    if draft.state.active is not None or not draft.state.queue:
        return
    make_ready(draft, draft.state.queue[0].run_id, AttemptKind.INITIAL)


def make_ready(draft: Draft, run_id: str, kind: AttemptKind) -> None:
    """The Run may be claimed; the Session shows `pending`."""
    timeout = draft.rules.queue_timeout
    draft.emit(RunReady(kind, draft.now + timeout if timeout else 0), run_id=run_id)
    show_status(draft)


def show_status(draft: Draft) -> None:
    """Writes the status that follows from the state."""
    status = status_of(draft.state)
    active = draft.state.active
    draft.emit(
        StatusChanged(status, active_run_id=active.run_id if active else ""),
        run_id=active.run_id if active else "",
        # Of an attempt that has ended there is no event any more.
        attempt_no=active.attempt_no if active and active.live else 0,
    )


def show_running(draft: Draft, run: Run) -> None:
    """The harness is ready: this status event is the Run's and the attempt's as well."""
    draft.emit(StatusChanged(Status.RUNNING, active_run_id=run.run_id), run_id=run.run_id, attempt_no=run.attempt_no)


def _final_status(draft: Draft, status: RunStatus, *, closing: bool) -> Status:
    if closing:
        return Status.CANCELED
    if draft.facts.reusable or status in {RunStatus.INTERRUPTED, RunStatus.CANCELED}:
        return Status.IDLE
    return Status.COMPLETED if status is RunStatus.SUCCEEDED else Status.FAILED


def _message(draft: Draft, author: Author, payload: bytes, *, first: bool = False) -> Answer:
    run_id = draft.ids(ids.RUN)
    active = draft.state.active
    said = draft.emit(
        UserMessage(),
        run_id=run_id,
        authored_by=author.authored_by,
        authenticated_by=author.authenticated_by,
        cause=author.cause,
        payload=payload,
    )
    ahead = 0 if active is None else 1 + (0 if first else len(draft.state.queue))
    draft.emit(RunQueued(said.event_id, said.seq, said.type, ahead), run_id=run_id)
    start_next(draft)
    parked = active is not None and active.status is RunStatus.WAITING
    return Answer(said.seq, said.event_id, run_id, active.run_id if active and parked else "")


def _last(draft: Draft, run_id: str) -> Answer:
    """The last event of the draft; a command that changed nothing names none."""
    if not draft.events:
        return Answer(run_id=run_id)
    event: Event = draft.events[-1]
    return Answer(event.seq, event.event_id, run_id)


def _canceled(reason: str, otherwise: str) -> RunError:
    return RunError("runtime.canceled", reason or otherwise)


def _expect_head(draft: Draft, expected: int) -> None:
    if expected not in (-1, draft.state.head_seq):
        raise Refusal(
            Reason.SEQ_CONFLICT,
            f"The head is {draft.state.head_seq}, not {expected}: read what is new, then decide again.",
            {"expected_head_seq": str(expected), "head_seq": str(draft.state.head_seq)},
        )


def _expect_open(draft: Draft) -> None:
    state, session_id = draft.state, draft.facts.session_id
    if state.terminal or state.closing:
        status = state.status if state.terminal else Status.CANCELED
        raise Refusal(
            Reason.SESSION_TERMINAL,
            f"Session {session_id} is {status.value}: create another Session.",
            {"session_id": session_id, "status": status.value},
        )


def _expect_idle(draft: Draft) -> None:
    active, session_id = draft.state.active, draft.facts.session_id
    if active is not None:
        raise Refusal(
            Reason.SESSION_BUSY,
            f"Session {session_id} has an active turn: wait for {active.run_id} or cancel it.",
            {"session_id": session_id, "run_id": active.run_id, "pending_action_ids": ""},
        )
