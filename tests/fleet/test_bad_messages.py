"""A bad message of one attempt costs that message, and nothing else."""

from collections.abc import Callable

import pytest
from support.replicas import Space
from turnlog.runner.v1 import runner_service_pb2 as fleet
from turnlog.v1 import error_pb2


def _deep(event: fleet.RunnerEvent, levels: int) -> None:
    event.agent_tool_use.call_id, event.agent_tool_use.name = "1", "search"
    struct = event.agent_tool_use.arguments
    for _ in range(levels):
        struct = struct.get_or_create_struct("a")


def _not_a_number(event: fleet.RunnerEvent) -> None:
    event.agent_tool_use.call_id, event.agent_tool_use.name = "1", "search"
    event.agent_tool_use.arguments["n"] = float("nan")


def _nothing(event: fleet.RunnerEvent) -> None:
    del event


@pytest.mark.case(90, 91)
@pytest.mark.parametrize(
    "spoil",
    [_not_a_number, _nothing, lambda event: _deep(event, 33), lambda event: _deep(event, 10_000)],
    ids=["not a number", "no payload", "33 levels", "10,000 levels"],
)
async def test_a_bad_event_is_rejected_and_the_attempt_goes_on(
    space: Space, spoil: Callable[[fleet.RunnerEvent], None]
) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        # Made in place: Python could not copy what is nested so deep.
        request = fleet.ConnectRequest()
        request.append.lease.CopyFrom(runner.lease(offer))
        spoil(request.append.events.add())
        await runner.call.write(request)
        ack = await runner.expect("ack")
        assert [each.reason for each in ack.rejections] == [error_pb2.ERROR_REASON_INVALID_FIELD]
        assert ack.through == 2
        await runner.append(offer, "still here")
        await runner.settle(offer)
    types = [each.type for each in await space.log(created.session.session_id)]
    assert types.count("agent.message") == 1
    assert "agent.tool_use" not in types
    assert types[-2:] == ["run.succeeded", "session.status_idle"]


@pytest.mark.case(90)
async def test_the_deepest_struct_that_is_taken_can_be_read(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        event = fleet.RunnerEvent()
        _deep(event, 31)
        ack = await runner.append(offer, agent_tool_use=event.agent_tool_use)
        assert not ack.rejections
        await runner.settle(offer)
    assert "agent.tool_use" in [each.type for each in await space.log(created.session.session_id)]


async def test_a_message_that_proves_nothing_ends_the_stream(space: Space) -> None:
    await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        lease = runner.lease(offer)
        lease.lease_token = b"short"
        await runner.send(append=fleet.Append(lease=lease))
        with pytest.raises(Exception, match="lease_token"):
            await runner.receive()
