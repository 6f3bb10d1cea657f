"""Jobs that come again: `every 15m`, `daily 03:30`."""

import re
from datetime import datetime, timedelta

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_interval(text: str) -> timedelta:
    """Reads `90s`, `15m`, `2h`, `1d`. Raises ValueError."""
    match = re.fullmatch(r"(\d+)([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is not an interval such as 15m")
    return timedelta(seconds=int(match[1]) * _UNITS[match[2]])


def next_run(rule: str, after: datetime) -> datetime:
    """The first time after `after` at which a rule fires."""
    word, _, rest = rule.partition(" ")
    if word == "every":
        return after + parse_interval(rest)
    if word == "daily":
        hour, minute = (int(part) for part in rest.split(":"))
        at = after.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return at if at > after else at + timedelta(days=1)
    raise ValueError(f"{rule!r} is neither `every` nor `daily`")
