"""What a run found, as a page, a picture and figures."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import matplotlib
import psutil
from soak.verdicts import Bounds

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MIB: Final = 1 << 20
BOUND: Final = Bounds().memory_mib_day
INK, GREY, FAINT = "#1f2430", "#6b7280", "#d9dce3"
Look = Callable[[dict[str, Any]], float | None]
COLOURS: Final = ("#1f6feb", "#d1662f", "#2da44e")
FAULTS: Final = {
    "replica killed": "#cf222e", "replica drained": "#e5989d", "runner killed": "#8250df", "runner drained": "#c8b5ef",
    "connections cut": "#9aa1ae",
}  # fmt: skip

PANELS: Final[list[tuple[str, str, dict[str, Look]]]] = [
    ("Memory", "MiB", {name: lambda s, name=name: s[name]["rss"] / MIB for name in ("replica", "runner", "client")}),
    (
        "Open files and database connections",
        "",
        {
            "files of the replica": lambda s: s["replica"]["fds"],
            "files of the runner": lambda s: s["runner"]["fds"],
            "connections of all": lambda s: s["connections"],
        },
    ),
    (
        "Tables with their indexes",
        "",
        {
            "log: bytes for each event": lambda s: s["log_bytes"] / max(s["events"], 1),
            "queue and timers: bytes for each row": lambda s: s["queue_bytes"] / max(s["queue_rows"], 1),
            "leases, runners, replicas: KiB": lambda s: s["fleet_bytes"] / 1024,
        },
    ),
    (
        "A durable append, seen by its caller",
        "ms",
        {
            "p50": lambda s: s["append"]["p50"],
            "p99": lambda s: s["append"]["p99"],
            "a call that does nothing, p50": lambda s: s["yardstick"]["p50"],
        },
    ),
    (
        "From an event's acceptance to its follower",
        "ms",
        {"p50": lambda s: s["lag"]["p50"], "p99": lambda s: s["lag"]["p99"]},
    ),
    ("What was there", "thousand", {"events": lambda s: s["events"] / 1000}),
]


def write(found: dict[str, Any], to: Path) -> None:
    """`soak.md`, `soak.png` and `soak.json` in this folder."""
    to.mkdir(parents=True, exist_ok=True)
    draw(found, to / "soak.png")
    (to / "soak.md").write_text(page(found), "utf-8")
    verdicts = [
        {"says": v.says, "value": round(v.value, 3), "bound": v.bound, "unit": v.unit, "holds": v.holds}
        for v in found["verdicts"]
    ]
    kept = {name: value for name, value in found.items() if name not in ("samples", "fault_times", "verdicts")}
    (to / "soak.json").write_text(json.dumps(kept | {"verdicts": verdicts}, indent=1) + "\n", "utf-8")


def draw(found: dict[str, Any], to: Path) -> None:
    """Each series over time, faults as lines."""
    plt.rcParams.update({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT})
    figure, axes = plt.subplots(3, 2, figsize=(12.5, 9.5), layout="constrained", sharex=True)
    start = found["samples"][0]["t"]
    for panel, (title, unit, lines) in zip(axes.flat, PANELS, strict=True):
        for colour, (label, look) in zip(COLOURS, lines.items(), strict=False):
            points = [((s["t"] - start) / 60, value) for s in found["samples"] if (value := look(s)) is not None]
            panel.plot(*zip(*points, strict=True), color=colour, linewidth=1.2, label=label)
        for at, name in found["fault_times"]:
            panel.axvline((at - start) / 60, color=FAULTS[name], linewidth=0.6, alpha=0.5, zorder=0)
        panel.set_title(title + (f", {unit}" if unit else ""), loc="left", fontsize=10)
        panel.set_yscale("log") if unit == "ms" else panel.set_ylim(bottom=0)
        panel.grid(axis="y", color=FAINT, linewidth=0.7)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.legend(frameon=False, fontsize=8, loc="best")
    for panel in axes[-1]:
        panel.set_xlabel("minutes")
    figure.suptitle(f"{found['minutes']:g} minutes of mixed load with faults · {found['began']}", x=0.01, ha="left")
    named = [plt.Line2D([], [], color=colour, label=name) for name, colour in FAULTS.items()]
    figure.legend(handles=named, loc="outside lower center", ncols=len(named), frameon=False, fontsize=8)
    figure.savefig(to, dpi=110)
    plt.close(figure)


def page(found: dict[str, Any]) -> str:
    """The page of the documents; `make soak` writes it."""
    samples = found["samples"]
    events = found["after"]["events"]
    calls = ", ".join(f"{name} {count:,}" for name, count in sorted(found["calls"].items()))
    faults = ", ".join(f"{name} {count}" for name, count in sorted(found["faults"].items()))
    rows = "\n".join(
        f"| {v.says} | {v.value:.3g} {v.unit} | {v.bound:g} | {'yes' if v.holds else '**no**'} |"
        for v in found["verdicts"]
    )
    cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
    loads = [sample["load"] for sample in samples]
    return f"""# Soak

Written by `make soak`, which also draws the picture. Does anything grow, leak or slow down under a load that is mixed
and goes on, while processes are killed?

This run: **{found["minutes"]:g} minutes**, begun {found["began"]}, seed {found["seed"]}, on {cores} cores and
{memory:.0f} GiB with a load average from {min(loads):.1f} to {max(loads):.1f}, Python {platform.python_version()},
{len(samples)} samples. Two replicas and two runners on one embedded PostgreSQL (without fsync); one replica and one
runner live through it and are watched, the others are killed. {found["filled"]:,} Sessions are made first, as many as
a replica remembers. At the end the log held {events:,} events.

Rounds of each kind of client: {calls}. A round of `work` is a Session of up to 120 turns, whose log is compared with
what was acknowledged; `talk` uses the SDK; `hurry` hangs up; `refuse` must be refused; `rotate` makes, rotates and
revokes keys until every replica refuses them.

Faults: {faults}.

![Memory, files, sizes and latencies over time](soak.png)

| What | Value | Bound | Holds |
|---|---|---|---|
{rows}

Slopes are Theil–Sen's over the last 80 % of the run; a bound for a day is extrapolated from it. Latencies are
multiples of a call that does nothing, made at the same time, so that a busy machine moves both. Asyncio tasks are not
counted: no metric has them. A bound for a day is hard on a run of less than an hour: {BOUND:g} MiB a day are
{BOUND * found["minutes"] * 0.8 / 1440:.1f} MiB in the part of this one that is looked at.
"""
