"""Connects again, for ever, after random waits that grow."""

import logging
import random
from collections.abc import Awaitable, Callable

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_random_exponential
from tenacity.wait import wait_base

from turnlog_client.runner.channel import Cause, End
from turnlog_client.runner.options import Timing

log = logging.getLogger("turnlog.runner")


async def keep_connected(
    connect: Callable[[], Awaitable[End]],
    *,
    is_final: Callable[[End], bool],
    is_holding: Callable[[], bool],
    timing: Timing,
) -> End:
    """Calls `connect` until it gives an end that is final, and returns that.

    is_holding: Runs wait for the connection.
    Every other end is followed by a wait and another try: OK, CANCELLED, a reset or a proxy's age limit say nothing
    about whether there is work to do.
    """
    retrying = AsyncRetrying(
        retry=retry_if_result(lambda end: not is_final(end)), wait=_Backoff(timing, is_holding), before_sleep=_tell
    )
    return await retrying(connect)


class _Backoff(wait_base):
    """Full jitter: a random wait below a bound that doubles. A thousand runners cut off at once come back spread."""

    def __init__(self, timing: Timing, is_holding: Callable[[], bool]) -> None:
        self._steady = timing.steady
        self._is_holding = is_holding
        self._holding = wait_random_exponential(multiplier=timing.backoff_first, max=timing.backoff_holding)
        self._quick = wait_random_exponential(multiplier=timing.backoff_first, max=timing.backoff_most)
        self._slow = wait_random_exponential(
            multiplier=timing.refused_first, max=timing.refused_most, min=timing.refused_first / 2
        )

    def __call__(self, retry_state: RetryCallState) -> float:
        end = _end(retry_state)
        if end.lived >= self._steady:
            retry_state.attempt_number = 1
        wait = self._slow if end.refused else self._holding if self._is_holding() else self._quick
        return max(wait(retry_state), end.retry_after * random.uniform(1.0, 1.25))


def _tell(retry_state: RetryCallState) -> None:
    end = _end(retry_state)
    seconds = retry_state.upcoming_sleep
    extra = {"end": str(end), "wait_seconds": round(seconds, 3)}
    if end.refused:
        log.error("%s It tries again in %.1f s.", end.refusal, seconds, extra=extra)
    elif end.cause is Cause.DRAIN:
        log.info("The replica goes down. Connecting to another in %.1f s.", seconds, extra=extra)
    else:
        log.warning("The stream ended: %s. Connecting again in %.1f s.", str(end).rstrip("."), seconds, extra=extra)


def _end(retry_state: RetryCallState) -> End:
    assert retry_state.outcome is not None
    end = retry_state.outcome.result()
    assert isinstance(end, End)
    return end
