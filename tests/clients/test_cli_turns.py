"""Turns on the command line: follow, chat, wait, and Ctrl-C in each."""

import signal

import pytest
from grpc import StatusCode
from scripted import (
    APPENDED,
    CREATED,
    SESSION,
    Refusal,
    ScriptedServer,
    batch,
    end,
    message_event,
    run_end,
    script,
    status_event,
    turn,
)
from terminal import finish, on_terminal, start, turnlog
from turnlog.v1 import (
    event_service_pb2,
    session_pb2,
    session_service_pb2,
)


@pytest.mark.parametrize(
    ("name", "stop", "code"),
    [
        ("succeeded", "END_TURN", 0),
        ("failed", "FAILED", 1),
        ("interrupted", "INTERRUPTED", 7),
        ("canceled", "CANCELED", 7),
    ],
)
async def test_a_follow_to_the_boundary_says_how_the_turn_ended(
    scripted: ScriptedServer, name: str, stop: str, code: int
) -> None:
    scripted.on("FollowEvents", script(*turn(name, stop)))
    done = await turnlog(scripted, "session", "follow", "sess_1", "--until-boundary", "--json")
    assert done.code == code
    assert [each["type"] for each in done.lines] == ["agent.message", f"run.{name}", "session.status_idle"]
    assert done.lines[0]["agent_message"] == {"parts": [{"text": "It is in retry.py."}]}


async def test_a_filter_does_not_hide_how_the_turn_ended(scripted: ScriptedServer) -> None:
    failed = session_pb2.Session(session_id="sess_1", status="SESSION_STATUS_IDLE", stop_reason="STOP_REASON_FAILED")
    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=failed))
    scripted.on("FollowEvents", script(batch(message_event(5, "a")), end(7)))
    done = await turnlog(scripted, "session", "follow", "sess_1", "--until-boundary", "--type", "agent.message")
    assert done.code == 1
    assert list(scripted.requests("FollowEvents")[0].types) == ["agent.message"]


@pytest.mark.rule("R41")
async def test_a_follow_reconnects_by_cursor_and_says_so(scripted: ScriptedServer) -> None:
    gone = Refusal(StatusCode.UNAVAILABLE, "SERVER_DRAINING", "going down")
    scripted.on("FollowEvents", script(batch(message_event(4, "a")), gone), script(*turn()))
    done = await turnlog(scripted, "session", "follow", "sess_1", "--until-boundary")
    assert done.code == 0
    assert "reconnecting from seq 4" in done.out
    assert scripted.requests("FollowEvents")[1].after_seq == 4


async def test_chat_new_with_a_text_is_one_turn(scripted: ScriptedServer) -> None:
    scripted.on("CreateSession", CREATED)
    scripted.on(
        "FollowEvents", script(batch(status_event(3, "pending", active_run_id="run_1")), *turn("failed", "FAILED"))
    )
    done = await turnlog(scripted, "session", "chat", "--new", "--agent-deployment", "adep_1", "Where is it?")
    assert done.code == 1
    assert done.out.splitlines()[0] == "sess_1  run_1  pending"
    assert "> Where is it?" not in done.out
    [create] = scripted.requests("CreateSession")
    assert create.first_message.parts[0].text == "Where is it?"
    [follow] = scripted.requests("FollowEvents")
    assert (follow.after_seq, follow.until.run_id) == (1, "run_1")


async def test_chat_goes_on_from_its_own_cursor(scripted: ScriptedServer) -> None:
    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=SESSION))
    scripted.on("AppendEvent", APPENDED, event_service_pb2.AppendEventResponse(seq=8, run_id="run_2"))
    second = (batch(message_event(9, "more", "run_2"), run_end(10, "succeeded", "run_2")), end(10))
    scripted.on("FollowEvents", script(*turn()), script(*second))
    done = await turnlog(scripted, "session", "chat", "sess_1", stdin="one\n\ntwo\n")
    assert (done.code, done.err) == (0, "")
    assert [each.after_seq for each in scripted.requests("FollowEvents")] == [2, 7]


async def test_what_was_typed_before_the_chat_asks_counts_also_a_ctrl_d(scripted: ScriptedServer) -> None:
    scripted.on("CreateSession", CREATED)
    scripted.on("AppendEvent", event_service_pb2.AppendEventResponse(seq=8, run_id="run_2"))
    second = (batch(message_event(9, "more", "run_2"), run_end(10, "succeeded", "run_2")), end(10))
    scripted.on("FollowEvents", script(*turn()), script(*second))
    arguments = ["session", "chat", "--new", "--agent-deployment", "adep_1", "one"]
    written = await on_terminal(scripted, *arguments, typed="two\n\x04")
    assert "more" in written
    [appended] = scripted.requests("AppendEvent")
    assert appended.user_message.parts[0].text == "two"


