"""Sessions from outside: what they are made of, how they end, how they are found, and two messages at once."""

import asyncio
from dataclasses import replace

import pytest
from support.replicas import Refused, Space, fresh, live_replica, make_space
from support.story import statuses
from turnlog.v1 import session_pb2
from turnlog_server.domain.access import Role

NOWHERE = "sess_" + "0" * 26


async def refusal(call: object) -> Refused:
    """The refusal that the call ends with."""
    with pytest.raises(Refused) as refused:
        await call  # type: ignore[misc]
    return refused.value


@pytest.mark.rule("R4", "R5", "R6", "R9")
async def test_what_a_session_is_made_of(space: Space) -> None:
    created = await space.session("hello", labels={"team": "docs", "empty": ""})
    session = created.session
    assert session.session_id.startswith("sess_")
    assert (session.principal, session.reusable, dict(session.labels)) == (
        space.subject,
        True,
        {"team": "docs", "empty": ""},
    )
    pins = session.pins
    assert (pins.agent_deployment_id, pins.agent_deployment_revision_number) == (space.deployment_id, 1)
    assert pins.agent_id
    assert (pins.agent_version_number, pins.harness_profile_id != "", pins.sandbox_profile_id != "") == (1, True, True)
    log = await space.log(session.session_id)
    made = log[0].session_created
    assert (made.pins, made.principal, dict(made.labels)) == (pins, session.principal, dict(session.labels))
    assert session.create_time == log[0].create_time
    assert session.update_time == log[-1].create_time
    assert created.seq == log[1].seq
    assert log[1].run_id == created.run_id
    assert "session_id" not in {field.name for field in log[0].DESCRIPTOR.fields}
    for fields, reason in (
        ({"agent_deployment_id": "adep_" + "0" * 26}, "NOT_FOUND"),
        ({"agent_deployment_revision_number": 2}, "NOT_FOUND"),
        ({"principal": "prn_" + "0" * 26}, "DELEGATION_MISSING"),
        ({"agent_deployment_revision_number": 0}, "INVALID_FIELD"),
        ({"labels": {"not a key": "x"}}, "INVALID_FIELD"),
        ({"labels": {"key": "x" * 256}}, "INVALID_FIELD"),
        ({"labels": {f"key{n}": "x" for n in range(65)}}, "INVALID_FIELD"),
    ):
        assert (await refusal(space.session(**fields))).reason == reason, fields


@pytest.mark.rule("R5")
async def test_the_version_of_the_api_may_be_named(space: Space) -> None:
    info = await space.rpc.call("GetServerInfo")
    assert info.api_versions
    for version in info.api_versions:
        rpc = space.live.rpc(space.key, **{"turnlog-api-version": version})
        assert (await rpc.call("ListSessions")).DESCRIPTOR
    rpc = space.live.rpc(space.key, **{"turnlog-api-version": "1999-01-01"})
    refused = await refusal(rpc.call("ListSessions"))
    assert (refused.code.name, refused.reason) == ("INVALID_ARGUMENT", "API_VERSION_UNSUPPORTED")
    assert refused.metadata["supported"] == ",".join(info.api_versions)


@pytest.mark.rule("R55", "R60")
async def test_a_busy_session_is_not_completed_or_deleted(space: Space) -> None:
    created = await space.session("hello")
    named = {"session_id": created.session.session_id}
    for rpc in ("CompleteSession", "DeleteSession"):
        refused = await refusal(space.rpc.call(rpc, **named))
        assert (refused.code.name, refused.reason) == ("FAILED_PRECONDITION", "SESSION_BUSY")
        assert refused.metadata["run_id"] == created.run_id
    await space.interrupt(created.session.session_id)
    await space.rpc.call("CompleteSession", **named)
    await space.rpc.call("DeleteSession", **named)


async def test_a_deleted_session_was_never_there(space: Space) -> None:
    created = await space.session("hello")
    session_id, run_id = created.session.session_id, created.run_id
    await space.rpc.call("CancelSession", session_id=session_id)
    await space.rpc.call("DeleteSession", session_id=session_id)
    rpc, run = space.rpc, {"run_id": run_id}
    for call in (
        rpc.call("GetSession", session_id=session_id),
        rpc.call("ListEvents", session_id=session_id),
        rpc.call("ListRuns", session_id=session_id),
        rpc.call("GetRun", session_id=session_id, **run),
        rpc.call("ListAttempts", session_id=session_id, **run),
        rpc.call("CancelRun", session_id=session_id, **run),
        rpc.call("DeleteSession", session_id=session_id),
        space.say(session_id),
        rpc.stream("FollowEvents", session_id=session_id).frame(),
    ):
        refused = await refusal(call)
        assert (refused.code.name, refused.reason) == ("NOT_FOUND", "NOT_FOUND")
    assert not (await rpc.call("ListSessions")).sessions


