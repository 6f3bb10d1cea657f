"""Attempts in the hands of runners: what is known of each here, and which streams hold one of a Session."""

import asyncio
import hashlib
import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Generic, TypeVar

from turnlog_server.domain import fleet as said
from turnlog_server.domain.attempts import why_fenced
from turnlog_server.domain.refusals import Reason
from turnlog_server.domain.session import RunStatus, SessionState
from turnlog_server.service.submission import Result

GONE = {
    Reason.LEASE_LOST: said.LostReason.LEASE_LOST,
    Reason.NOT_FOUND: said.LostReason.LEASE_LOST,
    Reason.STALE_ATTEMPT: said.LostReason.STALE_ATTEMPT,
    Reason.ALREADY_SETTLED: said.LostReason.ALREADY_SETTLED,
}
"""Refusals that mean that the attempt is not the runner's any more."""

Key = tuple[str, str]
"""A Session and its Run."""


@dataclass(slots=True)
class Held:
    """An attempt that a runner executes.

    ending: it is on its way to end it itself. reported: what becomes of the last that it reported.
    behind: somebody else wrote to the Session. looking: and it is being read.
    """

    session_id: str
    run_id: str
    attempt_no: int
    tools: frozenset[str]
    stop_told: RunStatus | None = None
    ending: bool = False
    head: int = 0
    reported: asyncio.Future[Result] | None = None
    behind: bool = False
    looking: bool = False

    @property
    def key(self) -> Key:
        """A runner holds one attempt of a Run at most."""
        return self.session_id, self.run_id


class Holder:
    """Who holds attempts."""

    held: dict[Key, Held]


H = TypeVar("H", bound=Holder)


class Holders(Generic[H]):
    """Which streams hold an attempt of a Session; for a moment there may be two, one of which is to be told."""

    def __init__(self) -> None:
        self._holders: defaultdict[str, set[H]] = defaultdict(set)

    def add(self, session_id: str, holder: H) -> None:
        """It holds one."""
        self._holders[session_id].add(holder)

    def discard(self, session_id: str, holder: H) -> None:
        """It holds none any more."""
        holders = self._holders.get(session_id, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(session_id, None)

    def held(self, session_id: str) -> list[tuple[H, Held]]:
        """All that is held of a Session."""
        holders = self._holders.get(session_id, ())
        return [(holder, held) for holder in holders for held in holder.held.values() if held.session_id == session_id]


def lost_reason(state: SessionState | None, run_id: str, attempt_no: int) -> said.LostReason:
    """Why an attempt is not a runner's any more; None for a Session that is gone."""
    return said.LostReason.LEASE_LOST if state is None else GONE[why_fenced(state, run_id, attempt_no)]


def token_hash(token: bytes) -> str:
    """How a lease token is kept."""
    return hashlib.sha256(token).hexdigest()


def new_token() -> bytes:
    """128 random bits."""
    return os.urandom(16)
