"""Runners that do what no honest runner does: say things twice, come back from the dead, leave in the middle."""

import asyncio
import contextlib
import random
import uuid

import grpc
from support.fleet import held
from support.replicas import FakeRunner, Refused, Rpc, said
from turnlog.runner.v1 import runner_service_pb2 as pb

from campaign.clients import World
from campaign.history import FENCED


class Scripted:
    """One runner id; each stream is one go at it. What it says is in the history like what clients say."""

    def __init__(self, world: World, name: str, runner_key: str, harness: str, lease_seconds: float) -> None:
        self._world = world
        self.name = name
        self._key = runner_key
        self._harness = harness
        self._lease = lease_seconds
        self._random = random.Random(f"{world.seed}/{name}")
        self._runner_id = "rnr_" + "".join(self._random.choices("0123456789abcdefghijklmnopqrstuv", k=26))
        self._instance = uuid.uuid4().hex
        # What is on its way in an attempt: number, history id, marker.
        self._open: list[tuple[int, int, str]] = []

    async def run(self) -> None:
        """Works until it is cancelled."""
        while True:
            address = self._random.choice(self._world.addresses)
            rpc = Rpc(address, self._key)
            try:
                await self._stream(rpc)
            except (Refused, EOFError, TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass
            finally:
                self._forget("cut short")
                await rpc.close()
            await asyncio.sleep(self._random.uniform(0.1, 0.6))

    def _runner(self, rpc: Rpc, **hello: object) -> FakeRunner:
        return FakeRunner(rpc, harness=self._harness, runner_id=self._runner_id, instance_id=self._instance, **hello)

    async def _stream(self, rpc: Rpc) -> None:
        if self._random.random() < 0.2:
            self._instance = uuid.uuid4().hex
        runner = self._runner(rpc)
        try:
            await runner.welcome()
            while True:
                offer = await runner.offer(timeout=10)
                if self._random.random() < 0.1:
                    await runner.send(decline=pb.Decline(session_id=offer.session_id, run_id=offer.run_id))
                    continue
                await runner.accept(offer)
                await runner.ready(offer)
                runner = await self._attempt(runner, rpc, offer)
        finally:
            runner.hang_up()

    async def _attempt(self, runner: FakeRunner, rpc: Rpc, offer: pb.Offer) -> FakeRunner:
        for _ in range(self._random.randint(0, 4)):
            await self._say(runner, offer)
        match self._random.choices(["settle", "again", "zombie", "abandon", "leave"], [50, 20, 15, 10, 5])[0]:
            case "again":
                runner.hang_up()
                runner = self._runner(rpc, held=[held(offer)])
                welcome = await runner.welcome()
                if not welcome.held:
                    return runner
                runner.messages[offer.run_id, offer.attempt_no] = welcome.held[0].last_message_no
                await self._say(runner, offer)
            case "zombie":
                await self._zombie(runner, offer)
            case "abandon":
                await runner.send(abandon=pb.Abandon(lease=runner.lease(offer)))
                return runner
            case "leave":
                raise EOFError
        await runner.send(settle=pb.Settle(lease=runner.lease(offer), outcome="OUTCOME_SUCCEEDED"))
        await self._heard(runner, offer)
        return runner

    async def _say(self, runner: FakeRunner, offer: pb.Offer) -> None:
        """One event, sometimes sent twice under one number, and its Ack."""
        lease = runner.lease(offer)
        marker = f"{self.name} {uuid.uuid4().hex}"
        number = self._world.history.call(f"runner {self.name}", "Append", offer.session_id, marker, marker)
        self._open.append((lease.message_no, number, marker))
        append = pb.Append(lease=lease, events=[said(marker)])
        for _ in range(self._random.choice([1, 1, 2])):
            await runner.send(append=append)
        await self._heard(runner, offer, lease.message_no)

    async def _heard(self, runner: FakeRunner, offer: pb.Offer, through: int = 0) -> None:
        """Reads until the message is acknowledged or the attempt is over."""
        while True:
            got = await runner.receive(10)
            kind = got.WhichOneof("message")
            told = getattr(got, kind)
            if kind == "lease_lost" and told.run_id == offer.run_id:
                raise EOFError
            if kind != "ack" or told.run_id != offer.run_id:
                continue
            refused = {rejection.message_no for rejection in told.rejections}
            for message_no, number, _ in [each for each in self._open if each[0] <= told.through]:
                if message_no in refused:
                    self._world.history.refused(number, "rejected")
                else:
                    self._world.history.ok(number, offer.session_id)
            self._open = [each for each in self._open if each[0] > told.through]
            if told.through >= through:
                return

    async def _zombie(self, runner: FakeRunner, offer: pb.Offer) -> None:
        """Silent past its lease; once it is told that it lost, nothing that it says may get in."""
        runner.beats = False
        await asyncio.sleep(self._lease + self._random.uniform(0.5, 2))
        with contextlib.suppress(EOFError):
            await self._say(runner, offer)
            raise TimeoutError("it was never given up")
        marker = f"{self.name} beyond {uuid.uuid4().hex}"
        number = self._world.history.call(f"runner {self.name}", "Append", offer.session_id, marker, marker)
        self._world.history.refused(number, FENCED)
        await runner.send(append=pb.Append(lease=runner.lease(offer), events=[said(marker)]))
        raise EOFError

    def _forget(self, why: str) -> None:
        for _, number, _ in self._open:
            self._world.history.unknown(number, why)
        self._open.clear()
