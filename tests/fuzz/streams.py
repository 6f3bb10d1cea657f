"""The runners' stream: a state that a well-behaved runner reaches, and from there on whatever comes."""

import asyncio
import uuid
from collections.abc import Iterator
from random import Random

import grpc
from support.replicas import Refused, Space
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import error_pb2

from fuzz.calls import Tally, send
from fuzz.corpus import Entry
from fuzz.grammar import Names
from fuzz.messages import RUNNER_STREAM, SESSION_CALLS, Call, body, proven, runner_message
from fuzz.oracle import Answer, of_error

STATES = ("none", "hello", "credit", "offered", "accepted", "running", "appended", "settled", "gone")
# Where a message can do most comes more often.
WANTED = (*STATES, *("running",) * 12, "accepted")
PATH = "/turnlog.runner.v1.RunnerService/Connect"
ANSWER_SECONDS = 20.0
OFFER_SECONDS = 1.0
BURST = 12
# What gRPC's client says itself.
LOCAL = "Internal error from Core"
INTERNAL = error_pb2.ERROR_REASON_INTERNAL


class NothingToDo(Exception):
    """There is no Run for this runner."""


class Episode:
    """One stream from its first message to its end.

    first: the state that it begins in. sent: what was fuzzed, as bytes. fault: what is wrong with how it went.
    """

    def __init__(self, channel: grpc.aio.Channel, space: Space, names: Names, rng: Random, tally: Tally) -> None:
        self.sent: list[bytes] = []
        self.state = "none"
        self.fault = ""
        self._space = space
        self._names = names.copy()
        self._rng = rng
        self.first = rng.choice(WANTED)
        self._tally = tally
        self._call = channel.stream_stream(PATH, None, fleet.ConnectResponse.FromString)(
            metadata=(("authorization", f"Bearer {space.runner_key}"),)
        )
        self._given: Iterator[bytes] | None = None
        self._offer: fleet.Offer | None = None
        self._through = 0
        self._runner_id = "rnr_" + "".join(rng.choice("0123456789abcdefghijklmnopqrstuv") for _ in range(26))

    @classmethod
    def again(cls, channel: grpc.aio.Channel, space: Space, names: Names, entry: Entry, tally: Tally) -> "Episode":
        """One that sends what a file of the corpus has, in the state that it was sent in."""
        episode = cls(channel, space, names, Random(0), tally)
        episode._given = iter(entry.messages(names))
        episode.first = entry.state
        return episode

    async def play(self, budget: int) -> None:
        """Sends up to so many fuzzed messages; fewer where the stream ends before."""
        try:
            await self._reach(self.first)
            while len(self.sent) < budget and not self.fault:
                await self._burst(min(budget - len(self.sent), self._rng.randint(1, BURST)))
                await self._echo()
                if self._rng.random() < 0.3:
                    await self._reach(self._rng.choice(WANTED))
        except (EOFError, asyncio.InvalidStateError):
            await self._ended()
        except NothingToDo:
            self._tally.end(RUNNER_STREAM, "stream without a Run")
        except Refused as refused:
            self.fault = f"a Session for it: {refused}"
        except grpc.aio.AioRpcError as error:
            self._judge(of_error(error))
        except TimeoutError:
            open_here = await self._space.live.metric("turnlog_open_streams", method="Connect")
            self.fault = (
                f"no answer within {ANSWER_SECONDS:g} seconds in the state {self.state}, first {self.first!r}; "
                f"streams open at the server: {open_here:g}"
            )
        finally:
            self._call.cancel()

    async def _burst(self, count: int) -> None:
        for _ in range(count):
            if self._offer is not None and self._given is None and self._rng.random() < 0.05:
                await self._meanwhile()
            self._names.by_field["message_no"] = [self._through + 1]
            raw = next(self._given) if self._given is not None else runner_message(self._rng, self._names)
            if self._offer is not None and (self._given is not None or self._rng.random() < 0.93):
                raw = proven(self._rng, raw, self._lease(self._offer))
            self.sent.append(raw)
            self._tally.messages += 1
            await self._call.write(raw)

    async def _meanwhile(self) -> None:
        """A caller does something to the Session whose Run this is."""
        method = self._rng.choice(SESSION_CALLS)
        made = Call(method, body(self._rng, method, self._names), [("authorization", f"Bearer {self._space.key}")])
        self.fault = self.fault or await send(self._space.rpc.channel, made, self._tally)

    async def _echo(self) -> None:
        """Waits until the server has read all of it: it answers an Accept of nothing at once, or the stream is over."""
        if self.state == "none":
            # Whatever the first message was, it was the Hello.
            self.state = "hello"
            await self._read()
        mark = "run_" + uuid.uuid4().hex
        await self._say(accept=fleet.Accept(session_id="sess_0", run_id=mark, attempt_no=1, lease_token=bytes(16)))
        while (await self._read()).lease_lost.run_id != mark:
            pass

    async def _say(self, **message: object) -> None:
        await self._call.write(fleet.ConnectRequest(**message).SerializeToString())  # type: ignore[arg-type]

    async def _read(self, seconds: float = ANSWER_SECONDS) -> fleet.ConnectResponse:
        async with asyncio.timeout(seconds):
            got = await self._call.read()
        if got is grpc.aio.EOF:
            raise EOFError
        if got.HasField("offer"):
            self._offer = got.offer
            self._names.learn(got.offer)
        elif got.HasField("ack"):
            if self._offer is not None and got.ack.run_id == self._offer.run_id:
                self._through = max(self._through, got.ack.through)
            if any(each.reason == INTERNAL for each in got.ack.rejections):
                self.fault = f"an Ack that says INTERNAL: {got.ack.rejections[0].message[:200]}"
        return got

    async def _until(self, *kinds: str) -> str:
        while (kind := (await self._read()).WhichOneof("message")) not in kinds:
            pass
        return kind

    async def _ended(self) -> None:
        code = await self._call.code()
        raw = dict(await self._call.trailing_metadata() or ()).get("grpc-status-details-bin")
        self._judge(Answer(code, await self._call.details() or "", raw if isinstance(raw, bytes) else None))

    def _judge(self, answer: Answer) -> None:
        if answer.message == LOCAL:
            # It was written to while its status was on its way. An INTERNAL of the server's own is in its log.
            self._tally.end(RUNNER_STREAM, "stream over")
            return
        self._tally.end(RUNNER_STREAM, "stream " + (answer.reason or answer.code.name))
        self.fault = self.fault or answer.fault

    # -- the states of a well-behaved runner

    async def _reach(self, state: str) -> None:
        """Goes on to that state as far as there is a Run to be had."""
        for name in STATES[STATES.index(self.state) + 1 : STATES.index(state) + 1]:
            if name != self.state and not await getattr(self, f"_to_{name}")():
                return
            self.state = name

    async def _to_hello(self) -> bool:
        await self._say(
            hello=fleet.Hello(
                runner_id=self._runner_id, instance_id=uuid.uuid4().hex, harness_profiles=[self._space.harness]
            )
        )
        await self._until("welcome")
        return True

    async def _to_credit(self) -> bool:
        await self._say(ready=fleet.Ready(credits=1))
        return True

    async def _to_offered(self) -> bool:
        """There is a Run for it. After a Goodbye that came out of the grammar there is none any more."""
        await self._space.session("work")
        self._offer, self._through = None, 0
        await self._say(ready=fleet.Ready(credits=1))
        try:
            while self._offer is None:
                await self._read(OFFER_SECONDS)
        except TimeoutError:
            # gRPC gives a stream up whose reader does.
            raise NothingToDo from None
        return True

    async def _to_accepted(self) -> bool:
        offer = self._offer
        if offer is None:
            return False
        await self._say(
            accept=fleet.Accept(
                session_id=offer.session_id,
                run_id=offer.run_id,
                attempt_no=offer.attempt_no,
                lease_token=offer.lease_token,
            )
        )
        return await self._until("accepted", "lease_lost") == "accepted"

    def _lease(self, offer: fleet.Offer) -> fleet.Lease:
        return fleet.Lease(
            session_id=offer.session_id,
            run_id=offer.run_id,
            attempt_no=offer.attempt_no,
            lease_token=offer.lease_token,
            message_no=self._through + 1,
        )

    async def _numbered(self, **message: dict[str, object]) -> bool:
        offer = self._offer
        if offer is None:
            return False
        lease = self._lease(offer)
        await self._say(**{arm: {"lease": lease, **fields} for arm, fields in message.items()})
        return await self._until("ack", "lease_lost") == "ack"

    async def _to_running(self) -> bool:
        return await self._numbered(harness_ready={})

    async def _to_appended(self) -> bool:
        return await self._numbered(append={"events": [{"agent_message": {"parts": [{"text": "said"}]}}]})

    async def _to_settled(self) -> bool:
        return await self._numbered(settle={"outcome": fleet.Settle.OUTCOME_SUCCEEDED})

    async def _to_gone(self) -> bool:
        await self._say(goodbye=fleet.Goodbye())
        return True
