"""Measures Turnlog beside others that do something like it, in one run, and says which gates hold.

Ours and the peer are measured one right after the other in each repetition, each alone on the machine; a line's figure
is the median of its ratios. A peer that cannot be had here is named as not measured. Exit code 1 when a gate does not
hold.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import peer_programs as programs
import plot_peers
import psycopg
import runs
import streams
from peer_programs import Driver, Missing, free_port, running
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from table import Line, Repetition, judged, keep, machine, over, report
from unary import IN_FLIGHT
from world import HERE, KILOBYTE, Load, World, open_world, run
from yardsticks import workers

Report = dict[str, Any]
REPLAYED = 20_000
BACKLOG = 2_000
WARM_SECONDS = 2.0

LINES = (
    Line("4a", "streamed append ÷ etcd put", over("etcd", "turnlog", "peer"), 1.2, 2.5),
    Line("4b", "streamed append ÷ Redis XADD, fsync always", over("redis", "turnlog", "peer"), 1, 2),
    Line("9b", "replayed events ÷ NATS JetStream, ordered", over("nats", "turnlog", "peer"), 0.7, 1.2),
    Line("10a", "Runs, 64 callers ÷ DBOS, started directly", over("dbos", "turnlog", "peer"), 4, 10),
    Line("10a", "Runs, 64 callers ÷ DBOS, by its queue", over("dbos", "turnlog", "queue"), 4, 10),
    Line("10b", "Runs, 64 callers ÷ procrastinate", over("procrastinate", "turnlog", "peer"), 4, 10),
    Line("10c", "Runs, 64 callers ÷ Restate", over("restate", "turnlog", "peer"), 2, 5),
    Line("11a", "a Run alone, p50 ÷ Restate", over("restate", "alone", "peer_alone", "p50"), 0.75, 0.4, higher=False),
    Line(
        "11b",
        "a Run alone, p50 ÷ procrastinate",
        over("procrastinate", "alone", "peer_alone", "p50"),
        1.3,
        0.8,
        higher=False,
    ),
    Line("12", "claim and settle of a backlog ÷ eight workers", over("claims", "turnlog", "workers"), 6, 12),
)


class Bench:
    """What the peers need of a run."""

    def __init__(self, world: World, load: Load, folder: Path, seconds: float) -> None:
        self.world = world
        self.load = load
        self.folder = folder
        self.seconds = seconds
        self.versions: dict[str, str] = {}
        self._made = 0

    def fresh(self, name: str) -> Path:
        """A new folder for a peer's data; its log lies in it."""
        self._made += 1
        folder = self.folder / f"{name}-{self._made}"
        folder.mkdir()
        return folder

    @asynccontextmanager
    async def database(self, name: str) -> AsyncIterator[str]:
        """A database of its own on the PostgreSQL that Turnlog uses: its conninfo."""
        async with await psycopg.AsyncConnection.connect(self.world.dsn, autocommit=True) as conn:
            await conn.execute(f"DROP DATABASE IF EXISTS {name}".encode())
            await conn.execute(f"CREATE DATABASE {name}".encode())
            yield make_conninfo(self.world.dsn, dbname=name)
            await conn.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def etcd(bench: Bench) -> Repetition:
    """Line 4: puts of 1 KB under new keys, 64 in flight, by the same Go client that measures our unary calls."""
    program, environment = programs.debian("etcd")
    ours = await streams.streamed_append(bench.world, bench.seconds)
    data, port = bench.fresh("etcd"), free_port()
    url, between = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    command = [
        program, "--data-dir", data / "data", "--listen-client-urls", url, "--advertise-client-urls", url,
        "--listen-peer-urls", between, "--initial-advertise-peer-urls", between,
        "--initial-cluster", f"default={between}", "--quota-backend-bytes", str(4 << 30), "--logger", "zap",
    ]  # fmt: skip
    async with running(data / "log", *command, port=port, **environment):
        # Field 1 is the key, field 2 the value: where an append has its request id and its Session.
        put = bench.load.measure(
            "/etcdserverpb.KV/Put",
            IN_FLIGHT,
            bench.seconds,
            sessions=[KILOBYTE],
            warmup=WARM_SECONDS,
            address=f"127.0.0.1:{port}",
        )
        bench.versions["etcd"] = _says(program, "--version", environment)
        return {"turnlog": ours, "peer": await put}


