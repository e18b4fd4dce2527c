"""Measures contenders on one GPU in one process: interleaved rounds, CUDA events, next to what the GPU can do.

    with Process() as process:
        answers = process.run(Job(…), limit=60)

In a process of its own, so that a crash or a hang is told of and does no harm. Rates of the machine are measured in
the same rounds: a matmul of 8192 × 8192 × 8192 by torch, and a copy of 2 GiB (bytes read and written).
"""

import dataclasses
import gc
import hashlib
import importlib.util
import json
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..diagnostics import user_error
from ..graphs import Attention
from ..runtime import cuda_driver
from ..worker_process import WorkerProcess, serve
from . import gpu_peers, peers, reference

MATMUL_SIZE, COPY_BYTES = 8192, 1 << 31
WARM_UPS = 3
LEAD = 2  # before a turn stands this part of it, which does not count


@dataclasses.dataclass(frozen=True)
class Job:
    """What to measure; `how`: a `measure.Measuring` as a dict; `kernels`: a folder of kernels that were compiled
    before (`kernel_file`), or None."""

    graph: dict[str, Any]
    contenders: list[str]
    how: dict[str, Any]
    expected: str | None
    kernels: str | None = None


class Process(WorkerProcess):
    """The process that measures, for one case after the other."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def run(self, job: Job, limit: float | None = None) -> dict[str, dict[str, Any]]:
        """What was found of each contender and roof, by name, as `worker` answers it; `limit`: in seconds."""
        answer = self.ask(dataclasses.asdict(job), limit)
        return dict.fromkeys(("attn-opt", *job.contenders), answer) if "failed" in answer else answer


def check() -> None:
    """A user's error where there is no GPU to measure, or no PyTorch, whose tensors and events are used for it."""
    try:
        cuda_driver.driver()
    except cuda_driver.CudaError as error:
        raise user_error(str(error)) from None
    if importlib.util.find_spec("torch") is None:
        raise user_error("PyTorch, with which GPUs are timed, is not installed: pip install 'attn-opt[torch]'")


def kernel_file(graph: Attention, options: dict[str, Any]) -> str:
    """The name of the file that a graph's kernel is saved in."""
    about = json.dumps([graph.text(), sorted(options.items())])
    return f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.kernel"


@dataclasses.dataclass
class _Timed:
    """`about`: as `worker` answers; `calls`: how many make a round."""

    call: Callable[[], Any]
    about: dict[str, Any]
    times: list[float] = dataclasses.field(default_factory=list)
    calls: int = 1


def _measured(job: Job) -> dict[str, dict[str, Any]]:
    import torch

    graph, how = Attention.of_plain(job.graph), job.how
    arrays = graph.inputs(how["init"], how["seed"])
    expected = np.load(job.expected) if job.expected else None
    answers: dict[str, dict[str, Any]] = {}
    timed: dict[str, _Timed] = {}
    for name in ("attn-opt", *job.contenders):
        try:
            start = time.perf_counter()
            if name == "attn-opt":
                call, results = gpu_peers.attn_opt(graph, arrays, how["options"], _compiled(job, graph))
            else:
                call, results = gpu_peers.GPU_PEERS[name](graph, arrays)
            found = call()
            torch.cuda.synchronize()
            about: dict[str, Any] = {"compile_s": time.perf_counter() - start}
            if expected is not None:
                rows = torch.from_numpy(expected["rows"]).cuda()
                outputs = [tensor[:, :, rows].double().cpu().numpy() for tensor in results(found)]
                about["error"] = reference.error(outputs, expected)
            timed[name] = _Timed(call, about)
        except Exception as error:
            answers[name] = peers.refusal(error)
    if how["with_roofs"]:
        timed |= _roofs(torch, graph)
    for one in timed.values():
        for _ in range(WARM_UPS if how["warmup"] is None else how["warmup"]):
            one.call()
        one.calls = how["repeat"] or max(1, int(how["seconds"] / max(_seconds(torch, one.call, 2), 1e-6)))
    for names in orders(list(timed), how["rounds"]):
        for one in map(timed.__getitem__, names):
            one.times.append(_seconds(torch, one.call, one.calls, one.calls // LEAD))
    return answers | {name: one.about | {"times": one.times} for name, one in timed.items()}


def orders(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Who comes when in each round: not always after the same one, whose heavy work the chip may still feel.

    Over as many rounds as there are names, each follows every other one once; or twice over twice as many, where their
    number is odd. (Williams 1949, "Experimental designs balanced for the estimation of residual effects".)
    """
    count = len(names)
    zigzag = [0, *(i for k in range(1, count // 2 + 1) for i in (k, count - k))][:count]
    found = []
    for number in range(rounds):
        shift = number // 2 if count % 2 else number
        order = [names[(i + shift) % count] for i in zigzag]
        found.append(order[::-1] if count % 2 and number % 2 else order)
    return found


def _roofs(torch: Any, graph: Attention) -> dict[str, _Timed]:
    kind = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}.get(graph.element)
    found: dict[str, _Timed] = {}
    source = torch.randint(0, 256, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    found["copy"] = _Timed(lambda: target.copy_(source), {"work": 2 * COPY_BYTES})
    if kind is not None:
        a, b = torch.randn(2, MATMUL_SIZE, MATMUL_SIZE, dtype=kind, device="cuda")
        found[f"{graph.element} matmul"] = _Timed(lambda: a @ b, {"work": 2 * MATMUL_SIZE**3})
    return found


def _seconds(torch: Any, call: Callable[[], Any], calls: int, lead: int = 0) -> float:
    """The time of a call on the GPU, of several in a row, after `lead` and one that do not count."""
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(lead + 1):
        call()
    before.record()
    for _ in range(calls):
        call()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3 / calls


def _compiled(job: Job, graph: Attention) -> pathlib.Path | None:
    file = pathlib.Path(job.kernels or "", kernel_file(graph, job.how["options"]))
    return file if job.kernels is not None and file.exists() else None


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return _measured(Job(**job))
    finally:
        gc.collect()  # the next case needs the memory
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


if __name__ == "__main__":
    serve(_answer)
