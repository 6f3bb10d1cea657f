"""Follows over broken connections."""

import asyncio

import pytest
from grpc import StatusCode
from scripted import (
    Cable,
    Refusal,
    ScriptedServer,
    Sleeps,
    batch,
    client,
    end,
    message_event,
    progress,
    script,
    status_event,
)
from turnlog.v1 import event_pb2, event_service_pb2
from turnlog_client import CaughtUp, Ended, FollowedEvent, FollowedPreview, Interruption, UnknownEventError
from turnlog_client.errors import NotFound, PermissionDenied, TurnlogError

GONE = Refusal(StatusCode.UNAVAILABLE, "SERVER_DRAINING", "going down")


@pytest.mark.case(34)
@pytest.mark.rule("R41")
async def test_a_resume_keeps_filter_options_and_cursor(scripted: ScriptedServer) -> None:
    scripted.on(
        "FollowEvents",
        script(batch(message_event(3, "a")), progress(6), GONE),
        script(batch(message_event(6, "old"), message_event(9, "b")), end(12)),
    )
    async with client(scripted) as t:
        follow = t.events.follow("sess_1", after_seq=2, types=["agent.message"], until="turn", previews=True)
        seen = [event.seq async for event in follow]
    assert seen == [3, 9], "nothing twice, nothing missed"
    first, second = scripted.requests("FollowEvents")
    assert (first.after_seq, second.after_seq) == (2, 6), "progress moves the cursor too"
    first.after_seq = second.after_seq
    assert first == second, "the same filter and options"
    assert follow.ended
    assert follow.ends["sess_1"].reason == "BOUNDARY"


@pytest.mark.case(36)
@pytest.mark.rule("R42")
async def test_a_stream_that_stops_without_end_is_interrupted_never_finished(scripted: ScriptedServer) -> None:
    told: list[Interruption] = []
    ended_while_told: list[bool] = []
    scripted.on(
        "FollowEvents",
        script(batch(message_event(1, "a"))),
        script(batch(status_event(2, "idle", boundary=2)), end(2)),
    )
    async with client(scripted) as t:

        def tell(interruption: Interruption) -> None:
            told.append(interruption)
            ended_while_told.append(follow.ended)

        follow = t.events.follow("sess_1", until="turn", on_interrupted=tell)
        assert [event.seq async for event in follow] == [1, 2]
    assert [each.cursors for each in told] == [{"sess_1": 1}]
    assert ended_while_told == [False]
    assert "without saying" in told[0].error.message


@pytest.mark.case(36)
async def test_lost_access_ends_a_follow_for_good(scripted: ScriptedServer) -> None:
    scripted.on(
        "FollowEvents",
        script(batch(message_event(1, "a")), Refusal(StatusCode.PERMISSION_DENIED, "PERMISSION_MISSING")),
    )
    async with client(scripted) as t:
        follow = t.events.follow("sess_1")
        assert (await anext(follow)).seq == 1
        with pytest.raises(PermissionDenied):
            await anext(follow)
    assert not follow.ended
    assert follow.seq == 1
    assert len(scripted.received) == 1


