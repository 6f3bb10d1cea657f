"""What callers ask for, as the domain says it: plain values between the wire and the use cases."""

from dataclasses import field
from enum import StrEnum

from turnlog_server.domain.commands import IfBusy
from turnlog_server.domain.events import Cause
from turnlog_server.domain.values import value


@value
class NewSession:
    """A Session to make. revision None means the current one; message, a serialised arm, empty means none."""

    deployment_id: str
    revision: int | None = None
    principal: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    reusable: bool = True
    message: bytes = b""


@value
class Inbound:
    """A caller's event. `message` tells a message from an interrupt; expected_head -1 means whatever the head is."""

    session_id: str
    authored_by: str
    principal: str
    cause: Cause
    payload: bytes
    message: bool
    if_busy: IfBusy = IfBusy.ENQUEUE
    run_id: str = ""
    expected_head: int = -1


class Until(StrEnum):
    """When a follow ends by itself."""

    NEVER = "never"
    TURN = "turn"
    ACTION_REQUIRED = "action_required"
    TERMINAL = "terminal"


@value
class FollowOptions:
    """What a follower asked for. `types` empty means all."""

    types: frozenset[str] = frozenset()
    until: Until = Until.NEVER
    run_id: str = ""
    previews: bool = False
