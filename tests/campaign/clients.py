"""Clients that create, write, steer and stop, and write down each call and what it was answered."""

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import Any

import grpc
from support.replicas import Refused, Rpc

from campaign.history import History

# The server says of these that nothing was applied, in so many words.
NOT_APPLIED = frozenset({"SERVER_DRAINING", "STORE_UNAVAILABLE", "CONTENTION", "QUOTA_EXCEEDED"})
REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.ABORTED,
    }
)
ACTS = ("message", "interrupt", "cancel run", "read", "cancel", "complete", "delete")
CAUSE = {"kind": "KIND_API"}


@dataclass
class Open:
    """A Session that takes part: what its follower knows of it."""

    session_id: str
    began: int = 0
    ended: int = 0
    seen: int = 0
    active: str = ""
    over: bool = False
    gone: bool = False
    runs: list[str] = field(default_factory=list)


@dataclass
class World:
    """What all clients share. paused: nobody is to start something new. busy: how many clients do something."""

    addresses: list[str]
    key: str
    subject: str
    deployment_id: str
    history: History
    seed: str
    most_sessions: int = 10
    most_turns: int = 24
    ends: tuple[str, ...] = (*["ok"] * 80, *["fail"] * 5, *["exit"] * 4, *["hang"] * 8, *["late"] * 3)
    sessions: dict[str, Open] = field(default_factory=dict)
    opened: "asyncio.Queue[Open]" = field(default_factory=asyncio.Queue)
    paused: asyncio.Event = field(default_factory=asyncio.Event)
    busy: int = 0

    @property
    def waiting(self) -> int:
        """Turns that have begun and not ended."""
        return sum(each.began - each.ended for each in self.sessions.values() if not each.gone)

    @property
    def ended(self) -> int:
        return sum(each.ended for each in self.sessions.values())

    @property
    def usable(self) -> list[Open]:
        return [each for each in self.sessions.values() if not each.over and not each.gone]

    def open(self, session_id: str) -> Open:
        """A Session that was just made: somebody will follow it."""
        if session_id not in self.sessions:
            self.sessions[session_id] = Open(session_id)
            self.opened.put_nowait(self.sessions[session_id])
        return self.sessions[session_id]


