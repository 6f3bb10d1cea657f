"""`check --replay`: what a log and the rows beside it say is the same, or is named by the guarantee that is broken."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from turnlog.v1 import event_pb2
from turnlog_server.app.replay import Difference, Replay
from turnlog_server.domain.commands import (
    Abandon,
    AcceptRun,
    AppendReports,
    Author,
    CancelSession,
    Command,
    Create,
    HarnessReady,
    Lease,
    Outcome,
    SendMessage,
    Settle,
)
from turnlog_server.domain.draft import Rules
from turnlog_server.domain.events import Cause, CauseKind, ModelCalled
from turnlog_server.domain.session import Attempt, Cost, Pins, Run, SessionFacts, SessionState, Status
from turnlog_server.service.batch import Group, decide_group, session_write
from turnlog_server.service.submission import Submission
from turnlog_server.store.codec import attempt_of, run_of, state_of
from turnlog_server.store.log import QueueRow, SessionWrite
from turnlog_server.store.replay import StoredRequest, StoredRun, StoredSession
from turnlog_server.wire.events import decode, encode

SESSION = "sess_1"
START = 1_700_000_000_000_000
PINS = Pins("adep_1", 1, "agt_1", 1, "hpr_1", "spr_1", "default", 60)
FACTS = SessionFacts(SESSION, "ws_1", PINS, "prn_1", True, START, {"team": "blue"})
AUTHOR = Author("prn_1", "key_1", Cause(CauseKind.API))


@dataclass
class World:
    """One Session's rows, as the lane writes them."""

    log: list[tuple[int, str, bytes]] = field(default_factory=list)
    runs: dict[str, StoredRun] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    requests: list[StoredRequest] = field(default_factory=list)
    state: SessionState | None = None
    status: str = ""
    head: int = 0
    queue: QueueRow | None = None
    due_at: int | None = None
    _now: int = START

    def do(self, command: Command) -> None:
        """Carries a command out, as a batch of its own."""
        key = ("ws_1", "prn_1", "Method", f"r{len(self.requests)}")
        submission = Submission(SESSION, command, 1, None, key=key)  # type: ignore[arg-type]
        group = Group(SESSION, [submission], (FACTS, self.state) if self.state else None, True)
        decide_group(group, now=self._now, rules=Rules(), encoder=encode)
        assert not group.refused, group.refused
        self._now += 1000
        self._keep(session_write(group))

    def _keep(self, write: SessionWrite) -> None:
        self.log.extend(write.events)
        for run_id, seq, status, run in write.runs:
            self.runs[run_id] = StoredRun(run_id, seq, status, run_of(run.decode()))
        for run_id, number, attempt in write.attempts:
            self.attempts[run_id, number] = attempt_of(attempt.decode())
        self.requests += [StoredRequest(each.request_id, each.seq, each.event_id) for each in write.requests]
        self.state, self.status, self.head = state_of(write.state.decode()), write.status, write.new_head
        self.queue = write.queue or self.queue
        self.due_at = self.due_at if write.due_at is None else write.due_at

    @property
    def run(self) -> Run:
        assert self.state is not None
        assert self.state.active is not None
        return self.state.active

    def lease(self, message_no: int = 0) -> Lease:
        number = self.run.live.attempt_no if self.run.live else self.run.attempt_no + 1
        return Lease(self.run.run_id, number, "token", message_no)

    def stored(self) -> StoredSession:
        return StoredSession(SESSION, self.head, "ws_1", START, FACTS, self.status, self.state, self.queue, self.due_at)

    def differences(self, **changed: Any) -> list[Difference]:
        replay = Replay(SESSION)
        for seq, kind, body in self.log:
            replay.feed(seq, kind, decode(body))
        attempts = [(run_id, attempt) for (run_id, _), attempt in self.attempts.items()]
        return replay.differences(replace(self.stored(), **changed), self.runs.values(), attempts, self.requests)

    def guarantees(self, **changed: Any) -> set[str]:
        return {difference.guarantee for difference in self.differences(**changed)}


def message() -> bytes:
    event = event_pb2.Event()
    event.user_message.parts.add(text="hello")
    return event.SerializeToString()


def report(cost: Cost) -> tuple[ModelCalled, bytes]:
    event = event_pb2.Event()
    event.model_called.usage.output_tokens = cost.output_tokens
    return ModelCalled(cost), event.SerializeToString()


def lived() -> World:
    """Two turns, of which the first was given back once, and a third that waits in the queue."""
    world = World()
    world.do(Create(FACTS, AUTHOR, message()))
    world.do(AcceptRun(world.lease(), "rnr_1", "1", 4))
    world.do(Abandon(world.lease(1)))
    turn(world)
    world.do(SendMessage(AUTHOR, message()))
    world.do(AcceptRun(world.lease(), "rnr_1", "1", 5))
    world.do(HarnessReady(world.lease(1), "key_2"))
    world.do(SendMessage(AUTHOR, message()))
    return world


def turn(world: World) -> None:
    world.do(AcceptRun(world.lease(), "rnr_1", "1", 5))
    world.do(HarnessReady(world.lease(1), "key_2"))
    world.do(AppendReports(world.lease(2), "key_2", (report(Cost(output_tokens=5)),)))
    world.do(Settle(world.lease(3), Outcome.SUCCEEDED))


