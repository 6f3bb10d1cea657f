"""The picture of a run: throughput and latency against concurrency, and how the lines stand to their gates."""

import math
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, NullLocator
from unary import CURVE

INK, GREY, FAINT = "#1f2430", "#6b7280", "#d9dce3"
HOLDS, FAILS = "#2da44e", "#cf222e"
SERIES = {
    "empty": ("an empty call", "#9aa1ae"),
    "append": ("AppendEvent", "#1f6feb"),
    "one_transaction": ("a transaction for each event", "#d1662f"),
}


def draw(found: dict[str, Any], to: Path) -> None:
    """One file."""
    title = "Turnlog: what a durable append costs, beside a call that does nothing"
    figure, upper, lower = figure_of(found, title, "events of 1 KB")
    axes = dict(zip(("rates", "delays"), upper.subplots(1, 2), strict=True)) | {"lines": lower.subplots()}
    for key, (label, colour) in SERIES.items():
        _series(axes["rates"], found, key, "rate", label, colour)
        _series(axes["delays"], found, key, "p50", label, colour, ends="p99")
    _axes(axes["rates"], "Throughput, from the least to the most of the repetitions", "calls a second")
    axes["rates"].set_ylim(bottom=0)
    axes["rates"].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _axes(axes["delays"], "Latency: the median, shaded up to the 99th percentile", "milliseconds")
    axes["delays"].set_yscale("log")
    axes["delays"].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes["delays"].yaxis.set_minor_locator(NullLocator())
    axes["delays"].legend(frameon=False, loc="upper left")
    lines(axes["lines"], found["lines"])
    figure.savefig(to, dpi=120)
    plt.close(figure)


def figure_of(found: dict[str, Any], title: str, also: str) -> tuple[Any, Any, Any]:
    """A figure with its title and what was measured on, and its upper and lower half."""
    plt.rcParams.update({"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT})
    layout: Any = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, rect=(0, 0.05, 1, 0.905))
    figure = plt.figure(figsize=(12.5, 9.5), layout=layout)
    panels: Any = figure.subfigures(2, 1)
    named = found["machine"]
    figure.text(0.012, 0.965, title, fontsize=15, weight="bold")
    says = (
        f"{named['cores']} cores of {named['cpu']} · PostgreSQL {named['postgresql']}, fsync {named['fsync']} · "
        f"Python {named['python']}, grpcio {named['grpcio']} · "
        f"{len(found['repetitions'])} × {found['seconds']:g} s · {named['time'][:10]} · {named['commit']}\n{also}"
    )
    figure.text(0.012, 0.012, says, color=GREY, fontsize=9)
    return figure, *panels


def _values(found: dict[str, Any], key: str, what: str) -> list[list[float]]:
    """For each concurrency, the values of all repetitions."""
    # A window in which nothing was answered has no latency.
    return [[r["curve"][key][at][what] or math.nan for r in found["repetitions"]] for at in range(len(CURVE))]


def _series(axes: Any, found: dict[str, Any], key: str, what: str, label: str, colour: str, ends: str = "") -> None:
    values = _values(found, key, what)
    middle = [statistics.median(each) for each in values]
    axes.plot(CURVE, middle, marker="o", markersize=5, linewidth=2, color=colour, label=label)
    low = middle if ends else [min(each) for each in values]
    high = [statistics.median(each) for each in _values(found, key, ends)] if ends else [max(each) for each in values]
    axes.fill_between(CURVE, low, high, color=colour, alpha=0.12, linewidth=0)


def _axes(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xscale("log", base=2)
    axes.set_xticks(CURVE, [str(each) for each in CURVE])
    axes.set_xlabel("calls in flight")
    axes.set_ylabel(unit)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)


def lines(axes: Any, judged: list[dict[str, Any]]) -> None:
    """How far each line is from its gate, as a factor: right of one it holds."""
    axes.set_title("Each line against its gate, as a factor: further right is better", loc="left", fontsize=11)
    shown = [line for line in judged if line["value"] is not None]
    factors = [_factor(line, line["gate"], line["value"]) for line in shown]
    goals = [_factor(line, line["gate"], line["goal"]) for line in shown]
    places = range(len(shown))
    colours = [HOLDS if line["holds"] else FAILS for line in shown]
    axes.barh(places, [factor - 1 for factor in factors], left=1, color=colours, height=0.5)
    axes.scatter(goals, places, marker="|", s=170, color=INK, linewidth=1.6, label="goal", zorder=3)
    axes.axvline(1, color=INK, linewidth=1, label="gate")
    axes.set_yticks(places, [f"{line['line']}  {line['says']}" for line in shown], fontsize=9)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(*factors, 0.5) / 1.1, max(*factors, *goals) * 1.6)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
    for place, line in zip(places, shown, strict=True):
        says = f"{line['value']:.2f}, gate {line['gate']:g}, goal {line['goal']:g}"
        at_right: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "ha": "right", "va": "center"}
        axes.text(0.995, place, says, fontsize=8.5, color=GREY, **at_right)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.legend(frameon=False, loc="lower left", ncols=2, fontsize=9)


def _factor(line: dict[str, Any], gate: float, value: float) -> float:
    return value / gate if line["higher_is_better"] else gate / value
