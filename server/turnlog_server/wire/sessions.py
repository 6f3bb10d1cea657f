"""Sessions, as callers ask for them and see them."""

from turnlog.v1 import session_pb2
from turnlog.v1 import session_service_pb2 as pb

from turnlog_server.domain.asked import NewSession
from turnlog_server.domain.session import SessionFacts, SessionState
from turnlog_server.wire.events import STATUS, STOP_REASON, error_to, payload_of, pins_to
from turnlog_server.wire.requests import check_payload


def new_session(request: pb.CreateSessionRequest) -> NewSession:
    """What CreateSession asks for."""
    message = b""
    if request.HasField("first_message"):
        message = payload_of("user_message", request.first_message)
        check_payload("first_message", len(message))
    return NewSession(
        request.agent_deployment_id,
        request.agent_deployment_revision_number if request.HasField("agent_deployment_revision_number") else None,
        request.principal,
        dict(request.labels),
        request.reusable if request.HasField("reusable") else True,
        message,
    )


def session(facts: SessionFacts, state: SessionState) -> session_pb2.Session:
    """A Session as it stands."""
    shown = session_pb2.Session(
        session_id=facts.session_id,
        pins=pins_to(facts.pins),
        principal=facts.principal,
        labels=facts.labels,
        reusable=facts.reusable,
        status=STATUS.number(state.status),  # type: ignore[arg-type]
        stop_reason=STOP_REASON.number(state.stop_reason),  # type: ignore[arg-type]
        active_run_id=state.active.run_id if state.active is not None else "",
        queued_turns=len(state.queue),
        head_seq=state.head_seq,
        last_error=error_to(state.error),
    )
    shown.create_time.FromMicroseconds(facts.create_time)
    shown.update_time.FromMicroseconds(state.last_time)
    return shown


def statuses(request: pb.ListSessionsRequest) -> list[str]:
    """The statuses that a list is narrowed to, by the domain's names."""
    return [STATUS.value(status).value for status in request.statuses]
