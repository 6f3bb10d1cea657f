"""Replicas are replaced one after another while callers, followers and a runner go on through the proxy."""

import asyncio
import shlex
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.fleet import attempts_of, status
from support.fronted import Fronted, fronted
from support.real_runner import real_runner
from support.replicas import QUICK, Space, fresh, live_replica
from support.server_process import ran
from support.story import text_of
from turnlog.v1.user_event_pb2 import UserInterrupt
from turnlog_client.client import Turnlog

LAST = UserInterrupt(reason="the last")
PATIENCE = 120
WORDS = 10
HARNESS = f"""
import json, sys, time
def put(**message):
    print(json.dumps(message), flush=True)
start = json.loads(sys.stdin.readline())
put(type="ready", protocol=1)
for number in range({WORDS}):
    put(type="event", event_type="agent.message", payload={{"parts": [{{"text": str(number)}}]}})
    time.sleep(0.05)
put(type="settle", outcome="succeeded")
"""
"""A turn that takes as long as a restart, and says something all the while."""

# A runner that was cut off has as long as others get to come back, on a busy machine too.
ARGUMENTS = (*QUICK, "--runner-lease-ttl-seconds", "20", "--startup-allowance-seconds", "30")


@dataclass
class Traffic:
    """What callers were told, and what followers saw, through the proxy.

    answers: seq by text. runs: of turns that are over, by Session.
    """

    space: Space
    client: Turnlog
    session_id: str
    over: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, int] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    cuts: int = 0

    async def talk(self) -> None:
        """Appends until it is over; what is refused for a moment is sent again under its id."""
        while not self.over.is_set():
            text = fresh()
            self.answers[text] = (await self.client.sessions.interrupt(self.session_id, reason=text)).seq
            await asyncio.sleep(0.01)

    async def turn(self) -> None:
        """Turns, one after another, each followed to its end."""
        while not self.over.is_set():
            started = await self.client.sessions.create(self.space.deployment_id, first_message="go")
            assert started.session is not None
            session_id = started.session.session_id
            follow = self.client.events.follow(session_id, after_seq=0, until=started, on_interrupted=self._cut)
            assert [event.seq async for event in follow] == list(range(1, follow.seq + 1))
            self.runs[session_id] = started.run_id

    async def follow(self) -> list[int]:
        """All seqs up to the last event of all."""
        got: list[int] = []
        async with self.client.events.follow(self.session_id, on_interrupted=self._cut) as follow:
            async for event in follow:
                got.append(event.seq)
                if event.payload == LAST:
                    return got
        raise AssertionError("it ended by itself")

    async def moves(self) -> None:
        """Returns once more was appended and a turn is over."""
        appends, turns = len(self.answers), len(self.runs)
        async with asyncio.timeout(PATIENCE):
            while True:
                if len(self.answers) >= appends + 20 and len(self.runs) > turns:
                    return
                await asyncio.sleep(0.02)

    def _cut(self, _: object) -> None:
        self.cuts += 1


async def replace_one(stack: AsyncExitStack, replicas: Fronted, slot: int, end: signal.Signals) -> None:
    """Ends a replica and puts another in its place, which starts meanwhile."""
    going = replicas.lives[slot]
    starting = asyncio.create_task(stack.enter_async_context(live_replica(going.dsn, *ARGUMENTS)))
    going.kill(end)
    assert await going.process.wait() == (0 if end is signal.SIGTERM else -end)
    await replicas.proxy.until(slot, up=False)
    replicas.lives[slot] = await starting
    await replicas.proxy.point(slot, replicas.lives[slot])
    await replicas.proxy.until(slot, up=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.rule("R31", "R34", "R36", "R41", "R175")
@pytest.mark.system("haproxy")
@pytest.mark.parametrize("ends", [[signal.SIGTERM] * 3, [signal.SIGKILL] * 2], ids=["told to go", "killed"])
async def test_nothing_is_lost_or_doubled(dsn: str, tmp_path: Path, ends: list[signal.Signals]) -> None:
    async with AsyncExitStack() as stack:
        replicas = await stack.enter_async_context(fronted(*[dsn] * len(ends), arguments=ARGUMENTS))
        space = await replicas.space()
        session_id = (await space.session()).session.session_id
        harness = f"{space.harness}={shlex.join([sys.executable, '-S', '-c', HARNESS])}"
        await stack.enter_async_context(
            real_runner(replicas.proxy.address, space.runner_key, tmp_path / "runner", harness)
        )
        client = await stack.enter_async_context(Turnlog.connect(replicas.proxy.address, space.key, patience=PATIENCE))
        traffic = Traffic(space, client, session_id)
        async with asyncio.TaskGroup() as followers:
            following = [followers.create_task(traffic.follow()) for _ in range(4)]
            async with asyncio.TaskGroup() as callers:
                for work in (traffic.talk, traffic.talk, traffic.turn, traffic.turn):
                    callers.create_task(work())
                for slot, end in enumerate(ends):
                    await traffic.moves()
                    await replace_one(stack, replicas, slot, end)
                await traffic.moves()
                traffic.over.set()
            head = (await client.sessions.interrupt(session_id, reason=LAST.reason)).seq
        traffic.answers[LAST.reason] = head
        for each in following:
            assert each.result() == list(range(1, head + 1))
        assert traffic.cuts > 0
        said = [event for event in await space.log(session_id) if event.type == "user.interrupt"]
        assert {event.user_interrupt.reason: event.seq for event in said} == traffic.answers
        assert len(said) == len(traffic.answers)
        for turn, run_id in traffic.runs.items():
            words = [text_of(event.agent_message) for event in await space.log(turn) if event.type == "agent.message"]
            assert words == [str(number) for number in range(WORDS)]
            assert [status(attempt) for attempt in await attempts_of(space, turn, run_id)] == ["SETTLED"]
    code, report = await ran("check", "--replay", cwd=tmp_path, database_url=dsn)
    assert code == 0, report
