"""What was measured, as text for people."""

import statistics
from collections.abc import Sequence

from ..graphs import Attention
from .latency import Latency
from .measure import Measured, Result


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def describe(graph: Attention) -> str:
    """One line that says what is computed."""
    heads = f"{graph.heads}" if graph.kv == graph.heads else f"{graph.heads}/{graph.kv}"
    size = f"{graph.head_size}" if graph.d_v == graph.head_size else f"{graph.head_size}/{graph.d_v}"
    length = f"{graph.queries}" if graph.queries == graph.keys else f"{graph.queries}×{graph.keys}"
    parts = [f"b {graph.batch}", f"h {heads}", f"s {length}", f"d {size}", graph.element]
    if (graph.input_layout, graph.output_layout) != ("bhsd", "bhsd"):
        parts.append(f"{graph.input_layout} → {graph.output_layout}")
    lower, upper = graph.window
    if lower is not None or upper is not None:
        low, high = ("−∞" if lower is None else str(lower)), ("∞" if upper is None else str(upper))
        parts.append(f"{low} ≤ j − i ≤ {high}{' from the bottom right' if graph.bottom_right else ''}")
    if graph.groups:
        least, most = (reduce(n for n, _ in graph.groups) for reduce in (min, max))
        parts.append(f"{len(graph.groups)} sequences of {least} to {most}")
    if graph.lengths:
        parts.append(f"lengths {min(graph.lengths)} to {max(graph.lengths)}")
    flags = {
        f"packed {graph.packed}": bool(graph.packed),
        f"bias {graph.bias}": bool(graph.bias),
        f"mask {graph.mask}": bool(graph.mask),
        f"softcap {graph.softcap:g}": bool(graph.softcap),
        "alibi": graph.alibi,
        "v by columns": graph.values_transposed,
        "dynamic": graph.dynamic,
        "lse": graph.lse,
    }
    return ", ".join(parts + [name for name, there in flags.items() if there])


def _verdict(result: Result) -> str:
    if result.skipped:
        return f"skipped: {result.skipped}"
    if result.failed:
        return f"FAILED: {result.failed}"
    if result.error is None:
        return "not checked"
    return f"{result.error:.1e} {'PASS' if result.passed else 'FAIL'}"


def case(measured: Measured) -> list[str]:
    """A table of one case, a line for each contender."""
    graph, bound = measured.graph, measured.bound()
    work = f"{graph.flops() / 1e9:.3g} GFLOP, {graph.bytes() / 1e6:.3g} MB"
    threads = f"{measured.threads} thread{'s' if measured.threads > 1 else ''}"
    on = f"cpu, {threads}" if measured.target == "cpu" else measured.target
    lines = [f"{describe(graph)}: {work}; {on}"]
    lines += [f"  {roof}" for roof in roofs(measured)]
    unit, name = _unit(measured)
    head = f"{'':<15}{'time':>10}{f'{name}FLOP/s':>10}{f'{name}B/s':>8}"
    if bound:
        head += f"{'of roof':>9}"
    lines.append(f"{head}{'ours is':>10}   error")
    for result in measured.results:
        if not result.times:
            lines.append(f"{result.name:<15}{_verdict(result)}")
            continue
        seconds = result.seconds
        line = f"{result.name:<15}{duration(seconds):>10}{graph.flops() / seconds / unit:>10.1f}"
        line += f"{graph.bytes() / seconds / unit:>8.2f}" if name == "T" else f"{graph.bytes() / seconds / unit:>8.1f}"
        if bound:
            line += f"{bound[0] / seconds:>9.0%}"
        ratio = measured.ratio(result)
        shown = "" if result is measured.ours or ratio is None else f"{ratio:.2f}×"
        lines.append(f"{line}{shown:>10}   {_verdict(result)}")
    if measured.rows is not None and measured.rows < graph.queries:
        lines.append(f"checked: {measured.rows} of {graph.queries} queries of each head")
    return lines


def latencies(found: Latency) -> str:
    """What a user waits for besides the work."""
    return (
        f"compiling {duration(found.cold)}, {duration(found.first)} more for the first kernel; from the cache "
        f"{duration(found.warm)}; importing {duration(found.importing)}; a call without work {duration(found.call)}"
    )


