"""What each failure means, by its code, its constraint and what was in flight."""

import asyncio

import psycopg
import pytest
from psycopg.pq import DiagnosticField
from psycopg_pool import PoolTimeout
from turnlog_server.store.errors import ErrorClass, Phase, classify

C, P = ErrorClass, Phase
WITHOUT_RISK = (P.BORROW, P.READ, P.BODY)
KEY = "request_ids_pkey"


def error(code: str | None, constraint: str | None = None, base: type[psycopg.Error] = psycopg.DatabaseError):
    """An error as the driver raises it."""
    info = {DiagnosticField.CONSTRAINT_NAME: constraint.encode()} if constraint else None
    made = base("a text that nobody reads", info=info)
    made.sqlstate = code
    return made


# code, what it means while nothing can be half done, what it means with COMMIT in flight
TABLE = [
    ("40001", C.RETRY, C.RETRY),
    ("40P01", C.RETRY, C.RETRY),
    ("CR000", C.RETRY, C.RETRY),
    ("40003", C.RESET, C.AMBIGUOUS),
    ("08007", C.RESET, C.AMBIGUOUS),
    ("08006", C.RESET, C.AMBIGUOUS),
    ("08003", C.RESET, C.AMBIGUOUS),
    ("08001", C.RESET, C.AMBIGUOUS),
    ("08C00", C.RESET, C.AMBIGUOUS),
    ("57P01", C.RESET, C.AMBIGUOUS),
    ("57P02", C.RESET, C.AMBIGUOUS),
    ("57P03", C.RESET, C.AMBIGUOUS),
    ("58C00", C.RESET, C.AMBIGUOUS),
    ("58C01", C.RESET, C.AMBIGUOUS),
    ("XXUUU", C.RESET, C.AMBIGUOUS),
    ("25P03", C.RESET, C.AMBIGUOUS),
    ("25P04", C.RESET, C.AMBIGUOUS),
    ("25006", C.RESET, C.AMBIGUOUS),
    ("0A000", C.RESET, C.RESET),
    ("26000", C.RESET, C.RESET),
    ("57014", C.BUSY, C.AMBIGUOUS),
    ("55P03", C.BUSY, C.BUSY),
    ("53100", C.BACKOFF, C.AMBIGUOUS),
    ("53200", C.BACKOFF, C.AMBIGUOUS),
    ("53300", C.BACKOFF, C.AMBIGUOUS),
    ("53400", C.BACKOFF, C.AMBIGUOUS),
    ("22003", C.FATAL, C.FATAL),
    ("23502", C.FATAL, C.FATAL),
    ("23505", C.FATAL, C.FATAL),
    ("23514", C.FATAL, C.FATAL),
    ("25P02", C.FATAL, C.FATAL),
    ("42601", C.FATAL, C.FATAL),
    ("42P01", C.FATAL, C.FATAL),
    ("54000", C.FATAL, C.FATAL),
    ("XXA00", C.FATAL, C.FATAL),
]


@pytest.mark.parametrize(("code", "safe", "committing"), TABLE)
def test_class_by_code_and_phase(code, safe, committing):
    for phase in WITHOUT_RISK:
        assert classify(error(code), phase) is safe
    assert classify(error(code), P.COMMITTING) is committing


def test_a_socket_that_died_has_no_code():
    dead = psycopg.OperationalError("the connection is lost")
    for phase in WITHOUT_RISK:
        assert classify(dead, phase) is C.RESET
    assert classify(dead, P.COMMITTING) is C.AMBIGUOUS


def test_a_pool_without_a_connection_is_without_risk():
    assert classify(PoolTimeout(), P.BORROW) is C.RESET


@pytest.mark.parametrize("phase", [P.BODY, P.COMMITTING])
def test_only_the_key_of_the_request_means_replay(phase):
    assert classify(error("23505", KEY), phase, {KEY}) is C.REPLAY
    assert classify(error("23505", "names_key"), phase, {KEY}) is C.FATAL
    assert classify(error("23505"), phase, {KEY}) is C.FATAL


@pytest.mark.parametrize("exc", [asyncio.CancelledError(), TimeoutError(), ValueError()])
def test_what_is_not_of_the_database(exc):
    assert classify(exc, P.BODY) is C.FATAL
    assert classify(exc, P.COMMITTING) is C.AMBIGUOUS


def test_a_mistake_in_the_call_is_not_a_lost_connection():
    assert classify(psycopg.ProgrammingError("two placeholders, one value"), P.BODY) is C.FATAL
    assert classify(psycopg.InterfaceError("no such cursor"), P.BODY) is C.FATAL
