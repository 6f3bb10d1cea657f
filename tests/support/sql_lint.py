"""Whether a statement means the same on PostgreSQL and on CockroachDB, as far as its text can tell.

Each rule is a function from a parsed statement to complaints; `complaints` runs them all. PostgreSQL's own parser does
the reading, so what only CockroachDB accepts (UPSERT, LIMIT in an UPDATE) does not even parse.
"""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import turnlog_server.store
from pglast import ast, enums, parse_sql
from pglast.parser import ParseError, fingerprint
from pglast.stream import RawStream
from turnlog_server.store import log_sql

TYPES = {"uuid", "text", "bytea", "bool", "int8", "float8", "timestamptz", "jsonb"}
# Only ever a constant or a factor: `now() + n * interval '1 second'`.
EXPRESSION_TYPES = TYPES | {"interval"}

# Functions that both engines have and that give the same answer on both. Grows with the statements that need more:
# look a function up in CockroachDB's list before it goes in here. Not in here for good: what locks, draws numbers or
# hashes (`sha256` is text there and bytes here), and what makes ids.
FUNCTIONS = {
    "abs array_agg array_length avg bool_and bool_or cardinality clock_timestamp concat convert_from convert_to count",
    "current_schema dense_rank extract floor generate_series generate_subscripts jsonb_agg jsonb_array_elements",
    "jsonb_array_elements_text jsonb_build_array jsonb_build_object jsonb_each jsonb_each_text jsonb_object_agg",
    "jsonb_typeof lag lead left length lower ltrim max min now nullif octet_length position rank replace right",
    "row_number rtrim split_part starts_with string_agg strpos substring sum to_jsonb to_timestamp trim unnest upper",
}
PORTABLE_FUNCTIONS = {name for line in FUNCTIONS for name in line.split()}

SYSTEM_COLUMNS = {"xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"}
CATALOGUES = re.compile(r"pg_|crdb_internal|information_schema|system")

STATEMENTS = (
    ast.SelectStmt,
    ast.InsertStmt,
    ast.UpdateStmt,
    ast.DeleteStmt,
    ast.CreateStmt,
    ast.IndexStmt,
    ast.AlterTableStmt,
    ast.DropStmt,
)
MUTATIONS = (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt)

Constraint = enums.ConstrType


@dataclass(frozen=True, slots=True)
class Found:
    """A node and the nodes above it, nearest last."""

    node: Any
    above: tuple[Any, ...]

    @property
    def parent(self) -> Any:
        return self.above[-1] if self.above else None


@dataclass(frozen=True, slots=True)
class Statement:
    """text: as written, with its slots. setup: it may look into the catalogues."""

    text: str
    root: Any
    found: tuple[Found, ...]
    parameters: tuple[str | None, ...]
    setup: bool

    def of(self, *kinds: type) -> Iterator[Found]:
        return (found for found in self.found if isinstance(found.node, kinds))


VERB = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP)\b")


