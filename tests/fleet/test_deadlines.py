"""Every Run ends: start-ups that fail, turns that take too long, queues where nobody comes."""

from collections.abc import AsyncIterator

import pytest
from support.fleet import FAILED, SUCCEEDED, attempts_of, ended, event, kind, run_of, runner_row, seen, status
from support.postgres import PostgresServer
from support.replicas import Live, Space, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_server.domain.access import Role

HASTY = (
    "--safety-poll-seconds", "0.2", "--startup-allowance-seconds", "0.5", "--max-startup-attempts", "3",
    "--queue-timeout-seconds", "4", "--runner-lease-ttl-seconds", "2", "--runner-heartbeat-seconds", "0.5",
)  # fmt: skip


@pytest.fixture(scope="module")
async def hasty(postgres: PostgresServer, schema_template: str) -> AsyncIterator[Live]:
    """A server on which everything is due soon."""
    dsn = postgres.database_create(schema_template)
    async with live_replica(dsn, *HASTY) as live:
        yield live
    postgres.database_drop(dsn)


@pytest.mark.rule("R23", "R171", "R173", "R178")
@pytest.mark.case(42)
async def test_a_start_up_that_takes_too_long_gets_the_run_another_attempt(hasty: Live) -> None:
    space = await make_space(hasty)
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as lazy, space.runner() as other:
        offer = await lazy.offer()
        await lazy.accept(offer)
        # It lives, and says so, and starts nothing.
        again = await other.start()
        assert (again.run_id, again.attempt_no) == (offer.run_id, 2)
        assert (await lazy.expect("lease_lost")).attempt_no == 1
        await other.settle(again)
    timed_out, second = await attempts_of(space, session_id, created.run_id)
    assert (status(timed_out), timed_out.error.code) == ("STARTUP_TIMEOUT", "runtime.startup_timeout")
    assert (kind(second), status(second)) == ("RETRY", "SETTLED")
    assert timed_out.end_time.ToMicroseconds() >= timed_out.startup_deadline.ToMicroseconds()
    run = await run_of(space, session_id, created.run_id)
    assert (run.run_id, run.status, run.attempt_no) == (created.run_id, SUCCEEDED, 2)
    log = await space.log(session_id)
    pending = [e.type for e in log].count("session.status_pending")
    assert pending == 2


@pytest.mark.rule("R178")
@pytest.mark.case(42)
async def test_start_ups_that_fail_are_bounded(hasty: Live) -> None:
    space = await make_space(hasty)
    created = await space.session("hello")
    session_id = created.session.session_id
    after = await space.say(session_id, "next")
    async with space.runner() as lazy:
        for number in (1, 2, 3):
            offer = await lazy.offer()
            assert (offer.run_id, offer.attempt_no) == (created.run_id, number)
            await lazy.accept(offer)
        run = await ended(space, session_id, created.run_id)
        assert (run.status, run.error.code) == (FAILED, "runtime.startup_exhausted")
        # The Session is there for the next.
        offer = await lazy.start()
        assert offer.run_id == after.run_id
        await lazy.settle(offer)
    assert [status(a) for a in await attempts_of(space, session_id, created.run_id)] == ["STARTUP_TIMEOUT"] * 3


async def test_a_harness_that_became_ready_clears_the_count_of_failed_start_ups(hasty: Live) -> None:
    space = await make_space(hasty)
    created = await space.session("hello")
    async with space.runner() as runner:
        for number in range(1, 7):
            offer = await runner.offer()
            assert offer.attempt_no == number
            await runner.accept(offer)
            if number % 2 == 0:
                await runner.ready(offer)
            await runner.send(abandon=pb.Abandon(lease=runner.lease(offer)))
            await runner.expect("ack")
        offer = await runner.start()
        await runner.settle(offer)
    assert (await run_of(space, created.session.session_id, created.run_id)).status == SUCCEEDED


@pytest.mark.rule("R179", "R180")
async def test_a_turn_that_crosses_its_deadline_fails(hasty: Live) -> None:
    space = await make_space(hasty, max_duration=1)
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        assert offer.max_duration.ToSeconds() == 1
        await runner.append(offer, "I shall be long")
        run = await ended(space, session_id, created.run_id)
        assert (run.status, run.error.code) == (FAILED, "runtime.turn_deadline_exceeded")
        assert (await runner.expect("lease_lost")).run_id == created.run_id
    [attempt] = await attempts_of(space, session_id, created.run_id)
    assert status(attempt) == "DEADLINE"
    allowed = attempt.deadline.ToMicroseconds() - attempt.accept_time.ToMicroseconds()
    assert allowed == 1_500_000
    assert attempt.end_time.ToMicroseconds() >= attempt.deadline.ToMicroseconds()
    session = await space.get(session_id)
    assert session.last_error.code == "runtime.turn_deadline_exceeded"
    assert session.status == 7  # SESSION_STATUS_IDLE


async def test_a_run_that_nobody_takes_fails_in_the_end_and_says_meanwhile_why_it_waits(hasty: Live) -> None:
    space = await make_space(hasty)
    created = await space.session("hello")
    session_id = created.session.session_id
    behind = await space.say(session_id, "behind")
    deadline = next(e for e in await space.log(session_id) if e.type == "run.ready").run_ready.queue_deadline

    async def why(run_id: str) -> str:
        return (await run_of(space, session_id, run_id)).pending_reason

    assert "No runner is connected" in await why(created.run_id)
    assert "other turns" in await why(behind.run_id)
    run = await ended(space, session_id, created.run_id)
    assert (run.status, run.error.code, run.attempt_no) == (FAILED, "runtime.queue_timeout", 0)
    assert run.end_time.ToMicroseconds() >= deadline.ToMicroseconds()
    assert run.pending_reason == ""
    # The turn behind it gets its own time.
    async with space.runner() as runner:
        offer = await runner.start()
        assert offer.run_id == behind.run_id
        await runner.settle(offer)


async def test_a_waiting_run_says_what_is_missing(space: Space) -> None:
    created = await space.session("hello")

    async def why() -> str:
        return (await run_of(space, created.session.session_id, created.run_id)).pending_reason

    await space.rpc.call("CreateRunnerPool", name="gpu")
    await space.rpc.call("CreateHarnessProfile", name="other")
    gpu = await space.key_for(Role.RUNNER, "gpu")
    async with space.runner(key=gpu, pools=["gpu"]) as runner:
        assert "serves the pool default" in await why()
        await runner.send(goodbye=pb.Goodbye())
        await gone(space, runner.runner_id)
    async with space.runner(harness_profiles=["other"]) as runner:
        assert "harness profile" in await why()
        await runner.send(goodbye=pb.Goodbye())
        await gone(space, runner.runner_id)
    async with space.runner() as runner:
        assert "busy" in await why()
        offer = await runner.start()
        assert await why() == ""
        await runner.settle(offer)


async def test_an_outage_of_every_runner_costs_attempts_and_no_run(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        await runner.start()
    await event(space, session_id, "run.attempt_ended")
    assert "No runner is connected" in (await run_of(space, session_id, created.run_id)).pending_reason
    async with space.runner() as runner:
        offer = await runner.start()
        assert offer.attempt_no == 2
        await runner.settle(offer)
        assert len(seen(runner, "offer")) == 1


async def gone(space: Space, runner_id: str) -> None:
    """Returns once a runner's goodbye has been taken."""
    while (await runner_row(space, runner_id)).connected:
        pass
