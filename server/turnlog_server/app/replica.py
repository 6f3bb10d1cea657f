"""The composition root: the only place where the concrete parts of a server meet."""

import time
from dataclasses import dataclass
from typing import Self

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from turnlog.runner.v1 import runner_service_pb2
from turnlog.v1 import (
    access_service_pb2,
    agent_service_pb2,
    event_service_pb2,
    request_service_pb2,
    run_service_pb2,
    server_service_pb2,
    session_service_pb2,
)

from turnlog_server.app.metrics import Metrics
from turnlog_server.app.settings import Settings
from turnlog_server.domain import fleet as fleet_values
from turnlog_server.domain.events import AttemptEnded
from turnlog_server.service.access import Access
from turnlog_server.service.agents import Agents
from turnlog_server.service.background import Background
from turnlog_server.service.bench import OneTransaction
from turnlog_server.service.clock import Clock
from turnlog_server.service.credentials import Authenticator
from turnlog_server.service.epochs import Epochs
from turnlog_server.service.events import Events, FollowSettings
from turnlog_server.service.fleet import Fleet
from turnlog_server.service.hints import Hints
from turnlog_server.service.hub import Hub
from turnlog_server.service.lane import Committed, Lane
from turnlog_server.service.offers import Offers
from turnlog_server.service.once import Changes
from turnlog_server.service.operators import Operators
from turnlog_server.service.queue_sweep import QueueSweeper
from turnlog_server.service.runs import Requests, Runs
from turnlog_server.service.sessions import Sessions
from turnlog_server.service.timers import Timers
from turnlog_server.store.database import Database
from turnlog_server.store.queue import Queue
from turnlog_server.store.queue_sweep import QueueSweep
from turnlog_server.store.runners import Runners
from turnlog_server.store.runs import Runs as RunStore
from turnlog_server.store.sessions import Sessions as SessionStore
from turnlog_server.store.sweeps import Sweeps
from turnlog_server.store.writer import LogWriter
from turnlog_server.transport import bench
from turnlog_server.transport.access import AccessServicer
from turnlog_server.transport.adapter import Adapter
from turnlog_server.transport.agents import AgentServicer
from turnlog_server.transport.runner import RunnerServicer
from turnlog_server.transport.server_info import ServerServicer
from turnlog_server.transport.sessions import EventServicer, RequestServicer, RunServicer, SessionServicer
from turnlog_server.wire.events import decode, encode
from turnlog_server.wire.frames import FollowFrames, frame_event
from turnlog_server.wire.runner import RunnerFrames, run_id_of

# A replica whose polls fail for this many intervals is not healthy.
UNHEALTHY_POLLS = 4
CLOCK_SECONDS = 5.0
QUEUE_LOOK_SECONDS = 5.0
# See `app.door`: what clients may ping at the least, and how often the server pings, in seconds.
KEEPALIVE = (10.0, 20.0)


@dataclass(slots=True)
class Drained:
    """What was finished while a replica went down.

    writes: events that were written since. calls_cut: calls that did not end in the time that they were given.
    """

    follows_ended: int
    runners_told: int
    writes: int = 0
    calls_cut: int = 0