@pytest.mark.rule("R32", "R33")
def test_a_session_that_lived_is_what_its_log_says() -> None:
    world = lived()
    assert world.differences() == []
    world.do(CancelSession(AUTHOR))
    world.do(Settle(world.lease(2), Outcome.STOPPED))
    assert world.status == Status.CANCELED
    assert world.differences() == []


def test_an_idle_session_without_a_turn() -> None:
    world = World()
    world.do(Create(FACTS, AUTHOR))
    assert world.differences() == []


def at(world: World, kind: str) -> int:
    return next(index for index, (_, found, _) in enumerate(world.log) if found == kind)


def edit(world: World, index: int, **fields: Any) -> None:
    seq, kind, body = world.log[index]
    event = event_pb2.Event.FromString(body)
    for name, value in fields.items():
        setattr(event, name, value)
    world.log[index] = (seq, kind, event.SerializeToString())


def lose_the_end(world: World) -> None:
    del world.log[-1]


def lose_the_middle(world: World) -> None:
    del world.log[at(world, "model.called")]


def behind_the_head(world: World) -> None:
    world.head -= 1


def same_id(world: World) -> None:
    edit(world, 3, event_id=event_pb2.Event.FromString(world.log[2][2]).event_id)


def back_in_time(world: World) -> None:
    event = event_pb2.Event.FromString(world.log[5][2])
    event.create_time.FromMicroseconds(START - 1)
    world.log[5] = (*world.log[5][:2], event.SerializeToString())


def another_seq(world: World) -> None:
    edit(world, 4, seq=99)


def another_type(world: World) -> None:
    seq, _, body = world.log[4]
    world.log[4] = (seq, "user.message", body)


def a_second_lease(world: World) -> None:
    start = at(world, "run.attempt_started")
    seq, kind, body = world.log[start]
    event = event_pb2.Event.FromString(body)
    event.seq, event.event_id = seq + 1, "evt_again"
    world.log[start + 1] = (seq + 1, kind, event.SerializeToString())


def said_after_the_end(world: World) -> None:
    edit(world, at(world, "model.called"), attempt_no=1)


def a_run_goes_on_after_its_end(world: World) -> None:
    index = at(world, "run.succeeded")
    seq, _, body = world.log[at(world, "run.ready")]
    event = event_pb2.Event.FromString(body)
    event.seq, event.event_id = world.log[index + 1][0], "evt_again"
    world.log[index + 1] = (event.seq, "run.ready", event.SerializeToString())
    assert seq


def a_run_is_lost(world: World) -> None:
    del world.runs[next(iter(world.runs))]


def a_run_nobody_started(world: World) -> None:
    world.runs["run_x"] = replace(next(iter(world.runs.values())), run_id="run_x")


def another_cost(world: World) -> None:
    run_id, row = next(iter(world.runs.items()))
    world.runs[run_id] = replace(row, run=replace(row.run, cost=Cost(output_tokens=6)))


def an_attempt_is_lost(world: World) -> None:
    del world.attempts[next(iter(world.attempts))]


def an_answer_to_nothing(world: World) -> None:
    world.requests.append(StoredRequest("r99", 3, "evt_nowhere"))


@pytest.mark.parametrize(
    ("damage", "guarantee"),
    [
        (lose_the_end, "Durable"),
        (lose_the_middle, "Gapless"),
        (behind_the_head, "OneCommit"),
        (same_id, "Unique"),
        (back_in_time, "Ordered"),
        (another_seq, "Ordered"),
        (another_type, "OneCommit"),
        (a_second_lease, "OneLease"),
        (said_after_the_end, "Fenced"),
        (a_run_goes_on_after_its_end, "Settled"),
        (a_run_is_lost, "OneCommit"),
        (a_run_nobody_started, "OneCommit"),
        (another_cost, "OneCommit"),
        (an_attempt_is_lost, "OneCommit"),
        (an_answer_to_nothing, "Idempotent"),
    ],
)
def test_damage_is_named(damage: Callable[[World], None], guarantee: str) -> None:
    world = lived()
    damage(world)
    assert guarantee in world.guarantees()


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "idle"},
        {"state": None},
        {"facts": None},
        {"facts": replace(FACTS, principal="prn_2")},
        {"create_time": 1},
        {"queue": None},
        {"due_at": 0},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_row_that_differs_is_named(changed: dict[str, Any]) -> None:
    assert lived().guarantees(**changed) == {"OneCommit"}


def test_what_is_not_in_the_log_is_left_out() -> None:
    world = lived()
    assert world.state is not None
    assert world.queue is not None
    live = world.run.live
    assert live is not None
    other = replace(world.run, attempt=replace(live, token_hash="other", last_message_no=9, runner_epoch=9))
    changed = {"state": replace(world.state, active=other), "queue": replace(world.queue, runner_epoch=9)}
    assert world.differences(**changed) == []


def test_an_offer_on_a_run_that_waits_is_left_out() -> None:
    world = World()
    world.do(Create(FACTS, AUTHOR, message()))
    assert world.queue is not None
    assert world.queue.state == "READY"
    assert world.differences(queue=replace(world.queue, runner_id="rnr_1")) == []


def test_an_event_that_cannot_be_read_is_all_that_is_said() -> None:
    replay = Replay(SESSION)
    replay.unreadable(1, "ValueError")
    replay.feed(2, "x", decode(lived().log[1][2]))
    assert [each.guarantee for each in replay.differences(lived().stored(), [], [], [])] == ["Durable"]
