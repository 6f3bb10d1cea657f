"""SessionService: creates, reads and ends Sessions, and steers them by appending events."""

from __future__ import annotations

from collections.abc import Mapping

import turnlog_client.messages.turnlog.v1 as v1
from turnlog_client.calls import Caller
from turnlog_client.errors import InvalidRequest
from turnlog_client.events import Events
from turnlog_client.stubs import Paged, Service, Unary


def message(text: str) -> v1.UserMessage:
    """A message of one text part."""
    return v1.UserMessage(parts=[v1.ContentPart(text=text)])


class Sessions(Service):
    """SessionService. Work inside a Session is started by `steer`, which appends a message to its log."""

    NAME = "turnlog.v1.SessionService"

    create_session = Unary("CreateSession", v1.CreateSessionRequest, v1.CreateSessionResponse)
    get = Unary("GetSession", v1.GetSessionRequest, v1.GetSessionResponse)
    list = Paged("ListSessions", v1.ListSessionsRequest, v1.ListSessionsResponse, lambda page: page.sessions)
    delete_session = Unary("DeleteSession", v1.DeleteSessionRequest, v1.DeleteSessionResponse)
    complete_session = Unary("CompleteSession", v1.CompleteSessionRequest, v1.CompleteSessionResponse)
    cancel_session = Unary("CancelSession", v1.CancelSessionRequest, v1.CancelSessionResponse)

    def __init__(self, caller: Caller, events: Events, default_deployment: str) -> None:
        super().__init__(caller)
        self._events = events
        self._default_deployment = default_deployment

    async def create(
        self,
        agent_deployment_id: str = "",
        *,
        revision_number: int | None = None,
        first_message: str | v1.UserMessage | None = None,
        principal: str = "",
        labels: Mapping[str, str] | None = None,
        reusable: bool | None = None,
        request_id: str = "",
    ) -> v1.CreateSessionResponse:
        """Creates a Session from a deployment, the profile's where none is given; a first message starts its turn."""
        deployment = agent_deployment_id or self._default_deployment
        if not deployment:
            raise InvalidRequest("Name a deployment, adep_…: the profile has none.")
        return await self.create_session(
            request_id=request_id,
            agent_deployment_id=deployment,
            agent_deployment_revision_number=revision_number,
            principal=principal,
            labels=dict(labels or {}),
            reusable=reusable,
            first_message=message(first_message) if isinstance(first_message, str) else first_message,
        )

    async def steer(
        self,
        session_id: str,
        text: str,
        *,
        principal: str = "",
        if_busy: v1.IfBusy = v1.IfBusy.UNSPECIFIED,
        expected_head_seq: int | None = None,
        request_id: str = "",
    ) -> v1.AppendEventResponse:
        """Says something, which starts a turn. The answer names the turn's Run; give it to `follow(until=)`."""
        return await self._events.append(
            session_id,
            message(text),
            principal=principal,
            if_busy=if_busy,
            expected_head_seq=expected_head_seq,
            request_id=request_id,
        )

    async def interrupt(
        self, session_id: str, *, reason: str = "", run_id: str = "", principal: str = "", request_id: str = ""
    ) -> v1.AppendEventResponse:
        """Stops the turn in progress, or only this Run's. Never terminal: the Session takes the next message."""
        return await self._events.append(
            session_id,
            v1.UserInterrupt(reason=reason, run_id=run_id),
            principal=principal,
            request_id=request_id,
        )

    async def complete(self, session_id: str, *, request_id: str = "") -> v1.CompleteSessionResponse:
        """Ends an idle Session as `completed`."""
        return await self.complete_session(request_id=request_id, session_id=session_id)

    async def cancel(self, session_id: str, *, reason: str = "", request_id: str = "") -> v1.CancelSessionResponse:
        """Ends a Session as `canceled`, whatever its turn does."""
        return await self.cancel_session(request_id=request_id, session_id=session_id, reason=reason)

    async def delete(self, session_id: str, *, request_id: str = "") -> v1.DeleteSessionResponse:
        """Deletes an idle or terminal Session for good."""
        return await self.delete_session(request_id=request_id, session_id=session_id)
