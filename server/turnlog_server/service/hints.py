"""Word between replicas: what was committed here, what may be claimed. A hint may be lost; the polls find what it told.

One notification for all that was committed within a few milliseconds, since notifications of a whole database commit
one after another; and none at all while this replica is alone.
"""

import asyncio
import os
from collections.abc import Callable, Iterable

from turnlog_server.domain.session import RunStatus
from turnlog_server.service.background import Background
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.fleet import Fleet
from turnlog_server.service.hub import Hub
from turnlog_server.service.lane import Committed
from turnlog_server.store.database import Database
from turnlog_server.store.hints import HintSource
from turnlog_server.store.queue import Place
from turnlog_server.store.sessions import Sessions
from turnlog_server.store.sweeps import Sweeps

CHANNEL = "turnlog"
GATHER_SECONDS = 0.005
# PostgreSQL bounds a payload at 8,000 bytes.
PAYLOAD_BYTES = 7_000


class Hints:
    """Sends and hears hints, and runs the safety poll behind them."""

    def __init__(
        self,
        db: Database,
        sessions: Sessions,
        hub: Hub,
        fleet: Fleet,
        epochs: Epochs,
        sweeps: Sweeps,
        poll: float,
        polled: Callable[[], None],
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._hub = hub
        self._fleet = fleet
        self._sweeps = sweeps
        self._poll = poll
        self._polled = polled
        self._epochs = epochs
        self.replica_id = os.urandom(8).hex()
        self._others = 0
        self._lines: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._source: HintSource | None = None
        self._tasks = Background()
        epochs.listen(self._epoch_moved)

    async def start(self) -> None:
        """Begins to listen, to send and to poll."""
        await self._say()
        self._source = await self._db.listen(CHANNEL, self._heard, self._lost)
        self._tasks.repeat("hints", self._send, 0.0)
        self._tasks.repeat("safety poll", self._look, self._poll)
        self._tasks.repeat("replicas", self._say, self._poll)

    async def close(self) -> None:
        """Stops."""
        await self._tasks.close()
        if self._source is not None:
            await self._source.close()
        await self._sweeps.replica_gone(self.replica_id)

    def committed(self, commits: Iterable[Committed]) -> None:
        """This replica committed."""
        if not self._others:
            return
        for commit in commits:
            session_id = commit.facts.session_id
            head = -1 if commit.deleted else commit.state.head_seq
            self._lines[session_id] = f"s {session_id} {head}"
            run = commit.state.active
            if run is not None and run.status is RunStatus.READY:
                pins = commit.facts.pins
                line = f"q {commit.facts.workspace_id} {pins.runner_pool} {pins.harness_profile_id}"
                self._lines[line] = line
        self._wake.set()

    def _epoch_moved(self, workspace_id: str, epoch: int) -> None:
        if self._others:
            self._lines[workspace_id] = f"e {workspace_id} {epoch}"
            self._wake.set()

    async def _send(self) -> None:
        await self._wake.wait()
        await asyncio.sleep(GATHER_SECONDS)
        self._wake.clear()
        lines, self._lines = list(self._lines.values()), {}
        payload = self.replica_id
        for line in lines:
            if len(payload) + len(line) + 1 > PAYLOAD_BYTES:
                await self._db.hint(CHANNEL, payload)
                payload = self.replica_id
            payload += "\n" + line
        if payload != self.replica_id:
            await self._db.hint(CHANNEL, payload)

    def _heard(self, payload: str) -> None:
        sender, *lines = payload.split("\n")
        if sender == self.replica_id:
            return
        for line in lines:
            match line.split(" "):
                case ["s", session_id, head]:
                    self._hub.hint(session_id, int(head))
                    self._fleet.hint(session_id, int(head))
                case ["q", workspace_id, pool, profile]:
                    self._fleet.claimable(Place(workspace_id, pool, profile))
                case ["e", workspace_id, epoch]:
                    self._epochs.note(workspace_id, int(epoch))

    def _lost(self) -> None:
        """Hints may have been missed: look now, at everything."""
        self._tasks.once("look after lost hints", self._look())

    async def _look(self) -> None:
        await self._hub.poll()
        await self._fleet.poll()
        # Streams that are idle end within two polls of a revocation, wherever that was made.
        workspaces = sorted(self._hub.workspaces | self._fleet.workspaces)
        if workspaces:
            for workspace_id, epoch in (await self._sessions.epochs(workspaces)).items():
                self._epochs.note(workspace_id, epoch)

    async def _say(self) -> None:
        self._others = await self._sweeps.replica(self.replica_id, self._poll * 10)
        # Of what is repeated, this asks the database always, also when nobody follows and no runner is here.
        self._polled()
