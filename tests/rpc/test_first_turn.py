"""The whole path once: a message in, a Run claimed, worked on and settled, and the log that tells of it."""

import pytest
from support.replicas import Space


@pytest.mark.rule("R2", "R31", "R35", "R43", "R49", "R50", "R51", "R55", "R62", "R171", "R172")
async def test_a_turn_from_message_to_settlement(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    follow = space.rpc.stream(
        "FollowEvents", session_id=session_id, until={"boundary": "BOUNDARY_TURN", "run_id": created.run_id}
    )
    async with space.runner() as runner:
        offer = await runner.offer()
        assert offer.trigger.user_message.parts[0].text == "hello"
        accepted = await runner.accept(offer)
        assert accepted.startup_remaining.ToTimedelta().total_seconds() > 0
        await runner.ready(offer)
        assert (await runner.append(offer, "hi", "there")).through == 2
        await runner.settle(offer)
    followed = await follow.until("end")
    assert await follow.frame() is None
    log = await space.log(session_id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert [event.SerializeToString() for event in followed] == [event.SerializeToString() for event in log]
    assert [event.type for event in log] == [
        "session.created",
        "user.message",
        "run.queued",
        "run.ready",
        "session.status_pending",
        "run.attempt_started",
        "session.status_provisioning",
        "session.status_running",
        "agent.message",
        "agent.message",
        "run.attempt_ended",
        "run.succeeded",
        "session.status_idle",
    ]
    session = await space.get(session_id)
    assert session.head_seq == len(log)
    assert session.active_run_id == ""
