"""What a replica counts, named by the question that an operator has.

One registry of our own, and an HTTP endpoint of its own where it is asked for. Nothing here names a workspace, a
Session or a key: labels are from small closed sets.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from turnlog_server.app.settings import SettingsError
from turnlog_server.store.errors import ErrorClass

LATENCY: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0, 2.0, 5.0, 10.0, 30.0)
BATCH: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LAG: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)


# A second series beside every one, of when it was made, which nobody asks for.
disable_created_metrics()


class Endpoint(Protocol):
    """The HTTP server behind `/metrics`."""

    server_port: int

    def shutdown(self) -> None: ...
    def server_close(self) -> None: ...


class Metrics:
    """Counters, and the small methods that move them. Also the observer of the store and of the lane."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"turnlog_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"turnlog_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"turnlog_{name}", text, labels, buckets=buckets, registry=registry)

        self._ready = gauge("ready", "1 while this replica serves: its database is reachable and it is not draining.")
        self._requests = counter("requests", "Calls that ended, streams included.", "method", "code")
        self._request_seconds = histogram("request_seconds", "Time to answer unary calls.", LATENCY, "method")
        # Every call asks for these, and finding a series takes longer than moving it.
        self._requests_of, self._request_seconds_of = cache(self._requests.labels), cache(self._request_seconds.labels)
        self._streams = gauge("open_streams", "Streams that are open.", "method")
        self._refusals = counter("auth_refusals", "Calls refused for their credential or permission.", "reason")

        self._admission = histogram("admission_seconds", "From a write's arrival to its commit.", LATENCY, "method")
        self._admission_of = cache(self._admission.labels)
        self._batch = histogram("lane_batch_commands", "Commands in one commit of the lane.", BATCH)
        self._batch_seconds = histogram("lane_batch_seconds", "Time to decide and commit a batch.", LATENCY)
        self._events = counter("events_appended", "Events committed by this replica.")
        self._waiting = gauge("lane_waiting_commands", "Commands that wait for a batch.")
        self._redecided = counter("lane_redecided_commands", "Commands decided again: their Session had moved.")
        self._resolved = counter("commits_resolved", "Unknown commits found out: applied or missing.", "outcome")

        self._followers = gauge("followers", "Follows that are open.")
        self._lag = histogram("follower_lag_seconds", "From an event's commit to its delivery.", LAG)
        self._delivered = counter("events_delivered", "Events sent to followers.")
        self._stalled = counter("followers_stalled", "Follows ended because their client took nothing.")

        self.runner_seen = asyncio.Event()
        self._runners = gauge("runners_connected", "Runners whose stream is on this replica.")
        self._queue_age = gauge("queue_age_seconds", "Age of the oldest Run that waits for a runner.")
        self._queued = gauge("queued_runs", "Runs that wait for a runner, as of the last look.")
        self._rows_mended = counter("queue_rows_mended", "Rows of the queue that did not follow from a Session.", "was")
        self._offers = counter("offers", "Offers to runners by what came of them.", "result")
        self._leases_lost = counter("leases_lost", "Runners that were declared lost.")
        self._fenced = counter("messages_fenced", "Messages of attempts that their runner does not hold.")
        self._attempts = counter("attempts_ended", "Attempts by how they ended.", "status")
        self._waits = gauge("open_waits", "Approvals, questions and results that are awaited.")
        self._timers = counter("timers_fired", "Timers that came due.")

        self._retries = counter("store_failures", "Failed attempts of database operations.", "operation", "error_class")
        self._unknown = counter("commits_unknown", "Commits whose outcome was not known at once.", "operation")
        self._hints_lost = counter("hints_lost", "Times that the connection which listens for hints broke.")
        self._pool = gauge("pool_connections", "Connections of the pool: open, idle, and calls that wait.", "state")
        self._restarts = counter("embedded_postgres_restarts", "Times that the embedded PostgreSQL had died.")

    # -- calls

    def request(self, method: str, code: str, seconds: float | None = None) -> None:
        """A call ended. seconds: for unary calls only, since how long a stream lasts says nothing."""
        self._requests_of(method, code).inc()
        if seconds is not None:
            self._request_seconds_of(method).observe(seconds)

    def stream_opened(self, method: str) -> None:
        """A stream is open."""
        self._streams.labels(method).inc()

    def stream_closed(self, method: str) -> None:
        """A stream that was open has ended."""
        self._streams.labels(method).dec()

    def auth_refused(self, reason: str) -> None:
        """A call was refused for who made it."""
        self._refusals.labels(reason).inc()

    def admitted(self, method: str, seconds: float) -> None:
        """A write is committed and its caller told."""
        self._admission_of(method).observe(seconds)

    # -- the lane: LaneObserver

    def watch_lane(self, waiting: Callable[[], int]) -> None:
        """Ask this for the commands that wait, whenever somebody looks."""
        self._waiting.set_function(waiting)

    def batch(self, commands: int, events: int, seconds: float) -> None:
        """A batch is committed."""
        self._batch.observe(commands)
        self._batch_seconds.observe(seconds)
        self._events.inc(events)

    def redecided(self, commands: int) -> None:
        """Commands are decided once more."""
        self._redecided.inc(commands)

    def resolved(self, applied: int, missing: int) -> None:
        """An unknown commit is known."""
        self._resolved.labels("applied").inc(applied)
        self._resolved.labels("missing").inc(missing)

    # -- followers

    def follower_opened(self) -> None:
        """A follow begins."""
        self._followers.inc()

    def follower_closed(self) -> None:
        """A follow that began has ended."""
        self._followers.dec()

    def follower_stalled(self) -> None:
        """A follow is ended because its client takes nothing."""
        self._stalled.inc()

    def delivered(self, events: int, lag_seconds: float | None = None) -> None:
        """Events went out. lag_seconds: since the commit, where they are new."""
        self._delivered.inc(events)
        if lag_seconds is not None:
            self._lag.observe(lag_seconds)

    # -- runners

    def runner_connected(self) -> None:
        """A runner's stream is open."""
        self.runner_seen.set()
        self._runners.inc()

    def runner_gone(self) -> None:
        """A runner's stream has ended."""
        self._runners.dec()

    def queue(self, runs: int, oldest_seconds: float) -> None:
        """What the last look at the queue saw."""
        self._queued.set(runs)
        self._queue_age.set(oldest_seconds)

    def queue_row_mended(self, was: str) -> None:
        """A row was missing, stale or needless, and is right again."""
        self._rows_mended.labels(was).inc()

    def offer(self, result: str) -> None:
        """An offer was made, accepted, declined, or ran out."""
        self._offers.labels(result).inc()

    def lease_lost(self) -> None:
        """A runner is declared lost."""
        self._leases_lost.inc()

    def fenced(self) -> None:
        """A runner spoke of an attempt that is not its own."""
        self._fenced.inc()

    def attempt_ended(self, status: str) -> None:
        """An attempt ended, in a batch of this replica."""
        self._attempts.labels(status).inc()

    def open_waits(self, count: int) -> None:
        """As of the last look."""
        self._waits.set(count)

    def timer_fired(self) -> None:
        """A due timer went into the lane."""
        self._timers.inc()

    # -- the database: StoreObserver

    def pool_opened(self, stats: Callable[[], Mapping[str, int]]) -> None:
        """Ask this for the pool's figures, whenever somebody looks."""
        for state, figure in (("open", "pool_size"), ("idle", "pool_available"), ("waiting", "requests_waiting")):
            self._pool.labels(state).set_function(lambda figure=figure: stats().get(figure, 0))

    def failed(self, op: str, error_class: ErrorClass) -> None:
        """One attempt of an operation failed."""
        self._retries.labels(op, error_class.value).inc()

    def commit_unknown(self, op: str) -> None:
        """Nobody knows yet whether it was applied."""
        self._unknown.labels(op).inc()

    def hints_lost(self) -> None:
        """Hints may have been missed."""
        self._hints_lost.inc()

    def embedded_restarted(self) -> None:
        """The embedded PostgreSQL had died and is started again."""
        self._restarts.inc()

    # -- as a whole

    def ready(self, serving: bool) -> None:
        """Whether this replica serves."""
        self._ready.set(serving)

    def serve(self, address: str) -> Endpoint:
        """Answers `GET /metrics` on an address of its own, in a thread of its own.

        Raises SettingsError.
        """
        host, _, port = address.rpartition(":")
        try:
            endpoint, _ = start_http_server(int(port), host.strip("[]") or "0.0.0.0", registry=self.registry)
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(f"metrics_listen: {address} cannot be listened on: {error}.") from None
        return endpoint
