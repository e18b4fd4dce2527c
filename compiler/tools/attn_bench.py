"""``attn-bench``: times attention of any shape, next to what the machine can do and to other implementations."""

import dataclasses
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from .. import env
from ..bench import table
from ..bench.latency import Latency
from ..bench.measure import Measured, Measuring, measure
from ..diagnostics import Printer, file_error, user_error
from ..graphs import Attention
from ..tuning.progress_bar import ProgressBar
from . import streams
from .attn_bench_options import Options, parse_options
from .exit_status import ends_on_request, exit_status


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the value is the exit status: 0 if everything ran and was right.

    What is measured runs in processes of its own, so that nothing can crash this one.
    """
    streams.prepare()
    if arguments is None:
        ends_on_request()
    given = sys.argv[1:] if arguments is None else list(arguments)
    return exit_status(Printer("attn-bench", remarks=False), lambda: _run(parse_options(given)), "-v=0")


def default_threads() -> int:
    """ATTN_OPT_THREADS, or all processors that this process may use."""
    try:
        return env.get("THREADS") or len(os.sched_getaffinity(0))
    except env.VariableError as error:
        raise user_error(str(error)) from None


class SweepProgress:
    """Says on a terminal how far a sweep is."""

    def __init__(self, total: int):
        self.total, self.done = total, 0
        self._line = ProgressBar()

    def __call__(self, what: str) -> None:
        self._line(self.done, self.total, what)

    def step(self) -> None:
        self.done += 1

    def clear(self) -> None:
        self._line.clear()


def tune(graph: Attention, how: Measuring, threads: int, say: Callable[[str], None]) -> tuple[Measuring, list[str]]:
    """How to measure with the schedule that is the fastest here, and a table of what was tried."""
    from ..options import make_options, settled
    from ..tuning.search import table as tried
    from ..tuning.search import tuned

    options = settled(how.target, make_options({**how.options, "threads": threads, "autotune": True}))
    found = tuned(
        graph.text(), how.target, options, graph.inputs(how.init, how.seed), lambda done, all, what: say(what)
    )
    return dataclasses.replace(how, options={**how.options, **found.schedule}), tried(found)


def _run(options: Options) -> int:
    threads = options.threads or default_threads()
    if options.plot is not None:
        from ..bench import plot

        plot.check()
    if options.measuring.target == "nvidia":
        from ..bench import gpu

        gpu.check()
    bar = SweepProgress(len(options.cases))
    all_measured: list[Measured] = []
    quiet = options.json == "-"
    try:
        for label, graph in options.cases:
            how = options.measuring
            if options.autotune:
                how, tried = tune(graph, how, threads, lambda what, label=label: bar(f"{label}  {what}"))  # type: ignore[misc]
                bar.clear()
                print("\n".join(tried), file=sys.stderr if quiet else sys.stdout, flush=True)
            found = measure(
                graph,
                options.compare,
                how,
                threads=threads,
                progress=lambda what, label=label: bar(f"{label}  {what}"),  # type: ignore[misc]
            )
            if options.latency:
                bar(f"{label}  compiling, loading, calling")
                found.latency = Latency.of(graph)
            bar.step()
            bar.clear()
            all_measured.append(found)
            if not quiet:
                lines = (
                    table.case(found) if len(options.cases) == 1 else table.row(found, label, len(all_measured) == 1)
                )
                if found.latency is not None:
                    lines.append(table.latencies(found.latency))
                if options.kname and found.ours.kernel:
                    lines.append(found.ours.kernel)
                print("\n".join(lines), flush=True)
    finally:
        bar.clear()
    if not quiet and len(options.cases) > 1:
        print("\n".join(table.notes(all_measured)))
    if options.json is not None:
        _write_json(options.json, all_measured)
    if options.plot is not None:
        plot.draw(options.plot, all_measured, [label for label, _ in options.cases])
        print(f"drawn: {options.plot}", file=sys.stderr)
    good = all(found.ours.times and found.ours.passed in (True, None) for found in all_measured)
    return 0 if good else 1


def _write_json(path: str, all_measured: Sequence[Measured]) -> None:
    text = json.dumps(
        {"command": shlex.join(["attn-bench", *sys.argv[1:]]), "cases": [found.plain() for found in all_measured]},
        indent=2,
        allow_nan=False,
    )
    if path == "-":
        print(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise file_error(path, "written", error) from None


if __name__ == "__main__":
    sys.exit(main())
