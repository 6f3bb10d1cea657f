"""Whatever is asked of a Session, in whatever order: it is refused, or its log stays what it promises."""

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.session_model import AUTHOR, RULES, START, Model, Token, folded_from, session_facts
from turnlog_server.domain.commands import (
    Abandon,
    AcceptRun,
    AppendReports,
    AttemptLost,
    CancelRun,
    CancelSession,
    Command,
    CompleteSession,
    DeleteSession,
    HarnessReady,
    IfBusy,
    Outcome,
    SendInterrupt,
    SendMessage,
    Settle,
    TimeUp,
)
from turnlog_server.domain.decide import Decision, next_due
from turnlog_server.domain.draft import SECOND
from turnlog_server.domain.events import ModelCalled, Said
from turnlog_server.domain.fold import facts_of
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import AttemptStatus, Cost, RunError, RunStatus, Status

tokens = st.integers(0, 10_000) | st.just(2**63 - 1)
costs = st.builds(Cost, tokens, tokens, tokens, tokens, st.sampled_from(["", "EUR"]))
facts = st.sampled_from([Said("agent.message"), Said("agent.tool_use")]) | st.builds(ModelCalled, costs)
rules = st.builds(
    replace,
    st.just(RULES),
    max_startup_attempts=st.integers(0, 3),
    max_attempts=st.integers(0, 4),
    queue_timeout=st.sampled_from([0, 3600 * SECOND]),
)
# Mostly the lease that is held, or hardly any Run would get anywhere.
KINDS = ("held",) * 8 + ("repeat", "gap", "wrong token", "older", "newer", "unknown run")
leases = st.sampled_from(KINDS)
waits = st.sampled_from([0, 0, 0, 1, SECOND, 70 * SECOND, -5 * SECOND])


def has_given(machine):
    """Some runner has, or had, a lease."""
    return bool(machine.model.given)


