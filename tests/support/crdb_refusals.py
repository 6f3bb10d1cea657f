"""What CockroachDB refuses of that which PostgreSQL accepts, as far as a statement's text can tell.

Unlike `sql_lint`, which holds our statements to the house's own rules, this says only what a CockroachDB server would
say: it stands between a server and PostgreSQL and sees every statement that is really sent.
"""

import re
from collections import Counter
from functools import lru_cache

from pglast import ast, enums, parse_sql
from pglast.parser import ParseError
from support.sql_lint import MUTATIONS, SYSTEM_COLUMNS, walk

UNKNOWN_SYNTAX, UNKNOWN_FUNCTION, UNKNOWN_COLUMN, UNSUPPORTED = "42601", "42883", "42703", "0A000"

KINDS: dict[type, str] = {
    ast.ListenStmt: UNKNOWN_SYNTAX,
    ast.NotifyStmt: UNKNOWN_SYNTAX,
    ast.LockStmt: UNKNOWN_SYNTAX,
    ast.MergeStmt: UNKNOWN_SYNTAX,
    ast.RangeTableSample: UNKNOWN_SYNTAX,
    ast.CreateDomainStmt: UNSUPPORTED,
    ast.CreateRangeStmt: UNSUPPORTED,
}
FUNCTIONS = re.compile(r"pg_(try_)?advisory|pg_notify$|pg_listening_channels$|txid_|pg_current_xact_id")


@lru_cache(maxsize=4096)
def refusal(statement: str) -> str | None:
    """The SQLSTATE of the refusal; None for a statement that may pass, or that is not for us to judge."""
    try:
        parsed = parse_sql(statement)
    except ParseError:
        return None  # PostgreSQL says so itself
    return next((code for each in parsed if (code := _judged(each.stmt))), None)


def _judged(root: ast.Node) -> str | None:
    written: Counter[str] = Counter()
    for found in walk(root):
        node = found.node
        if type(node) in KINDS:
            return KINDS[type(node)]
        if isinstance(node, ast.VacuumStmt) and node.is_vacuumcmd:
            return UNKNOWN_SYNTAX
        if isinstance(node, ast.FuncCall) and FUNCTIONS.match(node.funcname[-1].sval):
            return UNKNOWN_FUNCTION
        if isinstance(node, ast.ColumnRef) and getattr(node.fields[-1], "sval", "") in SYSTEM_COLUMNS - {"tableoid"}:
            return UNKNOWN_COLUMN
        if isinstance(node, ast.Constraint) and (node.deferrable or node.contype == enums.ConstrType.CONSTR_EXCLUSION):
            return UNSUPPORTED
        inner = isinstance(node, ast.CommonTableExpr) and isinstance(node.ctequery, MUTATIONS)
        if inner and found.above[-2] is not root:
            return UNSUPPORTED
        if isinstance(node, MUTATIONS):
            written[node.relation.relname] += 1
    return UNSUPPORTED if any(times > 1 for times in written.values()) else None
