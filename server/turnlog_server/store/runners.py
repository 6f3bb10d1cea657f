"""Runners: one row each, with a lease that the replica which holds its stream renews, and an epoch.

The epoch belongs to an instance: it rises when another instance says Hello under the id, and when the runner is
declared lost. An attempt that was accepted under an older epoch is lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import msgspec

from turnlog_server.domain.fleet import Hello, RunnerRow
from turnlog_server.store.arrays import Ints, Texts
from turnlog_server.store.database import Database
from turnlog_server.store.execute import Execute, first
from turnlog_server.store.times import micros

RUNNER_HELLO: LiteralString = """
INSERT INTO runners (workspace_id, runner_id, instance, epoch, lease_expires_at, draining, hello)
VALUES (%(ws)s::text, %(runner)s::text, %(instance)s::text, 1,
        now() + %(ttl)s::float8 * interval '1 second', false, %(hello)s::text)
ON CONFLICT (workspace_id, runner_id) DO UPDATE SET
  epoch = runners.epoch + CASE WHEN runners.instance IN (excluded.instance, '') THEN 0 ELSE 1 END,
  draining = CASE WHEN runners.instance = excluded.instance THEN runners.draining ELSE false END,
  instance = excluded.instance, lease_expires_at = excluded.lease_expires_at, hello = excluded.hello
RETURNING epoch, draining"""

# Also a lease that ran out: until the runner is declared lost, which raises its epoch, it is nobody else's.
RUNNER_RENEW: LiteralString = """
UPDATE runners r SET lease_expires_at = now() + %(ttl)s::float8 * interval '1 second'
  FROM unnest(%(ws)s::text[], %(ids)s::text[], %(epochs)s::int8[]) AS w(workspace_id, runner_id, epoch)
 WHERE r.workspace_id = w.workspace_id AND r.runner_id = w.runner_id AND r.epoch = w.epoch
RETURNING r.workspace_id, r.runner_id, r.draining"""

RUNNER_LOSE: LiteralString = """
UPDATE runners r SET epoch = r.epoch + 1, instance = ''
 WHERE r.instance <> '' AND r.lease_expires_at < now() - %(slack)s::float8 * interval '1 second'
RETURNING r.workspace_id, r.runner_id, r.epoch"""

RUNNER_LEAVE: LiteralString = """
UPDATE runners r SET epoch = r.epoch + 1, instance = '', lease_expires_at = now()
 WHERE r.workspace_id = %(ws)s::text AND r.runner_id = %(runner)s::text AND r.epoch = %(epoch)s::int8
RETURNING r.epoch"""

RUNNER_DRAIN: LiteralString = """
UPDATE runners r SET draining = true
 WHERE r.workspace_id = %(ws)s::text AND r.runner_id = %(runner)s::text"""

RUNNER_LIST: LiteralString = """
SELECT r.runner_id, r.hello, r.instance <> '' AND r.lease_expires_at > now(), r.draining, r.lease_expires_at,
       r.create_time,
       (SELECT count(*) FROM run_queue q
         WHERE q.state = 'HELD' AND q.runner_id = r.runner_id AND q.workspace_id = r.workspace_id)
  FROM runners r
 WHERE r.workspace_id = %(ws)s::text AND r.runner_id > %(after)s::text
 ORDER BY r.runner_id
 LIMIT %(count)s::int8"""

RUNNER_FIND: LiteralString = """
SELECT r.runner_id, r.hello, r.instance <> '' AND r.lease_expires_at > now(), r.draining, r.lease_expires_at,
       r.create_time,
       (SELECT count(*) FROM run_queue q
         WHERE q.state = 'HELD' AND q.runner_id = r.runner_id AND q.workspace_id = r.workspace_id)
  FROM runners r
 WHERE r.workspace_id = %(ws)s::text AND r.runner_id = %(runner)s::text"""

_hello = msgspec.json.Decoder(Hello)


async def runner_drain(execute: Execute, workspace_id: str, runner_id: str) -> None:
    """Marks a runner as draining."""
    await execute(RUNNER_DRAIN, {"ws": workspace_id, "runner": runner_id})


async def runner_find(execute: Execute, workspace_id: str, runner_id: str) -> RunnerRow | None:
    """One runner."""
    row = await first(execute, RUNNER_FIND, {"ws": workspace_id, "runner": runner_id})
    return None if row is None else _runner(row)


def _runner(row: Sequence[Any]) -> RunnerRow:
    return RunnerRow(_hello.decode(row[1]), row[2], row[3], micros(row[4]), micros(row[5]), row[6])


@dataclass(frozen=True, slots=True)
class RunnerKey:
    """A runner at one epoch."""

    workspace_id: str
    runner_id: str
    epoch: int


class Runners:
    """Leases of runners."""

    def __init__(self, db: Database, ttl: float) -> None:
        self._db = db
        self._ttl = ttl

    async def hello(self, workspace_id: str, hello: Hello, profile_ids: Sequence[str]) -> tuple[int, bool]:
        """Takes or renews the lease; returns the epoch, and whether an operator drains the runner."""
        # The ids of the profiles stand beside the names: what tells why a Run is pending looks for them.
        kept = {**msgspec.to_builtins(hello), "profile_ids": list(profile_ids)}
        params = {
            "ws": workspace_id,
            "runner": hello.runner_id,
            "instance": hello.instance_id,
            "ttl": self._ttl,
            "hello": msgspec.json.encode(kept).decode(),
        }
        rows = await self._db.write("runner_hello", RUNNER_HELLO, params)
        return rows[0][0], rows[0][1]

    async def renew(self, runners: Sequence[RunnerKey]) -> dict[tuple[str, str], bool]:
        """Renews all of a replica's runners; those still held, with whether each is drained by an operator."""
        params = {
            "ws": Texts(runner.workspace_id for runner in runners),
            "ids": Texts(runner.runner_id for runner in runners),
            "epochs": Ints(runner.epoch for runner in runners),
            "ttl": self._ttl,
        }
        rows = await self._db.write("runner_renew", RUNNER_RENEW, params)
        return {(row[0], row[1]): row[2] for row in rows}

    async def lose(self, slack: float) -> list[RunnerKey]:
        """Declares lost whoever did not renew; by the database's clock."""
        rows = await self._db.write("runner_lose", RUNNER_LOSE, {"slack": slack}, keyed=False)
        return [RunnerKey(*row) for row in rows]

    async def leave(self, runner: RunnerKey) -> None:
        """The runner said goodbye."""
        params = {"ws": runner.workspace_id, "runner": runner.runner_id, "epoch": runner.epoch}
        await self._db.write("runner_leave", RUNNER_LEAVE, params)

    async def page(self, workspace_id: str, after: str, count: int, deadline: float | None = None) -> list[RunnerRow]:
        """Runners by id, after this one."""
        params = {"ws": workspace_id, "after": after, "count": count}
        rows = await self._db.read("runner_list", RUNNER_LIST, params, deadline=deadline)
        return [_runner(row) for row in rows]
