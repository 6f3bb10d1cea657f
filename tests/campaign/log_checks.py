"""What must hold in the log of one Session, whatever the clients saw."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from support.story import LEGAL, STATUS
from turnlog.v1.event_pb2 import CausedBy, Event
from turnlog.v1.run_pb2 import RunStatus

from campaign.findings import Broken
from campaign.stored import Stored

ENDS = frozenset({"run.succeeded", "run.failed", "run.interrupted", "run.canceled"})
OF_RUNNERS = frozenset({"agent.message", "agent.tool_use", "agent.tool_result", "model.called", "run.attempt_ended"})


def check_log(stored: Stored) -> Iterator[Broken]:
    """Everything that the log alone, and the rows beside it, can tell."""
    events = stored.events
    yield from _positions(stored, events)
    yield from _statuses(stored, events)
    yield from _attempts(stored, events)
    yield from _ends(stored, events)
    yield from _runs(stored, events)
    yield from _once(stored, events)


def _positions(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    told = stored.session_id
    seqs = [seq for seq, _, _ in stored.rows]
    for before, after in pairwise([0, *seqs]):
        if after != before + 1:
            yield Broken("Gapless", told, f"seq {after} follows seq {before}")
    last = seqs[-1] if seqs else 0
    if stored.head > last:
        yield Broken("Durable", told, f"the head is {stored.head}, the log ends at {last}")
    if stored.head < last:
        yield Broken("OneCommit", told, f"the log goes on to {last} behind the head, {stored.head}")
    for (seq, kind, _), event in zip(stored.rows, events, strict=True):
        if event.seq != seq:
            yield Broken("Ordered", told, f"seq {seq} holds an event that calls itself {event.seq}")
        if event.type != kind or event.WhichOneof("payload") != kind.replace(".", "_", 1):
            yield Broken("OneCommit", told, f"seq {seq} is stored as {kind} and is {event.type}")
    for before, after in pairwise(events):
        if after.create_time.ToNanoseconds() < before.create_time.ToNanoseconds():
            yield Broken("Ordered", told, f"seq {after.seq} is earlier than the one before it")
    for event_id, count in Counter(event.event_id for event in events).items():
        if count > 1:
            yield Broken("Unique", told, f"{count} events are {event_id}")


def _statuses(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    shown = [(event.seq, event.type.removeprefix(STATUS)) for event in events if event.type.startswith(STATUS)]
    if not shown:
        yield Broken("OneCommit", stored.session_id, "no status was ever shown")
        return
    if shown[0][1] not in ("idle", "pending"):
        yield Broken("OneCommit", stored.session_id, f"its first status is {shown[0][1]}")
    for (_, before), (seq, after) in pairwise(shown):
        if after not in LEGAL[before].split():
            yield Broken("OneCommit", stored.session_id, f"seq {seq} shows {after}, which may not follow {before}")
    if stored.status.lower() != shown[-1][1]:
        yield Broken("OneCommit", stored.session_id, f"its row says {stored.status}, its log {shown[-1][1]}")


def _attempts(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    """At most one attempt of a Run is live, and only that one writes."""
    live: dict[str, int] = {}
    last: Counter[str] = Counter()
    for event in events:
        run, number = event.run_id, event.attempt_no
        if event.type == "run.attempt_started":
            if live:
                yield Broken("OneLease", stored.session_id, f"seq {event.seq}: attempt {number} while {live} lives")
            if number != last[run] + 1:
                yield Broken("OneLease", stored.session_id, f"seq {event.seq}: attempt {number} after {last[run]}")
            live[run] = last[run] = number
            continue
        by_runner = event.caused_by.kind == CausedBy.KIND_RUNNER
        if number and by_runner and event.type in OF_RUNNERS and live.get(run) != number:
            yield Broken("Fenced", stored.session_id, f"seq {event.seq} is of attempt {number}, which was over by then")
        if event.type == "run.attempt_ended":
            live.pop(run, None)


def _ends(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    """Every Run ends once, and nothing of it comes after its end but the status that shows it."""
    begun = [event.run_id for event in events if event.type == "run.queued"]
    ended: set[str] = set()
    for event in events:
        if event.run_id in ended and not event.type.startswith(STATUS):
            yield Broken("Settled", stored.session_id, f"seq {event.seq} is of {event.run_id}, which had ended")
        if event.type in ENDS:
            ended.add(event.run_id)
    for run, count in Counter(begun).items():
        if count > 1:
            yield Broken("OneCommit", stored.session_id, f"{run} was queued {count} times")
        if run not in ended:
            yield Broken("Settled", stored.session_id, f"{run} never ended")


def _runs(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    """The rows of Runs are those of the log, and say the same end."""
    told = {event.run_id: "QUEUED" for event in events if event.type == "run.queued"}
    for event in events:
        if event.type in ENDS:
            status = getattr(event, event.WhichOneof("payload") or "").status
            told[event.run_id] = RunStatus.Name(status).removeprefix("RUN_STATUS_")
            if told[event.run_id] != event.type.removeprefix("run.").upper():
                yield Broken("OneCommit", stored.session_id, f"seq {event.seq} is {event.type} and says otherwise")
    for run in told.keys() | stored.runs.keys():
        row, log = stored.runs.get(run, "nothing").upper(), told.get(run, "NOTHING")
        if row != log and log != "QUEUED":
            yield Broken("OneCommit", stored.session_id, f"the row of {run} says {row}, the log {log}")


def _once(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    """What runners say is said once: each text of theirs is unique."""
    for text, count in Counter(_text(event) for event in events if event.type == "agent.message").items():
        if count > 1:
            yield Broken("Idempotent", stored.session_id, f"{count} events say {text!r}")
    yield from _complete(stored, events)


def _complete(stored: Stored, events: list[Event]) -> Iterator[Broken]:
    """A harness that settled well had said `RUN/ATTEMPT/1/N` to `RUN/ATTEMPT/N/N`, in this order."""
    said: dict[tuple[str, int], list[str]] = {}
    for event in events:
        if event.type == "agent.message" and _text(event).count("/") == 3:
            said.setdefault((event.run_id, event.attempt_no), []).append(_text(event))
        if event.type == "run.succeeded" and (texts := said.get((event.run_id, _last_attempt(events, event)))):
            run, number, _, total = texts[0].split("/")
            all_of_them = range(1, int(total) + 1) if total.isdigit() else ()
            if texts != [f"{run}/{number}/{i}/{total}" for i in all_of_them]:
                yield Broken("Durable", stored.session_id, f"{event.run_id} succeeded, and of it is only {texts}")


def _last_attempt(events: list[Event], end: Event) -> int:
    return max((event.attempt_no for event in events if event.run_id == end.run_id), default=0)


def _text(event: Event) -> str:
    return "".join(part.text for part in event.agent_message.parts)
