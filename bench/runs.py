"""Whole Runs: a message starts one, a runner claims, executes nothing and settles, the caller sees that it ended.

Callers have idle Sessions of their own and one follow over all of them that shows only how Runs end. Runners do what a
runner must: accept, wait until that is durable, report the harness ready, settle. All of it is an asyncio client of our
own on uvloop, in the process of the benchmark.
"""

import asyncio
import itertools
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc
from streams import CONNECT, EOF
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import event_service_pb2 as events
from world import ALONE, APPEND, HARNESS, World

FOLLOW = "/turnlog.v1.EventService/FollowSessions"
ENDS = ("run.succeeded", "run.failed", "run.interrupted", "run.canceled")
INPUT = "x" * 200
RUNNERS = 4
CREDITS = 32
# Messages that are answered and count as unacknowledged until then: the fields of accept, harness_ready and settle.
COUNTED = {3, 5, 13}
# Most of those; a server says 64.
WINDOW = 64
# Each takes some turns, so that no Session's history grows to what an Offer may hold.
SESSIONS_A_CALLER = 16

T = TypeVar("T")


class Daemon:
    """A runner that settles whatever it is offered, and keeps to what the server allows of unacknowledged messages."""

    def __init__(self, world: World, tally: "Tally") -> None:
        self._tally = tally
        self._channel = grpc.aio.insecure_channel(world.address, options=ALONE)
        stub: Any = self._channel.stream_stream(CONNECT, None, fleet.ConnectResponse.FromString)
        self._call = stub(metadata=(("authorization", f"Bearer {world.runner_key}"),))
        # By their Sessions, which have one each.
        self._offers: dict[str, fleet.Offer] = {}
        self._through: dict[str, int] = {}
        self._granted = 0
        self._outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = asyncio.Semaphore(WINDOW)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Says Hello and begins to take Runs."""
        runner_id = "rnr_" + uuid.uuid4().hex[:26].translate(str.maketrans("wxyz", "0123"))
        hello = fleet.Hello(runner_id=runner_id, instance_id=uuid.uuid4().hex, harness_profiles=[HARNESS])
        await self._call.write(_bytes(hello=hello))
        while (got := await self._call.read()).WhichOneof("message") != "welcome":
            assert got is not EOF
        assert got.welcome.max_unacked_messages >= WINDOW
        self._grant()
        self._tasks = [asyncio.create_task(each()) for each in (self._serve, self._write, self._beat)]
        self._tasks[0].add_done_callback(self._tally.ended)

    async def close(self) -> None:
        """Hangs up."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._call.cancel()
        await self._channel.close()

    async def _serve(self) -> None:
        while (got := await self._call.read()) is not EOF:
            match got.WhichOneof("message"):
                case "offer":
                    self._accept(got.offer)
                case "accepted":
                    self._room.release()
                    self._settle(self._offers[got.accepted.session_id])
                case "ack":
                    assert not got.ack.rejections, got
                    self._acked(got.ack)
                case "lease_lost":
                    # An Offer that was accepted too late: the Run comes again.
                    self._room.release()
                    self._tally.late += 1
                    del self._offers[got.lease_lost.session_id]
                case _:
                    pass

    def _accept(self, offer: fleet.Offer) -> None:
        self._offers[offer.session_id] = offer
        self._outbox.put_nowait(_bytes(accept=fleet.Accept(**_names(offer))))
        self._granted -= 1
        if self._granted <= CREDITS // 2:
            self._grant()

    def _settle(self, offer: fleet.Offer) -> None:
        lease = fleet.Lease(**_names(offer), message_no=1)
        self._outbox.put_nowait(_bytes(harness_ready=fleet.HarnessReady(lease=lease)))
        lease.message_no = 2
        self._outbox.put_nowait(_bytes(settle=fleet.Settle(lease=lease, outcome="OUTCOME_SUCCEEDED")))

    def _acked(self, ack: fleet.Ack) -> None:
        """Of the two messages of an attempt, the first may be acknowledged alone."""
        for _ in range(ack.through - self._through.pop(ack.session_id, 0)):
            self._room.release()
        if ack.through == 2:
            del self._offers[ack.session_id]
            self._tally.settle()
        else:
            self._through[ack.session_id] = ack.through

    def _grant(self) -> None:
        self._granted = CREDITS
        self._outbox.put_nowait(_bytes(ready=fleet.Ready(credits=CREDITS)))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(2)
            self._outbox.put_nowait(_bytes(heartbeat=fleet.Heartbeat()))

    async def _write(self) -> None:
        while True:
            message = await self._outbox.get()
            if message[0] >> 3 in COUNTED:
                await self._room.acquire()
            await self._call.write(message)


def _bytes(**message: Any) -> bytes:
    return fleet.ConnectRequest(**message).SerializeToString()


def _names(offer: fleet.Offer) -> dict[str, Any]:
    return {name: getattr(offer, name) for name in ("session_id", "run_id", "attempt_no", "lease_token")}


