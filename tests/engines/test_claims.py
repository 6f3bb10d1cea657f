"""Claims are right by what is compared in the UPDATE and by the token in the log, not by a lock that a read took.

CockroachDB may drop such a lock when a range moves, and then two claimers hold "it" at once. Here nobody ever gets one.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from support.lanes import differences, log_of, replicas
from support.weather import Weather
from support.wire import CRDB_VERSION, WireProxy, wire_proxy
from turnlog_server.domain.commands import HarnessReady
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store import queue as queue_module
from turnlog_server.store.database import Database
from turnlog_server.store.queue import Place, Queue, Reserved

pytestmark = pytest.mark.only_on("postgresql", reason="it brings its own engines")

RUNS = 240
CLAIMERS = 8
PLACE = Place("ws_1", "default", "hpr_1")
FILL = """
INSERT INTO run_queue (session_id, workspace_id, pool, harness_profile_id, shard, run_id, attempt_no, state)
SELECT 's' || g, 'ws_1', 'default', 'hpr_1', 0, 'r' || g, 1, 'READY' FROM generate_series(1, %s::int8) AS g"""


@pytest.fixture(params=["read committed", "serializable", "cockroachdb"])
async def lockless(request: pytest.FixtureRequest, dsn: str) -> AsyncIterator[tuple[Database, WireProxy]]:
    """A database that locks nothing for a read, on which every fifth statement fails."""
    async with wire_proxy(dsn) as proxy:
        proxy.crdb_version = CRDB_VERSION if request.param == "cockroachdb" else None
        force = "crdb" if request.param == "serializable" else None
        database = await Database.open(proxy.dsn, pool_size=CLAIMERS, force_dialect=force)
        database.dialect = replace(database.dialect, claim_lock="", head_lock_skip="")
        yield database, proxy
        proxy.fault = lambda _: None
        await database.close()


@pytest.mark.case(76)
async def test_no_run_is_reserved_twice_without_any_lock(
    lockless: tuple[Database, WireProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "OFFER_SECONDS", 3600)
    database, proxy = lockless
    await database.write("fill", "INSERT INTO workspaces (workspace_id, name) VALUES ('ws_1', 'one')")
    await database.write("fill", FILL, (RUNS,))
    queue = Queue(database)
    chance = random.Random(76)

    async def claim(number: int) -> list[Reserved]:
        mine: list[Reserved] = []
        empty = 0
        while empty < 3:
            try:
                got = await queue.reserve(PLACE, 0, f"runner {number}", chance.randint(1, 5))
            except Refusal as refusal:
                # Whether it took effect is not known: then its Runs are free again when the reservation runs out.
                if refusal.reason not in (Reason.STORE_UNAVAILABLE, Reason.CONTENTION):
                    raise
                continue
            empty = 0 if got else empty + 1
            mine += got
        return mine

    proxy.fault = Weather(5, seed=76)
    claimed = [run for mine in await asyncio.gather(*(claim(number) for number in range(CLAIMERS))) for run in mine]
    assert proxy.done
    proxy.fault = lambda _: None
    assert len({run.session_id for run in claimed}) == len(claimed)
    holders = "SELECT count(*) FROM run_queue WHERE runner_id <> '' AND offered_until > now()"
    assert await database.read("held", holders) == [(RUNS,)]
    # Most answers arrived.
    assert len(claimed) > RUNS // 2


@pytest.mark.case(76)
async def test_of_two_runners_that_were_offered_the_same_run_one_has_it(lockless: tuple[Database, WireProxy]) -> None:
    database, proxy = lockless
    async with replicas(database, 2) as (one, two):
        sessions = [await one.create(text="hello") for _ in range(12)]
        proxy.fault = Weather(9, seed=76)
        for session_id in sessions:
            # Each believes that the Run is reserved for it.
            tried = await asyncio.gather(
                one.accept(session_id, "token one"), two.accept(session_id, "token two"), return_exceptions=True
            )
            leases = [lease for lease in tried if not isinstance(lease, BaseException)]
            assert leases, tried
            said = [
                (await lane.do(session_id, HarnessReady(replace(lease, message_no=1), "svc_1"), None)).answer.refused
                for lane, lease in zip((one, two), tried, strict=True)
                if not isinstance(lease, BaseException)
            ]
            assert said.count(None) == 1, said
        proxy.fault = lambda _: None
        for session_id in sessions:
            types = (await log_of(database, session_id)).types
            assert types.count("run.attempt_started") == 1
            assert types.count("session.status_running") == 1
        assert await differences(database) == []
