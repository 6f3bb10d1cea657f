"""Offers: who gets which Run, and what an Accept is worth."""

import psycopg
import pytest
from support.fleet import (
    READY,
    SUCCEEDED,
    attempts_of,
    ended,
    event,
    kind,
    reason,
    run_of,
    runner_row,
    seen,
    status,
    types,
)
from support.http2_proxy import http2_proxy
from support.replicas import FakeRunner, Refused, Space, accept_of, live_replica, make_space
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_server.domain.access import Role

SECOND = 1_000_000


async def take_all(runner: FakeRunner, count: int) -> list[pb.Offer]:
    """Carries out so many Runs, one by one."""
    done = []
    for _ in range(count):
        offer = await runner.start()
        await runner.settle(offer)
        done.append(offer)
    return done


@pytest.mark.rule("R171")
@pytest.mark.case(55)
async def test_a_runner_is_offered_no_more_than_it_has_places_for(space: Space) -> None:
    runs = [(await space.session(f"{number}")).run_id for number in range(5)]
    async with space.runner() as small, space.runner() as other:
        first = await small.start(credits=1)
        rest = await take_all(other, 4)
        # A whole conversation later, nothing more was put before the one that granted a single credit.
        await small.append(first, "done")
        await small.settle(first)
        assert len(seen(small, "offer")) == 1
    assert sorted([first.run_id, *(offer.run_id for offer in rest)]) == sorted(runs)


async def test_ready_replaces_what_was_granted_before(space: Space) -> None:
    async with space.runner() as shy, space.runner() as eager:
        await shy.send(ready=pb.Ready(credits=3))
        await shy.send(ready=pb.Ready(credits=0))
        # Another message on the same stream is answered after both were read.
        await shy.send(accept=pb.Accept(session_id="sess_none", run_id="run_none", attempt_no=1, lease_token=b"0" * 16))
        await shy.expect("lease_lost")
        await space.session("hello")
        await space.session("hello")
        await take_all(eager, 2)
        assert seen(shy, "offer") == []


