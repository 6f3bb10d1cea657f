"""Log lines carry what a call is about, and nothing that nobody may read."""

import json
import logging

import pytest
import structlog
from turnlog_server.app.logs import HIDDEN, configure, without_secrets


@pytest.fixture(autouse=True)
def _as_before() -> object:
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    logging.basicConfig(force=True, level="WARNING")


def test_lines_are_json_with_what_the_call_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    with structlog.contextvars.bound_contextvars(call_id="c1", request_id="r1", session_id="sess_1"):
        structlog.get_logger("a").info("hello", count=1)
        structlog.get_logger("a").debug("not shown")
        logging.getLogger("library").warning("and %s", "this")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["message"], ours["count"], ours["level"], ours["logger"]) == ("hello", 1, "info", "a")
    assert (ours["call_id"], ours["request_id"], ours["session_id"]) == ("c1", "r1", "sess_1")
    assert (theirs["message"], theirs["call_id"]) == ("and this", "c1")


@pytest.mark.parametrize("form", ["json", "human"])
def test_errors_show_no_values_of_variables(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", form)  # type: ignore[arg-type]
    secret = "xyzzy"
    try:
        raise ValueError("cannot connect to postgresql://u:hunter2@db/x")
    except ValueError:
        structlog.get_logger("a").exception("bad")
    said = capsys.readouterr().err
    assert "ValueError" in said
    assert secret not in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("key tlk_0123456789ab_abcdefghijkl was used", f"key tlk_0123456789ab_{HIDDEN} was used"),
        ("authorization: Bearer abc.def", f"authorization: Bearer {HIDDEN}"),
        ("postgresql://me:pw@db/x", f"postgresql://me:{HIDDEN}@db/x"),
        ("host=db password='a b' user=x", f"host=db password={HIDDEN} user=x"),
        (b"bytes of a message", "18 bytes"),
        ({"token": "t", "kept": ["Bearer x"]}, {"token": HIDDEN, "kept": [f"Bearer {HIDDEN}"]}),
        (7, 7),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(value: object, shown: object) -> None:
    assert without_secrets(None, "", {"event": value}) == {"event": shown}


def test_fields_that_are_secrets_by_name() -> None:
    for name in ("key", "token", "lease_token", "authorization", "payload", "text"):
        assert without_secrets(None, "", {name: "anything"}) == {name: HIDDEN}
