"""``attn-bench``: times attention of any shape, next to what the machine can do and to other implementations."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence

from .. import env
from ..bench import table
from ..bench.latency import Latency
from ..bench.measure import Measured, measure
from ..diagnostics import Printer, user_error
from .attn_bench_options import Options, parse_options
from .telling import telling


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the value is the exit status: 0 if everything ran and was right.

    What is measured runs in processes of its own, so that nothing can crash this one.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    return telling(Printer("attn-bench", remarks=False), lambda: _run(parse_options(given)), "-v=0")


def default_threads() -> int:
    """ATTN_OPT_THREADS, or all processors that this process may use."""
    try:
        return env.get("THREADS") or len(os.sched_getaffinity(0))
    except env.VariableError as error:
        raise user_error(str(error)) from None


class Bar:
    """A bar on a terminal that says how far a sweep is; nothing on a stream that is none."""

    def __init__(self, total: int):
        self.total, self.done = total, 0
        self.shown = sys.stderr.isatty()

    def __call__(self, what: str) -> None:
        if self.shown:
            width = shutil.get_terminal_size().columns - 1
            full = 20 * self.done // self.total
            bar = "█" * full + "░" * (20 - full)
            print(f"\r\033[K{f'{bar} {self.done}/{self.total} {what}'[:width]}", end="", file=sys.stderr, flush=True)

    def step(self) -> None:
        self.done += 1

    def clear(self) -> None:
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _run(options: Options) -> int:
    threads = options.threads or default_threads()
    if options.plot is not None:
        from ..bench import plot

        plot.check()
    bar = Bar(len(options.cases))
    all_measured: list[Measured] = []
    quiet = options.json == "-"
    try:
        for label, graph in options.cases:
            found = measure(
                graph,
                options.compare,
                options.measuring,
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
        raise user_error(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


if __name__ == "__main__":
    sys.exit(main())
