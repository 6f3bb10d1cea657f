"""The queue: adding, claiming, finishing."""

import json
import random
import secrets
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from .errors import LeaseExpired, QueueFull
from .job import Job, State, encode_payload
from .retry import RetryPolicy
from .store import Store

LEASE_SECONDS = 45.0


class Queue:
    """Jobs in one file. Every method is one transaction."""

    def __init__(
        self,
        store: Store,
        *,
        policy: RetryPolicy | None = None,
        max_waiting: int = 100_000,
        clock: Callable[[], float] = time.time,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._chance = chance or random.Random()
        self.max_waiting = max_waiting

    def add(self, kind: str, payload: Any, *, delay: float = 0.0) -> int:
        """Puts a job in and returns its id. Raises `QueueFull` and `PayloadTooLarge`."""
        text = encode_payload(payload)
        with self._store.transaction() as sql:
            (waiting,) = sql.execute("SELECT count(*) FROM jobs WHERE state = 'waiting'").fetchone()
            if waiting >= self.max_waiting:
                raise QueueFull(f"{waiting} jobs are waiting")
            row = sql.execute(
                "INSERT INTO jobs (kind, payload, due) VALUES (?, ?, ?)", (kind, text, self._clock() + delay)
            )
            return row.lastrowid or 0

    def claim(self) -> Job | None:
        """The job that has been due longest, under a lease, or None."""
        self.reap()
        with self._store.transaction() as sql:
            row = sql.execute(
                "SELECT * FROM jobs WHERE state = 'waiting' AND due <= ? ORDER BY due, job_id LIMIT 1", (self._clock(),)
            ).fetchone()
            if row is None:
                return None
            token = secrets.token_hex(8)
            sql.execute(
                "UPDATE jobs SET state = 'running', attempts = attempts + 1, token = ?, lease_until = ?"
                " WHERE job_id = ?",
                (token, self._clock() + LEASE_SECONDS, row["job_id"]),
            )
            return _job(sql, row["job_id"])

    def heartbeat(self, job: Job) -> None:
        """Extends the lease of a job that takes long. Raises `LeaseExpired`."""
        with self._store.transaction() as sql:
            changed = sql.execute(
                "UPDATE jobs SET lease_until = ? WHERE job_id = ? AND token = ? AND state = 'running'",
                (self._clock() + LEASE_SECONDS, job.job_id, job.token),
            )
            _must_hold(changed, job)

    def complete(self, job: Job) -> None:
        """The job is done. Raises `LeaseExpired`."""
        with self._store.transaction() as sql:
            changed = sql.execute(
                "UPDATE jobs SET state = 'done', token = NULL WHERE job_id = ? AND token = ? AND state = 'running'",
                (job.job_id, job.token),
            )
            _must_hold(changed, job)

    def fail(self, job: Job, error: str) -> State:
        """The job failed: it waits for its next attempt, or is dead. Raises `LeaseExpired`."""
        state = State.DEAD if self._policy.gives_up(job.attempts) else State.WAITING
        due = self._clock() + self._policy.delay(job.attempts, self._chance)
        with self._store.transaction() as sql:
            changed = sql.execute(
                "UPDATE jobs SET state = ?, due = ?, token = NULL, last_error = ? WHERE job_id = ? AND token = ?",
                (state.value, due, error[:2000], job.job_id, job.token),
            )
            _must_hold(changed, job)
        return state

    def reap(self) -> int:
        """Puts back the jobs whose worker let its lease run out, and returns how many."""
        with self._store.transaction() as sql:
            return sql.execute(
                "UPDATE jobs SET state = 'waiting', token = NULL WHERE state = 'running' AND lease_until < ?",
                (self._clock(),),
            ).rowcount

    def dead(self) -> list[Job]:
        """The jobs that were given up, oldest first."""
        with self._store.transaction() as sql:
            rows = sql.execute("SELECT job_id FROM jobs WHERE state = 'dead' ORDER BY job_id").fetchall()
            return [_job(sql, row["job_id"]) for row in rows]

    def revive(self, job_id: int) -> bool:
        """Puts a dead job back with a fresh count of attempts. False if there is no such dead job."""
        with self._store.transaction() as sql:
            return bool(
                sql.execute(
                    "UPDATE jobs SET state = 'waiting', attempts = 0, due = ? WHERE job_id = ? AND state = 'dead'",
                    (self._clock(), job_id),
                ).rowcount
            )


def _job(sql: sqlite3.Connection, job_id: int) -> Job:
    row = sql.execute("SELECT * FROM jobs WHERE job_id = ?", (job_id,)).fetchone()
    return Job(
        row["job_id"],
        row["kind"],
        json.loads(row["payload"]),
        State(row["state"]),
        row["attempts"],
        row["due"],
        row["token"],
        row["last_error"],
    )


def _must_hold(changed: sqlite3.Cursor, job: Job) -> None:
    if changed.rowcount == 0:
        raise LeaseExpired(job.job_id, job.token or "")
