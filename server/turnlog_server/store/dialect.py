"""What differs between PostgreSQL and CockroachDB, in one value.

Everything else in this package is written once for both. Correctness never rests on a member of this class: it comes
from rows that every writer must update and from unique keys, so a statement is right under either value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, LiteralString, cast

Engine = Literal["postgresql", "cockroachdb"]

STATEMENT_TIMEOUT = "5s"
LOCK_TIMEOUT = "2s"
IDLE_IN_TRANSACTION_TIMEOUT = "5s"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The switches of one engine.

    name: what logs and metrics call it.
    engine: the server that really answers; it decides the driver's classes and what `settings` may hold.
    isolation: asked for on every connection, because roles and databases may carry other defaults.
    claim_lock: ends the sub-select of a claim.
    head_lock_skip: follows `FOR UPDATE OF h` where session heads are locked.
    hint_source, hint_sink: how a replica hears and tells that a Session grew. A hint only: the log is the truth.
    batch_sessions: how many Sessions one log statement may touch. On CockroachDB each is another range.
    claim_shards: into how many the queue is divided, so that claimers do not meet on the same rows.
    settings: session settings of every connection, set right after connecting (a pooler in front may refuse or drop
        settings that come as a start-up parameter).
    post_schema: (table, statement) pairs that `migrate` runs after its steps on tables that exist.
    operator_schema: (table, statement) pairs that the service never runs: the operator may.
    """

    name: str
    engine: Engine
    isolation: Literal["read committed", "serializable"]
    claim_lock: str
    head_lock_skip: str
    hint_source: Literal["listen", "poll"]
    hint_sink: Literal["notify", "none"]
    batch_sessions: int
    claim_shards: int
    settings: Mapping[str, str]
    post_schema: tuple[tuple[str, LiteralString], ...] = ()
    operator_schema: tuple[tuple[str, LiteralString], ...] = ()

    @property
    def slots(self) -> Mapping[str, str]:
        """What stands in a statement's `{slot}`."""
        return {"claim_lock": self.claim_lock, "head_lock_skip": self.head_lock_skip}

    def sql(self, text: LiteralString) -> LiteralString:
        """`text` with its `{claim_lock}` and `{head_lock_skip}` filled in."""
        return _filled(self.claim_lock, self.head_lock_skip, text)

    def version_complaint(self, version: int) -> str | None:
        """Why a server of this version is not served, as a sentence, or None.

        version: as the driver counts it: 150004 is PostgreSQL 15.4, 250213 is CockroachDB 25.2.13.
        """
        if self.engine == "postgresql":
            if version >= 150000:
                return None
            return f"PostgreSQL {version // 10000} is too old: Turnlog needs PostgreSQL 15 or later."
        year, release, patch = version // 10000, version // 100 % 100, version % 100
        if (year, release) >= (26, 1):
            return None
        if patch >= COCKROACH_LEAST_PATCH.get((year, release), 100):
            return None
        return (
            f"CockroachDB {year}.{release}.{patch} is not served: it is past maintenance or can lose data when ranges "
            "split; upgrade to 25.2.13, 25.4.5, 26.1.0 or later of these lines."
        )


# Below these patches a race between garbage collection and range splits can delete live data; release lines that are
# absent are past maintenance.
COCKROACH_LEAST_PATCH = {(25, 2): 13, (25, 4): 5}

COMMON_SETTINGS = {
    "statement_timeout": STATEMENT_TIMEOUT,
    "lock_timeout": LOCK_TIMEOUT,
    "idle_in_transaction_session_timeout": IDLE_IN_TRANSACTION_TIMEOUT,
    "timezone": "UTC",
}

# Every statement is written for its index. On a fresh table the planner does not know yet that the index is the better
# way, and its guess costs a factor of four to ten; a bitmap reads all of a log where a page was asked for. So one plan
# is as good for all parameters, and planning the log statement anew costs as much as executing it. JIT is off because
# a disabled plan looks dear enough to compile.
POSTGRES_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "client_connection_check_interval": "1s",
}

