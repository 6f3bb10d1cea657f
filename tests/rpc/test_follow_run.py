"""Following until a named Run is over, also one that never had its turn or was over before."""

import pytest
from support.replicas import Space


async def _follow_ends(space: Space, session_id: str, run_id: str, after: int) -> list[str]:
    follow = space.rpc.stream(
        "FollowEvents",
        session_id=session_id,
        after_seq=after,
        until={"boundary": "BOUNDARY_TURN", "run_id": run_id},
    )
    events = await follow.until("end")
    assert await follow.frame() is None
    return [event.type for event in events]


@pytest.mark.rule("R43")
async def test_a_follow_ends_with_a_run_that_is_canceled_in_the_queue(space: Space) -> None:
    session_id = (await space.session("first")).session.session_id
    queued = await space.say(session_id, "second")
    follow = space.rpc.stream(
        "FollowEvents",
        session_id=session_id,
        after_seq=queued.seq,
        types=["agent.message"],
        until={"boundary": "BOUNDARY_TURN", "run_id": queued.run_id},
    )
    await follow.until("caught_up")
    await space.rpc.call("CancelRun", session_id=session_id, run_id=queued.run_id)
    assert await follow.until("end") == []
    assert await follow.frame() is None
    assert (await space.get(session_id)).status == 1  # pending: the first turn's status, which nothing changed


@pytest.mark.rule("R43")
async def test_a_follow_of_a_run_that_is_over_ends_at_once(space: Space) -> None:
    created = await space.session("first")
    session_id = created.session.session_id
    await space.rpc.call("CancelRun", session_id=session_id, run_id=created.run_id)
    head = (await space.get(session_id)).head_seq
    assert await _follow_ends(space, session_id, created.run_id, head) == []
    assert (await _follow_ends(space, session_id, created.run_id, 0))[-2:] == ["run.canceled", "session.status_idle"]
