"""The attempts that a runner holds: taken, resumed, told to stop, lost, and let go of."""

import asyncio
import logging

from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import error_pb2, run_pb2

from turnlog_client.runner.attempt import Attempt, Surroundings
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.channel import End
from turnlog_client.runner.credits import Credits
from turnlog_client.runner.lease import LeaseClock
from turnlog_client.runner.options import RunnerOptions
from turnlog_client.runner.outbox import Outbox

log = logging.getLogger("turnlog.runner")

# What a stop gets that came while the stream was cut: the server has counted its own grace since it came.
_RESUMED_STOP_GRACE = 5.0

# Where a Welcome names no bounds.
_UNACKED_MESSAGES = 64
_UNACKED_BYTES = 1 << 20


def _is_end(what: pb.ConnectRequest | None) -> bool:
    return what is not None and what.WhichOneof("message") in ("settle", "abandon")


class Holdings:
    """The attempts of one runner, and the places that are left.

    empty: set while nothing is held.
    """

    def __init__(self, options: RunnerOptions, outbox: Outbox, lease: LeaseClock, surroundings: Surroundings) -> None:
        self._options = options
        self._outbox = outbox
        self._lease = lease
        self._surroundings = surroundings
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._credits = Credits()
        self._connected = False
        self._takes_more = True
        self._careful = False
        self.empty = asyncio.Event()
        self.empty.set()

    def __len__(self) -> int:
        return len(self._held())

    def announce(self) -> list[pb.HeldAttempt]:
        """What the runner holds, for Hello."""
        return [attempt.held() for attempt in self._held()]

    def welcomed(self, welcome: pb.Welcome) -> None:
        """Goes on with what the server still knows as the runner's, and drops the rest."""
        messages, size = welcome.max_unacked_messages, welcome.max_unacked_bytes
        self._outbox.connected(messages or _UNACKED_MESSAGES, size or _UNACKED_BYTES, one_by_one=self._careful)
        states = {AttemptKey.of(state): state for state in welcome.held}
        for attempt in self._held():
            if state := states.get(attempt.key):
                self._resume(attempt, state)
            else:
                self._lose(attempt, "the server does not know it as this runner's")
        self._connected = True
        self._credits.reset()
        self._grant()

    def disconnected(self, end: End) -> None:
        """The stream ended. The attempts go on.

        A message that the server cannot stand would be sent again on every stream, and end it for all. So what is
        unacknowledged goes one by one after such an end, and what ends the next one has to be what was in flight.
        """
        self._connected = False
        if end.invalid and self._outbox.one_by_one:
            for attempt in self._held():
                if attempt.queue.in_flight:
                    attempt.condemn(str(end))
        self._careful = end.invalid
        self._outbox.disconnected()

    def take_no_more(self) -> None:
        """Declines whatever is offered from here on."""
        self._takes_more = False
        self._grant()

    def give_up_all(self, reason: str) -> None:
        """Kills what runs and gives the Runs back."""
        for attempt in self._held():
            attempt.give_up(reason)

    def lose_all(self, why: str) -> None:
        """Kills what runs and says nothing of it."""
        for attempt in self._held():
            self._lose(attempt, why)

    async def losses_gone(self) -> None:
        """Returns when nothing is left of what was lost."""
        for attempt in list(self._attempts.values()):
            if attempt.lost:
                await attempt.gone()

    def received(self, response: pb.ConnectResponse) -> None:
        """Does what a message says. One of a kind that it does not know says nothing."""
        match response.WhichOneof("message"):
            case "offer":
                self._on_offer(response.offer)
            case "accepted":
                self._on_accepted(response.accepted)
            case "ack":
                self._on_ack(response.ack)
            case "interrupt":
                self._on_stop(response.interrupt, run_pb2.RUN_STATUS_INTERRUPTED)
            case "cancel":
                self._on_stop(response.cancel, run_pb2.RUN_STATUS_CANCELED)
            case "lease_lost":
                self._on_lease_lost(response.lease_lost)
            case _:
                pass

    def gone(self, attempt: Attempt) -> None:
        """Nothing is left of an attempt: its place is free."""
        self._outbox.close(attempt.key)
        del self._attempts[attempt.key]
        if not self._attempts:
            self.empty.set()
        self._grant()

    def _on_offer(self, offer: pb.Offer) -> None:
        self._credits.used()
        key = AttemptKey.of(offer)
        if reason := self._cannot_take(key, offer):
            log.warning("Declined: %s", reason, extra=key._asdict())
            decline = pb.Decline(session_id=key.session_id, run_id=key.run_id, reason=reason)
            self._outbox.say(pb.ConnectRequest(decline=decline))
        else:
            queue = self._outbox.open(key, offer.lease_token)
            self._attempts[key] = Attempt(offer, queue, self._surroundings)
            self.empty.clear()
            accept = pb.Accept(**key._asdict(), lease_token=offer.lease_token)
            self._outbox.say(pb.ConnectRequest(accept=accept))
        self._grant()

    def _cannot_take(self, key: AttemptKey, offer: pb.Offer) -> str:
        if not self._takes_more:
            return "The runner drains."
        if offer.harness_profile not in self._options.harnesses:
            return f"The runner has no harness {offer.harness_profile}."[:1000]
        if key in self._attempts:
            return "The runner holds this attempt already."
        if len(self._attempts) >= self._options.capacity:
            return f"The runner has no free place; its capacity is {self._options.capacity}."
        return ""

    def _on_accepted(self, accepted: pb.Accepted) -> None:
        if attempt := self._attempts.get(AttemptKey.of(accepted)):
            self._lease.answered(attempt.accepted_at)
            attempt.accept(accepted.deadline_remaining.ToTimedelta().total_seconds())

    def _on_ack(self, ack: pb.Ack) -> None:
        attempt = self._attempts.get(AttemptKey.of(ack))
        if attempt is None or attempt.lost:
            return
        refused = [(rejection, attempt.queue.find(rejection.message_no)) for rejection in ack.rejections]
        acked = self._outbox.ack(attempt.key, ack.through)
        if acked.written is not None:
            self._lease.answered(acked.written)
        for rejection, what in refused:
            attempt.refused(rejection, what)
        if acked.last and not any(_is_end(what) for _, what in refused):
            attempt.over()
        elif acked.last and not attempt.end_otherwise():
            self._lose(attempt, "the server takes no end of it")

    def _on_stop(self, message: pb.Interrupt | pb.Cancel, stop_as: run_pb2.RunStatus) -> None:
        if attempt := self._attempts.get(AttemptKey.of(message)):
            attempt.stop(stop_as, message.grace.ToTimedelta().total_seconds())

    def _on_lease_lost(self, lost: pb.LeaseLost) -> None:
        if attempt := self._attempts.get(AttemptKey.of(lost)):
            self._lose(attempt, error_pb2.ErrorReason.Name(lost.reason).removeprefix("ERROR_REASON_"))

    def _held(self) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if not attempt.lost]

    def _resume(self, attempt: Attempt, state: pb.HeldState) -> None:
        if self._outbox.ack(attempt.key, state.last_message_no).last:
            attempt.over()
            return
        if attempt.condemned:
            attempt.queue.restart(state.last_message_no)
            attempt.fail_as_condemned()
        elif not attempt.queue.goes_on_after(state.last_message_no):
            attempt.queue.restart(state.last_message_no)
            attempt.give_up("The server's record of the attempt does not meet the runner's.")
        attempt.accept()
        if state.stop_as:
            attempt.stop(state.stop_as, _RESUMED_STOP_GRACE)

    def _lose(self, attempt: Attempt, why: str) -> None:
        attempt.lose(why)
        self._outbox.close(attempt.key)

    def _grant(self) -> None:
        if not self._connected:
            return
        free = self._options.capacity - len(self._attempts) if self._takes_more else 0
        credits = self._credits.grant(free)
        if credits is not None:
            self._outbox.say(pb.ConnectRequest(ready=pb.Ready(credits=credits)))
