"""How follows end: at the boundary they were told, and in no other way with OK."""

import signal
from dataclasses import replace

import pytest
from support.http2_proxy import http2_proxy
from support.replicas import Follow, Refused, Rpc, Space, live_replica, make_space

QUICK = ("--safety-poll-seconds", "0.2", "--progress-seconds", "0.5")


@pytest.mark.rule("R43")
async def test_a_follow_ends_at_the_boundary_that_it_was_told(space: Space) -> None:
    """Of two turns: the first boundary, the boundary of the named Run, the terminal one; and never before."""
    created = await space.session("one")
    session_id = created.session.session_id
    second = await space.say(session_id, "two")

    def follow(**until: object) -> Follow:
        return space.rpc.stream("FollowEvents", session_id=session_id, until=until)

    turn = follow(boundary="BOUNDARY_TURN")
    named = follow(boundary="BOUNDARY_TURN", run_id=second.run_id)
    terminal = follow(boundary="BOUNDARY_TERMINAL")
    never = follow(boundary="BOUNDARY_NEVER")
    async with space.runner() as runner:
        offer = await runner.start()
        assert offer.run_id == created.run_id
        await runner.append(offer, "first")
        await runner.settle(offer)
        events = await turn.until("end")
        assert events[-1].type == "session.status_idle"
        assert events[-1].session_status_idle.ended_run_id == created.run_id
        assert turn.frames[-1].end.seq == events[-1].seq
        assert await turn.frame() is None
        offer = await runner.start()
        await runner.settle(offer)
    events = await named.until("end")
    assert events[-1].session_status_idle.ended_run_id == second.run_id
    assert await named.frame() is None
    await space.rpc.call("CompleteSession", session_id=session_id)
    assert (await terminal.until("end"))[-1].type == "session.status_completed"
    assert await terminal.frame() is None
    assert (await never.event("session.status_completed")).seq == (await space.get(session_id)).head_seq
    never.cancel()
    # Only what comes after the cursor counts, but what is over for good is over at once.
    after_first = follow(boundary="BOUNDARY_TURN", run_id=created.run_id)
    assert (await after_first.until("end"))[-1].session_status_idle.ended_run_id == created.run_id
    head = (await space.get(session_id)).head_seq
    late = space.rpc.stream("FollowEvents", session_id=session_id, after_seq=head, until={"boundary": "BOUNDARY_TURN"})
    assert await late.until("end") == []
    assert await late.frame() is None


@pytest.mark.rule("R42", "R35")
@pytest.mark.case(36)
async def test_ok_means_the_end_and_a_cut_is_no_end(dsn: str) -> None:
    """Drained by the server, cut by a proxy, gone with the Session: never OK, and never a settlement."""
    async with live_replica(dsn, *QUICK) as live:
        space = await make_space(live)
        session_id = (await space.session("go")).session.session_id
        until = {"boundary": "BOUNDARY_TURN"}
        async with http2_proxy(int(live.address.rpartition(":")[2])) as network:
            for end in ("close", "cut", "go_away"):
                far = Rpc(network.address, space.key)
                follow = far.stream("FollowEvents", session_id=session_id, until=until)
                await follow.until("caught_up")
                getattr(network.last, end)()
                with pytest.raises(Refused) as refused:
                    await follow.until("end")
                assert refused.value.code.name == "UNAVAILABLE"
                await far.close()
        idle = (await space.session()).session.session_id
        deleted = space.rpc.stream("FollowEvents", session_id=idle)
        await deleted.until("caught_up")
        await space.rpc.call("DeleteSession", session_id=idle)
        with pytest.raises(Refused) as refused:
            await deleted.until("end")
        assert refused.value.reason == "NOT_FOUND"
        follow = space.rpc.stream("FollowEvents", session_id=session_id, until=until)
        await follow.until("caught_up")
        before = (await space.get(session_id)).head_seq
        live.kill(signal.SIGTERM)
        with pytest.raises(Refused) as refused:
            await follow.until("end")
        assert (refused.value.code.name, refused.value.reason) == ("UNAVAILABLE", "SERVER_DRAINING")
        assert refused.value.retry_after is not None
        assert not any(frame.WhichOneof("frame") == "end" for frame in follow.frames)
        assert await live.process.wait() == 0
    async with live_replica(dsn, *QUICK) as live:
        rpc = live.rpc(space.key)
        session = (await rpc.call("GetSession", session_id=session_id)).session
        assert session.head_seq == before
        # The cursor of before the restart is still a place in the log.
        follow = rpc.stream("FollowEvents", session_id=session_id, after_seq=before)
        assert await follow.until("caught_up") == []
        follow.cancel()
        with pytest.raises(Refused) as refused:
            await rpc.stream("FollowEvents", session_id=session_id, after_seq=before + 1).frame()
        assert refused.value.reason == "CURSOR_AHEAD"


