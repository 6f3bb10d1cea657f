"""Follows that survive: whatever the connection does, events come once, in order, without a gap.

Raw `_pb2` messages are used here, not the dataclasses: they parse two hundred times faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Self

import grpc.aio
from google.protobuf.message import Message
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_never
from turnlog.v1 import event_pb2
from turnlog.v1.event_service_pb2 import FollowEnd

from turnlog_client.backoff import WaitAsTold, may_be_resumed
from turnlog_client.calls import Sleep
from turnlog_client.errors import ServerDefect, TurnlogError, Unavailable, UnknownEventError, decode


class FollowedEvent:
    """One event of the log, thinly around the raw message `raw`."""

    __slots__ = ("raw", "session_id")

    def __init__(self, raw: event_pb2.Event, session_id: str) -> None:
        self.raw = raw
        self.session_id = session_id

    @property
    def seq(self) -> int:
        """Its position in the log, from 1."""
        return self.raw.seq

    @property
    def type(self) -> str:
        """Its dotted type, such as `agent.message`."""
        return self.raw.type

    @property
    def run_id(self) -> str:
        """The Run that it belongs to; empty where there is none."""
        return self.raw.run_id

    @property
    def create_time(self) -> datetime:
        """When the server accepted it, in UTC."""
        return self.raw.create_time.ToDatetime(tzinfo=UTC)

    @property
    def known(self) -> bool:
        """False when this client was made before the event's payload was."""
        return self.raw.WhichOneof("payload") is not None

    @property
    def must_be_known(self) -> bool:
        """Whether a client that folds the log would misread the Session from here on."""
        return not (self.known or self.raw.ignorable)

    @property
    def payload(self) -> Message | None:
        """The payload's raw message, such as `AgentMessage`; None when it is not known."""
        arm = self.raw.WhichOneof("payload")
        return getattr(self.raw, arm) if arm else None

    @property
    def text(self) -> str:
        """The text of a message or a tool's result, parts joined; empty for any other event."""
        return "".join(part.text for part in getattr(self.payload, "parts", ()))

    def __repr__(self) -> str:
        return f"FollowedEvent({self.session_id} {self.seq} {self.type})"


@dataclass(frozen=True)
class FollowedPreview:
    """Text in the making, to append to what was previewed before; the durable event replaces it all."""

    session_id: str
    run_id: str
    attempt_no: int
    text: str


@dataclass(frozen=True)
class CaughtUp:
    """Everything up to `seq` was delivered; what follows is live."""

    session_id: str
    seq: int


@dataclass(frozen=True)
class Ended:
    """The follow of one Session ended by itself, at what `until` named or because the Session is terminal."""

    session_id: str
    seq: int
    reason: Literal["BOUNDARY", "TERMINAL", ""]


@dataclass(frozen=True)
class _Progress:
    session_id: str
    seq: int


@dataclass(frozen=True)
class Interruption:
    """The stream broke and is about to be opened again. Says nothing about how any turn ended."""

    cursors: Mapping[str, int]
    error: TurnlogError
    delay: float


Frame = FollowedEvent | FollowedPreview | CaughtUp | Ended
Open = Callable[[Mapping[str, int]], grpc.aio.UnaryStreamCall]


