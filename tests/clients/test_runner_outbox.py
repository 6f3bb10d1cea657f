"""The pure parts of the runner: numbering, windows, the lease's clock, credits."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_client.runner.attempt_queue import MAX_APPEND_BYTES, AttemptKey
from turnlog_client.runner.credits import Credits
from turnlog_client.runner.lease import LeaseClock
from turnlog_client.runner.outbox import Outbox

TOKEN = bytes(range(16))


def event(text: str) -> pb.RunnerEvent:
    made = pb.RunnerEvent()
    made.agent_message.parts.add(text=text)
    return made


def key(number: int) -> AttemptKey:
    return AttemptKey(f"sess_{number}", f"run_{number}", 1)


@dataclass
class ServerAttempt:
    """What a server keeps of an attempt."""

    applied: list[str] = field(default_factory=list)
    last: int = 0
    settled: bool = False


class OutboxMachine(RuleBasedStateMachine):
    """Runner and server, with a connection between them that loses what is on its way whenever it likes."""

    @initialize(
        attempts=st.integers(1, 3), max_messages=st.integers(1, 5), max_bytes=st.sampled_from([700, 2000, 1 << 20])
    )
    def start(self, attempts: int, max_messages: int, max_bytes: int) -> None:
        self.limits = (max_messages, max_bytes)
        self.outbox = Outbox()
        self.queues = {key(each): self.outbox.open(key(each), TOKEN) for each in range(attempts)}
        self.server = {each: ServerAttempt() for each in self.queues}
        self.said: dict[AttemptKey, list[str]] = {each: [] for each in self.queues}
        self.up: deque[pb.ConnectRequest] = deque()
        self.down: deque[tuple[AttemptKey, int]] = deque()
        self.unacked: list[tuple[AttemptKey, int, int]] = []
        self.connected = False
        self.now = 0.0

    @rule(which=st.integers(0, 2), size=st.sampled_from([1, 10, 300, 1500]), count=st.integers(1, 70))
    def say(self, which: int, size: int, count: int) -> None:
        if queue := self.queues.get(key(which)):
            if queue.ended:
                return
            for _ in range(count):
                text = f"{len(self.said[queue.key])}:".ljust(size, "x")
                self.said[queue.key].append(text)
                queue.append(event(text))
                queue.preview("p")

    @rule(which=st.integers(0, 2))
    def settle(self, which: int) -> None:
        if (queue := self.queues.get(key(which))) and not queue.ended:
            queue.settle(pb.Settle(outcome=pb.Settle.OUTCOME_SUCCEEDED))

    @precondition(lambda self: not self.connected)
    @rule(one_by_one=st.booleans())
    def connect(self, one_by_one: bool = False) -> None:
        self.connected = True
        self.outbox.connected(*self.limits, one_by_one=one_by_one)
        for each, state in self.server.items():
            self.outbox.ack(each, state.last)
            assert self.queues[each].goes_on_after(state.last)

    @precondition(lambda self: self.connected)
    @rule()
    def cut(self) -> None:
        self.connected = False
        self.up.clear()
        self.down.clear()
        self.unacked.clear()
        self.outbox.disconnected()

    @precondition(lambda self: self.connected)
    @rule(count=st.integers(1, 10))
    def write(self, count: int) -> None:
        for _ in range(count):
            self.now += 1
            request = self.outbox.take(self.now)
            if request is None:
                return
            self.up.append(request)
            if request.WhichOneof("message") != "preview":
                lease = getattr(request, request.WhichOneof("message") or "").lease
                self.unacked.append((AttemptKey.of(lease), lease.message_no, request.ByteSize()))

    @rule(count=st.integers(1, 10))
    def apply(self, count: int) -> None:
        for _ in range(min(count, len(self.up))):
            request = self.up.popleft()
            kind = request.WhichOneof("message") or ""
            if kind == "preview":
                continue
            lease = getattr(request, kind).lease
            assert lease.lease_token == TOKEN
            state = self.server[AttemptKey.of(lease)]
            assert lease.message_no <= state.last + 1, "a gap"
            if lease.message_no == state.last + 1:
                assert not state.settled, "something after the end"
                state.last = lease.message_no
                state.applied += [each.agent_message.parts[0].text for each in request.append.events]
                state.settled = kind == "settle"
            self.down.append((AttemptKey.of(lease), state.last))

    @rule(count=st.integers(1, 10))
    def acknowledge(self, count: int) -> None:
        for _ in range(min(count, len(self.down))):
            which, through = self.down.popleft()
            acked = self.outbox.ack(which, through)
            assert not acked.last or self.server[which].settled
            self.unacked = [each for each in self.unacked if each[0] != which or each[1] > through]

    @invariant()
    def applied_is_what_was_said(self) -> None:
        for each, state in getattr(self, "server", {}).items():
            assert state.applied == self.said[each][: len(state.applied)]

    @invariant()
    def bounds_hold(self) -> None:
        unacked = getattr(self, "unacked", [])
        if unacked:
            assert len(unacked) <= self.limits[0]
            # One that is larger than the bound goes alone.
            assert len(unacked) == 1 or sum(size for _, _, size in unacked) <= self.limits[1]

    def teardown(self) -> None:
        if not hasattr(self, "server"):
            return
        if not self.connected:
            self.connect()
        for queue in self.queues.values():
            if not queue.ended:
                queue.settle(pb.Settle(outcome=pb.Settle.OUTCOME_SUCCEEDED))
        while not all(state.settled for state in self.server.values()) or self.down:
            before = [state.last for state in self.server.values()], len(self.down)
            self.write(50)
            self.apply(50)
            self.acknowledge(50)
            assert before != ([state.last for state in self.server.values()], len(self.down)), "stuck"
        for each, state in self.server.items():
            assert state.applied == self.said[each]


TestOutbox = OutboxMachine.TestCase
TestOutbox.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_lone_event_goes_at_once_and_many_go_together() -> None:
    outbox = Outbox()
    outbox.connected(64, 1 << 20)
    queue = outbox.open(key(1), TOKEN)
    queue.append(event("lone"))
    first = outbox.take(0.0)
    assert first is not None
    assert len(first.append.events) == 1
    for number in range(65):
        queue.append(event(str(number)))
    taken = [outbox.take(0.0) for _ in range(3)]
    assert [len(each.append.events) if each else None for each in taken] == [64, 1, None]


def test_an_append_stays_small() -> None:
    outbox = Outbox()
    outbox.connected(64, 1 << 20)
    queue = outbox.open(key(1), TOKEN)
    for _ in range(5):
        queue.append(event("x" * (100 << 10)))
    sizes = []
    while request := outbox.take(0.0):
        sizes.append(request.ByteSize())
    assert max(sizes) < MAX_APPEND_BYTES
    assert len(sizes) == 3


def test_attempts_take_turns() -> None:
    outbox = Outbox()
    outbox.connected(64, 1 << 20)
    for number in (1, 2):
        queue = outbox.open(key(number), TOKEN)
        for _ in range(200):
            queue.append(event("x"))
    takers = []
    while request := outbox.take(0.0):
        takers.append(request.append.lease.run_id)
    assert takers == ["run_1", "run_2"] * 4


def test_previews_are_joined_and_bounded() -> None:
    outbox = Outbox()
    outbox.connected(64, 1 << 20)
    queue = outbox.open(key(1), TOKEN)
    for _ in range(100):
        queue.preview("ü" * 1000)
    request = outbox.take(0.0)
    assert request is not None
    assert 60_000 < len(request.preview.text.encode()) <= 64 << 10
    assert outbox.take(0.0) is None


def test_giving_up_drops_what_waits_and_frees_the_harness() -> None:
    outbox = Outbox()
    outbox.connected(1, 1 << 20)
    queue = outbox.open(key(1), TOKEN)
    for _ in range(300):
        queue.append(event("x"))
    assert not queue.room.is_set()
    queue.abandon("no more")
    assert queue.room.is_set()
    request = outbox.take(0.0)
    assert request is not None
    assert request.abandon.reason == "no more"
    assert request.abandon.lease.message_no == 1
    queue.append(event("late"))
    outbox.ack(key(1), 1)
    assert outbox.take(0.0) is None


async def test_tokens_are_not_printed() -> None:
    outbox = Outbox()
    outbox.connected(64, 1 << 20)
    queue = outbox.open(key(1), TOKEN)
    queue.append(event("x"))
    outbox.take(0.0)
    shown = repr(vars(queue)) + repr(queue)
    assert "lease_token" not in shown
    await asyncio.sleep(0)


def lease_clock(ttl: float = 30.0) -> LeaseClock:
    clock = LeaseClock(5.0)
    clock.welcomed(ttl, 0.0)
    return clock


def test_no_lease_never_expires() -> None:
    clock = LeaseClock(5.0)
    assert not clock.expired(1e9)
    clock.welcomed(30.0, 0.0)
    clock.given_up()
    assert not clock.expired(1e9)


def test_a_write_alone_proves_nothing() -> None:
    clock = lease_clock()
    clock.wrote(29.0)
    assert clock.expired(30.0)


def test_an_answer_proves_what_it_answers() -> None:
    clock = lease_clock()
    clock.wrote(20.0)
    clock.answered(20.0)
    assert not clock.expired(49.9)
    assert clock.expired(50.0)


def test_a_connection_that_is_still_there_proves_what_was_written_some_time_before() -> None:
    clock = lease_clock()
    clock.wrote(10.0)
    clock.wrote(20.0)
    clock.alive(24.0)
    assert clock.expires_at == 40.0
    clock.alive(25.0)
    assert clock.expires_at == 50.0


def test_a_quiet_stream_that_lives_keeps_its_lease() -> None:
    clock = lease_clock()
    for second in range(1, 1000):
        if second % 10 == 0:
            clock.wrote(float(second))
        clock.alive(float(second))
        assert not clock.expired(float(second))


@given(
    steps=st.lists(st.tuples(st.sampled_from(["write", "alive", "answer", "end"]), st.floats(0.01, 10))),
    ttl=st.floats(10, 60),
)
def test_the_lease_never_outlives_the_last_write_that_was_proved(steps: list[tuple[str, float]], ttl: float) -> None:
    clock = lease_clock(ttl)
    now, writes, proved = 0.0, [0.0], 0.0
    for step, later in steps:
        now += later
        match step:
            case "write":
                clock.wrote(now)
                writes.append(now)
            case "alive":
                clock.alive(now)
                proved = max(each for each in writes if each <= max(proved, now - 5.0))
            case "answer":
                clock.answered(writes[-1])
                proved = max(proved, writes[-1])
            case "end":
                clock.ended(now)
                proved = max(each for each in writes if each <= max(proved, now - 5.0))
                writes = [each for each in writes if each <= proved]
        assert clock.expires_at <= proved + ttl
        assert clock.expires_at >= proved + ttl - 0.25 * (1 + len(writes))


@given(st.integers(1, 8), st.lists(st.sampled_from(["offer", "release", "grant"]), max_size=60))
def test_the_server_never_has_more_credits_than_there_are_places(capacity: int, steps: list[str]) -> None:
    credits = Credits()
    server, held = 0, 0
    for step in steps:
        if step == "offer" and server > 0:
            server, held = server - 1, held + 1
            credits.used()
        elif step == "release" and held > 0:
            held -= 1
        else:
            granted = credits.grant(capacity - held)
            server = server if granted is None else granted
            assert server == capacity - held
        assert held + server <= capacity
