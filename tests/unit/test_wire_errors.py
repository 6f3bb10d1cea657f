"""A refusal as a status that every client can take."""

import base64
import urllib.parse

import pytest
from google.rpc import error_details_pb2
from turnlog_server.domain.refusals import FieldViolation, Reason, Refusal
from turnlog_server.wire.errors import status_of


@pytest.mark.case(94)
@pytest.mark.parametrize("text", ["x", "ж", "\n", "🙂"])
@pytest.mark.parametrize("length", [1, 100, 100_000])
def test_whatever_is_wrong_fits_the_trailers(text: str, length: int) -> None:
    long = text * length
    fields = tuple(FieldViolation(long, long) for _ in range(500))
    status = status_of(Refusal(Reason.INVALID_FIELD, long, {"field": long}, fields))
    assert len(status.message.encode()) <= 1024
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert info.reason == "INVALID_FIELD"
    assert 1 <= len(bad.field_violations) <= 500
    assert len(urllib.parse.quote(status.message)) + len(base64.b64encode(status.SerializeToString())) < 7.5 * 1024