@pytest.mark.parametrize(
    "arguments", [["session", "chat"], ["session", "chat", "hello"], ["session", "chat", "sess_1", "a", "b"]]
)
async def test_chat_without_a_session_says_how(scripted: ScriptedServer, arguments: list[str]) -> None:
    done = await turnlog(scripted, *arguments)
    assert done.code == 2


async def test_ctrl_c_in_a_chat_interrupts_the_turn(scripted: ScriptedServer) -> None:
    async def until_interrupted() -> None:
        await scripted.until("AppendEvent", 2)

    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=SESSION))
    scripted.on("AppendEvent", APPENDED)
    scripted.on("FollowEvents", script(until_interrupted, *turn("interrupted", "INTERRUPTED")))
    process = await start(scripted, "session", "chat", "sess_1", "hello")
    await scripted.until("FollowEvents", 1)
    process.send_signal(signal.SIGINT)
    done = await finish(process)
    assert done.code == 7
    assert "interrupting" in done.out
    request = scripted.requests("AppendEvent")[1]
    assert request.user_interrupt.run_id == "run_1"


async def test_a_second_ctrl_c_leaves(scripted: ScriptedServer) -> None:
    async def for_ever() -> None:
        await scripted.until("AppendEvent", 99)

    scripted.on("AppendEvent", APPENDED)
    scripted.on("FollowEvents", script(for_ever))
    process = await start(scripted, "session", "chat", "sess_1", "hello")
    await scripted.until("FollowEvents", 1)
    process.send_signal(signal.SIGINT)
    await scripted.until("AppendEvent", 2)
    process.send_signal(signal.SIGINT)
    assert (await finish(process)).code == 130


async def test_ctrl_c_leaves_a_follow_and_stops_nothing(scripted: ScriptedServer) -> None:
    async def for_ever() -> None:
        await scripted.until("AppendEvent", 99)

    scripted.on("FollowEvents", script(batch(message_event(1, "a")), for_ever))
    process = await start(scripted, "session", "follow", "sess_1")
    await scripted.until("FollowEvents", 1)
    process.send_signal(signal.SIGINT)
    done = await finish(process)
    assert (done.code, done.err) == (130, "")
    assert scripted.requests("AppendEvent") == []


async def test_a_reader_that_has_enough_is_no_error(scripted: ScriptedServer) -> None:
    async def until_read() -> None:
        await scripted.until("GetServerInfo", 1)

    more = [batch(message_event(seq, "x" * 2000)) for seq in range(2, 200)]
    scripted.on("FollowEvents", script(batch(message_event(1, "a")), until_read, *more, end(200)))
    process = await start(scripted, "session", "follow", "sess_1", "--until-boundary", "--json")
    assert process.stdout
    await process.stdout.readline()
    process.stdout._transport.close()  # pyright: ignore[reportAttributeAccessIssue]
    await turnlog(scripted, "server", "info")
    assert await process.wait() == 0
    assert process.stderr
    assert await process.stderr.read() == b""


async def test_wait_answers_for_what_has_ended_and_waits_for_what_has_not(scripted: ScriptedServer) -> None:
    busy = session_pb2.Session(session_id="sess_1", status="SESSION_STATUS_RUNNING", active_run_id="run_1", head_seq=4)
    idle = session_pb2.Session(session_id="sess_1", status="SESSION_STATUS_IDLE", stop_reason="STOP_REASON_FAILED")
    answer = session_service_pb2.GetSessionResponse
    scripted.on("GetSession", answer(session=busy), answer(session=idle))
    scripted.on("FollowEvents", script(*turn("failed", "FAILED")))
    done = await turnlog(scripted, "session", "wait", "sess_1", "--json")
    assert done.code == 1
    assert done.lines == [
        {"session_id": "sess_1", "status": "SESSION_STATUS_IDLE", "stop_reason": "STOP_REASON_FAILED"}
    ]
    assert scripted.requests("FollowEvents")[0].after_seq == 4


async def test_wait_gives_up(scripted: ScriptedServer) -> None:
    async def for_ever() -> None:
        await scripted.until("AppendEvent", 99)

    scripted.on("GetSession", session_service_pb2.GetSessionResponse(session=SESSION))
    scripted.on("FollowEvents", script(for_ever))
    done = await turnlog(scripted, "session", "wait", "sess_1", "--timeout", "1s")
    assert (done.code, "still at work" in done.err) == (6, True)