async def redis(bench: Bench) -> Repetition:
    """Line 4: XADD of 1 KB by 64 callers of redis-py."""
    program, environment = programs.debian("redis-server")
    ours = await streams.streamed_append(bench.world, bench.seconds)
    data, port = bench.fresh("redis"), free_port()
    command = [
        program, "--bind", "127.0.0.1", "--port", str(port), "--dir", data, "--appendonly", "yes",
        "--appendfsync", "always", "--save", "",
    ]  # fmt: skip
    async with (
        running(data / "log", *command, port=port, **environment),
        Driver.start(data / "driver.log", "redis_appends.py", str(port)) as driver,
    ):
        bench.versions["redis"] = driver.version
        return {"turnlog": ours, "peer": await driver.measure(IN_FLIGHT, bench.seconds, warmup=WARM_SECONDS)}


async def nats(bench: Bench) -> Repetition:
    """Line 9: one reader of a long log, from its beginning."""
    program, environment = programs.debian("nats-server")
    log = await streams.Log.write(bench.world, REPLAYED)
    ours = [await log.replay() for _ in range(3)]
    data, port = bench.fresh("nats"), free_port()
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", data / "data"]
    async with (
        running(data / "log", *command, port=port, **environment),
        Driver.start(data / "driver.log", "nats_replay.py", str(port), str(REPLAYED)) as driver,
    ):
        bench.versions["nats"] = _says(program, "--version", environment)
        peer = [await driver.measure(1, bench.seconds) for _ in range(3)]
        return {"turnlog": _middle(ours), "peer": _middle(peer)}


async def dbos(bench: Bench) -> Repetition:
    """Line 10: workflows that are started directly, which needs no claim; beside them, those that a queue hands out."""
    ours = await _ours(bench)
    data = bench.fresh("dbos")
    async with bench.database("dbos") as dsn:
        at = conninfo_to_dict(dsn)
        url = f"postgresql://{at['user']}@/{at['dbname']}?host={quote(str(at['host']), safe='')}&port={at['port']}"
        async with Driver.start(data / "driver.log", "dbos_runs.py", url) as driver:
            bench.versions["dbos"] = driver.version
            return {**ours, **await _peer(bench, driver, queue=False), "queue": await _queue(bench, driver)}


async def _queue(bench: Bench, driver: Driver) -> Report:
    return await driver.measure(IN_FLIGHT, bench.seconds, warmup=WARM_SECONDS, queue=True)


async def procrastinate(bench: Bench) -> Repetition:
    """Lines 10 and 11: jobs that are deferred, and executed by a worker in the same process."""
    ours = await _ours(bench)
    data = bench.fresh("procrastinate")
    async with (
        bench.database("procrastinate") as dsn,
        Driver.start(data / "driver.log", "procrastinate_runs.py", dsn) as driver,
    ):
        bench.versions["procrastinate"] = driver.version
        return {**ours, **await _peer(bench, driver)}


