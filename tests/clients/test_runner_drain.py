"""How a runner goes, and how many Runs it takes."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from support.scripted_fleet import Conversation, ScriptedFleet, lease_of, make_offer, scripted_fleet
from support.scripted_harness import QUICK, Harnesses, message, running_runner
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.outputs import Ready, Settle


@pytest.fixture
async def fleet() -> AsyncIterator[ScriptedFleet]:
    async with scripted_fleet() as fleet:
        yield fleet


@pytest.fixture
def harnesses() -> Harnesses:
    return Harnesses()


@pytest.mark.case(48)
async def test_an_operators_drain_lets_the_runs_end_and_takes_no_more(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        await stream.offer(offer)
        harness = await harnesses.next()
        await stream.say(drain=pb.Drain(reason=pb.Drain.REASON_RUNNER))
        await stream.granted(0)
        for number in range(2, 102):
            await stream.say(offer=make_offer(number))
            assert (await stream.take("decline")).reason == "The runner drains."
        harness.say(Ready(), message("done"), Settle("succeeded"))
        assert (await stream.finish(offer))[-1].settle.outcome == pb.Settle.OUTCOME_SUCCEEDED
        await stream.take("goodbye")
        await stream.runner_ended()
        assert await running.exit_code() == 0
        assert len(harnesses.launched) == 1


@pytest.mark.case(49)
async def test_told_to_go_it_waits_for_its_runs(fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome(heartbeat=0.05)
        offer = make_offer()
        await stream.offer(offer)
        harness = await harnesses.next()
        running.runner.drain(600)
        # A stream that breaks meanwhile changes nothing.
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        await again.welcome(pb.HeldState(**AttemptKey.of(offer)._asdict()), heartbeat=0.05)
        await again.heartbeat()
        await again.heartbeat()
        assert again.credits is None
        harness.succeed()
        await again.finish(offer)
        await again.take("goodbye")
        assert await running.exit_code() == 0
        assert not harness.killed.is_set()


async def test_what_outlasts_the_grace_is_given_back(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        await stream.offer(offer)
        harness = await harnesses.next()
        harness.say(Ready())
        await stream.take("harness_ready")
        running.runner.drain(0.1)
        abandon = await stream.take("abandon")
        assert harness.killed.is_set()
        await stream.ack(offer, abandon.lease.message_no)
        await stream.take("goodbye")
        assert await running.exit_code() == 0


async def test_told_twice_it_gives_back_at_once(fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome()
        offers = [make_offer(1), make_offer(2)]
        for offer in offers:
            await stream.offer(offer)
            await harnesses.next()
        running.runner.drain(600)
        running.runner.stop()
        for _ in offers:
            await stream.take("abandon")
        # The acknowledgements never come: it goes all the same.
        await stream.take("goodbye")
        assert await running.exit_code() == 0


async def test_what_is_not_an_attempt_yet_is_given_back_once_it_is(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        await stream.granted_some()
        await stream.say(offer=offer)
        await stream.take("accept")
        running.runner.stop()
        await stream.granted(0)
        await stream.accepted(offer)
        abandon = await stream.take("abandon")
        await stream.ack(offer, abandon.lease.message_no)
        await stream.take("goodbye")
        assert await running.exit_code() == 0
        assert harnesses.launched == []


async def test_without_a_server_it_goes_all_the_same(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch) as running:
        stream = await fleet.stream()
        await stream.welcome()
        await stream.offer(make_offer())
        harness = await harnesses.next()
        await fleet.stop()
        running.runner.stop()
        assert await running.exit_code() == 0
        assert harness.killed.is_set()


async def test_with_nothing_to_end_it_goes_at_once(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path) as running:
        stream = await fleet.stream()
        await stream.welcome()
        await stream.granted(4)
        running.runner.drain(600)
        await stream.take("goodbye")
        assert await running.exit_code() == 0


@pytest.mark.case(55)
async def test_never_more_than_its_places_even_if_more_is_offered(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch, capacity=1):
        stream = await fleet.stream()
        await stream.welcome()
        await stream.granted(1)
        offers = [make_offer(number) for number in range(1, 6)]
        for offer in offers:
            await stream.say(offer=offer)
        await stream.take("accept")
        for _ in offers[1:]:
            assert "no free place" in (await stream.take("decline")).reason
        await stream.granted(0)
        await stream.accepted(offers[0])
        (await harnesses.next()).succeed()
        await stream.finish(offers[0])
        await stream.granted(1)
        assert len(harnesses.launched) == 1


@pytest.mark.case(55)
async def test_credits_count_what_is_accepted_but_not_yet_an_attempt(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path, capacity=3):
        stream = await fleet.stream()
        await stream.welcome()
        await stream.granted(3)
        first, second = make_offer(1), make_offer(2)
        for offer in (first, second):
            await stream.say(offer=offer)
            await stream.take("accept")
        await stream.accepted(first)
        await stream.finish(first)
        await stream.granted(2)
        readies = [each.ready.credits for each in stream.said if each.WhichOneof("message") == "ready"]
        assert readies == [3, 2]


async def test_an_unknown_harness_is_declined(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path, capacity=2):
        stream = await fleet.stream()
        await stream.welcome()
        await stream.granted(2)
        await stream.say(offer=make_offer(profile="other"))
        decline = await stream.take("decline")
        assert "other" in decline.reason
        # The place was not used: it is granted again.
        await stream.granted(2)


async def play(stream: Conversation, runs: int, *, heartbeats: bool = False) -> None:
    """A server that offers as many Runs as there are credits, acknowledges all, and ends when all are settled.

    heartbeats: it acknowledges a settle only when a heartbeat came after it.
    """
    offers = {AttemptKey.of(each): each for each in (make_offer(number) for number in range(1, runs + 1))}
    waiting, settled = list(offers.values()), 0
    while settled < runs:
        while waiting and stream.credits:
            await stream.say(offer=waiting.pop())
        request = await stream.next()
        match request.WhichOneof("message"):
            case "accept":
                await stream.accepted(offers[AttemptKey.of(request.accept)])
            case "settle":
                settled += 1
                if heartbeats:
                    await stream.heartbeat()
                await stream.ack(offers[AttemptKey.of(lease_of(request))], lease_of(request).message_no)
                await stream.granted_some()
            case _:
                await stream.ack(offers[AttemptKey.of(lease_of(request))], lease_of(request).message_no)


@pytest.mark.case(39)
async def test_heartbeats_beside_settles_disturb_nothing(
    fleet: ScriptedFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_runner(fleet.address, tmp_path, timing=QUICK, capacity=1):
        stream = await fleet.stream()
        await stream.welcome(heartbeat=0.001)
        await stream.granted(1)
        await play(stream, 200, heartbeats=True)
        assert stream.heartbeats >= 200
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_many_runs_at_once(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path, capacity=50):
        stream = await fleet.stream()
        await stream.welcome(max_messages=4)
        await stream.granted(50)
        await play(stream, 300)
        await stream.granted(50)
