"""The client: one connection to a server, with each service as an attribute."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from turnlog_client.calls import Caller, Sleep
from turnlog_client.channel import Tls, open_channel
from turnlog_client.events import Events
from turnlog_client.profile import Profile, ProfileError, find_profile, is_key
from turnlog_client.server import Server
from turnlog_client.services import Access, Agents, Requests, Runners, Runs
from turnlog_client.sessions import Sessions


class Turnlog:
    """A connection. `async with Turnlog.connect() as t:` opens it; its services are attributes.

    sessions, events, runs, requests, agents, access, server, runners
    """

    sessions: Sessions
    events: Events
    runs: Runs
    requests: Requests
    agents: Agents
    access: Access
    server: Server
    runners: Runners

    def __init__(
        self,
        profile: Profile,
        tls: Tls | bool | None,
        api_version: str | None,
        timeout: float,
        patience: float,
        sleep: Sleep,
    ) -> None:
        self.profile = profile
        self.tls = tls
        self._api_version = api_version
        self._timeout = timeout
        self._patience = patience
        self._sleep = sleep

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        key: str | None = None,
        profile: str | Path | None = None,
        *,
        tls: Tls | bool | None = None,
        api_version: str | None = None,
        timeout: float = 30.0,
        patience: float = 10.0,
        sleep: Sleep = asyncio.sleep,
    ) -> Self:
        """Says where to connect; entering the context opens the channel, the first call connects.

        What is not given comes from TURNLOG_ADDRESS and TURNLOG_KEY, then from the profile (see `find_profile`). `tls`
        None means TLS unless the server is on this machine. `timeout` is the deadline of one attempt at a call,
        `patience` how long attempts at one call go on; seconds. Follows have neither. `sleep` is how it waits between
        attempts. Raises ProfileError.
        """
        found = settle(address, key, profile)
        if found.key and not is_key(found.key):
            raise ProfileError(
                "The key that was given (--key, TURNLOG_KEY or the profile) must be one `tlk_…` token and nothing else."
            )
        if tls is None and found.ca_file:
            tls = Tls(ca_file=found.ca_file)
        return cls(found, tls, api_version, timeout, patience, sleep)

    async def __aenter__(self) -> Self:
        self._channel = open_channel(self.profile.address, self.tls)
        metadata: list[tuple[str, str]] = []
        if self.profile.key:
            metadata.append(("authorization", f"Bearer {self.profile.key}"))
        if self._api_version:
            metadata.append(("turnlog-api-version", self._api_version))
        caller = Caller(
            self._channel, tuple(metadata), timeout=self._timeout, patience=self._patience, sleep=self._sleep
        )
        self.server = Server(caller)
        self.events = Events(caller, self.server)
        self.sessions = Sessions(caller, self.events, self.profile.agent_deployment_id)
        self.runs = Runs(caller)
        self.requests = Requests(caller)
        self.agents = Agents(caller)
        self.access = Access(caller)
        self.runners = Runners(caller)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()


def settle(
    address: str | None,
    key: str | None,
    profile: str | Path | None,
    environ: Mapping[str, str] = os.environ,
) -> Profile:
    """What to connect to: arguments, then environment, then the profile that was found.

    A profile that is named as an argument comes before the environment. Raises ProfileError when no server is named.
    A profile's key goes to the profile's own address only, never to another that was named beside it.
    """
    if not profile:
        address = address or environ.get("TURNLOG_ADDRESS")
        key = key or environ.get("TURNLOG_KEY")
    found = None if address and key and not profile else find_profile(profile, environ=environ)
    if found and address in (None, "", found.address):
        return Profile(found.address, key or found.key, found.workspace_id, found.agent_deployment_id, found.ca_file)
    if not address:
        raise ProfileError(
            "No server is named. Start one with `turnlog-server dev` in this folder, or give --address and --key "
            "(TURNLOG_ADDRESS and TURNLOG_KEY)."
        )
    return Profile(address, key or "")
