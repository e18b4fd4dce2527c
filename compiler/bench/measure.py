"""Measures contenders on a graph in one run: interleaved rounds, medians, next to what the machine can do."""

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..accuracy import TOLERANCES
from ..diagnostics import user_error
from ..graphs import Attention
from ..worker_process import WorkerProcess
from . import gpu, peers, reference
from .latency import Latency
from .worker import Job

# Thread pools wait actively for a while after their last work (libiomp5: 0.2 s); the next contender waits for that.
SETTLE = 0.25
Progress = Callable[[str], None]


@dataclasses.dataclass
class Result:
    """One contender on one graph. `times`: the medians of the rounds, in seconds; empty if it was `skipped`."""

    name: str
    times: list[float]
    compile_s: float | None = None
    error: float | None = None
    passed: bool | None = None
    kernel: str = ""  # what it consists of
    skipped: str = ""  # why
    failed: str = ""  # why

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)


@dataclasses.dataclass
class Measured:
    """All contenders on one graph, ours first. Peaks in FLOP/s by what they are measured with, reading in bytes/s."""

    graph: Attention
    threads: int
    results: list[Result]
    peaks: dict[str, float]
    reading: float | None
    rows: int | None  # how many queries of each head were checked
    latency: Latency | None = None
    target: str = "cpu"  # on GPUs `reading` is a copy's rate, bytes read and written

    @property
    def ours(self) -> Result:
        return self.results[0]

    @property
    def peak(self) -> float | None:
        return max(self.peaks.values(), default=None)

    def bound(self) -> tuple[float, str] | None:
        """The least seconds that this machine needs for the work, and what it would be waiting for."""
        if self.peak is None or self.reading is None:
            return None
        compute, memory = self.graph.flops() / self.peak, self.graph.bytes() / self.reading
        return (compute, "compute") if compute >= memory else (memory, "memory")

    def ratio(self, result: Result) -> float | None:
        """How many times as fast as `result` ours is: the median over the rounds of one run."""
        if not result.times or not self.ours.times:
            return None
        return statistics.median(b / a for a, b in zip(self.ours.times, result.times, strict=True))

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        bound = self.bound()
        results = []
        for result in self.results:
            found = {key: value for key, value in dataclasses.asdict(result).items() if value not in ("", None)}
            if result.error is not None and not np.isfinite(result.error):
                found["error"] = str(result.error)  # JSON has no infinity
            if result.times:
                found["seconds"] = result.seconds
                found["gflops"] = self.graph.flops() / result.seconds / 1e9
                found["ours_times_as_fast"] = self.ratio(result)
                if bound:
                    found["fraction_of_roof"] = bound[0] / result.seconds
            results.append(found)
        return {
            "graph": dataclasses.asdict(self.graph),
            "target": self.target,
            "threads": self.threads,
            "flops": self.graph.flops(),
            "bytes": self.graph.bytes(),
            "peaks_gflops": {name: value / 1e9 for name, value in self.peaks.items()},
            "reading_gb_s": None if self.reading is None else self.reading / 1e9,
            "limited_by": bound[1] if bound else None,
            "checked_queries": self.rows,
            "latency": None if self.latency is None else dataclasses.asdict(self.latency),
            "results": results,
        }


@dataclasses.dataclass(frozen=True)
class Measuring:
    """How to measure. `warmup` and `repeat`: calls before and in each round; None: as `seconds` has it; `options`: of
    `compile`, for our kernel."""

    with_roofs: bool = False
    validate: bool = True
    rounds: int = 5
    seconds: float = 0.3
    warmup: int | None = None
    repeat: int | None = None
    init: str = "uniform"
    seed: int = 0
    target: str = "cpu"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


class Worker:
    """A process that holds one contender, or a roof; see the module `worker`."""

    def __init__(self, job: Job):
        self.job = job
        self._process = WorkerProcess(f"{__package__}.worker", peers.environment(job.threads))
        self.times: list[float] = []
        self.about = self._process.ask(dataclasses.asdict(job))
        if not self.able:
            self.close()  # what it holds is of no use

    @property
    def able(self) -> bool:
        return not {"failed", "skipped"} & self.about.keys()

    def round(self, how: Measuring) -> None:
        answer = self._process.ask({"seconds": how.seconds, "warmup": how.warmup, "repeat": how.repeat})
        if "times" in answer:
            self.times.append(statistics.median(answer["times"]))
        else:
            self.about.update(answer)
            self.times = []

    @property
    def rate(self) -> float:
        """For roofs: work per second, the median over the rounds, as for contenders: both had the same neighbours."""
        return self.about["work"] / statistics.median(self.times)

    def close(self) -> None:
        self._process.close()


