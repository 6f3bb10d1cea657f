"""Server, runner and database are killed in turn while work goes on: nothing is lost, nothing is done twice."""

import asyncio
import contextlib
import os
import signal
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from support.embedded import Supervisor, open_ground
from support.fleet import SUCCEEDED
from support.real_runner import start_runner
from support.replicas import Live, Refused, Space, live_replica, make_space
from support.server_process import ran

SESSIONS = 4
# How far ahead of what was carried out a client appends.
AHEAD = 6
# What has to be done between two kills, so that each of them meets work.
BETWEEN = 24
SETTINGS = (
    "--safety-poll-seconds", "0.2", "--runner-lease-ttl-seconds", "8", "--runner-heartbeat-seconds", "1",
    "--startup-allowance-seconds", "5", "--progress-seconds", "1",
)  # fmt: skip
ENDS = ("run_succeeded", "run_failed", "run_interrupted", "run_canceled")
AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}


@dataclass
class Client:
    """One Session: messages go in under names of their own, and its log is followed through every cut."""

    space: Space
    session_id: str
    acked: dict[str, Any] = field(default_factory=dict)
    seen: dict[int, Any] = field(default_factory=dict)
    ended: int = 0
    retries: int = 0
    cuts: int = 0

    async def append(self, stop: asyncio.Event) -> None:
        """Sends one message after the other, each until it is acknowledged."""
        while not stop.is_set():
            if len(self.acked) - self.ended >= AHEAD:
                await asyncio.sleep(0.01)
                continue
            name = f"message {len(self.acked)}"
            try:
                self.acked[name] = await self.space.say(self.session_id, name, request_id=name)
            except Refused as refused:
                if refused.code not in AGAIN:
                    raise
                self.retries += 1
                await asyncio.sleep(0.05)

    async def follow(self) -> None:
        """Reads the log from where it was cut, for ever."""
        while True:
            after = max(self.seen, default=0)
            follow = self.space.rpc.stream("FollowEvents", session_id=self.session_id, after_seq=after)
            try:
                while True:
                    for event in await follow.events(1):
                        assert event.seq == max(self.seen, default=0) + 1, "a gap, or a repeat"
                        self.seen[event.seq] = event
                        self.ended += event.WhichOneof("payload") in ENDS
            except Refused as refused:
                if refused.code not in AGAIN:
                    raise
                self.cuts += 1
                await asyncio.sleep(0.05)

    async def until_seen(self, seq: int) -> None:
        """Returns when the log was followed this far."""
        while True:
            if seq in self.seen:
                return
            await asyncio.sleep(0.02)


class Scene:
    """All that is killed, and started again."""

    def __init__(self, ground: Path, listen: str) -> None:
        self.stack = contextlib.AsyncExitStack()
        self._ground = ground
        self._listen = listen
        self._runners: dict[str, asyncio.subprocess.Process] = {}
        self.key = ""
        self.harness = ""
        self.database: Supervisor
        self.dsn = ""
        self._postmaster = 0
        self.server: Live

    async def start_database(self) -> None:
        """PostgreSQL, under a supervisor in a process of its own."""
        self.database = Supervisor(self._ground / "data")
        told = await asyncio.to_thread(self.database.says)
        self._postmaster, self.dsn = int(told["pid"]), told["dsn"]

    async def start_server(self) -> None:
        """A server, where the one before it was."""
        serving = live_replica(self.dsn, "--migrate", *SETTINGS, listen=self._listen)
        self.server = await self.stack.enter_async_context(serving)

    async def start_runner(self, name: str) -> None:
        """A runner, in the folder of its own."""
        self._runners[name] = await start_runner(
            self._listen, self.key, self._ground / name, f"{self.harness}=echo", "--capacity", "3"
        )

    async def kill_server(self) -> None:
        self.server.kill()
        await self.server.process.wait()
        await self.start_server()

    async def kill_runner(self, name: str = "runner-1") -> None:
        self._runners[name].kill()
        await self._runners[name].wait()
        await self.start_runner(name)

    async def kill_database(self) -> None:
        postmaster = psutil.Process(self._postmaster)
        children = postmaster.children()
        os.kill(self._postmaster, signal.SIGKILL)
        # They notice by themselves; until then the folder is theirs.
        await asyncio.to_thread(psutil.wait_procs, children, 20)
        self.database.kill()
        await self.start_database()

    async def kill_everything(self) -> None:
        """At once; they come up in no particular order."""
        self.server.kill()
        for process in self._runners.values():
            process.kill()
        await self.kill_database()
        for name in list(self._runners):
            await self._runners[name].wait()
            await self.start_runner(name)
        await self.server.process.wait()
        await self.start_server()

    async def close(self) -> None:
        for process in self._runners.values():
            if process.returncode is None:
                process.kill()
                await process.wait()
        await self.stack.aclose()
        self.database.kill()