@pytest.mark.case(36, 112)
@pytest.mark.parametrize("loss", ["role", "key"])
async def test_what_comes_after_a_revocation_is_not_sent(space: Space, loss: str) -> None:
    session_id = (await space.session()).session.session_id
    account = (await space.rpc.call("CreateServiceAccount", display_name="reader")).service_account
    subject = account.service_account_id
    await space.rpc.call("SetRole", subject=subject, role="ROLE_VIEWER")
    made = await space.rpc.call("CreateApiKey", subject=subject, display_name="reader")
    reader = space.live.rpc(made.secret)
    busy = reader.stream("FollowEvents", session_id=session_id)
    idle_session = (await space.session()).session.session_id
    idle = reader.stream("FollowEvents", session_id=idle_session)
    await busy.until("caught_up")
    await idle.until("caught_up")
    if loss == "role":
        await space.rpc.call("RemoveRole", subject=subject)
        status = ("PERMISSION_DENIED", "PERMISSION_MISSING")
    else:
        await space.rpc.call("RevokeApiKey", api_key_id=made.api_key.api_key_id)
        status = ("UNAUTHENTICATED", "CREDENTIAL_INVALID")
    await space.say(session_id, "not for you")
    for follow in (busy, idle):
        with pytest.raises(Refused) as refused:
            await follow.events(1)
        assert (refused.value.code.name, refused.value.reason) == status
    with pytest.raises(Refused) as refused:
        await reader.stream("FollowEvents", session_id=session_id).frame()
    assert refused.value.reason == status[1]


@pytest.mark.case(112)
async def test_nor_where_it_was_revoked_on_another_replica(space: Space) -> None:
    """And a Session that is deleted there ends its follows here."""
    session_id, gone = [(await space.session()).session.session_id for _ in range(2)]
    account = (await space.rpc.call("CreateServiceAccount", display_name="reader")).service_account
    await space.rpc.call("SetRole", subject=account.service_account_id, role="ROLE_VIEWER")
    made = await space.rpc.call("CreateApiKey", subject=account.service_account_id, display_name="reader")
    follows = [
        rpc.stream("FollowEvents", session_id=each)
        for rpc, each in ((space.live.rpc(made.secret), session_id), (space.rpc, gone))
    ]
    async with live_replica(space.live.dsn, *QUICK) as other:
        far = other.rpc(space.key)
        for follow in follows:
            await follow.until("caught_up")
        await far.call("RemoveRole", subject=account.service_account_id)
        await replace(space, rpc=far).say(session_id, "not for you")
        await far.call("DeleteSession", session_id=gone)
        for follow, reason in zip(follows, ("PERMISSION_MISSING", "NOT_FOUND"), strict=True):
            with pytest.raises(Refused) as refused:
                await follow.events(1)
            assert refused.value.reason == reason


async def test_a_burst_of_followers_gets_in(space: Space) -> None:
    """As after the end of another replica: more at once than gRPC by itself lets wait, and each is served."""
    session_id = (await space.session()).session.session_id
    follows = [rpc.stream("FollowEvents", session_id=session_id) for rpc in _connections(space, 4) for _ in range(800)]
    for follow in follows:
        await follow.until("caught_up")
    for follow in follows:
        follow.cancel()


def _connections(space: Space, count: int) -> list[Rpc]:
    return [space.live.rpc(space.key) for _ in range(count)]
