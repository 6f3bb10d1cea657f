"""The lane where the database fails it in the middle of a batch: a writer in memory that does what a test says."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from turnlog.v1 import event_pb2
from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.commands import Author, Command, Create, IfBusy, SendMessage
from turnlog_server.domain.draft import Rules
from turnlog_server.domain.events import Cause, CauseKind
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import Pins, SessionFacts
from turnlog_server.service import lane as lane_module
from turnlog_server.service.clock import Clock
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Result, Submission
from turnlog_server.store.codec import state_of
from turnlog_server.store.errors import StoreFault
from turnlog_server.store.log import SessionWrite
from turnlog_server.store.writer import Outcome, Written
from turnlog_server.wire.events import encode

AUTHOR = Author("prn_1", "prn_1", Cause(CauseKind.API))
PINS = Pins("adep_1", 1, "agt_1", 1, "hpr_1", "spr_1", "default", 60)
MESSAGE = SendMessage(AUTHOR, event_pb2.Event(user_message={"parts": [{"text": "hello"}]}).SerializeToString())
AWAY = Refusal(Reason.STORE_UNAVAILABLE, "away")


class Table:
    """What a database would hold. `before` is asked ahead of each statement, and may raise or say what becomes of it.

    As the log statement does, a write is refused whose epoch is not the one of the workspace. `poison` is what an event
    may not hold.
    """

    def __init__(self) -> None:
        self.dialect = SimpleNamespace(batch_sessions=256)
        self.stored: dict[str, tuple] = {}
        self.bodies: dict[str, list[bytes]] = {}
        self.epoch = 1
        self.poison = b""
        self.before: Callable[[str], Outcome | None] = lambda statement: None

    async def sessions(self, session_ids: Sequence[str]) -> dict:
        self.before("sessions")
        await asyncio.sleep(0)
        return {name: self.stored[name] for name in session_ids if name in self.stored}

    async def matching(self, wanted: Sequence[tuple[str, int, bytes]]) -> list[int]:
        self.before("matching")
        return [at for at, (name, seq, body) in enumerate(wanted) if self.bodies.get(name, [])[seq - 1 : seq] == [body]]

    async def epochs(self, workspace_ids: Sequence[str]) -> dict[str, int]:
        self.before("epochs")
        return dict.fromkeys(workspace_ids, self.epoch)

    async def requests(self, keys: Sequence) -> dict:
        self.before("requests")
        return {}

    async def create(self, writes: list[SessionWrite], epochs: dict[str, int]) -> Written:
        return self._write("create", writes, epochs)

    async def append(self, writes: list[SessionWrite], epochs: dict[str, int]) -> Written:
        return self._write("append", writes, epochs)

    async def close(self) -> None:
        pass

    def _write(self, statement: str, writes: list[SessionWrite], epochs: dict[str, int]) -> Written:
        if outcome := self.before(statement):
            return Written(outcome)
        if self.poison and any(self.poison in body for write in writes for _, _, body in write.events):
            raise StoreFault(statement, "22000", None)
        moved = set()
        for write in writes:
            bodies = self.bodies.setdefault(write.session_id, [])
            if epochs[write.workspace_id] != self.epoch or len(bodies) != write.expected:
                continue
            assert [seq for seq, _, _ in write.events] == list(range(len(bodies) + 1, write.new_head + 1))
            bodies.extend(body for _, _, body in write.events)
            facts = write.facts or self.stored[write.session_id][0]
            self.stored[write.session_id] = (facts, state_of(write.state.decode()))
            moved.add(write.session_id)
        return Written(Outcome.DONE, frozenset(moved))


class Bench:
    """A lane on a table, not yet started."""

    def __init__(self) -> None:
        self.table = Table()
        self.epochs = Epochs()
        self.lane = Lane(self.table, encode, lambda commits: None, Clock(), Rules(), self.epochs)  # type: ignore[arg-type]
        self.caller = Caller("ws_1", "prn_1", "key_1", Role.MANAGER, 1)

    async def judge(self, caller: Caller) -> Caller:
        """Whatever changed, it took the caller's role."""
        if self.table.epoch != caller.epoch:
            raise Refusal(Reason.PERMISSION_MISSING, "gone")
        return caller

    def ask(self, session_id: str, command: Command) -> asyncio.Task[Result]:
        loop = asyncio.get_running_loop()
        submission = Submission(session_id, command, 100, loop.create_future(), self.caller, self.judge)
        submission.key = ("ws_1", "prn_1", "Any", str(id(submission)))
        return asyncio.create_task(self.lane.submit(submission, loop.time() + 20))

    def create(self, session_id: str) -> asyncio.Task[Result]:
        facts = SessionFacts(session_id, "ws_1", PINS, "prn_1", True, 0)
        return self.ask(session_id, Create(facts, AUTHOR, b""))