class Asked(RuleBasedStateMachine):
    """Every command, with what makes sense and with what does not."""

    @initialize(reusable=st.sampled_from([True, True, True, False]), rules=rules, message=st.booleans())
    def create(self, reusable, rules, message):
        self.model = Model(rules, session_facts(reusable=reusable))
        self.model.create(message=message)

    @rule(steps=st.integers(1, 4), said=st.lists(facts, max_size=2), outcome=st.sampled_from(Outcome))
    def a_good_runner(self, steps, said, outcome):
        """Does what comes next, so that the rest meets attempts in every state."""
        reports = tuple((fact, b"p") for fact in said)
        for _ in range(steps):
            run = self.model.state.active
            live = run.live if run is not None else None
            if run is None:
                self.model.do(SendMessage(AUTHOR, b"m"))
            elif live is None:
                self.model.accept()
            elif live.status is AttemptStatus.STARTING:
                self.with_lease("held", lambda lease: HarnessReady(lease, "svc_1"), 0)
            elif live.last_message_no == 1:
                self.with_lease("held", lambda lease: AppendReports(lease, "svc_1", reports), 0)
            else:
                self.with_lease("held", lambda lease: Settle(lease, outcome), 0)

    @rule(if_busy=st.sampled_from(IfBusy), after=waits, off=st.sampled_from([None, None, None, 0, 0, -1, 5]))
    def send_message(self, if_busy, after, off):
        expected = -1 if off is None else max(0, self.model.state.head_seq + off)
        busy = self.model.state.active is not None
        outcome = self.model.do(SendMessage(AUTHOR, b"m", if_busy, expected), after)
        if off:
            assert reason(outcome) is Reason.SEQ_CONFLICT
        elif busy and if_busy is IfBusy.REJECT:
            assert isinstance(outcome, Refusal)

    @rule(which=st.sampled_from(["", "", "active", "queued", "unknown"]), after=waits)
    def send_interrupt(self, which, after):
        self.model.do(SendInterrupt(AUTHOR, b"i", self.run_id(which)), after)

    @rule(which=st.sampled_from(["active", "queued", "ended", "unknown"]), after=waits)
    def cancel_run(self, which, after):
        self.model.do(CancelRun(AUTHOR, self.run_id(which), "no need"), after)

    # Not before the Session has had some turns, for hardly anything comes after it.
    @precondition(lambda self: self.model.state.turns > 3)
    @rule(after=waits)
    def cancel_session(self, after):
        self.model.do(CancelSession(AUTHOR, "enough"), after)

    @precondition(lambda self: self.model.state.turns > 4 or self.model.state.active is not None)
    @rule()
    def complete_session(self):
        outcome = self.model.do(CompleteSession(AUTHOR))
        assert isinstance(outcome, Refusal) or self.model.state.status is Status.COMPLETED

    @rule()
    def delete_session(self):
        outcome = self.model.do(DeleteSession(AUTHOR))
        assert isinstance(outcome, Refusal) == (self.model.state.active is not None)
        assert isinstance(outcome, Refusal) or not outcome.events

    @precondition(lambda self: self.model.state.active is not None)
    @rule(right=st.sampled_from([True, True, True, False]), ahead=st.integers(-1, 2), after=waits)
    def accept_run(self, right, ahead, after):
        run = self.model.state.active
        token = Token(run.run_id, run.attempt_no + (1 if right else ahead))
        outcome = self.model.do(AcceptRun(token.lease(0), "rnr_1", "1.0", 7), after)
        free = run.status is RunStatus.READY and token.attempt_no == run.attempt_no + 1
        assert reason(outcome) is (None if free else Reason.LEASE_LOST)

    @precondition(has_given)
    @rule(kind=leases, after=waits)
    def harness_ready(self, kind, after):
        self.with_lease(kind, lambda lease: HarnessReady(lease, "svc_1"), after)

    @precondition(has_given)
    @rule(kind=leases, said=st.lists(st.tuples(facts, st.just(b"p")), max_size=3), after=waits)
    def append_reports(self, kind, said, after):
        self.with_lease(kind, lambda lease: AppendReports(lease, "svc_1", tuple(said)), after)

    @precondition(has_given)
    @rule(kind=leases, outcome=st.sampled_from(Outcome), why=st.booleans(), after=waits)
    def settle(self, kind, outcome, why, after):
        error = RunError("harness.exited", "It exited.") if why else None
        self.with_lease(kind, lambda lease: Settle(lease, outcome, error), after)

    @precondition(has_given)
    @rule(kind=leases, after=waits)
    def abandon(self, kind, after):
        self.with_lease(kind, lambda lease: Abandon(lease, "shutting down"), after)

    @precondition(has_given)
    @rule(given_no=st.integers(0, 3), after=waits)
    def attempt_lost(self, given_no, after):
        given = self.model.given[-1 - given_no :][:1] or [Token("run_none", 1)]
        run = self.model.state.active
        holds = run is not None and run.live is not None and Token(run.run_id, run.attempt_no) == given[0]
        outcome = self.model.do(AttemptLost(given[0].run_id, given[0].attempt_no, "gone"), after)
        assert isinstance(outcome, Decision)
        assert bool(outcome.events) == holds

    @precondition(lambda self: next_due(self.model.state) > 0)
    @rule(late=st.sampled_from([0, 0, 1, 20 * SECOND, 7200 * SECOND]))
    def time_up(self, late):
        self.model.done(TimeUp(), max(0, next_due(self.model.state) - self.model.now) + late)

    def run_id(self, which):
        model = self.model
        if which == "active" and model.state.active is not None:
            return model.state.active.run_id
        if which == "queued" and model.queue:
            return model.queue[-1]
        if which == "ended" and model.ended:
            return next(iter(model.ended))
        return "" if not which else "run_none"

    def with_lease(self, kind, command, after):
        model, run = self.model, self.model.state.active
        live = run.live if run is not None else None
        token = model.given[-1] if model.given else Token("run_none", 1)
        last = live.last_message_no if live is not None else 0
        lease = token.lease(last + 1)
        match kind:
            case "repeat":
                lease = token.lease(max(last, 0))
            case "gap":
                lease = token.lease(last + 2)
            case "wrong token":
                lease = replace(lease, token_hash="guessed")
            case "older":
                lease = replace(lease, attempt_no=lease.attempt_no - 1)
            case "newer":
                lease = replace(lease, attempt_no=lease.attempt_no + 1)
            case "unknown run":
                lease = replace(lease, run_id="run_none")
        outcome = model.do(command(lease), after)
        if live is None or token != Token(run.run_id, live.attempt_no) or kind not in ("held", "repeat"):
            assert isinstance(outcome, Refusal), f"{kind} was applied"
            assert outcome.reason is not Reason.INTERNAL
        elif kind == "repeat":
            assert isinstance(outcome, Decision)
            assert outcome.answer.duplicate

    def teardown(self):
        model = getattr(self, "model", None)
        if model is None or not model.sound:
            return
        assert facts_of(model.facts.session_id, model.log[0]) == model.facts
        assert folded_from(model.log) == model.folded
        if model.rules.queue_timeout:
            for _ in range(3 * (len(model.queue) + 1)):
                if model.state.active is not None:
                    model.fire()
            assert model.state.active is None, "a Run never ends, although all timers fired"
            assert set(model.ended) == set(model.runs)


