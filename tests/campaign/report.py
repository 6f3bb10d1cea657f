"""The runs that docs/guarantees.md tells of: `python report.py SUMMARY…` adds some to `runs.json` and writes the
tables. Without a summary it only writes the tables.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

RUNS = Path(__file__).with_name("runs.json")
PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
BEGIN, END = "<!-- fault runs: written by tests/campaign/report.py -->\n", "<!-- end of fault runs -->\n"
KEPT = ("seed", "arguments", "commit", "minutes", "faults", "process_kills", "faults_by_kind")
HEADINGS = (
    "Seed", "Arguments", "Commit", "Minutes", "Faults", "Kills", "Calls", "OK / refused / unknown", "Runs", "Events",
    "Found",
)  # fmt: skip


def recorded(summary: dict[str, Any]) -> dict[str, Any]:
    """What of a summary is kept."""
    stored, calls = summary["stored"], summary["calls"]
    return {name: summary[name] for name in KEPT} | {
        "calls": calls["call"],
        "ok": stored.get("requests ok", 0),
        "refused": stored.get("requests refused", 0),
        "unknown": stored.get("requests unknown", 0),
        "runs": stored["runs"],
        "attempts": stored["attempts"],
        "events": stored["events"],
        "follows_cut": summary["followers_cut"],
        "broken_guarantees": summary["broken_guarantees"],
        "replay": "clean" if not summary["replay"] else "not clean",
        "stalled": bool(summary["stalled"]),
        "server_defects": len(summary["server_defects"]),
    }


def section(runs: list[dict[str, Any]]) -> str:
    """The tables, in Markdown."""
    lines = [
        f"| {' | '.join(HEADINGS)} |",
        "|---:|---|---|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    lines += [_row(run) for run in runs]
    faults = sum((Counter(run["faults_by_kind"]) for run in runs), Counter[str]())
    total, kills = sum(run["faults"] for run in runs), sum(run["process_kills"] for run in runs)
    lines += ["", f"Together {total:,} faults, {kills:,} of them kills of a process, by kind:", ""]
    lines += [", ".join(f"{name} {count:,}" for name, count in sorted(faults.items())) + "."]
    return "\n".join(lines) + "\n"


def _row(run: dict[str, Any]) -> str:
    broken = [f"{name} {count}" for name, count in run["broken_guarantees"].items()]
    broken += [f"{run['server_defects']} defects logged"] if run["server_defects"] else []
    broken += ["stalled"] if run["stalled"] else []
    broken += ["replay"] if run["replay"] != "clean" else []
    answers = f"{run['ok']:,} / {run['refused']:,} / {run['unknown']:,}"
    figures = (run["minutes"], run["faults"], run["process_kills"], run["calls"])
    cells = [run["seed"], f"`{run['arguments']}`", f"`{run['commit']}`", *(f"{each:,}" for each in figures), answers]
    cells += [f"{run['runs']:,}", f"{run['events']:,}", ", ".join(broken) or "nothing"]
    return f"| {' | '.join(map(str, cells))} |"


def page_with(text: str, runs: list[dict[str, Any]]) -> str:
    """The page with the section as the runs have it."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + section(runs) + END + rest.split(END)[1]


def main(*summaries: str) -> None:
    """Adds, and writes."""
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else []
    runs += [recorded(json.loads(Path(summary).read_text())) for summary in summaries]
    RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), runs))


if __name__ == "__main__":
    main(*sys.argv[1:])
