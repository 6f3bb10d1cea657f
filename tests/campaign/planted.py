"""Bugs, one for each thing that the checker looks at: what the server would have left behind, had it had them."""

from collections.abc import Callable

from turnlog.v1.event_pb2 import CausedBy

from campaign.history import FENCED, Line
from campaign.log_checks import ENDS
from campaign.tampering import Tampered

Bug = Callable[[Tampered], None]

BUGS: dict[str, tuple[str, str, Bug]] = {}
"""By name: the guarantee that it breaks, what the checker says of it, and how to bring it about."""


def bug(guarantee: str, says: str) -> Callable[[Bug], Bug]:
    def declare(act: Bug) -> Bug:
        BUGS[act.__name__.replace("_", "-")] = (guarantee, says, act)
        return act

    return declare


def _cut_the_log(it: Tampered, session_id: str, last: int) -> None:
    it.sql("DELETE FROM events WHERE session_id = %s AND seq > %s", session_id, last)
    it.sql("UPDATE session_heads SET head_seq = %s WHERE session_id = %s", last, session_id)


@bug("Gapless", "follows seq")
def a_hole_in_the_log(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    it.sql("DELETE FROM events WHERE session_id = %s AND seq = %s", session_id, event.seq)


@bug("Durable", "was answered OK, and is nowhere")
def an_acknowledged_commit_is_lost(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 3)
    _cut_the_log(it, answer["session"], answer["seq"] - 1)


@bug("Durable", "which the log does not have")
def what_followers_saw_is_lost(it: Tampered) -> None:
    session_id, event = it.events("agent.message")[-1]
    _cut_the_log(it, session_id, event.seq - 1)


@bug("Durable", "was answered OK, and is nowhere")
def an_acknowledged_message_of_a_runner_is_lost(it: Tampered) -> None:
    marker = it.call_of(it.line("ok", lambda line: it.call_of(line)["client"].startswith("runner")))["marker"]
    session_id, event = it.event("agent.message", lambda event: event.agent_message.parts[0].text == marker)
    event.agent_message.parts[0].text = "something else"
    it.write(session_id, event.seq, event)


@bug("Durable", "succeeded, and of it is only")
def a_settled_run_lacks_what_its_harness_said(it: Tampered) -> None:
    attempts = {event.run_id: event.attempt_no for _, event in it.events("run.attempt_started")}
    well = {(event.run_id, attempts[event.run_id]) for _, event in it.events("run.succeeded")}
    named = [found for found in it.events("agent.message") if found[1].agent_message.parts[0].text.count("/") == 3]
    session_id, event = next(found for found in named if (found[1].run_id, found[1].attempt_no) in well)
    run, attempt, number, total = event.agent_message.parts[0].text.split("/")
    event.agent_message.parts[0].text = f"{run}/{attempt}/{int(number) + 1}/{int(total) + 1}"
    it.write(session_id, event.seq, event)


@bug("Durable", "the log ends at")
def a_head_without_its_events(it: Tampered) -> None:
    it.sql("UPDATE session_heads SET head_seq = head_seq + 1")


@bug("Durable", "it was followed, and is not there")
def a_session_is_gone(it: Tampered) -> None:
    session_id = it.line("seen")["session"]
    for table in ("events", "session_heads", "session_states", "sessions", "runs"):
        it.sql(f"DELETE FROM {table} WHERE session_id = %s", session_id)


@bug("Durable", "was answered")
def a_read_that_is_stale(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 1)
    it.add(op="head", client="c", session=answer["session"], began=answer["t"] + 1, seq=answer["seq"] - 1)


@bug("Durable", "which the log never reached")
def a_read_of_what_was_rolled_back(it: Tampered) -> None:
    answer = it.line("ok")
    it.add(op="head", client="c", session=answer["session"], began=answer["t"], seq=10_000)


@bug("Durable", "and stands at")
def an_answer_names_another_place(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 3)
    answer["seq"] -= 1


@bug("Ordered", "calls itself")
def two_events_have_changed_places(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    _, other = it.event("user.message")
    it.write(session_id, event.seq, other)


@bug("Ordered", "is earlier than the one before it")
def time_goes_back(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    event.create_time.FromMilliseconds(1)
    it.write(session_id, event.seq, event)


@bug("Ordered", "had been answered before")
def what_was_asked_later_comes_earlier(it: Tampered) -> None:
    first = it.line("ok", lambda line: line["seq"] > 0)
    later = it.line("ok", lambda line: line["session"] == first["session"] and line["seq"] > first["seq"])
    # As if the later of them had been answered before the earlier was sent.
    later["t"] = it.call_of(later)["t"] = it.call_of(first)["t"] - 1


@bug("Unique", "events are")
def two_events_have_one_id(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    it.append(session_id, event, event_id=event.event_id)


@bug("Unique", "other bytes")
def an_event_was_changed(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    event.agent_message.parts[0].text += "!"
    it.write(session_id, event.seq, event)


@bug("Resumable", "after seq")
def a_follower_missed_an_event(it: Tampered) -> None:
    it.line("seen", lambda line: len(line["events"]) > 1)["events"].pop(0)


@bug("Resumable", "after seq")
def a_follower_was_given_an_event_twice(it: Tampered) -> None:
    events = it.line("seen")["events"]
    events.append(events[-1])


@bug("Resumable", "came to seq")
def a_follower_never_came_to_the_end(it: Tampered) -> None:
    last = [line for line in it.lines if line["op"] == "seen"][-1]
    it.lines.remove(last)


@bug("Idempotent", "was carried out 2 times")
def a_message_is_there_twice(it: Tampered) -> None:
    session_id, event = it.event("user.message")
    it.append(session_id, event)


@bug("Idempotent", "events say")
def a_message_of_a_runner_is_there_twice(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    it.append(session_id, event)


@bug("Idempotent", "was refused, and stands in the log")
def a_refusal_was_carried_out(it: Tampered) -> None:
    it.lines = [_refused(it, line) if line["op"] == "ok" else line for line in it.lines]


def _refused(it: Tampered, line: Line) -> Line:
    return {"t": line["t"], "op": "refused", "id": line["id"], "reason": "SESSION_BUSY"}


@bug("Idempotent", "was refused, and is remembered")
def a_refusal_is_remembered(it: Tampered) -> None:
    it.lines = [_refused(it, line) if line["op"] == "ok" else line for line in it.lines]


@bug("Idempotent", "is not remembered")
def an_accepted_request_is_forgotten(it: Tampered) -> None:
    it.sql("DELETE FROM request_ids WHERE method = 'AppendEvent'")


@bug("Idempotent", "is remembered 2 times")
def a_request_was_accepted_twice(it: Tampered) -> None:
    it.sql(
        "INSERT INTO request_ids (scope, caller, method, request_id, fingerprint, resource_id, seq, event_id, run_id)"
        " SELECT scope, 'somebody', method, request_id, fingerprint, resource_id, seq, event_id, run_id"
        " FROM request_ids WHERE method = 'AppendEvent'"
    )


@bug("Idempotent", "remembered is")
def another_answer_is_remembered(it: Tampered) -> None:
    it.sql("UPDATE request_ids SET seq = seq + 1 WHERE method = 'AppendEvent'")


@bug("Idempotent", "was answered with several seq")
def a_repeat_was_answered_otherwise(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 0)
    again = 1_000_000
    it.add(**(it.call_of(answer) | {"id": again, "t": answer["t"] + 1}))
    it.add(**(answer | {"id": again, "seq": answer["seq"] + 1, "t": answer["t"] + 2}))


@bug("OneCommit", "which may not follow")
def a_status_that_may_not_follow(it: Tampered) -> None:
    session_id, event = it.event("session.status_running")
    payload = event.session_status_running
    event.session_status_waiting.CopyFrom(payload)
    event.type = "session.status_waiting"
    it.write(session_id, event.seq, event)


@bug("OneCommit", "its row says")
def a_status_that_the_log_does_not_show(it: Tampered) -> None:
    it.sql("UPDATE session_states SET status = 'RUNNING'")


@bug("OneCommit", "the row of")
def a_run_that_the_log_knows_otherwise(it: Tampered) -> None:
    it.sql("UPDATE runs SET status = 'RUNNING'")


@bug("OneCommit", "behind the head")
def events_without_their_head(it: Tampered) -> None:
    it.sql("UPDATE session_heads SET head_seq = head_seq - 1")


@bug("OneCommit", "is stored as")
def a_row_that_says_another_type(it: Tampered) -> None:
    it.sql("UPDATE events SET type = 'agent.tool_use' WHERE type = 'agent.message'")


@bug("OneLease", "lives")
def two_attempts_at_once(it: Tampered) -> None:
    session_id, event = it.event("run.attempt_started")
    it.append(session_id, event, attempt_no=event.attempt_no + 1)
    it.append(session_id, event, attempt_no=event.attempt_no + 2)


@bug("OneLease", "attempt 1 after")
def an_attempt_starts_twice(it: Tampered) -> None:
    session_id, event = it.event("run.attempt_started", lambda event: event.attempt_no == 1)
    it.append(session_id, event)


@bug("Fenced", "which was over by then")
def an_attempt_that_was_over_wrote(it: Tampered) -> None:
    session_id, event = it.event("agent.message", lambda event: event.caused_by.kind == CausedBy.KIND_RUNNER)
    event.agent_message.parts[0].text = "from beyond"
    it.append(session_id, event)


@bug("Fenced", "was sent without a lease")
def a_runner_that_knew_that_it_had_lost_was_heard(it: Tampered) -> None:
    session_id, event = it.event("agent.message")
    marker = event.agent_message.parts[0].text
    it.add(op="call", id=0, client="runner z", method="Append", session=session_id, request="z", marker=marker)
    it.add(op="refused", id=0, reason=FENCED)


@bug("Settled", "which had ended")
def a_run_ends_twice(it: Tampered) -> None:
    session_id, event = it.events(*ENDS)[0]
    it.append(session_id, event)


@bug("Settled", "never ended")
def a_run_never_ends(it: Tampered) -> None:
    session_id, event = it.event("run.queued")
    it.append(session_id, event, run_id="run_forgotten")


@bug("CurrentAccess", "was answered OK after its key was revoked")
def a_revoked_key_still_opens(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 0)
    sent = it.call_of(answer)
    it.add(op="revoked", client=sent["client"], t=sent["t"] - 1)


@bug("CurrentAccess", "was sent after its key was revoked")
def a_revoked_key_still_writes(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 0)
    sent = it.call_of(answer)
    it.lines.remove(answer)
    it.add(op="unknown", id=answer["id"], reason="UNAVAILABLE")
    it.add(op="revoked", client=sent["client"], t=sent["t"] - 1)


@bug("Durable", "it was deleted, and is there")
def a_deletion_is_lost(it: Tampered) -> None:
    session_id = it.line("seen")["session"]
    it.add(op="call", id=0, client="c", method="DeleteSession", session=session_id, request="gone", marker="")
    it.add(op="ok", id=0, session=session_id, seq=0, event="", run="")


@bug("Durable", "was answered OK after the deletion")
def what_was_deleted_still_takes_messages(it: Tampered) -> None:
    session_id = it.line("seen")["session"]
    it.add(op="call", id=0, client="c", method="DeleteSession", session=session_id, request="gone", marker="")
    it.add(op="ok", id=0, session=session_id, seq=0, event="", run="")
    it.add(op="call", id=1_000_000, client="c", method="AppendEvent", session=session_id, request="late", marker="")
    it.add(op="ok", id=1_000_000, session=session_id, seq=0, event="", run="")


@bug("Durable", "was answered NOT_FOUND, and it is there")
def a_session_that_is_there_was_not_found(it: Tampered) -> None:
    answer = it.line("ok", lambda line: line["seq"] > 0 and it.call_of(line)["session"] != "")
    it.lines.remove(answer)
    it.add(op="refused", id=answer["id"], reason="NOT_FOUND")
