"""When to try again, and how long to wait before it."""

from __future__ import annotations

import random

from grpc import StatusCode
from tenacity import RetryCallState
from tenacity.wait import wait_base, wait_random_exponential

from turnlog_client.errors import TurnlogError, is_cut


def may_be_sent_again(error: BaseException) -> bool:
    """Whether a unary call that failed so may be sent again, with the same `request_id`.

    UNAVAILABLE includes OUTCOME_UNKNOWN: the id lets the server tell. Any other refusal says itself, by RetryInfo,
    when waiting helps.
    """
    return isinstance(error, TurnlogError) and (error.code is StatusCode.UNAVAILABLE or error.retry_after is not None)


def may_be_resumed(error: BaseException) -> bool:
    """Whether a follow that broke so goes on from its cursor."""
    return isinstance(error, TurnlogError) and is_cut(error)


class WaitAsTold(wait_base):
    """Exponential with full jitter, never shorter than the server's RetryInfo.

    `first` and `longest` are seconds. Jitter also spreads those who were all told the same.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._exponential = wait_random_exponential(multiplier=first, max=longest)

    def __call__(self, retry_state: RetryCallState) -> float:
        wait = self._exponential(retry_state)
        error = retry_state.outcome.exception() if retry_state.outcome else None
        told = error.retry_after if isinstance(error, TurnlogError) else None
        return wait if told is None else max(wait, told * random.uniform(1.0, 1.25))
