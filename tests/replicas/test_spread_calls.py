"""Calls that a proxy spreads over three replicas: to callers there is one log, one answer, one winner."""

import asyncio
from typing import Any

import pytest
from support.fronted import Fronted, note, seqs_up_to
from support.replicas import Refused, Space, fresh
from support.story import text_of

pytestmark = pytest.mark.system("haproxy")


async def appended(trio: Fronted) -> list[float]:
    """How many appends each replica has answered."""
    return [await live.metric("turnlog_requests_total", method="AppendEvent", code="OK") for live in trio.lives]


async def at_once(*calls: Any) -> tuple[list[Any], list[Refused]]:
    """What was answered, and what was refused."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, Refused)]
    for each in outcomes:
        if isinstance(each, BaseException) and not isinstance(each, Refused):
            raise each
    return [each for each in outcomes if not isinstance(each, Refused)], refused


@pytest.mark.rule("R31", "R40", "R41")
async def test_appends_to_any_are_followed_on_every_one(trio: Fronted) -> None:
    """Many callers at once, each call to the next replica; followers on each, moved in the middle, see one order."""
    space = await trio.space()
    session_id = (await space.session()).session.session_id
    before = await appended(trio)
    follows = [each.rpc.stream("FollowEvents", session_id=session_id) for each in trio.each(space)]
    answers: dict[str, int] = {}

    async def talk(caller: Space) -> None:
        for _ in range(30):
            text = fresh()
            answers[text] = (await note(caller, session_id, text)).seq

    talking = asyncio.gather(*(talk(space.on(space.live)) for _ in range(6)))
    got = [await seqs_up_to(follow, 60, []) for follow in follows]
    for number, follow in enumerate(follows):
        follow.cancel()
        # It goes on by its cursor wherever the proxy leads it.
        follows[number] = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=got[number][-1])
    await talking
    head = max(answers.values())
    for number, follow in enumerate(follows):
        assert await seqs_up_to(follow, head, got[number]) == list(range(1, head + 1))
        follow.cancel()
    logs = [await each.log(session_id) for each in trio.each(space)]
    assert {event.user_interrupt.reason: event.seq for event in logs[0] if event.type == "user.interrupt"} == answers
    assert len({b"".join(event.SerializeToString() for event in log) for log in logs}) == 1
    # Each had its share, or this would show nothing.
    assert all(now - then >= 30 for now, then in zip(await appended(trio), before, strict=True))


@pytest.mark.only_on("postgresql", "crdb-switches", reason="whose commit was unknown may be told it is a repeat")
@pytest.mark.rule("R36")
async def test_one_request_to_three_replicas_at_once_is_one_event(trio: Fronted) -> None:
    space = await trio.space()
    spaces = [*trio.each(space), space, *trio.each(space)]
    for _ in range(10):
        request_id = fresh()
        created = await asyncio.gather(*(each.session("hello", request_id=request_id) for each in spaces))
        assert len({(answer.session.session_id, answer.run_id) for answer in created}) == 1
        assert sorted(answer.replayed for answer in created) == [False] + [True] * 6
    sessions = (await space.rpc.call("ListSessions", page_size=100)).sessions
    assert len(sessions) == 10
    session_id = created[0].session.session_id
    texts = [fresh() for _ in range(20)]
    for text in texts:
        answers = await asyncio.gather(*(each.say(session_id, text, request_id=text) for each in spaces))
        assert len({(answer.seq, answer.event_id, answer.run_id) for answer in answers}) == 1
        assert sorted(answer.replayed for answer in answers) == [False] + [True] * 6
    said = [text_of(event.user_message) for event in await space.log(session_id) if event.type == "user.message"]
    assert said == ["hello", *texts]


@pytest.mark.rule("R36")
async def test_one_request_id_with_three_meanings_is_one_event(trio: Fronted) -> None:
    space = await trio.space()
    session_id = (await space.session()).session.session_id
    for head in range(2, 22):
        request_id = fresh()
        racing = (note(each, session_id, fresh(), request_id=request_id) for each in trio.each(space))
        won, refused = await at_once(*racing)
        assert [answer.seq for answer in won] == [head + 1]
        assert [each.reason for each in refused] == ["REQUEST_ID_REUSED"] * 2


@pytest.mark.rule("R31")
async def test_of_those_who_expect_one_head_exactly_one_appends(trio: Fronted) -> None:
    space = await trio.space()
    session_id = (await space.session()).session.session_id
    spaces = [*trio.each(space), *trio.each(space)]
    texts: list[str] = []
    for head in range(2, 32):
        racing = (note(each, session_id, f"{head} of {n}", expected_head_seq=head) for n, each in enumerate(spaces))
        won, refused = await at_once(*racing)
        assert [answer.seq for answer in won] == [head + 1]
        assert [(each.reason, each.metadata) for each in refused] == [
            ("SEQ_CONFLICT", {"expected_head_seq": str(head), "head_seq": str(head + 1)})
        ] * 5
        texts.append(str(head))
    log = [event.user_interrupt.reason for event in await space.log(session_id) if event.type == "user.interrupt"]
    assert [text.split(" of ")[0] for text in log] == texts
