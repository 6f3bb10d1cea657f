"""Events as they are stored: every arm of the contract is written and read, and nothing is lost on the way."""

from dataclasses import replace

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract import TEXT, arms, messages, sample
from turnlog.v1 import event_pb2
from turnlog_server.domain.events import (
    AttemptEnded,
    AttemptStarted,
    Cause,
    CauseKind,
    Event,
    ModelCalled,
    RunEnded,
    RunQueued,
    RunReady,
    Said,
    SessionCreated,
    StatusChanged,
    StopRequested,
    UserInterrupt,
    UserMessage,
)
from turnlog_server.domain.session import (
    AttemptKind,
    AttemptStatus,
    Boundary,
    Cost,
    Pins,
    RunError,
    RunStatus,
    Status,
    StopReason,
)
from turnlog_server.wire.events import ARM_OF_TYPE, ARMS, IGNORABLE, cost_from, decode, encode

PAYLOAD = arms(event_pb2.Event.DESCRIPTOR, "payload")

counts = st.integers(0, 2**32 - 1)
seqs = st.integers(0, 2**64 - 1)
amounts = st.integers(0, 2**63 - 1)
moments = st.integers(0, 253_402_300_799_999_999)
costs = st.builds(Cost, amounts, amounts, amounts, amounts, TEXT)
errors = st.none() | st.builds(RunError, TEXT, TEXT)
pins = st.builds(Pins, TEXT, counts, TEXT, counts, TEXT, TEXT, TEXT, counts)
labels = st.dictionaries(TEXT, TEXT, max_size=3).map(lambda labels: tuple(sorted(labels.items())))
causes = st.builds(Cause, st.sampled_from(CauseKind), TEXT, TEXT)


def status_changed(status):
    return st.builds(
        StatusChanged,
        st.just(status),
        TEXT,
        st.sampled_from(StopReason),
        st.sampled_from(Boundary),
        errors,
        TEXT,
        st.lists(TEXT, max_size=3).map(tuple),
    )


def run_ended(status):
    return st.builds(RunEnded, st.just(status), errors, costs, counts)


# What the server writes itself: the fact is all there is.
WRITTEN = {
    "session_created": st.builds(SessionCreated, TEXT, pins, TEXT, st.booleans(), labels),
    **{f"session_status_{status}": status_changed(status) for status in Status},
    "run_queued": st.builds(RunQueued, TEXT, seqs, TEXT, counts),
    "run_ready": st.builds(RunReady, st.sampled_from(AttemptKind), moments),
    "run_attempt_started": st.builds(AttemptStarted, st.sampled_from(AttemptKind), TEXT, TEXT, moments, moments),
    "run_stop_requested": st.builds(StopRequested, st.sampled_from(RunStatus), moments, st.booleans(), errors),
    "run_attempt_ended": st.builds(AttemptEnded, st.sampled_from(AttemptStatus), errors, costs),
    "run_succeeded": run_ended(RunStatus.SUCCEEDED),
    "run_failed": run_ended(RunStatus.FAILED),
    "run_interrupted": run_ended(RunStatus.INTERRUPTED),
    "run_canceled": run_ended(RunStatus.CANCELED),
}
# What comes as bytes and stays as it came, with the fact that stands for it.
BROUGHT = {
    "user_message": lambda _: UserMessage(),
    "user_interrupt": lambda _: UserInterrupt(),
    "agent_message": lambda _: Said("agent.message"),
    "agent_tool_use": lambda _: Said("agent.tool_use"),
    "agent_tool_result": lambda _: Said("agent.tool_result"),
    "model_called": lambda called: ModelCalled(cost_from(called.usage)),
}


def events(facts):
    return st.builds(Event, seqs, TEXT, moments, facts, TEXT, counts, TEXT, TEXT, causes)


def test_every_arm_is_written_or_brought():
    assert set(WRITTEN) | set(BROUGHT) == set(PAYLOAD) == set(ARMS)
    assert not set(WRITTEN) & set(BROUGHT)


@pytest.mark.rule("R62", "R33")
@pytest.mark.parametrize("arm", WRITTEN)
@settings(max_examples=40)
@given(data=st.data())
def test_what_the_server_writes_is_read_back_whole(arm, data):
    event = data.draw(events(WRITTEN[arm]))
    body = encode(event)
    assert decode(body) == event
    assert encode(decode(body)) == body
    shown = event_pb2.Event.FromString(body)
    assert shown.WhichOneof("payload") == arm == ARM_OF_TYPE[shown.type]
    assert_known(shown)


@pytest.mark.rule("R32", "R36", "R37")
@pytest.mark.parametrize("arm", BROUGHT)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_brought_is_shown_as_it_came(arm, data):
    brought = data.draw(messages(PAYLOAD[arm].message_type))
    holder = event_pb2.Event()
    getattr(holder, arm).CopyFrom(brought)
    event = replace(data.draw(events(st.just(BROUGHT[arm](brought)))), payload=holder.SerializeToString())
    body = encode(event)
    shown = event_pb2.Event.FromString(body)
    assert shown.WhichOneof("payload") == arm == ARM_OF_TYPE[shown.type]
    assert getattr(shown, arm) == brought
    # The bytes are kept whole, so that fields which this version does not know are kept as well.
    assert body.endswith(event.payload)
    assert decode(body) == replace(event, payload=b"")


@pytest.mark.rule("R37", "R38")
@given(events(WRITTEN["run_queued"]))
def test_the_envelope_says_who_and_why(event):
    shown = event_pb2.Event.FromString(encode(event))
    assert (shown.seq, shown.event_id, shown.run_id, shown.attempt_no, shown.authored_by, shown.authenticated_by) == (
        event.seq,
        event.event_id,
        event.run_id,
        event.attempt_no,
        event.authored_by,
        event.authenticated_by,
    )
    assert shown.create_time.ToMicroseconds() == event.time
    kind = event_pb2.CausedBy.Kind.Name(shown.caused_by.kind)
    assert (kind, shown.caused_by.event_id) == (f"KIND_{event.cause.kind.name}", event.cause.event_id)
    assert shown.caused_by.reference == event.cause.reference


@pytest.mark.parametrize("arm", PAYLOAD)
def test_only_what_moves_nothing_may_be_skipped(arm):
    brought = sample(PAYLOAD[arm].message_type)
    holder = event_pb2.Event()
    getattr(holder, arm).CopyFrom(brought)
    body = encode(Event(1, "evt_1", 0, Said(ARMS[arm]), payload=holder.SerializeToString()))
    assert event_pb2.Event.FromString(body).ignorable == (arm in IGNORABLE)
    assert not IGNORABLE & set(WRITTEN)


def test_a_payload_of_a_later_version_is_not_taken_for_something_else():
    # An event of a family that is not there yet: field 200, a message.
    later = event_pb2.Event(seq=7, event_id="evt_1", type="watch.created").SerializeToString() + b"\xc2\x0c\x02\x08\x01"
    with pytest.raises(ValueError, match="event 7 has a payload that this version does not know"):
        decode(later)


def assert_known(message):
    """The reader of another language finds no field that the contract does not name."""
    assert not len(UnknownFieldSet(message))