class Follow:
    """Iterate it for events, or `frames()` for all that comes. It ends only when the server said so.

    A broken stream (drops, drains, deploys, deadlines of proxies) is opened again with jittered back-off, for ever,
    with the same filter and options, after the last event that came. Raises TurnlogError for what reconnecting cannot
    mend, and UnknownEventError unless `unknown` is "yield"; after that one iteration may go on.
    """

    def __init__(
        self,
        open_stream: Open,
        cursors: Mapping[str, int],
        *,
        bounded: bool,
        unknown: Literal["raise", "yield"],
        on_interrupted: Callable[[Interruption], object] | None,
        sleep: Sleep,
    ) -> None:
        self.cursors = dict(cursors)
        """Per Session the last seq that was handed out or passed over; a later follow goes on from here."""
        self.ends: dict[str, Ended] = {}
        """Per Session how its follow ended; missing while it goes on."""
        self._open_stream = open_stream
        self._stream: grpc.aio.UnaryStreamCall | None = None
        self._bounded = bounded
        self._unknown = unknown
        self._on_interrupted = on_interrupted
        self._pending: deque[Frame | _Progress] = deque()
        self._received = dict(cursors)
        self._resume_after = dict(cursors)
        self._ended_sessions: set[str] = set()
        self._retrying = AsyncRetrying(
            retry=retry_if_exception(may_be_resumed),
            wait=WaitAsTold(first=0.2, longest=10.0),
            stop=stop_never,
            before_sleep=self._tell,
            sleep=sleep,
            reraise=True,
        )

    @property
    def seq(self) -> int:
        """The cursor of a follow of one Session."""
        [seq] = self.cursors.values()
        return seq

    @property
    def ended(self) -> bool:
        """Whether the server said that nothing more will come. False means interrupted, whatever else it looks like."""
        return len(self.ends) == len(self.cursors)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FollowedEvent:
        while (frame := await self._next()) is not None:
            if isinstance(frame, FollowedEvent):
                return frame
        raise StopAsyncIteration

    async def frames(self) -> AsyncIterator[Frame]:
        """Events, previews, `caught_up` and the end, as they come."""
        while (frame := await self._next()) is not None:
            yield frame

    async def aclose(self) -> None:
        """Lets the stream go. Nothing on the server depends on it."""
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _next(self) -> Frame | None:
        """The next frame for the caller, None at the end."""
        while True:
            while not self._pending:
                if len(self._ended_sessions) == len(self.cursors):
                    return None
                await self._retrying(self._receive)
            frame = self._pending.popleft()
            if isinstance(frame, FollowedEvent | _Progress):
                self.cursors[frame.session_id] = frame.seq
            if isinstance(frame, _Progress):
                continue
            if isinstance(frame, Ended):
                self.ends[frame.session_id] = frame
            if (
                isinstance(frame, FollowedEvent)
                and self._unknown == "raise"
                and not (frame.known or frame.raw.ignorable)
            ):
                raise UnknownEventError(frame)
            return frame

    async def _receive(self) -> None:
        """Takes one frame from the stream, which it opens where there is none."""
        if self._stream is None:
            open_sessions = {key: seq for key, seq in self._resume_after.items() if key not in self._ended_sessions}
            self._stream = self._open_stream(open_sessions)
        try:
            frame: Any = await self._stream.read()
        except grpc.aio.AioRpcError as error:
            self._stream = None
            raise decode(error) from None
        except BaseException:
            # gRPC cancels the stream when a read is cancelled; a later read opens another.
            self._stream = None
            raise
        if frame is grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue]
            self._stream = None
            raise Unavailable("The stream stopped without saying that it ended.")
        if frame is None:
            raise ServerDefect("A frame of the stream could not be read.")
        self._take(frame)

    def _take(self, frame: Any) -> None:
        session_id = getattr(frame, "session_id", "") or next(iter(self.cursors))
        match frame.WhichOneof("frame"):
            case "events":
                for raw in frame.events.events:
                    self._take_event(FollowedEvent(raw, session_id))
            case "caught_up":
                self._pending.append(CaughtUp(session_id, frame.caught_up.seq))
            case "progress":
                seq = frame.progress.through_seq
                if seq > self._received[session_id]:
                    self._received[session_id] = self._resume_after[session_id] = seq
                    self._pending.append(_Progress(session_id, seq))
            case "preview":
                preview = frame.preview
                self._pending.append(FollowedPreview(session_id, preview.run_id, preview.attempt_no, preview.text))
            case "end":
                self._ended_sessions.add(session_id)
                reason = FollowEnd.Reason.Name(frame.end.reason).removeprefix("REASON_")
                known = reason if reason in ("BOUNDARY", "TERMINAL") else ""
                self._pending.append(Ended(session_id, frame.end.seq, known))
            case _:
                pass  # A kind of frame that this client does not know may be skipped.

    def _take_event(self, event: FollowedEvent) -> None:
        if event.seq <= self._received[event.session_id]:
            return
        self._received[event.session_id] = event.seq
        # Until `end` has come, a boundary is read again after a cut: the server looks for it only after the cursor,
        # and would wait for the next one.
        at_boundary = self._bounded and getattr(event.payload, "boundary", 0) > 1
        self._resume_after[event.session_id] = event.seq - 1 if at_boundary else event.seq
        self._pending.append(event)

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if self._on_interrupted and isinstance(error, TurnlogError):
            delay = state.next_action.sleep if state.next_action else 0.0
            self._on_interrupted(Interruption(dict(self._received), error, delay))