@pytest.mark.slow
@pytest.mark.rule("R1", "R32", "R175")
@pytest.mark.case(57)
async def test_whatever_is_killed_nothing_is_lost_and_nothing_happens_twice() -> None:
    with open_ground() as ground, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{probe.getsockname()[1]}"
        probe.close()
        scene = Scene(ground, listen)
        await scene.start_database()
        try:
            await scene.start_server()
            space = await make_space(scene.server)
            scene.key, scene.harness = space.runner_key, space.harness
            for name in ("runner-1", "runner-2"):
                await scene.start_runner(name)
            clients = [Client(space, (await space.session()).session.session_id) for _ in range(SESSIONS)]
            await _work_and_kill(scene, clients)
            await _compare(space, clients)
            code, said = await ran("check", "--replay", "--database-url", scene.dsn, cwd=ground)
            assert code == 0, said
        finally:
            await scene.close()


async def _work_and_kill(scene: Scene, clients: list[Client]) -> None:
    stop = asyncio.Event()
    following = [asyncio.create_task(client.follow()) for client in clients]
    appending = [asyncio.create_task(client.append(stop)) for client in clients]

    async def progress(runs: int) -> None:
        """Returns when so many more Runs have ended."""
        wanted = sum(client.ended for client in clients) + runs
        async with asyncio.timeout(60):
            while sum(client.ended for client in clients) < wanted:
                for task in (*following, *appending):
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    for kill in (scene.kill_server, scene.kill_runner, scene.kill_database, scene.kill_everything):
        await progress(BETWEEN)
        await kill()
    await progress(BETWEEN)
    stop.set()
    await asyncio.gather(*appending)
    await progress(sum(len(client.acked) - client.ended for client in clients))
    for client in clients:
        head = (await client.space.get(client.session_id)).head_seq
        async with asyncio.timeout(30):
            await client.until_seen(head)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    # They were in the middle of it.
    assert sum(client.retries for client in clients) > 0
    assert sum(client.cuts for client in clients) >= 2 * len(clients)


async def _compare(space: Space, clients: list[Client]) -> None:
    for client in clients:
        log = await space.log(client.session_id)
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        # Each acknowledged message is where its acknowledgement said, once, and there are no others.
        for name, ack in client.acked.items():
            event = log[ack.seq - 1]
            assert (event.event_id, event.run_id) == (ack.event_id, ack.run_id)
            assert event.user_message.parts[0].text == name
        messages = [event for event in log if event.type == "user.message"]
        assert len(messages) == len(client.acked)
        # Each Run ended once, and well.
        runs = Counter(e.run_id for e in log if e.WhichOneof("payload") in ENDS)
        assert runs == {ack.run_id: 1 for ack in client.acked.values()}
        listed = (await space.rpc.call("ListRuns", session_id=client.session_id, page_size=500)).runs
        assert {run.status for run in listed[: len(runs)]} == {SUCCEEDED}
        assert len({event.event_id for event in log}) == len(log)
        # What was followed through all of it is the log.
        followed = [client.seen[seq].SerializeToString() for seq in sorted(client.seen)]
        assert followed == [event.SerializeToString() for event in log]
        answers = Counter(e.run_id for e in log if e.type == "agent.message")
        assert set(answers) == set(runs)
