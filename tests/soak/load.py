"""A modest load of everything that clients do. Each `_step` is done again and again until the load stops."""

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from soak.talk import Hot, Talker, settled
from support.replicas import Refused, Rpc, Space, fresh
from turnlog_client.errors import TurnlogError

AGAIN: Final = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
Step = Callable[[str], Awaitable[None]]
# How many of the unexpected are told.
TOLD: Final = 20
# Revocation is seen by every replica after a safety poll; the rest is the machine.
REVOKED_SECONDS: Final = 30
# Longer than anything here is patient.
END_SECONDS: Final = 120


class Load:
    """`running` is the load. `calls`, `refused` and `unexpected` are what it saw; the sampler takes the times."""

    def __init__(self, space: Space, addresses: tuple[str, str], seed: int) -> None:
        self.space = space
        self.addresses = addresses
        self.random = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self.appended: list[float] = []
        self.lags: list[float] = []
        self.recent: deque[str] = deque(maxlen=100)
        self.hot: dict[int, Hot] = {}
        self._over = asyncio.Event()
        self._rpcs: dict[str, Rpc] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The load, until the block ends and every step that was begun has ended."""
        self._over.clear()
        self._rpcs = {address: Rpc(address, self.space.key) for address in self.addresses}
        tasks = [asyncio.create_task(self._again(step, address)) for step, address in self._steps()]
        try:
            yield
        finally:
            self._over.set()
            await self._ended(tasks)
            for rpc in self._rpcs.values():
                await rpc.close()

    async def _ended(self, tasks: list[asyncio.Task[None]]) -> None:
        """Waits for what was begun. What does not come to its end is told and given up."""
        _, late = await asyncio.wait(tasks, timeout=END_SECONDS)
        for task in late:
            task.cancel()
            where = ", ".join(frame.f_code.co_name for frame in task.get_stack())
            self.unexpect(f"{task.get_coro()} had not ended {END_SECONDS} seconds after the load: {where}")
        await asyncio.gather(*tasks, return_exceptions=True)

    def _steps(self) -> Iterable[tuple[Step, str]]:
        for at, address in enumerate(self.addresses):
            for number in range(2):
                yield lambda address, slot=2 * at + number: self._work(slot, address), address
            for step in (self._talk, *[self._follow] * 4, self._read, self._refuse, self._hurry):
                yield step, address
        yield self._rotate, self.addresses[0]

    async def _again(self, step: Step, address: str) -> None:
        name = getattr(step, "__name__", "step").strip("_").replace("<lambda>", "work")
        while not self._over.is_set():
            try:
                await step(address)
                self.calls[name] += 1
            except (Refused, TurnlogError) as error:
                if error.code in AGAIN:
                    self.refused[error.code.name] += 1
                else:
                    self.unexpect(f"{name}: {error}")
                await self._pause(0.2)
            except Exception as error:
                self.unexpect(f"{name}: {type(error).__name__}: {error}")
                await self._pause(0.2)

    def unexpect(self, what: str) -> None:
        """Something that no load and no fault explains."""
        if len(self.unexpected) < TOLD:
            self.unexpected.append(f"{time.strftime('%H:%M:%S')} {what}")

    async def _pause(self, seconds: float) -> None:
        """A think time, cut short by the end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds * self.random.uniform(0.5, 1.5))

    def _any_session(self) -> str:
        return self.random.choice([*self.recent, *(hot.session_id for hot in self.hot.values())] or [""])

    # -- what clients do

    async def _work(self, slot: int, address: str) -> None:
        """One long Session: message after message, each repeated until it is acknowledged, then all is compared."""
        made = await self._sure(address, "CreateSession", agent_deployment_id=self.space.deployment_id)
        hot = self.hot[slot] = Hot(made.session.session_id)
        timed = address == self.addresses[0]
        for _ in range(self.random.randint(30, 120)):
            if self._over.is_set():
                break
            started = time.perf_counter()
            tries = self.refused.total()
            ack = await self._sure(address, "AppendEvent", **self._message(hot.session_id, text := fresh("said")))
            hot.acked[text] = ack.seq
            if timed and self.refused.total() == tries:
                self.appended.append(time.perf_counter() - started)
            await self._pause(0.6)
        for what in await settled(self._rpcs[address], hot, AGAIN):
            self.unexpect(what)
        await self._sure(address, "CompleteSession", session_id=hot.session_id)

    async def _talk(self, address: str) -> None:
        """A Session by the SDK, from its creation to its end."""
        async with Talker.connected(address, self.space, self.random) as talker:
            async for session_id in talker.session():
                self.recent.append(session_id)
                await self._pause(1)

    async def _follow(self, address: str) -> None:
        """A follow that comes, sees and goes away, mostly without a word."""
        if not self.hot:
            return await self._pause(0.2)
        session_id = self.random.choice([*self.hot.values()]).session_id
        follow = self._rpcs[address].stream("FollowEvents", session_id=session_id)
        until = time.monotonic() + self.random.uniform(0.2, 15)
        seq, live = 0, False
        try:
            while time.monotonic() < until and not self._over.is_set():
                frame = await follow.frame()
                if frame is None:
                    return None
                for event in frame.events.events:
                    if event.seq != seq + 1:
                        self.unexpect(f"a follow of {session_id} had {event.seq} after {seq}")
                    seq = event.seq
                    if live:
                        self.lags.append(time.time() - event.create_time.ToNanoseconds() / 1e9)
                live = live or frame.WhichOneof("frame") == "caught_up"
                follow.frames.clear()
        finally:
            follow.cancel()

    async def _read(self, address: str) -> None:
        """Looks at this and that."""
        rpc, session_id = self._rpcs[address], self._any_session()
        if session_id:
            try:
                page = await rpc.call("ListEvents", session_id=session_id, page_size=50)
                if [event.seq for event in page.events] != list(range(1, len(page.events) + 1)):
                    self.unexpect(f"a page of {session_id} had a gap")
                await rpc.call("GetSession", session_id=session_id)
                await rpc.call("ListRuns", session_id=session_id, page_size=20)
            except Refused as refused:
                if refused.code is not grpc.StatusCode.NOT_FOUND:
                    raise
        await rpc.call("ListSessions", page_size=20)
        await self._pause(0.4)

    async def _hurry(self, address: str) -> None:
        """Callers that do not wait: by deadline, or by hanging up."""
        rpc = self._rpcs[address]
        made = await rpc.call("CreateSession", agent_deployment_id=self.space.deployment_id)
        for _ in range(self.random.randint(1, 8)):
            moment = self.random.uniform(0.0002, 0.02)
            fields = self._message(made.session.session_id, fresh("hurried"))
            with contextlib.suppress(TimeoutError):
                if self.random.random() < 0.5:
                    await rpc.call("AppendEvent", timeout=moment, **fields)
                else:
                    await asyncio.wait_for(rpc.call("AppendEvent", **fields), moment)
            await self._pause(1)

    async def _refuse(self, address: str) -> None:
        """What must be refused, and as what."""
        rpc, space = self._rpcs[address], self.space
        taken = {"agent_deployment_id": space.deployment_id, "request_id": fresh("taken")}
        await rpc.call("CreateSession", **taken)
        code = grpc.StatusCode
        wanted: list[tuple[str | None, str, dict[str, Any], grpc.StatusCode]] = [
            (space.key, "CreateSession", taken | {"labels": {"other": "body"}}, code.ALREADY_EXISTS),
            (space.key, "GetSession", {"session_id": "sess_" + "0" * 26}, code.NOT_FOUND),
            (space.key, "AppendEvent", {"session_id": "sess_" + "0" * 26}, code.INVALID_ARGUMENT),
            (space.runner_key, "CreateSession", {"agent_deployment_id": space.deployment_id}, code.PERMISSION_DENIED),
            ("tlk_no", "ListSessions", {}, code.UNAUTHENTICATED),
            (None, "ListSessions", {}, code.UNAUTHENTICATED),
        ]
        key, name, fields, expected = self.random.choice(wanted)
        async with contextlib.aclosing(_Once(address, key)) as once:
            got = await once.code(name, **fields)
        if got is not expected and got not in AGAIN:
            self.unexpect(f"{name} was to be {expected.name} and was {got.name}")
        await self._pause(1)

    async def _rotate(self, address: str) -> None:
        """A key is made, used, rotated, used and revoked; what is over is refused by every replica."""
        made = await self._sure(address, "CreateApiKey", subject=self.space.subject, display_name="rotated")
        rotated = await self._rpcs[address].call("RotateApiKey", api_key_id=made.api_key.api_key_id)
        for other in self.addresses:
            await self._until_refused(other, made.secret)
        await self._sure(address, "RevokeApiKey", api_key_id=rotated.api_key.api_key_id)
        for other in self.addresses:
            await self._until_refused(other, rotated.secret)
        await self._pause(2)

    # -- how they do it

    def _message(self, session_id: str, text: str) -> dict[str, Any]:
        return {
            "session_id": session_id, "authored_by": self.space.subject, "caused_by": {"kind": "KIND_API"},
            "user_message": {"parts": [{"text": text}]},
        }  # fmt: skip

    async def _sure(self, address: str, name: str, **fields: Any) -> Any:
        """A change under one request id, until it is acknowledged."""
        fields["request_id"] = fresh()
        while True:
            try:
                return await self._rpcs[address].call(name, **fields)
            except Refused as refused:
                if refused.code not in AGAIN:
                    raise
                self.refused[refused.code.name] += 1
                await asyncio.sleep(0.2)

    async def _until_refused(self, address: str, key: str) -> None:
        async with asyncio.timeout(REVOKED_SECONDS), contextlib.aclosing(_Once(address, key)) as once:
            while True:
                if await once.code("ListSessions", page_size=1) is grpc.StatusCode.UNAUTHENTICATED:
                    return
                await asyncio.sleep(0.1)


class _Once:
    """A connection for a moment, which is one more that comes and goes."""

    def __init__(self, address: str, key: str | None) -> None:
        self._rpc = Rpc(address, key)

    async def code(self, name: str, **fields: Any) -> grpc.StatusCode:
        try:
            await self._rpc.call(name, **fields)
        except Refused as refused:
            return refused.code
        return grpc.StatusCode.OK

    async def aclose(self) -> None:
        await self._rpc.close()
