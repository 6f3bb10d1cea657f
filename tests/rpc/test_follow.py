"""Following a log: never a gap, never a duplicate, and an end that says what it means."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from support.replicas import FakeRunner, Refused, Rpc, Space, live_replica, said
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import event_pb2

QUICK = ("--safety-poll-seconds", "0.2", "--progress-seconds", "0.5")


async def pour(runner: FakeRunner, offer: fleet.Offer, count: int, text: str = "x", batch: int = 250) -> None:
    """Events of the agent into the log, `count` of them, acknowledged."""
    for start in range(0, count, batch):
        size = min(batch, count - start)
        await runner.append(offer, *[f"{text}{start + index}" for index in range(size)])


def seqs(events: list[event_pb2.Event]) -> list[int]:
    """The positions."""
    return [event.seq for event in events]


@asynccontextmanager
async def working(space: Space, **fields: object) -> AsyncIterator[tuple[str, FakeRunner, fleet.Offer]]:
    """A Session whose Run is in the test's hands."""
    session_id = (await space.session("go", **fields)).session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        yield session_id, runner, offer


@pytest.mark.rule("R31", "R41")
@pytest.mark.case(19)
@pytest.mark.slow
async def test_from_replay_to_live_without_a_seam(space: Space) -> None:
    """A long log is followed from its start while more is written, cut at random places, from two connections."""
    async with working(space) as (session_id, runner, offer):
        await pour(runner, offer, 16_000, batch=1_000)
        writing = asyncio.create_task(pour(runner, offer, 4_000, batch=50))
        got: list[int] = []
        cuts = sorted(random.sample(range(500, 18_000), 5))
        rpcs = [space.rpc, space.live.rpc(space.key)]
        for turn, cut in enumerate([*cuts, None]):
            follow = rpcs[turn % 2].stream("FollowEvents", session_id=session_id, after_seq=len(got))
            while (cut is None and not (writing.done() and got[-1] >= 20_000)) or (cut is not None and len(got) < cut):
                frame = await follow.frame()
                got.extend(seqs(frame.events.events))
            follow.cancel()
        await writing
        head = (await space.get(session_id)).head_seq
        assert got == list(range(1, len(got) + 1))
        assert head - 5 <= len(got) <= head
        await runner.settle(offer)


@pytest.mark.rule("R41")
@pytest.mark.case(21)
async def test_a_cursor_at_the_head_waits_and_above_it_is_refused(space: Space) -> None:
    session_id = (await space.session()).session.session_id
    head = (await space.get(session_id)).head_seq
    for above in (head + 1, head + 1000, 2**63 - 1, 2**64 - 1):
        for call in (
            space.rpc.stream("FollowEvents", session_id=session_id, after_seq=above).frame(),
            space.rpc.stream("FollowSessions", sessions=[{"session_id": session_id, "after_seq": above}]).frame(),
            space.rpc.call("ListEvents", session_id=session_id, after_seq=above),
        ):
            with pytest.raises(Refused) as refused:
                await call
            assert (refused.value.code.name, refused.value.reason) == ("OUT_OF_RANGE", "CURSOR_AHEAD")
            assert refused.value.metadata == {"head_seq": str(head)}
    follow = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=head)
    assert await follow.until("caught_up") == []
    await space.say(session_id, "news")
    assert seqs(await follow.events(1))[0] == head + 1
    follow.cancel()


@pytest.mark.rule("R40")
async def test_a_list_and_a_follow_tell_the_same(space: Space) -> None:
    async with working(space) as (session_id, runner, offer):
        await pour(runner, offer, 30)
        await runner.settle(offer)
    whole = await space.log(session_id)
    for after in (0, 1, 7, len(whole) - 1, len(whole)):
        follow = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=after)
        followed = await follow.until("caught_up")
        listed = (await space.rpc.call("ListEvents", session_id=session_id, after_seq=after, page_size=1000)).events
        assert [e.SerializeToString() for e in followed] == [e.SerializeToString() for e in listed]
        assert seqs(followed) == list(range(after + 1, len(whole) + 1))
        follow.cancel()
    token, paged = "", []
    while True:
        page = await space.rpc.call("ListEvents", session_id=session_id, page_size=7, page_token=token)
        assert page.head_seq == len(whole)
        paged.extend(page.events)
        if not (token := page.next_page_token):
            break
    assert seqs(paged) == seqs(whole)


@pytest.mark.rule("R41")
async def test_a_filtered_follow_is_told_when_it_caught_up(space: Space) -> None:
    """Also where others follow already, and nothing of what it asked for is in what it missed."""
    session_id = (await space.session()).session.session_id
    whole = space.rpc.stream("FollowEvents", session_id=session_id)
    await whole.until("caught_up")
    head = [(await space.interrupt(session_id)).seq for _ in range(3)][-1]
    for after in range(head + 1):
        follow = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=after, types=["agent.message"])
        assert await follow.until("caught_up") == []
        assert follow.frames[-1].caught_up.seq == head
        assert len(follow.frames) <= 2
        follow.cancel()
    whole.cancel()


