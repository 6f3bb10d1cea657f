"""The verdicts of a soak fail for what they are there to find."""

import math
import random
from typing import Any

import pytest
from soak.verdicts import DAY, MIB, Bounds, growth, judge, series, slope

PROCESS = {"rss": 100 * MIB, "fds": 30, "threads": 9}
REST = {"replica": PROCESS, "runner": PROCESS, "connections": 20, "follows": 0, "queued": 0}


def flat(count: int = 200) -> dict[str, Any]:
    """A run of a thousand seconds with noise and the fits of a busy machine, in which nothing grows."""
    chance = random.Random(1)
    samples = []
    for number in range(count):
        speed = chance.uniform(0.5, 3) * (20 if chance.random() < 0.05 else 1)
        rss = 100 * MIB + chance.randint(0, MIB) + (40 * MIB if number < count / 10 else 0)
        samples.append(
            {
                "t": number * 5.0,
                **{name: PROCESS | {"rss": rss} for name in ("replica", "runner", "client")},
                "append": {"p50": 4 * speed, "p99": 9 * speed * chance.uniform(0.8, 1.2)},
                "lag": {"p50": 5 * speed, "p99": 9 * speed},
                "yardstick": {"p50": speed},
                "events": 1000 + number * 100,
                "log_bytes": 1000 * (1000 + number * 100),
                "queue_rows": 100 + number,
                "queue_bytes": 500 * (100 + number),
                "fleet_bytes": 200_000 + chance.randint(0, 20_000),
            }
        )
    ended = {"unexpected": [], "missing_faults": 0, "replay": 0}
    return {"samples": samples, "before": dict(REST), "after": dict(REST), **ended}


def fails(found: dict[str, Any]) -> list[str]:
    return [line.says for line in judge(found, Bounds()) if not line.holds]


def test_nothing_is_said_of_what_is_flat() -> None:
    assert fails(flat()) == []


@pytest.mark.parametrize("name", ["replica", "runner", "client"])
def test_a_leak_of_ten_kib_a_second_is_seen(name: str) -> None:
    found = flat()
    for sample in found["samples"]:
        sample[name]["rss"] += round(sample["t"] * 10 * 1024)
    assert fails(found) == [f"memory of the {name} that lives through it"]


@pytest.mark.parametrize(
    ("what", "grow", "says"),
    [
        ("log_bytes", 1.5, "bytes of tables and indexes for each event, growth"),
        ("queue_bytes", 1.5, "bytes of queue and timers for each row, growth"),
        ("fleet_bytes", 6, "bytes of leases, runners and replicas, growth"),
    ],
)
def test_bloat_is_seen(what: str, grow: float, says: str) -> None:
    found = flat()
    for sample in found["samples"]:
        sample[what] *= 1 + (grow - 1) * sample["t"] / 1000
    assert fails(found) == [says]


def test_calls_that_get_slower_are_seen() -> None:
    found = flat()
    for sample in found["samples"]:
        sample["append"] = {part: value * (1 + 3 * sample["t"] / 1000) for part, value in sample["append"].items()}
    assert "append p50 in calls that do nothing, growth" in fails(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"replica": PROCESS | {"fds": 35}}, "open files of the replica after the load"),
        ({"runner": PROCESS | {"threads": 14}}, "threads of the runner after the load"),
        ({"connections": 21}, "database connections after the load"),
        ({"follows": 1}, "follows that are open after the load"),
        ({"queued": 1}, "Runs that wait or go on after the load"),
    ],
)
def test_what_is_left_behind_is_seen(change: dict[str, Any], says: str) -> None:
    found = flat()
    found["after"] |= change
    assert fails(found) == [says]


@pytest.mark.parametrize("what", [{"unexpected": ["a gap"]}, {"missing_faults": 1}, {"replay": 1}])
def test_what_went_wrong_is_seen(what: dict[str, Any]) -> None:
    assert len(fails(flat() | what)) == 1


def test_a_slope_is_not_moved_by_wild_samples() -> None:
    times = [float(number) for number in range(100)]
    values = [3 * time + (1e6 if time % 10 == 0 else 0) for time in times]
    assert math.isclose(slope(times, values), 3, rel_tol=0.05)
    assert slope([1.0], [5.0]) == 0
    assert slope([0.0, DAY], [0.0, 1.0]) == 1 / DAY


def test_the_start_is_not_looked_at_and_gaps_are_left_out() -> None:
    samples = [{"t": float(number), "x": None if number == 5 else number} for number in range(11)]
    assert series(samples, lambda s: s["x"])[0] == [2, 3, 4, 6, 7, 8, 9, 10]
    assert growth([{"t": 0.0, "x": None}], lambda s: s["x"]) == 0
