"""What is said of a run: whether what should stay the same stayed the same.

Slopes are Theil and Sen's, the median of the slopes between all pairs of samples: a few wild samples do not move it.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

DAY: Final = 86_400.0
MIB: Final = 1 << 20
A_DAY: Final = "MiB a day"
WARM: Final = 0.2
"""The part of a run that is not looked at: caches fill, pools open, tables get their first pages."""

Sample = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is too much. What is said of a day grows with the shortness of a run, and so does its error."""

    memory_mib_day: float = 256.0
    latency_growth: float = 0.5
    bytes_growth: float = 0.25
    fleet_growth: float = 1.0
    descriptors: int = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line. holds: the value is within the bound."""

    says: str
    value: float
    bound: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.value <= self.bound


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Theil–Sen: units a second; 0 for fewer than two samples."""
    pairs = combinations(zip(times, values, strict=True), 2)
    slopes = [(later - earlier) / (end - start) for (start, earlier), (end, later) in pairs if end > start]
    return statistics.median(slopes) if slopes else 0.0


def series(samples: Sequence[Sample], look: Callable[[Sample], float | None]) -> tuple[list[float], list[float]]:
    """Times and values of the warm part; samples without a value are left out."""
    start, end = samples[0]["t"], samples[-1]["t"]
    warm = [(s["t"], look(s)) for s in samples if s["t"] >= start + WARM * (end - start)]
    kept = [(t, value) for t, value in warm if value is not None]
    return [t for t, _ in kept], [value for _, value in kept]


def growth(samples: Sequence[Sample], look: Callable[[Sample], float | None]) -> float:
    """What it gained in the warm part as a share of where that began, both by the line through all samples."""
    times, values = series(samples, look)
    if not times:
        return 0.0
    rise = slope(times, values)
    start = statistics.median(value - rise * (time - times[0]) for time, value in zip(times, values, strict=True))
    return rise * (times[-1] - times[0]) / start if start > 0 else math.inf


def judge(found: dict[str, Any], bounds: Bounds) -> list[Verdict]:
    """Every line of what a run found."""
    samples = found["samples"]
    lines = [_memory(samples, name, bounds) for name in ("replica", "runner", "client")]
    lines += back(found["before"], found["after"], bounds)
    lines += [
        Verdict(
            "bytes of tables and indexes for each event, growth",
            growth(samples, lambda s: s["log_bytes"] / max(s["events"], 1)), bounds.bytes_growth, "of the start",
        ),
        Verdict(
            "bytes of queue and timers for each row, growth",
            growth(samples, lambda s: s["queue_bytes"] / max(s["queue_rows"], 1)), bounds.bytes_growth, "of the start",
        ),
        Verdict(
            "bytes of leases, runners and replicas, growth",
            growth(samples, lambda s: s["fleet_bytes"]), bounds.fleet_growth, "of the start",
        ),
        _steady(samples, "append", "p50", bounds),
        _steady(samples, "append", "p99", bounds, twice=True),
        _steady(samples, "lag", "p50", bounds),
        Verdict("Runs that wait or go on after the load", found["after"]["queued"], 0, "Runs"),
        Verdict("things that nobody expected", len(found["unexpected"]), 0, "things"),
        Verdict("faults that a kind of fault was short of one", found["missing_faults"], 0, "faults"),
        Verdict("exit code of check --replay", found["replay"], 0, ""),
    ]  # fmt: skip
    return lines


def _memory(samples: Sequence[Sample], name: str, bounds: Bounds) -> Verdict:
    value = slope(*series(samples, lambda s: s[name]["rss"])) * DAY / MIB
    return Verdict(f"memory of the {name} that lives through it", value, bounds.memory_mib_day, A_DAY)


def back(before: Sample, after: Sample, bounds: Bounds) -> list[Verdict]:
    """What was opened for the load is closed again, sample by sample."""
    lines = []
    for name in ("replica", "runner"):
        for what, says in (("fds", "open files"), ("threads", "threads")):
            more = after[name][what] - before[name][what]
            lines.append(Verdict(f"{says} of the {name} after the load", more, bounds.descriptors, "more than before"))
    more = after["connections"] - before["connections"]
    lines.append(Verdict("database connections after the load", more, 0, "more than before"))
    lines.append(Verdict("follows that are open after the load", after["follows"], 0, "follows"))
    return lines


def _steady(samples: Sequence[Sample], what: str, part: str, bounds: Bounds, *, twice: bool = False) -> Verdict:
    """As a multiple of the yardstick: what else the machine does slows both."""

    def look(sample: Sample) -> float | None:
        value, yardstick = sample[what][part], sample["yardstick"]["p50"]
        return value / yardstick if value and yardstick else None

    bound = bounds.latency_growth * (2 if twice else 1)
    return Verdict(f"{what} {part} in calls that do nothing, growth", growth(samples, look), bound, "of the start")
