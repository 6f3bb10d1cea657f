"""What people read: a transcript of a Session, and why a Run still waits."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.struct_pb2 import Struct
from grpc import StatusCode
from rich.console import Console
from scripted import Refusal, ScriptedServer, batch, client, end, message_event, script, status_event
from turnlog.v1 import content_pb2, event_pb2, run_pb2, run_service_pb2
from turnlog_client.cli import watch
from turnlog_client.cli.exits import Exit
from turnlog_client.cli.output import clean
from turnlog_client.cli.transcript import Transcript
from turnlog_client.errors import Unavailable
from turnlog_client.follow import FollowedEvent, FollowedPreview, Interruption


class Screen:
    """A transcript on paper."""

    def __init__(self, *, terminal: int = 0, **options: Any) -> None:
        self.paper = io.StringIO()
        self.console = Console(
            file=self.paper, soft_wrap=True, highlight=False, markup=False, emoji=False,
            width=terminal or None, force_terminal=bool(terminal), no_color=True, color_system=None,
        )  # fmt: skip
        self.view = Transcript(self.console, **options)
        self.seq = 0

    def event(self, kind: str, after: float = 0.0, attempt: int = 1, **payload: Any) -> None:
        self.seq += 1
        event = event_pb2.Event(seq=self.seq, type=kind, run_id="run_1", attempt_no=attempt)
        getattr(event, kind.replace(".", "_", 1)).CopyFrom(_payload(kind, payload))
        event.create_time.FromNanoseconds(int((1_700_000_000 + after) * 1e9))
        self.view.event(FollowedEvent(event, "sess_1"))

    def raw(self, event: event_pb2.Event) -> None:
        self.view.event(FollowedEvent(event, "sess_1"))

    def preview(self, text: str, attempt: int = 1) -> None:
        self.view.preview(FollowedPreview("sess_1", "run_1", attempt, text))

    @property
    def text(self) -> str:
        self.view.close()
        return self.paper.getvalue()


def _payload(kind: str, fields: dict[str, Any]) -> Any:
    described = event_pb2.Event.DESCRIPTOR.fields_by_name[kind.replace(".", "_", 1)].message_type
    assert described
    return message_factory.GetMessageClass(described)(**fields)  # pyright: ignore[reportArgumentType]


def say(text: str) -> list[dict[str, str]]:
    return [{"text": text}]


def arguments(**values: Any) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


def place(path: str, first: int, last: int) -> Struct:
    return arguments(path=path, start_line=first, end_line=last)


@pytest.mark.parametrize(
    ("name", "given", "result", "shown"),
    [
        ("read", place("a/b.py", 20, 22), {"parts": say("20 | x")}, "read   a/b.py:20-22"),
        ("read", place("a/b.py", 20, 20), {"parts": say("20 | x")}, "read   a/b.py:20"),
        ("read", arguments(path="a.py", start_line=3, deep=True), {}, "read   a.py:3 deep=true"),
        (
            "read",
            place("a.py", 1, 2),
            {"parts": say("no such file"), "is_error": True},
            "read   a.py:1-2   no such file",
        ),
        ("list", arguments(path="a", depth=2), {"parts": say("x\ny")}, "list   depth=2 path=a   x …"),
        ("fetch_url", arguments(url="http://x"), {}, "fetch_url http://x   done"),
    ],
)
def test_calls_of_tools(name: str, given: Struct, result: dict[str, Any], shown: str) -> None:
    screen = Screen()
    screen.event("agent.tool_use", call_id="c1", name=name, arguments=given)
    screen.event("agent.tool_result", call_id="c1", **result)
    assert screen.text == f"  ⚙ {shown}\n"


def test_a_turn_reads_as_it_should() -> None:
    screen = Screen(hidden=frozenset({1}))
    screen.event("user.message", parts=say("Where is the retry policy?"))
    screen.event("run.queued")
    screen.event("session.status_pending", active_run_id="run_1", boundary=1)
    screen.event("run.attempt_started")
    screen.event("session.status_provisioning", active_run_id="run_1", boundary=1)
    screen.event("session.status_running", active_run_id="run_1", boundary=1)
    screen.event("agent.tool_use", call_id="c1", name="search", arguments=arguments(query="ambiguous commit"))
    screen.event("agent.tool_result", after=0.1, call_id="c1", parts=say("12 hits"))
    screen.event("agent.tool_use", after=0.1, call_id="c2", name="read", arguments=place("retry.py", 41, 88))
    screen.event("agent.tool_result", after=0.1, call_id="c2", parts=say("41 | one\n42 | two"), truncated=True)
    screen.event("agent.message", after=1.3, parts=say("It is decided in retry.py:52."))
    screen.event("run.attempt_ended", status="ATTEMPT_STATUS_SETTLED")
    screen.event("run.succeeded", after=1.4, attempts=1)
    screen.event("session.status_idle", after=1.4, boundary=2, ended_run_id="run_1")
    assert screen.text.splitlines() == [
        "sess_1  run_1  pending → provisioning → running",
        '  ⚙ search "ambiguous commit"   12 hits in 0.1 s',
        "  ⚙ read   retry.py:41-88   (cut)",
        "  It is decided in retry.py:52.",
        "idle · 1 attempt · 1.4 s · seq 14",
    ]


def test_a_lost_runner_is_told_in_the_status() -> None:
    screen = Screen()
    screen.event("session.status_running", active_run_id="run_1", boundary=1)
    screen.event("agent.message", parts=say("half"))
    screen.event("run.attempt_ended", status="ATTEMPT_STATUS_LOST")
    screen.event("run.ready", next_attempt_kind="ATTEMPT_KIND_RECOVERY")
    screen.event("session.status_pending", active_run_id="run_1", boundary=1)
    screen.event("run.attempt_started", attempt=2)
    screen.event("session.status_provisioning", active_run_id="run_1", boundary=1)
    screen.event("session.status_running", active_run_id="run_1", boundary=1)
    assert screen.text.splitlines() == [
        "sess_1  run_1  running",
        "  half",
        "running → pending (runner lost, attempt 1) → provisioning → running (attempt 2)",
    ]


def test_a_failure_is_the_last_line() -> None:
    screen = Screen()
    screen.event("run.failed", attempts=5, error=content_pb2.RunError(code="a.b", message="why"))
    screen.event("session.status_idle", boundary=2, stop_reason="STOP_REASON_FAILED")
    assert screen.text == "idle · failed: a.b: why · 5 attempts · seq 2\n"


def test_previews_become_the_message_without_saying_it_twice() -> None:
    screen = Screen()
    screen.preview("It is ")
    screen.preview("decided\nhere")
    screen.event("agent.message", parts=say("It is decided\nhere, in full."))
    assert screen.text == "  It is decided\n  here, in full.\n"


def test_space_at_the_end_of_previews_is_no_difference() -> None:
    screen = Screen()
    for piece in ("One.\n", "\nTwo", ".\n"):
        screen.preview(piece)
    screen.event("agent.message", parts=say("One.\n\nTwo."))
    screen.event("session.status_idle", boundary=2)
    assert screen.text == "  One.\n\n  Two.\nidle · seq 2\n"


def test_a_terminal_breaks_lines_between_words() -> None:
    screen = Screen(terminal=40)
    screen.preview("It is decided where the lane compa")
    screen.preview("res the head, in\n\n  - server/lane.py: once for 日本語 日本語 each Session")
    screen.event("agent.message", parts=say("It is decided where the lane compares the head, in\n\n  - server/lane.py: "
                                            "once for 日本語 日本語 each Session, as it was told to."))  # fmt: skip
    screen.event("agent.tool_use", call_id="c1", name="read", arguments=place("a/long/path/to/some/file.py", 1, 2))
    assert screen.text.splitlines() == [
        "  It is decided where the lane compares",
        "  the head, in",
        "",
        "    - server/lane.py: once for 日本語",
        "    日本語 each Session, as it was told",
        "    to.",
        "  ⚙ read",
        "  a/long/path/to/some/file.py:1-2",
    ]


def test_a_preview_that_overtakes_the_status_waits_for_it() -> None:
    screen = Screen()
    screen.event("session.status_provisioning", active_run_id="run_1", boundary=1)
    screen.preview("It is ")
    screen.event("session.status_running", active_run_id="run_1", boundary=1)
    screen.preview("decided.")
    screen.event("agent.message", parts=say("It is decided."))
    assert screen.text == "sess_1  run_1  provisioning → running\n  It is decided.\n"


@pytest.mark.parametrize("between", ["shed", "tool", "attempt"])
def test_previews_that_are_not_the_message_are_replaced_whole(between: str) -> None:
    screen = Screen()
    screen.preview("It is ")
    if between == "tool":
        screen.event("agent.tool_use", call_id="c1", name="read")
        screen.preview("decided")
    if between == "attempt":
        screen.preview("Another start", attempt=2)
    screen.event("agent.message", parts=say("It was decided." if between != "tool" else "It is decided."))
    last = "  It is decided." if between == "tool" else "  It was decided."
    assert screen.text.splitlines()[-1] == last


def test_what_others_wrote_cannot_steer_the_terminal() -> None:
    screen = Screen()
    screen.event("agent.message", parts=say("a\x1b[2Jb\rc\x9bd\u202ee"))
    screen.event("agent.tool_use", call_id="c\x1b", name="x\x1b", arguments=arguments(q="\x1b]0;title\x07"))
    screen.preview("\x1b[31m")
    assert not {"\x1b", "\r", "\x9b", "\u202e", "\x07"} & set(screen.text)
    assert clean("naïve\t→ 日本語 👩‍💻\n") == "naïve\t→ 日本語 👩‍💻\n"


def test_an_unknown_event_is_named() -> None:
    screen = Screen()
    screen.raw(event_pb2.Event(seq=3, type="later.thing"))
    assert "later.thing (seq 3)" in screen.text


def test_an_outage_is_told_once() -> None:
    screen = Screen()
    for delay in (0.1, 0.3, 9.0):
        screen.view.interrupted(Interruption({"sess_1": 17}, Unavailable("refused"), delay))
    assert screen.text.splitlines() == ["  … reconnecting from seq 17"]


def fake_cli(t: Any, console: Console) -> Any:
    return SimpleNamespace(t=t, out=SimpleNamespace(as_json=False, live=False, console=console))


def run_event(seq: int, name: str) -> event_pb2.Event:
    event = event_pb2.Event(seq=seq, type=f"run.{name}", run_id="run_1")
    getattr(event, f"run_{name}").SetInParent()
    return event


async def test_why_a_run_waits_is_asked_now_and_then_and_told_once(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ASK_AFTER", 0.001)
    monkeypatch.setattr(watch, "ASK_EVERY", 0.001)
    answer = run_service_pb2.GetRunResponse
    waiting = answer(run=run_pb2.Run(status="RUN_STATUS_READY", pending_reason="No runner serves harness repo."))
    limited = answer(
        run=run_pb2.Run(status="RUN_STATUS_READY", pending_reason="The workspace's limit of 2 is reached.")
    )
    unreachable = Refusal(StatusCode.NOT_FOUND, "NOT_FOUND")
    scripted.on("GetRun", waiting, waiting, unreachable, waiting, limited)

    async def until_asked() -> None:
        await scripted.until("GetRun", 6)

    pending = batch(run_event(2, "ready"), status_event(3, "pending", active_run_id="run_1"))
    started = batch(run_event(4, "attempt_started"), run_event(5, "succeeded"))
    scripted.on("FollowEvents", script(pending, until_asked, started, end(5)))
    screen = Screen()
    async with client(scripted) as t:
        watching = watch.Watch(fake_cli(t, screen.console), "sess_1", screen.view)
        assert await watching.follow(until="run_1") is Exit.OK
    assert screen.text.splitlines() == [
        "sess_1  run_1  pending",
        "  … No runner serves harness repo.",
        "  … The workspace's limit of 2 is reached.",
    ]


async def test_the_outcome_is_that_of_the_run_that_was_waited_for(scripted: ScriptedServer) -> None:
    other = event_pb2.Event(seq=2, type="run.failed", run_id="run_0")
    other.run_failed.SetInParent()
    frames = batch(
        other, status_event(3, "idle", boundary=2, stop_reason="STOP_REASON_FAILED"), run_event(4, "succeeded")
    )
    scripted.on("FollowEvents", script(frames, end(4)))
    screen = Screen()
    async with client(scripted) as t:
        watching = watch.Watch(fake_cli(t, screen.console), "sess_1", screen.view)
        assert await watching.follow(until="run_1") is Exit.OK
        assert watching.seq == 4


async def test_a_cancelled_watch_leaves_nothing_behind(scripted: ScriptedServer) -> None:
    async def for_ever() -> None:
        await scripted.until("AppendEvent", 99)

    scripted.on("FollowEvents", script(batch(message_event(1, "a"), run_event(2, "ready")), for_ever))
    screen = Screen()
    async with client(scripted) as t:
        before = asyncio.all_tasks()
        watching = watch.Watch(fake_cli(t, screen.console), "sess_1", screen.view)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await watching.follow()
        await asyncio.sleep(0)
        left = {each for each in asyncio.all_tasks() - before if "_say_why" in repr(each)}
        assert not left
