"""Moments and durations: microseconds in the domain, Timestamp and Duration in the contract."""

from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from turnlog_server.domain.refusals import invalid

MICROS: Final = 1_000_000
NANOS: Final = 1_000_000_000

# 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
FIRST_SECOND: Final = -62_135_596_800
LAST_SECOND: Final = 253_402_300_799
# 10,000 years, as protobuf bounds a Duration.
DURATION_SECONDS: Final = 315_576_000_000


def timestamp(micros: int) -> Timestamp:
    """A moment for the contract."""
    seconds, rest = divmod(micros, MICROS)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def moment(field: str, stamp: Timestamp) -> int:
    """A moment from the contract, in whole microseconds; what is finer is cut. Refuses what is not one."""
    if not FIRST_SECOND <= stamp.seconds <= LAST_SECOND:
        raise invalid(field, "must lie in the years 0001 to 9999")
    if not 0 <= stamp.nanos < NANOS:
        raise invalid(field, f"nanos must be from 0 to {NANOS - 1}")
    return stamp.seconds * MICROS + stamp.nanos // 1000


def optional_moment(field: str, request: Message) -> int | None:
    """The moment in a field of a request, None where it is absent."""
    return moment(field, getattr(request, field)) if request.HasField(field) else None


def duration(micros: int) -> Duration:
    """A length of time for the contract."""
    # Seconds and nanos of a Duration have the same sign, which is not how Python divides.
    seconds, rest = divmod(abs(micros), MICROS)
    sign = -1 if micros < 0 else 1
    return Duration(seconds=sign * seconds, nanos=sign * rest * 1000)


def length(field: str, span: Duration) -> int:
    """A length of time from the contract, in whole microseconds; what is finer is cut. Refuses what is not one."""
    if abs(span.seconds) > DURATION_SECONDS:
        raise invalid(field, "must be at most 10,000 years")
    if not -NANOS < span.nanos < NANOS or span.seconds * span.nanos < 0:
        raise invalid(field, "nanos must be within one second and have the sign of seconds")
    sign = -1 if span.seconds < 0 or span.nanos < 0 else 1
    return span.seconds * MICROS + sign * (abs(span.nanos) // 1000)
