"""The one table from reasons to gRPC statuses, and a refusal as `google.rpc.Status`."""

from dataclasses import dataclass
from typing import Final

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from turnlog_server.domain import limits
from turnlog_server.domain.refusals import Reason, Refusal

DOMAIN: Final = "turnlog.dev"

# Codes of gRPC by number, so that this table needs no gRPC.
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
NOT_FOUND: Final = 5
ALREADY_EXISTS: Final = 6
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16


@dataclass(frozen=True, slots=True)
class Row:
    """code: of gRPC. retry: whether waiting can help, and so RetryInfo may be sent. metadata: keys of ErrorInfo."""

    code: int
    retry: bool = False
    metadata: tuple[str, ...] = ()


R = Reason
TABLE: Final[dict[Reason, Row]] = {
    R.NOT_FOUND: Row(NOT_FOUND, metadata=("resource", "id")),
    R.INVALID_FIELD: Row(INVALID_ARGUMENT, metadata=("field",)),
    R.LIMIT_EXCEEDED: Row(INVALID_ARGUMENT, metadata=("limit", "maximum", "actual")),
    R.ALREADY_EXISTS: Row(ALREADY_EXISTS, metadata=("resource", "name")),
    R.CURSOR_AHEAD: Row(OUT_OF_RANGE, metadata=("head_seq",)),
    R.HISTORY_TRIMMED: Row(OUT_OF_RANGE, metadata=("earliest_available_seq",)),
    R.FOLLOWER_STALLED: Row(RESOURCE_EXHAUSTED, retry=True),
    R.INTERNAL: Row(INTERNAL, metadata=("call_id",)),
    R.PERMISSION_MISSING: Row(PERMISSION_DENIED, metadata=("verb", "scope")),
    R.DELEGATION_MISSING: Row(PERMISSION_DENIED, metadata=("principal",)),
    R.AUTHOR_NOT_ALLOWED: Row(PERMISSION_DENIED, metadata=("authored_by",)),
    R.CREDENTIAL_INVALID: Row(UNAUTHENTICATED),
    R.CREDENTIAL_EXPIRED: Row(UNAUTHENTICATED),
    R.SESSION_TERMINAL: Row(FAILED_PRECONDITION, metadata=("session_id", "status")),
    R.SESSION_NOT_REUSABLE: Row(FAILED_PRECONDITION, metadata=("session_id",)),
    R.SESSION_BUSY: Row(FAILED_PRECONDITION, metadata=("session_id", "run_id", "pending_action_ids")),
    R.ILLEGAL_TRANSITION: Row(FAILED_PRECONDITION, metadata=("from", "to")),
    R.WAIT_NOT_OPEN: Row(FAILED_PRECONDITION, metadata=("session_id",)),
    R.SEQ_CONFLICT: Row(ABORTED, metadata=("expected_head_seq", "head_seq")),
    R.REQUEST_ID_REUSED: Row(ALREADY_EXISTS, metadata=("request_id",)),
    R.LEASE_LOST: Row(FAILED_PRECONDITION, metadata=("session_id", "run_id")),
    R.STALE_ATTEMPT: Row(FAILED_PRECONDITION, metadata=("attempt_no",)),
    R.ALREADY_SETTLED: Row(FAILED_PRECONDITION, metadata=("run_id",)),
    R.RUNNER_INELIGIBLE: Row(FAILED_PRECONDITION, metadata=("pool", "harness_profile")),
    R.CONTENTION: Row(ABORTED, retry=True),
    R.OUTCOME_UNKNOWN: Row(UNAVAILABLE, retry=True),
    R.STORE_UNAVAILABLE: Row(UNAVAILABLE, retry=True),
    R.QUOTA_EXCEEDED: Row(RESOURCE_EXHAUSTED, retry=True, metadata=("quota", "maximum")),
    R.SERVER_DRAINING: Row(UNAVAILABLE, retry=True),
    R.DEADLINE_EXCEEDED: Row(DEADLINE_EXCEEDED),
    R.CAPABILITY_UNSUPPORTED: Row(UNIMPLEMENTED, metadata=("capability",)),
    R.API_VERSION_UNSUPPORTED: Row(INVALID_ARGUMENT, metadata=("supported",)),
}
del R

# Clients take 8 KiB of trailers by default, and turn a status that is larger into an error of the transport. Violations
# that find no room are counted, not listed.
TRAILER_BYTES: Final = 7 * 1024
MAX_VIOLATIONS: Final = 10
DESCRIPTION_BYTES: Final = 200


def status_of(refusal: Refusal) -> status_pb2.Status:
    """The status, with one ErrorInfo, BadRequest where fields are named, RetryInfo where waiting helps."""
    row = TABLE[refusal.reason]
    metadata = {key: cut(value, DESCRIPTION_BYTES) for key, value in refusal.metadata.items() if value}
    status = status_pb2.Status(code=row.code, message=cut(refusal.message, limits.ERROR_MESSAGE_BYTES))
    _add(status, error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain=DOMAIN, metadata=metadata))
    if row.retry and refusal.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMicroseconds(int(refusal.retry_after * 1_000_000))
        _add(status, error_details_pb2.RetryInfo(retry_delay=delay))
    if refusal.fields:
        bad = error_details_pb2.BadRequest()
        for violation in refusal.fields[:MAX_VIOLATIONS]:
            bad.field_violations.add(
                field=cut(violation.field, DESCRIPTION_BYTES), description=cut(violation.description, DESCRIPTION_BYTES)
            )
        while _in_trailers(status, bad) > TRAILER_BYTES:
            del bad.field_violations[-1]
        _add(status, bad)
    return status


def _add(status: status_pb2.Status, detail: Message) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)


def _in_trailers(status: status_pb2.Status, more: Message) -> int:
    """Bytes of a status with one more detail as it travels: the message once percent-encoded, once in base64."""
    message = sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in status.message.encode())
    return message + (status.ByteSize() + more.ByteSize()) * 4 // 3


def cut(text: str, size: int) -> str:
    """At most `size` bytes of UTF-8, cut at a code point."""
    raw = text.encode(errors="replace")
    return text if len(raw) <= size else raw[: size - 3].decode(errors="ignore") + "…"
