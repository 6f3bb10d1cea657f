"""A real server process on a database of the tests, and everything a stranger would call it with.

`Rpc` calls any RPC by its name with the raw messages of the contract; `FakeRunner` is a runner that does only what a
test tells it, over a real stream.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families
from support.engines import engine
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import (
    access_service_pb2,
    agent_service_pb2,
    event_pb2,
    event_service_pb2,
    request_service_pb2,
    run_service_pb2,
    server_service_pb2,
    session_service_pb2,
)
from turnlog_server.domain.access import Role
from turnlog_server.service.bootstrap import key_create, workspace_create
from turnlog_server.store.database import Database

SERVICES = {
    name: service
    for module in (
        access_service_pb2,
        agent_service_pb2,
        event_service_pb2,
        request_service_pb2,
        run_service_pb2,
        server_service_pb2,
        session_service_pb2,
        fleet,
    )
    for name, service in module.DESCRIPTOR.services_by_name.items()
}
METHODS = {method.name: method for service in SERVICES.values() for method in service.methods}
_numbers = itertools.count(1)

QUICK = (
    "--safety-poll-seconds", "0.2", "--runner-lease-ttl-seconds", "2", "--runner-heartbeat-seconds", "0.5",
    "--stop-grace-seconds", "1", "--startup-allowance-seconds", "2", "--progress-seconds", "0.5",
)  # fmt: skip
"""Intervals that a test can afford to wait for."""


def fresh(prefix: str = "r") -> str:
    """A name that nothing else has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


