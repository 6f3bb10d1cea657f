"""All that a runner has to say to the server, in the order in which it may be said. Pure: no I/O, no clock."""

import asyncio
from collections import deque

from turnlog.runner.v1 import runner_service_pb2 as pb

from turnlog_client.runner.attempt_queue import Acked, AttemptKey, AttemptQueue, Budget


class Outbox:
    """Control messages first, then what the attempts have to say, in turn.

    changed: set when there may be something new to take.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._control: deque[pb.ConnectRequest] = deque()
        self._queues: dict[AttemptKey, AttemptQueue] = {}
        self._turns: deque[AttemptKey] = deque()
        self._budget = Budget()
        self._max_messages = 0

    @property
    def one_by_one(self) -> bool:
        """No message goes before the one before it is acknowledged."""
        return self._budget.max_messages < self._max_messages

    def connected(self, max_messages: int, max_bytes: int, *, one_by_one: bool = False) -> None:
        """A new stream was welcomed.

        one_by_one: until there is nothing more to say, at most one message may be unacknowledged.
        """
        self._max_messages = max_messages
        self._budget = Budget(1 if one_by_one else max_messages, max_bytes)
        self.changed.set()

    def disconnected(self) -> None:
        """The stream ended. Control messages belonged to it."""
        self._control.clear()
        self._budget = Budget()
        for queue in self._queues.values():
            queue.disconnected()

    def open(self, key: AttemptKey, token: bytes) -> AttemptQueue:
        """A place for what an attempt has to say."""
        queue = self._queues[key] = AttemptQueue(key, token, self.changed)
        self._turns.append(key)
        return queue

    def close(self, key: AttemptKey) -> None:
        """Nothing more is to be said of the attempt."""
        if queue := self._queues.pop(key, None):
            queue.discard(self._budget)
            self._turns.remove(key)
            self.changed.set()

    def say(self, request: pb.ConnectRequest) -> None:
        """A message that has no number."""
        self._control.append(request)
        self.changed.set()

    def ack(self, key: AttemptKey, through: int) -> Acked:
        """The server has handled an attempt's messages up to `through`."""
        queue = self._queues.get(key)
        if queue is None:
            return Acked()
        self.changed.set()
        return queue.ack(through, self._budget)

    def take(self, now: float) -> pb.ConnectRequest | None:
        """The next message to write; None if nothing may be written now."""
        if self._control:
            return self._control.popleft()
        for _ in range(len(self._turns)):
            key = self._turns[0]
            self._turns.rotate(-1)
            if request := self._queues[key].take(self._budget, now):
                return request
        if self._budget.messages == 0:
            self._budget.max_messages = self._max_messages
        return None
