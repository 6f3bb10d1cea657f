"""Runs, attempts and remembered requests as callers see them."""

from turnlog.v1 import request_service_pb2, run_pb2

from turnlog_server.domain.requests import AcceptedRequest
from turnlog_server.domain.session import Attempt, Run
from turnlog_server.wire.events import ATTEMPT_KIND, ATTEMPT_STATUS, RUN_STATUS, cost_to, error_to


def run(session_id: str, shown: Run, pending_reason: str = "") -> run_pb2.Run:
    """A Run as it stands."""
    message = run_pb2.Run(
        run_id=shown.run_id,
        session_id=session_id,
        status=RUN_STATUS.number(shown.status),  # type: ignore[arg-type]
        trigger=run_pb2.RunTrigger(event_id=shown.trigger_event_id, seq=shown.trigger_seq, type=shown.trigger_type),
        attempt_no=shown.attempt_no,
        cost=cost_to(shown.cost),
        error=error_to(shown.error),
        pending_reason=pending_reason,
    )
    message.create_time.FromMicroseconds(shown.create_time)
    if shown.start_time:
        message.start_time.FromMicroseconds(shown.start_time)
    if shown.end_time:
        message.end_time.FromMicroseconds(shown.end_time)
    return message


def attempt(shown: Attempt) -> run_pb2.RunAttempt:
    """An attempt as it stands."""
    message = run_pb2.RunAttempt(
        attempt_no=shown.attempt_no,
        kind=ATTEMPT_KIND.number(shown.kind),  # type: ignore[arg-type]
        trigger_event_id=shown.trigger_event_id,
        status=ATTEMPT_STATUS.number(shown.status),  # type: ignore[arg-type]
        runner_id=shown.runner_id,
        cost=cost_to(shown.cost),
        error=error_to(shown.error),
        runner_version=shown.runner_version,
    )
    message.accept_time.FromMicroseconds(shown.accept_time)
    message.startup_deadline.FromMicroseconds(shown.startup_deadline)
    message.deadline.FromMicroseconds(shown.deadline)
    if shown.ready_time:
        message.ready_time.FromMicroseconds(shown.ready_time)
    if shown.end_time:
        message.end_time.FromMicroseconds(shown.end_time)
    return message


def request(accepted: AcceptedRequest) -> request_service_pb2.GetRequestResponse:
    """What a request did."""
    message = request_service_pb2.GetRequestResponse(
        method=accepted.key.method,
        resource_id=accepted.resource_id,
        seq=accepted.seq,
        event_id=accepted.event_id,
        run_id=accepted.run_id,
    )
    message.accept_time.FromMicroseconds(accepted.accept_time)
    return message
