"""``attn-run``: compiles a module, runs it on made-up or given inputs, checks the results, times it."""

import shlex
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..diagnostics import Printer
from . import streams
from .attn_run_options import Options, parse_options
from .exit_status import ends_on_request, exit_status
from .isolation import Crash, isolated

# Kernels are timed in rounds of at least this many seconds, and at least this many calls.
BENCH_SECONDS, BENCH_CALLS = 1.0, 5


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the value is the exit status: 0 if all went well and every check passed.

    Called with arguments it works in this process, and may crash it.
    """
    streams.prepare()
    if arguments is not None:
        return _command(list(arguments))
    ends_on_request()
    try:
        return isolated(lambda: _command(sys.argv[1:]))
    except Crash as crash:
        what = "was killed; is there enough memory?" if crash.number == signal.SIGKILL else f"crashed: {crash}"
        print(f"attn-run: internal error: the compiler or the compiled kernel {what}", file=sys.stderr)
        print(f"  to reproduce: {shlex.join(['attn-run', *sys.argv[1:]])}", file=sys.stderr)
        return 1


def _command(arguments: list[str]) -> int:
    printer = Printer("attn-run", remarks=False)
    return exit_status(printer, lambda: _run(parse_options(arguments), printer), "--no-check")


def _run(options: Options, printer: Printer) -> int:
    from ..api import compile_text
    from ..options import check_target
    from ..runtime.signature import Signature
    from ..sources import find_entry, load_text, read
    from . import arrays, checking

    check_target(options.target)
    text, name = streams.read_stdin() if options.input == "-" else read(options.input)
    printer.add_source(name, text)
    graph = load_text(text, name)
    function = find_entry(graph, options.entry)
    signature = Signature.of(function)
    if options.outputs:
        arrays.check_outputs(options.outputs, signature)
    given = options.inputs
    inputs = arrays.read(given, signature) if given else arrays.random(signature, options.sizes, options.seed)
    inputs = signature.bind(inputs)
    seed = None if given else options.seed
    print(f"{name}: {arrays.describe(signature, inputs, seed)}", flush=True)

    start = time.perf_counter()
    kernel = compile_text(text, name, options.target, options.compile_options(printer))
    print(f"compiled for {options.target} in {time.perf_counter() - start:.2f} s", flush=True)
    _print_ir(kernel, options.print_ir)
    runner = kernel if options.target == "cpu" else kernel.on_host()
    results = runner.run(inputs)
    if options.outputs:
        arrays.write(options.outputs, results)

    passed, flops = True, None
    table: list[dict[str, str]] = []
    times: dict[str, str] = {}
    if options.check:
        expected, flops = checking.reference(graph, signature.name, inputs)
        if options.tolerance is None:
            allowed = checking.limits(graph, function, inputs, results, expected)
        else:
            allowed = [options.tolerance] * len(results)
        passed, table = checking.report(signature, results, expected, allowed)
        del expected
    if options.bench:
        times = _bench(runner, inputs, flops)
    if options.report:
        from .report import Report

        Report(
            signature.name,
            f"{name}, compiled for {options.target} and run on {arrays.describe(signature, inputs, seed)}",
            kernel.record,
            [(stage, kernel.ir(stage)) for stage in kernel.stages()],
            [array.shape for array in inputs],
            table,
            times,
            passed if options.check else None,
        ).write(options.report)
    return 0 if passed else 1


def _print_ir(kernel: Any, stages: Sequence[str]) -> None:
    for stage in kernel.stages() if "all" in stages else stages:
        print(f"// -----// {stage} //----- //\n{kernel.ir(stage).rstrip()}", flush=True)


def _bench(kernel: Any, inputs: list[np.ndarray], flops: int | None) -> dict[str, str]:
    """Prints the median time of a call and, where the work is known, its speed; they are the value too.

    On a GPU the time of its kernels, without the copies of inputs and results.
    """
    kernel.run(inputs)
    seconds: list[float] = []
    begin = time.perf_counter()
    while len(seconds) < BENCH_CALLS or (time.perf_counter() - begin < BENCH_SECONDS and len(seconds) < 10_000):
        start = time.perf_counter()
        kernel.run(inputs)
        end = time.perf_counter()
        seconds.append(getattr(kernel, "kernel_seconds", end - start))
    median = statistics.median(seconds)
    print(f"time    {_time(median)} a call (median of {len(seconds)}; fastest {_time(min(seconds))})")
    times = {"time": _time(median), "median of": f"{len(seconds)} calls", "fastest": _time(min(seconds))}
    if flops:
        print(f"speed   {flops / median / 1e9:.1f} GFLOP/s ({flops / 1e9:.3g} GFLOP in matmuls)")
        times |= {"speed": f"{flops / median / 1e9:.1f} GFLOP/s", "work": f"{flops / 1e9:.3g} GFLOP in matmuls"}
    return times


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


if __name__ == "__main__":
    sys.exit(main())
