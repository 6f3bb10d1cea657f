"""One runner's stream: what it says becomes commands of the lane, in order; what came of them goes back as acks.

The loop that reads never waits for a commit, so heartbeats cannot starve behind appends. Commands go into the lane as
they are read and are answered in that order by a second task, which folds acks that are ready together into one.
"""

import asyncio
import hashlib
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnlog_server.domain import fleet as said
from turnlog_server.domain import limits
from turnlog_server.domain.attempts import why_fenced
from turnlog_server.domain.commands import Abandon, AcceptRun, AppendReports, Command, HarnessReady, Lease, Settle
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import Attempt, RunStatus, SessionState
from turnlog_server.service.context import CallContext
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Result, Submission

ANSWER_SECONDS = 30.0
# A runner that was told that a lease is lost counts that attempt's messages no more, and here they still wait.
UNACKED_SLACK = 2
GONE = {
    Reason.LEASE_LOST: said.LostReason.LEASE_LOST,
    Reason.NOT_FOUND: said.LostReason.LEASE_LOST,
    Reason.STALE_ATTEMPT: said.LostReason.STALE_ATTEMPT,
    Reason.ALREADY_SETTLED: said.LostReason.ALREADY_SETTLED,
}
# The message was at fault, not the stream: the attempt goes on.
REJECTS = frozenset({Reason.INVALID_FIELD, Reason.ILLEGAL_TRANSITION})

Key = tuple[str, str]


