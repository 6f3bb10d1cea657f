"""Attempts: what runners report, and what becomes of a Run whose attempt ends.

One fence: `attempt_no` rises, and the token's hash belongs to the state. Until the end of an attempt commits it may
still write, after it never: fencing is by log order, not by time.
"""

from hmac import compare_digest

from turnlog_server.domain import turns
from turnlog_server.domain.commands import (
    Abandon,
    AcceptRun,
    AppendReports,
    AttemptLost,
    HarnessReady,
    Lease,
    Outcome,
    Settle,
)
from turnlog_server.domain.draft import SECOND, Answer, Draft
from turnlog_server.domain.events import BY_RUNNER, BY_SERVER, BY_TIMER, AttemptEnded, AttemptStarted, Cause
from turnlog_server.domain.refusals import Reason, Refusal, invalid
from turnlog_server.domain.session import (
    Attempt,
    AttemptKind,
    AttemptStatus,
    Run,
    RunError,
    RunStatus,
    SessionState,
)

STOPPED_ATTEMPT = {
    RunStatus.INTERRUPTED: AttemptStatus.INTERRUPTED,
    RunStatus.CANCELED: AttemptStatus.CANCELED,
}


def accept(draft: Draft, command: AcceptRun) -> Answer:
    """The Run becomes the runner's; the start-up clock starts."""
    lease, run = command.lease, draft.state.active
    if (
        run is None
        or run.run_id != lease.run_id
        or run.status is not RunStatus.READY
        or lease.attempt_no != run.attempt_no + 1
    ):
        raise _lease_lost(draft, lease)
    startup_deadline = draft.now + draft.rules.startup_allowance
    event = draft.emit(
        AttemptStarted(
            run.next_kind,
            command.runner_id,
            command.runner_version,
            startup_deadline,
            startup_deadline + draft.facts.pins.max_duration_seconds * SECOND,
        ),
        run_id=run.run_id,
        attempt_no=lease.attempt_no,
        cause=BY_RUNNER,
    )
    turns.show_status(draft)
    draft.with_secret(lease.token_hash, 0, command.runner_epoch)
    return Answer(event.seq, event.event_id, run.run_id)


def harness_ready(draft: Draft, command: HarnessReady) -> Answer:
    """Execution begins."""
    run, attempt, duplicate = _held(draft, command.lease)
    if duplicate:
        return Answer(run_id=run.run_id, duplicate=True)
    if attempt.status is not AttemptStatus.STARTING:
        return _refuse(draft, command.lease, "The harness was reported ready before.", "running", "running")
    turns.show_running(draft, run)
    _count(draft, command.lease, attempt)
    return Answer(draft.state.head_seq, draft.events[-1].event_id, run.run_id)


def append_reports(draft: Draft, command: AppendReports) -> Answer:
    """What the harness says, in order, in one commit."""
    run, attempt, duplicate = _held(draft, command.lease)
    if duplicate:
        return Answer(run_id=run.run_id, duplicate=True)
    if attempt.status is AttemptStatus.STARTING:
        says = "The harness is not ready: send HarnessReady before its events."
        return _refuse(draft, command.lease, says, "provisioning", "provisioning")
    for fact, payload in command.reports:
        draft.emit(
            fact,
            run_id=run.run_id,
            attempt_no=attempt.attempt_no,
            authenticated_by=command.authenticated_by,
            cause=BY_RUNNER,
            payload=payload,
        )
    _count(draft, command.lease, attempt)
    return Answer(draft.state.head_seq, draft.events[-1].event_id if draft.events else "", run.run_id)


