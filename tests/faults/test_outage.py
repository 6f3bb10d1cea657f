"""The database is away for longer than a lease, and comes back."""

import asyncio
import os
import signal

import psutil
import pytest
from support.embedded import Supervisor, open_ground
from support.fleet import SUCCEEDED, attempts_of, ended, held
from support.replicas import QUICK, FakeRunner, Refused, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb

LEASE = 2.0
SLACK = 1.0


@pytest.mark.slow
@pytest.mark.rule("R175")
async def test_runners_that_lived_through_an_outage_of_the_database_keep_what_they_hold() -> None:
    with open_ground() as ground:
        database = Supervisor(ground / "data")
        told = await asyncio.to_thread(database.says)
        try:
            async with live_replica(told["dsn"], "--migrate", *QUICK) as live:
                space = await make_space(live)
                created = await space.session("hello")
                async with space.runner() as runner:
                    offer = await runner.start()
                    postmaster = psutil.Process(int(told["pid"]))
                    children = postmaster.children()
                    os.kill(postmaster.pid, signal.SIGKILL)
                    await asyncio.to_thread(psutil.wait_procs, children, 20)
                    database.kill()
                    # Nobody can renew anything meanwhile, however often it says that it lives.
                    await asyncio.sleep(LEASE + SLACK + 0.5)
                    database = Supervisor(ground / "data")
                    assert (await asyncio.to_thread(database.says))["dsn"] == told["dsn"]
                    # Work goes on as the same attempt, on the same stream or on another.
                    back = await _append(space, runner, offer)
                    await back.settle(offer)
                    back.hang_up()
                run = await ended(space, created.session.session_id, created.run_id)
                assert run.status == SUCCEEDED
                assert len(await attempts_of(space, created.session.session_id, created.run_id)) == 1
        finally:
            database.kill()


async def _append(space, runner: FakeRunner, offer: pb.Offer) -> FakeRunner:
    try:
        await runner.append(offer, "still here")
        return runner
    except Refused:
        again = FakeRunner(
            space.live.rpc(space.runner_key),
            harness=space.harness,
            runner_id=runner.runner_id,
            instance_id=runner.instance_id,
            held=[held(offer)],
        )
        welcome = await again.welcome()
        assert [state.run_id for state in welcome.held] == [offer.run_id]
        again.messages[offer.run_id, 1] = welcome.held[0].last_message_no
        return again
