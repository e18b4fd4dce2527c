"""Running kernels to measure them, and what they are measured on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...transforms.host import cpu_name
from ..diagnostics import user_error


class Running(Protocol):
    """A kernel on arguments."""

    spilled: int  # bytes of registers that a thread keeps in memory, where they are many

    def results(self) -> list[np.ndarray]:
        """Of one call, which finds results full of NaN where they are ours to fill."""

    def seconds(self, calls: int) -> float:
        """Of a call, on average over so many in a row."""


class OnCpu:
    def __init__(self, kernel: Any, inputs: Sequence[np.ndarray]):
        self.kernel, self.inputs, self.spilled = kernel, inputs, 0

    def results(self) -> list[np.ndarray]:
        return [np.asarray(found) for found in self.kernel.run(self.inputs)]

    def seconds(self, calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            self.kernel.run(self.inputs)
        return (time.perf_counter() - start) / calls


class OnGpu:
    """`entered`: the arguments, on the device."""

    def __init__(self, kernel: Any, entered: Sequence[Any], library: Any):
        from ..runtime.cuda_driver import LITTLE, driver
        from ..runtime.cuda_plan import Plan

        self.driver, self.library, self.entered = driver(), library, entered
        kernel._runtime.tile_sizes = ()  # that were chosen here: what spills is told of by `spilled`
        plan = kernel._runtime._plan(entered, (), library)
        if not isinstance(plan, Plan):
            raise user_error(str(plan))
        self.plan = plan
        spilled = sum(self.driver.spilled(function) for function in kernel._runtime.functions())
        self.spilled = spilled if spilled > LITTLE else 0

    def results(self) -> list[np.ndarray]:
        from ..runtime.cuda_arrays import BYTES

        for *_, make in self.plan.made:
            array = make()
            poison = np.full(math.prod(array.shape) * BYTES[array.element], 0xFF, np.uint8)
            self.driver.to_device(array.pointer, poison.ctypes.data, poison.size)
        return [self.library.leave(found, self.entered) for found in self.plan.run(self.entered, ())]

    def seconds(self, calls: int) -> float:
        before = self.driver.recorded(0, timing=True)
        for _ in range(calls):
            self.plan.run(self.entered, ())
        return self.driver.seconds_between(before, self.driver.recorded(0, timing=True)) / calls


def runner(target: str, kernel: Any, inputs: Sequence[np.ndarray]) -> Callable[[Any], Running]:
    """What runs kernels such as `kernel` on these arguments."""
    if target == "cpu":
        return lambda kernel: OnCpu(kernel, inputs)
    library = _kept_arrays()
    tensors = [slot.shape is not None for slot in kernel.signature.arguments]
    entered = [library.enter(value) if tensor else value for value, tensor in zip(inputs, tensors, strict=True)]
    return lambda kernel: OnGpu(kernel, entered, library)


def _kept_arrays() -> Any:
    from ..runtime.cuda_arrays import Array, NumpyArrays

    class KeptArrays(NumpyArrays):
        """Results of all calls are in the same memory: taking and freeing some would be measured, too."""

        def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Array]:
            array = super().allocator(shape, element, device)()
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
