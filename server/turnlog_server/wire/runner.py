"""The runner stream: what runners say as domain values, what they are told as bytes."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError
from turnlog.runner.v1 import runner_pb2
from turnlog.runner.v1 import runner_service_pb2 as pb
from turnlog.v1 import error_pb2, event_pb2

from turnlog_server.domain import fleet as said
from turnlog_server.domain import limits
from turnlog_server.domain.agents import AgentVersion
from turnlog_server.domain.commands import Outcome
from turnlog_server.domain.events import ModelCalled, Said
from turnlog_server.domain.refusals import Refusal, invalid
from turnlog_server.domain.session import Attempt, RunError
from turnlog_server.wire.agents import agent_version_message
from turnlog_server.wire.errors import cut
from turnlog_server.wire.events import ARMS, ATTEMPT_KIND, RUN_STATUS, cost_from, pins_to
from turnlog_server.wire.frames import elements, read_varint, varint
from turnlog_server.wire.requests import check_payload, check_struct, valid

OUTCOMES: Final = {
    pb.Settle.OUTCOME_SUCCEEDED: Outcome.SUCCEEDED,
    pb.Settle.OUTCOME_FAILED: Outcome.FAILED,
    pb.Settle.OUTCOME_STOPPED: Outcome.STOPPED,
}


def hello(message: pb.ConnectRequest) -> tuple[said.Hello, tuple[said.HeldAttempt, ...]]:
    """The first message, which has to be Hello."""
    if message.WhichOneof("message") != "hello":
        raise invalid("hello", "must be the first message of the stream")
    greeting = message.hello
    return said.Hello(
        greeting.runner_id,
        greeting.instance_id,
        greeting.display_name,
        greeting.version,
        tuple(greeting.pools),
        tuple(greeting.harness_profiles),
    ), tuple(_held(held) for held in greeting.held)


def from_runner(message: pb.ConnectRequest) -> said.FromRunner:
    """Any message after the first."""
    arm = message.WhichOneof("message")
    if arm == "hello" or arm is None:
        raise invalid("hello", "may only be the first message of the stream")
    return _READ[arm](getattr(message, arm))


def malformed(raw: bytes, refusal: Refusal) -> said.Malformed:
    """A message that was refused, where it says at least which attempt it belongs to; else the refusal stands."""
    lease = _lease_of(raw)
    if lease is None or not valid(lease):
        raise refusal
    return said.Malformed(_proof(lease), refusal)


def _lease_of(raw: bytes) -> pb.Lease | None:
    """The lease of a numbered message, whatever else is in it: it may be nested too deep to be parsed at all.

    Field 1 of every numbered message, and so what every library writes first. Only that is read: the rest is large.
    """
    try:
        tag, start = read_varint(raw, 0)
        size, start = read_varint(raw, start)
        if tag not in _NUMBERED_TAGS or start + size != len(raw):
            return None
        tag, start = read_varint(raw, start)
        size, start = read_varint(raw, start)
        if tag != _LEASE_TAG or start + size > len(raw):
            return None
        return pb.Lease.FromString(raw[start : start + size])
    except (DecodeError, IndexError):
        return None


def _held(held: pb.HeldAttempt | pb.Accept) -> said.HeldAttempt:
    return said.HeldAttempt(held.session_id, held.run_id, held.attempt_no, held.lease_token)


def _proof(lease: pb.Lease) -> said.LeaseProof:
    return said.LeaseProof(lease.session_id, lease.run_id, lease.attempt_no, lease.lease_token, lease.message_no)


def _reports(append: pb.Append) -> said.Reports:
    proof = _proof(append.lease)
    # Without what this version does not know: see `wire.events.payload_of`. An arm has the number that it has in Event,
    # so that each element, serialised, is what the event holds.
    append.ClearField("lease")
    append.DiscardUnknownFields()
    return said.Reports(
        proof,
        tuple(
            _report(index, payload, append.events) for index, payload in enumerate(elements(append.SerializeToString()))
        ),
    )


def _report(index: int, payload: bytes, events: Sequence[pb.RunnerEvent]) -> said.Report:
    arm = _ARM_OF_TAG[payload[:2]]
    check_payload(f"append.events[{index}].{arm}", len(payload))
    if arm == "model_called":
        return said.Report(ModelCalled(cost_from(events[index].model_called.usage)), payload)
    if arm == "agent_tool_use":
        use = events[index].agent_tool_use
        check_struct(f"append.events[{index}].agent_tool_use.arguments", use.arguments)
        return said.Report(_SAID[arm], payload, use.name)
    return said.Report(_SAID[arm], payload)


def _settled(settle: pb.Settle) -> said.Settled:
    outcome = OUTCOMES[settle.outcome]
    error = None
    if settle.HasField("error"):
        error = RunError(settle.error.code, cut(settle.error.message, limits.TEXT_FOR_PEOPLE_BYTES))
    if outcome is Outcome.FAILED and error is None:
        raise invalid("settle.error", "is required for OUTCOME_FAILED")
    return said.Settled(_proof(settle.lease), outcome, error)


_READ: Final[dict[str, Callable[[Any], said.FromRunner]]] = {
    "ready": lambda ready: said.Ready(ready.credits),
    "accept": lambda accept: said.Accept(_held(accept)),
    "decline": lambda decline: said.Decline(decline.session_id, decline.run_id, decline.reason),
    "harness_ready": lambda ready: said.HarnessStarted(_proof(ready.lease)),
    "append": _reports,
    "preview": lambda text: said.PreviewText(text.session_id, text.run_id, text.attempt_no, text.text),
    "heartbeat": lambda _: said.Heartbeat(),
    "settle": _settled,
    "abandon": lambda abandon: said.Abandoned(_proof(abandon.lease), abandon.reason),
    "goodbye": lambda _: said.Goodbye(),
}


# Arms have numbers from 16 on and below 2,048, which take two bytes.
_ARM_OF_TAG: Final = {
    varint(field.number << 3 | 2): field.name for field in pb.RunnerEvent.DESCRIPTOR.oneofs_by_name["payload"].fields
}
_SAID: Final = {arm: Said(ARMS[arm]) for arm in _ARM_OF_TAG.values()}

_NUMBERED_TAGS: Final = frozenset(
    pb.ConnectRequest.DESCRIPTOR.fields_by_name[arm].number << 3 | 2
    for arm in ("harness_ready", "append", "settle", "abandon")
)
_LEASE_TAG: Final = pb.HarnessReady.LEASE_FIELD_NUMBER << 3 | 2


class RunnerFrames:
    """Implements `service.link.RunnerFrames`."""

    def welcome(self, settings: said.Settings, held: list[said.HeldState]) -> bytes:
        """Answers Hello."""
        welcome = pb.Welcome(
            lease_ttl=_seconds(settings.lease_ttl),
            heartbeat_interval=_seconds(settings.heartbeat),
            max_unacked_messages=limits.RUNNER_UNACKED_MESSAGES,
            max_unacked_bytes=limits.RUNNER_UNACKED_BYTES,
        )
        for state in held:
            welcome.held.add(
                session_id=state.session_id,
                run_id=state.run_id,
                attempt_no=state.attempt_no,
                last_message_no=state.last_message_no,
                stop_as=RUN_STATUS.number(state.stop_as) if state.stop_as else 0,  # type: ignore[arg-type]
            )
        return pb.ConnectResponse(welcome=welcome).SerializeToString()

    def offer(self, offer: said.Offer) -> bytes:
        """A Run to take."""
        assert isinstance(offer.agent, AgentVersion)
        message = pb.Offer(
            session_id=offer.session_id,
            run_id=offer.run_id,
            attempt_no=offer.attempt_no,
            attempt_kind=ATTEMPT_KIND.number(offer.kind),  # type: ignore[arg-type]
            lease_token=offer.token,
            accept_within=_seconds(offer.accept_within),
            startup_allowance=_seconds(offer.startup_allowance),
            max_duration=_seconds(offer.pins.max_duration_seconds),
            pins=pins_to(offer.pins),
            harness_profile=offer.harness_profile,
            agent_version=agent_version_message(offer.agent),
            model_route=offer.model_route,
            trigger=event_pb2.Event.FromString(offer.trigger),
            history=[event_pb2.Event.FromString(body) for body in offer.history],
            history_omitted=offer.history_omitted,
        )
        return pb.ConnectResponse(offer=message).SerializeToString()

    def accepted(self, session_id: str, run_id: str, attempt: Attempt, now: int) -> bytes:
        """The lease is valid."""
        accepted = pb.Accepted(session_id=session_id, run_id=run_id, attempt_no=attempt.attempt_no)
        accepted.startup_remaining.FromMicroseconds(max(0, attempt.startup_deadline - now))
        accepted.deadline_remaining.FromMicroseconds(max(0, attempt.deadline - now))
        accepted.startup_deadline.FromMicroseconds(attempt.startup_deadline)
        accepted.deadline.FromMicroseconds(attempt.deadline)
        return pb.ConnectResponse(accepted=accepted).SerializeToString()

    def interrupt(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes:
        """Stop the turn."""
        stop = pb.Interrupt(session_id=session_id, run_id=run_id, attempt_no=attempt_no, grace=_seconds(grace))
        return pb.ConnectResponse(interrupt=stop).SerializeToString()

    def cancel(self, session_id: str, run_id: str, attempt_no: int, grace: float) -> bytes:
        """Stop the turn for good."""
        stop = pb.Cancel(session_id=session_id, run_id=run_id, attempt_no=attempt_no, grace=_seconds(grace))
        return pb.ConnectResponse(cancel=stop).SerializeToString()

    def ack(self, session_id: str, run_id: str, attempt_no: int, through: int, rejected: list[said.Rejected]) -> bytes:
        """What is durable, and what was refused."""
        ack = pb.Ack(session_id=session_id, run_id=run_id, attempt_no=attempt_no, through=through)
        for each in rejected:
            ack.rejections.add(
                message_no=each.message_no,
                event_index=each.event_index,
                reason=_reason(each.reason),  # type: ignore[arg-type]
                message=cut(each.message, limits.ERROR_MESSAGE_BYTES),
            )
        return pb.ConnectResponse(ack=ack).SerializeToString()

    def lease_lost(self, session_id: str, run_id: str, attempt_no: int, reason: said.LostReason) -> bytes:
        """The attempt is not the runner's any more."""
        lost = pb.LeaseLost(
            session_id=session_id,
            run_id=run_id,
            attempt_no=attempt_no,
            reason=_reason(reason.value),  # type: ignore[arg-type]
        )
        return pb.ConnectResponse(lease_lost=lost).SerializeToString()

    def drain(self, reason: said.DrainReason) -> bytes:
        """Take nothing new."""
        number = pb.Drain.REASON_RUNNER if reason is said.DrainReason.RUNNER else pb.Drain.REASON_SERVER
        return pb.ConnectResponse(drain=pb.Drain(reason=number)).SerializeToString()


def runner(row: said.RunnerRow) -> runner_pb2.Runner:
    """A runner as operators see it."""
    message = runner_pb2.Runner(
        runner_id=row.hello.runner_id,
        display_name=row.hello.display_name,
        version=row.hello.version,
        pools=row.hello.pools,
        harness_profiles=row.hello.harness_profiles,
        connected=row.connected,
        draining=row.draining,
        held_runs=row.held_runs,
    )
    message.lease_expire_time.FromMicroseconds(row.lease_expire_time)
    message.create_time.FromMicroseconds(row.create_time)
    return message


def run_id_of(body: bytes) -> str:
    """The Run that a stored event belongs to."""
    return event_pb2.Event.FromString(body).run_id


def _reason(name: str) -> int:
    return error_pb2.ErrorReason.Value(f"ERROR_REASON_{name}")


def _seconds(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(int(seconds * 1_000_000))
    return duration
