"""The steps that make the schema, as files: one idempotent statement each, and how to see that it worked.

A step commits by itself and is followed by a look at the result: CockroachDB finishes a schema change after its
statement, and may take it back. What to look for follows from the statement, or stands beside it in
`NNNN_name.verify.sql`, a query that answers true.

A step that older servers cannot live with says so in a line that begins with `-- breaking:`. There should be none:
add first, take away a release later.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import LiteralString, cast

SETUP_TABLE_EXISTS = """
SELECT count(table_name) = 1 FROM information_schema.tables
 WHERE table_schema = current_schema() AND table_name = %(name)s::text
"""

SETUP_TABLE_ABSENT = """
SELECT count(table_name) = 0 FROM information_schema.tables
 WHERE table_schema = current_schema() AND table_name = %(name)s::text
"""

SETUP_COLUMN_EXISTS = """
SELECT count(column_name) = 1 FROM information_schema.columns
 WHERE table_schema = current_schema() AND table_name = %(name)s::text AND column_name = %(column)s::text
"""

SETUP_COLUMN_ABSENT = """
SELECT count(column_name) = 0 FROM information_schema.columns
 WHERE table_schema = current_schema() AND table_name = %(name)s::text AND column_name = %(column)s::text
"""

# An index whose concurrent build failed exists and is not valid.
SETUP_INDEX_VALID = """
SELECT count(i.indexrelid) = 1
  FROM pg_catalog.pg_index i
  JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = current_schema() AND c.relname = %(name)s::text AND i.indisvalid
"""

SETUP_INDEX_ABSENT = """
SELECT count(indexname) = 0 FROM pg_catalog.pg_indexes
 WHERE schemaname = current_schema() AND indexname = %(name)s::text
"""

SHAPES: tuple[tuple[str, LiteralString], ...] = (
    (r"CREATE TABLE IF NOT EXISTS (?P<name>\w+)", SETUP_TABLE_EXISTS),
    (r"DROP TABLE IF EXISTS (?P<name>\w+)", SETUP_TABLE_ABSENT),
    (r"CREATE (?:UNIQUE )?INDEX (?:CONCURRENTLY )?IF NOT EXISTS (?P<name>\w+)", SETUP_INDEX_VALID),
    (r"DROP INDEX (?:CONCURRENTLY )?IF EXISTS (?P<name>\w+)", SETUP_INDEX_ABSENT),
    (r"ALTER TABLE (?P<name>\w+) ADD COLUMN IF NOT EXISTS (?P<column>\w+)", SETUP_COLUMN_EXISTS),
    (r"ALTER TABLE (?P<name>\w+) DROP COLUMN IF EXISTS (?P<column>\w+)", SETUP_COLUMN_ABSENT),
)

_FILE = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.sql")
_COMMENT = re.compile(r"--[^\n]*")
_BREAKING = re.compile(r"^-- breaking:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Step:
    """One change of the schema.

    verify: a query that answers true once the step has done its work; `names` are its parameters.
    index: the name of the index that the step builds.
    """

    number: int
    name: str
    sql: LiteralString
    verify: LiteralString
    names: dict[str, str]
    breaking: bool = False
    index: str | None = None


def step_of(number: int, name: str, text: str, verify: str | None = None) -> Step:
    """A step from its files. Raises ValueError where nobody could tell whether it worked."""
    statement = " ".join(_COMMENT.sub("", text).split())
    # These are files of this package: as literal as the constants of its modules.
    sql, breaking = cast(LiteralString, text), bool(_BREAKING.search(text))
    if verify is not None:
        return Step(number, name, sql, cast(LiteralString, verify), {}, breaking)
    for shape, query in SHAPES:
        if found := re.match(shape, statement, re.IGNORECASE):
            index = found["name"] if query is SETUP_INDEX_VALID else None
            names = {key: value.lower() for key, value in found.groupdict().items()}
            return Step(number, name, sql, query, names, breaking, index)
    raise ValueError(f"step {number:04}_{name}: say in {number:04}_{name}.verify.sql how to see that it worked")


@cache
def steps_known() -> tuple[Step, ...]:
    """The steps of this server, in order."""
    return steps_in(files("turnlog_server.store") / "migrations")


def steps_in(folder: Traversable) -> tuple[Step, ...]:
    """The steps in a folder, in order. Raises ValueError where two have the same number."""
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")}
    steps: dict[int, Step] = {}
    for file_name, text in sorted(texts.items()):
        if not (found := _FILE.fullmatch(file_name)):
            if file_name.removesuffix(".verify.sql") + ".sql" in texts:
                continue
            raise ValueError(f"{file_name} is not the name of a schema step")
        step = step_of(int(found["number"]), found["name"], text, texts.get(f"{file_name[:-4]}.verify.sql"))
        if step.number in steps:
            raise ValueError(f"two schema steps have the number {step.number:04}")
        steps[step.number] = step
    return tuple(steps[number] for number in sorted(steps))
