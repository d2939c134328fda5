"""Draw the plots of a run as PNG and SVG: the paper's two figures, latency and CPU. Needs matplotlib (extra `bench`).

producer.*   rate over the data sent, one line per system and batch size, as in the paper's figure 4
consumer.*   rate of one consumer, one bar per system, as in the paper's figure 5
latency.*    percentiles at each rate
cpu.*        CPU seconds per million messages, broker and client
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.head_to_head.report import STALLED_US, Results
from kafkalite.base.extras import needs_extra

DPI = 85
WIDTH, HEIGHT = 8.0, 4.5
COLOURS = {
    "kafkalite": "#d62728",
    "null-broker": "#999999",
    "apache-kafka": "#1f77b4",
    "rabbitmq": "#ff7f0e",
    "activemq": "#9467bd",
    "nats": "#2ca02c",
    "redis": "#8c564b",
}
SEGMENT_COUNT_MAX = 16
BATCH_STYLES = {1: ":", 50: "-"}


class NoMatplotlib(RuntimeError):
    """The extra `bench` is not installed."""


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw every plot that has data. Raises NoMatplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise NoMatplotlib(needs_extra("matplotlib is not installed", "bench")) from error
    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "kafkalite", "svg.fonttype": "none", "font.size": 9})
    plots: dict[str, Callable[[Results, Any], bool]] = {
        "producer": producer,
        "consumer": consumer,
        "latency": latency,
        "cpu": cpu,
    }
    paths = []
    for name, plot in plots.items():
        paths += _save(name, plot, results, folder)
    return paths


def _save(name: str, plot: Callable[[Results, Any], bool], results: Results, folder: Path) -> list[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    if not plot(results, figure.add_subplot()):
        return []
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=DPI)
    figure.savefig(paths[1], metadata={"Date": None})
    return paths


def producer(results: Results, axes: Any) -> bool:  # matplotlib's own type is loaded late
    """Plot messages per second over megabytes sent, acknowledged by the broker, for the repeat with the median rate."""
    drawn = False
    for system in results.systems:
        for batch, style in BATCH_STYLES.items():
            rows = sorted(results.rows(system, f"produce-one-{batch}"), key=lambda row: row["rate_per_s"])
            progress = thinned(rows[len(rows) // 2].get("progress", [])) if rows else []
            size = rows[0]["size"] if rows else 0
            points = [
                (count * size / 1e6, (count - before) / (at - since) / 1e3)
                for (since, before), (at, count) in itertools.pairwise(progress)
                if at > since and count > before
            ]
            if points:
                label = f"{results.title(system)}, batch {batch}"
                axes.plot(*zip(*points, strict=True), style, color=COLOURS[system], label=label, linewidth=1.3)
                drawn = True
    axes.set(
        xlabel="MB sent", ylabel="thousand messages/s", title="Producer: 200-byte messages, acknowledged by the broker"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    if drawn:
        axes.legend(fontsize=7, ncols=2)
    return drawn


def thinned(points: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Return fewer points, so that their exact times do not affect the rate between two of them."""
    step = -(-len(points) // SEGMENT_COUNT_MAX) or 1
    return [*points[::step], *([points[-1]] if points and (len(points) - 1) % step else [])]


def consumer(results: Results, axes: Any) -> bool:
    """Plot messages per second of one consumer that reads stored messages."""
    found = [(system, results.figure(system, "consume", "rate_per_s")) for system in results.systems]
    bars = [(system, figure) for system, figure in found if figure]
    if not bars:
        return False
    names = [results.title(system) for system, _ in bars]
    medians = [figure.median / 1e3 for _, figure in bars]
    lower = [(figure.median - figure.low) / 1e3 for _, figure in bars]
    upper = [(figure.high - figure.median) / 1e3 for _, figure in bars]
    axes.bar(names, medians, yerr=[lower, upper], color=[COLOURS[system] for system, _ in bars], capsize=3)
    for place, value in enumerate(medians):
        axes.annotate(
            f"{value:,.0f}", (place, value), ha="center", va="bottom", textcoords="offset points", xytext=(0, 3)
        )
    axes.set(ylabel="thousand messages/s", title="Consumer: 200-byte messages, everything stored before")
    axes.tick_params(axis="x", rotation=15)
    axes.grid(axis="y", alpha=0.3)
    return True


def latency(results: Results, axes: Any) -> bool:
    """Plot p50, p99 and p99.9 of each system at each rate that it can sustain."""
    rates = (1_000, 10_000, 50_000)
    places: list[str] = []
    for system in results.systems:
        for rate in rates:
            three = [results.figure(system, f"latency-{rate}", key) for key in ("p50_us", "p99_us", "p999_us")]
            if not three[0] or three[0].median > STALLED_US:
                continue
            values = [figure.median / 1e3 for figure in three if figure]
            place = len(places)
            places.append(f"{results.title(system)}\n{rate // 1000} k/s")
            axes.plot([place] * len(values), values, "-", color=COLOURS[system], linewidth=1)
            for value, marker in zip(values, "o^s", strict=False):
                axes.plot(place, value, marker, color=COLOURS[system], markersize=5)
    if not places:
        return False
    axes.set_yscale("log")
    axes.set_xticks(range(len(places)), places, fontsize=6, rotation=60)
    axes.set(ylabel="ms", title="Latency from the time a message was due: p50 ●, p99 ▲, p99.9 ■")
    axes.grid(axis="y", alpha=0.3)
    return True


def cpu(results: Results, axes: Any) -> bool:
    """Plot CPU seconds per million messages, producing in batches of 50 and consuming; broker below, client on top."""
    bars: list[tuple[str, str, float, float]] = []
    for case, said in (("produce-one-50", "produce"), ("consume", "consume")):
        for system in results.systems:
            server = results.figure(system, case, "server_cpu_s_per_million")
            client = results.figure(system, case, "client_cpu_s_per_million")
            if server and client:
                bars.append((system, f"{results.title(system)}\n{said}", server.median, client.median))
    if not bars:
        return False
    places = range(len(bars))
    _bars(axes, places, [bar[2] for bar in bars], [COLOURS[bar[0]] for bar in bars], -0.2, "broker")
    _bars(axes, places, [bar[3] for bar in bars], ["#dddddd"] * len(bars), 0.2, "client")
    axes.set_yscale("log")
    axes.set_xticks(places, [bar[1] for bar in bars], fontsize=6, rotation=60)
    axes.set(ylabel="CPU s per million messages", title="CPU: broker (coloured) and client (grey)")
    axes.grid(axis="y", alpha=0.3)
    return True


def _bars(
    axes: Any, places: Sequence[int], heights: Sequence[float], colours: Sequence[str], shift: float, label: str
) -> None:
    axes.bar([place + shift for place in places], heights, width=0.4, color=colours, label=label)
