"""Followers: every event of every Session, from where they were cut, written down as the bytes that came."""

import asyncio
import random
from typing import Any

import grpc
from support.replicas import Refused, Rpc
from turnlog.v1.event_pb2 import Event
from turnlog.v1.event_service_pb2 import (
    FollowEventsRequest,
    FollowEventsResponse,
    FollowSessionsRequest,
    FollowSessionsResponse,
)

from campaign.clients import Open, World
from campaign.history import digest
from campaign.log_checks import ENDS
from campaign.raw_frames import bodies_of

METHOD = "/turnlog.v1.EventService/FollowEvents"
METHOD_FOR_ALL = "/turnlog.v1.EventService/FollowSessions"
TERMINAL = ("session.status_completed", "session.status_failed", "session.status_canceled")


class Follower:
    """Follows one Session, now by this replica and then by that one. `reports` keeps what clients know of it."""

    def __init__(self, world: World, session: Open, name: str, rpcs: list[Rpc], *, reports: bool) -> None:
        self._world = world
        self._session = session
        self._name = name
        self._rpcs = rpcs
        self._reports = reports
        self._random = random.Random(f"{world.seed}/{name}")
        self.session_id = session.session_id
        self.last = 0
        self.cuts = 0

    async def run(self) -> None:
        """Until the Session is over, and its log was read to the end."""
        while True:
            try:
                if await self._follow():
                    return
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    self._session.gone = True
                    return
                self.cuts += 1
            await asyncio.sleep(self._random.uniform(0.02, 0.3))

    async def _follow(self) -> bool:
        """One stream; True when it ended by itself."""
        rpc = self._random.choice(self._rpcs)
        call = rpc.channel.unary_stream(METHOD, FollowEventsRequest.SerializeToString, None)(
            FollowEventsRequest(session_id=self._session.session_id, after_seq=self.last),
            metadata=[("authorization", f"Bearer {rpc.key}")],
        )
        # Some leave by themselves; none waits for a stream on which even the promised progress does not come.
        leaves_after = self._random.choice([3, 30, 300])
        try:
            for _ in range(leaves_after):
                async with asyncio.timeout(8):
                    frame = await call.read()
                if frame is grpc.aio.EOF:
                    return await call.code() is grpc.StatusCode.OK
                self._take(frame)
        except TimeoutError:
            self.cuts += 1
        finally:
            call.cancel()
        return False

    def _take(self, frame: bytes) -> None:
        if not FollowEventsResponse.FromString(frame).HasField("events"):
            return
        events = _noted(self._world, self._name, self.session_id, frame)
        self.last = events[-1].seq
        if self._reports:
            for event in events:
                self._report(event)

    def _report(self, event: Any) -> None:
        session = self._session
        session.seen = event.seq
        if event.type == "run.queued":
            session.began += 1
            session.runs.append(event.run_id)
        elif event.type == "run.attempt_started":
            session.active = event.run_id
        elif event.type in ENDS:
            session.ended += 1
            session.active = ""
        elif event.type in TERMINAL:
            session.over = True


class FollowerOfAll:
    """Follows all Sessions that there are on one stream, and opens it again with those that came since."""

    def __init__(self, world: World, name: str, rpcs: list[Rpc]) -> None:
        self._world = world
        self._name = name
        self._rpcs = rpcs
        self._random = random.Random(f"{world.seed}/{name}")
        self.cursors: dict[str, int] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._follow()
            except TimeoutError:
                pass
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    self._world.sessions[Refused(error).metadata["id"]].gone = True
            await asyncio.sleep(self._random.uniform(0.1, 0.5))

    async def _follow(self) -> None:
        cursors = {each.session_id: self.cursors.get(each.session_id, 0) for each in self._world.sessions.values()}
        # At most 1,000 at a time: without those that were deleted, or ended and were read.
        for session_id, session in self._world.sessions.items():
            if session.gone or (session.over and cursors[session_id] >= session.seen):
                del cursors[session_id]
        if not cursors:
            return
        rpc = self._random.choice(self._rpcs)
        request = FollowSessionsRequest(
            sessions=[{"session_id": each, "after_seq": after} for each, after in cursors.items()]  # type: ignore[misc]
        )
        call = rpc.channel.unary_stream(METHOD_FOR_ALL, FollowSessionsRequest.SerializeToString, None)(
            request, metadata=[("authorization", f"Bearer {rpc.key}")]
        )
        try:
            for _ in range(self._random.choice([30, 300])):
                async with asyncio.timeout(8):
                    frame = await call.read()
                if frame is grpc.aio.EOF:
                    return
                parsed = FollowSessionsResponse.FromString(frame)
                if parsed.HasField("events"):
                    events = _noted(self._world, self._name, parsed.session_id, frame)
                    self.cursors[parsed.session_id] = events[-1].seq
        finally:
            call.cancel()


def _noted(world: World, follower: str, session_id: str, frame: bytes) -> list[Event]:
    """The events of a frame, once they are in the history."""
    bodies = bodies_of(frame)
    events = [Event.FromString(body) for body in bodies]
    told = [(event.seq, digest(body)) for event, body in zip(events, bodies, strict=True)]
    world.history.seen(follower, session_id, told)
    return events
