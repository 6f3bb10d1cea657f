"""Messages of attempts that a runner does not hold: answered, and never more work than one look at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from support.fleet import seen
from support.replicas import Space, said
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_server.domain import limits
from turnlog_server.service.pipeline import UNACKED_SLACK


@asynccontextmanager
async def states_locked(space: Space) -> AsyncIterator[None]:
    """Nobody can read where a Session stands."""
    async with await psycopg.AsyncConnection.connect(space.live.dsn) as db:
        await db.execute("LOCK TABLE session_states IN ACCESS EXCLUSIVE MODE")
        yield


def stray(number: int, message_no: int = 1) -> pb.Append:
    """A message of an attempt that nobody holds."""
    lease = pb.Lease(
        session_id="sess_none", run_id=f"run_{number}", attempt_no=1, lease_token=bytes(16), message_no=message_no
    )
    return pb.Append(lease=lease, events=[said("hello?")])


async def test_however_often_a_runner_speaks_of_what_it_does_not_hold_it_is_looked_up_once(space: Space) -> None:
    many, before = 200, await space.live.metric("turnlog_messages_fenced_total")
    async with space.runner() as runner:
        async with states_locked(space):
            for message_no in range(1, many + 1):
                await runner.send(append=stray(1, message_no))
            await space.live.until_metric("turnlog_messages_fenced_total", before + many)
        await runner.expect("lease_lost")
        # The stream goes on, and the next one is answered anew.
        await runner.send(append=stray(2))
        assert (await runner.expect("lease_lost")).run_id == "run_2"
        assert [lost.run_id for lost in seen(runner, "lease_lost")] == ["run_1", "run_2"]


async def test_a_runner_that_speaks_of_more_than_can_be_looked_up_loses_its_stream(space: Space) -> None:
    async with space.runner() as runner, states_locked(space):
        # The last of them is one too many. Of a stream that is written to after its end, gRPC forgets the status.
        for number in range(UNACKED_SLACK * limits.RUNNER_UNACKED_MESSAGES + 1):
            await runner.send(append=stray(number))
        refused = await runner.refused()
    assert refused.reason == "LIMIT_EXCEEDED"
    assert refused.metadata["limit"] == "runner_unacked_messages"


@pytest.mark.slow
async def test_a_runner_that_could_not_be_answered_is_told_to_say_it_again(space: Space) -> None:
    async with space.runner() as runner:
        async with states_locked(space):
            for number in range(3):
                await runner.send(append=stray(number))
            # As long as a look may take.
            refused = await runner.refused(timeout=60)
        assert refused.reason == "STORE_UNAVAILABLE"
        assert refused.retry_after
