"""The closed table of statuses, and that what Sessions show keeps to it."""

import itertools
from dataclasses import replace

import pytest
from support.session_model import AUTHOR, RULES, Model, session_facts
from turnlog_server.domain.commands import (
    Abandon,
    AttemptLost,
    CancelSession,
    CompleteSession,
    Outcome,
    SendInterrupt,
    Settle,
)
from turnlog_server.domain.events import StatusChanged
from turnlog_server.domain.session import BUSY, TERMINAL, Boundary, Run, RunStatus, SessionState, Status, StopReason
from turnlog_server.domain.status import FIRST, LEGAL, OF_RUN, legal_path, status_of

# Written down once more, by name: whoever changes what a Session may do changes it in two places.
TABLE = """
idle: pending completed canceled failed
pending: provisioning idle failed canceled
provisioning: running pending idle failed canceled
running: waiting paused reconciling idle pending completed failed canceled
waiting: running pending paused idle failed canceled
paused: pending idle failed canceled
reconciling: idle completed failed canceled
completed:
failed:
canceled:
"""
STEPS = {
    (Status(before), Status(after))
    for before, _, afters in (line.partition(":") for line in TABLE.strip().splitlines())
    for after in afters.split()
}


@pytest.mark.rule("R61")
@pytest.mark.parametrize(("before", "after"), list(itertools.product(Status, Status)))
def test_the_table_is_closed(before, after):
    legal = (before, after) in STEPS
    assert (after in LEGAL[before]) == legal
    path = [Status.IDLE, before, after] if before is not Status.IDLE else [before, after]
    if before is Status.IDLE or (Status.IDLE, before) in STEPS:
        assert legal_path(path) == legal


@pytest.mark.rule("R60")
def test_exactly_three_are_terminal():
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELED} == TERMINAL
    assert {status for status in Status if not LEGAL[status]} == TERMINAL
    assert {status for status in Status if SessionState(status=status).terminal} == TERMINAL


def test_a_session_begins_idle_or_pending():
    assert {status for status in Status if legal_path([status])} == FIRST == {Status.IDLE, Status.PENDING}


RUN = Run("run_1", RunStatus.READY, "evt_1", 1, "user.message", 0)


@pytest.mark.rule("R49", "R50", "R51", "R55")
@pytest.mark.parametrize("status", RunStatus)
def test_the_status_follows_from_the_active_run(status):
    state = SessionState(active=replace(RUN, status=status))
    shows = {
        "queued": "pending",
        "resolving": "pending",
        "ready": "pending",
        "provisioning": "provisioning",
        "running": "running",
        "waiting": "waiting",
        "reconciling": "reconciling",
    }.get(status.value)
    if shows is None:
        assert status not in OF_RUN, "a Run that has ended is not active"
        return
    assert status_of(state) == shows
    for terminal in TERMINAL:
        assert status_of(replace(state, status=terminal)) is terminal


def stop_all(model):
    """Starting or running, the Session is canceled and its runner obeys."""
    model.done(CancelSession(AUTHOR))
    token = model.given[-1]
    message_no = model.state.active.live.last_message_no + 1
    model.done(Settle(token.lease(message_no), Outcome.STOPPED))


WAYS = {
    "idle, completed": (False, True, lambda m: m.done(CompleteSession(AUTHOR))),
    "idle, canceled": (False, True, lambda m: m.done(CancelSession(AUTHOR))),
    "idle, pending": (False, True, lambda m: m.send()),
    "pending, provisioning": (True, True, lambda m: m.accept()),
    "pending, idle": (True, True, lambda m: m.done(SendInterrupt(AUTHOR, b"i"))),
    "pending, failed": (True, False, lambda m: m.fire()),
    "pending, canceled": (True, True, lambda m: m.done(CancelSession(AUTHOR))),
    "provisioning, running": (True, True, lambda m: m.ready()),
    "provisioning, pending": (True, True, lambda m: m.done(Abandon(m.accept().lease(1)))),
    "provisioning, idle": (True, True, lambda m: m.done(Settle(m.accept().lease(1), Outcome.FAILED))),
    "provisioning, failed": (True, False, lambda m: m.done(Settle(m.accept().lease(1), Outcome.FAILED))),
    "provisioning, canceled": (True, True, lambda m: (m.accept(), stop_all(m))),
    "running, idle": (True, True, lambda m: m.done(Settle(m.ready().lease(2), Outcome.SUCCEEDED))),
    "running, pending": (True, True, lambda m: m.done(AttemptLost(m.ready().run_id, 1, "gone"))),
    "running, completed": (True, False, lambda m: m.done(Settle(m.ready().lease(2), Outcome.SUCCEEDED))),
    "running, failed": (True, False, lambda m: m.done(Settle(m.ready().lease(2), Outcome.FAILED))),
    "running, canceled": (True, True, lambda m: (m.ready(), stop_all(m))),
}
# These come with what a Run waits for and what is published after it; and with what was pinned and is gone.
NOT_YET = {step for step in STEPS if {"waiting", "paused", "reconciling"} & set(step)} | {(Status.IDLE, Status.FAILED)}


@pytest.mark.rule("R49", "R50", "R51", "R55", "R56", "R57", "R58", "R61", "R62")
@pytest.mark.parametrize("way", WAYS)
def test_every_step_is_taken_and_is_an_event(way):
    message, reusable, go = WAYS[way]
    model = Model(facts=session_facts(reusable=reusable))
    model.create(message=message)
    go(model)
    # `Model` has seen to it that the last event and the state agree, and that the path is legal.
    assert model.statuses()[-2:] == [Status(name) for name in way.split(", ")]
    assert model.log[-1].type == f"session.status_{model.state.status}"


def test_no_step_is_left_out():
    assert {tuple(map(Status, way.split(", "))) for way in WAYS} == STEPS - NOT_YET


@pytest.mark.rule("R59", "R62")
def test_a_turn_that_gives_way_to_the_next_shows_idle_between_them_in_one_commit():
    model = Model()
    model.create()
    token = model.ready()
    second = model.send()
    settled = model.done(Settle(token.lease(2), Outcome.SUCCEEDED))
    assert [event.type for event in settled.events] == [
        "run.attempt_ended",
        "run.succeeded",
        "session.status_idle",
        "run.ready",
        "session.status_pending",
    ]
    idle, pending = (event.fact for event in settled.events if isinstance(event.fact, StatusChanged))
    assert (idle.boundary, idle.stop_reason, idle.ended_run_id) == (Boundary.TURN, StopReason.END_TURN, token.run_id)
    assert (pending.boundary, pending.active_run_id) == (Boundary.NONE, second)


@pytest.mark.rule("R43", "R59")
@pytest.mark.parametrize("way", WAYS)
def test_the_boundary_says_what_a_follower_waits_for(way):
    message, reusable, go = WAYS[way]
    model = Model(RULES, session_facts(reusable=reusable))
    model.create(message=message)
    created = len(model.log)
    go(model)
    for event in model.log[created:]:
        if isinstance(event.fact, StatusChanged):
            after = event.fact.status
            boundary = Boundary.TERMINAL if after in TERMINAL else Boundary.NONE
            assert event.fact.boundary is (Boundary.TURN if after is Status.IDLE else boundary)


def test_a_session_is_busy_while_it_has_an_active_run():
    assert set(OF_RUN.values()) <= BUSY
    # Paused by a person: the Run goes on later.
    assert BUSY - set(OF_RUN.values()) == {Status.PAUSED}
