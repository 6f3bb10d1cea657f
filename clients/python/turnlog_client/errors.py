"""What a refusal looks like to a caller: one exception type per family, the reason's name on each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from grpc.aio import AioRpcError

if TYPE_CHECKING:
    from turnlog_client.follow import FollowedEvent

DOMAIN = "turnlog.dev"


@dataclass(frozen=True)
class FieldViolation:
    """One field of a request that was refused: its path, such as `first_message.parts[0]`, and what is wrong."""

    field: str
    description: str


class TurnlogError(Exception):
    """A call was refused, or its connection broke.

    `reason` is a name of `ErrorReason` without its prefix, such as `SESSION_BUSY`; empty when no Turnlog server
    answered. `metadata` has the keys that `ErrorReason` documents for the reason. `retry_after` is in seconds, and set
    when, and only when, waiting helps. `request_id` is what the request carried; retry with the same to be safe.
    """

    CODE = StatusCode.UNKNOWN
    """The status code of an error that this client itself raises."""

    def __init__(
        self,
        message: str,
        *,
        code: StatusCode | None = None,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        field_violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.CODE
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.field_violations = list(field_violations)
        self.retry_after = retry_after
        self.request_id = ""

    def __str__(self) -> str:
        return f"{self.message} ({self.reason or self.code.name})"


class InvalidRequest(TurnlogError):
    """The request is wrong as it stands; `field_violations` names the fields."""

    CODE = StatusCode.INVALID_ARGUMENT


class NotFound(TurnlogError):
    """It does not exist, or you may not know that it does."""


class Unauthenticated(TurnlogError):
    """The key is missing, unknown, revoked or expired."""


class PermissionDenied(TurnlogError):
    """The key is good, but may not do this."""


class Conflict(TurnlogError):
    """The state of things does not allow it now."""


class SessionBusy(Conflict):
    """A turn is active; `metadata` has its `run_id`."""


class SessionTerminal(Conflict):
    """The Session has ended for good."""


class SeqConflict(Conflict):
    """Somebody else appended first; `metadata` has `head_seq`."""


class RequestIdReused(Conflict):
    """This `request_id` already belongs to another request."""


class OutOfRange(TurnlogError):
    """The cursor lies above the head (CURSOR_AHEAD) or below what is retained (HISTORY_TRIMMED)."""


class Exhausted(TurnlogError):
    """A quota is used up, or the server takes no more at this moment."""


class Unavailable(TurnlogError):
    """The server, or the way to it, is not there at this moment."""

    CODE = StatusCode.UNAVAILABLE


class OutcomeUnknown(Unavailable):
    """The server cannot tell whether the request was applied; the same `request_id` finds out."""


class DeadlineExceeded(TurnlogError):
    """No answer in time. `t.requests.get` tells what became of the request."""


class Unsupported(TurnlogError):
    """This server or harness cannot do that."""


class ServerDefect(TurnlogError):
    """The server's own fault; `metadata` has the `request_id` to look for in its log."""

    CODE = StatusCode.INTERNAL


class UnknownEventError(TurnlogError):
    """A follow met an event that this client does not know and that may not be ignored.

    The cursor has moved past `event`: iterate the same follow again to go on after it.
    """

    def __init__(self, event: FollowedEvent) -> None:
        super().__init__(
            f"Event {event.seq} of {event.session_id} is a {event.type!r}, which this client does not know and which "
            "may not be ignored: upgrade the client, or follow with unknown='yield'.",
            code=StatusCode.UNIMPLEMENTED,
            reason="UNKNOWN_EVENT",
        )
        self.event = event


_BY_CODE: dict[StatusCode, type[TurnlogError]] = {
    StatusCode.INVALID_ARGUMENT: InvalidRequest,
    StatusCode.NOT_FOUND: NotFound,
    StatusCode.UNAUTHENTICATED: Unauthenticated,
    StatusCode.PERMISSION_DENIED: PermissionDenied,
    StatusCode.ALREADY_EXISTS: Conflict,
    StatusCode.ABORTED: Conflict,
    StatusCode.FAILED_PRECONDITION: Conflict,
    StatusCode.OUT_OF_RANGE: OutOfRange,
    StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    StatusCode.UNIMPLEMENTED: Unsupported,
    StatusCode.INTERNAL: ServerDefect,
    StatusCode.UNKNOWN: ServerDefect,
    StatusCode.DATA_LOSS: ServerDefect,
}

# A reason that is not here goes by its status code, as the contract asks for reasons that a client does not know.
_BY_REASON: dict[str, type[TurnlogError]] = {
    "SESSION_BUSY": SessionBusy,
    "SESSION_TERMINAL": SessionTerminal,
    "SEQ_CONFLICT": SeqConflict,
    "REQUEST_ID_REUSED": RequestIdReused,
    "OUTCOME_UNKNOWN": OutcomeUnknown,
}


def decode(error: AioRpcError) -> TurnlogError:
    """The typed error in a gRPC error, with whatever of its details could be read."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad = error_details_pb2.BadRequest()
    retry_after: float | None = None
    for detail in _details(error):
        if detail.Unpack(retry):
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        elif not detail.Unpack(bad):
            detail.Unpack(info)
    reason = info.reason if info.domain == DOMAIN else ""
    code = error.code()
    family = _BY_REASON.get(reason) or _BY_CODE.get(code, TurnlogError)
    return family(
        error.details() or code.name,
        code=code,
        reason=reason,
        metadata=info.metadata if reason else {},
        field_violations=[FieldViolation(each.field, each.description) for each in bad.field_violations],
        retry_after=retry_after,
    )


def _details(error: AioRpcError) -> Iterable[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value).details  # pyright: ignore[reportArgumentType]
            except DecodeError:
                # Details that a proxy cut must not hide the code and the message, which are whole.
                return ()
    return ()


def is_cut(error: TurnlogError) -> bool:
    """Whether a stream that ended so may be opened again: its connection, proxy or replica went away.

    A refusal by a Turnlog server is final, but for those that say themselves that reconnecting helps. Without an
    ErrorInfo the transport speaks: resets and closed connections come as INTERNAL, CANCELLED or UNKNOWN too.
    """
    if error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
        return True
    if error.reason:
        return error.reason == "FOLLOWER_STALLED" or error.retry_after is not None
    if error.code is StatusCode.CANCELLED:
        return True
    if error.code in (StatusCode.INTERNAL, StatusCode.UNKNOWN):
        return any(sign in error.message for sign in ("RST_STREAM", "Stream removed", "GOAWAY", "onnection"))
    return False