async def restate(bench: Bench) -> Repetition:
    """Lines 10 and 11: invocations of a handler, by HTTP, with Restate's SDK for Python."""
    program = programs.restate()
    ours = await _ours(bench)
    data = bench.fresh("restate")
    admin, ingress, node, service = (free_port() for _ in range(4))
    environment = {
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    served = [programs.python(), "-m", "hypercorn", "--bind", f"127.0.0.1:{service}", "restate_service:app"]
    urls = (f"http://127.0.0.1:{port}" for port in (admin, ingress, service))
    async with (
        running(data / "log", program, "--base-dir", data / "data", port=ingress, **environment),
        running(data / "service.log", *served, port=service, PYTHONPATH=str(programs.PEER)),
        Driver.start(data / "driver.log", "restate_runs.py", *urls) as driver,
    ):
        bench.versions["restate"] = driver.version
        return {**ours, **await _peer(bench, driver)}


async def claims(bench: Bench) -> Repetition:
    """Line 12: a backlog of Runs, taken and settled by four runners over gRPC."""
    return {
        "turnlog": await runs.backlog(bench.world, BACKLOG),
        "workers": await workers(bench.world, bench.seconds),
    }


async def _ours(bench: Bench) -> Repetition:
    return {
        "turnlog": await runs.turns(bench.world, IN_FLIGHT, bench.seconds),
        "alone": await runs.turns(bench.world, 1, bench.seconds),
    }


async def _peer(bench: Bench, driver: Driver, **more: Any) -> Repetition:
    # Some take their time until they are as fast as they get.
    await driver.measure(IN_FLIGHT, WARM_SECONDS, warmup=WARM_SECONDS, **more)
    return {
        "peer": await driver.measure(IN_FLIGHT, bench.seconds, **more),
        "peer_alone": await driver.measure(1, bench.seconds, **more),
    }


def _middle(reports: list[Report]) -> Report:
    return {key: statistics.median(each[key] for each in reports) for key in reports[0]}


def _says(program: str, flag: str, environment: dict[str, str]) -> str:
    said = programs.output(program, flag, environment)
    return said.splitlines()[0].rsplit(" ", 1)[-1].removeprefix("v") if said else ""


PEERS: dict[str, Callable[[Bench], Awaitable[Repetition]]] = {
    "etcd": etcd,
    "redis": redis,
    "nats": nats,
    "dbos": dbos,
    "procrastinate": procrastinate,
    "restate": restate,
    "claims": claims,
}


async def measure(names: list[str], repetitions: int, seconds: float) -> dict[str, Any]:
    """The whole run."""
    missing: dict[str, str] = {}
    folder = Path(tempfile.mkdtemp(prefix="tl-peers-", dir="/tmp"))
    try:
        async with open_world() as (world, load):
            found: dict[str, Any] = {"machine": await machine(world), "seconds": seconds, "repetitions": []}
            bench = Bench(world, load, folder, seconds)
            await runs.turns(world, IN_FLIGHT, WARM_SECONDS)  # plans, connections and caches are there from here on
            for number in range(repetitions):
                repetition: Repetition = {}
                for name in names:
                    if name in missing:
                        continue
                    print(f"repetition {number + 1} of {repetitions}: {name}", file=sys.stderr, flush=True)
                    try:
                        repetition[name] = await PEERS[name](bench)
                    except Missing as why:
                        missing[name] = str(why)
                    except (RuntimeError, TimeoutError, grpc.aio.AioRpcError) as error:
                        # The others, and the other repetitions, are worth having all the same.
                        print(f"{name} failed: {error!r}", file=sys.stderr, flush=True)
                found["repetitions"].append(repetition)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["versions"], found["missing"] = bench.versions, missing
    lines = [judged(line, found["repetitions"]) for line in LINES]
    # Who asked for some is not told of the others.
    found["lines"] = [line for line in lines if line["ratios"] or len(names) == len(PEERS)]
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", help=f"some of {', '.join(PEERS)}; all by default")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    if unknown := set(given.peers) - set(PEERS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    found = run(measure(given.peers or list(PEERS), given.repetitions, given.seconds))
    stem = keep(found, given.results, "peers")
    plot_peers.draw(found, stem.with_suffix(".png"))
    print(report(found))
    print("measured beside " + ", ".join(f"{name} {version}" for name, version in found["versions"].items()))
    print(f"kept in {stem}.json and .png")
    return 1 if any(line["holds"] is False for line in found["lines"]) else 0


if __name__ == "__main__":
    sys.exit(main())
