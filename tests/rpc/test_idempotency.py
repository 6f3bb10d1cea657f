"""One request id, one effect: repeated, at once, in flight, cut off, given up, and long after."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest
from support.http2_proxy import http2_proxy
from support.replicas import Live, Refused, Rpc, Space, fresh, live_replica, make_space
from support.wire import WireProxy, wire_proxy

QUICK = ("--safety-poll-seconds", "0.2")


def writes_log(statement: str) -> bool:
    """The lane's statement."""
    return "INSERT INTO events" in statement


@asynccontextmanager
async def held_at_the_database(dsn: str) -> AsyncIterator[tuple[Space, WireProxy]]:
    """A server whose connections go through a proxy of the test's."""
    async with wire_proxy(dsn) as proxy, live_replica(proxy.dsn, *QUICK) as live:
        # What the test itself asks the database does not go through the proxy.
        space = await make_space(replace(live, dsn=dsn))
        yield space, proxy


def appending(space: Space, session_id: str, text: str = "hello", **fields: object) -> dict[str, object]:
    """An AppendEvent, to be sent more than once."""
    return {
        "session_id": session_id,
        "request_id": fresh(),
        "authored_by": space.subject,
        "caused_by": {"kind": "KIND_API"},
        "user_message": {"parts": [{"text": text}]},
    } | fields


async def reused(call: object) -> None:
    """The call is refused because its id belongs to another request."""
    with pytest.raises(Refused) as refused:
        await call  # type: ignore[misc]
    assert (refused.value.code.name, refused.value.reason) == ("ALREADY_EXISTS", "REQUEST_ID_REUSED")


