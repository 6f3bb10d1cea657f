"""What waits for the lane: commands in order, each answered once, whoever still waits for the answer.

A lone caller never waits. When the batch before held more than one command, the next one lingers for at most two
milliseconds until as many are there as were in that one and waited behind it: a commit is so quick that batches would
otherwise stay small, and that lowers the latency too.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from turnlog_server.domain import limits
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.service.submission import RequestKey, Result, Submission

LINGER_SECONDS = 0.002
# Fewer than are usually in flight under load: while one batch is at the database, the next one arrives.
LINGER_COMMANDS = 32


class LaneQueue:
    """Commands on their way into a batch, those in one, and the callers behind both."""

    def __init__(self) -> None:
        self._queue: deque[Submission] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._enough = asyncio.Event()
        self._wanted = LINGER_COMMANDS
        self._requests: dict[RequestKey, Submission] = {}
        self._last_batch = 1
        self.closing = False

    def __len__(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        """Commands that come from now on are refused as SERVER_DRAINING."""
        self.closing = True
        self._wake.set()
        self._enough.set()

    def twin(self, submission: Submission) -> Submission | None:
        """The same request, while it is on its way. Raises REQUEST_ID_REUSED for another one under its id."""
        twin = self._requests.get(submission.key) if submission.key is not None else None
        if twin is not None and twin.fingerprint != submission.fingerprint:
            raise reused(submission.key)
        return twin

    def put(self, submission: Submission, *, forced: bool = False) -> None:
        """At the end. forced: also where there is no room."""
        if self.closing:
            raise Refusal(
                Reason.SERVER_DRAINING, "This replica is going down: reconnect and try again.", retry_after=0.2
            )
        full = len(self._queue) >= limits.LANE_REQUESTS or self._bytes + submission.size > limits.LANE_BYTES
        if full and not forced:
            raise Refusal(
                Reason.QUOTA_EXCEEDED,
                "Too many writes are waiting in this replica: try again shortly.",
                {"quota": "lane_requests", "maximum": str(limits.LANE_REQUESTS)},
                retry_after=0.1,
            )
        if submission.key is not None:
            self._requests[submission.key] = submission
        self._queue.append(submission)
        self._bytes += submission.size
        self._wake.set()
        if len(self._queue) >= self._wanted:
            self._enough.set()

    def others(self, submissions: Iterable[Submission]) -> list[Submission]:
        """Those that are not here."""
        here = set(self._queue)
        return [submission for submission in submissions if submission not in here]

    def put_back(self, submissions: Sequence[Submission]) -> None:
        """To the front, in order, to be looked at again."""
        for submission in reversed(submissions):
            submission.look = True
            self._queue.appendleft(submission)
            self._bytes += submission.size

    async def wait(self, submission: Submission, deadline: float) -> Result:
        """The answer, for one caller. It leaves on its own, while others may go on waiting for the same command.

        deadline: in the time of the event loop. A command that is in a batch by then commits with it all the same.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Result] = loop.create_future()
        submission.waiters.append(waiter)
        timer = loop.call_at(deadline, _give_up, waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            submission.waiters.remove(waiter)
            self._left(submission)

    async def batch(self, most_sessions: int) -> list[Submission]:
        """The next one, which may turn out empty; waits until there is something. Closed and empty: nothing more."""
        several = self._last_batch > 1
        self._wanted = min(LINGER_COMMANDS, self._last_batch + len(self._queue)) if several else 1
        while not self._queue and not self.closing:
            self._wake.clear()
            await self._wake.wait()
        if len(self._queue) < self._wanted and not self.closing:
            self._enough.clear()
            timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._enough.set)
            await self._enough.wait()
            timer.cancel()
        batch = self._take(most_sessions)
        self._last_batch = len(batch)
        return batch

    def answer(self, submission: Submission, result: Result) -> None:
        """It was carried out."""
        self._forget_request(submission)
        for future in (submission.future, *submission.waiters):
            if not future.done():
                future.set_result(result)

    def refuse(self, submission: Submission, exc: Exception) -> None:
        """It was not, or nobody knows."""
        self._forget_request(submission)
        for future in (submission.future, *submission.waiters):
            if not future.done():
                future.set_exception(exc)
        if not submission.future.cancelled():
            submission.future.exception()  # seen: of those who waited the last may have left, and nobody else asks

    def _take(self, most_sessions: int) -> list[Submission]:
        """Within the bounds of a batch; each Session's commands stay in order."""
        batch: list[Submission] = []
        alone: dict[str, bool] = {}
        size = 0
        while self._queue and len(batch) < limits.BATCH_COMMANDS:
            submission = self._queue[0]
            fits = size + submission.size <= limits.BATCH_BYTES or not batch
            if submission.session_id in alone:
                fits = fits and not submission.alone and not alone[submission.session_id]
            elif len(alone) >= most_sessions:
                fits = False
            if not fits:
                break
            self._queue.popleft()
            self._bytes -= submission.size
            if submission.future.done():
                continue
            submission.taken = True
            batch.append(submission)
            alone[submission.session_id] = submission.alone
            size += submission.size
        return batch

    def _left(self, submission: Submission) -> None:
        """A caller left. What is not in a batch yet and has no other caller is not applied."""
        if submission.future.done():
            if not submission.future.cancelled():
                submission.future.exception()  # seen, so that the event loop does not complain
        elif not submission.taken and not submission.waiters:
            submission.future.cancel()
            self._forget_request(submission)

    def _forget_request(self, submission: Submission) -> None:
        if submission.key is not None and self._requests.get(submission.key) is submission:
            del self._requests[submission.key]


def _give_up(waiter: asyncio.Future[Result]) -> None:
    if not waiter.done():
        waiter.set_exception(
            Refusal(
                Reason.DEADLINE_EXCEEDED,
                "The deadline passed before the answer came. Retry with the same request_id, or ask GetRequest.",
            )
        )


def reused(key: RequestKey | None) -> Refusal:
    """The same id with another request."""
    request_id = key[3] if key else ""
    return Refusal(
        Reason.REQUEST_ID_REUSED,
        "This request_id was used before with another request: choose a new one.",
        {"request_id": request_id},
    )
