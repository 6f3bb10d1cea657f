"""Hints from other replicas: heard, lost, and heard again."""

import asyncio

import psycopg
import pytest
from support.observer import CountingObserver
from turnlog_server.store.database import Database

KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'turnlog/listener'"
)

notifies = pytest.mark.only_on("postgresql", reason="CockroachDB does not notify")


class Receiver:
    def __init__(self):
        self.hints = asyncio.Queue()
        self.losses = asyncio.Queue()

    def on_hint(self, payload):
        self.hints.put_nowait(payload)
        if payload == "poison":
            raise ValueError(payload)

    def on_lost(self):
        self.losses.put_nowait(None)


@pytest.fixture
def receiver():
    return Receiver()


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, 15)


@notifies
async def test_a_hint_of_one_replica_is_heard_by_another(empty_dsn, receiver):
    one, two = await Database.open(empty_dsn, pool_size=1), await Database.open(empty_dsn, pool_size=1)
    source = await two.listen("sessions", receiver.on_hint, receiver.on_lost)
    await soon(source.listening.wait())
    for payload in ("a", "poison", "b"):
        await one.hint("sessions", payload)
        assert await soon(receiver.hints.get()) == payload
    assert receiver.losses.empty()
    await source.close()
    await one.close()
    await two.close()


@notifies
async def test_a_lost_listener_says_so_and_listens_again(empty_dsn, receiver):
    observer = CountingObserver()
    database = await Database.open(empty_dsn, pool_size=1, observer=observer)
    source = await database.listen("sessions", receiver.on_hint, receiver.on_lost)
    await soon(source.listening.wait())
    with psycopg.connect(empty_dsn, autocommit=True) as other:
        other.execute(KILL)
    await soon(receiver.losses.get())  # once for the loss
    await soon(receiver.losses.get())  # once for what was missed meanwhile
    assert source.listening.is_set()
    assert observer.lost_hints == 1
    await database.hint("sessions", "after")
    assert await soon(receiver.hints.get()) == "after"
    await source.close()
    assert receiver.losses.empty()
    await database.close()


async def test_where_the_database_does_not_notify_nobody_listens(empty_dsn, receiver):
    database = await Database.open(empty_dsn, pool_size=1, force_dialect="crdb")
    source = await database.listen("sessions", receiver.on_hint, receiver.on_lost)
    await database.hint("sessions", "a")
    assert not source.listening.is_set()
    with psycopg.connect(empty_dsn) as other:
        [(listeners,)] = other.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'turnlog/listener'"
            " AND datname = current_database()"
        ).fetchall()
    assert listeners == 0
    await source.close()
    await database.close()