def _unit(measured: Measured) -> tuple[float, str]:
    return (1e9, "G") if measured.target == "cpu" else (1e12, "T")


def roofs(measured: Measured) -> list[str]:
    """What the machine can do, and what limits this case."""
    bound = measured.bound()
    if bound is None or measured.reading is None:
        return []
    unit, name = _unit(measured)
    peaks = ", ".join(f"{kind} {value / unit:.0f} {name}FLOP/s" for kind, value in measured.peaks.items())
    moving = f"{'reading' if measured.target == 'cpu' else 'copy'} {measured.reading / unit:.3g} {name}B/s"
    return [f"this machine: {peaks}, {moving}; limited by {bound[1]}, {duration(bound[0])}"]


def row(measured: Measured, label: str, first: bool) -> list[str]:
    """A line of a sweep's table, after its head if it is the first one."""
    lines = []
    if first:
        lines.append(describe(measured.graph))
        head = f"{'case':<24}{'time':>10}{f'{_unit(measured)[1]}FLOP/s':>10}"
        head += f"{'of roof':>9}" if measured.bound() else ""
        head += "".join(f"{'× ' + result.name:>15}" for result in measured.results[1:])
        lines.append(f"{head}   error")
    ours, bound = measured.ours, measured.bound()
    if not ours.times:
        return [*lines, f"{label:<24}{_verdict(ours)}"]
    line = f"{label:<24}{duration(ours.seconds):>10}{measured.graph.flops() / ours.seconds / _unit(measured)[0]:>10.1f}"
    line += f"{bound[0] / ours.seconds:>9.0%}" if bound else ""
    for result in measured.results[1:]:
        ratio = measured.ratio(result)
        line += f"{'–' if ratio is None else f'{ratio:.2f}':>15}"
    return [*lines, f"{line}   {_verdict(ours)}"]


def notes(all_measured: Sequence[Measured]) -> list[str]:
    """What was left out of a sweep's table, and the machine."""
    said: dict[str, None] = {}
    for measured in all_measured:
        for result in measured.results[1:]:
            if not result.times:
                said[f"{result.name} {_verdict(result)}"] = None
    last = [line for measured in all_measured[-1:] for line in roofs(measured)[:1]]
    return [*said, *(line.partition("; limited")[0] for line in last)]


def markdown_head(target: str, peers: Sequence[str]) -> list[str]:
    """The head of a table for a README."""
    unit = "G" if target == "cpu" else "T"
    return [
        f"| case | {unit}FLOP/s | of roof | {' | '.join(f'× {peer}' for peer in peers)} |",
        "| --- | --- | --- |" + " --- |" * len(peers),
    ]


def markdown_row(label: str, measured: Measured, peers: Sequence[str]) -> str:
    """Its line for a case: our rate, the part of the roof, and how many times as fast as each peer ours is."""
    by_name = {result.name: result for result in measured.results}
    cells = [label]
    if measured.ours.times:
        bound = measured.bound()
        cells.append(f"{measured.graph.flops() / measured.ours.seconds / _unit(measured)[0]:.0f}")
        cells.append(f"{bound[0] / measured.ours.seconds:.2f} ({bound[1]})" if bound else "–")
    else:
        cells += ["failed", "–"]
    for peer in peers:
        ratio = measured.ratio(by_name[peer]) if peer in by_name else None
        cells.append("–" if ratio is None else f"{ratio:.2f}")
    return f"| {' | '.join(cells)} |"


def summary(ratios: Sequence[dict[str, float]]) -> list[str]:
    """How many times as fast as each peer ours is over all cases that it can do, and as the best of each case."""
    lines = []
    by_peer = {peer: [case[peer] for case in ratios if peer in case] for case in ratios for peer in case}
    best = [min(case.values()) for case in ratios if case]
    for name, found in [*by_peer.items(), *([("the best peer of each case", best)] if len(by_peer) > 1 else [])]:
        mean = statistics.geometric_mean(found)
        lines.append(f"{len(found)} cases against {name}: geometric mean {mean:.2f}×, least {min(found):.2f}×")
    return lines
