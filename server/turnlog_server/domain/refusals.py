"""Why a request is refused: one reason, a sentence that says what to do next, and the facts behind it.

Every layer above and beside the domain raises `Refusal`; `wire.errors` turns it into a gRPC status by one table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """The names that `turnlog.v1.ErrorReason` carries, without its prefix."""

    NOT_FOUND = "NOT_FOUND"
    INVALID_FIELD = "INVALID_FIELD"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    CURSOR_AHEAD = "CURSOR_AHEAD"
    HISTORY_TRIMMED = "HISTORY_TRIMMED"
    FOLLOWER_STALLED = "FOLLOWER_STALLED"
    INTERNAL = "INTERNAL"
    PERMISSION_MISSING = "PERMISSION_MISSING"
    DELEGATION_MISSING = "DELEGATION_MISSING"
    AUTHOR_NOT_ALLOWED = "AUTHOR_NOT_ALLOWED"
    CREDENTIAL_INVALID = "CREDENTIAL_INVALID"
    CREDENTIAL_EXPIRED = "CREDENTIAL_EXPIRED"
    SESSION_TERMINAL = "SESSION_TERMINAL"
    SESSION_NOT_REUSABLE = "SESSION_NOT_REUSABLE"
    SESSION_BUSY = "SESSION_BUSY"
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    WAIT_NOT_OPEN = "WAIT_NOT_OPEN"
    SEQ_CONFLICT = "SEQ_CONFLICT"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    LEASE_LOST = "LEASE_LOST"
    STALE_ATTEMPT = "STALE_ATTEMPT"
    ALREADY_SETTLED = "ALREADY_SETTLED"
    RUNNER_INELIGIBLE = "RUNNER_INELIGIBLE"
    CONTENTION = "CONTENTION"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    SERVER_DRAINING = "SERVER_DRAINING"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CAPABILITY_UNSUPPORTED = "CAPABILITY_UNSUPPORTED"
    API_VERSION_UNSUPPORTED = "API_VERSION_UNSUPPORTED"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """What is wrong with one field of a request.

    field: the path as the contract spells it, such as `first_message.parts[0].text`.
    """

    field: str
    description: str


@dataclass(slots=True, eq=False)
class Refusal(Exception):
    """A request that is not carried out.

    message: one sentence for a person, below 1 KiB, that says what happened and what to do next.
    metadata: facts for a program, by the keys that `docs/errors.md` lists for the reason.
    retry_after: seconds to wait when, and only when, waiting helps.
    """

    reason: Reason
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[FieldViolation] = ()
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def invalid(field_path: str, description: str) -> Refusal:
    """A request whose field is not acceptable."""
    return Refusal(
        Reason.INVALID_FIELD,
        f"{field_path}: {description}",
        {"field": field_path},
        (FieldViolation(field_path, description),),
    )


def not_found(kind: str, identity: str) -> Refusal:
    """What does not exist, or exists where the caller may not know it: the two answers are the same to the byte."""
    return Refusal(Reason.NOT_FOUND, f"{kind} {identity} was not found.", {"resource": kind, "id": identity})