class Tally:
    """What some runners have done. Waiting for it ends when one of them fails."""

    def __init__(self) -> None:
        self.settled = self.late = 0
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._goal = 0
        self._reached = asyncio.Event()

    def settle(self) -> None:
        """One more is settled and acknowledged."""
        self.settled += 1
        if self.settled == self._goal:
            self._reached.set()

    def ended(self, serving: asyncio.Task[None]) -> None:
        """A runner's stream ended."""
        if not serving.cancelled() and not self._failure.done():
            self._failure.set_exception(serving.exception() or RuntimeError("the server ended a runner's stream"))

    async def reach(self, settled: int) -> None:
        """Until so many Runs are settled in all."""
        self._goal = settled
        if self.settled < settled:
            await self.during(self._reached.wait())

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work that needs the runners."""
        working = asyncio.create_task(work)
        await asyncio.wait({working, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            working.cancel()
            self._failure.result()
        return working.result()


@asynccontextmanager
async def daemons(world: World, count: int = RUNNERS) -> AsyncIterator[Tally]:
    """Connected runners."""
    tally = Tally()
    made = [Daemon(world, tally) for _ in range(count)]
    try:
        for daemon in made:
            await daemon.start()
        yield tally
    finally:
        await asyncio.gather(*(daemon.close() for daemon in made))


class Callers:
    """So many callers, each of which starts a Run, waits for its end, and starts the next."""

    def __init__(self, world: World, sessions: list[str], count: int) -> None:
        self._world = world
        self._channel = grpc.aio.insecure_channel(world.address, options=ALONE)
        self._append: Any = self._channel.unary_unary(APPEND)
        self._shares = [itertools.cycle(sessions[index::count]) for index in range(count)]
        self._ended: dict[str, asyncio.Future[float]] = {}
        append = events.AppendEventRequest()
        append.ParseFromString(world.message)
        append.user_message.parts[0].text = INPUT
        self._rest = append.SerializeToString()
        request = events.FollowSessionsRequest(types=ENDS)
        for session_id in sessions:
            request.sessions.add(session_id=session_id)
        self._following = asyncio.create_task(self._follow(request.SerializeToString()))
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = len(sessions)

    async def measure(self, seconds: float, warmup: float = 0.5) -> dict[str, Any]:
        """Runs per second, and milliseconds from the call to the end of the Run at the caller."""
        await self._ready
        start = time.perf_counter() + warmup
        taken: list[float] = []
        await asyncio.gather(*(self._call(share, start, start + seconds, taken) for share in self._shares))
        if len(taken) < 2:
            raise RuntimeError(f"{len(taken)} Runs ended in {seconds:g} seconds")
        return {
            "callers": len(self._shares),
            "runs": len(taken),
            "rate": len(taken) / seconds,
            "p50": statistics.median(taken) * 1000,
            "p99": statistics.quantiles(taken, n=100)[98] * 1000,
        }

    async def close(self) -> None:
        """Stops following."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._channel.close()

    async def _call(self, share: Any, start: float, stop: float, taken: list[float]) -> None:
        loop, metadata = asyncio.get_running_loop(), self._world.client.metadata
        while (began := time.perf_counter()) < stop:
            session_id = next(share)
            ended = self._ended[session_id] = loop.create_future()
            names = events.AppendEventRequest(request_id=uuid.uuid4().hex, session_id=session_id)
            await self._append(names.SerializeToString() + self._rest, metadata=metadata)
            at = await ended
            if began >= start and at < stop:
                taken.append(at - began)

    async def _follow(self, request: bytes) -> None:
        stub: Any = self._channel.unary_stream(FOLLOW, None, events.FollowSessionsResponse.FromString)
        call = stub(request, metadata=self._world.client.metadata)
        caught_up = 0
        while (frame := await call.read()) is not EOF:
            match frame.WhichOneof("frame"):
                case "events":
                    (event,) = frame.events.events
                    assert event.type == "run.succeeded", event
                    if (ended := self._ended.pop(frame.session_id, None)) is not None:
                        ended.set_result(time.perf_counter())
                case "caught_up":
                    caught_up += 1
                    if caught_up == self._wanted:
                        self._ready.set_result(None)
                case _:
                    pass


async def turns(world: World, callers: int, seconds: float) -> dict[str, Any]:
    """Lines 10 and 11, our side."""
    sessions = await world.sessions(max(64, min(1000, callers * SESSIONS_A_CALLER)), served=True)
    calling = Callers(world, sessions, callers)
    try:
        async with daemons(world) as tally:
            return await tally.during(calling.measure(seconds))
    finally:
        await calling.close()


async def backlog(world: World, count: int) -> dict[str, Any]:
    """Line 12, our side: Runs that wait before a runner is there."""
    await world.sessions(count, turn=True)
    return await drain(world, count)


async def drain(world: World, count: int) -> dict[str, Any]:
    """How many waiting Runs are settled a second, from when runners come."""
    began = time.perf_counter()
    async with daemons(world) as tally:
        await tally.reach(count)
        took = time.perf_counter() - began
    return {"runs": count, "rate": count / took, "accepted_late": tally.late}
