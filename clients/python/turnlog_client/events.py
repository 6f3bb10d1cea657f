"""EventService: the one way into a Session's log, and the ways to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol

from turnlog.v1 import event_service_pb2 as pb2

import turnlog_client.messages.turnlog.v1 as v1
from turnlog_client.calls import Caller
from turnlog_client.follow import Follow, Interruption
from turnlog_client.server import Server
from turnlog_client.stubs import Paged, Service, Unary


class StartedRun(Protocol):
    """Anything that names a Run, such as the answers of `steer`, `append` and `sessions.create`, or a Run itself."""

    @property
    def run_id(self) -> str: ...


Until = Literal["turn", "action_required", "terminal"] | str | StartedRun | None
"""When a follow ends: never (None), at a boundary, or when one Run's turn ends (its answer, or its id)."""

_BOUNDARIES = {
    "turn": pb2.FollowUntil.BOUNDARY_TURN,
    "action_required": pb2.FollowUntil.BOUNDARY_ACTION_REQUIRED,
    "terminal": pb2.FollowUntil.BOUNDARY_TERMINAL,
}


class Events(Service):
    """EventService: appends, lists and follows."""

    NAME = "turnlog.v1.EventService"

    append_event = Unary("AppendEvent", v1.AppendEventRequest, v1.AppendEventResponse)
    list = Paged("ListEvents", v1.ListEventsRequest, v1.ListEventsResponse, lambda page: page.events)

    def __init__(self, caller: Caller, server: Server) -> None:
        super().__init__(caller)
        self._server = server

    async def append(
        self,
        session_id: str,
        event: v1.UserMessage | v1.UserInterrupt,
        *,
        principal: str = "",
        authored_by: str = "",
        caused_by: v1.CausedBy | None = None,
        if_busy: v1.IfBusy = v1.IfBusy.UNSPECIFIED,
        expected_head_seq: int | None = None,
        request_id: str = "",
    ) -> v1.AppendEventResponse:
        """Appends one event; the answer means "accepted and durable".

        `authored_by` is, unless given, the acting `principal` or else the key's own subject; `caused_by` is KIND_API.
        Raises TurnlogError, such as SessionBusy, SeqConflict, SessionTerminal.
        """
        return await self.append_event(
            request_id=request_id,
            session_id=session_id,
            authored_by=authored_by or principal or await self._server.subject(),
            caused_by=caused_by or v1.CausedBy(kind=v1.CausedByKind.API),
            principal=principal,
            if_busy=if_busy,
            expected_head_seq=expected_head_seq,
            user_message=event if isinstance(event, v1.UserMessage) else None,
            user_interrupt=event if isinstance(event, v1.UserInterrupt) else None,
        )

    def follow(
        self,
        session_id: str,
        *,
        after_seq: int | None = None,
        types: Iterable[str] = (),
        until: Until = None,
        previews: bool = False,
        unknown: Literal["raise", "yield"] = "raise",
        on_interrupted: Callable[[Interruption], object] | None = None,
    ) -> Follow:
        """Follows one Session from after `after_seq`, 0 for its start, and goes on live.

        Absent, `after_seq` is the Session's start, or, where `until` is the answer that started a Run and so knows its
        place, just before that Run's message. See Follow for how it ends and what it raises.
        """
        boundary, message_seq = _until(until)
        if after_seq is None:
            after_seq = max(message_seq - 1, 0)
        wanted = tuple(types)

        def open_stream(cursors: Mapping[str, int]) -> Any:
            request = pb2.FollowEventsRequest(
                session_id=session_id, after_seq=cursors[session_id], types=wanted, until=boundary, previews=previews
            )
            return self._caller.stream(f"/{self.NAME}/FollowEvents", request, pb2.FollowEventsResponse)

        return Follow(
            open_stream,
            {session_id: after_seq},
            bounded=boundary is not None,
            unknown=unknown,
            on_interrupted=on_interrupted,
            sleep=self._caller.sleep,
        )

    def follow_many(
        self,
        cursors: Mapping[str, int],
        *,
        types: Iterable[str] = (),
        until: Literal["turn", "action_required", "terminal"] | None = None,
        previews: bool = False,
        unknown: Literal["raise", "yield"] = "raise",
        on_interrupted: Callable[[Interruption], object] | None = None,
    ) -> Follow:
        """Follows up to 1,000 Sessions on one stream, each from after its cursor; ends when each has met `until`."""
        boundary, _ = _until(until)
        wanted = tuple(types)

        def open_stream(remaining: Mapping[str, int]) -> Any:
            request = pb2.FollowSessionsRequest(
                sessions=[pb2.SessionCursor(session_id=key, after_seq=seq) for key, seq in remaining.items()],
                types=wanted,
                until=boundary,
                previews=previews,
            )
            return self._caller.stream(f"/{self.NAME}/FollowSessions", request, pb2.FollowSessionsResponse)

        return Follow(
            open_stream,
            cursors,
            bounded=boundary is not None,
            unknown=unknown,
            on_interrupted=on_interrupted,
            sleep=self._caller.sleep,
        )


def _until(until: Until) -> tuple[pb2.FollowUntil | None, int]:
    """The contract's `until`, and the seq of the Run's message where it is known."""
    if until is None:
        return None, 0
    if isinstance(until, str) and until in _BOUNDARIES:
        return pb2.FollowUntil(boundary=_BOUNDARIES[until]), 0
    run_id = until if isinstance(until, str) else until.run_id
    if not run_id.startswith("run_"):
        raise ValueError(f"a follow ends at {', '.join(_BOUNDARIES)} or at a Run, not at {until!r}")
    boundary = pb2.FollowUntil(boundary=pb2.FollowUntil.BOUNDARY_TURN, run_id=run_id)
    return boundary, 0 if isinstance(until, str) else getattr(until, "seq", 0)
