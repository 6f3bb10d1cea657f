"""Streams, by an asyncio client of our own (uvloop): runners that append, followers that listen, a log read again.

Messages are bytes wherever they can be: a Python client is half of the load, and what it costs is not the server's.
"""

import asyncio
import statistics
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import event_service_pb2 as events
from turnlog_server.wire.frames import varint
from world import ALONE, APPEND, EMPTY, FOLLOW, HARNESS, KILOBYTE, World

CONNECT = "/turnlog.runner.v1.RunnerService/Connect"

EVENTS_A_MESSAGE = 16
# Half of what a runner may have unacknowledged.
WINDOW = 32
PACE = 0.005
APPEND_TAG = varint(fleet.ConnectRequest.DESCRIPTOR.fields_by_name["append"].number << 3 | 2)
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]


class Runner:
    """A runner's stream with one Run of each of its Sessions, into which it appends as fast as it is acknowledged."""

    def __init__(self, world: World, text: str = KILOBYTE) -> None:
        self._channel = grpc.aio.insecure_channel(world.address, options=ALONE)
        stub: Any = self._channel.stream_stream(CONNECT, None, fleet.ConnectResponse.FromString)
        self._call = stub(metadata=(("authorization", f"Bearer {world.runner_key}"),))
        self.offers: list[fleet.Offer] = []
        self._numbers: dict[str, int] = {}
        self._writing = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        event = fleet.RunnerEvent()
        event.agent_message.parts.add(text=text)
        self._events = fleet.Append(events=[event] * EVENTS_A_MESSAGE).SerializeToString()

    async def take(self, runs: int) -> list[str]:
        """Accepts so many Runs; returns their Sessions."""
        runner_id = "rnr_" + uuid.uuid4().hex[:26].translate(str.maketrans("wxyz", "0123"))
        hello = fleet.Hello(runner_id=runner_id, instance_id=uuid.uuid4().hex, harness_profiles=[HARNESS])
        await self._send(hello=hello)
        await self._expect("welcome")
        await self._send(ready=fleet.Ready(credits=runs))
        self.offers = [await self._expect("offer") for _ in range(runs)]
        for offer in self.offers:
            accept = {name: getattr(offer, name) for name in ("session_id", "run_id", "attempt_no", "lease_token")}
            await self._send(accept=fleet.Accept(**accept))
            await self._expect("accepted")
            await self._send(harness_ready=fleet.HarnessReady(lease=self._lease(offer)))
            await self._expect("ack")
        self._beating = asyncio.create_task(self._beat())
        return [offer.session_id for offer in self.offers]

    async def append(self, seconds: float, window: int = WINDOW) -> int:
        """Appends for a while, with at most `window` messages unacknowledged; returns the events acknowledged."""
        until = time.perf_counter() + seconds
        room, acked = asyncio.Semaphore(window), 0
        sent, done = 0, asyncio.Event()
        before = dict(self._numbers)

        async def hear() -> None:
            nonlocal acked
            through = dict(before)
            while not (done.is_set() and acked == sent):
                ack = await self._expect("ack")
                assert not ack.rejections, ack
                for _ in range(ack.through - through[ack.run_id]):
                    room.release()
                acked += ack.through - through[ack.run_id]
                through[ack.run_id] = ack.through

        hearing = asyncio.create_task(hear())
        while time.perf_counter() < until:
            for offer in self.offers:
                await room.acquire()
                sent += 1
                await self._write(self._message(offer))
        done.set()
        if acked == sent:
            hearing.cancel()
        await asyncio.wait({hearing})
        return acked * EVENTS_A_MESSAGE

    async def append_once(self) -> None:
        """One message, acknowledged."""
        await self._write(self._message(self.offers[0]))
        await self._expect("ack")

    async def settle(self) -> None:
        """Ends its first Run well."""
        lease = self._lease(self.offers[0])
        await self._send(settle=fleet.Settle(lease=lease, outcome="OUTCOME_SUCCEEDED"))
        while (await self._expect("ack")).through < lease.message_no:
            pass

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(2)
            await self._send(heartbeat=fleet.Heartbeat())

    async def close(self) -> None:
        """Hangs up."""
        if self._beating is not None:
            self._beating.cancel()
        self._call.cancel()
        await self._channel.close()

    def _lease(self, offer: fleet.Offer) -> fleet.Lease:
        number = self._numbers[offer.run_id] = self._numbers.get(offer.run_id, 0) + 1
        return fleet.Lease(
            session_id=offer.session_id,
            run_id=offer.run_id,
            attempt_no=offer.attempt_no,
            lease_token=offer.lease_token,
            message_no=number,
        )

    def _message(self, offer: fleet.Offer) -> bytes:
        # What a message of two fields looks like joined from the two: the events are the same each time.
        append = fleet.Append(lease=self._lease(offer)).SerializeToString() + self._events
        return APPEND_TAG + varint(len(append)) + append

    async def _write(self, raw: bytes) -> None:
        # A heartbeat may come while an append is being written, and gRPC takes one at a time.
        async with self._writing:
            await self._call.write(raw)

    async def _send(self, **message: Any) -> None:
        await self._write(fleet.ConnectRequest(**message).SerializeToString())

    async def _expect(self, kind: str) -> Any:
        while True:
            got = await self._call.read()
            assert got is not EOF, "the runner's stream ended"
            if got.WhichOneof("message") == kind:
                return getattr(got, kind)


