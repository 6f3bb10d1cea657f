"""One batch of the lane: commands are decided in memory, in order, and become one write for each Session."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turnlog_server.domain.commands import Create, TimeUp
from turnlog_server.domain.decide import Decision, decide, next_due
from turnlog_server.domain.draft import Rules
from turnlog_server.domain.events import Event
from turnlog_server.domain.refusals import Refusal, not_found
from turnlog_server.domain.session import Attempt, AttemptStatus, Run, RunStatus, SessionFacts, SessionState
from turnlog_server.service.faults import internal
from turnlog_server.service.submission import Result, Submission
from turnlog_server.store.codec import encode, run_from_turn
from turnlog_server.store.log import DELETED, QueueRow, RequestRow, SessionWrite

Encode = Callable[[Event], bytes]
Stored = tuple[SessionFacts, SessionState]


@dataclass(slots=True)
class Group:
    """The commands of one Session in one batch, and what they come to.

    stored: what they were decided on; None where the Session does not exist (yet).
    fresh: it was read for this batch, so that a refusal stands.
    """

    session_id: str
    submissions: list[Submission]
    stored: Stored | None
    fresh: bool
    after: Stored | None = None
    accepted: list[tuple[Submission, Decision]] = field(default_factory=list)
    refused: list[tuple[Submission, Exception]] = field(default_factory=list)
    empty: list[tuple[Submission, Decision]] = field(default_factory=list)
    events: list[tuple[Event, bytes]] = field(default_factory=list)

    @property
    def creates(self) -> bool:
        """True when the Session is made by this group."""
        return self.stored is None and self.after is not None

    @property
    def deleted(self) -> bool:
        """True when the Session is gone after this group: what deletes it is the last that was accepted."""
        return bool(self.accepted) and self.accepted[-1][1].deleted


def decide_group(group: Group, *, now: int, rules: Rules, encoder: Encode) -> None:
    """Decides each command on the state that the one before left. A command that raises fails alone."""
    group.after = group.stored
    group.accepted.clear()
    group.refused.clear()
    group.empty.clear()
    group.events.clear()
    for submission in group.submissions:
        submission.now = submission.now or now
        submission.names.restart()
        try:
            decision = _decide(group, submission, rules)
            bodies = [(event, encoder(event)) for event in decision.events]
        except Refusal as refusal:
            group.refused.append((submission, refusal))
        except Exception as fault:
            name = type(submission.command).__name__
            failed = internal("a command failed", fault, command=name, session=group.session_id)
            group.refused.append((submission, failed))
        else:
            _keep(group, submission, decision, bodies)


def _decide(group: Group, submission: Submission, rules: Rules) -> Decision:
    command = submission.command
    if isinstance(command, Create):
        # The time of its first event, which nobody knew before.
        facts, state = replace(command.facts, create_time=submission.now), SessionState()
    elif group.after is None or group.deleted:
        raise not_found("session", group.session_id)
    else:
        facts, state = group.after
    if submission.caller is not None and facts.workspace_id != submission.caller.workspace_id:
        raise not_found("session", group.session_id)
    submission.facts = facts
    return decide(facts, state, command, now=submission.now, ids=submission.names, rules=rules)


def _keep(group: Group, submission: Submission, decision: Decision, bodies: list[tuple[Event, bytes]]) -> None:
    facts = submission.facts
    assert facts is not None
    changes = decision.events or decision.deleted or decision.runs
    if not changes and submission.key is None and not isinstance(submission.command, TimeUp):
        group.empty.append((submission, decision))
        return
    group.after = (facts, decision.state)
    group.accepted.append((submission, decision))
    group.events.extend(bodies)


def session_write(group: Group) -> SessionWrite:
    """The rows of a group."""
    assert group.after is not None
    facts, state = group.after
    before = group.stored[1] if group.stored is not None else None
    runs: dict[str, Run] = {}
    attempts: dict[tuple[str, int], Attempt] = {}
    for _, decision in group.accepted:
        for touched in decision.runs:
            run = touched if isinstance(touched, Run) else run_from_turn(touched)
            runs[run.run_id] = run
        for attempt_run, attempt in decision.attempts:
            attempts[attempt_run, attempt.attempt_no] = attempt
    queue, due = _beside(group, facts, state, before)
    return SessionWrite(
        session_id=group.session_id,
        workspace_id=facts.workspace_id,
        expected=before.head_seq if before is not None else 0,
        expected_unlogged=before.unlogged if before is not None else 0,
        new_head=DELETED if group.deleted else state.head_seq,
        new_unlogged=state.unlogged,
        status=state.status.value,
        state=encode(state),
        facts=facts if group.creates else None,
        events=[(event.seq, event.type, body) for event, body in group.events],
        requests=[_request_row(submission, decision) for submission, decision in group.accepted if submission.key],
        runs=[(run.run_id, run.trigger_seq, run.status.value, encode(run)) for run in runs.values()],
        attempts=[(run_id, no, encode(attempt)) for (run_id, no), attempt in attempts.items()],
        queue=queue,
        due_at=due,
        deleted=group.deleted,
    )


def _beside(
    group: Group, facts: SessionFacts, state: SessionState, before: SessionState | None
) -> tuple[QueueRow | None, int | None]:
    """The rows of the queue and of the timers; None for each that stays as it is."""
    # A timer row that woke the Session for nothing is put right as well.
    woken = any(isinstance(submission.command, TimeUp) for submission, _ in group.accepted)
    # Both follow from the active Run and from whether there ever was one; most events leave that alone.
    if before is not None and before.active is state.active and bool(before.turns) is bool(state.turns) and not woken:
        return None, None
    queue, queue_before = queue_row(facts, state), queue_row(facts, before) if before is not None else None
    due, due_before = next_due(state), next_due(before) if before is not None else 0
    return queue if queue != queue_before else None, due if due != due_before or woken else None


def queue_row(facts: SessionFacts, state: SessionState) -> QueueRow | None:
    """Where the Session's Run stands in the queue; None before it ever had one."""
    run = state.active
    if run is None and not state.turns:
        return None
    pins = facts.pins
    common = (facts.workspace_id, pins.runner_pool, pins.harness_profile_id)
    if run is None:
        return QueueRow(*common, "", 0, "GONE")
    live = run.live
    if live is not None and live.status is not AttemptStatus.PARKED:
        return QueueRow(*common, run.run_id, live.attempt_no, "HELD", live.runner_id, live.runner_epoch)
    if run.status is RunStatus.READY:
        return QueueRow(*common, run.run_id, run.attempt_no + 1, "READY")
    return QueueRow(*common, run.run_id, run.attempt_no, "GONE")


def _request_row(submission: Submission, decision: Decision) -> RequestRow:
    assert submission.key is not None
    answer = decision.answer
    return RequestRow(
        *submission.key, submission.fingerprint, submission.session_id, answer.seq, answer.event_id, answer.run_id
    )


def result_of(group: Group, decision: Decision) -> Result:
    """What the caller of an accepted command is told."""
    return Result(decision.answer, group.after[0] if group.after else None, decision.state)