@pytest.mark.rule("R41")
@pytest.mark.case(24, 34)
async def test_a_filtered_follow_moves_its_cursor_while_others_are_written(space: Space) -> None:
    """Nothing of what it asked for comes for a while, and yet it gets cursors to resume from, however busy the log."""
    async with working(space) as (session_id, runner, offer):
        follow = space.rpc.stream("FollowEvents", session_id=session_id, types=["session.status_idle"])
        assert await follow.until("caught_up") == []
        writing = asyncio.create_task(_until_cancelled(runner, offer))
        cursors: list[int] = []
        while len(cursors) < 3:
            frame = await follow.frame()
            assert not frame.events.events
            if frame.WhichOneof("frame") == "progress":
                cursors.append(frame.progress.through_seq)
        assert cursors == sorted(set(cursors))
        assert not writing.done(), writing.exception()
        follow.cancel()
        resumed = space.rpc.stream(
            "FollowEvents", session_id=session_id, types=["session.status_idle"], after_seq=cursors[-1]
        )
        await resumed.until("caught_up")
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await space.rpc.call("CancelRun", session_id=session_id, run_id=offer.run_id)
        events = await resumed.events(1)
        assert [event.type for event in events] == ["session.status_idle"]
        assert events[0].seq > cursors[-1]
        resumed.cancel()


async def _until_cancelled(runner: FakeRunner, offer: fleet.Offer) -> None:
    while True:
        await runner.append(offer, "more")


@pytest.mark.rule("R41")
@pytest.mark.case(25)
async def test_no_cursor_is_sent_ahead_of_what_it_stands_for(space: Space) -> None:
    """Cut at each sign of life and resumed from the cursor in it, both halves together are the whole."""
    async with working(space) as (session_id, runner, offer):
        types = ["agent.message", "run.succeeded"]
        got: list[int] = []
        cursor = 0
        for turn in range(4):
            await runner.append(offer, f"before {turn}")
            follow = space.rpc.stream("FollowEvents", session_id=session_id, types=types, after_seq=cursor)
            while True:
                frame = await follow.frame()
                got.extend(seqs(frame.events.events))
                kind = frame.WhichOneof("frame")
                if kind == "caught_up":
                    await runner.append(offer, model_called={"model": "m"})
                    await runner.append(offer, "between")
                if kind == "progress":
                    cursor = frame.progress.through_seq
                    if got and cursor >= got[-1]:
                        break
            follow.cancel()
        await runner.settle(offer)
        follow = space.rpc.stream("FollowEvents", session_id=session_id, types=types, after_seq=cursor)
        got.extend(seqs(await follow.until("caught_up")))
        follow.cancel()
    assert got == [event.seq for event in await space.log(session_id) if event.type in types]


