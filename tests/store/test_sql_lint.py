"""Every statement of the store is written for both engines.

Names that begin with `PG_` are statements for PostgreSQL alone, which need only parse; those that begin with `SETUP_`
look at the schema and may read the catalogues.
"""

import re
from importlib.resources import files

import pytest
from pglast import parse_sql
from support.sql_lint import RULES, complaints, judged, numbered, statements
from turnlog_server.store.dialect import COCKROACH, POSTGRES
from turnlog_server.store.steps import steps_known


def constants():
    return [pytest.param(text, id=name) for name, text in statements().items()]


def step_files():
    folder = files("turnlog_server.store") / "migrations"
    return [pytest.param(entry, id=entry.name) for entry in sorted(folder.iterdir(), key=lambda e: e.name)]


def with_names(text):
    """Slots of other things than the dialect's, such as an identifier, as a name."""
    return re.sub(r"\{(\w+)\}", r"slot_\1", text)


def test_there_are_statements():
    assert len(constants()) > 10
    assert len(step_files()) > 2


@pytest.mark.parametrize("text", constants())
@pytest.mark.parametrize("dialect", [POSTGRES, COCKROACH], ids=lambda dialect: dialect.name)
def test_statement(text, dialect, request):
    rendered = with_names(dialect.sql(text))
    name = request.node.callspec.id.rsplit(".", 1)[-1]
    if name.startswith("PG_"):
        parse_sql(numbered(rendered)[0])
    else:
        assert complaints(text, rendered, setup=name.startswith("SETUP_")) == []


@pytest.mark.parametrize("entry", step_files())
def test_step(entry):
    assert entry.name.endswith(".sql")
    assert complaints(entry.read_text("utf-8"), setup=entry.name.endswith(".verify.sql")) == []


def test_steps_can_be_told_apart():
    steps = steps_known()
    assert [step.number for step in steps] == sorted({step.number for step in steps})
    assert len({step.name for step in steps}) == len(steps)


@pytest.mark.parametrize(("table", "statement"), POSTGRES.post_schema)
def test_post_schema_parses_and_names_its_table(table, statement):
    parse_sql(statement)
    assert table in statement.split()
    assert table in {step.names.get("name") for step in steps_known()}


