"""Agents and their versions, deployments and their revisions."""

import msgspec

from turnlog_server.domain.agents import (
    Agent,
    AgentVersion,
    Deployment,
    DeploymentRevision,
    RevisionParts,
    RevisionPlan,
    Tool,
)
from turnlog_server.domain.limits import RESPONSE_BYTES
from turnlog_server.domain.pages import FIRST_NAME, Page, Window
from turnlog_server.domain.session import Pins
from turnlog_server.store.database import Row
from turnlog_server.store.execute import Execute, first

AGENT_NAME = "agents_name"
DEPLOYMENT_NAME = "deployments_name"

NEWEST_NUMBER = (2**63 - 1,)

AGENT_INSERT = """
INSERT INTO agents (agent_id, workspace_id, name, description, latest_version_number, create_time)
VALUES (%(agent_id)s::text, %(workspace_id)s::text, %(name)s::text, %(description)s::text, 0, %(create_time)s::int8)
"""

AGENT_FIND = """
SELECT agent_id, workspace_id, name, description, latest_version_number, create_time
  FROM agents
 WHERE agent_id = %(agent_id)s::text AND workspace_id = %(workspace_id)s::text
"""

AGENT_NAMED = """
SELECT agent_id, workspace_id, name, description, latest_version_number, create_time
  FROM agents
 WHERE workspace_id = %(workspace_id)s::text AND name = %(name)s::text
"""

AGENT_LIST = """
SELECT agent_id, workspace_id, name, description, latest_version_number, create_time
  FROM agents
 WHERE workspace_id = %(workspace_id)s::text AND name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s::int8
"""

AGENT_ADVANCE = """
UPDATE agents SET latest_version_number = latest_version_number + 1
 WHERE agent_id = %(agent_id)s::text AND workspace_id = %(workspace_id)s::text
RETURNING latest_version_number
"""

VERSION_INSERT = """
INSERT INTO agent_versions (agent_id, version_number, workspace_id, content, content_bytes, create_time)
VALUES (%(agent_id)s::text, %(version_number)s::int8, %(workspace_id)s::text, %(content)s::text,
        %(content_bytes)s::int8, %(create_time)s::int8)
"""

VERSION_FIND = """
SELECT agent_id, workspace_id, version_number, content, create_time
  FROM agent_versions
 WHERE agent_id = %(agent_id)s::text AND version_number = %(version_number)s::int8
   AND workspace_id = %(workspace_id)s::text
"""

# Cut by bytes, or a page of the largest versions would be half a gigabyte in memory.
VERSION_LIST = """
SELECT p.agent_id, p.workspace_id, p.version_number, p.content, p.create_time
  FROM (SELECT v.agent_id, v.workspace_id, v.version_number, v.content, v.create_time,
               (sum(v.content_bytes) OVER (ORDER BY v.version_number DESC))::int8 - v.content_bytes AS bytes_before
          FROM agent_versions v
         WHERE v.agent_id = %(agent_id)s::text AND v.workspace_id = %(workspace_id)s::text
           AND v.version_number < %(after)s::int8
         ORDER BY v.version_number DESC
         LIMIT %(limit)s::int8) AS p
 WHERE p.bytes_before < %(bytes)s::int8
 ORDER BY p.version_number DESC
"""

DEPLOYMENT_INSERT = """
INSERT INTO deployments (agent_deployment_id, workspace_id, name, current_revision_number, create_time)
VALUES (%(deployment_id)s::text, %(workspace_id)s::text, %(name)s::text, 0, %(create_time)s::int8)
"""

DEPLOYMENT_FIND = """
SELECT agent_deployment_id, workspace_id, name, current_revision_number, create_time
  FROM deployments
 WHERE agent_deployment_id = %(deployment_id)s::text AND workspace_id = %(workspace_id)s::text
"""

DEPLOYMENT_NAMED = """
SELECT agent_deployment_id, workspace_id, name, current_revision_number, create_time
  FROM deployments
 WHERE workspace_id = %(workspace_id)s::text AND name = %(name)s::text
"""

DEPLOYMENT_LIST = """
SELECT agent_deployment_id, workspace_id, name, current_revision_number, create_time
  FROM deployments
 WHERE workspace_id = %(workspace_id)s::text AND name > %(after)s::text
 ORDER BY name
 LIMIT %(limit)s::int8
"""

DEPLOYMENT_ADVANCE = """
UPDATE deployments SET current_revision_number = current_revision_number + 1
 WHERE agent_deployment_id = %(deployment_id)s::text AND workspace_id = %(workspace_id)s::text
RETURNING current_revision_number
"""

