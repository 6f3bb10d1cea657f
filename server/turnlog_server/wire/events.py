"""The codec of stored events: domain event to bytes, and back for replay.

Stored bytes are a `turnlog.v1.Event` without any Session id, so that a fork may share them. What a caller or runner
wrote comes as the bytes of its arm and goes behind the envelope untouched: fields of a message may stand in any order,
and an arm has the same number wherever it appears.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from google.protobuf.message import Message
from turnlog.v1 import content_pb2, event_pb2, run_event_pb2, run_pb2, session_event_pb2, session_pb2

from turnlog_server.domain.events import (
    AttemptEnded,
    AttemptStarted,
    Cause,
    CauseKind,
    Event,
    Fact,
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
    NO_COST,
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
from turnlog_server.wire.enums import Enum
from turnlog_server.wire.frames import varint

Pb = event_pb2.Event

STATUS: Final = Enum(session_pb2.SessionStatus, "SESSION_STATUS_", Status)
STOP_REASON: Final = Enum(session_pb2.StopReason, "STOP_REASON_", StopReason)
BOUNDARY: Final = Enum(session_pb2.StatusBoundary, "STATUS_BOUNDARY_", Boundary)
RUN_STATUS: Final = Enum(run_pb2.RunStatus, "RUN_STATUS_", RunStatus)
ATTEMPT_STATUS: Final = Enum(run_pb2.AttemptStatus, "ATTEMPT_STATUS_", AttemptStatus)
ATTEMPT_KIND: Final = Enum(run_pb2.AttemptKind, "ATTEMPT_KIND_", AttemptKind)
CAUSE: Final = Enum(event_pb2.CausedBy.Kind, "KIND_", CauseKind)

# Arms that say nothing of where the Session stands: a client that does not know one may go on.
IGNORABLE: Final = frozenset({"agent_tool_use", "agent_tool_result", "model_called"})

ARMS: Final = {field.name: field.name.replace("_", ".", 1) for field in Pb.DESCRIPTOR.oneofs_by_name["payload"].fields}
"""Every payload arm, with the dotted type that it stands for."""
ARM_OF_TYPE: Final = {dotted: arm for arm, dotted in ARMS.items()}


def payload_of(arm: str, message: Message) -> bytes:
    """What a caller or a runner wrote, as an event holds it: without fields that this version does not know.

    Nobody judged those, and nested deeply enough they would keep readers from reading the page that the event is in.
    """
    holder = Pb(**{arm: message})  # type: ignore[arg-type]
    holder.DiscardUnknownFields()
    return holder.SerializeToString()


def encode(event: Event) -> bytes:
    """The stored bytes."""
    around = (event.type, event.time, event.run_id, event.attempt_no, event.authored_by, event.authenticated_by)
    if event.payload:
        return b"".join((_place(event), _envelope_bytes(*around, event.cause), event.payload))
    message = _envelope(*around, event.cause)
    message.seq, message.event_id = event.seq, event.event_id
    _WRITE[type(event.fact)](message, event.fact)
    return message.SerializeToString(deterministic=True)


def _place(event: Event) -> bytes:
    """`seq` and `event_id`, the first two fields: no two events share them."""
    name = event.event_id.encode()
    return b"".join((b"\x08", varint(event.seq), b"\x12", varint(len(name)), name))


def _envelope(
    dotted: str, time: int, run_id: str, attempt_no: int, authored_by: str, authenticated_by: str, cause: Cause
) -> Pb:
    """What else stands around a payload."""
    message = Pb(
        type=dotted,
        run_id=run_id,
        attempt_no=attempt_no,
        authored_by=authored_by,
        authenticated_by=authenticated_by,
        ignorable=ARM_OF_TYPE[dotted] in IGNORABLE,
    )
    created, caused_by = message.create_time, message.caused_by
    created.seconds, micros = divmod(time, 1_000_000)
    created.nanos = micros * 1000
    caused_by.kind = CAUSE.number(cause.kind)  # type: ignore[assignment]
    if cause.event_id:
        caused_by.event_id = cause.event_id
    if cause.reference:
        caused_by.reference = cause.reference
    return message


@lru_cache(maxsize=64)
def _envelope_bytes(*around: Any) -> bytes:
    """Made once for the events that a harness says in one go, which have all of it in common."""
    return _envelope(*around).SerializeToString()


def decode(body: bytes) -> Event:
    """What `encode` was given, but for the payload of what callers and runners wrote: that is left in the bytes."""
    message = Pb.FromString(body)
    arm = message.WhichOneof("payload")
    if arm is None:
        raise ValueError(f"event {message.seq} has a payload that this version does not know")
    read = _READ.get(arm)
    fact: Fact = read(getattr(message, arm)) if read is not None else Said(message.type)
    caused_by = message.caused_by
    return Event(
        message.seq,
        message.event_id,
        message.create_time.ToMicroseconds(),
        fact,
        message.run_id,
        message.attempt_no,
        message.authored_by,
        message.authenticated_by,
        Cause(CAUSE.value(caused_by.kind), caused_by.event_id, caused_by.reference),
    )


def cost_to(cost: Cost) -> content_pb2.Cost | None:
    """None for nothing used, so that the field stays absent."""
    if cost == NO_COST:
        return None
    return content_pb2.Cost(
        input_tokens=cost.input_tokens,
        output_tokens=cost.output_tokens,
        cached_tokens=cost.cached_tokens,
        amount_nanos=cost.amount_nanos,
        currency=cost.currency,
    )


def cost_from(cost: content_pb2.Cost) -> Cost:
    """The domain's cost."""
    return Cost(cost.input_tokens, cost.output_tokens, cost.cached_tokens, cost.amount_nanos, cost.currency)


