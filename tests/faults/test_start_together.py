"""Many replicas started at one moment on a database that has nothing in it."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from support.replicas import live_replica, make_space
from turnlog_server.store.steps import steps_known

REPLICAS = 10


@pytest.mark.slow
@pytest.mark.case(79)
async def test_ten_replicas_migrate_an_empty_database_at_once(empty_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        lives = await asyncio.gather(
            *(
                stack.enter_async_context(
                    live_replica(empty_dsn, "--migrate", "--pool-size", "2", "--log-level", "debug")
                )
                for _ in range(REPLICAS)
            )
        )
        applied: Counter[str] = Counter()
        for live in lives:
            for line in live.log.read_text().splitlines():
                record = json.loads(line)
                assert record["level"] in ("info", "debug"), record
                if record["message"] == "a step of the schema is applied":
                    applied[record["step"]] += 1
        # Each step by one of them, once.
        assert set(applied.values()) == {1}
        assert len(applied) == len(steps_known())
        # And each serves what any of them made.
        space = await make_space(lives[0])
        session_id = (await space.session("hello")).session.session_id
        for live in lives:
            assert (await space.on(live).get(session_id)).session_id == session_id