@pytest.mark.rule("R171", "R179")
@pytest.mark.case(55)
async def test_the_start_up_clock_starts_when_the_runner_accepts(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.offer()
        # An Offer is outside the log: it costs nothing and starts nothing.
        assert "run.attempt_started" not in await types(space, session_id)
        assert (await run_of(space, session_id, created.run_id)).status == READY
        accepted = await runner.accept(offer)
        [attempt] = await attempts_of(space, session_id, created.run_id)
        allowance = attempt.startup_deadline.ToMicroseconds() - attempt.accept_time.ToMicroseconds()
        longest = attempt.deadline.ToMicroseconds() - attempt.startup_deadline.ToMicroseconds()
        assert allowance == offer.startup_allowance.ToMicroseconds() == 2 * SECOND
        assert longest == offer.max_duration.ToMicroseconds() == 600 * SECOND
        assert accepted.startup_deadline == attempt.startup_deadline
        assert accepted.deadline == attempt.deadline
        assert 0 < accepted.startup_remaining.ToMicroseconds() <= allowance
        await runner.ready(offer)
        await runner.settle(offer)


@pytest.mark.rule("R177")
async def test_sixty_seconds_from_accept_to_harness_ready_unless_the_operator_says_otherwise(dsn: str) -> None:
    async with live_replica(dsn) as live:
        space = await make_space(live)
        await space.session("hello")
        async with space.runner() as runner:
            offer = await runner.offer()
            assert offer.startup_allowance.ToSeconds() == 60
            accepted = await runner.accept(offer)
            assert 50 < accepted.startup_remaining.ToSeconds() <= 60


async def test_a_second_accept_is_worth_nothing(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner, space.runner() as other:
        offer = await runner.start()
        await other.send(accept=accept_of(offer))
        assert reason(await other.expect("lease_lost")) == "LEASE_LOST"
        # Whoever holds it is not disturbed by that,
        assert (await runner.append(offer, "still here")).through == 2
        await space.interrupt(created.session.session_id)
        # and still hears what is said to it.
        assert (await runner.expect("interrupt")).run_id == offer.run_id
        await runner.settle(offer, "OUTCOME_STOPPED")


async def test_a_runner_that_accepts_what_it_holds_loses_it_and_the_run_goes_on_elsewhere(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner, space.runner() as other:
        offer = await runner.start()
        await runner.send(accept=accept_of(offer))
        assert reason(await runner.expect("lease_lost")) == "LEASE_LOST"
        again = await other.start()
        assert (again.run_id, again.attempt_no) == (offer.run_id, 2)
        await other.settle(again)
    assert (await ended(space, created.session.session_id, created.run_id)).status == SUCCEEDED


async def test_an_offer_that_is_not_answered_goes_to_another_and_a_late_accept_is_refused(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as slow, space.runner() as other:
        offer = await slow.offer()
        assert offer.accept_within.ToSeconds() < 5
        again = await other.offer()
        assert (again.run_id, again.attempt_no) == (offer.run_id, offer.attempt_no)
        assert again.lease_token != offer.lease_token
        await slow.send(accept=accept_of(offer))
        assert reason(await slow.expect("lease_lost")) == "LEASE_LOST"
        await other.accept(again)
        await other.ready(again)
        await other.settle(again)
        # Nobody who does not answer is asked again before it speaks of its places.
        assert len(seen(slow, "offer")) == 1
    assert len(await attempts_of(space, created.session.session_id, created.run_id)) == 1


async def test_an_accept_needs_the_token_of_its_offer(space: Space) -> None:
    await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.offer()
        await runner.send(accept=accept_of(offer, lease_token=bytes(16)))
        assert reason(await runner.expect("lease_lost")) == "LEASE_LOST"
        # The Offer itself still stands.
        await runner.accept(offer)
        await runner.ready(offer)
        await runner.settle(offer)


async def test_a_declined_run_goes_to_another_runner_at_once(space: Space) -> None:
    await space.session("hello")
    async with space.runner() as picky, space.runner() as other:
        offer = await picky.offer(credits=5)
        await other.send(ready=pb.Ready(credits=1))
        await picky.send(decline=pb.Decline(session_id=offer.session_id, run_id=offer.run_id, reason="not mine"))
        again = await other.expect("offer", timeout=offer.accept_within.ToSeconds())
        assert (again.run_id, again.attempt_no) == (offer.run_id, 1)
        await other.accept(again)
        assert len(seen(picky, "offer")) == 1


async def test_a_run_is_not_offered_again_at_once_to_the_runner_that_declined_it(space: Space) -> None:
    first, second, third = [await space.session(f"{number}") for number in range(3)]
    async with space.runner() as picky:
        offer = await picky.offer()
        assert offer.run_id == first.run_id
        decline = pb.Decline(session_id=offer.session_id, run_id=offer.run_id, reason="not now")
        await picky.send(decline=decline)
        # It waited longest, and yet those behind it are offered first: the Run holds nobody up.
        assert [offer.run_id for offer in await take_all(picky, 2)] == [second.run_id, third.run_id]
        # Nobody else is there, so it is asked again after a while, and a longer one the next time.
        again = await picky.offer()
        assert again.run_id == first.run_id
        await picky.send(decline=decline)
        fourth = await space.session("3")
        assert [offer.run_id for offer in await take_all(picky, 1)] == [fourth.run_id]
        # Another one has never declined it, and neither has another process under the same name.
        name = picky.runner_id
    async with space.runner(runner_id=name) as reborn:
        offer = await reborn.start()
        assert (offer.run_id, offer.attempt_no) == (first.run_id, 1)
        await reborn.settle(offer)


async def test_a_runner_with_more_places_keeps_no_run_from_another_that_it_declined_itself(space: Space) -> None:
    async with space.runner() as picky, space.runner() as other:
        created = await space.session("hello")
        offer = await picky.offer(credits=5)
        await other.send(ready=pb.Ready(credits=1))
        await picky.send(decline=pb.Decline(session_id=offer.session_id, run_id=offer.run_id, reason="not mine"))
        # At once it would take more again than the other one ever does.
        await picky.send(ready=pb.Ready(credits=5))
        again = await other.expect("offer")
        assert (again.run_id, again.attempt_no) == (created.run_id, 1)
        await other.accept(again)
        await other.ready(again)
        await other.settle(again)
        # An answer on the same stream comes behind whatever else was put there.
        await picky.send(accept=accept_of(offer))
        await picky.expect("lease_lost")
        assert len(seen(picky, "offer")) == 1


@pytest.mark.case(43)
async def test_an_offer_to_a_stream_that_dies_goes_to_another_runner_at_once(space: Space) -> None:
    created = await space.session("hello")
    for _ in range(10):
        async with space.runner() as other:
            async with space.runner() as dying:
                offer = await dying.offer()
                assert offer.run_id == created.run_id
                dying.hang_up()
            # Long before the reservation would have run out.
            assert (await other.offer(timeout=offer.accept_within.ToSeconds())).attempt_no == 1
            await other.send(decline=pb.Decline(session_id=offer.session_id, run_id=offer.run_id))
    async with space.runner() as other:
        last = await other.offer()
        await other.accept(last)
        await other.ready(last)
        await other.settle(last)
    # None of them was a start.
    [attempt] = await attempts_of(space, created.session.session_id, created.run_id)
    assert (kind(attempt), status(attempt)) == ("INITIAL", "SETTLED")


@pytest.mark.case(43)
async def test_a_connection_that_is_cut_as_the_offer_arrives_loses_and_doubles_nothing(space: Space) -> None:
    port = int(space.live.address.split(":")[1])
    runs = {}
    async with http2_proxy(port) as proxy, space.runner() as other:
        for number in range(8):
            created = await space.session(f"{number}")
            runs[created.run_id] = created.session.session_id
            async with space.runner(address=proxy.address) as dying:
                await dying.offer()
                if number % 2:
                    await dying.send(accept=accept_of(dying.seen[-1].offer))
                proxy.last.cut()
            offer = await other.start()
            assert offer.run_id == created.run_id
            await other.settle(offer)
    for run_id, session_id in runs.items():
        log = await types(space, session_id)
        assert log.count("run.succeeded") == 1
        assert log.count("run.attempt_started") == log.count("run.attempt_ended") <= 2
        assert (await run_of(space, session_id, run_id)).status == SUCCEEDED


@pytest.mark.case(43)
async def test_an_accept_whose_answer_never_arrived_costs_an_attempt_and_no_run(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as dying:
        offer = await dying.offer()
        await dying.send(accept=accept_of(offer))
        await event(space, session_id, "run.attempt_started")
        dying.hang_up()
        # The same process, which never heard that the Run became its own, and so does not claim it.
        same = {"runner_id": dying.runner_id, "instance_id": dying.instance_id}
    async with space.runner(**same) as back:
        again = await back.start()
        assert (again.run_id, again.attempt_no) == (created.run_id, 2)
        await back.settle(again)
    assert [status(a) for a in await attempts_of(space, session_id, created.run_id)] == ["LOST", "SETTLED"]


async def test_runners_take_only_what_their_pool_key_and_harness_allow(space: Space) -> None:
    await space.rpc.call("CreateRunnerPool", name="gpu")
    with pytest.raises(Refused) as refused:
        async with space.runner(pools=["gpu"]):
            pass
    assert refused.value.reason == "RUNNER_INELIGIBLE"
    with pytest.raises(Refused) as refused:
        async with space.runner(harness_profiles=["unheard-of"]):
            pass
    assert refused.value.reason == "RUNNER_INELIGIBLE"
    await space.rpc.call("CreateHarnessProfile", name="other")
    await space.session("hello")
    gpu = await space.key_for(Role.RUNNER, "gpu")
    async with (
        space.runner(key=gpu, pools=["gpu"]) as wrong_pool,
        space.runner(harness_profiles=["other"]) as wrong_harness,
        space.runner() as right,
    ):
        for runner in (wrong_pool, wrong_harness):
            await runner.send(ready=pb.Ready(credits=1))
        await take_all(right, 1)
        assert seen(wrong_pool, "offer") == seen(wrong_harness, "offer") == []


async def test_streams_that_end_while_they_are_welcomed_leave_nothing_behind(space: Space) -> None:
    created = await space.session()
    before = await space.live.metric("turnlog_runners_connected")
    claim = pb.HeldAttempt(
        session_id=created.session.session_id, run_id="run_none", attempt_no=1, lease_token=bytes(16)
    )
    for _ in range(3):
        runner = FakeRunner(space.live.rpc(space.runner_key), harness=space.harness)
        # Each claim is looked up, so that the welcome takes its time.
        hello = pb.Hello(runner_id=runner.runner_id, instance_id=runner.instance_id, held=[claim] * 1000)
        hello.harness_profiles.append(space.harness)
        await runner.send(hello=hello)
        while not [r for r in (await space.rpc.call("ListRunners")).runners if r.runner_id == runner.runner_id]:
            pass
        runner.hang_up()
    await space.live.until_metric("turnlog_runners_connected", before)


async def test_hello_comes_first_and_once(space: Space) -> None:
    runner = FakeRunner(space.live.rpc(space.runner_key), harness=space.harness)
    await runner.send(heartbeat=pb.Heartbeat())
    assert "hello" in (await runner.refused()).fields
    async with space.runner() as runner:
        hello = pb.Hello(runner_id=runner.runner_id, instance_id=runner.instance_id)
        hello.harness_profiles.append(space.harness)
        await runner.send(hello=hello)
        assert "hello" in (await runner.refused()).fields


async def test_operators_see_runners_and_what_they_hold(space: Space) -> None:
    await space.session("hello")
    async with space.runner(display_name="box 7", version="1.2.3") as runner:
        offer = await runner.start()
        row = await runner_row(space, runner.runner_id)
        assert (row.display_name, row.version, row.connected, row.held_runs) == ("box 7", "1.2.3", True, 1)
        assert list(row.pools) == ["default"]
        await runner.settle(offer)
        assert (await runner_row(space, runner.runner_id)).held_runs == 0


async def test_a_row_of_the_queue_that_is_not_true_keeps_nobody_from_a_runner(space: Space) -> None:
    idle = (await space.session("first")).session.session_id
    async with space.runner() as runner:
        await runner.settle(await runner.start())
        async with await psycopg.AsyncConnection.connect(space.live.dsn, autocommit=True) as db:
            await db.execute(
                "UPDATE run_queue SET state = 'READY', ready_at = now() - interval '1 hour' WHERE session_id = %s",
                [idle],
            )
        other = await space.session("second")
        offer = await runner.start()
        assert offer.session_id == other.session.session_id
        await runner.settle(offer)


async def test_messages_that_wait_take_no_place_in_the_history_of_a_turn(space: Space) -> None:
    """Nor does the turn's own, however long it is."""
    session_id = (await space.session("what was said")).session.session_id
    async with space.runner() as runner:
        await runner.settle(await runner.start())
        await space.say(session_id, "x" * 255_000)
        for number in range(99):
            await space.say(session_id, f"later {number}")
        offer = await runner.start()
        assert [event.user_message.parts[0].text for event in offer.history] == ["what was said"]
        await runner.settle(offer)