def error_to(error: RunError | None) -> content_pb2.RunError | None:
    """None where nothing went wrong."""
    return None if error is None else content_pb2.RunError(code=error.code, message=error.message)


def error_from(holder: Any) -> RunError | None:
    """The `error` of a message that has one."""
    return RunError(holder.error.code, holder.error.message) if holder.HasField("error") else None


def pins_to(pins: Pins) -> session_pb2.SessionPins:
    """What a Session pinned."""
    return session_pb2.SessionPins(
        agent_deployment_id=pins.deployment_id,
        agent_deployment_revision_number=pins.revision_number,
        agent_id=pins.agent_id,
        agent_version_number=pins.agent_version_number,
        harness_profile_id=pins.harness_profile_id,
        sandbox_profile_id=pins.sandbox_profile_id,
        runner_pool=pins.runner_pool,
        max_duration_seconds=pins.max_duration_seconds,
    )


def _pins_from(pins: session_pb2.SessionPins) -> Pins:
    return Pins(
        pins.agent_deployment_id,
        pins.agent_deployment_revision_number,
        pins.agent_id,
        pins.agent_version_number,
        pins.harness_profile_id,
        pins.sandbox_profile_id,
        pins.runner_pool,
        pins.max_duration_seconds,
    )


def _write_created(message: Pb, fact: SessionCreated) -> None:
    message.session_created.CopyFrom(
        session_event_pb2.SessionCreated(
            workspace_id=fact.workspace_id,
            pins=pins_to(fact.pins),
            principal=fact.principal,
            labels=dict(fact.labels),
            reusable=fact.reusable,
        )
    )


def _read_created(created: session_event_pb2.SessionCreated) -> SessionCreated:
    labels = tuple(sorted(created.labels.items()))
    return SessionCreated(created.workspace_id, _pins_from(created.pins), created.principal, created.reusable, labels)


def _write_status(message: Pb, fact: StatusChanged) -> None:
    changed: session_event_pb2.SessionStatusChanged = getattr(message, f"session_status_{fact.status.value}")
    changed.status = STATUS.number(fact.status)  # type: ignore[assignment]
    changed.active_run_id = fact.active_run_id
    changed.stop_reason = STOP_REASON.number(fact.stop_reason)  # type: ignore[assignment]
    changed.boundary = BOUNDARY.number(fact.boundary)  # type: ignore[assignment]
    changed.ended_run_id = fact.ended_run_id
    changed.pending_action_ids.extend(fact.pending_action_ids)
    if fact.error is not None:
        changed.error.CopyFrom(error_to(fact.error))  # type: ignore[arg-type]


def _read_status(changed: session_event_pb2.SessionStatusChanged) -> StatusChanged:
    return StatusChanged(
        STATUS.value(changed.status),
        changed.active_run_id,
        STOP_REASON.value(changed.stop_reason),
        BOUNDARY.value(changed.boundary),
        error_from(changed),
        changed.ended_run_id,
        tuple(changed.pending_action_ids),
    )


def _write_queued(message: Pb, fact: RunQueued) -> None:
    queued = message.run_queued
    queued.trigger_event_id = fact.trigger_event_id
    queued.trigger_seq = fact.trigger_seq
    queued.trigger_type = fact.trigger_type
    queued.turns_ahead = fact.turns_ahead
    queued.SetInParent()


