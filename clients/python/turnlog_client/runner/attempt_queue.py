"""What one attempt has to say to the server: numbered, batched, kept until acknowledged. Pure: no I/O, no clock."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from turnlog.runner.v1 import runner_service_pb2 as pb

MAX_APPEND_EVENTS = 64
MAX_APPEND_BYTES = 256 << 10
MAX_PREVIEW_BYTES = 64 << 10

# What an attempt may have waiting before its harness is slowed down.
_MAX_WAITING_EVENTS = 256
_MAX_WAITING_BYTES = 1 << 20

# Tag and length of an event in an Append, and the lease and the rest around the events, at most.
_EVENT_OVERHEAD = 8
_APPEND_OVERHEAD = 512


class _NamesAttempt(Protocol):
    session_id: str
    run_id: str
    attempt_no: int


class AttemptKey(NamedTuple):
    """An attempt. The Session is part of it: forks share Run ids."""

    session_id: str
    run_id: str
    attempt_no: int

    @classmethod
    def of(cls, message: _NamesAttempt) -> "AttemptKey":
        """The attempt that a message names."""
        return cls(message.session_id, message.run_id, message.attempt_no)


@dataclass(slots=True)
class Numbered:
    """A message that has its number and is not acknowledged yet.

    in_flight: it was sent on this stream. written: when.
    """

    number: int
    request: pb.ConnectRequest = field(repr=False)
    size: int
    in_flight: bool = False
    written: float = 0.0


@dataclass(slots=True)
class Budget:
    """What may be unacknowledged on one stream at once, over all attempts."""

    max_messages: int = 0
    max_bytes: int = 0
    messages: int = 0
    bytes: int = 0

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes are within the bounds."""
        return self.messages < self.max_messages and self.bytes + size <= self.max_bytes

    def allows(self, size: int) -> bool:
        """Whether a message of `size` bytes may go. One larger than all of it goes alone, or it would never go."""
        return self.fits(size) or (self.messages == 0 and self.max_messages > 0)

    def spend(self, size: int) -> None:
        """A message was sent."""
        self.messages += 1
        self.bytes += size

    def regain(self, size: int) -> None:
        """A message was acknowledged."""
        self.messages -= 1
        self.bytes -= size


@dataclass(slots=True)
class Acked:
    """What an acknowledgement told.

    written: when the newest of the acknowledged messages was written on this stream; None if none was.
    last: the attempt's last message is acknowledged.
    """

    written: float | None = None
    last: bool = False


@dataclass(slots=True)
class _Preview:
    text: str
    size: int


@dataclass(slots=True)
class _Event:
    event: pb.RunnerEvent
    size: int


@dataclass(slots=True)
class _Whole:
    request: pb.ConnectRequest
    size: int
    last: bool = False