PLANTED = {
    "it does not parse": [
        "UPDATE t SET a = 1 LIMIT 1",
        "DELETE FROM t ORDER BY a",
        "UPSERT INTO t VALUES (1)",
    ],
    "it is 2 statements": ["SELECT 1; SELECT 2"],
    "is not a statement": ["LOCK TABLE t", "LISTEN c", "DO 'x'", "COPY t FROM STDIN", "SAVEPOINT s", "VACUUM t"],
    "columns must be named": [
        "SELECT * FROM t",
        "SELECT t.* FROM t",
        "INSERT INTO t (a) VALUES (1) RETURNING *",
        "WITH w AS (SELECT * FROM u) SELECT a FROM w",
    ],
    "the type": [
        "SELECT %s::integer",
        "SELECT a::numeric FROM t",
        "SELECT %s::bigint",
        "CREATE TABLE IF NOT EXISTS t (a SERIAL)",
        "CREATE TABLE IF NOT EXISTS t (a INTERVAL)",
        "CREATE TABLE IF NOT EXISTS t (a VARCHAR(3))",
    ],
    "a column is an array": ["CREATE TABLE IF NOT EXISTS t (a TEXT[])"],
    "has no cast": ["SELECT a FROM t WHERE a = %s", "SELECT a FROM t WHERE a = %(a)s AND b = %(b)s::int8"],
    "cast to different types": ["SELECT a FROM t WHERE a = %(a)s::int8 OR b = %(a)s::text"],
    "the function": [
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_xact_lock(1)",
        "SELECT sha256(a) FROM t",
        "SELECT nextval('s')",
        "SELECT gen_random_uuid()",
        "SELECT pg_notify('c', 'p')",
    ],
    "is not at the top": ["SELECT a FROM (WITH w AS (DELETE FROM t RETURNING a) SELECT a FROM w) x"],
    "is written 2 times": [
        "WITH w AS (INSERT INTO t (a) VALUES (1) RETURNING a) UPDATE t SET a = 2",
        "WITH v AS (DELETE FROM t RETURNING a), w AS (DELETE FROM t RETURNING a) SELECT 1",
    ],
    "names a constraint": ["INSERT INTO t (a) VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING"],
    "has an expression": ["INSERT INTO t (a) VALUES ('x') ON CONFLICT (lower(a)) DO NOTHING"],
    "LIMIT without ORDER BY": [
        "SELECT a FROM t LIMIT 1",
        "UPDATE t SET a = 1 WHERE a IN (SELECT a FROM t LIMIT 1)",
    ],
    "OFFSET": ["SELECT a FROM t ORDER BY a LIMIT 1 OFFSET 5"],
    "COLLATE": ['SELECT a FROM t ORDER BY a COLLATE "C"'],
    "the system column": ["SELECT a FROM t ORDER BY t.xmin", "SELECT ctid FROM t"],
    "the catalogue": [
        "SELECT a FROM pg_catalog.pg_class",
        "SELECT pid FROM pg_stat_activity",
        "SELECT a FROM information_schema.tables",
        "SELECT a FROM crdb_internal.ranges",
    ],
    "SKIP LOCKED": ["SELECT a FROM t ORDER BY a FOR UPDATE SKIP  LOCKED"],
    "a division": ["SELECT a / b FROM t"],
    "without IF": [
        "CREATE TABLE t (a INT8)",
        "CREATE INDEX i ON t (a)",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN a INT8",
    ],
    "ADD CONSTRAINT": ["ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0)"],
    "a temporary table": ["CREATE TEMPORARY TABLE IF NOT EXISTS t (a INT8)"],
    "UNIQUE in CREATE TABLE": [
        "CREATE TABLE IF NOT EXISTS t (a INT8 UNIQUE)",
        "CREATE TABLE IF NOT EXISTS t (a INT8, CONSTRAINT u UNIQUE (a))",
    ],
    "a foreign key": ["CREATE TABLE IF NOT EXISTS t (a INT8 REFERENCES u (a) ON DELETE CASCADE)"],
    "the database fills": [
        "CREATE TABLE IF NOT EXISTS t (a INT8 GENERATED ALWAYS AS IDENTITY)",
        "CREATE TABLE IF NOT EXISTS t (a INT8, b INT8 GENERATED ALWAYS AS (a + 1) STORED)",
    ],
    "without a name": [
        "CREATE TABLE IF NOT EXISTS t (a INT8 PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS t (a INT8, CHECK (a > 0))",
    ],
    "neither a constant": ["CREATE TABLE IF NOT EXISTS t (a INT8 DEFAULT 1 + 1)"],
}


@pytest.mark.parametrize(
    ("complaint", "text"), [(complaint, text) for complaint, texts in PLANTED.items() for text in texts]
)
def test_a_planted_breach_is_seen(complaint, text):
    assert any(complaint in said for said in complaints(text)), complaints(text)


def test_every_rule_sees_a_planted_breach():
    seen = {rule for texts in PLANTED.values() for text in texts for rule, _ in judged(text)}
    assert seen >= set(RULES)


GOOD = [
    "SELECT a FROM t WHERE (a, b) > (%s::int8, %s::text) ORDER BY a, b LIMIT %s::int8",
    "UPDATE t SET a = 1 WHERE k IN (SELECT k FROM t ORDER BY k LIMIT 10) RETURNING k",
    "INSERT INTO t (a) VALUES (%(a)s::int8) ON CONFLICT (a) WHERE b DO UPDATE SET a = excluded.a",
    "SELECT x.a, x.n FROM unnest(%s::text[], %s::bytea[]) WITH ORDINALITY AS x(a, b, n) ORDER BY x.n",
    "UPDATE t SET at = now() + %s::float8 * interval '1 second' WHERE a = ANY(%s::uuid[])",
    "SELECT a::float8 / b FROM t",
    "CREATE TABLE IF NOT EXISTS t (a INT8 NOT NULL DEFAULT 0, at TIMESTAMPTZ NOT NULL DEFAULT now(),"
    " CONSTRAINT t_pkey PRIMARY KEY (a), CONSTRAINT t_a CHECK (a >= 0)) WITH (fillfactor = 70)",
    "CREATE UNIQUE INDEX IF NOT EXISTS t_a ON t (a) INCLUDE (b) WHERE b > 0",
    "ALTER TABLE t ADD COLUMN IF NOT EXISTS b BOOL NOT NULL DEFAULT FALSE",
    "WITH w AS (INSERT INTO t (a) VALUES (1) RETURNING a), v AS (UPDATE u SET a = 1) SELECT a FROM w",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_may_stand(text):
    assert complaints(text) == []
