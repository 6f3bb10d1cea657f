"""What a run found, as a page, a picture and figures."""

import json
import platform
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import matplotlib
import psutil
from soak.verdicts import A_DAY, WARM, Bounds

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MIB: Final = 1 << 20
BOUND: Final = Bounds().memory_mib_day
WIDTH: Final = 120
LONG: Final = 60
"""Minutes from which on what is said of a day is taken as it stands."""
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
    """`soak.png`, `soak.json` and, from that, `soak.md` in this folder."""
    to.mkdir(parents=True, exist_ok=True)
    draw(found, to / "soak.png")
    verdicts = [
        {"says": v.says, "value": round(v.value, 3), "bound": v.bound, "unit": v.unit, "holds": v.holds}
        for v in found["verdicts"]
    ]
    kept = {name: value for name, value in found.items() if name not in ("samples", "fault_times", "verdicts")}
    kept |= {"seen": seen(found["samples"]), "verdicts": verdicts}
    (to / "soak.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    write_page(to)


def write_page(to: Path) -> None:
    """`soak.md` again, from the figures of the last run."""
    (to / "soak.md").write_text(page(json.loads((to / "soak.json").read_text("utf-8"))), "utf-8")


def seen(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """What the run was made on, and how often it was looked at."""
    loads = [sample["load"] for sample in samples]
    return {
        "samples": len(samples),
        "load": [min(loads), max(loads)],
        "cores": psutil.cpu_count(),
        "memory_gib": psutil.virtual_memory().total / 2**30,
        "python": platform.python_version(),
    }


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


def verdict(found: dict[str, Any]) -> str:
    """What failed, and how far the run can be trusted with it."""
    failed = [v for v in found["verdicts"] if not v["holds"]]
    if not failed:
        return "Every verdict holds."
    says = f"**{len(failed)} of {len(found['verdicts'])} verdicts fail:**\n\n" + "".join(
        f"- {v['says']}: {v['value']:.3g} {v['unit']}, where {v['bound']:g} is the bound.\n" for v in failed
    )
    watched = found["minutes"] * (1 - WARM)
    if found["minutes"] >= LONG or not any(v["unit"] == A_DAY for v in failed):
        return says
    short = (
        f"A bound for a day is extrapolated here from {watched:.1f} minutes, by a factor of {1440 / watched:.0f}: "
        f"{BOUND:g} MiB a day are {BOUND * watched / 1440:.1f} MiB in them, which may be a leak, and may be a cache "
        "that fills or a heap that grew by a step. So this run cannot tell these apart. The verdicts stand as failed: "
        "it was not shown that memory stays flat, nor that it leaks, and that other lines of a day hold shows as "
        "little. Nothing beyond that may be concluded from it; that takes a run of an hour or more."
    )
    return f"{says}\n{fill(short, WIDTH)}"


def page(found: dict[str, Any]) -> str:
    """The page of the documents, from what is kept of a run."""
    on = found["seen"]
    events = found["after"]["events"]
    calls = ", ".join(f"{name} {count:,}" for name, count in sorted(found["calls"].items()))
    faults = ", ".join(f"{name} {count}" for name, count in sorted(found["faults"].items()))
    rows = "\n".join(
        f"| {v['says']} | {v['value']:.3g} {v['unit']} | {v['bound']:g} | {'yes' if v['holds'] else '**no**'} |"
        for v in found["verdicts"]
    )
    return f"""# Soak

Written by `make soak`, which also draws the picture. Does anything grow, leak or slow down under a load that is mixed
and goes on, while processes are killed?

This run: **{found["minutes"]:g} minutes**, begun {found["began"]}, seed {found["seed"]}, on {on["cores"]} cores and
{on["memory_gib"]:.0f} GiB with a load average from {on["load"][0]:.1f} to {on["load"][1]:.1f}, Python {on["python"]},
{on["samples"]} samples. Two replicas and two runners on one embedded PostgreSQL (without fsync); one replica and one
runner live through it and are watched, the others are killed. {found["filled"]:,} Sessions are made first, as many as
a replica remembers. At the end the log held {events:,} events.

Rounds of each kind of client: {calls}. A round of `work` is a Session of up to 120 turns, whose log is compared with
what was acknowledged; `talk` uses the SDK; `hurry` hangs up; `refuse` must be refused; `rotate` makes, rotates and
revokes keys until every replica refuses them.

Faults: {faults}.

![Memory, files, sizes and latencies over time](soak.png)

{verdict(found)}

| What | Value | Bound | Holds |
|---|---|---|---|
{rows}

Slopes are Theil–Sen's over the last 80 % of the run; a bound for a day is extrapolated from it. Latencies are
multiples of a call that does nothing, made at the same time, so that a busy machine moves both. Asyncio tasks are not
counted: no metric has them.
"""
