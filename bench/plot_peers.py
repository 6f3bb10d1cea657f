"""The picture of a run beside peers: what each side did, and how the lines stand to their gates."""

import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter
from plot import FAINT, GREY, INK, figure_of, lines

OURS, THEIRS = "#1f6feb", "#9aa1ae"
RATES = (
    ("etcd", "turnlog", "peer", "append ÷ etcd put"),
    ("redis", "turnlog", "peer", "append ÷ Redis XADD"),
    ("nats", "turnlog", "peer", "replay ÷ NATS JetStream"),
    ("dbos", "turnlog", "peer", "Runs ÷ DBOS"),
    ("dbos", "turnlog", "queue", "Runs ÷ DBOS by a queue"),
    ("procrastinate", "turnlog", "peer", "Runs ÷ procrastinate"),
    ("restate", "turnlog", "peer", "Runs ÷ Restate"),
    ("claims", "turnlog", "workers", "backlog ÷ eight workers"),
)
DELAYS = (
    ("dbos", "alone", "peer_alone", "DBOS"),
    ("procrastinate", "alone", "peer_alone", "procrastinate"),
    ("restate", "alone", "peer_alone", "Restate"),
)


def draw(found: dict[str, Any], to: Path) -> None:
    """One file."""
    peers = " · ".join(f"{name} {version}" for name, version in found["versions"].items())
    figure, upper, lower = figure_of(found, "Turnlog beside others", f"beside {peers}")
    rates, delays = upper.subplots(1, 2, width_ratios=[2, 1])
    _pairs(rates, found, RATES, "rate", "A second: events, or Runs with 64 callers (blue: Turnlog)", "{:,.0f}")
    _pairs(delays, found, DELAYS, "p50", "A Run alone: milliseconds, median", "{:.1f}")
    lines(lower.subplots(), found["lines"])
    figure.savefig(to, dpi=120)
    plt.close(figure)


def _pairs(axes: Any, found: dict[str, Any], pairs: Any, key: str, title: str, shape: str) -> None:
    """Two bars for each pair that was measured: the medians of the repetitions."""
    known = [pair for pair in pairs if any(pair[2] in r.get(pair[0], {}) for r in found["repetitions"])]
    axes.set_title(title, loc="left", fontsize=11)
    for place, (part, ours, theirs, _) in enumerate(known):
        for side, colour, shift in ((ours, OURS, -0.19), (theirs, THEIRS, 0.19)):
            value = statistics.median(r[part][side][key] for r in found["repetitions"] if part in r)
            axes.barh(place + shift, value, height=0.34, color=colour)
            axes.text(value, place + shift, "  " + shape.format(value), va="center", fontsize=8.5, color=GREY)
    axes.set_yticks(range(len(known)), [label for *_, label in known], fontsize=9)
    axes.invert_yaxis()
    if known:
        axes.set_xscale("log")
        axes.set_xlim(right=axes.get_xlim()[1] * 3)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.grid(axis="x", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0, labelcolor=INK)
