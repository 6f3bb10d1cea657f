"""Sessions from their first word to their last: by the SDK, and by hand with a comparison at the end."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from support.replicas import Refused, Rpc, Space
from turnlog_client import Turnlog
from turnlog_client.errors import Conflict

ENDS = ("run_succeeded", "run_failed", "run_interrupted", "run_canceled")
# An SDK call goes on for as long as a replica takes to come back.
PATIENCE = 60.0
SETTLE_SECONDS = 90
# A runner that is lost costs ten seconds, and its replica as many.
TURN_SECONDS = 90


@dataclass
class Hot:
    """A long Session, and where each acknowledged message is."""

    session_id: str
    acked: dict[str, int] = field(default_factory=dict)


async def settled(rpc: Rpc, hot: Hot, again: Collection[grpc.StatusCode]) -> list[str]:
    """Waits until its turns are over, and compares its log with what was acknowledged; what is wrong."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            try:
                log = await log_of(rpc, hot.session_id)
            except Refused as refused:
                if refused.code not in again:
                    raise
            else:
                started = {e.run_id for e in log if e.type == "user.message"}
                ended = Counter(e.run_id for e in log if e.WhichOneof("payload") in ENDS)
                if started == set(ended):
                    break
            await asyncio.sleep(0.2)
    wrong = []
    if [event.seq for event in log] != list(range(1, len(log) + 1)):
        wrong.append("the log has a gap")
    if set(ended.values()) - {1}:
        wrong.append("a Run ended twice")
    said = {e.user_message.parts[0].text: e.seq for e in log if e.type == "user.message"}
    if said != hot.acked or sum(e.type == "user.message" for e in log) != len(hot.acked):
        wrong.append("its messages are not those that were acknowledged")
    return [f"{hot.session_id}: {each}" for each in wrong]


async def log_of(rpc: Rpc, session_id: str) -> list[Any]:
    """The whole log, by pages."""
    events, token = [], ""
    while True:
        page = await rpc.call("ListEvents", session_id=session_id, page_size=500, page_token=token)
        events += page.events
        token = page.next_page_token
        if not token:
            return events


class Talker:
    """One who talks by the SDK."""

    def __init__(self, turnlog: Turnlog, deployment_id: str, chance: random.Random) -> None:
        self._turnlog = turnlog
        self._deployment_id = deployment_id
        self._chance = chance

    @classmethod
    @asynccontextmanager
    async def connected(cls, address: str, space: Space, chance: random.Random) -> AsyncIterator[Self]:
        """On a connection of its own."""
        async with Turnlog.connect(address, space.key, patience=PATIENCE) as turnlog:
            yield cls(turnlog, space.deployment_id, chance)

    async def session(self) -> AsyncIterator[str]:
        """A few turns, each followed to its end; the Session's id after each."""
        sessions = self._turnlog.sessions
        made = await sessions.create(self._deployment_id, labels={"by": "talker"})
        assert made.session
        session_id = made.session.session_id
        for turn in range(self._chance.randint(1, 4)):
            run = await sessions.steer(session_id, f"turn {turn}")
            if self._chance.random() < 0.2:
                await sessions.interrupt(session_id)
            try:
                async with asyncio.timeout(TURN_SECONDS), self._turnlog.events.follow(session_id, until=run) as follow:
                    seqs = [event.seq async for event in follow]
            except TimeoutError:
                raise AssertionError(f"{run.run_id} of {session_id} did not end in {TURN_SECONDS} seconds") from None
            assert seqs == list(range(run.seq, run.seq + len(seqs))), f"{session_id}: {seqs} after {run.seq}"
            yield session_id
        await self._end(session_id)

    async def _end(self, session_id: str) -> None:
        """In one of the ways to end, or not at all."""
        sessions = self._turnlog.sessions
        try:
            match self._chance.randrange(4):
                case 0:
                    await sessions.complete(session_id)
                case 1:
                    await sessions.cancel(session_id, reason="enough")
                case 2:
                    await sessions.delete(session_id)
        except Conflict:
            # An interrupt that came late is still at work.
            pass
