"""What can be asked of a Session. Every change of one is one of these, whoever asks: caller, runner, timer, sweeper."""

from enum import StrEnum

from turnlog_server.domain.events import Cause, Fact
from turnlog_server.domain.session import RunError, SessionFacts
from turnlog_server.domain.values import value


class IfBusy(StrEnum):
    """What a message does while a turn is active."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"


@value
class Author:
    """Who a caller's event speaks for, who brought it, and why."""

    authored_by: str
    authenticated_by: str
    cause: Cause


@value
class Create:
    """Makes the Session; `message` is the serialised first message, empty for none."""

    facts: SessionFacts
    author: Author
    message: bytes = b""


@value
class SendMessage:
    """`user.message`; `expected_head` -1 means whatever the head is."""

    author: Author
    payload: bytes
    if_busy: IfBusy = IfBusy.ENQUEUE
    expected_head: int = -1


@value
class SendInterrupt:
    """`user.interrupt`; `run_id` empty means whatever turn is active."""

    author: Author
    payload: bytes
    run_id: str = ""
    expected_head: int = -1


@value
class CancelRun:
    """Cancels one Run, queued or active."""

    author: Author
    run_id: str
    reason: str = ""


@value
class CancelSession:
    """Ends the Session as canceled."""

    author: Author
    reason: str = ""


@value
class CompleteSession:
    """Ends an idle Session as completed."""

    author: Author


@value
class DeleteSession:
    """Removes an idle or terminal Session; writes no event."""

    author: Author


@value
class Lease:
    """What a runner proves an attempt with. `token_hash` is the SHA-256 of its token, in hex."""

    run_id: str
    attempt_no: int
    token_hash: str
    message_no: int = 0


@value
class AcceptRun:
    """A runner takes the Run that it was offered."""

    lease: Lease
    runner_id: str
    runner_version: str
    runner_epoch: int = 0


@value
class HarnessReady:
    """The attempt's harness has started."""

    lease: Lease
    authenticated_by: str


@value
class AppendReports:
    """What the harness reports, in order: (fact, serialised payload)."""

    lease: Lease
    authenticated_by: str
    reports: tuple[tuple[Fact, bytes], ...]


class Outcome(StrEnum):
    """How a runner settles."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


@value
class Settle:
    """The runner ends the Run."""

    lease: Lease
    outcome: Outcome
    error: RunError | None = None


@value
class Abandon:
    """The runner gives the Run back."""

    lease: Lease
    reason: str = ""


@value
class AttemptLost:
    """The runner of this attempt is gone; `reason` says how that is known."""

    run_id: str
    attempt_no: int
    reason: str


@value
class TimeUp:
    """A due time of the Session passed; `decide` sees which, by the command's own time."""


Command = (
    Create
    | SendMessage
    | SendInterrupt
    | CancelRun
    | CancelSession
    | CompleteSession
    | DeleteSession
    | AcceptRun
    | HarnessReady
    | AppendReports
    | Settle
    | Abandon
    | AttemptLost
    | TimeUp
)
