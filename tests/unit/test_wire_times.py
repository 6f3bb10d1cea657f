"""Moments and durations, both ways."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from turnlog_server.domain.refusals import Reason, Refusal
from turnlog_server.wire.times import FIRST_SECOND, LAST_SECOND, duration, length, moment, timestamp

SECOND = 1_000_000


@given(st.integers(FIRST_SECOND * SECOND, (LAST_SECOND + 1) * SECOND - 1))
def test_moments_go_there_and_back(micros):
    stamp = timestamp(micros)
    assert moment("at", stamp) == micros
    assert stamp.ToMicroseconds() == micros


@given(st.integers(-(10**17), 10**17))
def test_lengths_go_there_and_back(micros):
    span = duration(micros)
    assert length("for", span) == micros
    assert span.ToMicroseconds() == micros


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_every_other_timestamp_is_refused_by_name(seconds, nanos):
    stamp = Timestamp(seconds=seconds, nanos=nanos)
    if FIRST_SECOND <= seconds <= LAST_SECOND and 0 <= nanos < 10**9:
        assert moment("at", stamp) == seconds * SECOND + nanos // 1000
        return
    with pytest.raises(Refusal) as refused:
        moment("at", stamp)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields[0].field == "at"


@pytest.mark.parametrize(
    "span",
    [
        Duration(seconds=1, nanos=-1),
        Duration(seconds=-1, nanos=1),
        Duration(nanos=10**9),
        Duration(seconds=2**62),
    ],
)
def test_what_is_no_duration_is_refused_by_name(span):
    with pytest.raises(Refusal) as refused:
        length("overlap", span)
    assert refused.value.fields[0].field == "overlap"


def test_what_is_finer_than_a_microsecond_is_cut():
    assert length("for", Duration(seconds=-1, nanos=-1999)) == -SECOND - 1
    assert moment("at", Timestamp(seconds=1, nanos=1999)) == SECOND + 1
