"""Domain values as the JSON text that the tables keep: readable in psql, quick to make."""

from typing import TypeVar

import msgspec

from turnlog_server.domain.session import Attempt, QueuedTurn, Run, RunStatus, SessionFacts, SessionState

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_state = msgspec.json.Decoder(SessionState)
_facts = msgspec.json.Decoder(SessionFacts)
_run = msgspec.json.Decoder(Run)
_attempt = msgspec.json.Decoder(Attempt)


def encode(value: object) -> bytes:
    """JSON in UTF-8."""
    return _encode(value)


def state_of(text: str) -> SessionState:
    """What `encode` made of a SessionState."""
    return _state.decode(text)


def facts_of(text: str) -> SessionFacts:
    """What `encode` made of a SessionFacts."""
    return _facts.decode(text)


def run_of(text: str) -> Run:
    """What `encode` made of a Run."""
    return _run.decode(text)


def attempt_of(text: str) -> Attempt:
    """What `encode` made of an Attempt."""
    return _attempt.decode(text)


def run_from_turn(turn: QueuedTurn) -> Run:
    """A queued turn as the Run that it will be."""
    return Run(
        turn.run_id,
        RunStatus.QUEUED,
        turn.trigger_event_id,
        turn.trigger_seq,
        turn.trigger_type,
        turn.create_time,
    )
