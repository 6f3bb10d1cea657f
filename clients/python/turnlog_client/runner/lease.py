"""When a runner has to stop its work because the server may have given it to another."""

from collections import deque

# Writes closer together than this count as the earlier one: safe, and the memory stays bounded.
_RESOLUTION = 0.25


class LeaseClock:
    """How long the runner's lease surely goes on, by the runner's own monotonic clock.

    The server renews the lease with every message that it receives, so the lease goes on for its time to live after the
    last write that reached the server. A write that succeeded only reached the kernel. What proves that it arrived:

    - an answer (Welcome, Accepted, Ack) proves the message that it answers;
    - a message from the server proves what was written `ack_timeout` before it: TCP gives a connection up when its peer
      acknowledges nothing for so long;
    - a stream that is still alive proves what was written `detection` before: HTTP/2 pings would have ended it.

    Heartbeats are not answered, so a quiet Run lives by the third. A proof always counts from when the write *began*:
    the server, which counts from when it received, never ends a lease earlier. Losing the work wrongly costs another
    attempt and keeping it wrongly costs nothing durable, since the server orders every message against the loss of its
    attempt. What this clock bounds is how long two attempts can touch the world outside at once.

    All times are in seconds of one monotonic clock, given by the caller.
    """

    def __init__(self, *, detection: float, ack_timeout: float) -> None:
        self._detection = detection
        self._ack_timeout = ack_timeout
        self._ttl: float | None = None
        self._proved = float("-inf")
        self._writes: deque[float] = deque()

    @property
    def ttl(self) -> float | None:
        """The lease's time to live; None while there is no lease."""
        return self._ttl

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

    def heard(self, now: float) -> None:
        """A message from the server came."""
        self._prove_until(now - self._ack_timeout)

    def alive(self, now: float) -> None:
        """The stream has not ended."""
        self._prove_until(now - self._detection)

    def ended(self, now: float) -> None:
        """The stream ended. What is not proved by now stays unproved."""
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

    def _prove_until(self, limit: float) -> None:
        while self._writes and self._writes[0] <= limit:
            self.answered(self._writes.popleft())
