"""Every Run ends: what runners and callers do not do, a timer does, and coming late it does the same."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.session_model import AUTHOR, RULES, START, Model, session_facts
from turnlog_server.domain.commands import (
    Abandon,
    AttemptLost,
    CancelRun,
    CancelSession,
    HarnessReady,
    SendInterrupt,
    SendMessage,
    TimeUp,
)
from turnlog_server.domain.decide import next_due
from turnlog_server.domain.draft import SECOND
from turnlog_server.domain.refusals import Reason
from turnlog_server.domain.session import AttemptKind, AttemptStatus, RunError, RunStatus, Status

FAILED = ("runtime.queue_timeout", "runtime.startup_exhausted", "runtime.attempts_exhausted")
STAGES = ("ready", "starting", "running")
STOPS = {
    "nobody": None,
    "interrupt": SendInterrupt(AUTHOR, b"i"),
    "cancel the session": CancelSession(AUTHOR),
}


def at(stage, stop="nobody", **facts):
    """A Session whose Run has come so far, and was then told to stop."""
    model = Model(facts=session_facts(**facts))
    model.create()
    if stage == "starting":
        model.accept()
    elif stage == "running":
        model.ready()
    if STOPS[stop] is not None and stage != "ready":
        model.done(STOPS[stop])
    return model


def came_of(decision):
    """Events without the moments in them."""
    return [
        (
            event.type,
            getattr(event.fact, "status", None),
            getattr(event.fact, "next_kind", None),
            error.code if (error := getattr(event.fact, "error", None)) else "",
        )
        for event in decision.events
    ]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("late", [1, 15 * SECOND, 100 * SECOND, 10**6 * SECOND])
def test_a_timer_that_comes_late_does_what_it_had_done_in_time(stage, stop, late):
    model = at(stage, stop)
    due = next_due(model.state)
    in_time, later = model.decided(TimeUp(), due), model.decided(TimeUp(), due + late)
    assert in_time.events
    assert came_of(later) == came_of(in_time)


class Luckless:
    """What goes wrong with an attempt."""

    def __init__(self, model):
        self.model = model

    def startup_timeout(self):
        self.model.accept()
        self.model.fire()

    def lost_while_starting(self):
        self.lost(self.model.accept())

    def lost_while_running(self):
        self.lost(self.model.ready())

    def abandoned(self):
        self.model.done(Abandon(self.model.accept().lease(1)))

    def abandoned_while_running(self):
        self.model.done(Abandon(self.model.ready().lease(2)))

    def lost(self, token):
        self.model.done(AttemptLost(token.run_id, token.attempt_no, "gone"))


WAYS = [name for name in vars(Luckless) if not name.startswith("_") and name != "lost"]


@pytest.mark.rule("R23", "R173", "R178")
@given(st.lists(st.sampled_from(WAYS), min_size=10, max_size=10))
def test_a_run_that_always_loses_its_attempts_ends(ways):
    model = Model()
    model.create()
    run_id = model.state.active.run_id
    for way in ways:
        if model.state.active is None:
            break
        # The Run keeps its identity over all its attempts.
        assert model.state.active.run_id == run_id
        getattr(Luckless(model), way)()
    assert model.ended == {run_id: RunStatus.FAILED}
    assert model.state.status is Status.IDLE
    assert model.state.error.code in FAILED
    assert len(model.attempts) <= RULES.max_attempts


@pytest.mark.rule("R178")
def test_start_ups_that_fail_in_a_row_are_bounded_and_one_that_works_begins_the_row_again():
    model = Model(replace(RULES, max_attempts=0))
    model.create()
    luckless = Luckless(model)
    for _ in range(RULES.max_startup_attempts - 1):
        luckless.startup_timeout()
    luckless.lost_while_running()
    for _ in range(RULES.max_startup_attempts - 1):
        luckless.startup_timeout()
    assert model.state.status is Status.PENDING
    luckless.startup_timeout()
    assert model.state.error.code == "runtime.startup_exhausted"


@pytest.mark.parametrize("way", WAYS)
def test_without_bounds_a_run_goes_on(way):
    model = Model(replace(RULES, max_attempts=0, max_startup_attempts=0))
    model.create()
    for number in range(1, 60):
        getattr(Luckless(model), way)()
        assert model.state.active.attempt_no == number
        assert model.state.status is Status.PENDING


@pytest.mark.rule("R177", "R23", "R173")
def test_the_start_up_clock_starts_at_accept_and_a_timeout_gives_the_run_another_attempt():
    model = Model()
    model.create()
    model.now += 50 * SECOND  # time in the queue does not count
    token = model.accept()
    assert model.state.active.live.startup_deadline == model.now + RULES.startup_allowance
    model.fire()
    assert model.now == START + 50 * SECOND + RULES.startup_allowance
    assert model.attempts[token.run_id, 1].status is AttemptStatus.STARTUP_TIMEOUT
    run = model.state.active
    assert (run.run_id, run.status, run.next_kind) == (token.run_id, RunStatus.READY, AttemptKind.RETRY)
    assert model.refused(HarnessReady(token.lease(1), "svc_1")).reason is Reason.LEASE_LOST
    assert model.accept().attempt_no == 2
    assert model.refused(HarnessReady(token.lease(1), "svc_1")).reason is Reason.STALE_ATTEMPT


@pytest.mark.rule("R179", "R180")
@pytest.mark.parametrize("reusable", [True, False])
def test_the_absolute_deadline_counts_from_accept_and_fails_the_run(reusable):
    model = at("running", max_duration_seconds=40, reusable=reusable)
    assert model.state.active.live.deadline == START + RULES.startup_allowance + 40 * SECOND
    model.fire()
    assert model.now == START + RULES.startup_allowance + 40 * SECOND
    assert next(iter(model.attempts.values())).status is AttemptStatus.DEADLINE
    assert list(model.ended.values()) == [RunStatus.FAILED]
    assert model.state.error.code == "runtime.turn_deadline_exceeded"
    assert model.state.status is (Status.IDLE if reusable else Status.FAILED)


def test_nobody_takes_the_run():
    model = at("ready")
    model.fire()
    assert model.now == START + RULES.queue_timeout
    assert model.state.error.code == "runtime.queue_timeout"


@pytest.mark.rule("R63")
@pytest.mark.parametrize("stage", STAGES[1:])
@pytest.mark.parametrize("way", ["lost", "abandoned", "timer"])
@pytest.mark.parametrize(
    ("command", "ends_as", "session"),
    [
        (lambda run_id: SendInterrupt(AUTHOR, b"i", run_id), RunStatus.INTERRUPTED, Status.IDLE),
        (lambda run_id: CancelRun(AUTHOR, run_id, "why"), RunStatus.CANCELED, Status.IDLE),
        (lambda run_id: CancelSession(AUTHOR, "why"), RunStatus.CANCELED, Status.CANCELED),
    ],
    ids=["interrupt", "cancel run", "cancel session"],
)
def test_a_run_that_was_told_to_stop_stops_however_its_attempt_ends(stage, way, command, ends_as, session):
    model = at(stage)
    token = model.given[-1]
    model.done(command(token.run_id))
    if way == "lost":
        Luckless(model).lost(token)
    elif way == "abandoned":
        model.done(Abandon(token.lease(1 if stage == "starting" else 2)))
    else:
        model.fire()
        assert model.now == START + RULES.stop_grace
    assert model.ended == {token.run_id: ends_as}
    assert model.state.status is session
    error = model.runs[token.run_id].error
    assert error == (RunError("runtime.canceled", "why") if ends_as is RunStatus.CANCELED else None)


def test_a_cancel_overtakes_an_interrupt_and_the_end_of_the_session_both_within_the_first_grace():
    model = at("running", "interrupt")
    due = next_due(model.state)
    model.now += SECOND
    [overtaken] = model.done(CancelRun(AUTHOR, model.given[-1].run_id)).events
    assert overtaken.fact.ends_as is RunStatus.CANCELED
    assert model.do(CancelRun(AUTHOR, model.given[-1].run_id)).events == ()
    assert [event.type for event in model.done(SendInterrupt(AUTHOR, b"i")).events] == ["user.interrupt"]
    assert next_due(model.state) == due
    model.done(CancelSession(AUTHOR))
    assert next_due(model.state) == due
    model.fire()
    assert model.state.status is Status.CANCELED


def test_an_idle_session_waits_for_nothing():
    model = Model()
    model.create(message=False)
    assert next_due(model.state) == 0
    model.send()
    model.fire()
    assert next_due(model.state) == 0
    # Thirty days later it is as it was.
    assert model.decided(TimeUp(), model.now + 30 * 86400 * SECOND).events == ()


def test_a_clock_that_goes_back_is_not_followed():
    model = Model()
    model.create()
    model.done(SendMessage(AUTHOR, b"m"), after=-3600 * SECOND)
    assert {event.time for event in model.log} == {START}