class RunnerFrames(Protocol):
    """Messages to a runner as bytes, made by the wire."""

    def welcome(self, settings: said.Settings, held: list[said.HeldState]) -> bytes: ...
    def offer(self, offer: said.Offer) -> bytes: ...
    def accepted(self, session_id: str, run_id: str, attempt: Attempt, now: int) -> bytes: ...
    def interrupt(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes: ...
    def cancel(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes: ...
    def ack(
        self, session_id: str, run_id: str, attempt_no: int, through: int, rejected: list[said.Rejected]
    ) -> bytes: ...
    def lease_lost(self, session_id: str, run_id: str, attempt_no: int, reason: said.LostReason) -> bytes: ...
    def drain(self, reason: said.DrainReason) -> bytes: ...


@dataclass(slots=True)
class Held:
    """An attempt that this runner executes.

    ending: it is on its way to end it itself. reported: what becomes of the last that it reported.
    """

    session_id: str
    run_id: str
    attempt_no: int
    tools: frozenset[str]
    stop_told: RunStatus | None = None
    ending: bool = False
    head: int = 0
    reported: asyncio.Future[Result] | None = None


@dataclass(slots=True)
class Offered:
    """An Offer that stands."""

    offer: said.Offer
    expiry: asyncio.TimerHandle


@dataclass(slots=True)
class _Pending:
    """A command on its way."""

    key: Key
    attempt_no: int
    message_no: int
    size: int
    future: asyncio.Future[Result]
    tools: frozenset[str] = frozenset()
    rejected: list[said.Rejected] = field(default_factory=list)


class Holders:
    """Which links hold an attempt of a Session; for a moment there may be two, one of which is to be told."""

    def __init__(self) -> None:
        self._links: defaultdict[str, set[Link]] = defaultdict(set)

    def add(self, session_id: str, link: "Link") -> None:
        """It holds one."""
        self._links[session_id].add(link)

    def discard(self, session_id: str, link: "Link") -> None:
        """It holds none any more."""
        links = self._links.get(session_id, set())
        links.discard(link)
        if not links:
            self._links.pop(session_id, None)

    def held(self, session_id: str) -> list[tuple["Link", "Held"]]:
        """All that is held of a Session."""
        links = self._links.get(session_id, ())
        return [(link, held) for link in links for held in link.held.values() if held.session_id == session_id]


class Link:
    """A runner that is connected here.

    heard: since the last renewal of its lease. heard_at: when last, in the time of the event loop.
    """

    def __init__(
        self,
        ctx: CallContext,
        hello: said.Hello,
        profiles: dict[str, str],
        epoch: int,
        holders: Holders,
        give_up: Callable[["Held"], None],
        lane: Lane,
        frames: RunnerFrames,
        now: Callable[[], int],
    ) -> None:
        self.ctx = ctx
        self.hello = hello
        self.profiles = profiles
        self.epoch = epoch
        self.held: dict[Key, Held] = {}
        self.offers: dict[Key, Offered] = {}
        self.credits = 0
        self.draining = False
        self.left = False
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listen()
        self._unacked = [0, 0]
        self._holders = holders
        self._give_up = give_up
        self._lane = lane
        self._frames = frames
        self._now = now
        self._pending: asyncio.Queue[_Pending] = asyncio.Queue()
        self._completer = asyncio.create_task(self._complete(), name="runner acks")

    @property
    def workspace_id(self) -> str:
        """The runner's workspace."""
        return self.ctx.caller.workspace_id

    @property
    def free(self) -> int:
        """How many Runs may be offered now."""
        if self.draining or self.left or self.failure.done():
            return 0
        return max(0, self.credits - len(self.offers))

    def listen(self) -> None:
        """The runner was heard."""
        self.heard = True
        self.heard_at = asyncio.get_running_loop().time()

    def send(self, frame: bytes) -> None:
        """Queues a message to the runner."""
        self.outbox.put_nowait(frame)

    def fail(self, refusal: Refusal) -> None:
        """Ends the stream; the runner reconnects and sends again what was not acknowledged."""
        if not self.failure.done():
            self.failure.set_exception(refusal)

    async def close(self) -> None:
        """The stream is gone. What was sent into the lane is carried out all the same."""
        self._completer.cancel()
        if self.failure.done():
            self.failure.exception()
        else:
            self.failure.cancel()

    def offer(self, offer: said.Offer, seconds: float, expired: Callable[["Link", said.Offer], None]) -> None:
        """Offers a Run; the token becomes worth something only by an Accept that is committed."""

        def expire() -> None:
            if self.refuse_offer(offer.session_id, offer.run_id) is not None:
                expired(self, offer)

        timer = asyncio.get_running_loop().call_later(seconds, expire)
        self.offers[offer.session_id, offer.run_id] = Offered(offer, timer)
        self.send(self._frames.offer(offer))

    def take_offer(self, session_id: str, run_id: str) -> said.Offer | None:
        """The standing Offer, which no longer stands from here on."""
        offered = self.offers.pop((session_id, run_id), None)
        if offered is None:
            return None
        offered.expiry.cancel()
        return offered.offer

    def refuse_offer(self, session_id: str, run_id: str) -> said.Offer | None:
        """As `take_offer`, for one that was declined or not answered: the runner has to grant credits anew."""
        offer = self.take_offer(session_id, run_id)
        if offer is not None:
            self.credits = 0
        return offer

    def hold(self, held: Held) -> None:
        """The attempt is this runner's."""
        self.held[held.session_id, held.run_id] = held
        self._holders.add(held.session_id, self)

    def accept(self, held: said.HeldAttempt, tools: frozenset[str]) -> None:
        """The runner takes an Offer; a second time, or late, its lease is worth nothing."""
        offered = self.offers.get((held.session_id, held.run_id))
        if offered is None or (offered.offer.token, offered.offer.attempt_no) != (held.token, held.attempt_no):
            self._drop(held.session_id, held.run_id, held.attempt_no, said.LostReason.LEASE_LOST)
            return
        self.take_offer(held.session_id, held.run_id)
        self.credits = max(0, self.credits - 1)
        lease = Lease(held.run_id, held.attempt_no, token_hash(held.token))
        command = AcceptRun(lease, self.hello.runner_id, self.hello.version, self.epoch)
        self._submit(held.session_id, lease, command, 256, tools)

    def report(self, message: said.Numbered) -> bool:
        """A numbered message of an attempt; False when this runner does not hold it."""
        proof = message.proof
        held = self.held.get((proof.session_id, proof.run_id))
        if held is None or held.attempt_no != proof.attempt_no:
            return False
        lease = Lease(proof.run_id, proof.attempt_no, token_hash(proof.token), proof.message_no)
        subject = self.ctx.caller.subject
        rejected: list[said.Rejected] = []
        size = 256
        match message:
            case said.HarnessStarted():
                command: Command = HarnessReady(lease, subject)
            case said.Reports():
                kept = []
                for index, report in enumerate(message.reports):
                    if report.tool and report.tool not in held.tools:
                        rejected.append(no_tool(proof.message_no, index, report.tool))
                    else:
                        kept.append((report.fact, report.payload))
                        size += len(report.payload)
                command = AppendReports(lease, subject, tuple(kept))
            case said.Malformed():
                rejected.append(rejection(proof.message_no, message.refusal))
                command = AppendReports(lease, subject, ())
            case said.Settled():
                held.ending = True
                command = Settle(lease, message.outcome, message.error)
            case said.Abandoned():
                held.ending = True
                command = Abandon(lease, message.reason)
        self._submit(proof.session_id, lease, command, size, held.tools, rejected)
        return True

    def after_reports(self, session_id: str, run_id: str, attempt_no: int, then: Callable[[], None]) -> None:
        """Does something once all that the attempt reported before has come to its end; nothing where none is held."""
        held = self.held.get((session_id, run_id))
        if held is None or held.attempt_no != attempt_no:
            return
        if held.reported is None:
            then()
        else:
            held.reported.add_done_callback(lambda _: then())

    def lost(self, session_id: str, run_id: str, attempt_no: int, reason: said.LostReason) -> None:
        """Tells the runner to stop an attempt."""
        held = self.held.get((session_id, run_id))
        if held is not None and held.attempt_no == attempt_no:
            self._release(held)
        self.send(self._frames.lease_lost(session_id, run_id, attempt_no, reason))

    def _drop(self, session_id: str, run_id: str, attempt_no: int, reason: said.LostReason) -> None:
        """As `lost`. A runner that made a mistake may hold the attempt all the same: then it is given up in earnest."""
        held = self.held.get((session_id, run_id))
        self.lost(session_id, run_id, attempt_no, reason)
        if held is not None and held.attempt_no == attempt_no:
            self._give_up(held)

    def look(self, held: Held, state: SessionState | None) -> None:
        """The Session of a held attempt changed, by whomever: is it to be stopped, is it still the runner's?"""
        run = state.active if state is not None else None
        live = run.live if run is not None and run.run_id == held.run_id else None
        if run is None or live is None or live.attempt_no != held.attempt_no:
            if not held.ending:
                self.lost(
                    held.session_id, held.run_id, held.attempt_no, lost_reason(state, held.run_id, held.attempt_no)
                )
            return
        if run.stop_as is not None and held.stop_told is not run.stop_as:
            held.stop_told = run.stop_as
            grace = max(0.0, (run.grace_deadline - self._now()) / 1_000_000)
            tell = self._frames.cancel if run.stop_as is RunStatus.CANCELED else self._frames.interrupt
            self.send(tell(held.session_id, held.run_id, held.attempt_no, grace))

    def _release(self, held: Held) -> None:
        del self.held[held.session_id, held.run_id]
        if not any(other.session_id == held.session_id for other in self.held.values()):
            self._holders.discard(held.session_id, self)

    def _submit(
        self,
        session_id: str,
        lease: Lease,
        command: Command,
        size: int,
        tools: frozenset[str],
        rejected: list[said.Rejected] | None = None,
    ) -> None:
        if not self._within_bounds(size):
            return
        loop = asyncio.get_running_loop()
        submission = Submission(session_id, command, size, loop.create_future(), self.ctx.caller, self.ctx.judge)
        # A stream that ends leaves answers behind that nobody reads: the event loop is not to complain of them.
        submission.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        if (held := self.held.get((session_id, lease.run_id))) is not None:
            held.reported = submission.future
        try:
            self._lane.enqueue(submission, forced=True)
        except Refusal as refusal:
            submission.future.set_exception(refusal)
        self._pending.put_nowait(
            _Pending(
                (session_id, lease.run_id),
                lease.attempt_no,
                lease.message_no,
                size,
                submission.future,
                tools,
                rejected or [],
            )
        )

    def _within_bounds(self, size: int) -> bool:
        """Nothing else bounds what a runner puts into the lane: its messages may not be refused for a full queue."""
        messages, waiting = self._unacked
        if messages and (
            messages >= UNACKED_SLACK * limits.RUNNER_UNACKED_MESSAGES
            or waiting + size > UNACKED_SLACK * limits.RUNNER_UNACKED_BYTES
        ):
            most = limits.RUNNER_UNACKED_MESSAGES
            self.fail(
                Refusal(
                    Reason.LIMIT_EXCEEDED,
                    "Too much is unacknowledged: wait for an Ack, as Welcome says.",
                    {"limit": "runner_unacked_messages", "maximum": str(most), "actual": str(messages + 1)},
                )
            )
            return False
        self._unacked = [messages + 1, waiting + size]
        return True

    async def _complete(self) -> None:
        """Answers commands in the order in which they were sent."""
        acks: dict[Key, tuple[int, int, list[said.Rejected]]] = {}
        while True:
            pending = await self._pending.get()
            while True:
                try:
                    # Most answers of a batch are there at once.
                    if not pending.future.done():
                        async with asyncio.timeout(ANSWER_SECONDS):
                            await asyncio.shield(pending.future)
                    result = pending.future.result()
                except Refusal as refusal:
                    self._refused(pending, refusal, acks)
                except TimeoutError:
                    self.fail(Refusal(Reason.STORE_UNAVAILABLE, "The database does not answer.", retry_after=1.0))
                else:
                    self._applied(pending, result, acks)
                if self.failure.done():
                    # What came after a message that failed was refused as a gap. The runner sends all of it again.
                    return
                self._unacked = [self._unacked[0] - 1, self._unacked[1] - pending.size]
                if self._pending.empty() or len(acks) > 64:
                    break
                pending = self._pending.get_nowait()
                if not pending.future.done():
                    self._flush(acks)
            self._flush(acks)

    def _flush(self, acks: dict[Key, tuple[int, int, list[said.Rejected]]]) -> None:
        for (session_id, run_id), (attempt_no, through, rejected) in acks.items():
            self.send(self._frames.ack(session_id, run_id, attempt_no, through, rejected))
        acks.clear()

    def _applied(
        self, pending: _Pending, result: Result, acks: dict[Key, tuple[int, int, list[said.Rejected]]]
    ) -> None:
        session_id, run_id = pending.key
        state = result.state
        if not pending.message_no:
            run = state.active if state is not None else None
            live = run.live if run is not None and run.run_id == run_id else None
            if state is None or live is None or live.attempt_no != pending.attempt_no:
                self.lost(session_id, run_id, pending.attempt_no, said.LostReason.LEASE_LOST)
                return
            held = Held(session_id, run_id, pending.attempt_no, pending.tools, head=state.head_seq)
            self.hold(held)
            self.send(self._frames.accepted(session_id, run_id, live, self._now()))
            self.look(held, state)
            return
        rejected = pending.rejected
        refused = result.answer.refused
        if refused is not None:
            rejected.append(said.Rejected(pending.message_no, refused.reason.value, refused.message))
        self._acknowledge(pending, acks, pending.message_no, rejected)
        held = self.held.get(pending.key)
        if held is not None and held.ending and held.attempt_no == pending.attempt_no:
            if refused is not None:
                held.ending = False
            else:
                self._release(held)

    def _refused(
        self, pending: _Pending, refusal: Refusal, acks: dict[Key, tuple[int, int, list[said.Rejected]]]
    ) -> None:
        session_id, run_id = pending.key
        # An Accept has no number that could be rejected: a runner that is not told would hold what it did not get.
        accepting = not pending.message_no and refusal.reason in {*REJECTS, Reason.INTERNAL}
        if refusal.reason in GONE or accepting:
            self._drop(session_id, run_id, pending.attempt_no, GONE.get(refusal.reason, said.LostReason.LEASE_LOST))
        elif refusal.reason in REJECTS:
            rejected = said.Rejected(pending.message_no, refusal.reason.value, refusal.message)
            self._acknowledge(pending, acks, 0, [rejected])
            if (held := self.held.get(pending.key)) is not None:
                held.ending = False
        else:
            self.fail(refusal)

    def _acknowledge(
        self,
        pending: _Pending,
        acks: dict[Key, tuple[int, int, list[said.Rejected]]],
        through: int,
        rejected: list[said.Rejected],
    ) -> None:
        _, before, earlier = acks.get(pending.key, (0, 0, []))
        acks[pending.key] = (pending.attempt_no, max(before, through), earlier + rejected)


def lost_reason(state: SessionState | None, run_id: str, attempt_no: int) -> said.LostReason:
    """Why an attempt is not a runner's any more; None for a Session that is gone."""
    return said.LostReason.LEASE_LOST if state is None else GONE[why_fenced(state, run_id, attempt_no)]


def token_hash(token: bytes) -> str:
    """How a lease token is kept."""
    return hashlib.sha256(token).hexdigest()


def new_token() -> bytes:
    """128 random bits."""
    return os.urandom(16)


def rejection(message_no: int, refusal: Refusal) -> said.Rejected:
    """A message that was refused as a whole."""
    return said.Rejected(message_no, refusal.reason.value, refusal.message)


def no_tool(message_no: int, index: int, tool: str) -> said.Rejected:
    """A tool that the Offer did not name."""
    return said.Rejected(
        message_no,
        Reason.PERMISSION_MISSING.value,
        f"The agent's version has no tool named {tool[:128]!r}; the event was left out, the Run goes on.",
        index,
    )