REVISION_PARTS = """
SELECT a.latest_version_number,
       (SELECT v.version_number FROM agent_versions v
         WHERE v.agent_id = a.agent_id
           AND v.version_number = COALESCE(%(version)s::int8, a.latest_version_number)),
       EXISTS (SELECT 1 FROM harness_profiles h
                WHERE h.harness_profile_id = %(harness)s::text AND h.workspace_id = %(workspace_id)s::text),
       EXISTS (SELECT 1 FROM sandbox_profiles s
                WHERE s.sandbox_profile_id = %(sandbox)s::text AND s.workspace_id = %(workspace_id)s::text),
       EXISTS (SELECT 1 FROM runner_pools p
                WHERE p.workspace_id = %(workspace_id)s::text AND p.name = %(pool)s::text)
  FROM agents a
 WHERE a.agent_id = %(agent_id)s::text AND a.workspace_id = %(workspace_id)s::text
"""

REVISION_INSERT = """
INSERT INTO deployment_revisions (agent_deployment_id, revision_number, workspace_id, agent_id, agent_version_number,
                                  harness_profile_id, sandbox_profile_id, runner_pool, model_route, create_time)
VALUES (%(deployment_id)s::text, %(revision_number)s::int8, %(workspace_id)s::text, %(agent_id)s::text,
        %(version)s::int8, %(harness)s::text, %(sandbox)s::text, %(pool)s::text, %(model_route)s::text,
        %(create_time)s::int8)
"""

REVISION_FIND = """
SELECT agent_deployment_id, workspace_id, revision_number, agent_id, agent_version_number, harness_profile_id,
       sandbox_profile_id, runner_pool, model_route, create_time
  FROM deployment_revisions
 WHERE agent_deployment_id = %(deployment_id)s::text AND revision_number = %(revision_number)s::int8
   AND workspace_id = %(workspace_id)s::text
"""

REVISION_LIST = """
SELECT agent_deployment_id, workspace_id, revision_number, agent_id, agent_version_number, harness_profile_id,
       sandbox_profile_id, runner_pool, model_route, create_time
  FROM deployment_revisions
 WHERE agent_deployment_id = %(deployment_id)s::text AND workspace_id = %(workspace_id)s::text
   AND revision_number < %(after)s::int8
 ORDER BY revision_number DESC
 LIMIT %(limit)s::int8
"""

# A sub-select and no join: a planner that takes a small table for an empty one would read it first, and whole.
REVISION_PINS = """
SELECT r.agent_deployment_id, r.revision_number, r.agent_id, r.agent_version_number, r.harness_profile_id,
       r.sandbox_profile_id, r.runner_pool,
       (SELECT s.max_duration_seconds FROM sandbox_profiles s WHERE s.sandbox_profile_id = r.sandbox_profile_id)
  FROM deployment_revisions r
 WHERE r.agent_deployment_id = %(deployment_id)s::text AND r.revision_number = %(revision_number)s::int8
   AND r.workspace_id = %(workspace_id)s::text
"""


class _Content(msgspec.Struct, frozen=True, omit_defaults=True):
    instructions: str = ""
    tools: tuple[Tool, ...] = ()


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Content)


async def agent_insert(execute: Execute, agent: Agent) -> None:
    """Add an agent without a version."""
    params = {
        "agent_id": agent.agent_id,
        "workspace_id": agent.workspace_id,
        "name": agent.name,
        "description": agent.description,
        "create_time": agent.create_time,
    }
    await execute(AGENT_INSERT, params)


async def agent_find(execute: Execute, workspace_id: str, agent_id: str) -> Agent | None:
    """An agent of this workspace."""
    row = await first(execute, AGENT_FIND, {"workspace_id": workspace_id, "agent_id": agent_id})
    return Agent(*row) if row else None


async def agent_named(execute: Execute, workspace_id: str, name: str) -> Agent | None:
    """An agent by its name."""
    row = await first(execute, AGENT_NAMED, {"workspace_id": workspace_id, "name": name})
    return Agent(*row) if row else None


async def agent_list(execute: Execute, workspace_id: str, window: Window) -> Page[Agent]:
    """Agents, by name."""
    (after,) = window.after or FIRST_NAME
    rows = await execute(AGENT_LIST, {"workspace_id": workspace_id, "after": after, "limit": window.size + 1})
    return Page(tuple(Agent(*row) for row in rows[: window.size]), more=len(rows) > window.size)


async def agent_advance(execute: Execute, workspace_id: str, agent_id: str) -> int | None:
    """Take the number of the next version, so that publishers of one agent come one after another."""
    row = await first(execute, AGENT_ADVANCE, {"workspace_id": workspace_id, "agent_id": agent_id})
    return row[0] if row else None


async def version_insert(execute: Execute, version: AgentVersion) -> None:
    """Add a version under the number that `agent_advance` gave."""
    content = _ENCODER.encode(_Content(version.instructions, version.tools))
    params = {
        "agent_id": version.agent_id,
        "version_number": version.version_number,
        "workspace_id": version.workspace_id,
        "content": content.decode(),
        "content_bytes": len(content),
        "create_time": version.create_time,
    }
    await execute(VERSION_INSERT, params)


async def version_find(execute: Execute, workspace_id: str, agent_id: str, version_number: int) -> AgentVersion | None:
    """One version of an agent."""
    params = {"workspace_id": workspace_id, "agent_id": agent_id, "version_number": version_number}
    row = await first(execute, VERSION_FIND, params)
    return _version(row) if row else None


