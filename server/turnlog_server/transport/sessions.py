"""SessionService, EventService, RunService and RequestService: unwrap, call, wrap."""

from collections.abc import AsyncIterator

from turnlog.v1 import event_service_pb2 as events_pb
from turnlog.v1 import request_service_pb2 as requests_pb
from turnlog.v1 import run_service_pb2 as runs_pb
from turnlog.v1 import session_service_pb2 as sessions_pb

from turnlog_server.domain import limits
from turnlog_server.service.context import CallContext
from turnlog_server.service.events import Events
from turnlog_server.service.runs import Requests, Runs
from turnlog_server.service.sessions import Sessions
from turnlog_server.wire import inbound as wire_inbound
from turnlog_server.wire import pages
from turnlog_server.wire import runs as wire_runs
from turnlog_server.wire import sessions as wire_sessions
from turnlog_server.wire.frames import of_session, parse_events


class SessionServicer:
    """turnlog.v1.SessionService"""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def CreateSession(
        self, ctx: CallContext, request: sessions_pb.CreateSessionRequest
    ) -> sessions_pb.CreateSessionResponse:
        result = await self._sessions.create(ctx, wire_sessions.new_session(request))
        assert result.facts is not None
        assert result.state is not None
        return sessions_pb.CreateSessionResponse(
            session=wire_sessions.session(result.facts, result.state),
            run_id=result.answer.run_id,
            seq=result.answer.seq if result.answer.run_id else 0,
            replayed=result.replayed,
        )

    async def GetSession(
        self, ctx: CallContext, request: sessions_pb.GetSessionRequest
    ) -> sessions_pb.GetSessionResponse:
        stored = await self._sessions.get(ctx, request.session_id)
        return sessions_pb.GetSessionResponse(session=wire_sessions.session(*stored))

    async def ListSessions(
        self, ctx: CallContext, request: sessions_pb.ListSessionsRequest
    ) -> sessions_pb.ListSessionsResponse:
        window = pages.window(request, int, str)
        found, more = await self._sessions.page(
            ctx,
            dict(request.labels),
            wire_sessions.statuses(request),
            (int(window.after[0]), str(window.after[1])) if window.after else None,
            window.size,
        )
        return sessions_pb.ListSessionsResponse(
            sessions=[wire_sessions.session(*stored) for stored in found],
            next_page_token=pages.token(request, more) if more else "",
        )

    async def DeleteSession(
        self, ctx: CallContext, request: sessions_pb.DeleteSessionRequest
    ) -> sessions_pb.DeleteSessionResponse:
        result = await self._sessions.delete(ctx, request.session_id)
        return sessions_pb.DeleteSessionResponse(replayed=result.replayed)

    async def CompleteSession(
        self, ctx: CallContext, request: sessions_pb.CompleteSessionRequest
    ) -> sessions_pb.CompleteSessionResponse:
        result = await self._sessions.complete(ctx, request.session_id)
        assert result.facts is not None
        assert result.state is not None
        return sessions_pb.CompleteSessionResponse(
            session=wire_sessions.session(result.facts, result.state), replayed=result.replayed
        )

    async def CancelSession(
        self, ctx: CallContext, request: sessions_pb.CancelSessionRequest
    ) -> sessions_pb.CancelSessionResponse:
        result = await self._sessions.cancel(ctx, request.session_id, request.reason)
        assert result.facts is not None
        assert result.state is not None
        return sessions_pb.CancelSessionResponse(
            session=wire_sessions.session(result.facts, result.state), replayed=result.replayed
        )