def statements() -> dict[str, str]:
    """Every statement that is a constant of a module of the store, by `module.NAME`."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(turnlog_server.store.__path__, "turnlog_server.store."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.isupper() and isinstance(value, str) and VERB.match(value):
                found.setdefault(value, f"{module.name.rsplit('.', 1)[-1]}.{name}")
    # The log statement leaves out what a batch has no rows for; the constants have it all.
    for name, text in {"append": log_sql.append(()), "append_one": log_sql.append_one((), many=False)}.items():
        found.setdefault(text, f"log_sql.{name}")
    return {name: text for text, name in found.items()}


def pieces(sql: str) -> frozenset[str]:
    """What a statement is made of, whatever its parameters are called: its common table expressions and the rest."""
    root = parse_sql(sql)[0].stmt
    ctes = getattr(root, "withClause", None)
    parts: list[Any] = [root]
    if ctes is not None:
        parts += [cte.ctequery for cte in ctes.ctes]
        root.withClause = None
    return frozenset(fingerprint(RawStream()(part)) for part in parts)


def casts(text: str) -> dict[str, str]:
    """The placeholders of a statement, each with the type that it is cast to: `int8`, `text[]`."""
    sql, names = numbered(text)
    found: dict[str, str] = {}
    for each in walk(parse_sql(sql)[0].stmt):
        if isinstance(each.node, ast.ParamRef) and isinstance(each.parent, ast.TypeCast):
            kind = each.parent.typeName
            found[names[each.node.number - 1] or ""] = _names(kind.names)[-1] + ("[]" if kind.arrayBounds else "")
    return found


def complaints(text: str, rendered: str | None = None, *, setup: bool = False) -> list[str]:
    """What is wrong with a statement; nothing when it may stand.

    rendered: the same with its slots filled in.
    """
    return [complaint for _, complaint in judged(text, rendered, setup=setup)]


def judged(
    text: str, rendered: str | None = None, *, setup: bool = False
) -> list[tuple[Callable[[Statement], Iterator[str]] | None, str]]:
    """Each complaint with the rule that makes it, None for what cannot be read at all."""
    try:
        sql, parameters = numbered(rendered or text)
        parsed = parse_sql(sql)
    except ParseError as exc:
        return [(None, f"it does not parse: {exc}")]
    if len(parsed) != 1:
        return [(None, f"it is {len(parsed)} statements")]
    root = parsed[0].stmt
    statement = Statement(text, root, tuple(walk(root)), parameters, setup)
    return [(rule, complaint) for rule in RULES for complaint in rule(statement)]


def numbered(text: str) -> tuple[str, tuple[str | None, ...]]:
    """The driver's placeholders as `$1`, and the name of each."""
    names: list[str | None] = []

    def number(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        name = match[1]
        if name is None or name not in names:
            names.append(name)
            return f"${len(names)}"
        return f"${names.index(name) + 1}"

    return re.sub(r"%%|%(?:\((\w+)\))?[sbt]", number, text), tuple(names)


def walk(node: Any, above: tuple[Any, ...] = ()) -> Iterator[Found]:
    """Every node of a tree, with those above it."""
    if isinstance(node, ast.Node):
        yield Found(node, above)
        for name in node:
            yield from walk(getattr(node, name), (*above, node))
    elif isinstance(node, tuple | list):
        for item in node:
            yield from walk(item, above)


def _names(strings: Any) -> list[str]:
    return [string.sval for string in strings or () if isinstance(string, ast.String)]


def known_kind(it: Statement) -> Iterator[str]:
    if not isinstance(it.root, STATEMENTS):
        yield f"{type(it.root).__name__} is not a statement of the portable layer"


def names_columns(it: Statement) -> Iterator[str]:
    for _ in it.of(ast.A_Star):
        yield "`*` stands where columns must be named"


def uses_portable_types(it: Statement) -> Iterator[str]:
    for found in it.of(ast.TypeName):
        names = _names(found.node.names)
        column = isinstance(found.parent, ast.ColumnDef)
        allowed = TYPES if column else EXPRESSION_TYPES
        # `INTEGER` and its like are aliases that the parser resolves, and not the same width on both.
        if names[-1] not in allowed or (len(names) > 1 and names != ["pg_catalog", "interval"]):
            yield f"the type {'.'.join(names)} is not one of {', '.join(sorted(allowed))}"
        if column and found.node.arrayBounds:
            yield "a column is an array"


def casts_placeholders(it: Statement) -> Iterator[str]:
    casts: dict[int, set[str]] = {}
    for found in it.of(ast.ParamRef):
        number = found.node.number
        name = it.parameters[number - 1] or number
        if not isinstance(found.parent, ast.TypeCast):
            yield f"placeholder {name} has no cast"
            continue
        kind = found.parent.typeName
        casts.setdefault(number, set()).add(_names(kind.names)[-1] + ("[]" if kind.arrayBounds else ""))
        if len(casts[number]) > 1:
            yield f"placeholder {name} is cast to different types"


def calls_portable_functions(it: Statement) -> Iterator[str]:
    for found in it.of(ast.FuncCall):
        name = _names(found.node.funcname)[-1]
        if name not in PORTABLE_FUNCTIONS and not (it.setup and name.startswith("pg_")):
            yield f"the function {name} is not known to mean the same on both engines"


def mutates_at_the_top(it: Statement) -> Iterator[str]:
    for found in it.of(ast.CommonTableExpr):
        # above: …, the statement, its WITH
        if isinstance(found.node.ctequery, MUTATIONS) and found.above[-2] is not it.root:
            yield f"the CTE {found.node.ctename} writes and is not at the top"


def mutates_each_table_once(it: Statement) -> Iterator[str]:
    tables = Counter(found.node.relation.relname for found in it.of(*MUTATIONS))
    for table, times in tables.items():
        if times > 1:
            yield f"{table} is written {times} times in one statement"


def names_no_arbiter(it: Statement) -> Iterator[str]:
    for found in it.of(ast.InferClause):
        if found.node.conname:
            yield "ON CONFLICT names a constraint and not its columns"
        for element in found.node.indexElems or ():
            if element.expr is not None:
                yield "ON CONFLICT has an expression"


def orders_what_it_limits(it: Statement) -> Iterator[str]:
    for found in it.of(ast.SelectStmt):
        if found.node.limitCount is not None and not found.node.sortClause:
            yield "LIMIT without ORDER BY"
        if found.node.limitOffset is not None:
            yield "OFFSET: page by key"


def leaves_collation_alone(it: Statement) -> Iterator[str]:
    for _ in it.of(ast.CollateClause):
        yield "COLLATE: text is ordered by its bytes"


def stays_out_of_catalogues(it: Statement) -> Iterator[str]:
    for found in it.of(ast.ColumnRef):
        names = _names(found.node.fields)
        if names and names[-1] in SYSTEM_COLUMNS:
            yield f"the system column {names[-1]}"
    if it.setup:
        return
    for found in it.of(ast.RangeVar):
        if CATALOGUES.match(found.node.schemaname or found.node.relname):
            yield f"the catalogue {found.node.schemaname or found.node.relname}"


def skips_locked_by_dialect(it: Statement) -> Iterator[str]:
    if re.search(r"\bSKIP\s+LOCKED\b", it.text, re.IGNORECASE):
        yield "SKIP LOCKED stands in the text and not in a slot of the dialect"


def divides_floats(it: Statement) -> Iterator[str]:
    for found in it.of(ast.A_Expr):
        if _names(found.node.name) == ["/"]:
            casts = (found.node.lexpr, found.node.rexpr)
            if not any(isinstance(c, ast.TypeCast) and _names(c.typeName.names)[-1] == "float8" for c in casts):
                yield "a division without a FLOAT8: of integers it is a decimal on CockroachDB"


def creates_what_is_not_there(it: Statement) -> Iterator[str]:
    if isinstance(it.root, ast.CreateStmt | ast.IndexStmt) and not it.root.if_not_exists:
        yield "CREATE without IF NOT EXISTS"
    if isinstance(it.root, ast.DropStmt) and not it.root.missing_ok:
        yield "DROP without IF EXISTS"
    for found in it.of(ast.AlterTableCmd):
        if found.node.subtype == enums.AlterTableType.AT_AddColumn and not found.node.missing_ok:
            yield "ADD COLUMN without IF NOT EXISTS"
        if found.node.subtype == enums.AlterTableType.AT_AddConstraint:
            yield "ADD CONSTRAINT: it belongs in CREATE TABLE"


def keeps_tables_plain(it: Statement) -> Iterator[str]:
    if isinstance(it.root, ast.CreateStmt) and it.root.relation.relpersistence == "t":
        yield "a temporary table"
    for found in it.of(ast.Constraint):
        kind = found.node.contype
        if kind == Constraint.CONSTR_UNIQUE:
            yield "UNIQUE in CREATE TABLE: make it an index of its own"
        elif kind in (Constraint.CONSTR_FOREIGN, Constraint.CONSTR_EXCLUSION):
            yield "a foreign key or an exclusion"
        elif kind in (Constraint.CONSTR_IDENTITY, Constraint.CONSTR_GENERATED):
            yield "a column that the database fills"
        elif kind in (Constraint.CONSTR_PRIMARY, Constraint.CONSTR_CHECK) and not found.node.conname:
            yield "a PRIMARY KEY or CHECK without a name of its own"
        elif kind == Constraint.CONSTR_DEFAULT and not _constant_or_now(found.node.raw_expr):
            yield "a DEFAULT that is neither a constant nor now()"


def _constant_or_now(expression: Any) -> bool:
    if isinstance(expression, ast.TypeCast):
        expression = expression.arg
    if isinstance(expression, ast.FuncCall):
        return _names(expression.funcname) == ["now"]
    return isinstance(expression, ast.A_Const)


RULES: tuple[Callable[[Statement], Iterator[str]], ...] = (
    known_kind,
    names_columns,
    uses_portable_types,
    casts_placeholders,
    calls_portable_functions,
    mutates_at_the_top,
    mutates_each_table_once,
    names_no_arbiter,
    orders_what_it_limits,
    leaves_collation_alone,
    stays_out_of_catalogues,
    skips_locked_by_dialect,
    divides_floats,
    creates_what_is_not_there,
    keeps_tables_plain,
)