class Client:
    """One caller, with a connection to each replica."""

    def __init__(self, world: World, name: str, key: str = "") -> None:
        self._world = world
        self.name = name
        self._rpcs = [Rpc(address, key or world.key) for address in world.addresses]
        self._random = random.Random(f"{world.seed}/{name}")
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / 0.05))
            if self._world.paused.is_set():
                continue
            self._world.busy += 1
            try:
                await self._do_something()
            finally:
                self._world.busy -= 1

    async def close(self) -> None:
        for rpc in self._rpcs:
            await rpc.close()

    async def _do_something(self) -> None:
        usable = self._world.usable
        if len(usable) < self._world.most_sessions:
            await self.create()
            return
        # Where too many turns wait, nobody adds to them.
        full = self._world.waiting >= self._world.most_turns
        weights = [0, 3, 1, 20, 0.2, 0.2, 0.2] if full else [60, 12, 6, 20, 1, 1, 0.3]
        await self._act(self._random.choice(usable), weights)

    async def _act(self, session: Open, weights: list[float]) -> None:
        match self._random.choices(ACTS, weights)[0]:
            case "message":
                await self.message(session)
            case "interrupt":
                await self.interrupt(session)
            case "cancel run" if session.active:
                await self.cancel_run(session)
            case "read":
                await self.read(session)
            case "cancel":
                await self._last(session, "CancelSession", reason="enough")
            case "complete":
                await self._last(session, "CompleteSession")
            case "delete":
                there = [each for each in self._world.sessions.values() if not each.gone]
                await self._last(self._random.choice(there), "DeleteSession")

    async def create(self) -> None:
        """A Session, most often with its first turn."""
        fields: dict[str, Any] = {"agent_deployment_id": self._world.deployment_id}
        marker = ""
        request = self._request()
        if self._random.random() < 0.7:
            marker = request
            fields["first_message"] = {"parts": [{"text": f"{marker} {self._wish()}"}]}
        if self._random.random() < 0.1:
            fields["reusable"] = False
        await self._tell("CreateSession", "", request, marker, fields)

    async def message(self, session: Open) -> None:
        """A message, sometimes one that steers or that minds who was first."""
        request = self._request()
        fields: dict[str, Any] = {
            "user_message": {"parts": [{"text": f"{request} {self._wish()}"}]},
            "if_busy": self._random.choices(["IF_BUSY_ENQUEUE", "IF_BUSY_REJECT", "IF_BUSY_INTERRUPT"], [8, 1, 1])[0],
        }
        if self._random.random() < 0.1:
            fields["expected_head_seq"] = session.seen
        await self._append(session, request, fields)

    async def interrupt(self, session: Open) -> None:
        """Stops what runs."""
        request = self._request()
        await self._append(session, request, {"user_interrupt": {"reason": request}})

    async def cancel_run(self, session: Open) -> None:
        """Cancels a Run, in whatever state it is."""
        fields = {"session_id": session.session_id, "run_id": self._random.choice(session.runs)}
        await self._tell("CancelRun", session.session_id, self._request(), "", fields)

    async def read(self, session: Open) -> None:
        """Looks how far the Session is, at any replica."""
        began = time.monotonic_ns()
        try:
            got = await self._rpc().call("GetSession", session_id=session.session_id, timeout=5)
        except Refused:
            return
        self._world.history.head(self.name, session.session_id, began, got.session.head_seq)

    async def _last(self, session: Open, method: str, **fields: Any) -> None:
        if len(self._world.sessions) > 3:
            await self._tell(
                method, session.session_id, self._request(), "", {"session_id": session.session_id, **fields}
            )

    async def _append(self, session: Open, request: str, fields: dict[str, Any]) -> None:
        fields |= {"session_id": session.session_id, "authored_by": self._world.subject, "caused_by": CAUSE}
        await self._tell("AppendEvent", session.session_id, request, request, fields)

    async def _tell(self, method: str, session: str, request: str, marker: str, fields: dict[str, Any]) -> None:
        """Tries until it knows, or gives up and never will. Some give up at once."""
        gives_up = self._random.random() < 0.1
        for number in range(40):
            answer = await self._once(method, session, request, marker, fields)
            if answer in ("ok", "refused") or gives_up:
                return
            await asyncio.sleep(min(1.0, 0.05 * (number + 1)))

    async def _once(self, method: str, session: str, request: str, marker: str, fields: dict[str, Any]) -> str:
        history = self._world.history
        number = history.call(self.name, method, session, request, marker)
        # Some are too impatient to hear of what they did.
        timeout = 0.03 if self._random.random() < 0.03 else 6
        try:
            got = await self._rpc().call(method, timeout=timeout, request_id=request, **fields)
        except Refused as refused:
            reason = refused.reason or refused.code.name
            if refused.reason and (refused.code in REFUSALS or refused.reason in NOT_APPLIED):
                history.refused(number, reason)
                if reason == "NOT_FOUND" and session:
                    self._world.sessions[session].gone = True
                # Waiting helps with these: the same request again.
                return "again" if refused.reason in NOT_APPLIED else "refused"
            history.unknown(number, reason)
            return "unknown"
        except asyncio.CancelledError:
            history.unknown(number, "cut short")
            raise
        # A replayed creation of what was deleted since is answered NOT_FOUND.
        made = session or got.session.session_id
        history.ok(number, made, getattr(got, "seq", 0), getattr(got, "event_id", ""), getattr(got, "run_id", ""))
        self._world.open(made).gone |= method == "DeleteSession"
        return "ok"

    def _rpc(self) -> Rpc:
        return self._random.choice(self._rpcs)

    def _request(self) -> str:
        return f"{self.name}-{next(self._numbers)}"

    def _wish(self) -> str:
        """What the harness is to do: so many events, so many milliseconds for each, and an end."""
        count, pause = self._random.randint(1, 6), self._random.choice([0, 1, 10, 60])
        return f"{count} {pause} {self._random.choice(self._world.ends)}"
