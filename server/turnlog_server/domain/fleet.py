"""What runners say, and what they are told, as plain values."""

from dataclasses import dataclass, field
from enum import StrEnum

from turnlog_server.domain.commands import Outcome
from turnlog_server.domain.events import Fact
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.session import AttemptKind, Pins, RunError, RunStatus


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that a runner says it still executes."""

    session_id: str
    run_id: str
    attempt_no: int
    token: bytes = b""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a runner is and what it serves. harness_profiles are names."""

    runner_id: str
    instance_id: str
    display_name: str = ""
    version: str = ""
    pools: tuple[str, ...] = ()
    harness_profiles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunnerRow:
    """A runner as the database knows it. Times in microseconds."""

    hello: Hello
    connected: bool
    draining: bool
    lease_expire_time: int
    create_time: int
    held_runs: int


@dataclass(frozen=True, slots=True)
class Ready:
    """How many more Runs the runner can take."""

    credits: int


@dataclass(frozen=True, slots=True)
class Accept:
    """Takes an Offer."""

    held: HeldAttempt


@dataclass(frozen=True, slots=True)
class Decline:
    """Turns an Offer down."""

    session_id: str
    run_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeaseProof:
    """Which attempt a message belongs to, and its number there."""

    session_id: str
    run_id: str
    attempt_no: int
    token: bytes
    message_no: int


@dataclass(frozen=True, slots=True)
class HarnessStarted:
    """The harness is ready."""

    proof: LeaseProof


@dataclass(frozen=True, slots=True)
class Report:
    """One event of a harness. `tool` is the tool that it calls, empty where it calls none."""

    fact: Fact
    payload: bytes
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Reports:
    """Events to append in one commit."""

    proof: LeaseProof
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class PreviewText:
    """Text in the making."""

    session_id: str
    run_id: str
    attempt_no: int
    text: str


@dataclass(frozen=True, slots=True)
class Settled:
    """The runner ends the Run."""

    proof: LeaseProof
    outcome: Outcome
    error: RunError | None


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The runner gives the Run back."""

    proof: LeaseProof
    reason: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The runner lives."""


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The runner goes for good."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that is not valid but for its proof: it is counted and refused, and the attempt goes on."""

    proof: LeaseProof
    refusal: Refusal


Numbered = HarnessStarted | Reports | Settled | Abandoned | Malformed
"""What belongs to an attempt and has a number there."""

FromRunner = Ready | Accept | Decline | Numbered | PreviewText | Heartbeat | Goodbye


@dataclass(frozen=True, slots=True)
class HeldState:
    """An attempt that is still the runner's, with the last message applied."""

    session_id: str
    run_id: str
    attempt_no: int
    last_message_no: int
    stop_as: RunStatus | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A Run to take. Durations in seconds; trigger and history are stored events; agent is opaque to the fleet."""

    session_id: str
    run_id: str
    attempt_no: int
    kind: AttemptKind
    token: bytes
    accept_within: float
    startup_allowance: float
    pins: Pins
    harness_profile: str
    agent: object
    model_route: str
    trigger: bytes
    history: tuple[bytes, ...]
    history_omitted: int


class LostReason(StrEnum):
    """Why a lease is worth nothing."""

    LEASE_LOST = "LEASE_LOST"
    STALE_ATTEMPT = "STALE_ATTEMPT"
    ALREADY_SETTLED = "ALREADY_SETTLED"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message, or one event of it, that was not applied."""

    message_no: int
    reason: str
    message: str
    event_index: int | None = None


class DrainReason(StrEnum):
    """Who drains."""

    RUNNER = "RUNNER"
    SERVER = "SERVER"


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in seconds.

    offer: how long an Offer stands in memory, less than its reservation in the queue.
    """

    lease_ttl: float = 10.0
    heartbeat: float = 3.0
    offer: float = 4.0
    startup_allowance: float = 60.0
    stop_grace: float = 10.0
    poll: float = 1.0
    history_types: frozenset[str] = field(
        default=frozenset({"user.message", "agent.message", "agent.tool_use", "agent.tool_result"})
    )
