"""The right results of some queries of a graph, in files, for processes that check others' results by them.

rows, file = expected(graph, "uniform", 0, folder)      # computed, unless the file is there already
prepare([(graph, "uniform", 0), …], folder)             # of many graphs, by all processors
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..accuracy import errors
from ..graphs import Attention
from ..worker_process import ask_all, serve

CHECKED_FLOPS = 3e10  # beyond that much work a part of the rows is checked
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # one in each of many processes


def checked_rows(graph: Attention) -> np.ndarray:
    """Queries spread over all."""
    per_row = graph.flops() / graph.queries
    count = min(graph.queries, max(16, int(CHECKED_FLOPS / max(per_row, 1))))
    return np.unique(np.linspace(0, graph.queries - 1, count).astype(int))


def expected(graph: Attention, init: str, seed: int, folder: str) -> tuple[int, str]:
    """The file of the right results, with of how many queries of each head they are."""
    rows = checked_rows(graph)
    about = json.dumps([dataclasses.asdict(graph), init, seed])
    path = os.path.join(folder, f"expected-{hashlib.sha256(about.encode()).hexdigest()[:16]}.npz")
    if not os.path.exists(path):
        out, lse = graph.reference(graph.inputs(init, seed), rows)
        unfinished = f"{path}.{os.getpid()}.npz"
        np.savez(unfinished, rows=rows, out=out, lse=lse)
        os.replace(unfinished, path)
    return len(rows), path


def error(found: Iterable[np.ndarray], right: Mapping[str, np.ndarray]) -> float:
    """The largest relative error of some contender's results: the output of the checked rows, perhaps the lse."""
    return max(errors(array, right[name])[1] for name, array in zip(("out", "lse"), found, strict=False))


def prepare(
    graphs: Sequence[tuple[Attention, str, int]], folder: str, done: Callable[[int], None] = lambda number: None
) -> None:
    """Computes the files of all of them, as many at a time as there are processors."""
    jobs = [
        {"graph": dataclasses.asdict(graph), "init": init, "seed": seed, "folder": folder}
        for graph, init, seed in graphs
    ]
    ask_all(__name__, jobs, environment=dict.fromkeys(THREADS, "1"), done=lambda number, answer: done(number))


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    expected(Attention.of_plain(job["graph"]), job["init"], job["seed"], job["folder"])
    return {}


if __name__ == "__main__":
    serve(_answer)
