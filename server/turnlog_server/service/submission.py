"""One command on its way through the lane."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from turnlog_server.domain.access import Caller
from turnlog_server.domain.commands import Command, Create
from turnlog_server.domain.draft import Answer
from turnlog_server.domain.ids import CHANCE_BYTES, make_id
from turnlog_server.domain.session import SessionFacts, SessionState
from turnlog_server.domain.values import value

RequestKey = tuple[str, str, str, str]

# Ids that chance is drawn for in one go, at first: a message takes three, the first of a Session six, and a harness
# that says more has twice as many each time.
AT_ONCE = 6


class Names:
    """Fresh ids for one command, the same ones each time that it is decided again."""

    __slots__ = ("_at", "_chance")

    def __init__(self) -> None:
        self._chance = b""
        self._at = 0

    def restart(self) -> None:
        """The command is decided again."""
        self._at = 0

    def __call__(self, prefix: str) -> str:
        start = self._at
        self._at = end = start + CHANCE_BYTES
        if end > len(self._chance):
            self._chance += os.urandom(max(CHANCE_BYTES * AT_ONCE, len(self._chance)))
        return make_id(prefix, self._chance[start:end])


@value
class Result:
    """What a command came to, with the Session as it stands after it.

    resource_id: what a remembered request made, where it is not the Session.
    """

    answer: Answer
    facts: SessionFacts | None
    state: SessionState | None
    replayed: bool = False
    resource_id: str = ""


@dataclass(slots=True, eq=False)
class Submission:
    """A command with all that the lane needs to carry it out once, or not at all.

    caller, judge: None where the server itself acts. The caller's epoch is the one that it was judged under.
    key: of the request id; None where there is none.
    now: stamped when the command is first decided, and kept.
    taken: in a batch; from then on nobody cancels it.
    look: something of its batch did not go as expected: read state, request ids and permission before deciding again.
    alone: with no other of its Session in a batch, for one of them is such that the database refuses it.
    tried: what was sent and whose outcome is unknown: the first event of its write, and the answer that goes with it.
    waiters: of callers that wait for it, each of which may leave.
    """

    session_id: str
    command: Command
    size: int
    future: asyncio.Future[Result]
    caller: Caller | None = None
    judge: Callable[[Caller], Awaitable[Caller]] | None = None
    key: RequestKey | None = None
    fingerprint: bytes = b""
    names: Names = field(default_factory=Names)
    now: int = 0
    taken: bool = False
    look: bool = False
    alone: bool = False
    rounds: int = 0
    tried: list[tuple[int, bytes, Answer]] = field(default_factory=list)
    facts: SessionFacts | None = None
    waiters: list[asyncio.Future[Result]] = field(default_factory=list)

    @property
    def creates(self) -> bool:
        """True for a command that makes its Session."""
        return isinstance(self.command, Create)


class Admits(Protocol):
    """The way in: the lane, or what benchmarks compare it with."""

    async def submit(self, submission: Submission, deadline: float) -> Result:
        """Carries a command out once, or refuses it; see `Lane.submit`."""
        ...
