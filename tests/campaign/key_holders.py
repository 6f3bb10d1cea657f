"""Whoever gets a key, writes with it, and goes on writing after it was revoked."""

import asyncio
import random

from support.replicas import Refused, Rpc, fresh

from campaign.clients import Client, World


class KeyHolder:
    """One key after the other. What is sent once a revocation was answered has no effect: the history says when."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self._rpcs = [Rpc(address, world.key) for address in world.addresses]
        self._random = random.Random(f"{world.seed}/{name}")

    async def run(self) -> None:
        """Works until it is cancelled."""
        number = 0
        while True:
            await asyncio.sleep(self._random.uniform(0.5, 2))
            if self._world.paused.is_set() or not self._world.usable:
                continue
            number += 1
            self._world.busy += 1
            try:
                await self._one_key(f"{self.name}-{number}")
            finally:
                self._world.busy -= 1

    async def close(self) -> None:
        for rpc in self._rpcs:
            await rpc.close()

    async def _one_key(self, name: str) -> None:
        made = await self._until_done("CreateApiKey", subject=self._world.subject, display_name=name)
        if made is None or not made.secret:
            # Made by a try whose answer was lost, and the secret with it.
            return
        client = Client(self._world, name, made.secret)
        writing = asyncio.create_task(self._write(client))
        try:
            await asyncio.sleep(self._random.uniform(0.1, 1.5))
            if await self._until_done("RevokeApiKey", api_key_id=made.api_key.api_key_id) is not None:
                self._world.history.write(op="revoked", client=name)
                for _ in range(5):
                    await client.message(self._random.choice([*self._world.sessions.values()]))
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            await client.close()

    async def _write(self, client: Client) -> None:
        while True:
            if usable := self._world.usable:
                await client.message(self._random.choice(usable))
            await asyncio.sleep(0.02)

    async def _until_done(self, method: str, **fields: str):
        """The answer; None where it never came, or where it was refused."""
        request = fresh(self.name)
        for _ in range(40):
            try:
                rpc = self._random.choice(self._rpcs)
                return await rpc.call(method, timeout=6, request_id=request, **fields)
            except Refused:
                await asyncio.sleep(0.3)
        return None
