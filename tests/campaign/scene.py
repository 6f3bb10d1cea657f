"""All that a campaign runs: PostgreSQL, two replicas behind proxies that cut, runners. Each can be killed."""

import asyncio
import glob
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import psutil
import psycopg
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.replicas import Live, Rpc, Space, make_space

from campaign import network
from campaign.kept import Kept
from campaign.proxy import CuttingProxy

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
LEASE_SECONDS = 7.0
DISK_MEGABYTES = 1024
SETTINGS = (
    "--safety-poll-seconds", "0.3", "--runner-lease-ttl-seconds", str(LEASE_SECONDS), "--runner-heartbeat-seconds", "1",
    "--startup-allowance-seconds", "4", "--progress-seconds", "2", "--stop-grace-seconds", "2",
    "--drain-grace-seconds", "3", "--pool-size", "4",
)  # fmt: skip
MAX_DURATION_SECONDS = 20
POSTGRES = {
    "max_connections": "60", "max_wal_size": "128MB", "min_wal_size": "64MB", "commit_siblings": "0",
    # For so long a PostgreSQL may wait that met a full disk while it recovered.
    "checkpoint_timeout": "30s",
}  # fmt: skip
FAKETIME = next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), "")


class Scene:
    """folder: where logs and all data are. real_runners: how many real ones. weather: see the proxy."""

    def __init__(self, folder: Path, seed: str, real_runners: int, weather: float) -> None:
        self.folder = folder
        self.seed = seed
        self.own_network = network.inside()
        self.disk = folder / "disk"
        self.dsn = ""
        self.proxies: list[CuttingProxy] = []
        self.servers: list[Kept] = []
        self.runners: list[Kept] = []
        self.addresses: list[str] = []
        self.space: Space
        self._real_runners = real_runners
        self._weather = weather
        self._dsn_file = folder / "dsn.json"
        self.postgres: Kept

    async def start(self) -> None:
        """Returns when calls are answered and a workspace is there."""
        if self.own_network:
            network.up()
            network.mount_memory(self.disk, DISK_MEGABYTES)
        else:
            self.disk.mkdir(parents=True)
        script = [sys.executable, str(HERE / "postgres_process.py")]
        given = [str(self.disk / "data"), str(self._dsn_file), json.dumps(POSTGRES)]
        self.postgres = Kept("postgres", [*script, *given], _environment(), self.folder)
        self.postgres.start()
        async with asyncio.timeout(60):
            while not self._dsn_file.exists():  # noqa: ASYNC110 a file is all that says it
                await asyncio.sleep(0.05)
        self.dsn = json.loads(self._dsn_file.read_text())["dsn"]
        for number in range(2):
            await self._start_server(number)
        self.space = await self._workspace()
        for proxy in self.proxies:
            proxy.begin()
        for number in range(self._real_runners):
            self._start_runner(number)

    async def stop(self) -> None:
        """Ends everything."""
        for kept in [*self.runners, *self.servers]:
            await kept.stop()
        for proxy in self.proxies:
            await proxy.stop()
        postmaster = self.postmaster()
        await self.postgres.stop()
        if postmaster is not None:
            gone = [postmaster, *postmaster.children()]
            postmaster.kill()
            await asyncio.to_thread(psutil.wait_procs, gone, 20)

    def postmaster(self) -> psutil.Process | None:
        """The process that every other of PostgreSQL is a child of."""
        try:
            found = psutil.Process(json.loads(self._dsn_file.read_text())["pid"])
            return found if found.name() == "postgres" else None
        except psutil.Error:
            return None

    def backends(self) -> list[psutil.Process]:
        """PostgreSQL's processes but the first."""
        postmaster = self.postmaster()
        try:
            return postmaster.children() if postmaster is not None else []
        except psutil.Error:
            return []

    def clock_file(self, kept: Kept) -> Path:
        """What its clock is off by; read once a second."""
        return self.folder / f"{kept.name}.clock"

    async def healthy(self, seconds: float = 90) -> None:
        """Returns when both replicas serve."""
        async with asyncio.timeout(seconds):
            for address in self.addresses:
                while not await _serves(address):  # noqa: ASYNC110 it may be killed in between
                    await asyncio.sleep(0.1)

    def admin(self) -> "psycopg.Connection[tuple]":
        """A connection past all proxies."""
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=5)

    async def _start_server(self, number: int) -> None:
        sockets = Path(f"/tmp/tlc-{os.getpid()}-{number}")
        sockets.mkdir()
        proxy = await CuttingProxy(self.dsn, sockets, f"{self.seed}/proxy-{number}", self._weather).start()
        self.proxies.append(proxy)
        address = f"127.0.0.{number + 2}:7777" if self.own_network else f"127.0.0.1:{_free_port()}"
        self.addresses.append(address)
        argv = [str(BIN / "turnlog-server"), "serve", "--listen", address, "--migrate", "--log-format", "json"]
        environment = self._clocked(f"server-{number}") | {"TURNLOG_DATABASE_URL": proxy.dsn}
        self.servers.append(Kept(f"server-{number}", [*argv, *SETTINGS], environment, self.folder))
        self.servers[-1].start()

    def _start_runner(self, number: int) -> None:
        # Every runner knows both replicas; the first address is the one it likes.
        near, far = self.addresses[number % 2], self.addresses[1 - number % 2]
        name = f"runner-{number}"
        argv = [
            str(BIN / "turnlog"), "--address", f"{near},{far}", "--plaintext", "--json", "runner", "start",
            "--harness", f"{self.space.harness}={sys.executable} -S -E {HERE / 'harness.py'}",
            "--data-dir", str(self.folder / name), "--capacity", "4", "--drain-grace", "3s",
        ]  # fmt: skip
        environment = self._clocked(name) | {"TURNLOG_KEY": self.space.runner_key}
        self.runners.append(Kept(name, argv, environment, self.folder))
        self.runners[-1].start()

    def _clocked(self, name: str) -> dict[str, str]:
        if not FAKETIME:
            return _environment()
        file = self.folder / f"{name}.clock"
        file.write_text("+0")
        return _environment() | {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
            # A clock that is set does not move the monotonic one.
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    async def _workspace(self) -> Space:
        await self.healthy()
        live = Live(self.addresses[0], self.dsn, None, self.folder)  # type: ignore[arg-type]
        return await make_space(live, max_duration=MAX_DURATION_SECONDS)

    def clean(self) -> None:
        """The data goes; logs and history stay."""
        for proxy in self.proxies:
            shutil.rmtree(proxy.folder, ignore_errors=True)
        if not self.own_network:
            shutil.rmtree(self.disk, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def _serves(address: str) -> bool:
    rpc = Rpc(address, None)
    try:
        stub = health_pb2_grpc.HealthStub(rpc.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
        return answer.status == health_pb2.HealthCheckResponse.SERVING
    except Exception as error:
        if type(error).__name__ != "AioRpcError":
            raise
        return False
    finally:
        await rpc.close()
