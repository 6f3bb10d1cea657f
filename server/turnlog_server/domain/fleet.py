"""What runners say, and what they are told, as plain values."""

from dataclasses import field
from enum import StrEnum

from turnlog_server.domain.commands import Outcome
from turnlog_server.domain.events import Fact
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.session import AttemptKind, Pins, RunError, RunStatus
from turnlog_server.domain.values import value


@value
class HeldAttempt:
    """An attempt that a runner says it still executes."""

    session_id: str
    run_id: str
    attempt_no: int
    token: bytes = b""


@value
class Hello:
    """Who a runner is and what it serves. harness_profiles are names."""

    runner_id: str
    instance_id: str
    display_name: str = ""
    version: str = ""
    pools: tuple[str, ...] = ()
    harness_profiles: tuple[str, ...] = ()


@value
class RunnerRow:
    """A runner as the database knows it. Times in microseconds."""

    hello: Hello
    connected: bool
    draining: bool
    lease_expire_time: int
    create_time: int
    held_runs: int


@value
class Ready:
    """How many more Runs the runner can take."""

    credits: int


@value
class Accept:
    """Takes an Offer."""

    held: HeldAttempt


@value
class Decline:
    """Turns an Offer down."""

    session_id: str
    run_id: str
    reason: str


@value
class LeaseProof:
    """Which attempt a message belongs to, and its number there."""

    session_id: str
    run_id: str
    attempt_no: int
    token: bytes
    message_no: int


@value
class HarnessStarted:
    """The harness is ready."""

    proof: LeaseProof


@value
class Report:
    """One event of a harness. `tool` is the tool that it calls, empty where it calls none."""

    fact: Fact
    payload: bytes
    tool: str = ""


@value
class Reports:
    """Events to append in one commit."""

    proof: LeaseProof
    reports: tuple[Report, ...]


@value
class PreviewText:
    """Text in the making."""

    session_id: str
    run_id: str
    attempt_no: int
    text: str


@value
class Settled:
    """The runner ends the Run."""

    proof: LeaseProof
    outcome: Outcome
    error: RunError | None


@value
class Abandoned:
    """The runner gives the Run back."""

    proof: LeaseProof
    reason: str


@value
class Heartbeat:
    """The runner lives."""


@value
class Goodbye:
    """The runner goes for good."""


@value
class Malformed:
    """A message that is not valid but for its proof: it is counted and refused, and the attempt goes on."""

    proof: LeaseProof
    refusal: Refusal


Numbered = HarnessStarted | Reports | Settled | Abandoned | Malformed
"""What belongs to an attempt and has a number there."""

FromRunner = Ready | Accept | Decline | Numbered | PreviewText | Heartbeat | Goodbye


@value
class HeldState:
    """An attempt that is still the runner's, with the last message applied."""

    session_id: str
    run_id: str
    attempt_no: int
    last_message_no: int
    stop_as: RunStatus | None


@value
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


@value
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


@value
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
