"""What a runner says of its attempt: numbered, acknowledged once durable, refused without harm to the Run."""

import psycopg
import pytest
from support.fleet import (
    FAILED,
    SUCCEEDED,
    attempts_of,
    ended,
    event,
    reason,
    renewed,
    run_of,
    seen,
    types,
)
from support.replicas import Space, live_replica, make_space, said
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import agent_event_pb2


def texts(log) -> list[str]:
    return [e.agent_message.parts[0].text for e in log if e.type == "agent.message"]


async def test_a_repeat_is_acknowledged_and_dropped_and_a_gap_refused(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()

        async def say(number: int, text: str) -> pb.Ack:
            await runner.send(append=pb.Append(lease=runner.lease(offer, number), events=[said(text)]))
            return await runner.expect("ack")

        assert (await say(2, "one")).through == 2
        repeat = await say(2, "one")
        assert (repeat.through, list(repeat.rejections)) == (2, [])
        # Also under another text: it is the number that counts.
        assert (await say(2, "other")).through == 2
        gap = await say(4, "three")
        assert [(r.message_no, reason(r)) for r in gap.rejections] == [(4, "INVALID_FIELD")]
        assert "3" in gap.rejections[0].message
        assert (await say(3, "two")).through == 3
        # A settlement is a message like any other; it counts once.
        runner.messages[offer.run_id, 1] = 3
        await runner.settle(offer)
    log = await space.log(session_id)
    assert texts(log) == ["one", "two"]
    assert [e.type for e in log].count("run.succeeded") == 1


async def test_messages_of_one_stream_keep_their_order_and_every_one_is_there_once(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        for number in range(60):
            await runner.send(append=pb.Append(lease=runner.lease(offer), events=[said(f"{number}"), said("and")]))
        while (await runner.expect("ack")).through < 61:
            pass
        await runner.settle(offer)
    log = await space.log(created.session.session_id)
    assert texts(log)[::2] == [f"{number}" for number in range(60)]
    # No id of a request is kept for what a runner says: its number is enough.
    with psycopg.connect(space.live.dsn) as connection:
        row = connection.execute(
            "SELECT count(*) FROM request_ids WHERE resource_id = %s", [created.session.session_id]
        ).fetchone()
    assert row == (1,)


@pytest.mark.rule("R172")
async def test_nothing_of_the_harness_before_it_is_ready(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.offer()
        await runner.accept(offer)
        early = await runner.append(offer, "too early")
        assert [(r.message_no, reason(r)) for r in early.rejections] == [(1, "ILLEGAL_TRANSITION")]
        early = await runner.settle(offer)
        assert [reason(r) for r in early.rejections] == ["ILLEGAL_TRANSITION"]
        assert "session.status_running" not in await types(space, session_id)
        # Their numbers are used up, and the attempt goes on.
        await runner.ready(offer)
        assert "session.status_running" in await types(space, session_id)
        twice = await send_ready(runner, offer)
        assert [reason(r) for r in twice.rejections] == ["ILLEGAL_TRANSITION"]
        assert (await runner.append(offer, "now")).through == 5
        unasked = await runner.settle(offer, "OUTCOME_STOPPED")
        assert [reason(r) for r in unasked.rejections] == ["ILLEGAL_TRANSITION"]
        assert list((await runner.settle(offer)).rejections) == []
    assert texts(await space.log(session_id)) == ["now"]
    assert (await types(space, session_id)).count("session.status_running") == 1


async def test_a_tool_that_the_offer_does_not_name_is_refused_and_the_run_goes_on(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        assert [tool.name for tool in offer.agent_version.tools] == ["search"]
        uses = [
            pb.RunnerEvent(agent_tool_use=agent_event_pb2.AgentToolUse(call_id=name, name=name))
            for name in ("search", "shell", "search")
        ]
        await runner.send(append=pb.Append(lease=runner.lease(offer), events=uses))
        ack = await runner.expect("ack")
        assert ack.through == 2
        assert [(r.message_no, r.event_index, reason(r)) for r in ack.rejections] == [(2, 1, "PERMISSION_MISSING")]
        nothing = await runner.append(offer, agent_tool_use=agent_event_pb2.AgentToolUse(call_id="x", name="shell"))
        assert (nothing.through, len(nothing.rejections)) == (3, 1)
        assert list((await runner.append(offer, "done")).rejections) == []
        await runner.settle(offer)
    log = await space.log(session_id)
    assert [e.agent_tool_use.name for e in log if e.type == "agent.tool_use"] == ["search", "search"]
    assert (await run_of(space, session_id, created.run_id)).status == SUCCEEDED


@pytest.mark.rule("R20")
async def test_a_run_records_its_trigger_status_and_cost(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    called = {"usage": {"input_tokens": 10, "output_tokens": 3, "amount_nanos": 7, "currency": "USD"}}
    async with space.runner() as runner:
        offer = await runner.start()
        await runner.append(offer, model_called=called)
        await runner.send(abandon=pb.Abandon(lease=runner.lease(offer)))
        await runner.expect("ack")
        offer = await runner.start()
        await runner.append(offer, model_called=called)
        await runner.append(offer, model_called=called)
        await runner.settle(offer)
    run = await run_of(space, session_id, created.run_id)
    log = await space.log(session_id)
    message = next(e for e in log if e.type == "user.message")
    assert (run.trigger.event_id, run.trigger.seq, run.trigger.type) == (message.event_id, message.seq, "user.message")
    assert run.status == SUCCEEDED
    attempts = await attempts_of(space, session_id, created.run_id)
    assert [attempt.cost.input_tokens for attempt in attempts] == [10, 20]
    for name in ("input_tokens", "output_tokens", "amount_nanos"):
        assert getattr(run.cost, name) == sum(getattr(attempt.cost, name) for attempt in attempts)
    assert run.cost.currency == "USD"


@pytest.mark.case(54)
async def test_a_poisoned_settlement_costs_its_own_run_alone(dsn: str) -> None:
    async with live_replica(dsn, "--safety-poll-seconds", "0.2", "--startup-allowance-seconds", "1") as live:
        space = await make_space(live, max_duration=1)
        poisoned = await space.session("poison")
        session_id = poisoned.session.session_id
        after = await space.say(session_id, "behind it")
        async with space.runner() as runner:
            offer = await runner.start()
            # A failure that gives no error: it is not taken, however often it is sent.
            for _ in range(3):
                ack = await runner.settle(offer, "OUTCOME_FAILED")
                assert [reason(each) for each in ack.rejections] == ["INVALID_FIELD"]
            # Others are not in its way, not even on the same stream,
            healthy = await space.session("healthy")
            fine = await runner.start()
            assert fine.run_id == healthy.run_id
            await runner.settle(fine)
            # and the Run itself ends at its deadline, which frees its Session.
            run = await ended(space, session_id, poisoned.run_id)
            assert (run.status, run.error.code) == (FAILED, "runtime.turn_deadline_exceeded")
            behind = await runner.start()
            assert behind.run_id == after.run_id
            await runner.settle(behind)


async def test_heartbeats_are_heard_while_appends_wait_and_a_flood_is_not(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        async with await psycopg.AsyncConnection.connect(space.live.dsn) as blocker:
            # Until this transaction ends nothing is committed to any Session.
            await blocker.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            for number in range(64):
                await runner.send(append=pb.Append(lease=runner.lease(offer), events=[said(f"{number}")]))
            # Longer than the lease would last without them.
            await renewed(space, runner.runner_id, 2.5)
            assert seen(runner, "lease_lost") == []
            runner.beats = False
            for number in range(64, 129):
                await runner.send(append=pb.Append(lease=runner.lease(offer), events=[said(f"{number}")]))
            refused = await runner.refused()
            assert (refused.reason, refused.metadata["limit"]) == ("LIMIT_EXCEEDED", "runner_unacked_messages")
        # What was within the bounds is carried out all the same, in order.
        await event(space, created.session.session_id, "agent.message")
        await space.rpc.call("CancelSession", session_id=created.session.session_id)
    said_so = texts(await space.log(created.session.session_id))
    assert said_so[:64] == [f"{number}" for number in range(64)]


async def test_previews_reach_followers_that_asked_for_them_and_no_log(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    curious = space.rpc.stream("FollowEvents", session_id=session_id, previews=True)
    plain = space.rpc.stream("FollowEvents", session_id=session_id)
    async with space.runner() as runner:
        offer = await runner.start()
        await curious.event("session.status_running")
        for attempt_no, text in ((7, "of no attempt"), (1, "in the making")):
            preview = pb.PreviewText(session_id=session_id, run_id=offer.run_id, attempt_no=attempt_no, text=text)
            await runner.send(preview=preview)
        shown = await curious.frame()
        while shown.WhichOneof("frame") != "preview":
            shown = await curious.frame()
        assert (shown.preview.run_id, shown.preview.attempt_no, shown.preview.text) == (
            offer.run_id,
            1,
            "in the making",
        )
        await runner.settle(offer)
        await curious.event("session.status_idle")
        await plain.event("session.status_idle")
    assert [f.preview.text for f in curious.frames if f.WhichOneof("frame") == "preview"] == ["in the making"]
    assert not [f for f in plain.frames if f.WhichOneof("frame") == "preview"]
    assert texts(await space.log(session_id)) == []
    curious.cancel()
    plain.cancel()


async def test_text_in_the_making_never_overtakes_what_was_done_before_it(space: Space) -> None:
    created = await space.session("hello")
    curious = space.rpc.stream("FollowEvents", session_id=created.session.session_id, previews=True)
    async with space.runner() as runner:
        offer = await runner.start()
        # Only who follows live is shown what is in the making.
        await curious.event("session.status_running")
        for number in range(8):
            # Sent in one breath: the append is not committed when the preview arrives.
            await runner.send(append=pb.Append(lease=runner.lease(offer), events=[said(f"{number}")]))
            text = f"after {number}"
            preview = pb.PreviewText(session_id=offer.session_id, run_id=offer.run_id, attempt_no=1, text=text)
            await runner.send(preview=preview)
        while sum(frame.WhichOneof("frame") == "preview" for frame in curious.frames) < 8:
            assert await curious.frame() is not None
    seen: list[str] = []
    for frame in curious.frames:
        seen += [event.agent_message.parts[0].text for event in frame.events.events if event.type == "agent.message"]
        if frame.WhichOneof("frame") == "preview":
            assert frame.preview.text.removeprefix("after ") in seen
    curious.cancel()


async def send_ready(runner, offer: pb.Offer) -> pb.Ack:
    """HarnessReady, and what came of it."""
    await runner.send(harness_ready=pb.HarnessReady(lease=runner.lease(offer)))
    return await runner.expect("ack")