class AttemptQueue:
    """What one attempt has to say.

    Events get their number only when they are sent, so that all that waits by then goes in one Append; from then on
    the message stays as it is until the server has acknowledged it, over any number of streams.

    changed: set when there is something new to take.
    room: set while the attempt may say more; a full queue slows its harness down.
    """

    def __init__(self, key: AttemptKey, token: bytes, changed: asyncio.Event) -> None:
        self.key = key
        self.room = asyncio.Event()
        self.room.set()
        self._token = token
        self._changed = changed
        self._waiting: deque[_Preview | _Event | _Whole] = deque()
        self._waiting_bytes = 0
        self._unacked: deque[Numbered] = deque()
        self._next_number = 1
        self._last_number = 0
        self._ended = False

    @property
    def ended(self) -> bool:
        """The attempt has said its last; what is said after it is dropped."""
        return self._ended

    @property
    def in_flight(self) -> bool:
        """Something was sent on this stream and is not acknowledged."""
        return any(message.in_flight for message in self._unacked)

    def append(self, event: pb.RunnerEvent) -> None:
        """An event for the log."""
        self._wait(_Event(event, event.ByteSize() + _EVENT_OVERHEAD))

    def preview(self, text: str) -> None:
        """Text in the making. What does not fit is dropped: the message that follows has it all."""
        size = len(text.encode())
        before = self._waiting[-1] if self._waiting else None
        if not isinstance(before, _Preview):
            self._wait(_Preview(text, size))
        elif before.size + size <= MAX_PREVIEW_BYTES:
            before.text += text
            before.size += size

    def ready(self) -> None:
        """The harness has started."""
        self._wait(_Whole(pb.ConnectRequest(harness_ready=pb.HarnessReady()), _APPEND_OVERHEAD))

    def settle(self, settle: pb.Settle) -> None:
        """The end of the Run."""
        self._end(pb.ConnectRequest(settle=settle))

    def abandon(self, reason: str) -> None:
        """The Run goes back, and with it what is waiting to be said of it."""
        if self._ended:
            return
        self._waiting.clear()
        self._waiting_bytes = 0
        self._judge_room()
        self._end(pb.ConnectRequest(abandon=pb.Abandon(reason=reason)))

    def reopen(self) -> None:
        """The server refused the last message: another one may be said."""
        self._ended = False
        self._last_number = 0

    def take(self, budget: Budget, now: float) -> pb.ConnectRequest | None:
        """The next message to write, or None if there is none or the budget does not allow it yet."""
        for message in self._unacked:
            if not message.in_flight:
                return self._send(message, budget, now)
        if not self._waiting:
            return None
        first = self._waiting[0]
        if isinstance(first, _Preview):
            self._drop_first()
            preview = pb.PreviewText(**self.key._asdict(), text=first.text)
            return pb.ConnectRequest(preview=preview)
        if not budget.allows(first.size + _APPEND_OVERHEAD):
            return None
        self._unacked.append(self._number(budget))
        return self._send(self._unacked[-1], budget, now)

    def ack(self, through: int, budget: Budget) -> Acked:
        """The server has handled every message up to `through`."""
        acked = Acked(last=0 < self._last_number <= through)
        while self._unacked and self._unacked[0].number <= through:
            message = self._unacked.popleft()
            if message.in_flight:
                budget.regain(message.size)
                acked.written = max(message.written, acked.written or message.written)
        return acked

    def disconnected(self) -> None:
        """The stream ended. Numbered messages are to be sent again; previews of it are of no use to anyone."""
        for message in self._unacked:
            message.in_flight = False
        self._waiting = deque(item for item in self._waiting if not isinstance(item, _Preview))
        self._waiting_bytes = sum(item.size for item in self._waiting)
        self._judge_room()

    def goes_on_after(self, last_applied: int) -> bool:
        """Whether the next message to send is the one after `last_applied`, once that is acknowledged."""
        next_number = self._unacked[0].number if self._unacked else self._next_number
        return next_number == last_applied + 1

    def restart(self, last_applied: int) -> None:
        """Forgets all that was said and goes on with number `last_applied` + 1."""
        self._unacked.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._next_number = last_applied + 1
        self.reopen()

    def find(self, number: int) -> pb.ConnectRequest | None:
        """The message with that number, if it is not acknowledged yet."""
        return next((each.request for each in self._unacked if each.number == number), None)

    def discard(self, budget: Budget) -> None:
        """Nothing more is to be said."""
        self._ended = True
        for message in self._unacked:
            if message.in_flight:
                budget.regain(message.size)
        self._unacked.clear()
        self._waiting.clear()
        self.room.set()

    def _end(self, request: pb.ConnectRequest) -> None:
        self._wait(_Whole(request, request.ByteSize(), last=True))
        self._ended = True

    def _wait(self, item: _Preview | _Event | _Whole) -> None:
        if self._ended:
            return
        self._waiting.append(item)
        self._waiting_bytes += item.size
        self._judge_room()
        self._changed.set()

    def _drop_first(self) -> None:
        self._waiting_bytes -= self._waiting.popleft().size
        self._judge_room()

    def _judge_room(self) -> None:
        if len(self._waiting) < _MAX_WAITING_EVENTS and self._waiting_bytes < _MAX_WAITING_BYTES:
            self.room.set()
        else:
            self.room.clear()

    def _number(self, budget: Budget) -> Numbered:
        """Makes the next message of what is waiting."""
        number = self._next_number
        first = self._waiting[0]
        if isinstance(first, _Whole):
            request = first.request
            if first.last:
                self._last_number = number
            self._drop_first()
        else:
            request = pb.ConnectRequest(append=pb.Append(events=self._take_events(budget)))
        self._next_number += 1
        lease = pb.Lease(**self.key._asdict(), lease_token=self._token, message_no=number)
        getattr(request, request.WhichOneof("message") or "").lease.CopyFrom(lease)
        return Numbered(number, request, request.ByteSize())

    def _take_events(self, budget: Budget) -> list[pb.RunnerEvent]:
        events: list[pb.RunnerEvent] = []
        size = 0
        while self._waiting and len(events) < MAX_APPEND_EVENTS:
            item = self._waiting[0]
            if not isinstance(item, _Event):
                break
            size += item.size
            if events and (size > MAX_APPEND_BYTES or not budget.fits(size + _APPEND_OVERHEAD)):
                break
            events.append(item.event)
            self._drop_first()
        return events

    def _send(self, message: Numbered, budget: Budget, now: float) -> pb.ConnectRequest | None:
        if not budget.allows(message.size):
            return None
        budget.spend(message.size)
        message.in_flight = True
        message.written = now
        return message.request
