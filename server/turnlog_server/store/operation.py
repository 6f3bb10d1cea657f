"""One operation on the database over all its attempts: what is in flight, what is known, and whether to go on."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg
import structlog
from tenacity import AsyncRetrying, RetryCallState

from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store.connections import unavailable
from turnlog_server.store.errors import (
    RETRIED,
    STALE_PLANS,
    UNIQUE_VIOLATION,
    Duplicate,
    ErrorClass,
    Phase,
    StoreFault,
    classify,
    constraint_of,
    sqlstate_of,
)
from turnlog_server.store.observer import SilentObserver, StoreObserver

T = TypeVar("T")

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 10
# Somebody holds a lock for longer than the server lets us wait: hardly a matter of luck.
MAX_BUSY = 3
FIRST_PAUSE = 0.005
MAX_PAUSE = 1.0
FIRST_BACKOFF = 0.1
MAX_BACKOFF = 2.0


@dataclass(slots=True)
class Operation:
    """deadline: in the time of the event loop. The rest as in `Database.run`."""

    op: str
    deadline: float
    keyed: bool
    replay_keys: Collection[str] = ()
    observer: StoreObserver = field(default_factory=SilentObserver)
    phase: Phase = Phase.BORROW
    attempts: int = 0
    abandoned: bool = False
    giving_back: bool = False
    # Once true it stays: what happens to a later attempt does not tell what became of this one.
    ever_unknown: bool = False
    last: ErrorClass | None = None
    _seen: dict[ErrorClass, int] = field(default_factory=dict)
    _stale_plan: bool = False
    _judged: BaseException | None = None
    _first_error: psycopg.Error | None = None

    async def drive(self, attempt: Callable[["Operation"], Awaitable[T]]) -> T:
        """Attempt until it succeeds or gives up, and say in our words why it did."""
        try:
            try:
                return await self._once(attempt)
            except psycopg.Error as exc:
                # Nearly every first attempt succeeds: only the others pay for setting up the retries.
                self._first_error = exc
            retrying = AsyncRetrying(retry=self._goes_on, wait=self._pause, stop=self._gives_up, reraise=True)
            return await retrying(self._once, attempt)
        except Exception as exc:
            if (verdict := self._verdict(exc)) is exc:
                raise
            raise verdict from exc

    def failed(self, exc: BaseException) -> ErrorClass:
        """Take note of a failed attempt, while the phase it failed in is known."""
        if self._judged is exc and self.last is not None:
            return self.last
        error_class = classify(exc, self.phase, self.replay_keys)
        if sqlstate_of(exc) in STALE_PLANS:
            error_class = ErrorClass.FATAL if self._stale_plan else error_class
            self._stale_plan = True
        self._judged, self.last = exc, error_class
        self._seen[error_class] = self._seen.get(error_class, 0) + 1
        if isinstance(exc, psycopg.Error):
            self.observer.failed(self.op, error_class)
        if error_class is ErrorClass.AMBIGUOUS:
            self.ever_unknown = True
            self.observer.commit_unknown(self.op)
        return error_class

    def leave_if_abandoned(self) -> None:
        """End here, rather than begin or commit what nobody waits for any more."""
        if self.abandoned:
            raise asyncio.CancelledError

    def out_of_time(self, *, reachable: bool) -> Refusal:
        """Why the caller has no answer at its deadline."""
        if self.phase is Phase.COMMITTING:
            self.ever_unknown = True
            self.observer.commit_unknown(self.op)
        if self.ever_unknown or self.last is not None or not reachable:
            return self._refusal()
        return Refusal(
            Reason.DEADLINE_EXCEEDED,
            "The database did not answer within the time that the call allows; nothing was changed.",
        )

    async def _once(self, attempt: Callable[["Operation"], Awaitable[T]]) -> T:
        if (first := self._first_error) is not None:
            self._first_error = None
            raise first
        self.leave_if_abandoned()
        self.attempts += 1
        return await attempt(self)

    def _goes_on(self, state: RetryCallState) -> bool:
        exc = state.outcome.exception() if state.outcome and state.outcome.failed else None
        return isinstance(exc, psycopg.Error) and self.last in RETRIED and not self.abandoned

    def _gives_up(self, state: RetryCallState) -> bool:
        if self.attempts >= MAX_ATTEMPTS or self._seen.get(ErrorClass.BUSY, 0) >= MAX_BUSY:
            return True
        return asyncio.get_running_loop().time() + state.upcoming_sleep >= self.deadline

    def _pause(self, state: RetryCallState) -> float:
        self.phase = Phase.BORROW  # nothing is in flight while it sleeps
        if self.last in (ErrorClass.BACKOFF, ErrorClass.BUSY):
            return random.uniform(FIRST_BACKOFF, min(MAX_BACKOFF, FIRST_BACKOFF * 2.0**self.attempts))
        return random.uniform(0.0, min(MAX_PAUSE, FIRST_PAUSE * 2.0**self.attempts))

    def _verdict(self, exc: Exception) -> Exception:
        code, constraint = sqlstate_of(exc), constraint_of(exc)
        if code == UNIQUE_VIOLATION:
            return Duplicate(self.op, code, constraint, after_unknown=self.ever_unknown)
        if self.ever_unknown:
            log.warning("the outcome of a write is unknown", op=self.op, attempts=self.attempts, last=repr(exc))
            return self._refusal()
        if not isinstance(exc, psycopg.Error):
            return exc
        if self.last in RETRIED:
            log.warning("gave up on the database", op=self.op, attempts=self.attempts, sqlstate=code, error=str(exc))
            return self._refusal()
        log.error("the database refused a statement", op=self.op, sqlstate=code, constraint=constraint)
        return StoreFault(self.op, code, constraint)

    def _refusal(self) -> Refusal:
        if self.ever_unknown and self.keyed:
            return Refusal(
                Reason.OUTCOME_UNKNOWN,
                "The database did not say whether the change was made. Send the same request with the same request_id: "
                "it is carried out at most once.",
                retry_after=0.5,
            )
        if self.ever_unknown:
            return unavailable("The database did not say whether the change was made.")
        if self.last in (ErrorClass.RETRY, ErrorClass.BUSY):
            return Refusal(
                Reason.CONTENTION,
                "Too many others are changing the same thing; nothing was changed. Try again shortly.",
                retry_after=0.2,
            )
        if self.last is ErrorClass.BACKOFF:
            return Refusal(
                Reason.QUOTA_EXCEEDED,
                "The database has no room for this at the moment; nothing was changed. Try again later.",
                retry_after=2.0,
            )
        return unavailable()