def measure(
    graph: Attention,
    contenders: Sequence[str] = (),
    how: Measuring = Measuring(),
    *,
    threads: int = 1,
    progress: Progress = lambda what: None,
    on_gpu: gpu.Process | None = None,
    kept: str | None = None,
    limit: float | None = None,
) -> Measured:
    """Ours and `contenders` on a graph; see Measured.

    For a GPU: `on_gpu` is the process to use, for many cases; `limit`: the most seconds that it may take. `kept`: a
    folder of files that were made before (`reference.prepare`, `gpu.kernel_file`). Raises DiagnosedError where the
    arrays do not fit into memory.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if graph.bytes() > memory:
        sizes = f"{graph.bytes() / 1e9:.3g} GB, more than the {memory / 1e9:.3g} GB of this machine's memory"
        raise user_error(f"arguments and results take {sizes}; make -b, -h, -s or -d smaller")
    with tempfile.TemporaryDirectory(prefix="attn-bench-") as folder:
        rows, expected = None, None
        if how.validate:
            progress("reference in float64")
            rows, expected = reference.expected(graph, how.init, how.seed, kept or folder)
        if how.target == "nvidia":
            progress("on the GPU")
            wanted = gpu.Job(dataclasses.asdict(graph), list(contenders), dataclasses.asdict(how), expected, kept)
            if on_gpu is not None:
                return _of_gpu(graph, on_gpu.run(wanted, limit), rows)
            with gpu.Process() as process:
                return _of_gpu(graph, process.run(wanted, limit), rows)
        from . import roofs

        common: dict[str, Any] = {"threads": threads, "init": how.init, "seed": how.seed, "expected": expected}
        common["options"] = how.options
        jobs = [Job("contender", name, graph=dataclasses.asdict(graph), **common) for name in ("attn-opt", *contenders)]
        if how.with_roofs:
            jobs += [Job("peak", kind, threads) for kind in roofs.kinds(graph.element)]
            jobs.append(Job("reading", "reading", threads, size=min(max(graph.bytes(), 1 << 20), 1 << 30)))
        workers: list[Worker] = []
        try:
            for job in jobs:
                progress(
                    f"{job.name}: preparing" if job.kind == "contender" else f"{job.kind} of the machine: {job.name}"
                )
                workers.append(Worker(job))
            for number in range(how.rounds):
                for worker in workers:
                    if worker.able:
                        progress(f"round {number + 1} of {how.rounds}: {worker.job.name}")
                        if threads > 1:
                            time.sleep(SETTLE)
                        worker.round(how)
        finally:
            for worker in workers:
                worker.close()
    return _measured(graph, threads, workers, rows)


def _of_gpu(graph: Attention, answers: dict[str, dict[str, Any]], rows: int | None) -> Measured:
    """What a GPU's process answered."""
    rates = {
        name: found["work"] / statistics.median(found["times"]) for name, found in answers.items() if "work" in found
    }
    reading = rates.pop("copy", None)
    results = [
        _result(name, found, graph, found.get("times", [])) for name, found in answers.items() if "work" not in found
    ]
    results.sort(key=lambda result: result.name != "attn-opt")
    return Measured(graph, 1, results, rates, reading, rows, target="nvidia")


def _result(name: str, about: dict[str, Any], graph: Attention, times: list[float]) -> Result:
    error = about.get("error")
    return Result(
        name,
        times,
        about.get("compile_s"),
        error,
        None if error is None else error <= TOLERANCES[graph.element],
        about.get("kernel", ""),
        about.get("skipped", ""),
        about.get("failed", ""),
    )


def _measured(graph: Attention, threads: int, workers: Sequence[Worker], rows: int | None) -> Measured:
    results, peaks, reading = [], {}, None
    for worker in workers:
        about, job = worker.about, worker.job
        if job.kind == "contender":
            results.append(_result(job.name, about, graph, worker.times))
        elif worker.times and job.kind == "peak":
            peaks[job.name] = worker.rate
        elif worker.times:
            reading = worker.rate
    return Measured(graph, threads, results, peaks, reading, rows)
