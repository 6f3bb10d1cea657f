"""Measures the lines of the performance table in one run, and says which gates hold.

Both sides of a ratio come from the same process in the same repetition, one right after the other; a line's figure is
the median of its ratios. Exit code 1 when a gate does not hold.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import plot
import streams
import unary
from table import Line, Repetition, judged, keep, machine, over, report
from world import EMPTY, HERE, Load, World, open_world, run
from yardsticks import transactions


def _single_commits(repetition: Repetition) -> float:
    alone = repetition["alone"]
    return (alone["append"]["p50"] - alone["empty"]["p50"]) / alone["commit"]["p50"]


LINES = (
    Line("1a", "append, 64 in flight ÷ empty call", over("at_64", "append", "empty"), 0.50, 0.90),
    Line("1b", "the same where it is one event", over("at_64", "single", "empty"), 0.50, 0.90),
    Line("2a", "append ÷ a transaction each, many Sessions", over("at_64", "append", "one_transaction"), 2.5, 4),
    Line("2b", "append ÷ a transaction each, one Session", over("at_64", "hot", "hot_one_transaction"), 4, 8),
    Line("3", "streamed append ÷ a transaction each, PostgreSQL alone", over("streams", "append", "pg"), 6, 12),
    Line("5", "append beyond empty, alone, in single commits", _single_commits, 2.5, 1.5, higher=False),
    Line("6", "append, 64 in flight, flushes 2 ms slower ÷ not", over("flush", "slow", "quick"), 0.7, 1.0),
    Line("7a", "live follow p50 ÷ ack p50", lambda r: _live(r, 1, "ack_p50"), 1.3, 1.0, higher=False),
    Line("7b", "live follow p50 ÷ empty call, 10 followers", lambda r: _live(r, 10, "empty_p50"), 3, 2, higher=False),
    Line("7c", "live follow p50 ÷ empty call, 100 followers", lambda r: _live(r, 100, "empty_p50"), 6, 4, higher=False),
    Line("8", "deliveries to 100 followers ÷ empty call", over("streams", "fan_out", "empty"), 8, 20),
    Line("9", "replayed events ÷ empty call", over("streams", "replay", "empty"), 12, 25),
    Line(
        "13", "p99 of append, 64 in flight ÷ of empty", over("at_64", "append", "empty", "p99"), 2.5, 1.5, higher=False
    ),
    Line("16", "append ÷ append unchecked", over("at_64", "append", "unchecked"), 0.75, 0.9),
)


def _live(repetition: Repetition, followers: int, below: str) -> float:
    report = repetition["live"][str(followers)]
    return report["p50"] / report[below]


async def repeat(world: World, load: Load, seconds: float) -> Repetition:
    """Every line once."""
    repetition: Repetition = {
        "at_64": await unary.at_64(world, load, seconds),
        "alone": await unary.alone(world, load, seconds),
        "flush": await unary.flush(world, load, seconds),
        "live": {str(count): await streams.live(world, count, 200) for count in (1, 10, 100)},
    }
    log = await streams.Log.write(world, 20_000)
    repetition["streams"] = {
        "pg": await transactions(world, max(1, round(seconds))),
        "append": await streams.streamed_append(world, seconds),
        "empty": await load.measure(EMPTY, unary.IN_FLIGHT, seconds),
        "fan_out": await streams.fan_out(world, 100, seconds),
        "replay": await log.replay(),
    }
    repetition["curve"] = await unary.curve(world, load, seconds / 2)
    return repetition


async def measure(repetitions: int, seconds: float) -> dict[str, Any]:
    """The whole run."""
    async with open_world() as (world, load):
        found: dict[str, Any] = {"machine": await machine(world), "seconds": seconds, "repetitions": []}
        await unary.at_64(world, load, 0.5)  # plans, connections and caches are there from here on
        for number in range(repetitions):
            print(f"repetition {number + 1} of {repetitions}", file=sys.stderr, flush=True)
            found["repetitions"].append(await repeat(world, load, seconds))
    found["lines"] = [judged(line, found["repetitions"]) for line in LINES]
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    given = parser.parse_args()
    found = run(measure(given.repetitions, given.seconds))
    stem = keep(found, given.results)
    plot.draw(found, stem.with_suffix(".png"))
    print(report(found))
    print(f"kept in {stem}.json and .png")
    return 0 if all(line["holds"] for line in found["lines"]) else 1


if __name__ == "__main__":
    sys.exit(main())