@pytest.mark.rule("R41")
@pytest.mark.case(27)
async def test_a_follower_that_is_slow_reads_on_from_the_log(space: Space) -> None:
    """More is written than any buffer holds while it takes nothing; then it gets all of it, and is told so again."""
    async with working(space) as (session_id, runner, offer):
        narrow = Rpc(space.live.address, space.key)
        # A window that does not grow: else the client itself would take all of it for a reader that does not read.
        narrow.channel = grpc.aio.insecure_channel(
            space.live.address, options=[("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
        )
        follow = narrow.stream("FollowEvents", session_id=session_id)
        got = seqs(await follow.until("caught_up"))
        await pour(runner, offer, 5_000, text="y" * 1_500, batch=100)
        quick = space.rpc.stream("FollowEvents", session_id=session_id)
        head = (await space.get(session_id)).head_seq
        assert len(await quick.events(head)) == head
        quick.cancel()
        while len(got) < head:
            got.extend(seqs((await follow.frame()).events.events))
        assert got == list(range(1, head + 1))
        await follow.until("caught_up")
        await runner.append(offer, "live again")
        assert seqs(await follow.events(1)) == [head + 1]
        await narrow.close()
        await runner.settle(offer)


@pytest.mark.rule("R41")
async def test_many_sessions_on_one_stream(space: Space) -> None:
    made = [await space.session(f"number {n}") for n in range(5)]
    ids = [each.session.session_id for each in made]
    follow = space.rpc.stream(
        "FollowSessions",
        sessions=[{"session_id": session_id} for session_id in ids],
        until={"boundary": "BOUNDARY_TERMINAL"},
    )
    for session_id in ids:
        await space.rpc.call("CancelSession", session_id=session_id)
    got: dict[str, list[int]] = {session_id: [] for session_id in ids}
    while (frame := await follow.frame()) is not None:
        got[frame.session_id].extend(seqs(frame.events.events))
    for session_id in ids:
        assert got[session_id] == seqs(await space.log(session_id))
    for wrong in ([], [{"session_id": ids[0]}] * 2, [{"session_id": f"sess_{n:026}"} for n in range(1_001)]):
        with pytest.raises(Refused) as refused:
            await space.rpc.stream("FollowSessions", sessions=wrong).frame()
        assert "sessions" in refused.value.fields


@pytest.mark.rule("R62")
@pytest.mark.case(108)
async def test_a_session_whose_follow_has_ended_may_go_on_beside_the_others(space: Space) -> None:
    ended, other = [(await space.session("hello")).session.session_id for _ in range(2)]
    follow = space.rpc.stream(
        "FollowSessions",
        sessions=[{"session_id": ended}, {"session_id": other}],
        until={"boundary": "BOUNDARY_TURN"},
    )
    run_id = (await space.get(ended)).active_run_id
    await space.rpc.call("CancelRun", session_id=ended, run_id=run_id)
    while not ((frame := await follow.frame()).HasField("end") and frame.session_id == ended):
        pass
    await space.say(ended, "again")
    said = await space.say(other, "again")
    seen: list[int] = []
    while said.seq not in seen:
        frame = await follow.frame()
        assert frame.session_id == other
        seen.extend(event.seq for event in frame.events.events)
    await space.rpc.call("CancelSession", session_id=other)
    await follow.until("end")


async def test_whoever_sees_the_end_of_a_turn_sees_all_before_it(space: Space) -> None:
    """The end is seen on one replica, the log read at once on another."""
    async with live_replica(space.live.dsn, *QUICK) as other:
        far = other.rpc(space.key)
        session_id = (await space.session()).session.session_id
        async with space.runner() as runner:
            for turn in range(5):
                said_ = await space.say(session_id, f"turn {turn}")
                follow = far.stream(
                    "FollowEvents",
                    session_id=session_id,
                    after_seq=said_.seq,
                    until={"boundary": "BOUNDARY_TURN", "run_id": said_.run_id},
                )
                offer = await runner.start()
                await runner.send(append=fleet.Append(lease=runner.lease(offer), events=[said(f"answer {turn}")]))
                await runner.send(settle=fleet.Settle(lease=runner.lease(offer), outcome="OUTCOME_SUCCEEDED"))
                followed = await follow.until("end")
                for rpc in (space.rpc, far):
                    page = await rpc.call("ListEvents", session_id=session_id, after_seq=said_.seq, page_size=1000)
                    assert seqs(page.events)[: len(followed)] == seqs(followed)
                    got = (await rpc.call("GetSession", session_id=session_id)).session
                    assert (got.status, got.head_seq) == (followed[-1].session_status_idle.status, followed[-1].seq)
                assert [e.agent_message.parts[0].text for e in followed if e.type == "agent.message"] == [
                    f"answer {turn}"
                ]


@pytest.mark.rule("R31", "R41")
@pytest.mark.case(18)
async def test_given_up_appends_leave_no_hole(space: Space) -> None:
    """Some callers go away in the middle, some are refused: what is followed has no gap and waits for none."""
    session_id = (await space.session()).session.session_id
    follow = space.rpc.stream("FollowEvents", session_id=session_id)
    await follow.until("caught_up")

    async def append(number: int) -> None:
        rpc = space.rpc if number % 3 else space.live.rpc(space.key)
        call = asyncio.create_task(
            rpc.call(
                "AppendEvent",
                session_id=session_id,
                authored_by=space.subject,
                caused_by={"kind": "KIND_API"},
                user_interrupt={"reason": str(number)},
                **({"expected_head_seq": 1} if number % 10 == 5 else {}),
            )
        )
        if number % 10 == 0:
            await asyncio.sleep(random.uniform(0, 0.003))
            call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    for start in range(0, 200, 20):
        await asyncio.gather(*(append(number) for number in range(start, start + 20)))
    await space.say(session_id, "last")
    head = (await space.get(session_id)).head_seq
    assert 160 <= head <= 215
    got = seqs(await follow.events(head - 2))
    assert got == list(range(3, head + 1))
    follow.cancel()


@pytest.mark.rule("R40")
async def test_previews_are_seen_and_not_kept(space: Space) -> None:
    async with working(space) as (session_id, runner, offer):
        follow = space.rpc.stream("FollowEvents", session_id=session_id, previews=True)
        plain = space.rpc.stream("FollowEvents", session_id=session_id)
        await follow.until("caught_up")
        await plain.until("caught_up")
        preview = fleet.PreviewText(session_id=session_id, run_id=offer.run_id, attempt_no=1, text="thinking…")
        await runner.send(preview=preview)
        while (frame := await follow.frame()).WhichOneof("frame") != "preview":
            pass
        assert (frame.preview.text, frame.preview.run_id) == ("thinking…", offer.run_id)
        await runner.append(offer, "done")
        await plain.event("agent.message")
        assert not any(each.WhichOneof("frame") == "preview" for each in plain.frames)
        follow.cancel()
        plain.cancel()
    assert not any("thinking" in str(event) for event in await space.log(session_id))
