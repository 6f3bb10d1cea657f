"""The events of one command in the making."""

from collections.abc import Callable

from turnlog_server.domain import ids as id_kinds
from turnlog_server.domain.events import BY_SERVER, Cause, Event, Fact
from turnlog_server.domain.fold import apply, only_moves, step
from turnlog_server.domain.refusals import Refusal
from turnlog_server.domain.session import Attempt, QueuedTurn, Run, SessionFacts, SessionState
from turnlog_server.domain.values import changed, value

SECOND = 1_000_000


@value
class Rules:
    """The settings that decisions depend on. Durations are microseconds.

    startup_allowance: from accept to harness ready.
    max_startup_attempts: start-ups that may fail in a row; 0 for no bound.
    max_attempts: attempts of one Run in all, so that a Run which kills its runners ends; 0 for no bound.
    queue_timeout: how long a Run may wait for a runner; 0 for no bound.
    stop_grace: how long a runner may take to settle a Run that it was told to stop.
    """

    startup_allowance: int = 60 * SECOND
    max_startup_attempts: int = 5
    max_attempts: int = 50
    queue_timeout: int = 24 * 3600 * SECOND
    stop_grace: int = 10 * SECOND
    max_queued_turns: int = 100


@value
class Answer:
    """What the caller is told. seq 0 where no event of its own was appended.

    duplicate: a runner's message that had been applied before.
    refused: why a runner's message was not applied although its number is used up and the attempt goes on.
    """

    seq: int = 0
    event_id: str = ""
    run_id: str = ""
    blocked_by: str = ""
    duplicate: bool = False
    refused: Refusal | None = None


class Draft:
    """Stamps events, folds them, and remembers which Runs they touched."""

    def __init__(
        self, facts: SessionFacts, state: SessionState, now: int, ids: Callable[[str], str], rules: Rules
    ) -> None:
        self.facts = facts
        self._state = state
        self._head = state.head_seq
        self._unfolded: Event | None = None
        self.now = now
        self.rules = rules
        self.ids = ids
        self.events: list[Event] = []
        self.runs: dict[str, Run | QueuedTurn] = {}
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self._secret: tuple[str, int, int] | None = None

    @property
    def state(self) -> SessionState:
        """The state after the events so far."""
        if self._unfolded is not None:
            self._state, self._unfolded = apply(self._state, self._unfolded), None
        return self._state

    def emit(
        self,
        fact: Fact,
        *,
        run_id: str = "",
        attempt_no: int = 0,
        authored_by: str = "",
        authenticated_by: str = "",
        cause: Cause = BY_SERVER,
        payload: bytes = b"",
    ) -> Event:
        """Appends one event to the draft."""
        self._head += 1
        event = Event(
            self._head,
            self.ids(id_kinds.EVENT),
            self.now,
            fact,
            run_id,
            attempt_no,
            authored_by,
            authenticated_by,
            cause,
            payload,
        )
        self.events.append(event)
        if only_moves(fact):
            # A harness says many things in a row, and the last of them moves the state past them all.
            self._unfolded = event
            return event
        self._state, run = step(self.state, event)
        if run is not None:
            self._touch(run)
        return event

    def with_secret(self, token_hash: str, message_no: int, runner_epoch: int) -> None:
        """Keeps what proves and counts the lease beside the live attempt, once all is written."""
        self._secret = (token_hash, message_no, runner_epoch)

    def finish(self) -> None:
        """Writes what `with_secret` said into the active Run, if its attempt still lives."""
        run, secret = self.state.active, self._secret
        if run is None or run.live is None or secret is None:
            return
        token_hash, message_no, epoch = secret
        attempt = changed(run.live, token_hash=token_hash, last_message_no=message_no, runner_epoch=epoch)
        run = changed(run, attempt=attempt)
        unlogged = self.state.unlogged + (0 if self.events else 1)
        self._state = changed(self.state, active=run, unlogged=unlogged)
        self._touch(run)

    def _touch(self, run: Run | QueuedTurn) -> None:
        self.runs[run.run_id] = run
        if isinstance(run, Run) and run.attempt is not None:
            self.attempts[run.run_id, run.attempt.attempt_no] = run.attempt
