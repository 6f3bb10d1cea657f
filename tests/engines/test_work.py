"""A day's work on the other engines: what they do to a server does not reach those who talk to it."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.fleet import SUCCEEDED
from support.real_runner import real_runner
from support.replicas import Live, Refused, Space, fresh
from support.server_process import ran

pytestmark = pytest.mark.only_on("postgresql", reason="it brings its own engines")

SESSIONS = 4
TURNS = 4
AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.ABORTED}
ENDS = ("run_succeeded", "run_failed", "run_interrupted", "run_canceled")


async def until_done(call: Any) -> Any:
    """Makes a call under one request id until it is carried out."""
    while True:
        try:
            return await call()
        except Refused as refused:
            if refused.code not in AGAIN or refused.retry_after is None:
                raise
            await asyncio.sleep(refused.retry_after)


async def failures(live: Live) -> Counter[str]:
    """How often attempts of a server's database operations failed, by what that meant."""
    counted: Counter[str] = Counter()
    for labels, value in await live.samples("turnlog_store_failures_total"):
        counted[labels["error_class"]] += int(value)
    return counted


@dataclass
class Talk:
    """One Session: said at one replica, followed at another."""

    here: Space
    there: Space
    session_id: str = ""
    said: list[Any] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    async def whole(self) -> None:
        """Every turn, each from its message to its end."""
        request_id = fresh()
        self.session_id = (await until_done(lambda: self.here.session(request_id=request_id))).session.session_id
        for number in range(TURNS):
            request_id = fresh()
            say = lambda n=number, r=request_id: self.here.say(self.session_id, f"message {n}", request_id=r)  # noqa: E731
            self.said.append(await until_done(say))
            await self.follow(self.said[-1].run_id)

    async def follow(self, run_id: str) -> None:
        """Until the turn is over, from where it was cut."""
        until = {"boundary": "BOUNDARY_TURN", "run_id": run_id}
        while True:
            after = self.seen[-1].seq if self.seen else 0
            follow = self.there.rpc.stream("FollowEvents", session_id=self.session_id, after_seq=after, until=until)
            try:
                while (frame := await follow.frame(60)) is not None:
                    self.seen.extend(frame.events.events)
                return
            except Refused as refused:
                if refused.code not in AGAIN:
                    raise

    async def compare(self) -> None:
        """What was answered, what was followed and what is in the log are one."""
        log = await until_done(lambda: self.here.log(self.session_id))
        assert [event.seq for event in log] == list(range(1, len(log) + 1))
        assert [event.SerializeToString() for event in self.seen] == [event.SerializeToString() for event in log]
        messages = [(event.seq, event.event_id, event.run_id) for event in log if event.type == "user.message"]
        assert messages == [(ack.seq, ack.event_id, ack.run_id) for ack in self.said]
        runs = Counter(event.run_id for event in log if event.WhichOneof("payload") in ENDS)
        assert runs == {ack.run_id: 1 for ack in self.said}
        listed = (await until_done(lambda: self.here.rpc.call("ListRuns", session_id=self.session_id))).runs
        assert {run.status for run in listed} == {SUCCEEDED}


@pytest.mark.slow
@pytest.mark.case(73, 75, 76)
async def test_work_goes_on_as_if_nothing_had_happened(elsewhere: Any, tmp_path: Path) -> None:
    async with elsewhere.replica() as one, elsewhere.replica() as two:
        space = await elsewhere.space(one)
        other = space.on(two)
        harness = f"{space.harness}=echo"
        async with (
            real_runner(one.address, space.runner_key, tmp_path / "one", harness, "--capacity", "3"),
            real_runner(two.address, space.runner_key, tmp_path / "two", harness, "--capacity", "3"),
        ):
            talks = [Talk(*((space, other) if number % 2 else (other, space))) for number in range(SESSIONS)]
            async with asyncio.timeout(100):
                await asyncio.gather(*(talk.whole() for talk in talks))
        for talk in talks:
            await talk.compare()
        said = [json.loads(line) for live in (one, two) for line in live.log.read_text().splitlines()]
        failed = [await failures(live) for live in (one, two)]
    assert [line for line in said if line["level"] == "error"] == []
    if elsewhere.name == "crdb-wire":
        # They met what they were to meet, one or the other of them, and the metrics know it.
        assert all(sum(each[kind] for each in failed) for kind in ("retry", "reset")), failed
    code, found = await ran("check", "--replay", cwd=tmp_path, database_url=elsewhere.dsn)
    assert code == 0, found