@pytest.mark.rule("R56", "R57")
async def test_a_one_shot_session_has_one_message(space: Space) -> None:
    session_id = (await space.session("only", reusable=False)).session.session_id
    refused = await refusal(space.say(session_id, "another"))
    assert (refused.code.name, refused.reason) == ("FAILED_PRECONDITION", "SESSION_NOT_REUSABLE")
    await space.interrupt(session_id)
    assert (await space.get(session_id)).status == session_pb2.SESSION_STATUS_IDLE
    assert (await refusal(space.say(session_id, "another"))).reason == "SESSION_NOT_REUSABLE"
    await space.rpc.call("CompleteSession", session_id=session_id)
    empty = (await space.session(reusable=False)).session.session_id
    assert (await space.say(empty, "the first")).run_id


async def test_sessions_are_found_by_label_and_status(space: Space) -> None:
    made = {}
    for number in range(7):
        labels = {"n": str(number % 2), "all": "yes"}
        made[number] = (await space.session("go" if number < 3 else "", labels=labels)).session.session_id
    newest_first = [made[number] for number in reversed(range(7))]

    async def found(**fields: object) -> list[str]:
        ids, token = [], ""
        while True:
            page = await space.rpc.call("ListSessions", page_token=token, **fields)
            ids.extend(session.session_id for session in page.sessions)
            if not (token := page.next_page_token):
                return ids

    assert await found() == newest_first
    for size in (1, 2, 3, 7, 500, 5_000):
        assert await found(page_size=size) == newest_first
        assert await found(labels={"n": "1", "all": "yes"}, page_size=size) == [made[5], made[3], made[1]]
    assert await found(statuses=["SESSION_STATUS_PENDING"]) == [made[2], made[1], made[0]]
    assert await found(statuses=["SESSION_STATUS_PENDING", "SESSION_STATUS_IDLE"], labels={"n": "0"}) == [
        made[6], made[4], made[2], made[0],
    ]  # fmt: skip
    assert await found(labels={"n": "2"}) == []
    page = await space.rpc.call("ListSessions", page_size=2)
    refused = await refusal(space.rpc.call("ListSessions", labels={"n": "1"}, page_token=page.next_page_token))
    assert "page_token" in refused.fields
    assert "page_size" in (await refusal(space.rpc.call("ListSessions", page_size=-1))).fields
    other = await make_space(space.live)
    assert not (await other.rpc.call("ListSessions")).sessions
    assert not (await other.rpc.call("ListSessions", page_size=2, page_token=page.next_page_token)).sessions


@pytest.mark.rule("R13")
@pytest.mark.case(114)
async def test_a_message_while_a_turn_is_active(space: Space) -> None:
    """At each place of the first turn, with each policy, chosen in the commit that appends it."""
    async with space.runner() as runner:
        for place in ("pending", "provisioning", "running"):
            created = await space.session("first")
            session_id = created.session.session_id
            offer = None
            if place != "pending":
                offer = await runner.offer()
                await runner.accept(offer)
            if place == "running":
                await runner.ready(offer)
            assert statuses(await space.log(session_id))[-1] == place
            head = (await space.get(session_id)).head_seq
            refused = await refusal(space.say(session_id, "no", if_busy="IF_BUSY_REJECT"))
            assert (refused.reason, refused.metadata["run_id"]) == ("SESSION_BUSY", created.run_id)
            assert (await space.get(session_id)).head_seq == head
            second = await space.say(session_id, "second", if_busy="IF_BUSY_ENQUEUE")
            third = await space.say(session_id, "third")
            session = await space.get(session_id)
            assert (session.active_run_id, session.queued_turns) == (created.run_id, 2)
            urgent = await space.say(session_id, "urgent", if_busy="IF_BUSY_INTERRUPT")
            if offer is not None:
                await runner.expect("interrupt")
                await runner.settle(offer, "OUTCOME_STOPPED")
            for expected in (urgent, second, third):
                offer = await runner.start()
                assert offer.run_id == expected.run_id
                await runner.settle(offer)
            log = await space.log(session_id)
            ended = [event.run_id for event in log if event.type in ("run.succeeded", "run.interrupted")]
            assert ended == [created.run_id, urgent.run_id, second.run_id, third.run_id]


@pytest.mark.case(114)
async def test_two_messages_at_once_and_each_says_reject(space: Space) -> None:
    """Of two that would both start a turn exactly one does, also over two connections."""
    rpcs = [space.rpc, space.live.rpc(space.key)]
    for _ in range(10):
        session_id = (await space.session()).session.session_id
        answers = await asyncio.gather(
            *(
                rpc.call(
                    "AppendEvent",
                    session_id=session_id,
                    authored_by=space.subject,
                    caused_by={"kind": "KIND_API"},
                    user_message={"parts": [{"text": "me"}]},
                    if_busy="IF_BUSY_REJECT",
                )
                for rpc in rpcs
            ),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, Refused)]
        assert [each.reason for each in refused] == ["SESSION_BUSY"]
        assert [event.type for event in await space.log(session_id)].count("user.message") == 1


