"""Rounds of fuzzed messages against one server, with a look at everything after each."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from support.replicas import METHODS

from fuzz.calls import Tally, read_whole, spread
from fuzz.corpus import Entry, keep
from fuzz.messages import Call, call, random_of
from fuzz.streams import Episode
from fuzz.world import World

CALLS_A_ROUND = 1500
STREAMED_A_ROUND = 1500
EPISODE_MESSAGES = 60
TOLD_SECONDS = 15.0
CHANNELS, DEPTH, RUNNERS = 3, 8, 4
# A caller's numbers of messages and a runner's lie apart.
OF_RUNNERS = 1 << 24


@dataclass
class Campaign:
    """folder: where what fails is kept. say: told of progress. stopping: this round is the last."""

    world: World
    seed: int
    folder: Path
    say: Callable[[str], None] = print
    tally: Tally = field(default_factory=Tally)
    stopping: bool = False

    async def run(self, messages: int, first_round: int = 0, seconds: float = float("inf")) -> None:
        """As many rounds as it takes for so many messages, or until the time is over."""
        until, began = time.monotonic() + seconds, time.monotonic()
        self._keys = {name: self.world.key_for(name) for name in METHODS}
        rpcs = [self.world.live.rpc(None) for _ in range(CHANNELS)]
        self._channels = [rpc.channel for rpc in rpcs]
        number, told = first_round, 0.0
        while self.tally.messages < messages and time.monotonic() < until and not self.stopping:
            before = len(self.tally.faults)
            await self.round(number)
            pace = self.tally.messages / (time.monotonic() - began)
            if time.monotonic() - told > TOLD_SECONDS or len(self.tally.faults) > before:
                told = time.monotonic()
                self.say(
                    f"round {number}: {self.tally.messages} messages, {pace:.0f}/s, longest callback "
                    f"{self.world.meter.longest:.0f} ms, {len(self.tally.faults)} faults"
                )
            number += 1

    async def round(self, number: int) -> None:
        """One round, repeatable by seed and number."""
        await self.world.furnish(number)
        self.tally.sessions = set(self.world.sessions)
        self.tally.maybe_deleted = set()
        work = [call(random_of(self.seed, number, at), self.world.names, self._keys) for at in range(CALLS_A_ROUND)]
        episodes: list[Episode] = []
        faults, _ = await asyncio.gather(
            spread(work, self._channels, self.tally, DEPTH), self._runners(number, episodes)
        )
        for at, fault in faults.items():
            self._fault(f"{work[at].method}: {fault}", Entry.of_call(work[at], self.world, fault), number)
        for episode in episodes:
            if episode.fault:
                self._fault(f"Connect: {episode.fault}", Entry.of_episode(episode, self.world), number)
        await self._look(number, work)

    async def _runners(self, number: int, episodes: list[Episode]) -> None:
        async def worker(place: int) -> None:
            left = STREAMED_A_ROUND // RUNNERS
            while left > 0:
                rng = random_of(self.seed, number, OF_RUNNERS + place)
                channel = self._channels[place % CHANNELS]
                episode = Episode(channel, self.world.yard, self.world.names, rng, self.tally)
                episodes.append(episode)
                await episode.play(min(left, EPISODE_MESSAGES))
                left, place = left - max(1, len(episode.sent)), place + RUNNERS

        await asyncio.gather(*(worker(place) for place in range(RUNNERS)))

    # -- after a round

    async def _look(self, number: int, work: list[Call]) -> None:
        process = self.world.live.process
        assert process.returncode is None, f"the server is gone: {self.world.live.log.read_text()[-3000:]}"
        for line in self.world.log_faults():
            self._fault(f"log: {line}", None, number)
        try:
            await self.world.canary.sing()
        except Exception as exc:
            self._fault(f"canary: {exc!r}", None, number)
            raise
        for session_id in sorted(self.tally.sessions):
            await self._readable(session_id, number)
        if offenders := self.world.meter.offenders():
            await self._blame(offenders, work, number)

    async def _readable(self, session_id: str, number: int) -> None:
        try:
            seqs = await read_whole(self._channels[0], self.world.space.key, session_id)
        except grpc.aio.AioRpcError as error:
            self._fault(f"{session_id} cannot be read: {error.code()} {error.details()}", None, number)
            return
        if seqs is None:
            if session_id not in self.tally.maybe_deleted:
                self._fault(f"{session_id} is gone", None, number)
        elif seqs != list(range(1, len(seqs) + 1)):
            self._fault(f"{session_id} has a gap: {seqs}", None, number)

    async def _blame(self, offenders: list[dict[str, object]], work: list[Call], number: int) -> None:
        """Which call it was: each that is not small once more, alone."""
        for offender in offenders:
            self._fault(f"callback: {offender}", None, number)
        for each in work:
            if len(each.raw) > 2000:
                await spread([each], self._channels[:1], Tally(), 1)
                if again := self.world.meter.offenders():
                    entry = Entry.of_call(each, self.world, f"a callback of {again[0]['ms']} ms")
                    self._fault(f"callback of {each.method}, {len(each.raw)} bytes: {again}", entry, number)

    def _fault(self, says: str, entry: Entry | None, number: int) -> None:
        kept = f" (kept in {keep(entry, self.folder)})" if entry is not None else ""
        self.tally.faults.append(says)
        self.say(f"FAULT seed {self.seed} round {number}: {says}{kept}")
