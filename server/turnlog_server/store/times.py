"""The database's moments as the domain counts them."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - _EPOCH) // _MICROSECOND
