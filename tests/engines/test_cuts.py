"""A thousand commits of which nobody hears: each request id comes to one event, and no caller is told a guess.

Two hundred of them under a server and its callers, the others under a lane alone, where they cost less.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.lanes import differences, log_of, message, replicas
from support.replicas import QUICK, Refused, Space, fresh, live_replica, make_space
from support.server_process import ran
from support.wire import CRDB_VERSION, Fails, Fault, wire_proxy
from turnlog_server.domain.events import UserMessage
from turnlog_server.store.database import Database

pytestmark = pytest.mark.only_on("postgresql", reason="it brings its own engine")

CUTS_SERVER, CUTS_LANE = 200, 800
CLIENTS = 4
# Fewer than may wait for a runner.
TURNS = 90
LOST: tuple[Fault, ...] = (
    "cut-after",
    "cut-before",
    Fails("40003", applied=True),
    Fails("40003"),
    Fails("57P01", applied=True),
)


class Losses:
    """The answers to all writes of the log are lost but every third, in every way in turn."""

    def __init__(self, count: int) -> None:
        self.left = count
        self._ways = itertools.cycle(LOST)
        self._spared = itertools.count()

    def __call__(self, statement: str) -> Fault | None:
        if "INSERT INTO events" not in statement or not self.left or next(self._spared) % 3 == 2:
            return None
        self.left -= 1
        return next(self._ways)


async def until_known(call: Callable[[], Any]) -> Any:
    """Makes a call under one request id until its outcome is told."""
    while True:
        try:
            return await call()
        except Refused as refused:
            if (refused.code.name, refused.reason) != ("UNAVAILABLE", "OUTCOME_UNKNOWN"):
                raise
            await asyncio.sleep(refused.retry_after or 0)


async def talk(space: Space, losses: Losses) -> dict[str, dict[str, Any]]:
    """Appends until the last loss is over; the answers by Session and request id, which is also what was said."""
    told: dict[str, dict[str, Any]] = {}
    while losses.left:
        made = await until_known(partial(space.session, request_id=fresh()))
        answers = told[made.session.session_id] = {}
        while losses.left and len(answers) < TURNS:
            name = fresh()
            answers[name] = await until_known(partial(space.say, made.session.session_id, name, request_id=name))
    return told


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.rule("R31", "R36")
@pytest.mark.case(63, 75)
async def test_under_a_server_each_request_is_one_event_and_nobody_is_told_a_guess(dsn: str, tmp_path: Any) -> None:
    async with wire_proxy(dsn) as proxy:
        proxy.crdb_version = CRDB_VERSION
        async with live_replica(proxy.dsn, *QUICK) as live:
            space = await make_space(replace(live, dsn=dsn))
            proxy.fault = losses = Losses(CUTS_SERVER)
            told = await asyncio.gather(*(talk(space, losses) for _ in range(CLIENTS)))
            assert sum(proxy.done.values()) == CUTS_SERVER
            for answers in told:
                for session_id in answers:
                    await compare(space, session_id, answers[session_id])
            sessions = (await space.rpc.call("ListSessions", page_size=500)).sessions
            assert {session.session_id for session in sessions} == set().union(*told)
    code, said = await ran("check", "--replay", cwd=tmp_path, database_url=dsn)
    assert code == 0, said


async def compare(space: Space, session_id: str, answers: dict[str, Any]) -> None:
    """Each answer is in the log where it said, once, and the log has no others."""
    log = await space.log(session_id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    messages = {e.user_message.parts[0].text: e for e in log if e.type == "user.message"}
    assert len(messages) == sum(event.type == "user.message" for event in log)
    assert messages.keys() == answers.keys()
    for request_id, answer in answers.items():
        assert (messages[request_id].seq, messages[request_id].event_id) == (answer.seq, answer.event_id)
    for request_id, answer in list(answers.items())[:1]:
        again = await space.say(session_id, request_id, request_id=request_id)
        assert (again.replayed, again.seq, again.event_id) == (True, answer.seq, answer.event_id)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.rule("R31", "R36")
@pytest.mark.case(63, 75)
async def test_under_a_lane_each_request_is_one_event(dsn: str) -> None:
    async with wire_proxy(dsn) as proxy:
        proxy.crdb_version = CRDB_VERSION
        behind, direct = await Database.open(proxy.dsn, pool_size=2), await Database.open(dsn, pool_size=2)
        async with replicas(behind) as (lane,):
            proxy.fault = losses = Losses(CUTS_LANE)

            async def talk_here() -> dict[str, list[tuple[int, str]]]:
                told: dict[str, list[tuple[int, str]]] = {}
                while losses.left:
                    session_id = await lane.create()
                    told[session_id] = []
                    while losses.left and len(told[session_id]) < TURNS:
                        answer = (await lane.do(session_id, message(), seconds=100)).answer
                        told[session_id].append((answer.seq, answer.event_id))
                return told

            told = await asyncio.gather(*(talk_here() for _ in range(CLIENTS)))
        assert sum(proxy.done.values()) == CUTS_LANE
        for session_id, answers in itertools.chain.from_iterable(each.items() for each in told):
            log = await log_of(direct, session_id)
            assert log.seqs == list(range(1, log.head + 1))
            assert [(e.seq, e.event_id) for e in log.events if isinstance(e.fact, UserMessage)] == answers
        assert await direct.read("count", "SELECT count(*) FROM sessions") == [(sum(map(len, told)),)]
        assert await differences(direct) == []
        await behind.close()
        await direct.close()
