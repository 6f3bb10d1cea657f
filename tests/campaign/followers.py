"""Followers: every event of every Session, from where they were cut, written down as the bytes that came."""

import asyncio
import random
from typing import Any

import grpc
from campaign.clients import Open, World
from campaign.history import digest
from campaign.log_checks import ENDS
from campaign.raw_frames import bodies_of
from support.replicas import Rpc
from turnlog.v1.event_pb2 import Event
from turnlog.v1.event_service_pb2 import FollowEventsRequest, FollowEventsResponse

METHOD = "/turnlog.v1.EventService/FollowEvents"
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
            except grpc.aio.AioRpcError:
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
        bodies = bodies_of(frame) if FollowEventsResponse.FromString(frame).HasField("events") else []
        events = [Event.FromString(body) for body in bodies]
        if not events:
            return
        told = [(event.seq, digest(body)) for event, body in zip(events, bodies, strict=True)]
        self._world.history.seen(self._name, self._session.session_id, told)
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