def settle(draft: Draft, command: Settle) -> Answer:
    """The runner ends the Run."""
    run, attempt, duplicate = _held(draft, command.lease)
    if duplicate:
        return Answer(run_id=run.run_id, duplicate=True)
    match command.outcome:
        case Outcome.SUCCEEDED:
            if attempt.status is AttemptStatus.STARTING:
                says = "The harness never became ready: settle as failed, or abandon."
                return _refuse(draft, command.lease, says, "provisioning", "succeeded")
            end_attempt(draft, AttemptStatus.SETTLED, None, BY_RUNNER)
            turns.end_run(draft, run, RunStatus.SUCCEEDED, None, BY_RUNNER)
        case Outcome.FAILED:
            error = command.error or RunError("harness.failed", "The harness gave no reason.")
            end_attempt(draft, AttemptStatus.SETTLED, error, BY_RUNNER)
            turns.end_run(draft, run, RunStatus.FAILED, error, BY_RUNNER)
        case Outcome.STOPPED:
            if run.stop_as is None:
                says = "Nobody asked this Run to stop: settle it as succeeded or failed."
                return _refuse(draft, command.lease, says, run.status.value, "interrupted")
            _stopped(draft, run, run.stop_as, BY_RUNNER)
    return Answer(draft.state.head_seq, draft.events[-1].event_id, run.run_id)


def abandon(draft: Draft, command: Abandon) -> Answer:
    """A living runner gives the Run back."""
    run, attempt, duplicate = _held(draft, command.lease)
    if duplicate:
        return Answer(run_id=run.run_id, duplicate=True)
    kind = AttemptKind.RETRY if attempt.status is AttemptStatus.STARTING else AttemptKind.RECOVERY
    error = RunError("runtime.abandoned", command.reason or "The runner gave the Run back.")
    _give_back(draft, run, AttemptStatus.ABANDONED, error, kind, BY_RUNNER)
    return Answer(draft.state.head_seq, draft.events[-1].event_id, run.run_id)


def lost(draft: Draft, command: AttemptLost) -> Answer:
    """The runner is gone. An attempt that has ended meanwhile is left alone."""
    run = draft.state.active
    if run is None or run.run_id != command.run_id or run.attempt_no != command.attempt_no or run.live is None:
        return Answer()
    error = RunError("runtime.runner_lost", command.reason)
    _give_back(draft, run, AttemptStatus.LOST, error, AttemptKind.RECOVERY, BY_SERVER)
    return Answer(draft.state.head_seq, run_id=run.run_id)


def time_up(draft: Draft) -> Answer:
    """What is due by now. A row of the timers that means nothing any more costs nothing.

    Of several things, the one that was due first: after an outage timers come late, and must not mean something else.
    """
    run, now = draft.state.active, draft.now
    if run is None:
        return Answer()
    live = run.live
    if live is None:
        if run.status is RunStatus.READY and run.queue_deadline and run.queue_deadline <= now:
            error = RunError("runtime.queue_timeout", "No eligible runner took the Run in time.")
            turns.end_run(draft, run, RunStatus.FAILED, error, BY_TIMER)
    elif run.stop_as is not None and run.grace_deadline <= min(now, live.deadline):
        _stopped(draft, run, run.stop_as, BY_TIMER)
    elif not live.ready_time and live.startup_deadline <= now:
        error = RunError("runtime.startup_timeout", "The harness was not ready in time.")
        _give_back(draft, run, AttemptStatus.STARTUP_TIMEOUT, error, AttemptKind.RETRY, BY_TIMER)
    elif live.deadline <= now:
        error = RunError("runtime.turn_deadline_exceeded", "The Run crossed its absolute deadline.")
        end_attempt(draft, AttemptStatus.DEADLINE, error, BY_TIMER)
        turns.end_run(draft, run, RunStatus.FAILED, error, BY_TIMER)
    return Answer(draft.state.head_seq)


def end_attempt(draft: Draft, status: AttemptStatus, error: RunError | None, cause: Cause) -> None:
    """Fences the attempt: from this event on its token is worth nothing."""
    run = draft.state.active
    if run is None or run.attempt is None:
        return
    draft.emit(AttemptEnded(status, error, run.attempt.cost), run_id=run.run_id, attempt_no=run.attempt_no, cause=cause)


def _stopped(draft: Draft, run: Run, stop_as: RunStatus, cause: Cause) -> None:
    end_attempt(draft, STOPPED_ATTEMPT[stop_as], None, cause)
    turns.end_run(draft, run, stop_as, run.stop_error, cause)