@pytest.mark.case(97)
@pytest.mark.parametrize(
    "fault",
    [
        Refusal(StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE"),
        Refusal(StatusCode.UNAVAILABLE, message="a proxy's idle timeout"),
        Refusal(StatusCode.DEADLINE_EXCEEDED, message="a proxy's deadline"),
        Refusal(StatusCode.INTERNAL, message="Received RST_STREAM with error code 2"),
        Refusal(StatusCode.CANCELLED, message="Received RST_STREAM with error code 8"),
        Refusal(StatusCode.UNKNOWN, message="Stream removed"),
        Refusal(StatusCode.RESOURCE_EXHAUSTED, "FOLLOWER_STALLED"),
    ],
    ids=lambda fault: f"{fault.code.name}-{fault.message[:12]}",
)
async def test_a_follow_has_no_deadline_and_outlives_what_proxies_do(scripted: ScriptedServer, fault: Refusal) -> None:
    scripted.on("FollowEvents", script(fault), script(batch(message_event(1, "a")), fault), script(end(1)))
    async with client(scripted) as t:
        assert [event.seq async for event in t.events.follow("sess_1", until="turn")] == [1]
    assert [each.time_remaining for each in scripted.received] == [None] * 3


@pytest.mark.parametrize(
    "fault",
    [
        Refusal(StatusCode.NOT_FOUND, "NOT_FOUND"),
        Refusal(StatusCode.INTERNAL, "INTERNAL"),
        Refusal(StatusCode.OUT_OF_RANGE, "CURSOR_AHEAD", head_seq="3"),
        Refusal(StatusCode.UNAUTHENTICATED, "CREDENTIAL_EXPIRED"),
        Refusal(StatusCode.RESOURCE_EXHAUSTED, message="Received message larger than max"),
    ],
    ids=lambda fault: fault.code.name,
)
async def test_a_refusal_is_final(scripted: ScriptedServer, fault: Refusal) -> None:
    scripted.on("FollowEvents", script(fault))
    async with client(scripted) as t:
        with pytest.raises(TurnlogError) as caught:
            await anext(t.events.follow("sess_1"))
    assert caught.value.code is fault.code
    assert len(scripted.received) == 1


async def test_back_off_is_jittered_grows_is_bounded_and_starts_again_after_a_frame(scripted: ScriptedServer) -> None:
    sleeps = Sleeps()
    scripted.on("FollowEvents", *[script(GONE)] * 30, script(batch(message_event(1, "a")), GONE), script(end(1)))
    async with client(scripted, sleep=sleeps) as t:
        assert [event.seq async for event in t.events.follow("sess_1", until="turn")] == [1]
    assert len(sleeps) == 31
    assert max(sleeps) <= 10.0
    assert sum(sleeps[10:30]) > sum(sleeps[:4]), "it grows"
    assert len(set(sleeps)) > 20, "it is jittered"
    assert sleeps[30] <= 0.4, "a frame starts it again"


async def test_retry_info_holds_a_reconnect_back(scripted: ScriptedServer) -> None:
    sleeps = Sleeps()
    scripted.on(
        "FollowEvents", script(Refusal(StatusCode.UNAVAILABLE, "SERVER_DRAINING", retry_after=7.0)), script(end(0))
    )
    async with client(scripted, sleep=sleeps) as t:
        assert [event async for event in t.events.follow("sess_1", until="turn")] == []
    assert 7.0 <= sleeps[0] <= 8.75


@pytest.mark.rule("R41")
async def test_a_cable_cut_in_the_middle_loses_and_repeats_nothing(scripted: ScriptedServer) -> None:
    events = [message_event(seq, "x") for seq in range(1, 101)]

    async def replay(request: event_service_pb2.FollowEventsRequest, context: object):
        for event in events[request.after_seq :]:
            yield batch(event)
            if event.seq in (20, 55) and request.after_seq < 55:
                cable.cut()
                await asyncio.Event().wait()
        yield end(100)

    scripted.on("FollowEvents", replay)
    async with Cable(scripted.address) as cable, client(cable) as t:
        seen = [event.seq async for event in t.events.follow("sess_1", until="turn")]
    assert seen == list(range(1, 101))
    assert len(scripted.requests("FollowEvents")) >= 3


async def test_a_cut_between_boundary_and_end_reads_the_boundary_again(scripted: ScriptedServer) -> None:
    idle = status_event(5, "idle", boundary=2, ended_run_id="run_1")
    scripted.on("FollowEvents", script(batch(message_event(4, "a"), idle), GONE), script(batch(idle), end(5)))
    async with client(scripted) as t:
        assert [event.seq async for event in t.events.follow("sess_1", until="run_1", after_seq=3)] == [4, 5]
    assert scripted.requests("FollowEvents")[1].after_seq == 4


async def test_until_a_started_run_begins_at_its_message(scripted: ScriptedServer) -> None:
    scripted.on("AppendEvent", event_service_pb2.AppendEventResponse(seq=8, event_id="evt_8", run_id="run_8"))
    scripted.on("FollowEvents", script(end(9)))
    async with client(scripted) as t:
        run = await t.sessions.steer("sess_1", "hello")
        assert [event async for event in t.events.follow("sess_1", until=run)] == []
    [request] = scripted.requests("FollowEvents")
    assert request.after_seq == 7
    assert request.until.run_id == "run_8"
    assert request.until.boundary == event_service_pb2.FollowUntil.BOUNDARY_TURN


def unknown_event(seq: int, *, ignorable: bool) -> event_pb2.Event:
    known = event_pb2.Event(seq=seq, event_id=f"evt_{seq}", type="later.thing", ignorable=ignorable)
    return event_pb2.Event.FromString(known.SerializeToString() + b"\xc2\x3e\x02hi")  # field 1000, of a later contract


@pytest.mark.case(84)
async def test_an_unknown_payload_advances_the_cursor_and_stops_only_if_it_may_not_be_ignored(
    scripted: ScriptedServer,
) -> None:
    frames = batch(unknown_event(1, ignorable=True), unknown_event(2, ignorable=False), message_event(3, "a"))
    scripted.on("FollowEvents", script(frames, end(3)))
    async with client(scripted) as t:
        follow = t.events.follow("sess_1", until="turn")
        ignorable = await anext(follow)
        assert (ignorable.seq, ignorable.type, ignorable.known, ignorable.text) == (1, "later.thing", False, "")
        with pytest.raises(UnknownEventError) as caught:
            await anext(follow)
        assert caught.value.event.seq == follow.seq == 2, "the cursor moved first"
        assert [event.seq async for event in follow] == [3], "and iteration may go on"
        lenient = t.events.follow("sess_1", until="turn", unknown="yield")
        assert [event.seq async for event in lenient] == [1, 2, 3]


@pytest.mark.case(84)
async def test_an_unknown_kind_of_frame_is_skipped(scripted: ScriptedServer) -> None:
    scripted.on("FollowEvents", script(b"\xc2\x3e\x02hi", batch(message_event(1, "a")), end(1)))
    async with client(scripted) as t:
        assert [event.seq async for event in t.events.follow("sess_1", until="turn")] == [1]


async def test_frames_gives_all_that_comes(scripted: ScriptedServer) -> None:
    response = event_service_pb2.FollowEventsResponse
    scripted.on(
        "FollowEvents",
        script(
            batch(message_event(1, "a")),
            response(caught_up=event_service_pb2.CaughtUp(seq=1)),
            response(preview=event_service_pb2.Preview(run_id="run_1", attempt_no=1, text="hel")),
            end(1, "TERMINAL"),
        ),
    )
    async with client(scripted) as t:
        frames = [frame async for frame in t.events.follow("sess_1", previews=True).frames()]
    assert isinstance(frames[0], FollowedEvent)
    assert frames[1:] == [
        CaughtUp("sess_1", 1),
        FollowedPreview("sess_1", "run_1", 1, "hel"),
        Ended("sess_1", 1, "TERMINAL"),
    ]


async def test_many_sessions_resume_each_at_its_own_cursor_and_only_those_that_go_on(scripted: ScriptedServer) -> None:
    def of(session_id: str, frame: event_service_pb2.FollowEventsResponse) -> event_service_pb2.FollowSessionsResponse:
        moved = event_service_pb2.FollowSessionsResponse.FromString(frame.SerializeToString())
        moved.session_id = session_id
        return moved

    scripted.on(
        "FollowSessions",
        script(of("sess_a", batch(message_event(6, "a"))), of("sess_b", end(2)), of("sess_c", progress(9)), GONE),
        script(of("sess_c", batch(message_event(10, "c"))), of("sess_a", end(7)), of("sess_c", end(11))),
    )
    async with client(scripted) as t:
        follow = t.events.follow_many({"sess_a": 5, "sess_b": 1, "sess_c": 0}, until="turn", types=["agent.message"])
        seen = [(event.session_id, event.seq) async for event in follow]
    assert seen == [("sess_a", 6), ("sess_c", 10)]
    again = scripted.requests("FollowSessions")[1]
    assert {each.session_id: each.after_seq for each in again.sessions} == {"sess_a": 6, "sess_c": 9}
    assert list(again.types) == ["agent.message"]
    assert follow.ended


async def test_a_cancelled_reader_may_read_on(scripted: ScriptedServer) -> None:
    hold = asyncio.Event()
    scripted.on("FollowEvents", script(batch(message_event(1, "a")), hold.wait), script(batch(message_event(2, "b"))))
    async with client(scripted) as t:
        follow = t.events.follow("sess_1")
        assert (await anext(follow)).seq == 1
        reading = asyncio.ensure_future(anext(follow))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await anext(follow)).seq == 2
        await follow.aclose()
    assert scripted.requests("FollowEvents")[1].after_seq == 1


async def test_a_deleted_session_ends_not_found(scripted: ScriptedServer) -> None:
    scripted.on("FollowEvents", script(batch(message_event(1, "a")), Refusal(StatusCode.NOT_FOUND, "NOT_FOUND")))
    async with client(scripted) as t:
        follow = t.events.follow("sess_1")
        assert (await anext(follow)).text == "a"
        with pytest.raises(NotFound):
            await anext(follow)
