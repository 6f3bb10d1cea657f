"""Subjects, keys, pools and request ids in the tables: paging, uniqueness, and no full scan."""

import asyncio
import json

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sql_lint import numbered
from support.tenants import Replica, tenant
from support.wire import wire_proxy
from turnlog_server.domain.access import Role
from turnlog_server.domain.credentials import CHANCE_BYTES, ApiKey, make_secret
from turnlog_server.domain.pages import Window
from turnlog_server.domain.requests import AcceptedRequest, RequestKey
from turnlog_server.domain.workspace import RunnerPool, Subject, SubjectKind
from turnlog_server.store import access, agents, credentials, profiles, requests
from turnlog_server.store.access import (
    pool_find,
    pool_insert,
    pool_list,
    subject_insert,
    subject_list,
    workspace_insert,
)
from turnlog_server.store.credentials import credential_by_id, credential_by_prefix, key_insert, key_list
from turnlog_server.store.database import Database
from turnlog_server.store.errors import Duplicate
from turnlog_server.store.execute import reading, within
from turnlog_server.store.requests import REQUEST_PKEY, request_find, request_insert

SLOW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MODULES = (access, agents, credentials, profiles, requests)
STATEMENTS = {
    f"{module.__name__.rsplit('.', 1)[-1]}.{name}": text
    for module in MODULES
    for name, text in vars(module).items()
    if name.isupper() and isinstance(text, str) and " " in text and not name.startswith("_")
}


async def written(database, write):
    """Runs `write(execute)` in a transaction of its own."""

    async def body(conn):
        await write(within(conn))

    await database.run("test", body)


def subject(number, time, workspace_id="ws_1", kind=SubjectKind.PRINCIPAL):
    return Subject(f"prn_{number:04}", workspace_id, kind, "someone", Role.VIEWER, time)


def key(number, time):
    secret = make_secret(number.to_bytes(CHANCE_BYTES, "little"))
    return ApiKey(f"key_{number:04}", "ws_1", "prn_0001", "k", secret.prefix, ("default",), time), secret


@pytest.mark.only_on("postgresql", "crdb-switches", reason="reads PostgreSQL's plans")
@pytest.mark.parametrize("full", [False, True], ids=["empty", "full"])
async def test_no_statement_reads_a_whole_table(database, full):
    if full:
        await fill(database)
    conn = await database.connect("explain")
    try:
        for name, text in STATEMENTS.items():
            plan = await explain(conn, text)
            assert "Seq Scan" not in plan, name
            # An index that is read from end to end is no better.
            assert plan.count('"Scan Direction"') <= plan.count('"Index Cond"'), name
        planted = "SELECT subject_id FROM subjects WHERE display_name = %(name)s::text"
        assert "Seq Scan" in await explain(conn, planted)
    finally:
        await conn.close()


async def fill(database):
    """Enough rows of many workspaces that a plan without its index would show."""
    one = await tenant(database)
    replica = Replica(database)
    await replica.call(one.manager, "CreateAgent", name="a")

    async def rows(execute):
        for number in range(300):
            await subject_insert(execute, subject(number, number, f"ws_{number % 7}"))
            await pool_insert(execute, RunnerPool(f"ws_{number % 7}", f"p{number}", "", number))

    await written(database, rows)

    async def analyze(conn):
        await conn.execute("ANALYZE")

    await database.run("analyze", analyze)


async def explain(conn, text):
    # As the server plans it: with placeholders, not with values. They have to travel as part of the text.
    plain = numbered(text)[0].replace("%%", "%")
    cursor = await psycopg.AsyncClientCursor(conn).execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {plain}")
    [(plan,)] = await cursor.fetchall()
    return json.dumps(plan)


def test_the_statements_are_looked_at():
    assert len(STATEMENTS) > 40


async def read_pages(list_page, size, between):
    """All entries of a list, page by page, with `between(page_number)` before each next page."""
    entries, window, number = [], Window(None, size), 0
    while True:
        page = await list_page(window)
        entries += page.items
        assert len(page.items) <= size
        if not page.more:
            return entries
        number += 1
        await between(number)
        window = Window(page.items[-1].position, size)


@SLOW
@given(
    times=st.lists(st.integers(1, 6), max_size=14),
    later=st.lists(st.integers(1, 9), max_size=6),
    size=st.integers(1, 5),
)
async def test_pages_by_time_never_skip_or_repeat_under_inserts(database, times, later, size):
    await clean(database, "subjects", "api_keys")
    numbers = iter(range(10_000))

    async def insert(execute, time):
        number = next(numbers)
        await subject_insert(execute, subject(number, time))
        made, secret = key(number, time)
        await key_insert(execute, made, secret.digest)

    async def first(execute):
        for time in times:
            await insert(execute, time)

    await written(database, first)
    execute = reading(database, "test")
    for list_page in (
        lambda window: subject_list(execute, "ws_1", SubjectKind.PRINCIPAL, window),
        lambda window: key_list(execute, "ws_1", window),
    ):
        before = [item.position for item in await read_pages(list_page, 100, none)]
        new = iter(later)

        async def between(_, new=new):
            if (time := next(new, None)) is not None:
                await written(database, lambda execute: insert(execute, time))

        seen = [item.position for item in await read_pages(list_page, size, between)]
        assert len(seen) == len(set(seen))
        assert seen == sorted(seen, reverse=True)
        assert set(before) <= set(seen)


