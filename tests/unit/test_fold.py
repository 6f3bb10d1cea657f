"""The fold: a Session is what its log says, whoever reads it and however far."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.session_model import AUTHOR, Model, bare, folded_from, session_facts
from turnlog_server.domain.commands import (
    AppendReports,
    AttemptLost,
    CancelRun,
    IfBusy,
    Outcome,
    SendInterrupt,
    Settle,
)
from turnlog_server.domain.draft import SECOND
from turnlog_server.domain.events import (
    Event,
    ModelCalled,
    RunReady,
    Said,
    SessionCreated,
    StatusChanged,
    UserInterrupt,
    UserMessage,
)
from turnlog_server.domain.fold import apply, facts_of
from turnlog_server.domain.session import NO_COST, AttemptKind, Cost, RunStatus, SessionState, Status


def busy_day():
    """A Session with a bit of everything, and the state after each event."""
    model = Model(facts=session_facts())
    model.create()
    first = model.ready()
    model.send()
    canceled = model.send()
    called = ModelCalled(Cost(10, 5, 2, 7, "EUR"))
    reports = ((Said("agent.message"), b"p"), (called, b"p"), (Said("agent.tool_use"), b"p"))
    model.done(AppendReports(first.lease(2), "svc_1", reports), after=SECOND)
    model.done(AttemptLost(first.run_id, 1, "gone"), after=SECOND)
    again = model.ready()
    model.done(AppendReports(again.lease(2), "svc_1", ((called, b"p"),)), after=SECOND)
    model.done(CancelRun(AUTHOR, canceled))
    urgent = model.send(IfBusy.INTERRUPT)
    model.done(Settle(again.lease(3), Outcome.STOPPED))
    assert model.state.active.run_id == urgent
    model.done(Settle(model.ready().lease(2), Outcome.SUCCEEDED), after=SECOND)
    model.done(SendInterrupt(AUTHOR, b"i"))
    return model


DAY = busy_day()


@pytest.mark.rule("R33", "R20")
def test_a_reader_of_the_log_knows_every_run():
    first, second, canceled, urgent = DAY.runs
    assert [run.status for run in DAY.runs.values()] == [
        RunStatus.INTERRUPTED,
        RunStatus.INTERRUPTED,
        RunStatus.CANCELED,
        RunStatus.SUCCEEDED,
    ]
    assert DAY.ended == {run_id: run.status for run_id, run in DAY.runs.items()}
    assert list(DAY.ended) == [canceled, first, urgent, second]
    kinds = [attempt.kind for (run_id, _), attempt in DAY.attempts.items() if run_id == first]
    assert kinds == [AttemptKind.INITIAL, AttemptKind.RECOVERY]
    assert DAY.runs[first].cost == Cost(20, 10, 4, 14, "EUR")
    triggers = {run.trigger_event_id: run.trigger_seq for run in DAY.runs.values()}
    said = {event.event_id: event.seq for event in DAY.log if isinstance(event.fact, UserMessage)}
    assert triggers == said


@pytest.mark.rule("R33")
def test_a_fold_may_stop_anywhere_and_go_on():
    states = [SessionState()]
    for event in DAY.log:
        states.append(apply(states[-1], event))
    assert states[-1] == bare(DAY.state)
    for cut, state in enumerate(states):
        assert state.head_seq == cut
        for event in DAY.log[cut:]:
            state = apply(state, event)
        assert state == states[-1]


@pytest.mark.rule("R33")
@pytest.mark.parametrize("place", range(len(DAY.log)), ids=[f"{event.seq} {event.type}" for event in DAY.log])
def test_what_is_said_moves_only_the_head_and_everything_else_moves_more(place):
    event, before = DAY.log[place], folded_from(DAY.log[:place])
    after = apply(before, event)
    assert (after.head_seq, after.last_time) == (event.seq, event.time)
    only_head = replace(before, head_seq=event.seq, last_time=event.time)
    said = isinstance(event.fact, Said | UserMessage | UserInterrupt | SessionCreated)
    assert (after == only_head) == said


def test_the_first_event_tells_what_was_pinned():
    assert facts_of("sess_1", DAY.log[0]) == DAY.facts
    with pytest.raises(TypeError, match=r"not session\.created"):
        facts_of("sess_1", DAY.log[1])


@pytest.mark.parametrize("fact", [RunReady(AttemptKind.INITIAL), ModelCalled(Cost(1))], ids=str)
def test_an_event_of_a_run_that_is_not_there_is_only_counted(fact):
    state = apply(SessionState(), Event(1, "evt_1", 1, fact, "run_none"))
    assert state == SessionState(head_seq=1, last_time=1)


def test_a_status_without_a_run_is_the_sessions_alone():
    state = apply(SessionState(), Event(1, "evt_1", 1, StatusChanged(Status.RUNNING)))
    assert (state.status, state.active) == (Status.RUNNING, None)


amounts = st.integers(0, 2**63 - 1)
costs = st.builds(Cost, amounts, amounts, amounts, amounts, st.sampled_from(["EUR", ""]))


@pytest.mark.rule("R20")
@given(costs, costs, costs)
def test_costs_add_up_in_any_order(a, b, c):
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert a.plus(b) == b.plus(a)
    assert a.plus(NO_COST) == a
    assert max(a.plus(b).input_tokens, a.plus(b).amount_nanos) < 2**63


def test_amounts_in_another_currency_are_left_out():
    assert Cost(1, 1, 1, 5, "EUR").plus(Cost(1, 1, 1, 9, "USD")) == Cost(2, 2, 2, 5, "EUR")
