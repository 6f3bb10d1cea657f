"""A stop by SIGTERM: what was admitted is there once, streams end with the status that says so, runners are told."""

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from support.embedded import Supervisor, open_ground
from support.replicas import Live, Refused, Space, live_replica, make_space
from support.server_process import ran
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog_server.app.serve import FAREWELL, farewell

SESSIONS = 24
APPENDS = 80
ENOUGH = 200


@dataclass
class Sent:
    """One append: what was asked, and the answer if there was one."""

    session_id: str
    request_id: str
    text: str
    answer: Any = None


class Flood:
    """Appends to many Sessions at once until the server takes no more."""

    def __init__(self, space: Space, sessions: list[str]) -> None:
        self._space = space
        self._sessions = sessions
        self.sent: list[Sent] = []
        self.refusals: list[Refused] = []
        self.enough = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*map(self._one, self._sessions))

    async def _one(self, session_id: str) -> None:
        for number in range(APPENDS):
            sent = Sent(session_id, f"{session_id}-{number}", f"text {number}")
            self.sent.append(sent)
            try:
                sent.answer = await self._space.say(session_id, sent.text, request_id=sent.request_id)
            except Refused as refused:
                self.refusals.append(refused)
                return
            if sum(1 for each in self.sent if each.answer is not None) >= ENOUGH:
                self.enough.set()


def moved(space: Space, live: Live) -> Space:
    """The same workspace on another replica."""
    return Space(
        space.workspace_id, space.key, space.subject, space.runner_key, space.deployment_id, space.harness, live,
        live.rpc(space.key),
    )  # fmt: skip


@pytest.mark.rule("R34")
async def test_no_admitted_append_is_lost_or_doubled(dsn: str, tmp_path: Path) -> None:
    async with live_replica(dsn) as live:
        space = await make_space(live)
        sessions = [(await space.session()).session.session_id for _ in range(SESSIONS)]
        flood = Flood(space, sessions)
        running = asyncio.create_task(flood.run())
        await flood.enough.wait()
        live.kill(signal.SIGTERM)
        await running
        assert await live.process.wait() == 0
        drained = live.logged("drained")
    assert (drained["follows_ended"], drained["runners_told"], drained["calls_cut"]) == (0, 0, 0)
    assert 0 <= drained["writes"] <= 3 * SESSIONS * APPENDS
    assert flood.refusals
    assert {refused.code for refused in flood.refusals} == {grpc.StatusCode.UNAVAILABLE}
    async with live_replica(dsn) as live:
        space = moved(space, live)
        for sent in flood.sent:
            again = await space.say(sent.session_id, sent.text, request_id=sent.request_id)
            if sent.answer is not None:
                assert again.replayed
                assert (again.seq, again.event_id) == (sent.answer.seq, sent.answer.event_id)
        for session_id in sessions:
            texts = [
                event.user_message.parts[0].text
                for event in await space.log(session_id)
                if event.type == "user.message"
            ]
            assert texts == [sent.text for sent in flood.sent if sent.session_id == session_id]
    code, said = await ran("check", "--replay", cwd=tmp_path, database_url=dsn)
    assert code == 0, said


@pytest.mark.case(36)
async def test_streams_end_and_runners_are_told(dsn: str) -> None:
    async with live_replica(dsn) as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        follow = space.rpc.stream("FollowEvents", session_id=session_id)
        await follow.until("caught_up")
        async with space.runner() as runner:
            live.kill(signal.SIGTERM)
            await runner.expect("drain")
            with pytest.raises(Refused) as ended:
                await follow.until("end")
            assert (ended.value.code, ended.value.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        assert await live.process.wait() == 0


@pytest.mark.rule("R34")
async def test_it_says_what_was_finished_and_what_was_cut(dsn: str) -> None:
    async with live_replica(dsn, "--drain-grace-seconds", "1") as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        follow = space.rpc.stream("FollowEvents", session_id=session_id)
        await follow.until("caught_up")
        # Told to go elsewhere, and stays.
        async with space.runner() as runner:
            live.kill(signal.SIGTERM)
            await runner.expect("drain")
            assert await live.process.wait() == 0
        said = live.logged("drained")
        counted = {name: said[name] for name in ("follows_ended", "runners_told", "writes", "calls_cut")}
    assert counted == {"follows_ended": 1, "runners_told": 1, "writes": 0, "calls_cut": 1}


async def test_a_run_goes_on_at_the_next_replica(dsn: str) -> None:
    async with live_replica(dsn) as first, live_replica(dsn) as second:
        space = await make_space(first)
        session_id = (await space.session("hello")).session.session_id
        async with space.runner() as runner:
            offer = await runner.start()
            first.kill(signal.SIGTERM)
            await runner.expect("drain")
            other = moved(space, second)
            held = fleet.HeldAttempt(
                session_id=offer.session_id, run_id=offer.run_id, attempt_no=1, lease_token=offer.lease_token
            )
            same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id, "held": [held]}
            async with other.runner(**same) as again:
                again.messages = runner.messages
                await again.append(offer, "still here")
                await again.settle(offer)
        assert await first.process.wait() == 0
        log = [event.type for event in await other.log(session_id)]
        assert log.count("run.attempt_started") == 1
        assert "run.succeeded" in log


@pytest.mark.case(36)
async def test_whoever_waits_for_a_database_that_is_away_is_told_why_it_ends() -> None:
    with open_ground() as ground:
        database = Supervisor(ground / "data")
        told = await asyncio.to_thread(database.says)
        try:
            async with live_replica(told["dsn"], "--migrate", "--drain-grace-seconds", "2") as live:
                space = await make_space(live)
                session_id = (await space.session()).session.session_id
                follows = [space.rpc.stream("FollowEvents", session_id=session_id)]
                await follows[0].until("caught_up")
                postmaster = psutil.Process(int(told["pid"]))
                children = postmaster.children()
                postmaster.kill()
                await asyncio.to_thread(psutil.wait_procs, children, 20)
                reading = asyncio.create_task(space.rpc.call("GetSession", session_id=session_id))
                follows += [space.rpc.stream("FollowEvents", session_id=session_id) for _ in range(3)]
                await live.until_metric("turnlog_open_streams", 4.0, method="FollowEvents")
                live.kill(signal.SIGTERM)
                for follow in follows:
                    with pytest.raises(Refused) as ended:
                        await follow.until("end")
                    assert (ended.value.code, ended.value.reason) == (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
                with pytest.raises(Refused) as ended:
                    await reading
                assert ended.value.code is grpc.StatusCode.UNAVAILABLE
                assert ended.value.reason in {"SERVER_DRAINING", "STORE_UNAVAILABLE"}
                assert await live.process.wait() == 0
        finally:
            database.kill()


async def test_the_port_stays_open_while_somebody_still_calls() -> None:
    """As a proxy does until it has looked at our health: who calls while it is closed is told nothing of use."""
    loop = asyncio.get_running_loop()
    last_call, calls = loop.time(), 0

    async def call() -> None:
        nonlocal last_call, calls
        while calls < 6:
            await asyncio.sleep(FAREWELL / 3)
            last_call, calls = loop.time(), calls + 1

    calling = asyncio.create_task(call())
    await farewell(lambda: last_call)
    assert calls == 6
    assert loop.time() >= last_call + FAREWELL
    await calling
