"""ServerService: the server's facts, and who you are to it."""

from __future__ import annotations

import asyncio

import turnlog_client.messages.turnlog.v1 as v1
from turnlog_client.calls import Caller
from turnlog_client.stubs import Service, Unary


class Server(Service):
    """ServerService: version, limits and settings of the replica that answers."""

    NAME = "turnlog.v1.ServerService"

    info = Unary("GetServerInfo", v1.GetServerInfoRequest, v1.GetServerInfoResponse)

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._asking = asyncio.Lock()
        self._subject = ""

    async def subject(self) -> str:
        """The subject of your key, `prn_…` or `svc_…`. Asked once for a connection: a key never changes its subject."""
        async with self._asking:
            if not self._subject:
                self._subject = (await self.info()).subject
            return self._subject