def _give_back(draft: Draft, run: Run, status: AttemptStatus, error: RunError, kind: AttemptKind, cause: Cause) -> None:
    """Ends the attempt; the Run keeps its identity and may be claimed again, unless its bounds are used up."""
    end_attempt(draft, status, error, cause)
    if run.stop_as is not None:
        turns.end_run(draft, run, run.stop_as, run.stop_error, cause)
        return
    ended = draft.state.active
    failures, rules = ended.startup_failures if ended else 0, draft.rules
    if rules.max_startup_attempts and failures >= rules.max_startup_attempts:
        exhausted = RunError("runtime.startup_exhausted", f"The harness was not ready in {failures} attempts.")
        turns.end_run(draft, run, RunStatus.FAILED, exhausted, cause)
    elif rules.max_attempts and run.attempt_no >= rules.max_attempts:
        exhausted = RunError("runtime.attempts_exhausted", f"{run.attempt_no} attempts did not end the Run.")
        turns.end_run(draft, run, RunStatus.FAILED, exhausted, cause)
    else:
        turns.make_ready(draft, run.run_id, kind)


def why_fenced(state: SessionState, run_id: str, attempt_no: int) -> Reason:
    """Why an attempt that is not the live one may not write."""
    run = state.active
    if run is not None and run.run_id == run_id:
        return Reason.STALE_ATTEMPT if attempt_no < run.attempt_no else Reason.LEASE_LOST
    waits = any(turn.run_id == run_id for turn in state.queue)
    return Reason.LEASE_LOST if waits else Reason.ALREADY_SETTLED


def _held(draft: Draft, lease: Lease) -> tuple[Run, Attempt, bool]:
    """The Run and attempt that the lease proves, and whether the message was applied before."""
    run = draft.state.active
    attempt = run.live if run is not None and run.run_id == lease.run_id else None
    if (
        run is None
        or attempt is None
        or lease.attempt_no != run.attempt_no
        or not compare_digest(lease.token_hash, attempt.token_hash)
    ):
        raise _fenced(draft, lease)
    if lease.message_no <= attempt.last_message_no:
        return run, attempt, True
    if lease.message_no != attempt.last_message_no + 1:
        raise invalid("lease.message_no", f"must be {attempt.last_message_no + 1}: messages may not be left out.")
    return run, attempt, False


def _count(draft: Draft, lease: Lease, attempt: Attempt) -> None:
    draft.with_secret(lease.token_hash, lease.message_no, attempt.runner_epoch)


def _refuse(draft: Draft, lease: Lease, message: str, before: str, after: str) -> Answer:
    """Not applied, but counted: the messages behind it need no new numbers."""
    run = draft.state.active
    if run is not None and run.live is not None:
        _count(draft, lease, run.live)
    refusal = Refusal(Reason.ILLEGAL_TRANSITION, message, {"from": before, "to": after})
    return Answer(run_id=lease.run_id, refused=refusal)


def _fenced(draft: Draft, lease: Lease) -> Refusal:
    run, reason = draft.state.active, why_fenced(draft.state, lease.run_id, lease.attempt_no)
    if reason is Reason.ALREADY_SETTLED:
        return Refusal(reason, f"Run {lease.run_id} is not active: stop working on it.", {"run_id": lease.run_id})
    if reason is Reason.STALE_ATTEMPT and run is not None:
        return Refusal(
            reason,
            f"Attempt {lease.attempt_no} of {lease.run_id} was replaced: stop working on it.",
            {"attempt_no": str(run.attempt_no)},
        )
    return _lease_lost(draft, lease)


def _lease_lost(draft: Draft, lease: Lease) -> Refusal:
    return Refusal(
        Reason.LEASE_LOST,
        f"The lease on attempt {lease.attempt_no} of {lease.run_id} is not valid: stop working on it.",
        {"session_id": draft.facts.session_id, "run_id": lease.run_id},
    )