@pytest.fixture
async def bench():
    made = Bench()
    made.lane.start()
    await made.create("sess_0")
    yield made
    await made.lane.close()


def forget(bench: Bench) -> None:
    bench.lane._memory.clear()


async def test_a_session_of_unknown_outcome_is_made_once_when_the_rest_of_its_batch_fails(bench):
    left = ["create", "append"]

    def fails(statement: str) -> Outcome | None:
        if statement not in left:
            return None
        left.remove(statement)
        if statement == "create":
            return Outcome.UNKNOWN
        raise AWAY

    bench.table.before = fails
    asked = [bench.ask("sess_0", MESSAGE), bench.create("sess_1")]
    answers = await asyncio.gather(*asked)
    assert not left
    assert all(answer.answer.seq for answer in answers)
    assert len(bench.table.bodies["sess_1"]) == 2


async def test_who_was_judged_under_an_epoch_writes_under_it(bench):
    forget(bench)

    def revoked(statement: str) -> None:
        if statement == "sessions" and bench.table.epoch == 1:
            bench.table.epoch = 2
            bench.epochs.note("ws_1", 2)

    bench.table.before = revoked
    with pytest.raises(Refusal) as caught:
        await bench.ask("sess_0", MESSAGE)
    assert caught.value.reason is Reason.PERMISSION_MISSING
    assert len(bench.table.bodies["sess_0"]) == 2


async def test_a_refusal_whose_caller_has_left_is_no_complaint_of_the_event_loop(bench):
    complaints: list[dict] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: complaints.append(context))
    asked: list[asyncio.Task[Result]] = []
    bench.table.before = lambda statement: asked[0].cancel() if statement == "sessions" else None
    try:
        asked.append(bench.ask("sess_none", MESSAGE))
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        bench.table.before = lambda statement: None
        await bench.ask("sess_0", MESSAGE)
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    assert not complaints


async def test_a_database_that_was_away_is_not_contention(bench, monkeypatch):
    monkeypatch.setattr(lane_module, "MAX_ROUNDS", 3)
    left = 6

    def away(statement: str) -> None:
        nonlocal left
        if left and (statement == "requests" or (left == 6 and statement == "append")):
            left -= 1
            raise AWAY

    bench.table.before = away
    answer = await bench.ask("sess_0", MESSAGE)
    assert answer.answer.seq
    assert not left


async def test_those_who_lose_together_wait_together(bench, monkeypatch):
    pauses: list[float] = []
    drawn = SimpleNamespace(uniform=lambda low, high: pauses.append(high) or low)
    monkeypatch.setattr(lane_module, "random", drawn)
    lost = 8

    def loses(statement: str) -> Outcome | None:
        nonlocal lost
        if statement == "append" and lost:
            lost -= 1
            return Outcome.KNOWN
        return None

    names = [f"sess_{number}" for number in range(1, 40)]
    await asyncio.gather(*(bench.create(name) for name in names))
    bench.table.before = loses
    await asyncio.gather(*(bench.ask(name, MESSAGE) for name in names))
    assert not lost
    assert len(pauses) < 10


async def test_no_refusal_rests_on_what_was_not_written(bench):
    """Of two that come together the first is to make the Session busy; it fails, and the second finds it free."""
    left = ["append"]

    def fails(statement: str) -> Outcome | None:
        if statement in left:
            left.clear()
            raise StoreFault("append", "22000", None)
        return None

    bench.table.before = fails
    reject = replace(MESSAGE, if_busy=IfBusy.REJECT)
    first, second = bench.ask("sess_0", MESSAGE), bench.ask("sess_0", reject)
    with pytest.raises(Refusal) as caught:
        await first
    assert caught.value.reason is Reason.INTERNAL
    assert (await second).answer.run_id


async def test_what_the_database_refuses_fails_alone_also_among_others_of_its_session(bench):
    bench.table.poison = b"poison"
    bad = SendMessage(AUTHOR, event_pb2.Event(user_message={"parts": [{"text": "poison"}]}).SerializeToString())
    asked = [bench.ask("sess_0", command) for command in (MESSAGE, bad, MESSAGE, MESSAGE)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert refused == [answers[1]]
    assert refused[0].reason is Reason.INTERNAL
    seqs = [answer.answer.seq for answer in answers if isinstance(answer, Result)]
    assert seqs == sorted(seqs)
    assert len(bench.table.bodies["sess_0"]) == max(seqs) + 1
