"""When to try again, and how long to wait before it."""

from __future__ import annotations

import random

from grpc import StatusCode
from tenacity import RetryCallState
from tenacity.wait import wait_base, wait_random_exponential

from turnlog_client.errors import TurnlogError, is_cut


def may_be_sent_again(error: BaseException) -> bool:
    """Whether a unary call that failed so may be sent again, with the same `request_id`.

    UNAVAILABLE includes OUTCOME_UNKNOWN: the id lets the server tell. So it does where a connection broke, or a
    replica that goes down or a proxy reset the call, which may come as CANCELLED. Any other refusal says itself, by
    RetryInfo, when waiting helps.
    """
    if not isinstance(error, TurnlogError):
        return False
    return error.retry_after is not None or (is_cut(error) and error.code is not StatusCode.DEADLINE_EXCEEDED)


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
