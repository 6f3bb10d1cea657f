"""Leases: how an attempt is lost and to whom it goes, what reconnects keep, and that nobody writes after its loss."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from support import zombie
from support.fleet import SUCCEEDED, attempts_of, ended, event, held, kind, reason, renewed, runner_row, seen, status
from support.http2_proxy import http2_proxy
from support.replicas import Space, said
from turnlog.runner.v1 import runner_service_pb2 as pb


@pytest.mark.rule("R19", "R23", "R175")
@pytest.mark.case(15)
async def test_a_stream_that_is_cut_keeps_its_attempt_until_the_lease_runs_out(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as other:
        async with space.runner() as dying:
            first = await dying.start()
            await dying.append(first, "so far")
        # Cut, without a goodbye.
        again = await other.start()
        assert (again.run_id, again.attempt_no) == (first.run_id, 2)
        assert [event.type for event in again.history] == []
        await other.settle(again)
    assert (await ended(space, session_id, created.run_id)).status == SUCCEEDED
    lost, settled = await attempts_of(space, session_id, created.run_id)
    assert (status(lost), lost.error.code, kind(lost)) == ("LOST", "runtime.runner_lost", "INITIAL")
    assert (status(settled), kind(settled)) == ("SETTLED", "RECOVERY")
    # Nothing of the Session is gone, and the next attempt was made by what made the Run claimable again.
    log = await space.log(session_id)
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    assert [event.agent_message.parts[0].text for event in log if event.type == "agent.message"] == ["so far"]
    ready = [event.event_id for event in log if event.type == "run.ready"]
    assert [lost.trigger_event_id, settled.trigger_event_id] == ready


@pytest.mark.rule("R19", "R21")
async def test_a_run_is_one_execution_inside_its_turn(space: Space) -> None:
    created = await space.session("first")
    session_id = created.session.session_id
    runs = [created.run_id, *[(await space.say(session_id, text)).run_id for text in ("second", "third")]]
    async with space.runner() as runner:
        for _ in runs:
            given_back = await runner.start()
            await runner.send(abandon=pb.Abandon(lease=runner.lease(given_back)))
            await runner.expect("ack")
            offer = await runner.start()
            await runner.append(offer, "done")
            await runner.settle(offer)
    log = await space.log(session_id)
    ends = {e.run_id: e.seq for e in log if e.type == "run.succeeded"}
    assert sorted(ends) == sorted(runs)
    assert [ends[run_id] for run_id in runs] == sorted(ends.values())
    for run_id in runs:
        own = [e for e in log if e.run_id == run_id]
        assert [e.type for e in own if e.type.startswith("run.attempt")] == [
            "run.attempt_started",
            "run.attempt_ended",
        ] * 2
        # Nothing of it once it has ended, and nothing of another Run while it was carried out.
        assert own[-1].type == "run.succeeded"
        begun = next(e.seq for e in own if e.type == "run.attempt_started")
        between = {e.run_id for e in log if begun <= e.seq <= ends[run_id]}
        assert between == {run_id}


async def test_silence_is_loss_and_ends_the_stream(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner(beats=False) as silent, space.runner() as other:
        await silent.start()
        again = await other.start()
        assert (again.run_id, again.attempt_no) == (created.run_id, 2)
        assert (await silent.refused()).reason == "LEASE_LOST"
        await other.settle(again)


async def test_any_message_renews_the_lease(space: Space) -> None:
    await space.session("hello")
    async with space.runner(beats=False) as runner:
        offer = await runner.start()
        # Until two leases could have run out.
        later = asyncio.create_task(renewed(space, runner.runner_id, 4.0))
        while not later.done():
            await runner.append(offer, "word")
        await later
        await runner.settle(offer)
        assert seen(runner, "lease_lost") == []


async def test_a_reconnect_inside_the_lease_keeps_what_is_held(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.start()
        await runner.append(offer, "one")
        # On its way when the stream is cut: nobody knows whether it arrived.
        await runner.send(append=pb.Append(lease=runner.lease(offer, 3), events=[said("two")]))
        await event(space, session_id, "agent.message")
        runner.hang_up()
    same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id}
    async with space.runner(held=[held(offer)], **same) as back:
        welcome = seen(back, "welcome")[0]
        [state] = welcome.held
        assert (state.run_id, state.attempt_no, state.stop_as) == (offer.run_id, 1, 0)
        assert state.last_message_no in (2, 3)
        for number in range(state.last_message_no + 1, 4):
            await back.send(append=pb.Append(lease=back.lease(offer, number), events=[said("two")]))
            await back.expect("ack")
        back.messages[offer.run_id, 1] = 3
        await space.interrupt(session_id)
        await back.expect("interrupt")
        await back.settle(offer, "OUTCOME_STOPPED")
    log = await space.log(session_id)
    assert [e.agent_message.parts[0].text for e in log if e.type == "agent.message"] == ["one", "two"]
    assert len(await attempts_of(space, session_id, created.run_id)) == 1


async def test_a_reconnect_hears_of_a_stop_that_came_while_it_was_away(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        runner.hang_up()
        await space.interrupt(created.session.session_id)
    same = {"runner_id": runner.runner_id, "instance_id": runner.instance_id}
    async with space.runner(held=[held(offer)], **same) as back:
        [state] = seen(back, "welcome")[0].held
        assert state.stop_as == 10  # RUN_STATUS_INTERRUPTED
        back.messages[offer.run_id, 1] = state.last_message_no
        await back.settle(offer, "OUTCOME_STOPPED")
    assert (await attempts_of(space, created.session.session_id, created.run_id))[0].status == 9


@pytest.mark.case(58)
async def test_another_instance_of_a_runner_loses_what_the_earlier_one_held_at_once(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner(version="1.0", display_name="old host") as old:
        offer = await old.start()
        # Upgraded, moved to another host, under the same id: the old process is gone, whatever it claims.
        async with space.runner(
            runner_id=old.runner_id, version="2.0", display_name="new host", held=[held(offer)]
        ) as new:
            assert list(seen(new, "welcome")[0].held) == []
            assert (await old.refused()).reason in ("SERVER_DRAINING", "LEASE_LOST")
            again = await new.start()
            assert (again.run_id, again.attempt_no) == (offer.run_id, 2)
            await new.settle(again)
            assert (await runner_row(space, old.runner_id)).display_name == "new host"
    attempts = await attempts_of(space, session_id, created.run_id)
    # Which version carried out which attempt is there to be seen.
    assert [(status(a), a.runner_version) for a in attempts] == [("LOST", "1.0"), ("SETTLED", "2.0")]


@pytest.mark.case(48)
async def test_goodbye_hands_over_at_once(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as leaving, space.runner() as other:
        await leaving.start()
        await leaving.send(goodbye=pb.Goodbye())
        lost = await event(space, created.session.session_id, "run.attempt_ended")
        assert lost.run_attempt_ended.error.message == "The runner said goodbye."
        # Its stream is still open, and still it counts for nothing.
        assert not (await runner_row(space, leaving.runner_id)).connected
        again = await other.start()
        assert again.attempt_no == 2
        await other.settle(again)


@pytest.mark.parametrize(("ready", "kind_"), [(False, "RETRY"), (True, "RECOVERY")])
async def test_abandon_gives_the_run_back(space: Space, ready: bool, kind_: str) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        offer = await runner.offer()
        await runner.accept(offer)
        if ready:
            await runner.ready(offer)
        await runner.send(abandon=pb.Abandon(lease=runner.lease(offer), reason="no disk"))
        await runner.expect("ack")
        again = await runner.start()
        assert (again.run_id, again.attempt_no) == (offer.run_id, 2)
        await runner.settle(again)
        assert seen(runner, "lease_lost") == []
    given_back, second = await attempts_of(space, session_id, created.run_id)
    assert (status(given_back), given_back.error.message) == ("ABANDONED", "no disk")
    assert kind(second) == kind_


async def test_whoever_holds_no_lease_is_told_why(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id

    async def told(runner, lease: pb.Lease) -> str:
        await runner.send(append=pb.Append(lease=lease, events=[said("no")]))
        return reason(await runner.expect("lease_lost"))

    async with space.runner() as runner, space.runner() as other:
        first = await runner.start()
        assert await told(other, other.lease(first)) == "LEASE_LOST"
        await runner.send(abandon=pb.Abandon(lease=runner.lease(first)))
        await runner.expect("ack")
        assert await told(runner, runner.lease(first)) == "LEASE_LOST"
        second = await other.start()
        assert await told(runner, runner.lease(first)) == "STALE_ATTEMPT"
        await other.settle(second)
        assert await told(other, other.lease(second)) == "ALREADY_SETTLED"
        assert await told(runner, runner.lease(first)) == "ALREADY_SETTLED"
    assert "agent.message" not in [e.type for e in await space.log(session_id)]


async def test_a_wrong_token_loses_the_attempt_in_earnest(space: Space) -> None:
    created = await space.session("hello")
    async with space.runner() as runner:
        offer = await runner.start()
        lease = runner.lease(offer)
        lease.lease_token = bytes(16)
        await runner.send(append=pb.Append(lease=lease, events=[said("forged")]))
        assert reason(await runner.expect("lease_lost")) == "LEASE_LOST"
        again = await runner.start()
        assert again.attempt_no == 2
        await runner.settle(again)
    assert "agent.message" not in [e.type for e in await space.log(created.session.session_id)]


@pytest.mark.case(37)
async def test_a_runner_that_was_asleep_past_its_lease_changes_nothing(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    fenced = await space.live.metric("turnlog_messages_fenced_total")
    process = await asyncio.create_subprocess_exec(
        sys.executable, zombie.__file__, space.live.address, space.runner_key, space.harness,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(zombie.__file__).parents[1])},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        claimed = json.loads(await process.stdout.readline())
        assert claimed["run_id"] == created.run_id
        process.send_signal(signal.SIGSTOP)
        async with space.runner() as other:
            again = await other.start()
            assert again.attempt_no == 2
            await other.append(again, "mine")
            before = await space.log(session_id)
            process.send_signal(signal.SIGCONT)
            process.stdin.write(b"\n")
            assert json.loads(await process.stdout.readline())["same_stream"] in ("LEASE_LOST", "OVER")
            # Also under its own name, on a stream of its own, with the token that it was given.
            told = json.loads(await process.stdout.readline())
            assert told == {"still_held": 0, "new_stream": "STALE_ATTEMPT"}
            assert await space.log(session_id) == before
            await other.append(again, "still mine")
            await other.settle(again)
            process.stdin.write(b"\n")
            assert json.loads(await process.stdout.readline()) == {"after_the_end": "ALREADY_SETTLED"}
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    log = await space.log(session_id)
    assert [e.agent_message.parts[0].text for e in log if e.type == "agent.message"] == ["mine", "still mine"]
    first, second = await attempts_of(space, session_id, created.run_id)
    assert (status(first), status(second)) == ("LOST", "SETTLED")
    # Who looks at the server sees that there was one.
    assert await space.live.metric("turnlog_messages_fenced_total") > fenced


@pytest.mark.case(39)
async def test_heartbeats_beside_a_settlement_never_lose_a_lease(space: Space) -> None:
    created = await space.session("hello")
    session_id = created.session.session_id
    async with space.runner() as runner:
        for number in range(60):
            offer = await runner.start()
            for _ in range(3):
                await runner.send(heartbeat=pb.Heartbeat())
            await runner.send(settle=pb.Settle(lease=runner.lease(offer), outcome="OUTCOME_SUCCEEDED"))
            for _ in range(3):
                await runner.send(heartbeat=pb.Heartbeat())
            ack = await runner.expect("ack")
            assert (ack.run_id, ack.through, list(ack.rejections)) == (offer.run_id, 2, [])
            await space.say(session_id, f"{number}")
        assert seen(runner, "lease_lost") == []


@pytest.mark.case(4)
async def test_a_connection_that_goes_silent_is_given_up(space: Space) -> None:
    created = await space.session("hello")
    port = int(space.live.address.split(":")[1])
    async with (
        http2_proxy(port) as proxy,
        space.runner() as other,
        space.runner(address=proxy.address) as cut_off,
    ):
        offer = await cut_off.start(credits=3)
        connected = await space.live.metric("turnlog_runners_connected")
        # No FIN, no RST: packets just arrive no more.
        proxy.last.freeze()
        again = await other.start()
        assert (again.run_id, again.attempt_no) == (offer.run_id, 2)
        await space.live.until_metric("turnlog_runners_connected", connected - 1)
        # What comes now is not pushed into the void either.
        for _ in range(3):
            await space.session("hello")
            await other.settle(again)
            again = await other.start()
            assert again.attempt_no == 1
        await other.settle(again)
    assert (await ended(space, created.session.session_id, created.run_id)).status == SUCCEEDED
