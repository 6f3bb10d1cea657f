"""What a runner does when its lease may be over, and how it finds out that nobody is there."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import psutil
import pytest
from support.http2_proxy import Http2Proxy, http2_proxy
from support.scripted_fleet import ScriptedFleet, make_offer, scripted_fleet
from support.scripted_harness import Clock, Harnesses, begun, running_runner
from tenacity import AsyncRetrying, Future, RetryCallState
from turnlog_client.runner.channel import Cause, End
from turnlog_client.runner.options import Timing
from turnlog_client.runner.outputs import Settle
from turnlog_client.runner.reconnect import _Backoff


@pytest.fixture
async def fleet() -> AsyncIterator[ScriptedFleet]:
    async with scripted_fleet() as fleet:
        yield fleet


@pytest.fixture
async def proxy(fleet: ScriptedFleet) -> AsyncIterator[Http2Proxy]:
    async with http2_proxy(fleet.port) as proxy:
        yield proxy


@pytest.fixture
def harnesses() -> Harnesses:
    return Harnesses()


async def test_a_lost_lease_is_no_refusal(fleet: ScriptedFleet, tmp_path: Path) -> None:
    timing = Timing(backoff_first=0.02, backoff_most=0.1, refused_first=3600)
    async with running_runner(fleet.address, tmp_path, timing=timing):
        stream = await fleet.stream()
        await stream.welcome()
        stream.end(grpc.StatusCode.FAILED_PRECONDITION, "The runner's lease was lost: say Hello again.")
        await (await fleet.stream()).welcome()


async def test_heartbeats_are_sent_when_there_is_nothing_else(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path):
        stream = await fleet.stream()
        await stream.welcome(heartbeat=0.05)
        for _ in range(5):
            await stream.heartbeat()


@pytest.mark.case(37)
async def test_work_whose_lease_may_be_over_is_stopped(
    fleet: ScriptedFleet, proxy: Http2Proxy, tmp_path: Path, harnesses: Harnesses
) -> None:
    clock = Clock()
    async with running_runner(proxy.address, tmp_path, launch=harnesses.launch, clock=clock):
        stream = await fleet.stream()
        before = await stream.welcome(ttl=30)
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        proxy.last.freeze()
        clock.ahead += 31
        await asyncio.wait_for(harness.killed.wait(), 10)
        again = await fleet.stream()
        after = await again.welcome(ttl=30)
        assert list(after.held) == []
        assert after.runner_id == before.runner_id
        assert after.instance_id != before.instance_id
        await again.granted(4)
        # Nothing of the lost attempt is said on the new stream, and another Run is served.
        other = make_offer(2)
        await again.offer(other)
        (await harnesses.next()).succeed()
        await again.finish(other)


async def test_a_quiet_run_keeps_its_lease_by_heartbeats(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    clock = Clock()
    timing = Timing(tick=0.01, keepalive_timeout=8)
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch, clock=clock, timing=timing):
        stream = await fleet.stream()
        await stream.welcome(ttl=30, heartbeat=0.05)
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        for _ in range(20):
            clock.ahead += 5
            await stream.heartbeat()
            await stream.heartbeat()
        assert clock.ahead == 100
        harness.say(Settle("succeeded"))
        await stream.finish(offer)
        assert not harness.killed.is_set()


@pytest.mark.case(4)
@pytest.mark.parametrize("quiet", [False, True])
async def test_a_half_open_connection_is_noticed(
    fleet: ScriptedFleet, proxy: Http2Proxy, tmp_path: Path, quiet: bool
) -> None:
    timing = Timing(backoff_first=0.02, backoff_most=0.1, keepalive=1.0, keepalive_timeout=0.5)
    async with running_runner(proxy.address, tmp_path, timing=timing):
        stream = await fleet.stream()
        await stream.welcome(heartbeat=0.2 if quiet else 20)
        if quiet:
            await stream.heartbeat()
        # Otherwise the cable is pulled while gRPC waits for the answer to a ping of its own.
        proxy.last.freeze()
        await (await fleet.stream()).welcome()


@pytest.mark.case(4)
@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is Linux's")
async def test_tcp_gives_up_a_peer_that_acknowledges_nothing(fleet: ScriptedFleet, tmp_path: Path) -> None:
    async with running_runner(fleet.address, tmp_path, timing=Timing(keepalive_timeout=4.0)):
        await (await fleet.stream()).welcome()
        timeouts = []
        for connection in psutil.Process().net_connections("tcp"):
            if connection.raddr and connection.raddr.port == fleet.port:
                with socket.socket(fileno=os.dup(connection.fd)) as tcp:
                    timeouts.append(tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        assert timeouts == [4000]


async def test_a_server_that_says_nothing_is_left(fleet: ScriptedFleet, tmp_path: Path) -> None:
    timing = Timing(backoff_first=0.02, backoff_most=0.1, connect=0.2)
    async with running_runner(fleet.address, tmp_path, timing=timing):
        stream = await fleet.stream()
        await stream.take("hello")
        await (await fleet.stream()).welcome()


def waits(*ends: End, holding: bool = False) -> list[float]:
    """What the runner waits after each of these ends, one after the other."""
    backoff = _Backoff(Timing(), lambda: holding)
    state = RetryCallState(AsyncRetrying(), None, (), {})
    seconds = []
    for end in ends:
        state.outcome = Future.construct(state.attempt_number, end, False)
        seconds.append(backoff(state))
        state.attempt_number += 1
    return seconds


@pytest.mark.case(45, 46)
def test_waits_grow_and_are_random() -> None:
    cut = End(Cause.SERVER, grpc.StatusCode.UNAVAILABLE)
    for _ in range(50):
        many = waits(*[cut] * 40)
        assert many[0] <= 0.5
        assert many[3] <= 4
        assert max(many) <= 20
    assert len(set(waits(*[cut] * 40))) > 30
    # Runs that are held cannot wait for long: their lease goes on.
    assert max(waits(*[cut] * 40, holding=True)) <= 1


def test_a_good_connection_resets_the_waits() -> None:
    cut = End(Cause.SERVER, grpc.StatusCode.UNAVAILABLE)
    held = End(Cause.SERVER, grpc.StatusCode.UNAVAILABLE, welcomed=True, lived=60)
    for _ in range(50):
        assert waits(*[cut] * 10, held)[-1] <= 0.5


def test_a_refused_runner_waits_longer_and_as_long_as_told() -> None:
    refused = End(Cause.SERVER, grpc.StatusCode.UNAUTHENTICATED)
    told = End(Cause.SERVER, grpc.StatusCode.UNAVAILABLE, retry_after=7.0)
    for _ in range(50):
        many = waits(*[refused] * 10)
        assert min(many) >= 5
        assert max(many) <= 300
        assert 7 <= waits(told)[0] <= 8.75