class EventServicer:
    """turnlog.v1.EventService"""

    def __init__(self, sessions: Sessions, events: Events) -> None:
        self._sessions = sessions
        self._events = events

    async def AppendEvent(
        self, ctx: CallContext, request: events_pb.AppendEventRequest
    ) -> events_pb.AppendEventResponse:
        result = await self._sessions.append(ctx, wire_inbound.inbound(request))
        answer = result.answer
        return events_pb.AppendEventResponse(
            seq=answer.seq,
            event_id=answer.event_id,
            run_id=answer.run_id,
            blocked_by=answer.blocked_by,
            replayed=result.replayed,
        )

    async def ListEvents(self, ctx: CallContext, request: events_pb.ListEventsRequest) -> events_pb.ListEventsResponse:
        window = pages.window(request, int, default=limits.LIST_EVENTS_DEFAULT, maximum=limits.LIST_EVENTS_MAXIMUM)
        after = int(window.after[0]) if window.after else wire_inbound.cursor(request.after_seq)
        types = wire_inbound.known_types(list(request.types))
        page = await self._events.page(ctx, request.session_id, after, types, window.size)
        return events_pb.ListEventsResponse(
            session_id=request.session_id,
            events=parse_events([body for _, _, body in page.events]),
            next_page_token=pages.token(request, (page.reached,)) if page.reached < page.head_seq else "",
            head_seq=page.head_seq,
        )

    def FollowEvents(self, ctx: CallContext, request: events_pb.FollowEventsRequest) -> AsyncIterator[bytes]:
        place = (request.session_id, wire_inbound.cursor(request.after_seq))
        return self._events.follow(ctx, [place], wire_inbound.follow_options(request))

    def FollowSessions(self, ctx: CallContext, request: events_pb.FollowSessionsRequest) -> AsyncIterator[bytes]:
        places = [(place.session_id, wire_inbound.cursor(place.after_seq)) for place in request.sessions]
        return self._events.follow(ctx, places, wire_inbound.follow_options(request), of_session)


class RunServicer:
    """turnlog.v1.RunService"""

    def __init__(self, sessions: Sessions, runs: Runs) -> None:
        self._sessions = sessions
        self._runs = runs

    async def GetRun(self, ctx: CallContext, request: runs_pb.GetRunRequest) -> runs_pb.GetRunResponse:
        run, pending = await self._runs.get(ctx, request.session_id, request.run_id)
        return runs_pb.GetRunResponse(run=wire_runs.run(request.session_id, run, pending))

    async def ListRuns(self, ctx: CallContext, request: runs_pb.ListRunsRequest) -> runs_pb.ListRunsResponse:
        window = pages.window(request, int)
        before = int(window.after[0]) if window.after else 2**62
        found = await self._runs.page(ctx, request.session_id, before, window.size + 1)
        shown = found[: window.size]
        more = len(found) > window.size
        return runs_pb.ListRunsResponse(
            runs=[wire_runs.run(request.session_id, run) for run in shown],
            next_page_token=pages.token(request, (shown[-1].trigger_seq,)) if more else "",
        )

    async def ListAttempts(
        self, ctx: CallContext, request: runs_pb.ListAttemptsRequest
    ) -> runs_pb.ListAttemptsResponse:
        window = pages.window(request, int)
        after = int(window.after[0]) if window.after else 0
        found = await self._runs.attempts(ctx, request.session_id, request.run_id, after, window.size + 1)
        shown = found[: window.size]
        more = len(found) > window.size
        return runs_pb.ListAttemptsResponse(
            attempts=[wire_runs.attempt(attempt) for attempt in shown],
            next_page_token=pages.token(request, (shown[-1].attempt_no,)) if more else "",
        )

    async def CancelRun(self, ctx: CallContext, request: runs_pb.CancelRunRequest) -> runs_pb.CancelRunResponse:
        run, replayed = await self._sessions.cancel_run(ctx, request.session_id, request.run_id, request.reason)
        return runs_pb.CancelRunResponse(run=wire_runs.run(request.session_id, run), replayed=replayed)


class RequestServicer:
    """turnlog.v1.RequestService"""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def GetRequest(
        self, ctx: CallContext, request: requests_pb.GetRequestRequest
    ) -> requests_pb.GetRequestResponse:
        found = await self._requests.get(ctx, request.method, request.session_id, request.request_id)
        return wire_runs.request(found)
