"""A commit whose reply is lost: never twice, never a guess."""

import asyncio

import pytest
from support.observer import CountingObserver
from support.wire import wire_proxy
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.store.database import Database
from turnlog_server.store.errors import Duplicate, ErrorClass

CREATE = "CREATE TABLE once (id INT8, CONSTRAINT once_pkey PRIMARY KEY (id))"
INSERT = "INSERT INTO once VALUES (%s::int8)"
ALL = "SELECT id FROM once ORDER BY id"
KEY = "once_pkey"


class Cuts:
    """Faults for the first so many statements that begin with a word."""

    def __init__(self, word, *faults):
        self._word, self._faults = word, list(faults)

    def __call__(self, statement):
        return self._faults.pop(0) if self._faults and statement.startswith(self._word) else None


@pytest.fixture
def observer():
    return CountingObserver()


@pytest.fixture
async def proxy(empty_dsn):
    async with wire_proxy(empty_dsn) as proxy:
        yield proxy


@pytest.fixture
async def cut(proxy, observer):
    """A database behind the proxy."""
    database = await Database.open(proxy.dsn, pool_size=2, observer=observer)
    await database.write("create", CREATE)
    yield database
    proxy.silent = False
    proxy.release.set()
    await database.close()


async def insert(database, number, way, **options):
    """Returns whether it was a replay."""

    async def body(conn):
        await conn.execute(INSERT, (number,))

    try:
        if way == "run":
            await database.run("insert", body, replay_keys={KEY}, **options)
        else:
            await database.write("insert", INSERT, (number,), replay_keys={KEY}, **options)
    except Duplicate as exc:
        return exc.constraint == KEY and exc.after_unknown
    return False


WAYS = pytest.mark.parametrize(("way", "word"), [("run", "COMMIT"), ("write", "INSERT")])


@pytest.mark.case(75)
@WAYS
async def test_a_reply_that_is_lost_is_found_by_the_key(cut, proxy, observer, way, word):
    proxy.fault = Cuts(word, "cut-after")
    assert await insert(cut, 1, way)
    assert await cut.read("all", ALL) == [(1,)]
    assert observer.unknown == ["insert"]
    assert observer.failures == {ErrorClass.AMBIGUOUS: 1, ErrorClass.REPLAY: 1}


@pytest.mark.case(75)
@WAYS
async def test_a_commit_that_never_arrived_is_done_again(cut, proxy, observer, way, word):
    proxy.fault = Cuts(word, "cut-before")
    assert not await insert(cut, 1, way)
    assert await cut.read("all", ALL) == [(1,)]
    assert observer.unknown == ["insert"]


@pytest.mark.case(75)
@WAYS
async def test_many_cuts_and_every_row_once(cut, proxy, way, word):
    for number in range(30):
        faults = ["cut-before", "cut-after"][number % 2 :] if number % 3 else []
        proxy.fault = Cuts(word, *faults)
        assert await insert(cut, number, way) == ("cut-after" in faults)
    assert await cut.read("all", ALL) == [(number,) for number in range(30)]


@pytest.mark.case(75)
async def test_when_every_reply_is_lost_the_outcome_is_unknown_and_the_key_tells_it(cut, proxy):
    proxy.fault = lambda statement: "cut-before" if statement == "COMMIT" else None
    with pytest.raises(Refusal) as caught:
        await insert(cut, 1, "run")
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert caught.value.retry_after
    proxy.fault = lambda _: None
    assert not await insert(cut, 1, "run")
    assert await cut.read("all", ALL) == [(1,)]


async def test_without_a_key_the_store_is_unavailable(cut, proxy):
    proxy.fault = lambda statement: "cut-before" if statement == "COMMIT" else None
    with pytest.raises(Refusal) as caught:
        await insert(cut, 1, "run", keyed=False)
    assert caught.value.reason is Reason.STORE_UNAVAILABLE
    assert "nothing was changed" not in caught.value.message


async def test_what_happens_later_does_not_settle_an_unknown_commit(cut, proxy):
    proxy.fault = Cuts("COMMIT", "cut-after")
    calls = 0

    async def body(conn):
        nonlocal calls
        calls += 1
        if calls > 1:
            raise Refusal(Reason.SESSION_BUSY, "decided on what the first attempt may be about to change")
        await conn.execute(INSERT, (1,))

    with pytest.raises(Refusal) as caught:
        await cut.run("insert", body)
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN


async def test_a_caller_that_leaves_during_commit_does_not_undo_it(cut, proxy, observer):
    proxy.fault = Cuts("COMMIT", "hold-reply")
    call = asyncio.create_task(insert(cut, 1, "run"))
    await proxy.held.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    connections = proxy.connections
    proxy.release.set()
    assert await cut.read("all", ALL) == [(1,)]
    assert await asyncio.gather(*(cut.read("one", "SELECT 1") for _ in range(10))) == [[(1,)]] * 10
    # Nothing was cancelled and no connection was lost.
    assert proxy.connections == connections
    assert not observer.failures


async def test_a_caller_that_leaves_between_two_tries_has_no_other(cut, proxy):
    commits, first = 0, asyncio.Event()

    def fault(statement):
        nonlocal commits
        if statement != "COMMIT":
            return None
        commits += 1
        if commits == 4:  # by now it pauses for long enough to be met there
            first.set()
        return "cut-before"

    proxy.fault = fault
    call = asyncio.create_task(insert(cut, 1, "run"))
    await first.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    proxy.fault = lambda _: None
    assert await cut.read("all", ALL) == []
    await cut.close()
    assert commits == 4


async def test_a_deadline_during_commit_leaves_the_outcome_unknown(cut, proxy, observer):
    proxy.fault = Cuts("COMMIT", "hold-reply")
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(Refusal) as caught:
        await insert(cut, 1, "run", deadline=started + 0.2)
    assert caught.value.reason is Reason.OUTCOME_UNKNOWN
    assert loop.time() - started < 1
    assert observer.unknown == ["insert"]
    proxy.release.set()
    with pytest.raises(Duplicate):
        await cut.write("insert", INSERT, (1,))


async def test_a_caller_that_leaves_in_the_body_undoes_it(cut):
    inside = asyncio.Event()

    async def body(conn):
        await conn.execute(INSERT, (1,))
        inside.set()
        await conn.execute("SELECT pg_sleep(30)")

    call = asyncio.create_task(cut.run("insert", body))
    await inside.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # The same row can be inserted: whoever held it has let go.
    assert await asyncio.wait_for(cut.write("insert", INSERT, (1,)), 10) == []