def reason(outcome):
    return outcome.reason if isinstance(outcome, Refusal) else None


@pytest.mark.rule("R19", "R20", "R31", "R33", "R59", "R60", "R61", "R62", "R173", "R178")
def test_whatever_is_asked():
    run_state_machine_as_test(Asked, settings=settings(max_examples=200, stateful_step_count=50, deadline=None))


def test_every_command_is_asked():
    asked = {name.title().replace("_", "") for name in vars(Asked)}
    assert {command.__name__ for command in get_args(Command)} <= asked


@pytest.mark.rule("R60")
@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELED])
def test_what_is_terminal_takes_nothing_and_can_only_be_deleted(status):
    model = Model(facts=session_facts(reusable=status is Status.CANCELED))
    model.create(message=status is not Status.CANCELED)
    if status is Status.CANCELED:
        model.done(CancelSession(AUTHOR))
    else:
        outcome = Outcome.SUCCEEDED if status is Status.COMPLETED else Outcome.FAILED
        model.done(Settle(model.ready().lease(2), outcome))
    assert model.state.status is status
    for command in (
        SendMessage(AUTHOR, b"m"),
        SendInterrupt(AUTHOR, b"i"),
        CancelSession(AUTHOR),
        CompleteSession(AUTHOR),
    ):
        refusal = model.refused(command)
        assert refusal.reason is Reason.SESSION_TERMINAL
        assert refusal.metadata["status"] == status
    assert model.done(DeleteSession(AUTHOR)).deleted


@pytest.mark.rule("R63")
@pytest.mark.parametrize("reusable", [True, False])
@pytest.mark.parametrize("by", ["runner", "grace", "nobody"])
def test_an_interrupt_stops_the_turn_and_never_the_session(reusable, by):
    model = Model(facts=session_facts(reusable=reusable))
    model.create()
    token = model.ready() if by != "nobody" else None
    model.done(SendInterrupt(AUTHOR, b"i"))
    if by == "runner":
        model.done(Settle(token.lease(2), Outcome.STOPPED))
    elif by == "grace":
        model.fire()
        assert model.now == START + RULES.stop_grace
    assert model.state.status is Status.IDLE
    assert list(model.ended.values()) == [RunStatus.INTERRUPTED]
    again = model.do(SendMessage(AUTHOR, b"m"))
    assert reason(again) is (None if reusable else Reason.SESSION_NOT_REUSABLE)


@pytest.mark.rule("R60", "R63")
def test_a_canceled_session_takes_every_turn_with_it():
    model = Model()
    model.create()
    token = model.ready()
    model.send()
    model.send()
    model.done(CancelSession(AUTHOR, "enough"))
    assert not model.state.terminal
    assert model.refused(SendMessage(AUTHOR, b"m")).reason is Reason.SESSION_TERMINAL
    # What the harness still says is on the record; that it settles well does not keep the Session.
    model.done(AppendReports(token.lease(2), "svc_1", ((Said("agent.message"), b"p"),)))
    model.done(Settle(token.lease(3), Outcome.SUCCEEDED))
    assert model.state.status is Status.CANCELED
    assert sorted(model.ended.values()) == [RunStatus.CANCELED, RunStatus.CANCELED, RunStatus.SUCCEEDED]


def test_what_is_used_never_grows_out_of_the_contract():
    model = Model()
    model.create()
    token = model.ready()
    most = 2**63 - 1
    called = (ModelCalled(Cost(most, most, most, most, "EUR")), b"p")
    model.done(AppendReports(token.lease(2), "svc_1", (called, called, called)))
    assert model.state.active.cost == Cost(most, most, most, most, "EUR")
    assert next(iter(model.attempts.values())).cost.input_tokens == most