@pytest.mark.rule("R5", "R36")
@pytest.mark.case(60)
async def test_fifty_at_once_are_one(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    asked = appending(space, session_id)
    rpcs = [space.live.rpc(space.key) for _ in range(10)]
    answers = await asyncio.gather(*(rpcs[n % 10].call("AppendEvent", **asked) for n in range(50)))
    assert len({(answer.seq, answer.event_id, answer.run_id) for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert [event.type for event in await space.log(session_id)].count("user.message") == 1
    made = await asyncio.gather(
        *(rpc.call("CreateSession", request_id="same", agent_deployment_id=space.deployment_id) for rpc in rpcs)
    )
    assert len({answer.session.session_id for answer in made}) == 1
    assert made[0].session.session_id.startswith("sess_")


@pytest.mark.case(60)
async def test_two_replicas_agree_who_was_first(space: Space) -> None:
    async with live_replica(space.live.dsn, *QUICK) as other:
        session_id = (await space.session()).session.session_id
        rpcs = [space.rpc, other.rpc(space.key)]
        for turn in range(10):
            asked = appending(space, session_id, f"turn {turn}")
            answers = await asyncio.gather(*(rpcs[n % 2].call("AppendEvent", **asked) for n in range(6)))
            assert len({(answer.seq, answer.event_id) for answer in answers}) == 1
            made = {
                "agent_deployment_id": space.deployment_id,
                "request_id": asked["request_id"],
                "first_message": {"parts": [{"text": "hello"}]},
            }
            calls = [rpcs[n % 2].call("CreateSession", **made) for n in range(6)]
            others = [rpcs[n % 2].call("CreateSession", **made | {"request_id": fresh()}) for n in range(4)]
            created = await asyncio.gather(*calls, *others)
            assert len({(answer.session.session_id, answer.run_id, answer.seq) for answer in created[:6]}) == 1
            assert len({answer.session.session_id for answer in created}) == 5
        assert [event.type for event in await space.log(session_id)].count("user.message") == 10
        named = {"method": "CreateSession", "request_id": asked["request_id"]}
        found = await space.rpc.call("GetRequest", **named)
        assert (found.resource_id, found.run_id) == (created[0].session.session_id, created[0].run_id)
        assert found.method == "CreateSession"


async def test_a_repeat_is_answered_whatever_the_session_has_become(space: Space) -> None:
    """What a request did may be the reason why it would be refused now. Its repeat is no second request."""
    rpc = space.rpc
    session_id = (await space.session()).session.session_id
    head = (await space.get(session_id)).head_seq
    first = appending(space, session_id, expected_head_seq=head, if_busy="IF_BUSY_REJECT")
    said = await rpc.call("AppendEvent", **first)
    canceled = {"session_id": session_id, "run_id": said.run_id, "request_id": fresh()}
    await rpc.call("CancelRun", **canceled)
    completed = {"session_id": session_id, "request_id": fresh()}
    await rpc.call("CompleteSession", **completed)
    log = await space.log(session_id)
    again = await rpc.call("AppendEvent", **first)
    assert (again.seq, again.event_id, again.run_id, again.replayed) == (said.seq, said.event_id, said.run_id, True)
    assert (await rpc.call("CancelRun", **canceled)).replayed
    ended = await rpc.call("CompleteSession", **completed)
    assert (ended.replayed, ended.session.head_seq) == (True, len(log))
    await reused(rpc.call("AppendEvent", **first | {"expected_head_seq": head + 1}))
    await reused(rpc.call("AppendEvent", **first | {"if_busy": "IF_BUSY_ENQUEUE"}))
    await reused(rpc.call("CancelRun", **canceled | {"reason": "another"}))
    assert await space.log(session_id) == log
    deleted = {"session_id": session_id, "request_id": fresh()}
    assert not (await rpc.call("DeleteSession", **deleted)).replayed
    assert (await rpc.call("DeleteSession", **deleted)).replayed
    for call in (rpc.call("AppendEvent", **first), rpc.call("CompleteSession", **completed)):
        with pytest.raises(Refused) as refused:
            await call
        assert refused.value.reason == "NOT_FOUND"


async def test_a_repeat_of_create_shows_the_session_as_it_stands(space: Space) -> None:
    asked = {
        "agent_deployment_id": space.deployment_id,
        "request_id": fresh(),
        "labels": {"a": "1", "b": "2"},
        "first_message": {"parts": [{"text": "hello"}]},
    }
    made = await space.rpc.call("CreateSession", **asked)
    await space.interrupt(made.session.session_id)
    again = await space.rpc.call("CreateSession", **asked)
    assert (again.run_id, again.seq, again.replayed) == (made.run_id, made.seq, True)
    assert again.session.head_seq > made.session.head_seq
    # No client's order of bytes matters, and a field that is only in another place is the same request.
    other_order = space.rpc.request("CreateSession", **asked | {"labels": {"b": "2", "a": "1"}})
    swapped = type(other_order)(labels=other_order.labels).SerializeToString()
    other_order.ClearField("labels")
    assert (await space.rpc.send("CreateSession", swapped + other_order.SerializeToString())).replayed
    # A field that this server does not know is a difference all the same.
    await reused(space.rpc.send("CreateSession", other_order.SerializeToString() + swapped + b"\xf8\x7f\x01"))
    await reused(space.rpc.call("CreateSession", **asked | {"labels": {"a": "1"}}))


async def test_ids_belong_to_who_calls_what(space: Space) -> None:
    one, two = [(await space.session()).session.session_id for _ in range(2)]
    asked = appending(space, one)
    seq = (await space.rpc.call("AppendEvent", **asked)).seq
    assert not (await space.rpc.call("AppendEvent", **asked | {"session_id": two})).replayed
    assert not (await space.rpc.call("CancelSession", session_id=two, request_id=asked["request_id"])).replayed
    found = await space.rpc.call("GetRequest", method="AppendEvent", session_id=one, request_id=asked["request_id"])
    assert (found.seq, found.resource_id) == (seq, one)
    # A rotated key speaks for the same subject and so finds its own.
    rotated = (await space.rpc.call("CreateApiKey", subject=space.subject, display_name="next")).secret
    assert (await space.live.rpc(rotated).call("AppendEvent", **asked)).replayed
    with pytest.raises(Refused) as refused:
        await space.rpc.call("GetRequest", method="AppendEvent", session_id=one, request_id="never-used")
    assert refused.value.reason == "NOT_FOUND"
    for wrong in ("", "x" * 129, "tab\t", "ü"):
        with pytest.raises(Refused) as refused:
            await space.rpc.call("AppendEvent", **asked | {"request_id": wrong})
        assert "request_id" in refused.value.fields


async def test_a_refused_request_is_not_remembered(space: Space) -> None:
    created = await space.session("busy")
    session_id = created.session.session_id
    asked = appending(space, session_id, if_busy="IF_BUSY_REJECT")
    with pytest.raises(Refused) as refused:
        await space.rpc.call("AppendEvent", **asked)
    assert refused.value.reason == "SESSION_BUSY"
    await space.rpc.call("CancelRun", session_id=session_id, run_id=created.run_id)
    assert not (await space.rpc.call("AppendEvent", **asked)).replayed


@pytest.mark.case(61)
async def test_another_request_under_an_id_that_is_in_flight(dsn: str) -> None:
    async with held_at_the_database(dsn) as (space, proxy):
        session_id = (await space.session()).session.session_id
        asked = appending(space, session_id)
        proxy.fault = lambda statement: "hold-reply" if writes_log(statement) else None
        first = asyncio.create_task(space.rpc.call("AppendEvent", **asked))
        await proxy.held.wait()
        await reused(space.rpc.call("AppendEvent", **asked | {"if_busy": "IF_BUSY_REJECT"}))
        twin = asyncio.create_task(space.rpc.call("AppendEvent", **asked))
        proxy.release.set()
        assert (await first).seq == (await twin).seq
        assert twin.result().replayed


@pytest.mark.rule("R35", "R42")
@pytest.mark.case(63)
async def test_cut_off_after_the_commit_and_before_the_answer(dsn: str) -> None:
    async with held_at_the_database(dsn) as (space, proxy):
        port = int(space.live.address.rpartition(":")[2])
        async with http2_proxy(port) as network:
            session_id = (await space.session()).session.session_id
            head = (await space.get(session_id)).head_seq
            asked = appending(space, session_id, expected_head_seq=head)
            far = Rpc(network.address, space.key)
            proxy.fault = lambda statement: "hold-reply" if writes_log(statement) else None
            first = asyncio.create_task(far.call("AppendEvent", **asked))
            await proxy.held.wait()
            network.last.cut()
            with pytest.raises(Refused) as refused:
                await first
            assert refused.value.code.name == "UNAVAILABLE"
            proxy.fault = lambda statement: None
            proxy.release.set()
            again = await far.call("AppendEvent", **asked)
            assert (again.seq, again.replayed) == (head + 1, True)
            log = await space.log(session_id)
            assert [event.type for event in log].count("user.message") == 1
            run = await space.rpc.call("GetRun", session_id=session_id, run_id=again.run_id)
            assert run.run.pending_reason
            await far.close()


@pytest.mark.case(96)
async def test_what_no_batch_took_by_its_deadline_is_not_applied(dsn: str) -> None:
    """The lane is busy with one batch; of those that wait behind it, the one that is given up does not happen."""
    async with held_at_the_database(dsn) as (space, proxy):
        session_id = (await space.session()).session.session_id
        taken, waits, given_up = (appending(space, session_id, text) for text in ("taken", "waits", "given up"))
        proxy.fault = lambda statement: "hold-reply" if writes_log(statement) else None
        with pytest.raises(Refused) as refused:
            await space.rpc.call("AppendEvent", timeout=0.5, **taken)
        assert refused.value.code.name == "DEADLINE_EXCEEDED"
        assert proxy.held.is_set()
        patient = asyncio.create_task(space.rpc.call("AppendEvent", **waits))
        with pytest.raises(Refused) as refused:
            await space.rpc.call("AppendEvent", timeout=0.05, **given_up)
        assert refused.value.code.name == "DEADLINE_EXCEEDED"
        proxy.fault = lambda statement: None
        proxy.release.set()
        last = await patient
        # Caught up by one more that commits after all of them.
        await space.interrupt(session_id)
        said = [e.user_message.parts[0].text for e in await space.log(session_id) if e.type == "user.message"]
        assert said == ["taken", "waits"]

        async def became(asked: dict[str, object]) -> int:
            named = {"session_id": session_id, "request_id": asked["request_id"]}
            return (await space.rpc.call("GetRequest", method="AppendEvent", **named)).seq

        assert await became(waits) == last.seq
        assert 0 < await became(taken) < last.seq
        with pytest.raises(Refused) as refused:
            await became(given_up)
        assert refused.value.reason == "NOT_FOUND"


@pytest.mark.case(64)
async def test_an_id_is_new_again_once_it_is_forgotten(dsn: str) -> None:
    """What is older than ids are kept is swept; then the same id is a new request, with nothing of the old answer."""
    async with live_replica(dsn, *QUICK) as live:
        space = await make_space(live)
        session_id = (await space.session()).session.session_id
        asked = appending(space, session_id)
        first = await space.rpc.call("AppendEvent", **asked)
        await _days_later(live)
    async with live_replica(dsn, *QUICK) as live:
        space = replace(space, live=live, rpc=live.rpc(space.key))
        named = {"method": "AppendEvent", "session_id": session_id, "request_id": asked["request_id"]}
        await _forgotten(space, named)
        other = asked | {"user_message": {"parts": [{"text": "another"}]}}
        second = await space.rpc.call("AppendEvent", **other)
        assert (second.replayed, second.seq > first.seq, second.run_id != first.run_id) == (False, True, True)
        assert (await space.log(session_id))[second.seq - 1].user_message.parts[0].text == "another"
        await reused(space.rpc.call("AppendEvent", **asked))
        await space.rpc.call("CancelSession", session_id=session_id)
        with pytest.raises(Refused) as refused:
            await space.rpc.call("AppendEvent", **asked | {"request_id": fresh()})
        assert refused.value.reason == "SESSION_TERMINAL"


async def _forgotten(space: Space, named: dict[str, object]) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await space.rpc.call("GetRequest", **named)
            except Refused:
                return
            await asyncio.sleep(0.1)


async def _days_later(live: Live) -> None:
    async with await psycopg.AsyncConnection.connect(live.dsn, autocommit=True) as conn:
        await conn.execute("UPDATE request_ids SET accept_time = accept_time - interval '2 days'")
