"""The fold: what an event does to the state. Nothing else ever changes it."""

from typing import Any, Final, assert_never

from turnlog_server.domain.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Fact,
    ModelCalled,
    RunEnded,
    RunQueued,
    RunReady,
    Said,
    SessionCreated,
    StatusChanged,
    StopRequested,
    UserInterrupt,
    UserMessage,
)
from turnlog_server.domain.session import (
    Attempt,
    AttemptStatus,
    QueuedTurn,
    Run,
    RunStatus,
    SessionFacts,
    SessionState,
    Status,
)
from turnlog_server.domain.values import changed

_ONLY_MOVES: Final = (Said, UserMessage, UserInterrupt, SessionCreated)


def apply(state: SessionState, event: Event) -> SessionState:
    """The state after the event."""
    return step(state, event)[0]


def only_moves(fact: Fact) -> bool:
    """Whether an event of this fact does nothing but move the head."""
    return isinstance(fact, _ONLY_MOVES)


def step(state: SessionState, event: Event) -> tuple[SessionState, Run | QueuedTurn | None]:
    """The state after the event, and the Run that it changed, also one that has left the state by it."""
    fact = event.fact
    if isinstance(fact, _ONLY_MOVES):
        return _moved(state, event), None
    match fact:
        case RunQueued():
            return _queued(state, event, fact)
        case StatusChanged():
            return _status(state, event, fact)
        case RunReady() | StopRequested() | AttemptStarted() | AttemptEnded() | ModelCalled() | RunEnded():
            return _run(state, event)
        case _:
            assert_never(fact)


def _moved(state: SessionState, event: Event, **changes: Any) -> SessionState:
    """What every event does, and what this one does beside it."""
    return changed(state, head_seq=event.seq, last_time=event.time, **changes)


def facts_of(session_id: str, event: Event) -> SessionFacts:
    """What `session.created` fixed for the Session's lifetime."""
    created = event.fact
    if not isinstance(created, SessionCreated):
        raise TypeError(f"the first event is {event.type}, not session.created")
    return SessionFacts(
        session_id,
        created.workspace_id,
        created.pins,
        created.principal,
        created.reusable,
        event.time,
        dict(created.labels),
    )


def _queued(state: SessionState, event: Event, fact: RunQueued) -> tuple[SessionState, QueuedTurn]:
    turn = QueuedTurn(event.run_id, fact.trigger_event_id, fact.trigger_seq, fact.trigger_type, event.time)
    place = fact.turns_ahead - (1 if state.active is not None else 0)
    queue = (*state.queue[:place], turn, *state.queue[place:])
    return _moved(state, event, queue=queue, turns=state.turns + 1), turn


def _status(state: SessionState, event: Event, fact: StatusChanged) -> tuple[SessionState, Run | None]:
    said: dict[str, Any] = {
        "status": fact.status,
        "stop_reason": fact.stop_reason,
        "boundary": fact.boundary,
        "error": fact.error,
    }
    run = state.active
    if fact.status is not Status.RUNNING or run is None or run.attempt is None:
        return _moved(state, event, **said), None
    # The harness became ready: this status is also the Run's.
    attempt = changed(run.attempt, status=AttemptStatus.RUNNING, ready_time=event.time)
    run = changed(run, status=RunStatus.RUNNING, attempt=attempt, startup_failures=0)
    return _moved(state, event, **said, active=run), run


def _run(state: SessionState, event: Event) -> tuple[SessionState, Run | QueuedTurn | None]:
    run = state.active
    if run is None or run.run_id != event.run_id:
        return _queued_run(state, event)
    match event.fact:
        case RunReady(next_kind, queue_deadline):
            # An attempt that ended stays until the Run may be claimed again.
            run = changed(
                run,
                status=RunStatus.READY,
                attempt=None,
                next_kind=next_kind,
                queue_deadline=queue_deadline,
                ready_event_id=event.event_id,
                ready_time=event.time,
            )
        case StopRequested(ends_as, grace_deadline, ends_session, error):
            run = changed(run, stop_as=ends_as, stop_error=error, grace_deadline=grace_deadline)
            return _moved(state, event, active=run, closing=state.closing or ends_session), run
        case AttemptStarted() as fact:
            attempt = Attempt(
                event.attempt_no,
                fact.kind,
                AttemptStatus.STARTING,
                run.ready_event_id,
                fact.runner_id,
                fact.runner_version,
                event.time,
                fact.startup_deadline,
                fact.deadline,
            )
            run = changed(
                run,
                status=RunStatus.PROVISIONING,
                attempt_no=event.attempt_no,
                attempt=attempt,
                start_time=run.start_time or event.time,
            )
        case AttemptEnded(status, error) if run.attempt is not None:
            failures = run.startup_failures + (1 if run.attempt.status is AttemptStatus.STARTING else 0)
            attempt = changed(run.attempt, status=status, error=error, end_time=event.time)
            run = changed(run, attempt=attempt, startup_failures=failures)
        case ModelCalled(cost) if run.attempt is not None:
            attempt = changed(run.attempt, cost=run.attempt.cost.plus(cost))
            run = changed(run, attempt=attempt, cost=run.cost.plus(cost))
        case RunEnded(status, error):
            run = changed(run, status=status, error=error, end_time=event.time)
            return _moved(state, event, active=None), run
    return _moved(state, event, active=run), run


def _queued_run(state: SessionState, event: Event) -> tuple[SessionState, QueuedTurn | Run | None]:
    """A turn of the queue takes its place, or ends before it had one."""
    turn = next((turn for turn in state.queue if turn.run_id == event.run_id), None)
    if turn is None:
        return _moved(state, event), None
    rest = tuple(other for other in state.queue if other is not turn)
    run = Run(
        turn.run_id,
        RunStatus.QUEUED,
        turn.trigger_event_id,
        turn.trigger_seq,
        turn.trigger_type,
        turn.create_time,
    )
    match event.fact:
        case RunReady(next_kind, queue_deadline):
            run = changed(
                run,
                status=RunStatus.READY,
                next_kind=next_kind,
                queue_deadline=queue_deadline,
                ready_event_id=event.event_id,
                ready_time=event.time,
            )
            return _moved(state, event, queue=rest, active=run), run
        case RunEnded(status, error):
            return _moved(state, event, queue=rest), changed(run, status=status, error=error, end_time=event.time)
    return _moved(state, event), None
