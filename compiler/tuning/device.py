"""Running a kernel to measure it, and what it is measured on.

`on_cpu`, `on_gpu`: (kernel, arguments, threads) → what gives its results once, as numpy arrays; what gives the seconds
of a call, of so many in a row; and how many bytes of registers a thread spills.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...transforms.host import cpu_name
from ..diagnostics import user_error
from ..runtime.dlpack import contiguous_strides

Prepared = tuple[Callable[[], list[np.ndarray]], Callable[[int], float], int]
LITTLE = 64  # bytes that a thread may spill: a few numbers, outside of the loop over keys
GPU_NAME = 128


def on_cpu(kernel: Any, inputs: Sequence[np.ndarray], threads: int | None) -> Prepared:
    def timed(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            kernel.run(inputs)
        return (time.perf_counter() - start) / calls

    return lambda: [np.asarray(found) for found in kernel.run(inputs)], timed, 0


def on_gpu(kernel: Any, inputs: Sequence[np.ndarray], threads: int | None) -> Prepared:
    from ..runtime.cuda_arrays import BYTES
    from ..runtime.cuda_driver import driver
    from ..runtime.cuda_plan import Plan

    runtime, of = kernel._runtime, driver()
    of.enter(of.current_device())
    library = _kept_arrays()
    tensors = [slot.shape is not None for slot in kernel.signature.arguments]
    entered = [library.enter(value) if tensor else value for value, tensor in zip(inputs, tensors, strict=True)]
    plan = runtime._plan(entered, (), library)
    if not isinstance(plan, Plan):
        raise user_error(str(plan))

    def results() -> list[np.ndarray]:
        for _, _, make in plan.made:  # what no kernel writes to stays NaN
            array = make()
            poison = np.full(math.prod(array.shape) * BYTES[array.element], 0xFF, np.uint8)
            of.to_device(array.pointer, poison.ctypes.data, poison.size)
        return [library.leave(found, entered) for found in plan.run(entered, ())]

    def timed(calls: int) -> float:
        before = of.recorded(0, timing=True)
        for _ in range(calls):
            plan.run(entered, ())
        return of.seconds_between(before, of.recorded(0, timing=True)) / calls

    spilled = sum(of.spilled(function) for function in runtime.functions())
    return results, timed, spilled if spilled > LITTLE else 0


@functools.cache
def _kept_arrays() -> Any:
    from ..runtime.cuda_arrays import BYTES, Array, NumpyArrays, _Owned

    class KeptArrays(NumpyArrays):
        """Results of all calls are in the same memory: taking and freeing some would be measured, too."""

        def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Array]:
            owner = _Owned(self.driver, math.prod(shape) * BYTES[element])
            array = Array(owner.pointer, shape, contiguous_strides(shape), element, device, owner)
            return lambda: array

    return KeptArrays()


def name_of(target: str, threads: int) -> str:
    """What schedules are measured on. A user's error where it is not there."""
    if target == "cpu":
        return f"{cpu_name()}, {threads} thread{'s' if threads > 1 else ''}"
    from ..runtime.cuda_driver import CudaError, driver

    try:
        of = driver()
        return f"{of.name(of.current_device())}, driver {of.version}"
    except CudaError as error:
        raise user_error(
            f"autotune measures on a GPU: {error}", "without autotune the schedule is chosen by rule, anywhere"
        ) from None
