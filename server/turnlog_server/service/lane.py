"""The lane: the one way in. Everything that changes a Session goes through here, in batches, one commit each.

What is remembered of a Session may be stale, and that is harmless: an acceptance is protected by the compare on the
head in the log statement, a refusal is decided once more on freshly read state before it is answered. A Session that
lost the compare goes to the front of the queue and is looked at again; the rest of its batch is committed.

A batch whose outcome is unknown is looked up before anything else is written for its Sessions: ids and times of events
are made once and kept, so the log shows whether the first event of each Session is the one that was sent. If it is not,
the same compare sees to it that at most one of two writes lands. Nothing is published before the lane knows.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from turnlog_server.domain.draft import Answer, Rules
from turnlog_server.domain.events import Event
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import SessionFacts, SessionState
from turnlog_server.domain.values import value
from turnlog_server.service.batch import Encode, Group, decide_group, result_of, session_write
from turnlog_server.service.clock import Clock
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.faults import internal
from turnlog_server.service.lane_queue import LaneQueue, reused
from turnlog_server.service.submission import Result, Submission
from turnlog_server.store.errors import StoreFault
from turnlog_server.store.log import RequestRow, SessionWrite
from turnlog_server.store.writer import LogWriter, Outcome

REMEMBERED_SESSIONS = 20_000
MAX_ROUNDS = 40
GIVE_UP_SECONDS = 5.0


@value
class Committed:
    """What one commit did to one Session.

    epoch: the permission epoch that it was written under.
    """

    facts: SessionFacts
    state: SessionState
    events: Sequence[tuple[Event, bytes]]
    epoch: int
    deleted: bool = False


class LaneObserver(Protocol):
    """Hooks for metrics; they return at once."""

    def batch(self, commands: int, events: int, seconds: float) -> None: ...
    def redecided(self, commands: int) -> None: ...
    def resolved(self, applied: int, missing: int) -> None: ...


class SilentLane:
    """Counts nothing."""

    def batch(self, commands: int, events: int, seconds: float) -> None: ...
    def redecided(self, commands: int) -> None: ...
    def resolved(self, applied: int, missing: int) -> None: ...


class Lane:
    """One queue, one connection, one batch at a time."""

    def __init__(
        self,
        writer: LogWriter,
        encoder: Encode,
        publish: Callable[[list[Committed]], None],
        clock: Clock,
        rules: Rules,
        epochs: Epochs,
        observer: LaneObserver | None = None,
    ) -> None:
        self._writer = writer
        self._encode = encoder
        self._publish = publish
        self._clock = clock
        self._rules = rules
        self._observer = observer or SilentLane()
        self._queue = LaneQueue()
        self._memory: OrderedDict[str, tuple[SessionFacts, SessionState]] = OrderedDict()
        self._epochs = epochs
        self._down_since = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to take commands."""
        self._task = asyncio.create_task(self._run(), name="lane")

    async def close(self) -> None:
        """Carries out what is waiting, then stops. Commands that come later are refused as SERVER_DRAINING."""
        self._queue.close()
        if self._task is not None:
            await self._task
        await self._writer.close()

    @property
    def waiting(self) -> int:
        """Commands in the queue."""
        return len(self._queue)

    async def submit(self, submission: Submission, deadline: float) -> Result:
        """Carries a command out once, or refuses it. deadline: as in `LaneQueue.wait`."""
        if (twin := self._queue.twin(submission)) is not None:
            result = await self._queue.wait(twin, deadline)
            return Result(result.answer, result.facts, result.state, True, result.resource_id)
        self.enqueue(submission)
        return await self._queue.wait(submission, deadline)

    async def internal(self, submission: Submission) -> Result:
        """Carries out a command of the server itself. If it fails, whoever sweeps comes again."""
        self.enqueue(submission, forced=True)
        return await submission.future

    def enqueue(self, submission: Submission, *, forced: bool = False) -> None:
        """Puts a command at the end of the queue; its future tells what came of it.

        forced: the sender is bounded by other means, and refusing one of its messages would put them out of order.
        """
        self._queue.put(submission, forced=forced)
        if submission.caller is not None:
            self._epochs.note(submission.caller.workspace_id, submission.caller.epoch)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            batch = await self._queue.batch(self._writer.dialect.batch_sessions)
            if not batch:
                if self._queue.closing and not self._queue:
                    return
                continue
            started = loop.time()
            try:
                events = await self._process(batch)
            except Exception as exc:
                await self._failed(batch, exc)
            else:
                self._down_since = 0.0
                self._observer.batch(len(batch), events, loop.time() - started)

    async def _failed(self, batch: list[Submission], exc: Exception) -> None:
        """The database is away, or refused us. Commands wait for it a while, then they are told."""
        loop = asyncio.get_running_loop()
        self._down_since = self._down_since or loop.time()
        waited = loop.time() - self._down_since
        patient = isinstance(exc, Refusal) and waited < GIVE_UP_SECONDS and not self._queue.closing
        again = [submission for submission in batch if not submission.future.done()]
        for submission in again:
            self._memory.pop(submission.session_id, None)
        if patient:
            # What lost its compare before the failure is in the queue already.
            self._queue.put_back(self._queue.others(again))
            await asyncio.sleep(random.uniform(0.05, 0.2))
            return
        if not isinstance(exc, Refusal):
            exc = internal("a batch failed", exc)
        for submission in again:
            unknown = Refusal(
                Reason.OUTCOME_UNKNOWN,
                "Whether this was applied is not known yet: retry with the same request_id.",
                retry_after=1.0,
            )
            self._queue.refuse(submission, unknown if submission.tried else exc)

    async def _process(self, batch: list[Submission]) -> int:
        """Decides and writes a batch; returns the number of events written."""
        batch = await self._looked_at(batch)
        groups = await self._groups(batch)
        now = self._clock.now()
        for group in groups:
            decide_group(group, now=now, rules=self._rules, encoder=self._encode)
        await self._decide_stale_again(groups, now)
        refused = [pair for group in groups for pair in group.refused]
        # What a repeated request did may be the very reason why it would be refused now: looked up after the state.
        await self._answer_known([submission for submission, _ in refused])
        for group in groups:
            if not group.accepted:
                self._answer_unwritten(group)
        writing = [group for group in groups if group.accepted]
        events = 0
        for creates in (True, False):
            part = [group for group in writing if group.creates is creates]
            if part:
                events += await self._write(part, creates=creates)
        return events

    async def _looked_at(self, batch: list[Submission]) -> list[Submission]:
        """Of the commands to look at again, those that still have to be decided; the others are answered here."""
        looking = [submission for submission in batch if submission.look]
        stale = [s for s in batch if s.caller and s.caller.epoch < (self._epochs.get(s.caller.workspace_id) or 0)]
        if not looking and not stale:
            return batch
        if looking:
            self._observer.redecided(len(looking))
            await self._answer_known(looking)
            await self._answer_applied(looking)
            # The server's own commands are judged by nobody, but they too must not be published under an old epoch.
            for workspace_id, epoch in (await self._writer.epochs(self._workspaces(looking))).items():
                self._epochs.note(workspace_id, epoch)
        judged: dict[int, Submission] = {id(s): s for s in (*looking, *stale) if s.caller is not None}
        await asyncio.gather(*(self._judge(submission) for submission in judged.values()))
        for submission in looking:
            if not submission.future.done() and submission.rounds > MAX_ROUNDS:
                contention = Refusal(
                    Reason.CONTENTION,
                    "Others write to this Session all the time; nothing was applied. Try again.",
                    retry_after=0.5,
                )
                self._queue.refuse(submission, contention)
        # Once for the batch: those beside whoever loses again and again wait with it.
        if (rounds := max((submission.rounds for submission in looking), default=0)) > 2:
            await asyncio.sleep(random.uniform(0.0, 0.002 * rounds))
        return [submission for submission in batch if not submission.future.done()]

    @staticmethod
    def _workspaces(submissions: list[Submission]) -> list[str]:
        return sorted({s.facts.workspace_id for s in submissions if s.facts is not None})

    async def _judge(self, submission: Submission) -> None:
        if submission.future.done() or submission.caller is None or submission.judge is None:
            return
        try:
            submission.caller = await submission.judge(submission.caller)
        except Refusal as refusal:
            self._queue.refuse(submission, refusal)
        else:
            self._epochs.note(submission.caller.workspace_id, submission.caller.epoch)

    async def _answer_known(self, looking: list[Submission]) -> None:
        """Commands whose request id is in the log: they are answered as they were the first time."""
        keyed = [submission for submission in looking if submission.key is not None]
        if not keyed:
            return
        known = await self._writer.requests([s.key for s in keyed if s.key is not None])
        if not known:
            return
        # The stored answer names the Session; the caller is told how it stands now.
        ids = {row.resource_id for row in known.values()}
        stored = await self._writer.sessions(sorted(ids))
        for submission in keyed:
            row = known.get(submission.key) if submission.key is not None else None
            if row is None:
                continue
            if row.fingerprint != submission.fingerprint:
                self._queue.refuse(submission, reused(submission.key))
                continue
            self._queue.answer(submission, replay(row, stored.get(row.resource_id)))

    async def _answer_applied(self, looking: list[Submission]) -> None:
        """Commands whose batch had an unknown outcome, and turns out to be in the log."""
        tried = [s for s in looking if s.tried and not s.future.done()]
        if not tried:
            return
        sent = [(s, seq, body, answer) for s in tried for seq, body, answer in s.tried]
        landed = await self._writer.matching([(s.session_id, seq, body) for s, seq, body, _ in sent])
        stored = await self._writer.sessions(sorted({sent[index][0].session_id for index in landed})) if landed else {}
        for index in landed:
            submission, _, _, answer = sent[index]
            facts, state = stored.get(submission.session_id, (submission.facts, None))
            self._queue.answer(submission, Result(answer, facts, state))
        # Commands, not tries: two tries of one may be the same to the byte, and then both are found.
        applied = len({id(sent[index][0]) for index in landed})
        self._observer.resolved(applied, len(tried) - applied)

    async def _groups(self, batch: list[Submission]) -> list[Group]:
        by_session: dict[str, list[Submission]] = {}
        for submission in batch:
            by_session.setdefault(submission.session_id, []).append(submission)
        fresh = {
            session_id
            for session_id, submissions in by_session.items()
            if session_id not in self._memory or any(s.look for s in submissions)
        }
        wanted = sorted(
            session_id for session_id in fresh if any(not s.creates or s.look for s in by_session[session_id])
        )
        read = await self._writer.sessions(wanted) if wanted else {}
        groups: list[Group] = []
        for session_id, submissions in by_session.items():
            stored = read.get(session_id) if session_id in fresh else self._memory[session_id]
            groups.append(Group(session_id, submissions, stored, session_id in fresh))
        return groups

    async def _decide_stale_again(self, groups: list[Group], now: int) -> None:
        """A refusal, or nothing to do, that rests on memory is decided once more on what the database says."""
        doubtful = [group for group in groups if not group.fresh and (group.refused or group.empty)]
        if not doubtful:
            return
        read = await self._writer.sessions(sorted(group.session_id for group in doubtful))
        for group in doubtful:
            stored = read.get(group.session_id)
            group.fresh = True
            if stored != group.stored:
                group.stored = stored
                decide_group(group, now=now, rules=self._rules, encoder=self._encode)

    async def _write(self, groups: list[Group], *, creates: bool) -> int:
        writes = [session_write(group) for group in groups]
        epochs = await self._epochs_of({write.workspace_id for write in writes})
        for group, write in zip(groups, writes, strict=True):
            # The one that they were judged under: a newer one may have been heard of since.
            judged = (submission.caller.epoch for submission, _ in group.accepted if submission.caller)
            epochs[write.workspace_id] = min((epochs[write.workspace_id], *judged))
        sent = self._writer.create if creates else self._writer.append
        try:
            written = await sent(writes, epochs)
        except StoreFault as fault:
            return await self._poisoned(groups, fault, creates=creates)
        if written.outcome is Outcome.CONFLICT and len(groups) > 1:
            # Where transactions collide, a batch collides as a whole: one Session at a time gets through.
            halves = len(groups) // 2
            first = await self._write(groups[:halves], creates=creates)
            return first + await self._write(groups[halves:], creates=creates)
        if written.outcome is Outcome.KNOWN and creates and len(groups) > 1:
            return sum([await self._write([group], creates=True) for group in groups])
        published: list[Committed] = []
        events = 0
        for group, write in zip(groups, writes, strict=True):
            if group.session_id in written.moved:
                published.append(self._moved(group, epochs))
                events += len(group.events)
            else:
                self._missed(group, write, unknown=written.outcome is Outcome.UNKNOWN)
        if published:
            self._publish(published)
        return events

    async def _poisoned(self, groups: list[Group], fault: StoreFault, *, creates: bool) -> int:
        """The database refused the batch for something in it: whatever that is fails alone, not its neighbours."""
        if len(groups) > 1:
            return sum([await self._write([group], creates=creates) for group in groups])
        (group,) = groups
        if len(group.accepted) > 1:
            for submission in group.submissions:
                submission.alone = True
        else:
            refusal = internal("the database refused a write", fault, session=group.session_id)
            self._queue.refuse(group.accepted[0][0], refusal)
        self._again(group)
        return 0

    def _answer_unwritten(self, group: Group) -> None:
        """Answers what came to nothing: only after the commit of those before it, on which it rests."""
        for submission, exc in group.refused:
            self._queue.refuse(submission, exc)
        for submission, decision in group.empty:
            self._queue.answer(submission, result_of(group, decision))

    def _again(self, group: Group) -> None:
        """All of a group that nobody answered yet is decided once more."""
        self._memory.pop(group.session_id, None)
        again = [submission for submission in group.submissions if not submission.future.done()]
        for submission in again:
            submission.rounds += 1
        self._queue.put_back(again)

    async def _epochs_of(self, workspace_ids: set[str]) -> dict[str, int]:
        unknown = [workspace_id for workspace_id in workspace_ids if self._epochs.get(workspace_id) is None]
        if unknown:
            for workspace_id, epoch in (await self._writer.epochs(unknown)).items():
                self._epochs.note(workspace_id, epoch)
        return {workspace_id: self._epochs.get(workspace_id) or 0 for workspace_id in workspace_ids}

    def _moved(self, group: Group, epochs: dict[str, int]) -> Committed:
        assert group.after is not None
        facts, state = group.after
        if group.deleted:
            self._memory.pop(group.session_id, None)
        else:
            self._memory[group.session_id] = group.after
            self._memory.move_to_end(group.session_id)
            if len(self._memory) > REMEMBERED_SESSIONS:
                self._memory.popitem(last=False)
        for submission, decision in group.accepted:
            self._queue.answer(submission, result_of(group, decision))
        self._answer_unwritten(group)
        return Committed(facts, state, group.events, epochs[facts.workspace_id], group.deleted)

    def _missed(self, group: Group, write: SessionWrite, *, unknown: bool) -> None:
        """Absent from the answer: nothing of it was written, or nobody knows."""
        for submission, decision in group.accepted:
            if unknown and write.events:
                submission.tried.append((write.events[0][0], write.events[0][2], decision.answer))
        self._again(group)


def replay(row: RequestRow, stored: tuple[SessionFacts, SessionState] | None) -> Result:
    """The answer that a request had, and the Session as it stands now."""
    facts, state = stored if stored is not None else (None, None)
    answer = Answer(row.seq, row.event_id, row.run_id)
    return Result(answer, facts, state, replayed=True, resource_id=row.resource_id)