async def version_list(execute: Execute, workspace_id: str, agent_id: str, window: Window) -> Page[AgentVersion]:
    """Versions of an agent, newest first, as many as fit in a response."""
    (after,) = window.after or NEWEST_NUMBER
    params = {"workspace_id": workspace_id, "agent_id": agent_id, "after": after, "bytes": RESPONSE_BYTES}
    rows = await execute(VERSION_LIST, params | {"limit": window.size})
    items = tuple(map(_version, rows))
    # Numbers have no holes: after the one with number 1 there is nothing.
    return Page(items, more=bool(items) and items[-1].version_number > 1)


async def deployment_insert(execute: Execute, deployment: Deployment) -> None:
    """Add a deployment without a revision."""
    params = {
        "deployment_id": deployment.agent_deployment_id,
        "workspace_id": deployment.workspace_id,
        "name": deployment.name,
        "create_time": deployment.create_time,
    }
    await execute(DEPLOYMENT_INSERT, params)


async def deployment_find(execute: Execute, workspace_id: str, deployment_id: str) -> Deployment | None:
    """A deployment of this workspace."""
    row = await first(execute, DEPLOYMENT_FIND, {"workspace_id": workspace_id, "deployment_id": deployment_id})
    return Deployment(*row) if row else None


async def deployment_named(execute: Execute, workspace_id: str, name: str) -> Deployment | None:
    """A deployment by its name."""
    row = await first(execute, DEPLOYMENT_NAMED, {"workspace_id": workspace_id, "name": name})
    return Deployment(*row) if row else None


async def deployment_list(execute: Execute, workspace_id: str, window: Window) -> Page[Deployment]:
    """Deployments, by name."""
    (after,) = window.after or FIRST_NAME
    rows = await execute(DEPLOYMENT_LIST, {"workspace_id": workspace_id, "after": after, "limit": window.size + 1})
    return Page(tuple(Deployment(*row) for row in rows[: window.size]), more=len(rows) > window.size)


async def deployment_advance(execute: Execute, workspace_id: str, deployment_id: str) -> int | None:
    """Take the number of the next revision, so that publishers on one deployment come one after another."""
    row = await first(execute, DEPLOYMENT_ADVANCE, {"workspace_id": workspace_id, "deployment_id": deployment_id})
    return row[0] if row else None


async def revision_parts(execute: Execute, workspace_id: str, plan: RevisionPlan) -> RevisionParts:
    """What of a planned revision exists in the workspace."""
    params = {
        "workspace_id": workspace_id,
        "agent_id": plan.agent_id,
        "version": plan.agent_version_number,
        "harness": plan.harness_profile_id,
        "sandbox": plan.sandbox_profile_id,
        "pool": plan.runner_pool,
    }
    row = await first(execute, REVISION_PARTS, params)
    return RevisionParts(*row) if row else RevisionParts(None, None, harness=False, sandbox=False, pool=False)


async def revision_insert(execute: Execute, revision: DeploymentRevision) -> None:
    """Add a revision under the number that `deployment_advance` gave."""
    params = {
        "deployment_id": revision.agent_deployment_id,
        "revision_number": revision.revision_number,
        "workspace_id": revision.workspace_id,
        "agent_id": revision.agent_id,
        "version": revision.agent_version_number,
        "harness": revision.harness_profile_id,
        "sandbox": revision.sandbox_profile_id,
        "pool": revision.runner_pool,
        "model_route": revision.model_route,
        "create_time": revision.create_time,
    }
    await execute(REVISION_INSERT, params)


async def revision_find(
    execute: Execute, workspace_id: str, deployment_id: str, revision_number: int
) -> DeploymentRevision | None:
    """One revision of a deployment."""
    params = {"workspace_id": workspace_id, "deployment_id": deployment_id, "revision_number": revision_number}
    row = await first(execute, REVISION_FIND, params)
    return DeploymentRevision(*row) if row else None


async def revision_list(
    execute: Execute, workspace_id: str, deployment_id: str, window: Window
) -> Page[DeploymentRevision]:
    """Revisions of a deployment, newest first."""
    (after,) = window.after or NEWEST_NUMBER
    params = {"workspace_id": workspace_id, "deployment_id": deployment_id, "after": after}
    rows = await execute(REVISION_LIST, params | {"limit": window.size + 1})
    return Page(tuple(DeploymentRevision(*row) for row in rows[: window.size]), more=len(rows) > window.size)


async def revision_pins(execute: Execute, workspace_id: str, deployment_id: str, revision_number: int) -> Pins | None:
    """What a Session that starts from this revision pins."""
    params = {"workspace_id": workspace_id, "deployment_id": deployment_id, "revision_number": revision_number}
    row = await first(execute, REVISION_PINS, params)
    return Pins(*row) if row else None


def _version(row: Row) -> AgentVersion:
    agent_id, workspace_id, version_number, content, create_time = row
    decoded = _DECODER.decode(content)
    return AgentVersion(agent_id, workspace_id, version_number, decoded.instructions, decoded.tools, create_time)
