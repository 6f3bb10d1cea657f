"""What one runner's stream asked of the lane: sent as it is read, answered in that order, acks folded into one.

Nothing here waits in the way of what is read next, so heartbeats cannot starve behind appends.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from turnlog_server.domain import fleet as said
from turnlog_server.domain import limits
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.holding import GONE, Key
from turnlog_server.service.lane import Lane
from turnlog_server.service.submission import Result, Submission

ANSWER_SECONDS = 30.0
# A runner that was told that a lease is lost counts that attempt's messages no more, and here they still wait.
UNACKED_SLACK = 2
# The message was at fault, not the stream: the attempt goes on.
REJECTS = frozenset({Reason.INVALID_FIELD, Reason.ILLEGAL_TRANSITION})


@dataclass(slots=True)
class Sent:
    """A command on its way. message_no: 0 for an Accept, which has none.

    tools: of the Offer. rejected: what of the message was left out before it was sent.
    """

    key: Key
    attempt_no: int
    message_no: int
    size: int
    future: asyncio.Future[Result]
    tools: frozenset[str] = frozenset()
    rejected: list[said.Rejected] = field(default_factory=list)


class AckFrames(Protocol):
    """Acks as bytes, made by the wire."""

    def ack(
        self, session_id: str, run_id: str, attempt_no: int, through: int, rejected: list[said.Rejected]
    ) -> bytes: ...


class Owner(Protocol):
    """The stream whose commands these are."""

    failure: asyncio.Future[None]

    def send(self, frame: bytes) -> None: ...
    def fail(self, refusal: Refusal) -> None: ...

    def accepted(self, sent: Sent, result: Result) -> None:
        """An Accept is in the log."""
        ...

    def applied(self, sent: Sent, *, refused: bool) -> None:
        """A message is counted; refused: and that is all."""
        ...

    def rejected(self, sent: Sent) -> None:
        """A message was not even counted; the attempt goes on."""
        ...

    def gone(self, sent: Sent, reason: said.LostReason) -> None:
        """The attempt is not the runner's."""
        ...


class Pipeline:
    """The commands of one stream."""

    def __init__(self, lane: Lane, frames: AckFrames, owner: Owner) -> None:
        self._lane = lane
        self._frames = frames
        self._owner = owner
        self._messages = self._bytes = 0
        self._sent: asyncio.Queue[Sent] = asyncio.Queue()
        self._acks: dict[Key, tuple[int, int, list[said.Rejected]]] = {}
        self._completer = asyncio.create_task(self._complete(), name="runner acks")

    def close(self) -> None:
        """The stream is gone. What was sent into the lane is carried out all the same."""
        self._completer.cancel()

    def send(self, submission: Submission, sent: Sent) -> bool:
        """Sends a command into the lane; False for one too many, which ends the stream."""
        if not self._within_bounds(sent.size):
            return False
        # A stream that ends leaves answers behind that nobody reads: the event loop is not to complain of them.
        sent.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        try:
            self._lane.enqueue(submission, forced=True)
        except Refusal as refusal:
            sent.future.set_exception(refusal)
        self._sent.put_nowait(sent)
        return True

    def _within_bounds(self, size: int) -> bool:
        """Nothing else bounds what a runner puts into the lane: its messages may not be refused for a full queue."""
        if self._messages and (
            self._messages >= UNACKED_SLACK * limits.RUNNER_UNACKED_MESSAGES
            or self._bytes + size > UNACKED_SLACK * limits.RUNNER_UNACKED_BYTES
        ):
            self._owner.fail(unacked(self._messages + 1))
            return False
        self._messages, self._bytes = self._messages + 1, self._bytes + size
        return True

    async def _complete(self) -> None:
        """Answers commands in the order in which they were sent."""
        while True:
            sent = await self._sent.get()
            while True:
                await self._answer(sent)
                if self._owner.failure.done():
                    # What came after a message that failed was refused as a gap. The runner sends all of it again.
                    return
                self._messages, self._bytes = self._messages - 1, self._bytes - sent.size
                if self._sent.empty() or len(self._acks) > 64:
                    break
                sent = self._sent.get_nowait()
                if not sent.future.done():
                    self._flush()
            self._flush()

    async def _answer(self, sent: Sent) -> None:
        try:
            # Most answers of a batch are there at once.
            if not sent.future.done():
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(sent.future)
            result = sent.future.result()
        except Refusal as refusal:
            self._refused(sent, refusal)
        except TimeoutError:
            self._owner.fail(Refusal(Reason.STORE_UNAVAILABLE, "The database does not answer.", retry_after=1.0))
        else:
            self._applied(sent, result)

    def _flush(self) -> None:
        for (session_id, run_id), (attempt_no, through, rejected) in self._acks.items():
            self._owner.send(self._frames.ack(session_id, run_id, attempt_no, through, rejected))
        self._acks.clear()

    def _applied(self, sent: Sent, result: Result) -> None:
        if not sent.message_no:
            self._owner.accepted(sent, result)
            return
        rejected, refused = sent.rejected, result.answer.refused
        if refused is not None:
            rejected.append(rejection(sent.message_no, refused))
        self._acknowledge(sent, sent.message_no, rejected)
        self._owner.applied(sent, refused=refused is not None)

    def _refused(self, sent: Sent, refusal: Refusal) -> None:
        # An Accept has no number that could be rejected: a runner that is not told would hold what it did not get.
        accepting = not sent.message_no and refusal.reason in {*REJECTS, Reason.INTERNAL}
        if refusal.reason in GONE or accepting:
            self._owner.gone(sent, GONE.get(refusal.reason, said.LostReason.LEASE_LOST))
        elif refusal.reason in REJECTS:
            self._acknowledge(sent, 0, [rejection(sent.message_no, refusal)])
            self._owner.rejected(sent)
        else:
            self._owner.fail(refusal)

    def _acknowledge(self, sent: Sent, through: int, rejected: list[said.Rejected]) -> None:
        _, before, earlier = self._acks.get(sent.key, (0, 0, []))
        self._acks[sent.key] = (sent.attempt_no, max(before, through), earlier + rejected)


def unacked(messages: int) -> Refusal:
    """A runner that does not wait for answers."""
    return too_much(
        "runner_unacked_messages", limits.RUNNER_UNACKED_MESSAGES, messages, "wait for an Ack, as Welcome says"
    )


def too_much(limit: str, maximum: int, actual: int, instead: str) -> Refusal:
    """A runner that does not keep to a bound of its stream."""
    return Refusal(
        Reason.LIMIT_EXCEEDED,
        f"Too much is under way on this stream: {instead}.",
        {"limit": limit, "maximum": str(maximum), "actual": str(actual)},
    )


def rejection(message_no: int, refusal: Refusal) -> said.Rejected:
    """A message that was refused as a whole."""
    return said.Rejected(message_no, refusal.reason.value, refusal.message)
