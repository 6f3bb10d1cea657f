"""The lines of the performance table: their gates and goals, how a run is judged, and how it is told and kept."""

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from world import HERE, World

Repetition = dict[str, Any]
LIBRARIES = ("grpcio", "protobuf", "protovalidate", "psycopg", "msgspec", "uvloop")


@dataclass(frozen=True)
class Line:
    """A line of the table. higher: a gate is a least value, otherwise a most."""

    number: str
    says: str
    ratio: Callable[[Repetition], float]
    gate: float
    goal: float
    higher: bool = True

    def holds(self, value: float) -> bool:
        """Whether the gate does."""
        return value >= self.gate if self.higher else value <= self.gate


def over(part: str, above: str, below: str, key: str = "rate") -> Callable[[Repetition], float]:
    """The ratio of two reports of one part."""
    return lambda repetition: repetition[part][above][key] / repetition[part][below][key]


def judged(line: Line, repetitions: list[Repetition]) -> dict[str, Any]:
    """A line with the median of its ratios. One that no repetition has was not measured."""
    said = {
        "line": line.number,
        "says": line.says,
        "gate": line.gate,
        "goal": line.goal,
        "higher_is_better": line.higher,
    }
    ratios: list[float] = []
    for repetition in repetitions:
        try:
            ratios.append(round(line.ratio(repetition), 3))
        except (KeyError, ZeroDivisionError):
            # Left out, or nothing ended within a window.
            continue
    if not ratios:
        return {**said, "value": None, "ratios": [], "holds": None}
    value = statistics.median(ratios)
    return {**said, "value": value, "ratios": ratios, "holds": line.holds(value)}


async def machine(world: World) -> dict[str, Any]:
    """What was measured on."""
    async with await psycopg.AsyncConnection.connect(world.dsn) as conn:
        cursor = await conn.execute("SELECT current_setting('server_version'), current_setting('fsync')")
        postgres, fsync = (await cursor.fetchall())[0]
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _says("git", "-C", str(HERE), "rev-parse", "--short", "HEAD"),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "postgresql": postgres,
        "fsync": fsync,
        "go": _says("go", "env", "GOVERSION"),
        **{name: version(name) for name in LIBRARIES},
    }


def _says(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _cpu() -> str:
    known = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return known[1] if known else platform.machine()


def report(found: dict[str, Any]) -> str:
    """For people."""
    named = found["machine"]
    rows = [
        f"{named['cores']} cores of {named['cpu']}, PostgreSQL {named['postgresql']} (fsync {named['fsync']}), "
        f"Python {named['python']}, grpcio {named['grpcio']}, load {named['load_before']:.1f} before",
        f"{'':>3}  {'':<56} {'measured':>8}   {'gate':<9} {'goal':<7}",
    ]
    for line in found["lines"]:
        sign = "≥" if line["higher_is_better"] else "≤"
        value = "–" if line["value"] is None else f"{line['value']:.2f}"
        rows.append(
            f"{line['line']:>3}  {line['says']:<56} {value:>8}   {sign} {line['gate']:<7g} {line['goal']:<7g} "
            f"{VERDICT[line['holds']]}"
        )
    rows += [f"not measured: {name}: {why}" for name, why in found.get("missing", {}).items()]
    return "\n".join(rows)


VERDICT = {True: "holds", False: "SHORT", None: "not measured"}


def keep(found: dict[str, Any], results: Path, kind: str = "") -> Path:
    """Writes the JSON; returns its path without the suffix, for what lies beside it."""
    results.mkdir(exist_ok=True)
    name = found["machine"]["time"].replace(":", "").split("+")[0]
    stem = results / f"{name}{'-' if kind else ''}{kind}"
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    return stem