@asynccontextmanager
async def runners(world: World, streams: int, runs: int) -> AsyncIterator[list[Runner]]:
    """Connected runners with so many Runs each."""
    made = [Runner(world) for _ in range(streams)]
    try:
        for runner in made:
            await world.sessions(runs, turn=True)
            await runner.take(runs)
        yield made
    finally:
        await asyncio.gather(*(runner.close() for runner in made))


async def streamed_append(world: World, seconds: float) -> dict[str, Any]:
    """Line 3: four runners with eight Runs each, sixteen events of 1 KB a message."""
    async with runners(world, 4, 8) as made:
        await asyncio.gather(*(runner.append(0.3) for runner in made))
        began = time.perf_counter()
        acked = sum(await asyncio.gather(*(runner.append(seconds) for runner in made)))
        return {"events": acked, "rate": acked / (time.perf_counter() - began)}


class Followers:
    """Follows of one Session, over four connections. `heard(index, frame)` is called for each frame."""

    def __init__(self, world: World, session_id: str, count: int, after: int, heard: Any) -> None:
        self._channels = [grpc.aio.insecure_channel(world.address, options=ALONE) for _ in range(min(4, count))]
        request = events.FollowEventsRequest(session_id=session_id, after_seq=after).SerializeToString()
        self._heard = heard
        stubs = [channel.unary_stream(FOLLOW) for channel in self._channels]
        self._tasks = [
            asyncio.create_task(self._follow(index, stubs[index % len(stubs)], request, world.client.metadata))
            for index in range(count)
        ]

    async def _follow(self, index: int, stub: Any, request: bytes, metadata: Any) -> None:
        call = stub(request, metadata=metadata)
        while (frame := await call.read()) is not EOF:
            self._heard(index, frame)

    async def close(self) -> None:
        """Ends them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels))


async def live(world: World, followers: int, samples: int) -> dict[str, Any]:
    """Line 7: from the call of an append to its event at every follower, with an empty call before each."""
    (session_id,) = await world.sessions(1)
    client = world.client
    empty: Any = client.channel.unary_unary(EMPTY)
    append: Any = client.channel.unary_unary(APPEND)
    began: dict[int, float] = {}
    arrived: list[tuple[int, float]] = []
    begun = asyncio.Event()

    def heard(_: int, frame: bytes) -> None:
        now = time.perf_counter()
        arrived.extend((event.seq, now) for event in events.FollowEventsResponse.FromString(frame).events.events)
        if len(arrived) >= followers * 2:  # a new Session has two events
            begun.set()

    follows = Followers(world, session_id, followers, 0, heard)
    try:
        await begun.wait()
        arrived.clear()
        empties, acks = [], []
        for _ in range(samples):
            start = time.perf_counter()
            await empty(b"", metadata=client.metadata)
            empties.append(time.perf_counter() - start)
            names = events.AppendEventRequest(request_id=uuid.uuid4().hex, session_id=session_id).SerializeToString()
            start = time.perf_counter()
            answer = await append(names + world.interrupt, metadata=client.metadata)
            acks.append(time.perf_counter() - start)
            began[events.AppendEventResponse.FromString(answer).seq] = start
            await asyncio.sleep(PACE)
        await asyncio.sleep(0.2)
    finally:
        await follows.close()
    delays = [at - began[seq] for seq, at in arrived]
    assert len(delays) == followers * samples, (len(delays), followers, samples)
    return {
        "followers": followers,
        "p50": statistics.median(delays) * 1000,
        "ack_p50": statistics.median(acks) * 1000,
        "empty_p50": statistics.median(empties) * 1000,
    }


async def fan_out(world: World, followers: int, seconds: float) -> dict[str, Any]:
    """Line 8: one runner appends to one followed Session, never further ahead than its slowest follower."""
    async with runners(world, 1, 1) as (runner,):
        (session_id,) = (offer.session_id for offer in runner.offers)
        taken, size = [0] * followers, 0

        def heard(index: int, frame: bytes) -> None:
            taken[index] += len(frame)

        follows = Followers(world, session_id, followers, 0, heard)
        try:
            await _quiet(taken)
            before = min(taken)
            await runner.append_once()
            await _quiet(taken)
            size = min(taken) - before
            assert size > EVENTS_A_MESSAGE * 1000
            start, base, ahead, sent = time.perf_counter(), min(taken), 4, 0
            # By bytes: events differ in a few of them, and frames in how many events they hold.
            while time.perf_counter() - start < seconds:
                if sent - (min(taken) - base) / size < ahead:
                    await runner.append_once()
                    sent += 1
                else:
                    await asyncio.sleep(0)
            rate = sum(each - base for each in taken) / size * EVENTS_A_MESSAGE / (time.perf_counter() - start)
        finally:
            await follows.close()
    return {"followers": followers, "rate": rate}


async def _quiet(taken: Sequence[int]) -> None:
    """Until nothing arrives any more."""
    seen = -1
    while not min(taken) or seen != sum(taken):
        seen = sum(taken)
        await asyncio.sleep(0.2)


class Log:
    """A long log to be read again."""

    def __init__(self, world: World, session_id: str, head: int) -> None:
        self._world = world
        self.session_id = session_id
        self.head = head

    @classmethod
    async def write(cls, world: World, at_least: int) -> "Log":
        """A Session with so many events of 1 KB."""
        async with runners(world, 1, 1) as (runner,):
            written = 0
            while written < at_least:
                written += await runner.append(0.5)
            (offer,) = runner.offers
        session = await world.client.call("GetSession", session_id=offer.session_id)
        return cls(world, offer.session_id, session.session.head_seq)

    async def replay(self) -> dict[str, Any]:
        """Line 9: one follower, from the first event to the head."""
        channel = grpc.aio.insecure_channel(self._world.address, options=ALONE)
        request = events.FollowEventsRequest(session_id=self.session_id).SerializeToString()
        start, size = time.perf_counter(), 0
        call: Any = channel.unary_stream(FOLLOW)(request, metadata=self._world.client.metadata)
        while True:
            frame = await call.read()
            assert frame is not EOF
            size += len(frame)
            # A frame of a few bytes holds no events: it says that the follower has caught up.
            if len(frame) < 64:
                assert events.FollowEventsResponse.FromString(frame).HasField("caught_up")
                break
        took = time.perf_counter() - start
        call.cancel()
        await channel.close()
        assert size > self.head * 1000
        return {"events": self.head, "rate": self.head / took, "megabytes": size / took / 1e6}
