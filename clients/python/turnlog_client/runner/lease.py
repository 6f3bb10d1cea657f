"""When a runner has to stop its work because the server may have given it to another."""

from collections import deque

# Writes closer together than this count as the earlier one: safe, and the memory stays bounded.
_RESOLUTION = 0.25


class LeaseClock:
    """How long the runner's lease surely goes on, by the runner's own monotonic clock.

    The server renews the lease with every message that it receives, so the lease goes on for its time to live after
    the last write that arrived. That a write succeeded says only that the kernel took it. What proves its arrival:

    - an answer (Welcome, Accepted, Ack) proves the message that it answers;
    - a connection that is still there `arrival` later proves all that was written: TCP gives up a peer that
      acknowledges nothing for so long.

    Heartbeats are not answered, so a quiet Run lives by the second. It proves arrival at the other machine, or at a
    proxy on the way, not in the server's process: one that hangs while its kernel acknowledges is noticed by HTTP/2
    pings, which end the stream somewhat later. A proof counts from when the write *began*: the server, which counts
    from when it received, does not end a lease earlier. Whatever this clock gets wrong costs another attempt or some
    work done twice, never a wrong log: the server orders every message against the loss of its attempt. What the clock
    bounds is how long two attempts can touch the world outside at once.

    All times are in seconds of one monotonic clock, given by the caller.
    """

    def __init__(self, arrival: float) -> None:
        self._arrival = arrival
        self._ttl: float | None = None
        self._proved = float("-inf")
        self._writes: deque[float] = deque()

    def welcomed(self, ttl: float, hello_written: float) -> None:
        """The server took the runner in: a lease of `ttl` seconds goes on."""
        self._ttl = ttl
        self._writes.clear()
        self.answered(hello_written)

    def wrote(self, began: float) -> None:
        """A write that began at `began` succeeded."""
        if not self._writes or began - self._writes[-1] >= _RESOLUTION:
            self._writes.append(began)

    def answered(self, written: float) -> None:
        """The server answered what was written then."""
        self._proved = max(self._proved, written)

    def alive(self, now: float) -> None:
        """The connection is still there."""
        while self._writes and self._writes[0] <= now - self._arrival:
            self.answered(self._writes.popleft())

    def ended(self, now: float) -> None:
        """The connection ended. What is not proved by now stays unproved."""
        self.alive(now)
        self._writes.clear()

    def given_up(self) -> None:
        """All work was stopped: there is no lease until the server welcomes the runner again."""
        self._ttl = None
        self._writes.clear()

    @property
    def expires_at(self) -> float:
        """When the lease may be over; infinite while there is none."""
        return float("inf") if self._ttl is None else self._proved + self._ttl

    def expired(self, now: float) -> bool:
        """Whether the lease may be over."""
        return now >= self.expires_at
