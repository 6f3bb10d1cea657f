"""Workspaces with people in them, and calls in their name."""

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from turnlog.v1 import access_service_pb2, agent_service_pb2
from turnlog_server.domain.access import Caller, Role
from turnlog_server.service.access import Access
from turnlog_server.service.agents import Agents
from turnlog_server.service.bootstrap import key_create, workspace_create
from turnlog_server.service.context import CallContext
from turnlog_server.service.credentials import Authenticator
from turnlog_server.service.epochs import Epochs
from turnlog_server.store.database import Database
from turnlog_server.transport.access import AccessServicer
from turnlog_server.transport.agents import AgentServicer
from turnlog_server.wire.requests import fingerprint, parse

SERVICES: tuple[ServiceDescriptor, ...] = (
    access_service_pb2.DESCRIPTOR.services_by_name["AccessService"],
    agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"],
)

_numbers = itertools.count(1)


@dataclass
class Replica:
    """What one server has: the services, and what it remembers of callers. `clock` moves only when a test moves it."""

    db: Database
    clock: int = 1_800_000_000_000_000
    epochs: Epochs = field(default_factory=Epochs)

    def __post_init__(self) -> None:
        self.authenticator = Authenticator(self.db, self.epochs, self.now)
        self.access = Access(self.db, self.epochs, now=self.now)
        self.agents = Agents(self.db, self.epochs, now=self.now)
        servicers = (AccessServicer(self.access), AgentServicer(self.agents))
        self._servicers = dict(zip(SERVICES, servicers, strict=True))

    def now(self) -> int:
        """Microseconds since the epoch; each look is a little later."""
        self.clock += 1
        return self.clock

    async def call(self, bearer: str, rpc: str, /, **fields: Any) -> Any:
        """One call as the transport makes it: authenticated, validated, fingerprinted."""
        caller = await self.authenticator.authenticate(bearer)
        return await self.call_as(caller, rpc, **fields)

    async def call_as(self, caller: Caller, rpc: str, /, **fields: Any) -> Any:
        """One call of a caller who was authenticated before."""
        service = next(each for each in SERVICES if rpc in each.methods_by_name)
        method = service.methods_by_name[rpc]
        request = _request(method.input_type._concrete_class, fields)
        ctx = CallContext(
            f"{service.full_name}/{rpc}", caller, asyncio.get_running_loop().time() + 20.0, judge=self._judge
        )
        if "request_id" in method.input_type.fields_by_name:
            request_id = request.request_id  # type: ignore[attr-defined]
            ctx = replace(ctx, request_id=request_id, fingerprint=fingerprint(request))
        handler: Callable[[CallContext, Message], Awaitable[Message]] = getattr(self._servicers[service], rpc)
        return await handler(ctx, request)

    async def _judge(self, caller: Caller) -> Caller:
        return await self.authenticator.judge(caller)


@dataclass(frozen=True)
class Tenant:
    """A workspace, and the secrets of those in it."""

    workspace_id: str
    manager: str
    manager_id: str
    api_key_id: str

    async def secret(self, db: Database, role: Role, *pools: str) -> str:
        """A new service account's key."""
        made = await key_create(db, self.workspace_id, role=role, display_name=f"a {role}", runner_pools=pools)
        return made.secret


async def tenant(db: Database, name: str = "") -> Tenant:
    """A workspace of its own."""
    made = await workspace_create(db, name or f"workspace {next(_numbers)}")
    return Tenant(made.workspace.workspace_id, made.secret, made.manager.subject_id, made.api_key.api_key_id)


def request_id() -> str:
    """A name that no other request has."""
    return hashlib.sha256(str(next(_numbers)).encode()).hexdigest()[:32]


def _request(kind: type[Message], fields: dict[str, Any]) -> Message:
    if "request_id" in kind.DESCRIPTOR.fields_by_name:
        fields = {"request_id": request_id()} | fields
    return parse(kind, kind(**fields).SerializeToString())
