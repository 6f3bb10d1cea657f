"""Serialisation failures: nobody who calls sees one, until there is no end of them."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.replicas import QUICK, Refused, Space, fresh, live_replica, make_space
from support.wire import CRDB_VERSION, Fails, WireProxy, wire_proxy
from turnlog_server.service.lane import MAX_ROUNDS
from turnlog_server.store.operation import MAX_ATTEMPTS

pytestmark = pytest.mark.only_on("postgresql", reason="it brings its own engines")

CONFLICT = Fails("40001")
CLIENTS = 50
REPLICAS = 2


def moves_session(statement: str) -> bool:
    """The lane's statement."""
    return "UPDATE session_heads" in statement


@pytest.mark.rule("R31")
@pytest.mark.case(73)
async def test_fifty_clients_on_one_session_are_all_served(dsn: str) -> None:
    async with wire_proxy(dsn) as proxy, AsyncExitStack() as stack:
        proxy.crdb_version = CRDB_VERSION
        replica = partial(live_replica, proxy.dsn, *QUICK, "--pool-size", "2")
        lives = [await stack.enter_async_context(replica()) for _ in range(REPLICAS)]
        space = await make_space(replace(lives[0], dsn=dsn))
        session_id = (await space.session()).session.session_id
        callers = [space.on(lives[number % REPLICAS]) for number in range(CLIENTS)]
        # They meet each other, and every third write a conflict that is sure. Nobody tries twice.
        writes = itertools.count()
        proxy.fault = lambda statement: CONFLICT if moves_session(statement) and next(writes) % 3 == 0 else None
        said = [caller.say(session_id, f"message {number}", timeout=100) for number, caller in enumerate(callers)]
        answers = await asyncio.gather(*said)
        log = await space.log(session_id)
        retries = [
            value
            for live in lives
            for labels, value in await live.samples("turnlog_store_failures_total")
            if labels["error_class"] == "retry"
        ]
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    texts = {event.seq: event.user_message.parts[0].text for event in log if event.type == "user.message"}
    assert texts == {answer.seq: f"message {number}" for number, answer in enumerate(answers)}
    assert sum(retries) >= proxy.done[CONFLICT] > 0


@pytest.fixture
async def behind(dsn: str) -> AsyncIterator[tuple[Space, WireProxy]]:
    """A server behind a proxy that calls itself CockroachDB."""
    async with wire_proxy(dsn) as proxy:
        proxy.crdb_version = CRDB_VERSION
        async with live_replica(proxy.dsn, *QUICK) as live:
            yield await make_space(replace(live, dsn=dsn)), proxy


async def refused(call: Any) -> Refused:
    """The refusal of a call that meets conflicts without end."""
    with pytest.raises(Refused) as caught:
        await call
    return caught.value


@pytest.mark.rule("R31", "R36")
@pytest.mark.case(73)
async def test_an_append_that_conflicts_without_end_is_aborted_and_can_be_sent_again(
    behind: tuple[Space, WireProxy],
) -> None:
    space, proxy = behind
    session_id = (await space.session()).session.session_id
    request_id = fresh()
    proxy.fault = lambda statement: CONFLICT if moves_session(statement) else None
    error = await refused(space.say(session_id, request_id=request_id))
    assert (error.code.name, error.reason) == ("ABORTED", "CONTENTION")
    assert error.retry_after
    assert proxy.done[CONFLICT] == MAX_ROUNDS + 1
    assert await space.live.metric("turnlog_store_failures_total", error_class="retry") == MAX_ROUNDS + 1
    proxy.fault = lambda _: None
    answer = await space.say(session_id, request_id=request_id)
    assert not answer.replayed
    assert (await space.say(session_id, request_id=request_id)).replayed
    assert [event.type for event in await space.log(session_id)].count("user.message") == 1


@pytest.mark.rule("R36")
@pytest.mark.case(73)
@pytest.mark.parametrize("times", [MAX_ATTEMPTS - 1, MAX_ATTEMPTS])
async def test_a_change_that_conflicts_is_made_again_so_many_times(behind: tuple[Space, WireProxy], times: int) -> None:
    space, proxy = behind
    left = times

    def fault(statement: str) -> Fails | None:
        nonlocal left
        if "INSERT INTO agents" not in statement or not left:
            return None
        left -= 1
        return CONFLICT

    proxy.fault = fault
    name, request_id = fresh("agent"), fresh()
    if times == MAX_ATTEMPTS:
        error = await refused(space.rpc.call("CreateAgent", name=name, request_id=request_id))
        assert (error.code.name, error.reason) == ("ABORTED", "CONTENTION")
        assert error.retry_after
    made = await space.rpc.call("CreateAgent", name=name, request_id=request_id)
    assert made.agent.name == name
    assert proxy.done[CONFLICT] == times
