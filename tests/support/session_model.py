"""One Session driven through `decide`, with everything that has to hold of it checked after each command.

What is checked is worked out here from the events alone, beside the code that is tested: the order of the queue, who
holds a lease, what was used, which Run has ended.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from turnlog_server.domain.commands import (
    Abandon,
    AcceptRun,
    AppendReports,
    Author,
    Command,
    Create,
    DeleteSession,
    HarnessReady,
    IfBusy,
    Lease,
    SendMessage,
    Settle,
    TimeUp,
)
from turnlog_server.domain.decide import Decision, decide, next_due
from turnlog_server.domain.draft import SECOND, Rules
from turnlog_server.domain.events import (
    AttemptEnded,
    AttemptStarted,
    Cause,
    CauseKind,
    Event,
    ModelCalled,
    RunEnded,
    RunQueued,
    RunReady,
    Said,
    SessionCreated,
    StatusChanged,
)
from turnlog_server.domain.fold import apply, step
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.session import (
    NO_COST,
    Attempt,
    Cost,
    Pins,
    QueuedTurn,
    Run,
    RunStatus,
    SessionFacts,
    SessionState,
    Status,
)
from turnlog_server.domain.status import legal_path, status_of

START = 1_800_000_000 * SECOND
AUTHOR = Author("prn_1", "prn_1", Cause(CauseKind.API))
RULES = Rules(
    startup_allowance=60 * SECOND,
    max_startup_attempts=3,
    max_attempts=5,
    queue_timeout=3600 * SECOND,
    stop_grace=10 * SECOND,
    max_queued_turns=3,
)
RUN_ENDS = {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.CANCELED}
LEASED = (HarnessReady, AppendReports, Settle, Abandon)


def session_facts(*, reusable: bool = True, max_duration_seconds: int = 300) -> SessionFacts:
    """What a Session pinned."""
    pins = Pins("adep_1", 1, "agt_1", 1, "hpr_1", "spr_1", "default", max_duration_seconds)
    return SessionFacts("sess_1", "ws_1", pins, "prn_1", reusable, START, {"team": "a", "app": "b"})


def bare(state: SessionState) -> SessionState:
    """Without what proves and counts a lease, which is not in the log."""
    return replace(state, active=_bare_run(state.active) if state.active is not None else None, unlogged=0)


def _bare_run(run: Any) -> Any:
    if isinstance(run, QueuedTurn) or run.attempt is None:
        return run
    return replace(run, attempt=bare_attempt(run.attempt))


def bare_attempt(attempt: Attempt) -> Attempt:
    """Without what proves and counts a lease."""
    return replace(attempt, token_hash="", last_message_no=0, runner_epoch=0)


@dataclass(frozen=True)
class Token:
    """A lease that a runner was given."""

    run_id: str
    attempt_no: int

    @property
    def hash(self) -> str:
        return f"token of {self.run_id} {self.attempt_no}"

    def lease(self, message_no: int) -> Lease:
        return Lease(self.run_id, self.attempt_no, self.hash, message_no)


class Model:
    """`do` carries a command out, or returns the refusal. The Session is made by `create`.

    sound: false from the first check that failed.
    """

    def __init__(self, rules: Rules = RULES, facts: SessionFacts | None = None) -> None:
        self.rules = rules
        self.facts = facts or session_facts()
        self.state = SessionState()
        self.folded = SessionState()
        self.now = START
        self.log: list[Event] = []
        self.queue: list[str] = []
        self.given: list[Token] = []
        self.runs: dict[str, Run | QueuedTurn] = {}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self._folded_runs: dict[str, Run | QueuedTurn] = {}
        self._next_id = 1
        self._holder: tuple[str, int] | None = None
        self._working: tuple[str, int] | None = None
        self._active = ""
        self._numbers: dict[str, int] = {}
        self._used: dict[tuple[str, int], Cost] = {}
        self.ended: dict[str, RunStatus] = {}
        self.sound = True

    # What a test says.

    def create(self, *, message: bool = True) -> Decision:
        made = self.do(Create(self.facts, AUTHOR, b"m" if message else b""))
        assert isinstance(made, Decision)
        return made

    def send(self, if_busy: IfBusy = IfBusy.ENQUEUE) -> str:
        return self.done(SendMessage(AUTHOR, b"m", if_busy)).answer.run_id

    def accept(self) -> Token:
        run = self.state.active
        assert run is not None
        token = Token(run.run_id, run.attempt_no + 1)
        self.done(AcceptRun(token.lease(0), "rnr_1", "1.0", 7))
        return token

    def ready(self) -> Token:
        """Accepts, and has the harness ready."""
        token = self.accept()
        self.done(HarnessReady(token.lease(1), "svc_1"))
        return token

    def done(self, command: Command, after: int = 0) -> Decision:
        """`do`, for a command that has to be accepted."""
        outcome = self.do(command, after)
        assert isinstance(outcome, Decision), outcome
        return outcome

    def refused(self, command: Command) -> Refusal:
        """`do`, for a command that has to be refused."""
        outcome = self.do(command)
        assert isinstance(outcome, Refusal), outcome
        return outcome

    def fire(self) -> Decision:
        """The next timer, on time."""
        due = next_due(self.state)
        assert due
        return self.done(TimeUp(), max(0, due - self.now))

    def statuses(self) -> list[Status]:
        """As the log shows them."""
        return [event.fact.status for event in self.log if isinstance(event.fact, StatusChanged)]

    # What has to hold.

    def decided(self, command: Command, now: int, state: SessionState | None = None) -> Decision | Refusal:
        """What `decide` says, without that it happens."""
        numbers = itertools.count(self._next_id)
        names: Callable[[str], str] = lambda prefix: f"{prefix}{next(numbers)}"  # noqa: E731
        try:
            return decide(
                self.facts,
                state if state is not None else self.state,
                command,
                now=now,
                ids=names,
                rules=self.rules,
            )
        except Refusal as refusal:
            return refusal

    def do(self, command: Command, after: int = 0) -> Decision | Refusal:
        self.now += after
        outcome = self.decided(command, self.now)
        assert told(outcome) == told(self.decided(command, self.now)), "decided twice, decided differently"
        if isinstance(outcome, Refusal):
            return outcome
        self.sound = False
        assert outcome.deleted == isinstance(command, DeleteSession)
        self._check_answer(outcome)
        if isinstance(command, LEASED) and outcome.events:
            self._check_lease(command.lease)
        for event in outcome.events:
            self._check_event(event)
        self._note_queue(command, outcome)
        self._next_id += 2 * len(outcome.events)
        if isinstance(command, AcceptRun) and outcome.events:
            self.given.append(Token(command.lease.run_id, command.lease.attempt_no))
        self.state = outcome.state
        self.runs |= {run.run_id: run for run in outcome.runs}
        self.attempts |= {(run_id, attempt.attempt_no): attempt for run_id, attempt in outcome.attempts}
        self._check_state()
        self._check_timer()
        self.sound = True
        return outcome

    def _check_answer(self, outcome: Decision) -> None:
        answer = outcome.answer
        if answer.event_id:
            named = [event.seq for event in outcome.events if event.event_id == answer.event_id]
            assert named == [answer.seq], "the answer names an event that was not appended"
        if answer.duplicate or answer.refused:
            assert not outcome.events

    def _check_lease(self, lease: Lease) -> None:
        run = self.state.active
        live = run.live if run is not None else None
        assert run is not None
        assert live is not None, "nobody holds a lease"
        assert (lease.run_id, lease.attempt_no, lease.token_hash) == (run.run_id, run.attempt_no, live.token_hash)
        assert lease.message_no == live.last_message_no + 1, "a message was applied out of order"

    def _check_event(self, event: Event) -> None:
        last = self.log[-1] if self.log else None
        assert event.seq == (last.seq + 1 if last else 1), "the log has a gap"
        assert event.time >= (last.time if last else 0), "time goes back"
        assert event.event_id not in {earlier.event_id for earlier in self.log}
        assert isinstance(event.fact, SessionCreated) == (event.seq == 1)
        if event.attempt_no and not isinstance(event.fact, AttemptStarted):
            assert (event.run_id, event.attempt_no) == self._holder, "an event of an attempt that holds no lease"
        if not isinstance(event.fact, StatusChanged):
            assert event.run_id not in self.ended, "an event of a Run that has ended"
        self._check_fact(event)
        self.folded, touched = step(self.folded, event)
        if touched is not None:
            self._folded_runs[touched.run_id] = touched
        self.log.append(event)

    def _check_fact(self, event: Event) -> None:
        key = (event.run_id, event.attempt_no)
        match event.fact:
            case RunQueued():
                assert event.run_id not in self._numbers, "a Run is queued twice"
                self._numbers[event.run_id] = 0
            case RunReady():
                assert self._holder is None, "a Run is claimable while an attempt lives"
                assert self._active in ("", event.run_id), "two Runs are active"
                self._active = event.run_id
            case AttemptStarted():
                assert self._holder is None, "two attempts hold a lease"
                assert event.run_id == self._active
                assert event.attempt_no == self._numbers[event.run_id] + 1, "attempt_no does not rise by one"
                self._numbers[event.run_id] = event.attempt_no
                self._holder, self._used[key] = key, NO_COST
            case StatusChanged(Status.RUNNING):
                self._working = key
            case Said():
                assert self._working == key, "a harness speaks that is not ready"
            case ModelCalled(cost):
                assert self._working == key, "a harness calls a model and is not ready"
                self._used[key] = self._used[key].plus(cost)
            case AttemptEnded(_, _, cost):
                assert self._holder == key, "an attempt ended that had not begun, or twice"
                assert cost == self._used[key], "an attempt costs what its calls used"
                self._holder = None
            case RunEnded(status, _, cost, attempts):
                assert status in RUN_ENDS
                assert self._holder is None or self._holder[0] != event.run_id, "a Run ended before its attempt"
                assert attempts == self._numbers[event.run_id]
                assert cost == self.used(event.run_id), "a Run costs what its attempts used"
                self.ended[event.run_id] = status
                self._active = "" if self._active == event.run_id else self._active

    def used(self, run_id: str) -> Cost:
        """What the log says that the calls of a Run used."""
        total = NO_COST
        for (owner, _), cost in self._used.items():
            total = total.plus(cost) if owner == run_id else total
        return total

    def _note_queue(self, command: Command, outcome: Decision) -> None:
        """Messages wait in the order in which they came, but for one that interrupts: it is the next."""
        for event in outcome.events:
            if isinstance(event.fact, RunQueued):
                first = isinstance(command, SendMessage) and command.if_busy is IfBusy.INTERRUPT
                self.queue.insert(0 if first else len(self.queue), event.run_id)
            elif isinstance(event.fact, RunReady) and event.run_id in self.queue:
                assert self.queue.pop(0) == event.run_id, "a queued turn was overtaken"
            elif isinstance(event.fact, RunEnded) and event.run_id in self.queue:
                self.queue.remove(event.run_id)

    def _check_state(self) -> None:
        state = self.state
        assert bare(state) == self.folded, "the state is not the fold of the log"
        assert state.status is status_of(state) is self.statuses()[-1], "status, Run and log disagree"
        assert legal_path(self.statuses())
        assert [turn.run_id for turn in state.queue] == self.queue
        assert len(self.queue) <= self.rules.max_queued_turns
        assert (state.active.run_id if state.active else "") == self._active
        assert state.active is not None or not state.queue, "a turn waits and the Session is free"
        assert not (state.terminal and (state.active or state.queue)), "a terminal Session has an open turn"
        assert {run_id: _bare_run(run) for run_id, run in self.runs.items()} == self._folded_runs
        for (run_id, attempt_no), attempt in self.attempts.items():
            live = (run_id, attempt_no) == self._holder
            assert (attempt.end_time == 0) == live
            assert attempt.cost == self._used[run_id, attempt_no]
        open_runs = {*self.queue, *([self._active] if self._active else [])}
        assert set(self._numbers) == set(self.ended) | open_runs, "a Run neither ended nor waits"
        assert not open_runs & set(self.ended)

    def _check_timer(self) -> None:
        due = next_due(self.state)
        assert due == next_due(self.folded), "the timer does not follow from the log"
        early = self.decided(TimeUp(), due - 1 if due else self.now + 10**15)
        if due == 0 or due > self.state.last_time:
            assert isinstance(early, Decision)
            assert (early.events, early.state) == ((), self.state), "a timer did something before its time"
        if due:
            in_time = self.decided(TimeUp(), due)
            assert isinstance(in_time, Decision)
            assert in_time.events, "a timer that is due does nothing, and would be due for ever"


def told(outcome: Decision | Refusal) -> object:
    """What can be compared; two refusals that say the same are not equal."""
    if isinstance(outcome, Refusal):
        return (outcome.reason, outcome.message, dict(outcome.metadata), outcome.fields, outcome.retry_after)
    refused = outcome.answer.refused
    return replace(outcome, answer=replace(outcome.answer, refused=None)), told(refused) if refused else None


def folded_from(log: list[Event]) -> SessionState:
    """A log folded by whoever has nothing but the log."""
    state = SessionState()
    for event in log:
        state = apply(state, event)
    return state
