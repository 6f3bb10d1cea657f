"""Every statement of the store finds its rows by an index, on fresh tables and on full ones.

The planner is asked for the plan that the service gets: under the settings of its connections, made once for whatever
the parameters may be. With sequential scans off it may walk a whole index instead, which is no better: so a scan has to
have a condition on its index.
"""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from support.sql_lint import numbered, statements
from turnlog_server.store.dialect import COCKROACH_SWITCHES_ON_POSTGRES, POSTGRES

pytestmark = pytest.mark.only_on("postgresql", "crdb-switches", reason="reads PostgreSQL's plans")

# What grows with use, and what grows with the number of those who use it.
LARGE, SMALL = 50_000, 2_000
ROWS = {"events": 200_000} | dict.fromkeys(
    ("request_ids", "run_attempts", "run_queue", "runs", "session_heads", "session_states", "sessions", "timers"), LARGE
)

# What a column holds in a full table; otherwise a value of its type that no other row has.
FILLED = {
    "run_queue.state": "(ARRAY['READY', 'HELD', 'GONE'])[1 + g % 3]",
    "subjects.kind": "'PRINCIPAL'",
    "subjects.role": "(ARRAY['MANAGER', ''])[1 + g % 2]",
    "run_queue.workspace_id": "'x' || g % 10",
    "run_queue.shard": "0",
    "timers.shard": "0",
    "events.session_id": "'x' || g % 1000",
    "runs.session_id": "'x' || g % 1000",
    "events.type": "(ARRAY['user.message', 'agent.message'])[1 + g % 2]",
}
EXPRESSIONS = {
    "text": "'x' || g",
    "bigint": "g",
    "boolean": "g % 2 = 0",
    "bytea": "decode(md5(g::text), 'hex') || decode(md5(g::text), 'hex')",
    "jsonb": "'{}'::jsonb",
    "timestamp with time zone": "now() + g * interval '1 second'",
}

# What may walk an index from one end, and why.
EXCUSED = {
    "migrate.STEPS_RECORDED": "a row for each file of the schema, read at start",
    "queue.ATTEMPT_ORPHANS": "looks at every held attempt: no more than there are runners at work",
    "runners.RUNNER_LOSE": "looks at every runner that is not lost: an index on their leases costs more than it saves",
    "sweeps.DELETED_LIST": "takes the first rows of a table that holds only what is to be swept",
    "sweeps.REPLICA_OTHERS": "a row for each replica",
}


def catalogue(conn: psycopg.Connection) -> dict[str, list[tuple[str, str]]]:
    rows = conn.execute(
        "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'"
        " ORDER BY table_name, ordinal_position"
    ).fetchall()
    tables: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in rows:
        tables.setdefault(table, []).append((column, kind))
    return tables


def fill(conn: psycopg.Connection) -> None:
    """Rows in every table, and statistics of them."""
    for table, columns in catalogue(conn).items():
        values = ", ".join(FILLED.get(f"{table}.{column}", EXPRESSIONS[kind]) for column, kind in columns)
        names = ", ".join(column for column, _ in columns)
        conn.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM generate_series(1, {ROWS.get(table, SMALL)}) AS g"
            " ON CONFLICT DO NOTHING"  # type: ignore[arg-type]
        )
    conn.execute("ANALYZE")


@pytest.fixture(scope="module", params=["fresh", "full"])
def tables(request, postgres, schema_template):
    dsn = postgres.database_create(schema_template)
    with psycopg.connect(dsn, autocommit=True) as conn:
        if request.param == "full":
            fill(conn)
        yield conn
    postgres.database_drop(dsn)


def plan_of(conn, dialect, text) -> dict[str, Any]:
    for name, value in dialect.settings.items():
        conn.execute(f"SET {name} = '{value}'")
    query, _ = numbered(with_names(dialect.sql(text)))
    return conn.execute("EXPLAIN (GENERIC_PLAN, FORMAT JSON) " + query).fetchone()[0][0]["Plan"]


def with_names(text: str) -> str:
    return re.sub(r"\{(\w+)\}", r"slot_\1", text)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def unindexed(plan: dict[str, Any]) -> list[str]:
    """The scans of tables that have no condition on an index."""
    return [
        f"{node['Node Type']} of {node.get('Relation Name') or node.get('Index Name')}"
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" or ("Index Name" in node and not node.get("Index Cond"))
    ]


STATEMENTS = {
    name: text
    for name, text in statements().items()
    if not name.rpartition(".")[2].startswith(("PG_", "SETUP_", "_"))
    and re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)", text)
}


@pytest.mark.parametrize("dialect", [POSTGRES, COCKROACH_SWITCHES_ON_POSTGRES], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_finds_its_rows_by_an_index(tables, dialect, name):
    found = unindexed(plan_of(tables, dialect, STATEMENTS[name]))
    if name not in EXCUSED:
        assert not found


def test_no_excuse_is_left_over(tables):
    assert all(unindexed(plan_of(tables, POSTGRES, STATEMENTS[name])) for name in EXCUSED)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT e.seq FROM events e WHERE e.type = %(type)s::text",
        "SELECT count(*) FROM runs",
        "DELETE FROM timers WHERE due_at = 0",
    ],
)
def test_a_statement_without_an_index_is_seen(tables, text):
    assert numbered(text)
    assert unindexed(plan_of(tables, POSTGRES, text))
