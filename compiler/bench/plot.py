"""Draws what was measured: the roofline of this machine with the cases on it, and how the contenders compare."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from ..diagnostics import file_error, user_error
from .measure import Measured


def check() -> None:
    """A user's error if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise user_error("--plot needs matplotlib: pip install 'attn-opt[plot]'") from None


def draw(path: pathlib.Path, all_measured: Sequence[Measured], labels: Sequence[str]) -> None:
    """Writes the picture; its format is the file's ending."""
    figure = _figure(13, 5)
    roofline, bars = figure.subplots(1, 2)
    _roofline(roofline, all_measured)
    _bars(bars, all_measured, labels)
    _write(figure, path)


def draw_shares(path: pathlib.Path, shares: Mapping[str, Mapping[str, float]]) -> None:
    """Writes a picture of many cases, whose limits may differ: `shares` has for each case, and each contender that can
    do it, how much of what the machine can do it reaches."""
    names = list(dict.fromkeys(name for case in shares.values() for name in case))
    figure = _figure(9, 1 + 0.1 * len(shares) * (len(names) + 1))
    axes = figure.subplots()
    width = 0.85 / max(len(names), 1)
    for n, name in enumerate(names):
        found = [(place + n * width, case[name]) for place, case in enumerate(shares.values()) if name in case]
        bars = axes.barh(*zip(*found, strict=True), width, label=name)
        axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=6)
    axes.set_yticks([place + width * (len(names) - 1) / 2 for place in range(len(shares))], list(shares))
    largest = max((share for case in shares.values() for share in case.values()), default=1.0)
    axes.set(xlim=(0, 1.1 * max(1.0, largest)), xlabel="share of the measured peak (decoding: of the rate of memory)")
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.grid(True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(ncols=len(names), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    _write(figure, path)


def _figure(width: float, height: float):
    """An empty one, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _write(figure, path: pathlib.Path) -> None:
    import matplotlib

    # Letters stay letters: a tenth of the size, and found by a search.
    try:
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "attn-opt"}):
            figure.savefig(path)
    except OSError as error:
        raise file_error(str(path), "written", error) from None


def _roofline(axes, all_measured: Sequence[Measured]) -> None:
    intensities = [m.graph.flops() / m.graph.bytes() for m in all_measured]
    with_roofs = [m for m in all_measured if m.peak is not None and m.reading is not None]
    if with_roofs:
        peak = max(m.peak for m in with_roofs) / 1e9  # type: ignore[type-var, operator]
        reading = max(m.reading for m in with_roofs) / 1e9  # type: ignore[type-var, operator]
        x = np.geomspace(min([*intensities, peak / reading]) / 4, max([*intensities, peak / reading]) * 4, 200)
        axes.plot(x, np.minimum(peak, reading * x), color="black", label=f"{peak:.0f} GFLOP/s, {reading:.0f} GB/s")
    for name in dict.fromkeys(result.name for m in all_measured for result in m.results):
        points = [
            (intensity, m.graph.flops() / result.seconds / 1e9)
            for m, intensity in zip(all_measured, intensities, strict=True)
            for result in m.results
            if result.name == name and result.times
        ]
        if points:
            axes.scatter(*zip(*points, strict=True), label=name, s=22)
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte that must move", ylabel="GFLOP/s", title="Roofline")
    axes.legend()
    axes.grid(True, which="both", alpha=0.2)


def _bars(axes, all_measured: Sequence[Measured], labels: Sequence[str]) -> None:
    names = list(dict.fromkeys(result.name for m in all_measured for result in m.results if result.times))
    width = 0.8 / max(len(names), 1)
    for n, name in enumerate(names):
        heights = []
        for m in all_measured:
            found = [r for r in m.results if r.name == name and r.times]
            heights.append(m.graph.flops() / found[0].seconds / 1e9 if found else 0.0)
        axes.bar(np.arange(len(all_measured)) + n * width, heights, width, label=name)
    axes.set_xticks(
        np.arange(len(all_measured)) + width * (len(names) - 1) / 2,
        [label or "this case" for label in labels],
        rotation=40 if len(labels) > 3 else 0,
        ha="right" if len(labels) > 3 else "center",
    )
    axes.set(ylabel="GFLOP/s", title=f"{all_measured[0].threads} thread(s)")
    axes.legend()
