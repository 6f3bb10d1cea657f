"""A job as it is stored."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .errors import PayloadTooLarge

MAX_PAYLOAD_BYTES = 64 * 1024


class State(Enum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True)
class Job:
    """One piece of work.

    attempts: how often it was claimed. due: when it may run, in seconds since the epoch.
    """

    job_id: int
    kind: str
    payload: Any
    state: State
    attempts: int
    due: float
    token: str | None = None
    last_error: str | None = None


def encode_payload(payload: Any) -> str:
    """The payload as it is stored. Raises `PayloadTooLarge`."""
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    if len(text.encode()) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(f"{len(text.encode())} bytes, at most {MAX_PAYLOAD_BYTES} are allowed")
    return text
