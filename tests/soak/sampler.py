"""Looks, every few seconds, at everything that might grow."""

import asyncio
import os
import statistics
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any, Final

import grpc
import psutil
import psycopg
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from soak.load import Load
from soak.world import World

QUEUE_TABLES: Final = ("run_queue", "timers")
"""At most one row for each Session, changed with each step of a Run."""

FLEET_TABLES: Final = ("leases", "runners", "replicas", "workspace_epochs")
"""As many rows as there are processes and workspaces, changed all the time."""

SIZES: Final = """
SELECT relname, pg_total_relation_size(relid), n_live_tup, n_dead_tup FROM pg_stat_user_tables
"""
COUNTS: Final = """
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM run_queue WHERE state <> 'GONE'),
  (SELECT count(*) FROM run_queue) + (SELECT count(*) FROM timers),
  (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid())
"""
FIGURES: Final = {
    "follows": "turnlog_followers",
    "runners": "turnlog_runners_connected",
    "pool_open": "turnlog_pool_connections",
    "waiting": "turnlog_lane_waiting_commands",
}


def quantiles(values: Sequence[float]) -> dict[str, float | None]:
    """In milliseconds; None for nothing."""
    if not values:
        return {"n": 0, "p50": None, "p99": None}
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return {"n": len(values), "p50": 1000 * statistics.median(values), "p99": 1000 * p99}


class Sampler:
    """`samples` grows while `sampling` goes on."""

    def __init__(self, world: World, load: Load, pause: float) -> None:
        self._world = world
        self._load = load
        self._pause = pause
        self.started = time.monotonic()
        self._yardstick: list[float] = []
        self.samples: list[dict[str, Any]] = []

    async def sampling(self) -> None:
        """For ever."""
        measuring = asyncio.create_task(self._measure())
        try:
            while True:
                await asyncio.sleep(self._pause)
                try:
                    self.samples.append(await self.sample())
                except (psycopg.Error, OSError) as error:
                    self._load.unexpect(f"could not look: {error}")
        finally:
            measuring.cancel()

    async def _measure(self) -> None:
        """A call that does nothing, again and again: how fast the machine is at this moment."""
        async with grpc.aio.insecure_channel(self._world.replica.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while True:
                started = time.perf_counter()
                await stub.Check(health_pb2.HealthCheckRequest(service="liveness"))
                self._yardstick.append(time.perf_counter() - started)
                await asyncio.sleep(0.1)

    async def sample(self) -> dict[str, Any]:
        """All of it, of now, and the times of calls since the last look."""
        taken = {"append": self._load.appended, "lag": self._load.lags, "yardstick": self._yardstick}
        times = {name: quantiles(values) for name, values in taken.items()}
        for values in taken.values():
            values.clear()
        return {
            "t": time.monotonic() - self.started,
            "replica": process(self._world.replica.process.pid),
            "runner": process(self._world.runner.pid),
            "client": process(os.getpid()),
            "load": os.getloadavg()[0],
            **times,
            **await asyncio.to_thread(self._figures),
            **await asyncio.to_thread(self._database),
        }

    def _figures(self) -> dict[str, float]:
        """What the replica says of itself."""
        with urllib.request.urlopen(f"http://{self._world.replica.metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("state", "open") == "open"
        }
        return {name: found.get(metric, 0.0) for name, metric in FIGURES.items()}

    def _database(self) -> dict[str, Any]:
        with psycopg.connect(self._world.dsn, autocommit=True, application_name="soak") as conn:
            row = conn.execute(COUNTS).fetchone()
            assert row
            events, queued, queue_rows, connections = row
            sizes = {table["name"]: table["bytes"] for table in self._tables(conn)}
        queue, fleet = (sum(sizes[name] for name in names) for names in (QUEUE_TABLES, FLEET_TABLES))
        return {
            "events": events,
            "queued": queued,
            "connections": connections,
            "queue_rows": queue_rows,
            "queue_bytes": queue,
            "fleet_bytes": fleet,
            "log_bytes": sum(sizes.values()) - queue - fleet,
        }

    async def tables(self) -> list[dict[str, Any]]:
        """Each table: its size with its indexes, and its rows."""

        def look() -> list[dict[str, Any]]:
            with psycopg.connect(self._world.dsn, autocommit=True, application_name="soak") as conn:
                return list(self._tables(conn))

        return await asyncio.to_thread(look)

    @staticmethod
    def _tables(conn: psycopg.Connection) -> Iterator[dict[str, Any]]:
        for name, size, live, dead in conn.execute(SIZES):
            yield {"name": name, "bytes": size, "rows": live, "dead": dead}


def process(pid: int) -> dict[str, int]:
    """What one process holds."""
    looked = psutil.Process(pid)
    with looked.oneshot():
        return {"rss": looked.memory_info().rss, "fds": looked.num_fds(), "threads": looked.num_threads()}
