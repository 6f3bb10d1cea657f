"""What was published, as admission and offers read it. It never changes, and is remembered."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from turnlog_server.domain.agents import AgentVersion, DeploymentRevision, require_revision, version_name
from turnlog_server.domain.names import check_id, known
from turnlog_server.domain.session import Pins
from turnlog_server.store.agents import deployment_find, revision_find, revision_pins, version_find
from turnlog_server.store.database import Database
from turnlog_server.store.execute import reading
from turnlog_server.store.profiles import harness_named

T = TypeVar("T")

REMEMBERED_REVISIONS: Final = 10_000
REMEMBERED_VERSIONS: Final = 100
"""Fewer, for one may weigh a mebibyte."""


class Catalogue:
    """Deployments and versions of every workspace, by their ids. Who may see them is for the caller to judge."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._pins = _Immutable[Pins](REMEMBERED_REVISIONS)
        self._revisions = _Immutable[DeploymentRevision](REMEMBERED_REVISIONS)
        self._versions = _Immutable[AgentVersion](REMEMBERED_VERSIONS)

    async def pins_for(
        self, workspace_id: str, deployment_id: str, revision_number: int | None, *, deadline: float | None = None
    ) -> Pins:
        """What a Session that starts from a deployment pins.

        revision_number: None means the one that is current at this moment.
        """
        execute = reading(self._db, "pins", deadline)
        if revision_number is None:
            resource = "agent deployment"
            found = await deployment_find(execute, workspace_id, check_id(resource, deployment_id))
            deployment = known(found, resource, deployment_id)
            revision_number = require_revision(deployment_id, deployment.current_revision_number)
        resource = "agent deployment revision"
        key = (workspace_id, check_id(resource, deployment_id), revision_number)
        pins = await self._pins.get(key, lambda: revision_pins(execute, *key))
        return known(pins, resource, version_name(deployment_id, revision_number))

    async def revision(
        self, workspace_id: str, deployment_id: str, revision_number: int, *, deadline: float | None = None
    ) -> DeploymentRevision:
        """One revision of a deployment."""
        execute = reading(self._db, "revision", deadline)
        resource = "agent deployment revision"
        key = (workspace_id, check_id(resource, deployment_id), revision_number)
        revision = await self._revisions.get(key, lambda: revision_find(execute, *key))
        return known(revision, resource, version_name(deployment_id, revision_number))

    async def version(
        self, workspace_id: str, agent_id: str, version_number: int, *, deadline: float | None = None
    ) -> AgentVersion:
        """One version of an agent."""
        execute = reading(self._db, "agent version", deadline)
        key = (workspace_id, check_id("agent version", agent_id), version_number)
        version = await self._versions.get(key, lambda: version_find(execute, *key))
        return known(version, "agent version", version_name(agent_id, version_number))

    async def harness_profile_names(
        self, workspace_id: str, names: Sequence[str], *, deadline: float | None = None
    ) -> dict[str, str]:
        """The ids of those harness profiles that exist, by name."""
        return await harness_named(reading(self._db, "harness profiles", deadline), workspace_id, names)


class _Immutable(Generic[T]):
    """Things of a kind that never changes, those read last. What is not there yet may come, and is asked for again."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[Hashable, T] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T | None]]) -> T | None:
        item = self._items.get(key)
        if item is None:
            item = await read()
        if item is not None:
            self._items[key] = item
            self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)
        return item