class Refused(Exception):
    """A call that ended with a status. `reason`, `metadata`, `fields` and `retry_after` come from its details."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code = error.code()
        self.message = error.details() or ""
        self.reason, self.metadata = "", {}
        self.fields: dict[str, str] = {}
        self.retry_after: float | None = None
        self.trailers = dict(error.trailing_metadata() or ())
        raw = self.trailers.get("grpc-status-details-bin")
        self.status = status_pb2.Status.FromString(raw) if raw else status_pb2.Status()
        for detail in self.status.details:
            info, bad, retry = (
                error_details_pb2.ErrorInfo(),
                error_details_pb2.BadRequest(),
                error_details_pb2.RetryInfo(),
            )
            if detail.Unpack(info):
                assert info.domain == "turnlog.dev"
                self.reason, self.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(bad):
                self.fields = {each.field: each.description for each in bad.field_violations}
            elif detail.Unpack(retry):
                self.retry_after = retry.retry_delay.ToTimedelta().total_seconds()


async def _refused(call: Any) -> Refused:
    """The status of a call that is over and was read to its end."""
    return Refused(
        grpc.aio.AioRpcError(
            await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
        )
    )


class Rpc:
    """Calls RPCs by name. `key` is sent as the bearer token; None sends none."""

    def __init__(self, address: str, key: str | None, **metadata: str) -> None:
        self.address = address
        self.key = key
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._metadata = [*(((("authorization", f"Bearer {key}"),)) if key else ()), *metadata.items()]

    async def close(self) -> None:
        await self.channel.close()

    def request(self, name: str, /, **fields: Any) -> Message:
        """The request message; a missing request_id is made up."""
        method = METHODS[name]
        if "request_id" in method.input_type.fields_by_name and not name.startswith("Get"):
            fields.setdefault("request_id", fresh())
        return GetMessageClass(method.input_type)(**fields)

    async def call(self, name: str, /, timeout: float | None = 30, **fields: Any) -> Any:
        """A unary call. Raises Refused."""
        return await self.send(name, self.request(name, **fields).SerializeToString(), timeout=timeout)

    async def send(self, name: str, raw: bytes, timeout: float | None = 30) -> Any:
        """A unary call with bytes of the caller's own."""
        method = METHODS[name]
        response = GetMessageClass(method.output_type)
        stub = self.channel.unary_unary(f"/{method.containing_service.full_name}/{name}", None, response.FromString)
        try:
            return await stub(raw, metadata=self._metadata, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from None

    def stream(self, name: str, /, timeout: float | None = None, **fields: Any) -> "Follow":
        """A server stream."""
        method = METHODS[name]
        response = GetMessageClass(method.output_type)
        stub = self.channel.unary_stream(f"/{method.containing_service.full_name}/{name}", None, response.FromString)
        raw = self.request(name, **fields).SerializeToString()
        return Follow(stub(raw, metadata=self._metadata, timeout=timeout))

    def connect(self) -> grpc.aio.StreamStreamCall:
        """The runner's stream."""
        stub = self.channel.stream_stream(
            "/turnlog.runner.v1.RunnerService/Connect",
            fleet.ConnectRequest.SerializeToString,
            fleet.ConnectResponse.FromString,
        )
        return stub(metadata=self._metadata)


class Follow:
    """A follow under way: frames one by one, or what is in them."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.seq = 0
        self.frames: list[Any] = []
        # Events of a frame behind the one that was asked for.
        self._behind: list[event_pb2.Event] = []

    async def frame(self, timeout: float = 30) -> Any:
        """The next frame; None at the end with OK. Raises Refused."""
        try:
            async with asyncio.timeout(timeout):
                got = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from None
        if got is grpc.aio.EOF:
            if await self.call.code() is not grpc.StatusCode.OK:
                raise await _refused(self.call)
            return None
        self.frames.append(got)
        return got

    async def until(self, kind: str, timeout: float = 30) -> list[event_pb2.Event]:
        """Events up to the next frame of this kind (`caught_up`, `end`, …)."""
        events, self._behind = self._behind, []
        while (frame := await self.frame(timeout)) is not None:
            events.extend(frame.events.events)
            if frame.WhichOneof("frame") == kind:
                return events
        raise AssertionError(f"the stream ended before a {kind} frame")

    async def events(self, count: int, timeout: float = 30) -> list[event_pb2.Event]:
        """The next `count` events, at least."""
        events, self._behind = self._behind, []
        while len(events) < count:
            frame = await self.frame(timeout)
            assert frame is not None, "the stream ended"
            events.extend(frame.events.events)
        return events

    async def event(self, type_: str, timeout: float = 30) -> event_pb2.Event:
        """The next event of this type; what came before is dropped."""
        while True:
            events = await self.events(1, timeout)
            for index, event in enumerate(events):
                if event.type == type_:
                    self._behind = events[index + 1 :]
                    return event

    def cancel(self) -> None:
        self.call.cancel()


@dataclass
class Live:
    """A server process."""

    address: str
    dsn: str
    process: asyncio.subprocess.Process
    log: Path
    metrics: str = ""
    _rpcs: list[Rpc] = field(default_factory=list)

    def rpc(self, key: str | None, **metadata: str) -> Rpc:
        """A client on a connection of its own."""
        rpc = Rpc(self.address, key, **metadata)
        self._rpcs.append(rpc)
        return rpc

    async def close(self) -> None:
        for rpc in self._rpcs:
            await rpc.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def logged(self, message: str) -> dict[str, Any]:
        """The first line of its log with this message; empty where there is none."""
        return _logged(self.log, message)

    async def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """All figures of this name as they now stand, each with its labels."""

        def read() -> str:
            with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as answer:
                return answer.read().decode()

        families = text_string_to_metric_families(await asyncio.to_thread(read))
        return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]

    async def metric(self, name: str, **labels: str) -> float:
        """A figure of its metrics as it now stands; 0 where nothing was counted yet."""
        samples = await self.samples(name)
        return next((value for found, value in samples if labels.items() <= found.items()), 0.0)

    async def until_metric(self, name: str, value: float, timeout: float = 30, **labels: str) -> None:
        """Looks until the figure is this one."""
        async with asyncio.timeout(timeout):
            while True:
                if await self.metric(name, **labels) == value:
                    return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def live_replica(
    dsn: str,
    *arguments: str,
    listen: str = "127.0.0.1:0",
    environment: dict[str, str] | None = None,
    program: Sequence[str] = (),
) -> AsyncIterator[Live]:
    """`turnlog-server serve` on this database until the block ends; a test may kill it earlier."""
    program = program or (str(Path(sys.executable).parent / "turnlog-server"),)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TURNLOG_")}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "server.log")
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *program, "serve", "--listen", listen, "--log-format", "json", "--log-level", "info",
                "--metrics-listen", "127.0.0.1:0", *arguments,
                env=clean | engine.for_process(dsn) | (environment or {}), stderr=errors,
                stdout=asyncio.subprocess.DEVNULL, cwd=folder,
            )  # fmt: skip
        live = Live("", dsn, process, log)
        try:
            live.address = await _serving(process, log)
            live.metrics = f"127.0.0.1:{_logged(log, 'metrics')['port']}"
            yield live
        finally:
            await live.close()
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.wait()


def _tail(log: Path) -> str:
    """What it said last."""
    return log.read_text()[-3000:]


async def _serving(process: asyncio.subprocess.Process, log: Path) -> str:
    """Where it listens, once its health says SERVING."""
    async with asyncio.timeout(60):
        address = ""
        while not address:
            address = _logged(log, "listening").get("address", "")
            if process.returncode is not None:
                raise AssertionError("the server ended: " + _tail(log))
            await asyncio.sleep(0.02)
        async with grpc.aio.insecure_channel(address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            async for update in watch:
                if update.status == health_pb2.HealthCheckResponse.SERVING:
                    return address
    raise AssertionError("the server never served: " + _tail(log))


def _logged(log: Path, message: str) -> dict[str, Any]:
    """The first line of a server's log with this message."""
    for line in log.read_text().splitlines():
        if line.startswith("{") and line.endswith("}") and json.loads(line)["message"] == message:
            return json.loads(line)
    return {}


@dataclass
class Space:
    """A workspace with a deployment, and keys for it."""

    workspace_id: str
    key: str
    subject: str
    runner_key: str
    deployment_id: str
    harness: str
    live: Live
    rpc: Rpc

    def on(self, live: Live) -> "Space":
        """The same workspace by another replica."""
        return replace(self, live=live, rpc=live.rpc(self.key))

    async def session(self, text: str = "", **fields: Any) -> Any:
        """A new Session; with a text, its first turn. Returns the CreateSession answer."""
        if text:
            fields["first_message"] = {"parts": [{"text": text}]}
        fields.setdefault("agent_deployment_id", self.deployment_id)
        return await self.rpc.call("CreateSession", **fields)

    async def say(self, session_id: str, text: str = "hello", **fields: Any) -> Any:
        """Appends a message."""
        fields.setdefault("authored_by", self.subject)
        fields.setdefault("caused_by", {"kind": "KIND_API"})
        return await self.rpc.call(
            "AppendEvent", session_id=session_id, user_message={"parts": [{"text": text}]}, **fields
        )

    async def interrupt(self, session_id: str, **fields: Any) -> Any:
        """Appends an interrupt."""
        return await self.rpc.call(
            "AppendEvent",
            session_id=session_id,
            authored_by=self.subject,
            caused_by={"kind": "KIND_API"},
            user_interrupt=fields,
        )

    async def log(self, session_id: str) -> list[event_pb2.Event]:
        """The whole log, by pages."""
        events: list[event_pb2.Event] = []
        token = ""
        while True:
            page = await self.rpc.call("ListEvents", session_id=session_id, page_size=1000, page_token=token)
            events.extend(page.events)
            token = page.next_page_token
            if not token:
                return events

    async def get(self, session_id: str) -> Any:
        """The Session."""
        return (await self.rpc.call("GetSession", session_id=session_id)).session

    async def key_for(self, role: Role, *pools: str) -> str:
        """The key of a new service account with this role."""
        db = await Database.open(self.live.dsn, pool_size=2)
        try:
            made = await key_create(db, self.workspace_id, role=role, display_name=fresh("key"), runner_pools=pools)
            return made.secret
        finally:
            await db.close()

    @asynccontextmanager
    async def runner(self, **hello: Any) -> AsyncIterator["FakeRunner"]:
        """A runner that does what the test says, connected and welcomed."""
        rpc = Rpc(hello.pop("address", self.live.address), hello.pop("key", None) or self.runner_key)
        runner = FakeRunner(rpc, harness=self.harness, **hello)
        try:
            await runner.welcome()
            yield runner
        finally:
            runner.hang_up()
            await rpc.close()


async def make_space(live: Live, *, tools: tuple[str, ...] = ("search",), max_duration: int = 600) -> Space:
    """A workspace of its own with one deployment. Needs no runner."""
    db = await Database.open(live.dsn, pool_size=2)
    try:
        made = await workspace_create(db, fresh("workspace"))
        workspace_id = made.workspace.workspace_id
        rpc = live.rpc(made.secret)
        runner = await key_create(db, workspace_id, role=Role.RUNNER, display_name="runners", runner_pools=("default",))
    finally:
        await db.close()
    harness = (await rpc.call("CreateHarnessProfile", name="scripted")).harness_profile
    sandbox = (await rpc.call("CreateSandboxProfile", name="box", max_duration_seconds=max_duration)).sandbox_profile
    agent = (await rpc.call("CreateAgent", name="helper")).agent
    await rpc.call(
        "PublishAgentVersion",
        agent_id=agent.agent_id,
        instructions="Help.",
        tools=[{"name": tool} for tool in tools],
    )
    deployment = (await rpc.call("CreateDeployment", name="helper")).agent_deployment
    await rpc.call(
        "PublishDeploymentRevision",
        agent_deployment_id=deployment.agent_deployment_id,
        agent_id=agent.agent_id,
        harness_profile_id=harness.harness_profile_id,
        sandbox_profile_id=sandbox.sandbox_profile_id,
    )
    return Space(
        workspace_id,
        made.secret,
        made.manager.subject_id,
        runner.secret,
        deployment.agent_deployment_id,
        "scripted",
        live,
        rpc,
    )


class FakeRunner:
    """A runner's stream in a test's hands: `send` anything, `expect` the next message of a kind.

    beats: once welcomed it says by itself that it lives, as often as it was told to.
    """

    def __init__(
        self,
        rpc: Rpc,
        *,
        harness: str,
        runner_id: str = "",
        instance_id: str = "",
        beats: bool = True,
        **hello: Any,
    ) -> None:
        self.rpc = rpc
        self.beats = beats
        self.runner_id = runner_id or "rnr_" + uuid.uuid4().hex[:26].translate(str.maketrans("wxyz", "0123"))
        self.instance_id = instance_id or uuid.uuid4().hex
        self.call = rpc.connect()
        self.messages: dict[tuple[str, int], int] = {}
        self.seen: list[Any] = []
        self._hello = {"harness_profiles": [harness]} | hello
        self._writing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None

    async def send(self, **message: Any) -> None:
        """One message, by its arm's name."""
        async with self._writing:
            await self.call.write(fleet.ConnectRequest(**message))

    async def receive(self, timeout: float = 20) -> Any:
        """The next message. Raises Refused when the stream ended with a status, EOFError when it ended OK."""
        try:
            async with asyncio.timeout(timeout):
                got = await self.call.read()
        except grpc.aio.AioRpcError as error:
            raise Refused(error) from None
        if got is grpc.aio.EOF:
            if await self.call.code() is not grpc.StatusCode.OK:
                raise await _refused(self.call)
            raise EOFError(str(await self.call.code()))
        self.seen.append(got)
        return got

    async def expect(self, kind: str, timeout: float = 20) -> Any:
        """The next message of this kind; others are kept in `seen`."""
        while True:
            got = await self.receive(timeout)
            if got.WhichOneof("message") == kind:
                return getattr(got, kind)

    async def refused(self, timeout: float = 20) -> Refused:
        """With what status the stream ends."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self.receive(timeout)
        except Refused as refused:
            return refused

    async def welcome(self) -> Any:
        """Says Hello and waits for Welcome."""
        hello = fleet.Hello(runner_id=self.runner_id, instance_id=self.instance_id, **self._hello)
        # A stream that the server has ended takes no Hello; its status says why.
        with contextlib.suppress(asyncio.InvalidStateError):
            await self.send(hello=hello)
        welcome = await self.expect("welcome")
        if self.beats:
            self._beating = asyncio.create_task(self._beat(welcome.heartbeat_interval.ToTimedelta().total_seconds()))
        return welcome

    async def _beat(self, seconds: float) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while self.beats:
                await asyncio.sleep(seconds)
                await self.send(heartbeat=fleet.Heartbeat())

    async def offer(self, credits: int = 1, timeout: float = 20) -> fleet.Offer:
        """Grants credits and waits for an Offer."""
        await self.send(ready=fleet.Ready(credits=credits))
        return await self.expect("offer", timeout)

    async def accept(self, offer: fleet.Offer) -> fleet.Accepted:
        """Takes an Offer."""
        await self.send(accept=accept_of(offer))
        return await self.expect("accepted")

    def lease(self, offer: fleet.Offer, message_no: int | None = None) -> fleet.Lease:
        """The proof of an attempt, with the next number unless one is given."""
        key = (offer.run_id, offer.attempt_no)
        if message_no is None:
            message_no = self.messages[key] = self.messages.get(key, 0) + 1
        return fleet.Lease(
            session_id=offer.session_id,
            run_id=offer.run_id,
            attempt_no=offer.attempt_no,
            lease_token=offer.lease_token,
            message_no=message_no,
        )

    async def start(self, credits: int = 1) -> fleet.Offer:
        """Offer, Accept, HarnessReady, acknowledged: the Run is running."""
        offer = await self.offer(credits)
        await self.accept(offer)
        await self.ready(offer)
        return offer

    async def ready(self, offer: fleet.Offer) -> None:
        """HarnessReady, acknowledged."""
        await self.send(harness_ready=fleet.HarnessReady(lease=self.lease(offer)))
        await self.expect("ack")

    async def append(self, offer: fleet.Offer, *texts: str, **event: Any) -> Any:
        """Appends messages of the agent, or one event of any kind; returns the Ack."""
        events = [fleet.RunnerEvent(**event)] if event else [said(text) for text in texts]
        await self.send(append=fleet.Append(lease=self.lease(offer), events=events))
        return await self.expect("ack")

    async def settle(self, offer: fleet.Offer, outcome: str = "OUTCOME_SUCCEEDED", **fields: Any) -> Any:
        """Ends the Run; returns the Ack."""
        await self.send(settle=fleet.Settle(lease=self.lease(offer), outcome=outcome, **fields))
        return await self.expect("ack")

    def hang_up(self) -> None:
        """Cuts the stream without a goodbye."""
        if self._beating is not None:
            self._beating.cancel()
        self.call.cancel()


def accept_of(offer: fleet.Offer, **other: Any) -> fleet.Accept:
    """The Accept of an Offer, or what is to look like one."""
    fields = ("session_id", "run_id", "attempt_no", "lease_token")
    return fleet.Accept(**{name: getattr(offer, name) for name in fields} | other)


def said(text: str) -> fleet.RunnerEvent:
    """A message of the agent."""
    event = fleet.RunnerEvent()
    event.agent_message.parts.add(text=text)
    return event
