"""A bad message of one attempt costs that message, and nothing else."""

import pytest
from support.replicas import Space
from turnlog.runner.v1 import runner_service_pb2 as fleet


def _deep(levels: int) -> fleet.RunnerEvent:
    event = fleet.RunnerEvent()
    event.agent_tool_use.call_id, event.agent_tool_use.name = "1", "search"
    struct = event.agent_tool_use.arguments
    for _ in range(levels):
        struct = struct.get_or_create_struct("a")
    return event


def _not_a_number() -> fleet.RunnerEvent:
    event = fleet.RunnerEvent()
    event.agent_tool_use.call_id, event.agent_tool_use.name = "1", "search"
    event.agent_tool_use.arguments["n"] = float("nan")
    return event


@pytest.mark.case(90, 91)
@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (_deep(33), "INVALID_FIELD"),
        (_deep(31), ""),
        (_not_a_number(), "INVALID_FIELD"),
        (fleet.RunnerEvent(), "INVALID_FIELD"),
    ],
)
async def test_a_bad_event_is_rejected_and_the_attempt_goes_on(
    space: Space, event: fleet.RunnerEvent, reason: str
) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        await runner.send(append=fleet.Append(lease=runner.lease(offer), events=[event]))
        ack = await runner.expect("ack")
        if not reason:
            assert not ack.rejections
            await runner.settle(offer)
            return
        name = fleet.turnlog_dot_v1_dot_error__pb2.ErrorReason.Name(ack.rejections[0].reason)
        assert name == f"ERROR_REASON_{reason}"
        assert ack.through == 2
        await runner.append(offer, "still here")
        await runner.settle(offer)
    types = [each.type for each in await space.log(created.session.session_id)]
    assert types.count("agent.message") == 1
    assert "agent.tool_use" not in types
    assert types[-2:] == ["run.succeeded", "session.status_idle"]


async def test_a_message_that_proves_nothing_ends_the_stream(space: Space) -> None:
    await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        lease = runner.lease(offer)
        lease.lease_token = b"short"
        await runner.send(append=fleet.Append(lease=lease))
        with pytest.raises(Exception, match="lease_token"):
            await runner.receive()
