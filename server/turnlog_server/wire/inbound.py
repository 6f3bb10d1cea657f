"""Events as callers append and follow them."""

from turnlog.v1 import event_pb2
from turnlog.v1 import event_service_pb2 as pb

from turnlog_server.domain.asked import FollowOptions, Inbound, Until
from turnlog_server.domain.commands import IfBusy
from turnlog_server.domain.events import Cause
from turnlog_server.domain.refusals import invalid
from turnlog_server.wire.events import ARM_OF_TYPE, CAUSE, payload_of
from turnlog_server.wire.requests import check_payload

CALLERS_CAUSES = frozenset(
    {event_pb2.CausedBy.KIND_API, event_pb2.CausedBy.KIND_CONNECTOR, event_pb2.CausedBy.KIND_SCHEDULE}
)
IF_BUSY = {
    pb.IF_BUSY_UNSPECIFIED: IfBusy.ENQUEUE,
    pb.IF_BUSY_ENQUEUE: IfBusy.ENQUEUE,
    pb.IF_BUSY_REJECT: IfBusy.REJECT,
    pb.IF_BUSY_INTERRUPT: IfBusy.INTERRUPT,
}
UNTIL = {
    pb.FollowUntil.BOUNDARY_UNSPECIFIED: Until.NEVER,
    pb.FollowUntil.BOUNDARY_NEVER: Until.NEVER,
    pb.FollowUntil.BOUNDARY_TURN: Until.TURN,
    pb.FollowUntil.BOUNDARY_ACTION_REQUIRED: Until.ACTION_REQUIRED,
    pb.FollowUntil.BOUNDARY_TERMINAL: Until.TERMINAL,
}
REFERENCE_BYTES = 256
# One for the thousands of followers that name none.
ALL_TYPES: frozenset[str] = frozenset()


def inbound(request: pb.AppendEventRequest) -> Inbound:
    """What AppendEvent asks for."""
    kind = request.caused_by.kind
    if kind not in CALLERS_CAUSES:
        raise invalid("caused_by.kind", "must be KIND_API, KIND_CONNECTOR or KIND_SCHEDULE")
    if len(request.caused_by.reference.encode()) > REFERENCE_BYTES:
        raise invalid("caused_by.reference", f"must be at most {REFERENCE_BYTES} bytes")
    if len(request.caused_by.event_id) > 64:
        raise invalid("caused_by.event_id", "must be an event id, evt_…")
    message = request.WhichOneof("event") == "user_message"
    if not message and request.if_busy:
        raise invalid("if_busy", "is only for user_message")
    if message:
        payload = payload_of("user_message", request.user_message)
    else:
        payload = payload_of("user_interrupt", request.user_interrupt)
    check_payload(request.WhichOneof("event") or "event", len(payload))
    return Inbound(
        request.session_id,
        request.authored_by,
        request.principal,
        Cause(CAUSE.value(kind), request.caused_by.event_id, request.caused_by.reference),
        payload,
        message,
        IF_BUSY[request.if_busy],
        request.user_interrupt.run_id,
        request.expected_head_seq if request.HasField("expected_head_seq") else -1,
    )


def follow_options(request: pb.FollowEventsRequest | pb.FollowSessionsRequest) -> FollowOptions:
    """What a follow asks for."""
    if isinstance(request, pb.FollowSessionsRequest) and request.until.run_id:
        raise invalid("until.run_id", "must be empty: a Run belongs to one Session")
    return FollowOptions(
        frozenset(known_types(list(request.types))) if request.types else ALL_TYPES,
        UNTIL[request.until.boundary],
        request.until.run_id,
        request.previews,
    )


def known_types(types: list[str]) -> list[str]:
    """The dotted types. One that does not exist is a mistake, not an empty stream."""
    for index, name in enumerate(types):
        if name not in ARM_OF_TYPE:
            raise invalid(f"types[{index}]", f"there is no event type {name!r}: see turnlog.v1.Event")
    return types


def cursor(after_seq: int) -> int:
    """A cursor as the database can hold it; what is above that is above every head."""
    return min(after_seq, 2**62)