def _read_queued(queued: run_event_pb2.RunQueued) -> RunQueued:
    return RunQueued(queued.trigger_event_id, queued.trigger_seq, queued.trigger_type, queued.turns_ahead)


def _write_ready(message: Pb, fact: RunReady) -> None:
    message.run_ready.next_attempt_kind = ATTEMPT_KIND.number(fact.next_kind)  # type: ignore[assignment]
    if fact.queue_deadline:
        message.run_ready.queue_deadline.FromMicroseconds(fact.queue_deadline)


def _read_ready(ready: run_event_pb2.RunReady) -> RunReady:
    return RunReady(ATTEMPT_KIND.value(ready.next_attempt_kind), ready.queue_deadline.ToMicroseconds())


def _write_stop(message: Pb, fact: StopRequested) -> None:
    message.run_stop_requested.ends_as = RUN_STATUS.number(fact.ends_as)  # type: ignore[assignment]
    message.run_stop_requested.grace_deadline.FromMicroseconds(fact.grace_deadline)
    message.run_stop_requested.ends_session = fact.ends_session
    if fact.error is not None:
        message.run_stop_requested.error.CopyFrom(error_to(fact.error))  # type: ignore[arg-type]


def _read_stop(stop: run_event_pb2.RunStopRequested) -> StopRequested:
    return StopRequested(
        RUN_STATUS.value(stop.ends_as), stop.grace_deadline.ToMicroseconds(), stop.ends_session, error_from(stop)
    )


def _write_started(message: Pb, fact: AttemptStarted) -> None:
    started = message.run_attempt_started
    started.kind = ATTEMPT_KIND.number(fact.kind)  # type: ignore[assignment]
    started.runner_id = fact.runner_id
    started.runner_version = fact.runner_version
    started.startup_deadline.FromMicroseconds(fact.startup_deadline)
    started.deadline.FromMicroseconds(fact.deadline)


def _read_started(started: run_event_pb2.RunAttemptStarted) -> AttemptStarted:
    return AttemptStarted(
        ATTEMPT_KIND.value(started.kind),
        started.runner_id,
        started.runner_version,
        started.startup_deadline.ToMicroseconds(),
        started.deadline.ToMicroseconds(),
    )


def _write_attempt_ended(message: Pb, fact: AttemptEnded) -> None:
    ended = run_event_pb2.RunAttemptEnded(
        status=ATTEMPT_STATUS.number(fact.status),  # type: ignore[arg-type]
        error=error_to(fact.error),
        cost=cost_to(fact.cost),
    )
    message.run_attempt_ended.CopyFrom(ended)


def _read_attempt_ended(ended: run_event_pb2.RunAttemptEnded) -> AttemptEnded:
    return AttemptEnded(ATTEMPT_STATUS.value(ended.status), error_from(ended), cost_from(ended.cost))


def _write_run_ended(message: Pb, fact: RunEnded) -> None:
    ended = run_event_pb2.RunEnded(
        status=RUN_STATUS.number(fact.status),  # type: ignore[arg-type]
        error=error_to(fact.error),
        cost=cost_to(fact.cost),
        attempts=fact.attempts,
        was_queued=fact.was_queued,
    )
    getattr(message, f"run_{fact.status.value}").CopyFrom(ended)


def _read_run_ended(ended: run_event_pb2.RunEnded) -> RunEnded:
    status, cost = RUN_STATUS.value(ended.status), cost_from(ended.cost)
    return RunEnded(status, error_from(ended), cost, ended.attempts, ended.was_queued)


_WRITE: Final[dict[type, Callable[[Pb, Any], None]]] = {
    SessionCreated: _write_created,
    StatusChanged: _write_status,
    RunQueued: _write_queued,
    RunReady: _write_ready,
    StopRequested: _write_stop,
    AttemptStarted: _write_started,
    AttemptEnded: _write_attempt_ended,
    RunEnded: _write_run_ended,
}

_READ: Final[dict[str, Callable[[Any], Fact]]] = {
    "user_message": lambda _: UserMessage(),
    "user_interrupt": lambda _: UserInterrupt(),
    "model_called": lambda called: ModelCalled(cost_from(called.usage)),
    "session_created": _read_created,
    **{f"session_status_{status.value}": _read_status for status in Status},
    "run_queued": _read_queued,
    "run_ready": _read_ready,
    "run_stop_requested": _read_stop,
    "run_attempt_started": _read_started,
    "run_attempt_ended": _read_attempt_ended,
    **{
        f"run_{status.value}": _read_run_ended
        for status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.CANCELED)
    },
}
