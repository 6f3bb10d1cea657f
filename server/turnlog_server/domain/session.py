"""A Session as `decide` sees it: what it pinned, and where it stands.

Both are functions of the log, but for an attempt's `token_hash`, `last_message_no` and `runner_epoch`: what proves and
counts a lease is nobody's to read. Times are integers: microseconds since the epoch, UTC.
"""

from dataclasses import field
from enum import StrEnum
from typing import Final

from turnlog_server.domain.values import value


class Status(StrEnum):
    """The ten statuses of a Session."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    RECONCILING = "reconciling"
    IDLE = "idle"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELED})
BUSY: Final = frozenset(Status) - TERMINAL - {Status.IDLE}
"""Statuses of a Session that has an active Run."""


class RunStatus(StrEnum):
    """Where a Run stands."""

    QUEUED = "queued"
    RESOLVING = "resolving"
    READY = "ready"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    WAITING = "waiting"
    RECONCILING = "reconciling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"


class AttemptStatus(StrEnum):
    """Where an attempt stands."""

    STARTING = "starting"
    RUNNING = "running"
    PARKED = "parked"
    SETTLED = "settled"
    STARTUP_TIMEOUT = "startup_timeout"
    DEADLINE = "deadline"
    LOST = "lost"
    ABANDONED = "abandoned"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"


LIVE_ATTEMPT: Final = frozenset({AttemptStatus.STARTING, AttemptStatus.RUNNING, AttemptStatus.PARKED})


class AttemptKind(StrEnum):
    """Why an attempt is made."""

    INITIAL = "initial"
    RETRY = "retry"
    CONTINUATION = "continuation"
    RECOVERY = "recovery"


class StopReason(StrEnum):
    """Why the last turn stopped."""

    NONE = ""
    END_TURN = "end_turn"
    REQUIRES_ACTION = "requires_action"
    INTERRUPTED = "interrupted"
    CANCELED = "canceled"
    FAILED = "failed"
    COMPLETED = "completed"


class Boundary(StrEnum):
    """Which boundary of a turn a status marks."""

    NONE = "none"
    TURN = "turn"
    ACTION_REQUIRED = "action_required"
    TERMINAL = "terminal"


INT64_MAX: Final = 2**63 - 1


@value
class Cost:
    """What model calls used. `amount_nanos` is in billionths of `currency`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    amount_nanos: int = 0
    currency: str = ""

    def plus(self, other: "Cost") -> "Cost":
        """The sum. The first currency named stays; an amount in another one is left out of the sum of amounts.

        No sum outgrows the contract's int64, or what a runner reports could keep its Run from ever being written again.
        """
        same = not self.currency or not other.currency or self.currency == other.currency
        return Cost(
            min(self.input_tokens + other.input_tokens, INT64_MAX),
            min(self.output_tokens + other.output_tokens, INT64_MAX),
            min(self.cached_tokens + other.cached_tokens, INT64_MAX),
            min(self.amount_nanos + (other.amount_nanos if same else 0), INT64_MAX),
            self.currency or other.currency,
        )


NO_COST: Final = Cost()


@value
class RunError:
    """Why a Run or an attempt ended badly: a dotted code, and a sentence."""

    code: str
    message: str


@value
class Pins:
    """What a Session pinned at admission."""

    deployment_id: str
    revision_number: int
    agent_id: str
    agent_version_number: int
    harness_profile_id: str
    sandbox_profile_id: str
    runner_pool: str
    max_duration_seconds: int


@value
class SessionFacts:
    """What never changes after admission."""

    session_id: str
    workspace_id: str
    pins: Pins
    principal: str
    reusable: bool
    create_time: int
    labels: dict[str, str] = field(default_factory=dict)


@value
class QueuedTurn:
    """A turn that waits for its place; kept small, for there may be a hundred."""

    run_id: str
    trigger_event_id: str
    trigger_seq: int
    trigger_type: str
    create_time: int


@value
class Attempt:
    """One claim of a Run by one runner.

    token_hash: SHA-256 of the lease token, in hex.
    last_message_no: the last message of the runner that was applied.
    runner_epoch: the runner's epoch when it accepted; not in the log either.
    """

    attempt_no: int
    kind: AttemptKind
    status: AttemptStatus
    trigger_event_id: str
    runner_id: str
    runner_version: str
    accept_time: int
    startup_deadline: int
    deadline: int
    ready_time: int = 0
    end_time: int = 0
    cost: Cost = NO_COST
    error: RunError | None = None
    token_hash: str = ""
    last_message_no: int = 0
    runner_epoch: int = 0


@value
class Run:
    """A turn's execution.

    ready_event_id: the event that made it claimable, the trigger of the next attempt.
    startup_failures: attempts in a row that never got their harness ready.
    stop_as, stop_error: how it will end, once it was told to stop, and with what error.
    """

    run_id: str
    status: RunStatus
    trigger_event_id: str
    trigger_seq: int
    trigger_type: str
    create_time: int
    ready_event_id: str = ""
    ready_time: int = 0
    queue_deadline: int = 0
    next_kind: AttemptKind = AttemptKind.INITIAL
    attempt_no: int = 0
    startup_failures: int = 0
    attempt: Attempt | None = None
    stop_as: RunStatus | None = None
    stop_error: RunError | None = None
    grace_deadline: int = 0
    cost: Cost = NO_COST
    error: RunError | None = None
    start_time: int = 0
    end_time: int = 0

    @property
    def live(self) -> Attempt | None:
        """The attempt that holds a valid lease."""
        attempt = self.attempt
        return attempt if attempt is not None and attempt.status in LIVE_ATTEMPT else None


@value
class SessionState:
    """Where a Session stands.

    status, stop_reason, boundary, error: as the last status event said.
    closing: the Session ends as canceled once its active Run did.
    turns: turns ever accepted.
    unlogged: writes without an event, which only counted a message of a runner. Not a function of the log either.
    """

    head_seq: int = 0
    last_time: int = 0
    status: Status = Status.IDLE
    stop_reason: StopReason = StopReason.NONE
    boundary: Boundary = Boundary.NONE
    error: RunError | None = None
    active: Run | None = None
    queue: tuple[QueuedTurn, ...] = ()
    turns: int = 0
    closing: bool = False
    unlogged: int = 0

    @property
    def terminal(self) -> bool:
        """True once the Session is over."""
        return self.status in TERMINAL