POSTGRES = Dialect(
    name="postgresql",
    engine="postgresql",
    isolation="read committed",
    claim_lock="FOR UPDATE SKIP LOCKED",
    head_lock_skip="SKIP LOCKED",
    hint_source="listen",
    hint_sink="notify",
    batch_sessions=256,
    claim_shards=1,
    settings=MappingProxyType(
        {"default_transaction_isolation": "read committed"} | COMMON_SETTINGS | POSTGRES_SETTINGS
    ),
    post_schema=(
        ("session_heads", "ALTER TABLE session_heads SET (autovacuum_vacuum_scale_factor = 0.01)"),
        # Up to this size a state stays in its row: it is rewritten all the time, and compressing it costs more.
        (
            "session_states",
            "ALTER TABLE session_states SET (autovacuum_vacuum_scale_factor = 0.01, toast_tuple_target = 8160)",
        ),
        ("run_queue", "ALTER TABLE run_queue SET (autovacuum_vacuum_scale_factor = 0.01)"),
        ("runners", "ALTER TABLE runners SET (autovacuum_vacuum_scale_factor = 0.01)"),
        ("timers", "ALTER TABLE timers SET (autovacuum_vacuum_scale_factor = 0.01)"),
    ),
)

COCKROACH = Dialect(
    name="cockroachdb",
    engine="cockroachdb",
    isolation="serializable",
    claim_lock="",
    head_lock_skip="",
    hint_source="poll",
    hint_sink="none",
    batch_sessions=8,
    claim_shards=16,
    settings=MappingProxyType({"default_transaction_isolation": "serializable"} | COMMON_SETTINGS),
    # A row that is updated at full speed keeps its old versions for hours and one row cannot be split over ranges.
    operator_schema=(
        ("session_heads", "ALTER TABLE session_heads CONFIGURE ZONE USING gc.ttlseconds = 600"),
        ("session_states", "ALTER TABLE session_states CONFIGURE ZONE USING gc.ttlseconds = 600"),
        ("run_queue", "ALTER TABLE run_queue CONFIGURE ZONE USING gc.ttlseconds = 600"),
        ("runners", "ALTER TABLE runners CONFIGURE ZONE USING gc.ttlseconds = 600"),
        ("timers", "ALTER TABLE timers CONFIGURE ZONE USING gc.ttlseconds = 600"),
    ),
)

# What CockroachDB would be asked, asked of PostgreSQL: real serialisation failures, claims without SKIP LOCKED, no
# LISTEN, small batches. The suite runs on it, since a CockroachDB server is not everywhere.
COCKROACH_SWITCHES_ON_POSTGRES = replace(
    COCKROACH,
    name="postgresql-crdb-switches",
    engine="postgresql",
    settings=MappingProxyType({**POSTGRES.settings, "default_transaction_isolation": "serializable"}),
    post_schema=POSTGRES.post_schema,
    operator_schema=(),
)

FORCED = ("crdb",)
"""What may be given as the dialect that is forced."""


def detect(crdb_version: str | None, force: str | None = None) -> Dialect:
    """The dialect of a server.

    crdb_version: the server's parameter of that name; PostgreSQL has none. Never judge by `server_version`, where
        CockroachDB names a PostgreSQL release.
    force: "crdb" asks for CockroachDB's switches whatever the server is.
    """
    if force is not None and force not in FORCED:
        raise ValueError(f"the dialect switches can be forced to {' or '.join(FORCED)}, not to {force!r}")
    if crdb_version:
        return COCKROACH
    return COCKROACH_SWITCHES_ON_POSTGRES if force == "crdb" else POSTGRES


_SLOT = re.compile(r"\{(claim_lock|head_lock_skip)\}")


@lru_cache(maxsize=1024)
def _filled(claim_lock: str, head_lock_skip: str, text: str) -> LiteralString:
    values = {"claim_lock": claim_lock, "head_lock_skip": head_lock_skip}
    # Both sides are text of this package: the result is as literal as they are.
    return cast(LiteralString, _SLOT.sub(lambda slot: values[slot[1]], text))
