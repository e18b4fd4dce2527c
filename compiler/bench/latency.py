"""What a user waits for before and around the work: importing, compiling, loading, calling; in a process of its own.

python -m attn_opt.compiler.bench.latency < graph.json
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from ..graphs import Attention

COMPILED, LOADED, CALLED = 3, 9, 2000
NOTHING: dict[str, Any] = {"batch": 1, "queries": 1, "keys": 1, "lengths": (), "groups": ()}  # of work


@dataclasses.dataclass(frozen=True)
class Latency:
    """Seconds. `cold`: Python's passes and LLVM; `warm`: the same from the cache on disk; `call`: where there is no
    work; `first`: what the first kernel of a process takes longer, for modules that are loaded when they are needed."""

    importing: float
    first: float
    cold: float
    warm: float
    call: float

    @staticmethod
    def of(graph: Attention) -> "Latency":
        """Measured now, in another process, with a cache of its own."""
        with tempfile.TemporaryDirectory(prefix="attn-bench-") as folder:
            path = os.pathsep.join(p for p in sys.path if p)
            variables = {**os.environ, "PYTHONPATH": path, "ATTN_OPT_CACHE_DIR": folder, "ATTN_OPT_CACHE": "1"}
            done = subprocess.run(
                [sys.executable, "-m", __name__],
                input=json.dumps(dataclasses.asdict(graph)),
                capture_output=True,
                text=True,
                env=variables,
            )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().split("\n")[-1])
        return Latency(**json.loads(done.stdout))


def _median(work: Callable[[], Any], count: int, before: Callable[[], Any] = lambda: None) -> float:
    times = []
    for _ in range(count):
        before()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _measured(graph: Attention) -> Latency:
    start = time.perf_counter()
    from .. import api, cache

    importing = time.perf_counter() - start
    text = graph.text()
    start = time.perf_counter()
    api.compile(text, threads=1)
    first = time.perf_counter() - start
    warm = _median(lambda: api.compile(text, threads=1), LOADED, cache.forget)
    os.environ["ATTN_OPT_CACHE"] = "0"
    cold = _median(lambda: api.compile(text, threads=1), COMPILED)
    small = dataclasses.replace(graph, **{k: v for k, v in NOTHING.items() if getattr(graph, k)})
    kernel, inputs = api.compile(small.text(), threads=1), small.inputs()
    return Latency(importing, first - cold, cold, warm, _median(lambda: kernel(*inputs), CALLED))


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(_measured(Attention.of_plain(json.load(sys.stdin))))))
