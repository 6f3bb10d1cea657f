"""Turnlog's Python client.

    from turnlog_client import Turnlog

    async with Turnlog.connect() as t:                                     # address and key from the profile
        run = await t.sessions.steer(session_id, "Draft a release note.")  # request_id made for you
        async for event in t.events.follow(session_id, until=run):         # survives drops, drains and deploys
            print(event.seq, event.type, event.text)

`turnlog_client.v1` holds the contract's messages as dataclasses.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import turnlog_client.messages.turnlog.v1 as v1
    from turnlog_client.channel import Tls
    from turnlog_client.client import Turnlog
    from turnlog_client.errors import TurnlogError, UnknownEventError
    from turnlog_client.follow import CaughtUp, Ended, Follow, FollowedEvent, FollowedPreview, Interruption
    from turnlog_client.profile import Profile

__all__ = [
    "CaughtUp",
    "Ended",
    "Follow",
    "FollowedEvent",
    "FollowedPreview",
    "Interruption",
    "Profile",
    "Tls",
    "Turnlog",
    "TurnlogError",
    "UnknownEventError",
    "v1",
]

# Imported when first asked for: a harness imports `turnlog_client.harness` and must not pay for gRPC.
_HOMES = {
    "CaughtUp": "follow",
    "Ended": "follow",
    "Follow": "follow",
    "FollowedEvent": "follow",
    "FollowedPreview": "follow",
    "Interruption": "follow",
    "Profile": "profile",
    "Tls": "channel",
    "Turnlog": "client",
    "TurnlogError": "errors",
    "UnknownEventError": "errors",
}


def __getattr__(name: str) -> Any:
    if name == "v1":
        return import_module("turnlog_client.messages.turnlog.v1")
    if name in _HOMES:
        return getattr(import_module(f"turnlog_client.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'turnlog_client' has no attribute {name!r}")