@pytest.mark.rule("R33")
async def test_no_refusal_rests_on_what_a_replica_remembers(space: Space) -> None:
    """Each replica in turn knows an older state of the Session than the other made."""
    async with live_replica(space.live.dsn) as other:
        here, there = space, replace(space, rpc=other.rpc(space.key))
        session_id = (await here.session()).session.session_id
        for _ in range(3):
            run_id = (await here.say(session_id, if_busy="IF_BUSY_REJECT")).run_id
            assert (await refusal(there.say(session_id, if_busy="IF_BUSY_REJECT"))).metadata["run_id"] == run_id
            await there.rpc.call("CancelRun", session_id=session_id, run_id=run_id)
            again = await here.say(session_id, if_busy="IF_BUSY_REJECT")
            await here.interrupt(session_id, run_id=again.run_id)
            here, there = there, here
        await here.rpc.call("CompleteSession", session_id=session_id)
        assert (await refusal(there.say(session_id))).reason == "SESSION_TERMINAL"
        await there.rpc.call("DeleteSession", session_id=session_id)
        assert (await refusal(here.say(session_id))).reason == "NOT_FOUND"


@pytest.mark.case(114)
async def test_no_more_turns_wait_than_may(space: Space) -> None:
    session_id = (await space.session("active")).session.session_id
    await asyncio.gather(*(space.say(session_id, str(number)) for number in range(100)))
    assert (await space.get(session_id)).queued_turns == 100
    refused = await refusal(space.say(session_id, "one too many"))
    assert (refused.code.name, refused.reason) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
    assert refused.metadata == {"quota": "queued_turns", "maximum": "100"}
    runs, token = [], ""
    while True:
        page = await space.rpc.call("ListRuns", session_id=session_id, page_size=30, page_token=token)
        runs.extend(run.trigger.seq for run in page.runs)
        if not (token := page.next_page_token):
            break
    assert len(runs) == 101
    assert runs == sorted(runs, reverse=True)
    await space.rpc.call("CancelSession", session_id=session_id)
    session = await space.get(session_id)
    assert (session.queued_turns, session.status) == (0, session_pb2.SESSION_STATUS_CANCELED)


async def test_one_queued_turn_is_canceled_alone(space: Space) -> None:
    created = await space.session("active")
    session_id = created.session.session_id
    one, two = [await space.say(session_id, text) for text in ("one", "two")]
    run = (await space.rpc.call("CancelRun", session_id=session_id, run_id=one.run_id, reason="changed my mind")).run
    assert run.error.message == "changed my mind"
    session = await space.get(session_id)
    assert (session.active_run_id, session.queued_turns) == (created.run_id, 1)
    refused = await refusal(space.rpc.call("CancelRun", session_id=session_id, run_id=one.run_id))
    assert (refused.code.name, refused.reason) == ("FAILED_PRECONDITION", "ALREADY_SETTLED")
    refused = await refusal(space.interrupt(session_id, run_id=two.run_id))
    assert refused.reason == "ILLEGAL_TRANSITION"
    assert (await space.interrupt(session_id, run_id=created.run_id)).run_id == created.run_id
    assert (await space.get(session_id)).active_run_id == two.run_id


async def test_roles_of_sessions(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    viewer = space.live.rpc(await space.key_for(Role.VIEWER))
    assert (await viewer.call("GetSession", session_id=session_id)).session.session_id == session_id
    for call in (
        viewer.call("CreateSession", agent_deployment_id=space.deployment_id),
        viewer.call("DeleteSession", session_id=session_id),
        viewer.call("CancelSession", session_id=NOWHERE),
    ):
        refused = await refusal(call)
        assert (refused.code.name, refused.reason) == ("PERMISSION_DENIED", "PERMISSION_MISSING")
        assert refused.metadata == {"verb": "WRITE", "scope": "session"}
    contributor = space.live.rpc(await space.key_for(Role.CONTRIBUTOR))
    made = (await contributor.call("CreateSession", agent_deployment_id=space.deployment_id)).session
    # The subject behind the key is a service account: no principal acts.
    assert made.principal == ""
    refused = await refusal(
        contributor.call(
            "AppendEvent",
            session_id=made.session_id,
            request_id=fresh(),
            authored_by=space.subject,
            caused_by={"kind": "KIND_API"},
            user_message={"parts": [{"text": "in your name"}]},
        )
    )
    assert refused.reason == "AUTHOR_NOT_ALLOWED"