@SLOW
@given(
    names=st.lists(st.sampled_from("abcdefghijklmnop"), unique=True, max_size=12),
    later=st.lists(st.sampled_from("ABCDEFGHqrstuvwx0123"), unique=True, max_size=6),
    size=st.integers(1, 5),
)
async def test_pages_by_name_never_skip_or_repeat_under_inserts(database, names, later, size):
    await clean(database, "runner_pools")

    async def first(execute):
        for name in names:
            await pool_insert(execute, RunnerPool("ws_1", name, "", 1))

    await written(database, first)
    execute, new = reading(database, "test"), iter(later)

    async def between(_):
        if (name := next(new, None)) is not None:
            await written(database, lambda execute: pool_insert(execute, RunnerPool("ws_1", name, "", 1)))

    seen = [pool.name for pool in await read_pages(lambda window: pool_list(execute, "ws_1", window), size, between)]
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)
    assert set(names) <= set(seen)


async def none(_):
    pass


async def clean(database, *tables):
    async def body(conn):
        for table in tables:
            await conn.execute(f"DELETE FROM {table}")

    await database.run("clean", body)


async def test_lists_keep_to_their_workspace_and_kind(database):
    async def rows(execute):
        await subject_insert(execute, subject(1, 1))
        await subject_insert(execute, subject(2, 2, "ws_2"))
        await subject_insert(execute, subject(3, 3, kind=SubjectKind.SERVICE_ACCOUNT))
        await pool_insert(execute, RunnerPool("ws_2", "default", "", 1))

    await written(database, rows)
    execute = reading(database, "test")
    page = await subject_list(execute, "ws_1", SubjectKind.PRINCIPAL, Window(None, 10))
    assert [item.subject_id for item in page.items] == ["prn_0001"]
    assert await pool_find(execute, "ws_1", ["default"]) == {}
    assert list(await pool_find(execute, "ws_2", ["default", "gone"])) == ["default"]


async def test_a_credential_is_key_role_and_epoch_at_once(database):
    made, secret = key(7, 1)

    async def rows(execute):
        await workspace_insert(execute, "ws_1", "one")
        await subject_insert(execute, subject(1, 1))
        await key_insert(execute, made, secret.digest)

    await written(database, rows)
    execute = reading(database, "test")
    found = await credential_by_prefix(execute, made.prefix)
    assert found is not None
    assert secret.proves(found.digest)
    assert secret.digest.hex() not in repr(found)
    assert (found.caller.role, found.caller.epoch, found.caller.runner_pools) == (Role.VIEWER, 1, ("default",))
    assert await credential_by_id(execute, made.api_key_id) == found
    assert await credential_by_prefix(execute, "0" * 12) is None


async def test_a_request_is_remembered_once_whatever_its_effect(database):
    accepted = AcceptedRequest(RequestKey("ws_1", "prn_1", "CreateAgent", "r1"), b"print", "agt_1")
    await written(database, lambda execute: request_insert(execute, accepted))
    with pytest.raises(Duplicate) as taken:
        await written(database, lambda execute: request_insert(execute, accepted))
    assert taken.value.constraint == REQUEST_PKEY
    execute = reading(database, "test")
    found = await request_find(execute, "ws_1", "prn_1", "CreateAgent", "r1")
    assert found is not None
    assert (found.key, found.fingerprint, found.resource_id) == (accepted.key, b"print", "agt_1")
    assert found.accept_time > 1_600_000_000_000_000
    for other in [("ws_2", "prn_1", "CreateAgent", "r1"), ("ws_1", "prn_2", "CreateAgent", "r1")]:
        assert await request_find(execute, *other) is None


class Lost:
    """The reply of the first so many COMMITs never comes."""

    def __init__(self, count):
        self.left = count

    def __call__(self, statement):
        if statement.startswith("COMMIT") and self.left:
            self.left -= 1
            return "cut-after"
        return None


@pytest.mark.parametrize("dialect", [None, "crdb"], ids=["postgresql", "crdb-switches"])
@pytest.mark.parametrize("lost", [1, 2])
async def test_a_change_whose_commit_was_lost_is_made_once_and_shows_its_secret(dsn, dialect, lost):
    async with wire_proxy(dsn) as proxy:
        database = await Database.open(proxy.dsn, pool_size=3, force_dialect=dialect)
        try:
            one = await tenant(database)
            replica = Replica(database)
            await replica.call(one.manager, "GetWorkspace")
            proxy.fault = Lost(lost)
            made = await replica.call(one.manager, "CreateApiKey", subject=one.manager_id, display_name="k")
            assert made.secret
            assert not made.replayed
            await replica.authenticator.authenticate(made.secret)
            proxy.fault = Lost(lost)
            agent = await replica.call(one.manager, "CreateAgent", name="support")
            assert not agent.replayed
            proxy.fault = Lost(lost)
            await replica.call(one.manager, "PublishAgentVersion", agent_id=agent.agent.agent_id)
            keys = (await replica.call(one.manager, "ListApiKeys")).api_keys
            assert len(keys) == 2
            versions = await replica.call(one.manager, "ListAgentVersions", agent_id=agent.agent.agent_id)
            assert len(versions.agent_versions) == 1
        finally:
            await database.close()


async def test_changes_of_access_in_one_workspace_come_one_after_another(database):
    one = await tenant(database)
    replica = Replica(database)
    start = (await replica.authenticator.authenticate(one.manager)).epoch
    await asyncio.gather(
        *(replica.call(one.manager, "CreatePrincipal", display_name=f"p{n}", role="ROLE_VIEWER") for n in range(4))
    )
    caller = await replica.authenticator.judge(await replica.authenticator.authenticate(one.manager))
    assert caller.epoch == start + 4
