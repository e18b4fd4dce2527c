"""Draws what was measured: the roofline of this machine with the cases on it, and how the contenders compare."""

import pathlib
from collections.abc import Sequence

import numpy as np

from ..diagnostics import user_error
from .measure import Measured


def check() -> None:
    """A user's error if there is nothing to draw with."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise user_error("--plot needs matplotlib: pip install 'attn-opt[plot]'") from None


def draw(path: pathlib.Path, all_measured: Sequence[Measured], labels: Sequence[str]) -> None:
    """Writes the picture; its format is the file's ending."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    FigureCanvasAgg(figure)
    roofline, bars = figure.subplots(1, 2)
    _roofline(roofline, all_measured)
    _bars(bars, all_measured, labels)
    try:
        figure.savefig(path)
    except OSError as error:
        raise user_error(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


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
