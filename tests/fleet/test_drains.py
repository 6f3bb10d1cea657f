"""Draining: of a runner by its operator, of a runner by a signal, of a replica."""

import asyncio
import signal
from pathlib import Path

import pytest
from support.fleet import SUCCEEDED, attempts_of, ended, event, held, renewed, runner_row, seen, status
from support.real_runner import free, real_runner, waiting_harness
from support.replicas import QUICK, Space, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb


@pytest.mark.case(48)
async def test_a_runner_that_an_operator_drains_gets_nothing_new_and_ends_what_it_has(space: Space) -> None:
    created = await space.session("first")
    async with space.runner() as drained, space.runner() as other:
        offer = await drained.start(credits=50)
        answer = await space.rpc.call("DrainRunner", runner_id=drained.runner_id, request_id="d1")
        assert answer.runner.draining
        assert (await drained.expect("drain")).reason == pb.Drain.REASON_RUNNER
        more = [(await space.session(f"{number}")).run_id for number in range(20)]
        # It may say what it likes about its places.
        await drained.send(ready=pb.Ready(credits=50))
        taken = []
        for _ in more:
            taken.append(await other.start())
            await other.settle(taken[-1])
        assert sorted(each.run_id for each in taken) == sorted(more)
        assert len(seen(drained, "offer")) == 1
        # Its own Run ends as any other.
        assert (await drained.append(offer, "done")).through == 2
        await drained.settle(offer)
        await drained.send(goodbye=pb.Goodbye())
        assert (await space.rpc.call("DrainRunner", runner_id=drained.runner_id, request_id="d1")).replayed
    assert (await ended(space, created.session.session_id, created.run_id)).status == SUCCEEDED


async def test_a_drained_runner_that_reconnects_is_still_drained_and_a_new_process_is_not(space: Space) -> None:
    async with space.runner() as runner:
        await space.rpc.call("DrainRunner", runner_id=runner.runner_id)
        await runner.expect("drain")
    same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id}
    async with space.runner(**same) as back:
        assert (await back.expect("drain")).reason == pb.Drain.REASON_RUNNER
    async with space.runner(runner_id=runner.runner_id) as anew:
        await space.session("hello")
        offer = await anew.start()
        await anew.settle(offer)
        assert seen(anew, "drain") == []


@pytest.mark.case(48)
async def test_a_replica_that_goes_down_sends_its_runners_to_another_with_what_they_hold(dsn: str) -> None:
    async with live_replica(dsn, *QUICK) as going, live_replica(dsn, *QUICK) as staying:
        space = await make_space(going)
        elsewhere = space.on(staying)
        created = await space.session("hello")
        session_id = created.session.session_id
        async with space.runner() as runner:
            offer = await runner.start(credits=5)
            await runner.append(offer, "before")
            going.kill(signal.SIGTERM)
            assert (await runner.expect("drain")).reason == pb.Drain.REASON_SERVER
            # Its stream serves until the runner has found another, but brings nothing new.
            assert (await runner.append(offer, "meanwhile")).through == 3
            fresh = await elsewhere.session("fresh")
            same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id}
            async with elsewhere.runner(held=[held(offer)], **same) as moved:
                [state] = seen(moved, "welcome")[0].held
                assert (state.run_id, state.last_message_no) == (offer.run_id, 3)
                runner.hang_up()
                assert await going.process.wait() == 0
                moved.messages[offer.run_id, 1] = 3
                assert (await moved.append(offer, "after")).through == 4
                await moved.settle(offer)
                next_offer = await moved.start()
                assert next_offer.run_id == fresh.run_id
                await moved.settle(next_offer)
            assert [o.run_id for o in seen(runner, "offer")] == [created.run_id]
        log = await elsewhere.log(session_id)
        texts = [e.agent_message.parts[0].text for e in log if e.type == "agent.message"]
        assert texts == ["before", "meanwhile", "after"]
        assert [status(a) for a in await attempts_of(elsewhere, session_id, created.run_id)] == ["SETTLED"]


@pytest.mark.case(45, 48, 49)
async def test_a_real_runner_outlives_its_replica_and_ends_its_run_after_sigterm(dsn: str, tmp_path: Path) -> None:
    # A real runner counts on what it wrote once TCP must have delivered it: that takes longer than other leases here.
    quick = [*QUICK, "--runner-lease-ttl-seconds", "6"]
    async with live_replica(dsn, *quick) as going, live_replica(dsn, *quick) as staying:
        space = await make_space(going)
        elsewhere = space.on(staying)
        created = await space.session("hello")
        session_id = created.session.session_id
        pipe, folder = tmp_path / "pipe", tmp_path / "runner"
        addresses = f"{going.address},{staying.address}"
        harness = waiting_harness(space.harness, pipe)
        async with real_runner(addresses, space.runner_key, folder, harness, "--drain-grace", "10m") as process:
            await event(space, session_id, "agent.message")
            going.kill(signal.SIGTERM)
            assert await going.process.wait() == 0
            [runner] = (await elsewhere.rpc.call("ListRunners")).runners
            process.send_signal(signal.SIGTERM)
            # Longer than a lease, a start-up and a stop may take here.
            await renewed(elsewhere, runner.runner_id, 5)
            behind = await elsewhere.session("not for it")
            await free(pipe)
            assert (await ended(elsewhere, session_id, created.run_id)).status == SUCCEEDED
            assert await process.wait() == 0
            # Gone, and known to be: nobody waits for its lease.
            assert not (await runner_row(elsewhere, runner.runner_id)).connected
        async with elsewhere.runner() as other:
            offer = await other.start()
            assert offer.run_id == behind.run_id
            await other.settle(offer)
        assert len(await attempts_of(elsewhere, session_id, created.run_id)) == 1


@pytest.mark.case(48)
async def test_what_a_stopped_runner_gives_back_is_taken_at_once(space: Space, tmp_path: Path) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    harness = waiting_harness(space.harness, tmp_path / "pipe")
    async with real_runner(space.live.address, space.runner_key, tmp_path / "runner", harness) as process:
        await event(space, session_id, "agent.message")
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        process.send_signal(signal.SIGINT)
        given_back = await event(space, session_id, "run.attempt_ended")
        assert given_back.run_attempt_ended.status == 8  # ATTEMPT_STATUS_ABANDONED
        assert await process.wait() == 0
    async with space.runner() as other:
        offer = await other.start()
        assert (offer.run_id, offer.attempt_no) == (created.run_id, 2)
        await other.settle(offer)
