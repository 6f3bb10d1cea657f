"""SDK and command line against a real server that goes away and comes back."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from live import LiveServer, live_server
from terminal import turnlog
from turnlog_client import Interruption, Turnlog
from turnlog_client.errors import NotFound, RequestIdReused


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LiveServer]:
    async with live_server(tmp_path_factory.mktemp("live")) as running:
        yield running


async def test_a_turn_by_the_sdk(server: LiveServer) -> None:
    async with Turnlog.connect(profile=server.profile) as t:
        made = await t.sessions.create()
        assert made.session
        session_id = made.session.session_id
        run = await t.sessions.steer(session_id, "Draft a release note.", request_id="r1")
        events = [event async for event in t.events.follow(session_id, until=run)]
        assert events[0].text == "Draft a release note."
        assert [event.text for event in events if event.type == "agent.message"]
        assert events[-1].type == "session.status_idle"
        assert [event.seq for event in events] == list(range(events[0].seq, events[-1].seq + 1))
        again = await t.sessions.steer(session_id, "Draft a release note.", request_id="r1")
        assert (again.replayed, again.run_id, again.seq) == (True, run.run_id, run.seq)
        with pytest.raises(RequestIdReused):
            await t.sessions.steer(session_id, "Something else.", request_id="r1")
        became = await t.requests.get("AppendEvent", session_id, "r1")
        assert became.run_id == run.run_id
        await t.sessions.delete(session_id)
        with pytest.raises(NotFound):
            await t.sessions.get(session_id)


@pytest.mark.rule("R13a")
async def test_a_turn_by_the_command_line(server: LiveServer) -> None:
    chat = await turnlog(None, "session", "chat", "--new", "Where is it?", cwd=server.folder)
    assert (chat.code, chat.err) == (0, "")
    first, *_, last = chat.out.splitlines()
    assert first.startswith("sess_")
    assert "pending → provisioning → running" in first
    assert last.startswith("idle · 1 attempt · ")
    session_id = first.split()[0]
    shown = await turnlog(None, "session", "show", session_id, "--json", cwd=server.folder)
    assert shown.lines[0]["status"] == "SESSION_STATUS_IDLE"
    followed = await turnlog(None, "session", "follow", session_id, "--until-boundary", "--json", cwd=server.folder)
    assert [int(line["seq"]) for line in followed.lines] == list(range(1, int(shown.lines[0]["head_seq"]) + 1))
    missing = await turnlog(None, "session", "show", "sess_" + "0" * 26, "--json", cwd=server.folder)
    assert (missing.code, missing.error["reason"]) == (3, "NOT_FOUND")
    strange = await turnlog(None, "--key", "tlk_no", "session", "list", "--json", cwd=server.folder)
    assert (strange.code, strange.error["reason"]) == (4, "CREDENTIAL_INVALID")
    over = await turnlog(None, "session", "complete", session_id, cwd=server.folder)
    assert over.code == 0
    ended = await turnlog(None, "session", "steer", session_id, "more", "--json", cwd=server.folder)
    assert (ended.code, ended.error["reason"]) == (5, "SESSION_TERMINAL")


@pytest.mark.rule("R41", "R42")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
async def test_a_follow_outlives_the_server(tmp_path: Path, stop: signal.Signals) -> None:
    listen = f"127.0.0.1:{free_port()}"
    broken: asyncio.Queue[Interruption] = asyncio.Queue()
    async with live_server(tmp_path, listen=listen) as first:
        t = await Turnlog.connect(profile=first.profile).__aenter__()
        made = await t.sessions.create(first_message="one")
        assert made.session
        follow = t.events.follow(made.session.session_id, on_interrupted=broken.put_nowait)
        seen = []
        async for event in follow:
            seen.append(event.seq)
            if event.type == "session.status_idle":
                break
        reading = asyncio.ensure_future(anext(follow))
        first.process.send_signal(stop)
        told = await broken.get()
        assert told.cursors == {made.session.session_id: seen[-1]}
        assert not follow.ended
        await first.process.wait()
    async with live_server(tmp_path, listen=listen):
        run = await t.sessions.steer(made.session.session_id, "two")
        seen.append((await reading).seq)
        async for event in follow:
            seen.append(event.seq)
            if event.type == "session.status_idle" and event.raw.session_status_idle.ended_run_id == run.run_id:
                break
        assert seen == list(range(1, seen[-1] + 1)), "every event once, in order"
        await follow.aclose()
        await t.__aexit__()


async def test_the_profile_is_private(server: LiveServer) -> None:
    assert server.profile.stat().st_mode & 0o077 == 0
    found = json.loads(server.profile.read_text())
    assert {"address", "key", "workspace_id", "agent_deployment_id"} <= set(found)
