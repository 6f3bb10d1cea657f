"""What a command does to a Session: events, or a refusal. Pure: time, ids and settings come in.

Each handler writes to a `Draft`, which folds every event as it is written, so that the next line sees the state that
the one before made. Statuses are derived from the state wherever they can be: see `turns.show_status`.
"""

from collections.abc import Callable
from typing import assert_never

from turnlog_server.domain import attempts, turns
from turnlog_server.domain.commands import (
    Abandon,
    AcceptRun,
    AppendReports,
    AttemptLost,
    CancelRun,
    CancelSession,
    Command,
    CompleteSession,
    Create,
    DeleteSession,
    HarnessReady,
    SendInterrupt,
    SendMessage,
    Settle,
    TimeUp,
)
from turnlog_server.domain.draft import Answer, Draft, Rules
from turnlog_server.domain.events import Event
from turnlog_server.domain.session import Attempt, QueuedTurn, Run, SessionFacts, SessionState
from turnlog_server.domain.values import value


@value
class Decision:
    """What a command came to.

    state: after its events. events: may be empty. runs: each Run that changed, as it now stands. attempts: each that
    changed, with its Run's id.
    deleted: the Session is gone.
    """

    state: SessionState
    events: tuple[Event, ...]
    runs: tuple[Run | QueuedTurn, ...]
    attempts: tuple[tuple[str, Attempt], ...]
    answer: Answer
    deleted: bool = False


def decide(
    facts: SessionFacts,
    state: SessionState,
    command: Command,
    *,
    now: int,
    ids: Callable[[str], str],
    rules: Rules,
) -> Decision:
    """The events that the command comes to, or a Refusal.

    now: microseconds; an event's time never goes back, so an earlier `now` is raised to the last event's.
    ids: makes a fresh id for a prefix; called in the same order for the same command and state.
    """
    draft = Draft(facts, state, max(now, state.last_time), ids, rules)
    answer = _handle(draft, command)
    draft.finish()
    return Decision(
        draft.state,
        tuple(draft.events),
        tuple(draft.runs.values()),
        tuple((run_id, attempt) for (run_id, _), attempt in draft.attempts.items()),
        answer,
        isinstance(command, DeleteSession),
    )


def _handle(draft: Draft, command: Command) -> Answer:
    match command:
        case Create():
            return turns.create(draft, command)
        case SendMessage():
            return turns.send_message(draft, command)
        case SendInterrupt():
            return turns.send_interrupt(draft, command)
        case CancelRun():
            return turns.cancel_run(draft, command)
        case CancelSession():
            return turns.cancel_session(draft, command)
        case CompleteSession():
            return turns.complete_session(draft, command)
        case DeleteSession():
            return turns.delete_session(draft)
        case AcceptRun():
            return attempts.accept(draft, command)
        case HarnessReady():
            return attempts.harness_ready(draft, command)
        case AppendReports():
            return attempts.append_reports(draft, command)
        case Settle():
            return attempts.settle(draft, command)
        case Abandon():
            return attempts.abandon(draft, command)
        case AttemptLost():
            return attempts.lost(draft, command)
        case TimeUp():
            return attempts.time_up(draft)
        case _:
            assert_never(command)


def next_due(state: SessionState) -> int:
    """When the Session has to be looked at again without anybody asking; 0 for never."""
    run = state.active
    if run is None:
        return 0
    live = run.live
    if live is None:
        return run.queue_deadline
    startup = 0 if live.ready_time else live.startup_deadline
    grace = run.grace_deadline if run.stop_as is not None else 0
    return min([instant for instant in (live.deadline, startup, grace) if instant], default=0)
