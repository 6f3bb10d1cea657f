"""Events as the domain knows them: an envelope, and the fact that the fold reads.

What callers and runners write (messages, tool calls) is opaque here: `payload` holds the bytes of the contract's arm,
and `fact` is `Said` or, where it counts, something typed beside it.
"""

from enum import StrEnum
from typing import Final

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
from turnlog_server.domain.values import value


class CauseKind(StrEnum):
    """Why an event entered the Session."""

    API = "api"
    CONNECTOR = "connector"
    SCHEDULE = "schedule"
    RUNNER = "runner"
    SERVER = "server"
    TIMER = "timer"


@value
class Cause:
    """kind, the event of this Session that led here, and the caller's own reference."""

    kind: CauseKind
    event_id: str = ""
    reference: str = ""


BY_SERVER: Final = Cause(CauseKind.SERVER)
BY_TIMER: Final = Cause(CauseKind.TIMER)
BY_RUNNER: Final = Cause(CauseKind.RUNNER)


@value
class Said:
    """A message, a tool call or a result: part of the conversation, without effect on the state."""

    type: str


@value
class UserMessage:
    """`user.message`"""


@value
class UserInterrupt:
    """`user.interrupt`"""


@value
class ModelCalled:
    """`model.called`: the one carrier of usage."""

    cost: Cost


@value
class SessionCreated:
    """`session.created`"""

    workspace_id: str
    pins: Pins
    principal: str
    reusable: bool
    labels: tuple[tuple[str, str], ...] = ()


@value
class StatusChanged:
    """`session.status_<name>`"""

    status: Status
    active_run_id: str = ""
    stop_reason: StopReason = StopReason.NONE
    boundary: Boundary = Boundary.NONE
    error: RunError | None = None
    ended_run_id: str = ""
    pending_action_ids: tuple[str, ...] = ()


@value
class RunQueued:
    """`run.queued`: `turns_ahead` counts the active turn too, and so tells the place in the queue."""

    trigger_event_id: str
    trigger_seq: int
    trigger_type: str
    turns_ahead: int


@value
class RunReady:
    """`run.ready`: queue_deadline 0 means none."""

    next_kind: AttemptKind
    queue_deadline: int = 0


@value
class StopRequested:
    """`run.stop_requested`"""

    ends_as: RunStatus
    grace_deadline: int
    ends_session: bool = False
    error: RunError | None = None


@value
class AttemptStarted:
    """`run.attempt_started`"""

    kind: AttemptKind
    runner_id: str
    runner_version: str
    startup_deadline: int
    deadline: int


@value
class AttemptEnded:
    """`run.attempt_ended`"""

    status: AttemptStatus
    error: RunError | None = None
    cost: Cost = NO_COST


@value
class RunEnded:
    """`run.succeeded`, `run.failed`, `run.interrupted`, `run.canceled`"""

    status: RunStatus
    error: RunError | None = None
    cost: Cost = NO_COST
    attempts: int = 0
    was_queued: bool = False


Fact = (
    Said
    | UserMessage
    | UserInterrupt
    | ModelCalled
    | SessionCreated
    | StatusChanged
    | RunQueued
    | RunReady
    | StopRequested
    | AttemptStarted
    | AttemptEnded
    | RunEnded
)

_TYPES: Final[dict[type, str]] = {
    UserMessage: "user.message",
    UserInterrupt: "user.interrupt",
    ModelCalled: "model.called",
    SessionCreated: "session.created",
    RunQueued: "run.queued",
    RunReady: "run.ready",
    StopRequested: "run.stop_requested",
    AttemptStarted: "run.attempt_started",
    AttemptEnded: "run.attempt_ended",
}


def type_of(fact: Fact) -> str:
    """The dotted type of the event that carries this fact."""
    match fact:
        case Said():
            return fact.type
        case StatusChanged(status):
            return f"session.status_{status.value}"
        case RunEnded(status):
            return f"run.{status.value}"
    return _TYPES[type(fact)]


@value
class Event:
    """One event of a log.

    time: microseconds since the epoch.
    payload: the serialised arm where a caller or runner wrote it; empty for the server's own, which `fact` tells whole.
    """

    seq: int
    event_id: str
    time: int
    fact: Fact
    run_id: str = ""
    attempt_no: int = 0
    authored_by: str = ""
    authenticated_by: str = ""
    cause: Cause = BY_SERVER
    payload: bytes = b""

    @property
    def type(self) -> str:
        """The dotted type."""
        return type_of(self.fact)
