"""Lanes without a server around them: replicas that write the same Sessions of one workspace."""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from turnlog.v1 import event_pb2
from turnlog_server.app.replay_run import replay
from turnlog_server.domain.access import Caller, Role
from turnlog_server.domain.commands import AcceptRun, Author, Command, Create, Lease, SendInterrupt, SendMessage
from turnlog_server.domain.draft import Rules
from turnlog_server.domain.events import Cause, CauseKind, Event, Said
from turnlog_server.domain.ids import CHANCE_BYTES, make_id
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.session import Pins, SessionFacts
from turnlog_server.service.batch import Encode
from turnlog_server.service.clock import Clock
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.lane import Committed, Lane
from turnlog_server.service.submission import Result, Submission
from turnlog_server.store.database import Database
from turnlog_server.store.sessions import Sessions
from turnlog_server.store.writer import LogWriter
from turnlog_server.wire.events import decode, encode

WORKSPACE = "ws_1"
AUTHOR = Author("prn_1", "prn_1", Cause(CauseKind.API))
PINS = Pins("adep_1", 1, "agt_1", 1, "hpr_1", "spr_1", "default", 60)
RULES = Rules(max_queued_turns=100_000)
_numbers = itertools.count(1)


def said(text: str) -> bytes:
    """A message's payload."""
    event = event_pb2.Event()
    event.user_message.parts.add(text=text)
    return event.SerializeToString()


def message(text: str = "hello", **options: Any) -> SendMessage:
    """The command that sends it."""
    return SendMessage(AUTHOR, said(text), **options)


def interrupt() -> SendInterrupt:
    """The command that interrupts whatever turn is active."""
    event = event_pb2.Event()
    event.user_interrupt.SetInParent()
    return SendInterrupt(AUTHOR, event.SerializeToString())


def report(text: str) -> tuple[Said, bytes]:
    """What an agent says."""
    event = event_pb2.Event()
    event.agent_message.parts.add(text=text)
    return Said("agent.message"), event.SerializeToString()


class LaneCounts:
    """What the lane tells metrics."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []
        self.looked_again = 0
        self.applied = 0
        self.missing = 0

    def batch(self, commands: int, events: int, seconds: float) -> None:
        self.batches.append((commands, events))

    def redecided(self, commands: int) -> None:
        self.looked_again += commands

    def resolved(self, applied: int, missing: int) -> None:
        self.applied += applied
        self.missing += missing


class LaneReplica:
    """A lane with what a server gives it. `refuse`: permission is refused from here on, whoever is judged."""

    def __init__(
        self, db: Database, encoder: Encode = encode, rules: Rules = RULES, clock: Clock | None = None
    ) -> None:
        self.db = db
        self.epochs = Epochs()
        self.counts = LaneCounts()
        self.published: list[Committed] = []
        self.refuse: Refusal | None = None
        self.judged = 0
        self.caller = Caller(WORKSPACE, "prn_1", "key_1", Role.MANAGER, 1)
        clock = clock or Clock()
        self.lane = Lane(LogWriter(db), encoder, self.published.extend, clock, rules, self.epochs, self.counts)

    async def judge(self, caller: Caller) -> Caller:
        """Asks the database, as the authenticator does."""
        self.judged += 1
        if self.refuse is not None:
            raise self.refuse
        return replace(caller, epoch=await epoch(self.db))

    def submission(
        self,
        session_id: str,
        command: Command,
        request_id: str | None = "",
        *,
        fingerprint: bytes = b"same",
        size: int = 500,
        own: bool = False,
    ) -> Submission:
        """request_id: empty for a new one, None for none. own: of the server itself."""
        key = None
        if request_id is not None and not own:
            scope, method = (WORKSPACE, "CreateSession") if isinstance(command, Create) else (session_id, "AppendEvent")
            key = (scope, "prn_1", method, request_id or f"r{next(_numbers)}")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        return Submission(
            session_id,
            command,
            size,
            future,
            None if own else self.caller,
            None if own else self.judge,
            key,
            fingerprint,
        )

    async def do(
        self, session_id: str, command: Command, request_id: str | None = "", *, seconds: float = 20.0, **options: Any
    ) -> Result:
        """Carries a command out."""
        deadline = asyncio.get_running_loop().time() + seconds
        return await self.lane.submit(self.submission(session_id, command, request_id, **options), deadline)

    async def create(self, request_id: str = "", *, text: str = "", reusable: bool = True) -> str:
        """A Session, with a first message if there is a text; its id, or that of the one that was made before."""
        session_id = make_id("sess_", os.urandom(CHANCE_BYTES))
        facts = SessionFacts(session_id, WORKSPACE, PINS, "prn_1", reusable, 0, {"app": "test"})
        result = await self.do(session_id, Create(facts, AUTHOR, said(text) if text else b""), request_id)
        return result.resource_id or (result.facts.session_id if result.facts else "")

    async def accept(self, session_id: str, token: str = "token") -> Lease:
        """A runner takes the Session's Run."""
        state = (await log_of(self.db, session_id)).state
        assert state is not None
        assert state.active is not None
        lease = Lease(state.active.run_id, state.active.attempt_no + 1, token)
        await self.do(session_id, AcceptRun(lease, "rnr_1", "1.0", 1), None)
        return lease


class Log:
    """A Session as it stands in the database."""

    def __init__(self, events: list[Event], head: int, state: Any) -> None:
        self.events, self.head, self.state = events, head, state
        self.seqs = [event.seq for event in events]
        self.types = [event.type for event in events]


async def log_of(db: Database, session_id: str) -> Log:
    """Its whole log."""
    sessions = Sessions(db)
    stored = await sessions.get(WORKSPACE, session_id, asyncio.get_running_loop().time() + 5.0)
    events: list[Event] = []
    head = 0
    while True:
        page = await sessions.events(WORKSPACE, session_id, len(events), count=1_000, size=1 << 22)
        if page is None:
            return Log([], -1, None)
        head = page.head_seq
        events += [decode(body) for _, _, body in page.events]
        if len(events) >= head:
            return Log(events, head, stored[0][1] if stored is not None else None)


async def epoch(db: Database) -> int:
    """The workspace's permission epoch."""
    return (await Sessions(db).epochs([WORKSPACE]))[WORKSPACE]


async def raise_epoch(db: Database) -> None:
    """Somebody's permissions change."""
    await db.write("epoch", "UPDATE workspace_epochs SET acl_epoch = acl_epoch + 1")


async def differences(db: Database) -> list[str]:
    """What the logs say and the tables beside them do not."""
    found: list[str] = []
    await replay(db, lambda difference: found.append(f"{difference.guarantee}: {difference.what}"))
    return found


async def eventually(holds: Callable[[], Awaitable[bool]] | Callable[[], bool], seconds: float = 5.0) -> None:
    """Waits until it does."""
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if held if isinstance(held, bool) else await held:
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def replicas(db: Database, count: int = 1, **options: Any):
    """So many lanes on one database that has the workspace; each with a connection and a memory of its own."""
    await db.write("ws", "INSERT INTO workspaces (workspace_id, name) VALUES ('ws_1', 'one') ON CONFLICT DO NOTHING")
    await db.write(
        "ws", "INSERT INTO workspace_epochs (workspace_id, acl_epoch) VALUES ('ws_1', 1) ON CONFLICT DO NOTHING"
    )
    made = [LaneReplica(db, **options) for _ in range(count)]
    for each in made:
        each.lane.start()
    try:
        yield made
    finally:
        for each in made:
            await each.lane.close()
