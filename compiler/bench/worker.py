"""A process that holds one contender and times it when told to: ``python -m attn_opt.compiler.bench.worker``.

One process each, so that thread pools, allocators and environment variables of one contender do not touch another's,
and so that a crash ends one contender only. Jobs come as `worker_process` has them: first the contender, then for each
round how long to measure.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...transforms.host import tiles_allowed
from ..graphs import Attention
from ..worker_process import serve
from . import peers, reference

WARM_UP = 0.05  # calls shorter than this are made once before each round, which wakes threads and caches
MOST_CALLS = 2000


@dataclasses.dataclass(frozen=True)
class Job:
    """What a worker does. `kind`: contender, peak or reading. `expected`: a file of some rows of the right results;
    `options`: of `compile`, for our kernel."""

    kind: str
    name: str
    threads: int
    graph: dict[str, Any] | None = None
    init: str = "uniform"
    seed: int = 0
    expected: str | None = None
    size: int = 0
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def prepare(self) -> tuple[Callable[[], Any], dict[str, Any]]:
        """What to time, and what is known beforehand."""
        from . import roofs

        if self.kind == "peak":
            tiles_allowed()  # this process is another one than the one that asked what there is
            call, flops = roofs.peak(self.name, self.threads)
            return call, {"work": flops}
        if self.kind == "reading":
            call, size = roofs.reading(self.size, self.threads)
            return call, {"work": size}
        graph = Attention.of_plain(self.graph or {})
        inputs = graph.inputs(self.init, self.seed)
        start = time.perf_counter()
        if self.name == "attn-opt":
            call, results = peers.attn_opt(graph, inputs, self.threads, self.options)
        else:
            call, results = peers.PEERS[self.name](graph, inputs, self.threads)
        found = call()
        about: dict[str, Any] = {"compile_s": time.perf_counter() - start, "kernel": getattr(call, "kernel", "")}
        if self.expected:
            expected = np.load(self.expected)
            about["error"] = reference.error([x[:, :, expected["rows"]] for x in results(found)], expected)
        return call, about


def timed(call: Callable[[], Any], seconds: float, warmup: int | None = None, repeat: int | None = None) -> list[float]:
    """The times of calls in a row, of one at least: `repeat` of them, or as many as take about `seconds`.

    Before them stand `warmup` calls, or else one, which counts if it is long enough.
    """
    times: list[float] = []
    for _ in range(1 if warmup is None else warmup):
        start = time.perf_counter()
        call()
        first = time.perf_counter() - start
        if warmup is None and first >= WARM_UP:
            times = [first]
    most = repeat or MOST_CALLS
    while not times or (len(times) < most and (repeat is not None or sum(times) < seconds)):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


_held: list[Callable[[], Any]] = []  # the call to time, once the job was told


def _answer(line: dict[str, Any]) -> dict[str, Any]:
    if "kind" not in line:
        return {"times": timed(_held[0], **line)}
    try:
        call, about = Job(**line).prepare()
    except Exception as error:
        return peers.refusal(error)
    _held[:] = [call]
    return about


if __name__ == "__main__":
    serve(_answer)
