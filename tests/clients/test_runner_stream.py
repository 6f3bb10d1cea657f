"""How a runner lives through the ends of its streams."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from support.http2_proxy import Http2Connection, Http2Proxy, http2_proxy
from support.scripted_fleet import ScriptedFleet, lease_of, make_offer, scripted_fleet, state_of
from support.scripted_harness import QUICK, Harnesses, begun, message, running_runner
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import run_pb2
from turnlog_client.runner.attempt_queue import AttemptKey
from turnlog_client.runner.outputs import Settle


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


STATUSES = [
    grpc.StatusCode.OK,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
]


@pytest.mark.case(45)
@pytest.mark.parametrize("code", STATUSES, ids=lambda code: code.name)
async def test_it_comes_back_after_every_status(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses, code: grpc.StatusCode
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        # Before Welcome, and in the middle of a Run.
        (await fleet.stream()).end(code, "not now")
        stream = await fleet.stream()
        hello = await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        stream.end(code, "not now")
        again = await fleet.stream()
        hello_again = await again.welcome(state_of(offer, 1))
        assert hello_again.instance_id == hello.instance_id
        assert [AttemptKey.of(each) for each in hello_again.held] == [AttemptKey.of(offer)]
        assert hello_again.held[0].lease_token == offer.lease_token
        harness.say(message("still here"), Settle("succeeded"))
        said = await again.finish(offer)
        assert [lease_of(each).message_no for each in said] == [2, 3]
        assert not harness.killed.is_set()


CUTS: dict[str, Callable[[Http2Connection], None]] = {
    "RST_STREAM 8": lambda connection: connection.reset_stream(8),
    "RST_STREAM 2": lambda connection: connection.reset_stream(2),
    "RST_STREAM 7": lambda connection: connection.reset_stream(7),
    "GOAWAY, a proxy's max age": lambda connection: connection.go_away(0),
    "GOAWAY, enhance your calm": lambda connection: connection.go_away(11),
    "FIN": lambda connection: connection.close(),
    "RST": lambda connection: connection.cut(),
}


@pytest.mark.case(45, 43)
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
async def test_it_comes_back_after_every_cut(
    fleet: ScriptedFleet,
    proxy: Http2Proxy,
    tmp_path: Path,
    harnesses: Harnesses,
    cut: Callable[[Http2Connection], None],
) -> None:
    async with running_runner(proxy.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        cut(proxy.last)
        again = await fleet.stream()
        hello = await again.welcome(state_of(offer, 1))
        assert len(hello.held) == 1
        harness.say(Settle("succeeded"))
        await again.finish(offer)
        await again.granted(4)


@pytest.mark.case(45)
async def test_it_waits_for_a_server_that_is_not_there(tmp_path: Path) -> None:
    async with scripted_fleet() as fleet:
        port = fleet.port
    async with running_runner(f"127.0.0.1:{port}", tmp_path, timing=QUICK) as running:
        await asyncio.wait([running.task], timeout=0.5)
        assert not running.task.done()
        fleet = ScriptedFleet()
        await fleet.start(port)
        try:
            await (await fleet.stream()).welcome()
        finally:
            await fleet.stop()


async def test_what_is_unacknowledged_is_sent_again_without_gap_or_duplicate(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        for text in ("a", "b", "c"):
            harness.say(message(text))
            await stream.take("append")
        await stream.ack(offer, 2)
        # The server has applied 2 and 3; 4 was lost, and 3's acknowledgement too.
        stream.end(grpc.StatusCode.UNAVAILABLE)
        await stream.gone.wait()
        harness.say(message("d"), Settle("succeeded"))
        again = await fleet.stream()
        await again.welcome(state_of(offer, 3))
        said = await again.finish(offer)
        texts = [event.agent_message.parts[0].text for each in said for event in each.append.events]
        assert texts == ["c", "d"]
        assert again.numbers() == list(range(4, 4 + len(said)))


async def test_a_server_that_forgot_gets_the_run_back(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        await again.welcome(state_of(offer, 0))
        abandon = await again.take("abandon")
        assert abandon.lease.message_no == 1
        assert harness.killed.is_set()


@pytest.mark.case(37)
async def test_what_the_server_does_not_know_any_more_is_killed(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        kept, lost = make_offer(1), make_offer(2)
        harness_kept = await begun(stream, kept, harnesses)
        harness_lost = await begun(stream, lost, harnesses)
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        hello = await again.welcome(state_of(kept, 1))
        assert len(hello.held) == 2
        await asyncio.wait_for(harness_lost.killed.wait(), 10)
        assert not harness_kept.killed.is_set()
        await again.granted(3)
        harness_kept.say(Settle("succeeded"))
        said = await again.finish(kept)
        assert len(said) == 1


@pytest.mark.case(39)
async def test_a_settle_whose_acknowledgement_was_lost_is_no_lost_lease(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        harness.say(Settle("succeeded"))
        await stream.take("settle")
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        hello = await again.welcome()
        assert len(hello.held) == 1
        await again.granted(4)
        about = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert [each for each in about if "ost" in each] == []


@pytest.mark.case(43)
@pytest.mark.parametrize("arrived", [True, False])
async def test_an_accept_in_flight_is_settled_by_the_next_welcome(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses, arrived: bool
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        await stream.say(offer=offer)
        await stream.take("accept")
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        hello = await again.welcome(*([state_of(offer, 0)] if arrived else []))
        assert len(hello.held) == 1
        if arrived:
            (await harnesses.next()).succeed()
            await again.finish(offer)
        await again.granted(4)
        assert len(harnesses.launched) == arrived


async def test_a_stop_that_came_while_it_was_away(fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        stream.end(grpc.StatusCode.UNAVAILABLE)
        again = await fleet.stream()
        await again.welcome(state_of(offer, 1, run_pb2.RUN_STATUS_INTERRUPTED))
        await asyncio.wait_for(harness.interrupted.wait(), 10)
        harness.say(Settle("succeeded"))
        assert (await again.finish(offer))[-1].settle.outcome == pb.Settle.OUTCOME_STOPPED


async def test_a_replica_that_goes_down_is_left_for_another(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with scripted_fleet() as other:
        both = f"{fleet.address},{other.address}"
        async with running_runner(both, tmp_path, launch=harnesses.launch):
            stream = await fleet.stream()
            await stream.welcome()
            offer = make_offer()
            harness = await begun(stream, offer, harnesses)
            await stream.say(drain=pb.Drain(reason=pb.Drain.REASON_SERVER))
            again = await other.stream()
            hello = await again.welcome(state_of(offer, 1))
            assert len(hello.held) == 1
            harness.say(Settle("succeeded"))
            await again.finish(offer)
            await again.granted(4)


async def test_a_refused_key_is_read_again(
    fleet: ScriptedFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("tlk_old\n")
    async with running_runner(fleet.address, tmp_path / "runner", key="", key_file=key_file):
        stream = await fleet.stream()
        assert stream.metadata["authorization"] == "Bearer tlk_old"
        key_file.write_text("tlk_new\n")
        stream.end(grpc.StatusCode.UNAUTHENTICATED, "The key was revoked.")
        again = await fleet.stream()
        assert again.metadata["authorization"] == "Bearer tlk_new"
    told = "The server refuses this runner: UNAUTHENTICATED: The key was revoked. It tries again"
    assert any(each.levelno == logging.ERROR and each.message.startswith(told) for each in caplog.records)


@pytest.mark.case(54)
async def test_a_message_that_ends_every_stream_costs_its_own_run_only(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses
) -> None:
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        bad, good = make_offer(1), make_offer(2)
        harness_bad = await begun(stream, bad, harnesses)
        harness_good = await begun(stream, good, harnesses)
        harness_good.say(message("good"))
        await stream.take("append")
        harness_bad.say(message("poison"))
        await stream.take("append")
        stream.end(grpc.StatusCode.INVALID_ARGUMENT, "append.events[0] is not valid")
        careful = await fleet.stream()
        await careful.welcome(state_of(bad, 1), state_of(good, 1))
        applied = 1
        while (append := await careful.take("append")).events[0].agent_message.parts[0].text != "poison":
            applied = append.lease.message_no
            await careful.ack(good, applied)
        careful.end(grpc.StatusCode.INVALID_ARGUMENT, "append.events[0] is not valid")
        again = await fleet.stream()
        await again.welcome(state_of(bad, 1), state_of(good, applied))
        await asyncio.wait_for(harness_bad.killed.wait(), 10)
        harness_good.say(Settle("succeeded"))
        ends = {}
        while len(ends) < 2:
            request = await again.next()
            lease = lease_of(request)
            await again.ack(good if AttemptKey.of(lease) == AttemptKey.of(good) else bad, lease.message_no)
            if request.WhichOneof("message") == "settle":
                ends[lease.run_id] = request.settle
        assert ends[good.run_id].outcome == pb.Settle.OUTCOME_SUCCEEDED
        assert ends[bad.run_id].error.code == "runner.message_refused"
        assert "append.events[0] is not valid" in ends[bad.run_id].error.message
        assert ends[bad.run_id].lease.message_no == 2


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, 4),
        (grpc.StatusCode.PERMISSION_DENIED, 4),
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.UNIMPLEMENTED, 2),
    ],
)
async def test_a_refused_runner_ends_only_if_told_so_and_says_why(
    fleet: ScriptedFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture, status: grpc.StatusCode, code: int
) -> None:
    async with running_runner(fleet.address, tmp_path, exit_when_refused=True) as running:
        (await fleet.stream()).end(grpc.StatusCode.UNAVAILABLE, "Going down.")
        (await fleet.stream()).end(status, "Not with this.")
        assert await running.exit_code() == code
    last = caplog.records[-1].message
    assert last == f"The server refuses this runner: {status.name}: Not with this. It gives up, as it was told to."
    assert "Going down. Connecting again" in caplog.text


async def test_a_key_file_that_goes_away_is_not_the_servers_refusal(
    fleet: ScriptedFleet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file = tmp_path / "key"
    key_file.write_text("tlk_1")
    more = {"key": "", "key_file": key_file, "exit_when_refused": True}
    async with running_runner(fleet.address, tmp_path / "runner", **more) as running:
        stream = await fleet.stream()
        key_file.unlink()
        stream.end(grpc.StatusCode.UNAVAILABLE)
        assert await running.exit_code() == 4
    assert caplog.records[-1].message.startswith(f"Cannot read the key file {key_file}: No such file or directory.")
    assert "refuses" not in caplog.records[-1].message


async def test_neither_key_nor_token_is_logged(
    fleet: ScriptedFleet, tmp_path: Path, harnesses: Harnesses, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "turnlog")
    async with running_runner(fleet.address, tmp_path, launch=harnesses.launch):
        stream = await fleet.stream()
        await stream.welcome()
        offer = make_offer()
        harness = await begun(stream, offer, harnesses)
        stream.end(grpc.StatusCode.UNAUTHENTICATED)
        again = await fleet.stream()
        await again.welcome()
        await asyncio.wait_for(harness.killed.wait(), 10)
    logged = "".join(repr(vars(each)) for each in caplog.records)
    assert "tlk_secret" not in logged
    assert "lease_token" not in logged
    assert repr(offer.lease_token)[2:-1] not in logged