class Replica:
    """One process's server core, without sockets of its own. drained: set once it goes down."""

    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        """Use `open`."""
        self.drained: Drained | None = None
        self._settings = settings
        self._metrics = metrics
        self._clock = clock = Clock()
        self._epochs = epochs = Epochs()
        self._authenticator = Authenticator(database, epochs, clock.now)
        fleet_settings = fleet_values.Settings(
            lease_ttl=settings.runner_lease_ttl_seconds,
            heartbeat=settings.runner_heartbeat_seconds,
            startup_allowance=settings.startup_allowance_seconds,
            stop_grace=settings.stop_grace_seconds,
            poll=settings.safety_poll_seconds,
        )
        sessions, runs, sweeps = SessionStore(database), RunStore(database), Sweeps(database)
        self._session_store = sessions
        queue, runners = Queue(database), Runners(database, settings.runner_lease_ttl_seconds)
        frames = FollowFrames()
        self._hub = hub = Hub(sessions, epochs, frame_event, decode)
        self._lane = lane = Lane(
            LogWriter(database, metrics), encode, self._committed, clock, settings.rules, epochs, metrics
        )
        agents = Agents(database, epochs, now=clock.now)
        offers = Offers(sessions, agents, run_id_of, fleet_settings)
        self._fleet = fleet = Fleet(
            lane, hub, sessions, queue, runners, offers, RunnerFrames(), epochs, clock, fleet_settings, metrics
        )
        follow_settings = FollowSettings(settings.progress_seconds)
        self._events = Events(hub, sessions, runs, frames, epochs, follow_settings, metrics, clock.now)
        use_cases = Sessions(lane, sessions, runs, agents.pins_for)
        self._timers = Timers(lane, sweeps, settings.safety_poll_seconds, metrics.timer_fired)
        self._hints = Hints(database, sessions, hub, fleet, epochs, sweeps, settings.safety_poll_seconds, self._polled)
        self._queue_sweeper = QueueSweeper(
            QueueSweep(database, self._hints.replica_id),
            settings.safety_poll_seconds,
            fleet.claimable,
            metrics.queue_row_mended,
        )
        self._adapter = Adapter(self._authenticator, epochs, metrics)
        self._tasks = Background()
        self._last_poll = time.monotonic()
        dialect = database.dialect
        info = ServerServicer(
            dialect.engine, dialect.hint_source, fleet_settings, progress=settings.progress_seconds, keepalive=KEEPALIVE
        )
        self._services: dict[ServiceDescriptor, object] = {
            session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]: SessionServicer(use_cases),
            event_service_pb2.DESCRIPTOR.services_by_name["EventService"]: EventServicer(use_cases, self._events),
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"]: RunServicer(use_cases, Runs(runs, sessions)),
            request_service_pb2.DESCRIPTOR.services_by_name["RequestService"]: RequestServicer(Requests(database)),
            server_service_pb2.DESCRIPTOR.services_by_name["ServerService"]: info,
            agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"]: AgentServicer(agents),
            access_service_pb2.DESCRIPTOR.services_by_name["AccessService"]: AccessServicer(
                Access(database, epochs, now=clock.now)
            ),
            runner_service_pb2.DESCRIPTOR.services_by_name["RunnerService"]: RunnerServicer(
                fleet, Operators(database, runners, Changes(database, epochs))
            ),
        }
        self._bench: list[grpc.GenericRpcHandler] = []
        if settings.bench:
            one = OneTransaction(database, encode, clock.now, settings.rules)
            alone = EventServicer(Sessions(one, sessions, runs, agents.pins_for), self._events)
            self._bench.append(bench.handlers(self._adapter, alone, lane))
        metrics.watch_lane(lambda: lane.waiting)

    @classmethod
    async def open(cls, database: Database, settings: Settings, metrics: Metrics) -> Self:
        """A replica that knows what time it is. Raises Refusal(STORE_UNAVAILABLE)."""
        replica = cls(database, settings, metrics)
        await replica._look_at_clock()
        return replica

    def add_to(self, server: grpc.aio.Server) -> None:
        """Registers every service."""
        for name, handlers in self._adapter.handlers(self._services):
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        server.add_generic_rpc_handlers(self._bench)

    async def start(self) -> None:
        """Begins to work."""
        self._lane.start()
        await self._hints.start()
        self._fleet.start()
        self._timers.start()
        self._queue_sweeper.start()
        self._tasks.repeat("clock", self._look_at_clock, CLOCK_SECONDS)
        self._tasks.repeat("queue", self._look_at_queue, QUEUE_LOOK_SECONDS)
        self._polled()

    def drain(self) -> None:
        """Refuses new calls, ends follows, tells runners to go elsewhere; what was admitted is carried out."""
        self._adapter.drain()
        self.drained = Drained(follows_ended=self._events.drain(), runners_told=self._fleet.drain())

    def cut(self, *, follows_only: bool = False) -> None:
        """Ends the calls that are under way; see `Adapter.cut`."""
        self._adapter.cut(follows_only=follows_only)

    @property
    def turned_away_at(self) -> float:
        """When somebody last called, or the drain began, in the time of the event loop."""
        return self._adapter.turned_away_at

    @property
    def calls(self) -> int:
        """Calls and streams under way."""
        return self._adapter.under_way

    async def close(self) -> None:
        """Stops. Nothing that was admitted is left undone."""
        await self._tasks.close()
        await self._queue_sweeper.close()
        await self._timers.close()
        await self._fleet.close()
        await self._lane.close()
        await self._hints.close()

    def healthy(self) -> bool:
        """Whether the database answered lately."""
        return time.monotonic() - self._last_poll < max(2.0, UNHEALTHY_POLLS * self._settings.safety_poll_seconds)

    def _committed(self, commits: list[Committed]) -> None:
        self._hub.publish(commits)
        self._fleet.committed(commits)
        self._hints.committed(commits)
        for commit in commits:
            if self.drained is not None:
                self.drained.writes += len(commit.events)
            for event, _ in commit.events:
                if isinstance(event.fact, AttemptEnded):
                    self._metrics.attempt_ended(event.fact.status.value)

    def _polled(self) -> None:
        self._last_poll = time.monotonic()

    async def _look_at_clock(self) -> None:
        await self._clock.look(self._session_store.now)
        self._polled()

    async def _look_at_queue(self) -> None:
        self._metrics.queue(*await self._fleet.look())
