"""One runner's stream: what it may be offered, what it was offered, what it holds; and what is said to it of these.

Nothing here waits: what the runner says goes into the lane as it is read (see `pipeline`), and what there is to say to
it goes into an outbox.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from turnlog_server.domain import fleet as said
from turnlog_server.domain import limits
from turnlog_server.domain.commands import Abandon, AcceptRun, AppendReports, Command, HarnessReady, Lease, Settle
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.domain.session import Attempt, RunStatus, SessionState
from turnlog_server.service.context import CallContext
from turnlog_server.service.holding import Held, Holder, Holders, Key, lost_reason, token_hash
from turnlog_server.service.lane import Lane
from turnlog_server.service.pipeline import UNACKED_SLACK, AckFrames, Pipeline, Sent, rejection, too_much, unacked
from turnlog_server.service.submission import Result, Submission

# More than a runner is ever told at once: one that says much and reads nothing would fill our memory.
UNREAD_MESSAGES = 10_000


class RunnerFrames(AckFrames, Protocol):
    """Messages to a runner as bytes, made by the wire."""

    def welcome(self, settings: said.Settings, held: list[said.HeldState]) -> bytes: ...
    def offer(self, offer: said.Offer) -> bytes: ...
    def accepted(self, session_id: str, run_id: str, attempt: Attempt, now: int) -> bytes: ...
    def interrupt(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes: ...
    def cancel(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes: ...
    def lease_lost(self, session_id: str, run_id: str, attempt_no: int, reason: said.LostReason) -> bytes: ...
    def drain(self, reason: said.DrainReason) -> bytes: ...


@dataclass(slots=True)
class Offered:
    """An Offer that stands."""

    offer: said.Offer
    expiry: asyncio.TimerHandle


class Link(Holder):
    """A runner that is connected here.

    heard: since the last renewal of its lease. heard_at: when last, in the time of the event loop.
    forsaken: attempts that it claimed in its Hello and was not granted, and until when somebody looks for them.
    strays: messages of attempts that it does not hold, and that wait for an answer, one for each attempt.
    """

    def __init__(
        self,
        ctx: CallContext,
        hello: said.Hello,
        profiles: dict[str, str],
        epoch: int,
        holders: Holders["Link"],
        give_up: Callable[[Held], None],
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
        self.accepting: set[asyncio.Future[Result]] = set()
        self.forsaken: dict[tuple[str, str, int], float] = {}
        self.strays: dict[tuple[str, str, int], said.LeaseProof] = {}
        self.credits = 0
        self.draining = False
        self.left = False
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listen()
        self._holders = holders
        self._give_up = give_up
        self._frames = frames
        self._now = now
        self._pipeline = Pipeline(lane, frames, self)

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
        if (unread := self.outbox.qsize()) > UNREAD_MESSAGES:
            self.fail(too_much("runner_unread_messages", UNREAD_MESSAGES, unread, "read what the server says"))

    def fail(self, refusal: Refusal) -> None:
        """Ends the stream; the runner reconnects and sends again what was not acknowledged."""
        if not self.failure.done():
            self.failure.set_exception(refusal)

    async def close(self) -> None:
        """The stream is gone. What was sent into the lane is carried out all the same."""
        self._pipeline.close()
        if self.failure.done():
            self.failure.exception()
        else:
            self.failure.cancel()

    # -- offers

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

    # -- what the runner says of attempts

    def accept(self, held: said.HeldAttempt, tools: frozenset[str]) -> None:
        """The runner takes an Offer; a second time, or late, its lease is worth nothing."""
        key = held.session_id, held.run_id
        offered = self.offers.get(key)
        if offered is None or (offered.offer.token, offered.offer.attempt_no) != (held.token, held.attempt_no):
            self._drop(*key, held.attempt_no, said.LostReason.LEASE_LOST)
            return
        self.take_offer(*key)
        self.credits = max(0, self.credits - 1)
        self.forsaken.pop((*key, held.attempt_no), None)
        lease = Lease(held.run_id, held.attempt_no, token_hash(held.token))
        command = AcceptRun(lease, self.hello.runner_id, self.hello.version, self.epoch)
        future = self._submit(held.session_id, lease, command, 256, tools)
        if future is not None:
            self.accepting.add(future)
            future.add_done_callback(self.accepting.discard)

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
        held.reported = self._submit(proof.session_id, lease, command, size, held.tools, rejected)
        return True

    def stray(self, proof: said.LeaseProof) -> bool:
        """Notes a message of an attempt that is not held; True for the first of those that wait for an answer."""
        first = not self.strays
        self.strays.setdefault((proof.session_id, proof.run_id, proof.attempt_no), proof)
        if len(self.strays) > UNACKED_SLACK * limits.RUNNER_UNACKED_MESSAGES:
            self.fail(unacked(len(self.strays)))
        return first

    def after_reports(self, session_id: str, run_id: str, attempt_no: int, then: Callable[[], None]) -> None:
        """Does something once all that the attempt reported before has come to its end; nothing where none is held."""
        held = self.held.get((session_id, run_id))
        if held is None or held.attempt_no != attempt_no:
            return
        if held.reported is None:
            then()
        else:
            held.reported.add_done_callback(lambda _: then())

    def _submit(
        self,
        session_id: str,
        lease: Lease,
        command: Command,
        size: int,
        tools: frozenset[str],
        rejected: list[said.Rejected] | None = None,
    ) -> asyncio.Future[Result] | None:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        submission = Submission(session_id, command, size, future, self.ctx.caller, self.ctx.judge)
        key = session_id, lease.run_id
        sent = Sent(key, lease.attempt_no, lease.message_no, size, future, tools, rejected or [])
        return future if self._pipeline.send(submission, sent) else None

    # -- what came of it: the pipeline's owner

    def accepted(self, sent: Sent, result: Result) -> None:
        """An Accept is in the log."""
        state, (session_id, run_id) = result.state, sent.key
        run = state.active if state is not None else None
        live = run.live if run is not None and run.run_id == run_id else None
        if state is None or live is None or live.attempt_no != sent.attempt_no:
            self.lost(session_id, run_id, sent.attempt_no, said.LostReason.LEASE_LOST)
            return
        held = Held(session_id, run_id, sent.attempt_no, sent.tools, head=state.head_seq)
        self.hold(held)
        self.send(self._frames.accepted(session_id, run_id, live, self._now()))
        self.look(held, state)

    def applied(self, sent: Sent, *, refused: bool) -> None:
        """A message is counted."""
        held = self.held.get(sent.key)
        if held is not None and held.ending and held.attempt_no == sent.attempt_no:
            if refused:
                held.ending = False
            else:
                self._release(held)

    def rejected(self, sent: Sent) -> None:
        """A message was not counted."""
        if (held := self.held.get(sent.key)) is not None:
            held.ending = False

    def gone(self, sent: Sent, reason: said.LostReason) -> None:
        """The attempt is not the runner's."""
        self._drop(*sent.key, sent.attempt_no, reason)

    # -- what is held

    def hold(self, held: Held) -> None:
        """The attempt is this runner's."""
        self.held[held.key] = held
        self._holders.add(held.session_id, self)

    def look(self, held: Held, state: SessionState | None) -> None:
        """The Session of a held attempt changed, by whomever: is it to be stopped, is it still the runner's?"""
        run = state.active if state is not None else None
        live = run.live if run is not None and run.run_id == held.run_id else None
        if run is None or live is None or live.attempt_no != held.attempt_no:
            if not held.ending:
                self.lost(*held.key, held.attempt_no, lost_reason(state, held.run_id, held.attempt_no))
            return
        if run.stop_as is not None and held.stop_told is not run.stop_as:
            held.stop_told = run.stop_as
            grace = max(0.0, (run.grace_deadline - self._now()) / 1_000_000)
            tell = self._frames.cancel if run.stop_as is RunStatus.CANCELED else self._frames.interrupt
            self.send(tell(*held.key, held.attempt_no, grace))

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

    def _release(self, held: Held) -> None:
        del self.held[held.key]
        if not any(other.session_id == held.session_id for other in self.held.values()):
            self._holders.discard(held.session_id, self)


def no_tool(message_no: int, index: int, tool: str) -> said.Rejected:
    """A tool that the Offer did not name."""
    return said.Rejected(
        message_no,
        Reason.PERMISSION_MISSING.value,
        f"The agent's version has no tool named {tool[:128]!r}; the event was left out, the Run goes on.",
        index,
    )
