"""Runs a kernel for GPUs with its host code as machine code: copies and launches by MLIR's ExecutionEngine.

    run = HostKernel(kernel.ir("llvm"), kernel.ir("ptx"), kernel.signature, arch)
    out, = run(q, k, v)               # numpy arrays

The module holds all of it: the host's function, and the kernels' code as a gpu.binary. What it calls, the mgpu
functions of MLIR's GPU runtime, are functions of ours on the CUDA driver.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dialects import make_context
from ...dialects.assembly import parse_module
from ...dialects.mlir import ir
from ...transforms.nvidia.kernels.host_copies import ELEMENTS, MAP_WORDS
from ...transforms.nvidia.version_functions import versions_of
from ...transforms.symbols import symbol_of
from .. import pass_manager
from ..diagnostics import user_error
from ..sources import find_entry
from . import cpu
from .cuda import SHARED_SIZE_ATTRIBUTE
from .cuda_driver import CudaError, Driver, driver
from .nvidia import find_kernels
from .signature import Signature
from .tensor_maps import TensorMap

_POINTER, _SIZE, _INT32 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32


class GpuRuntime:
    """MLIR's interface to a GPU's runtime: a method per function, its types in `FUNCTIONS`.

    Compiled code cannot carry exceptions: the first one is kept, and nothing is done after it.
    """

    def __init__(self, of: Driver):
        self.driver = of
        self.error: BaseException | None = None
        self._events: list[tuple[ctypes.c_void_p, ctypes.c_void_p]] = []  # before and after each launch
        self._modules: dict[bytes, ctypes.c_void_p] = {}
        self.callbacks = {
            name: ctypes.CFUNCTYPE(result, *kinds)(self._guarded(getattr(self, name)))
            for name, (result, *kinds) in FUNCTIONS.items()
        }

    def _guarded(self, function: Callable) -> Callable:
        def call(*arguments: Any) -> Any:
            if self.error is None:
                try:
                    return function(*arguments)
                except BaseException as error:
                    self.error = error
            return 0

        return call

    def check(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error

    def _new(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_void_p()
        self.driver.call(name, ctypes.byref(value), *arguments)
        return value.value or 0

    # Code.

    def mgpuModuleLoad(self, data: int, size: int) -> int:
        self.driver.enter(self.driver.current_device())
        code = ctypes.string_at(data, size).rstrip(b"\0") + b"\0"
        if code not in self._modules:
            self._modules[code] = self.driver.load(code, None)
        return self._modules[code].value or 0

    def mgpuModuleLoadJIT(self, data: int, level: int, size: int) -> int:
        return self.mgpuModuleLoad(data, size)

    def mgpuModuleUnload(self, module: int) -> None:
        """Modules stay: the next call needs them again."""

    def mgpuModuleGetFunction(self, module: int, name: bytes) -> int:
        return self._new("cuModuleGetFunction", ctypes.c_void_p(module), name)

    def mgpuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra, count) -> None:
        if not gx * gy * gz:
            return
        size, kernel = ctypes.c_uint, ctypes.c_void_p(function)
        self.driver.call("cuFuncSetAttribute", kernel, SHARED_SIZE_ATTRIBUTE, shared)
        grid = (size(gx), size(gy), size(gz), size(bx), size(by), size(bz), size(shared))
        words = (ctypes.c_void_p * count).from_address(parameters)
        before = self.driver.recorded(stream, timing=True)
        self.driver.call("cuLaunchKernel", kernel, *grid, ctypes.c_void_p(stream), words, None)
        self._events.append((before, self.driver.recorded(stream, timing=True)))

    def kernel_seconds(self) -> float:
        """How long the launches since the last call took on the GPU."""
        events, self._events = self._events, []
        return sum(self.driver.seconds_between(*pair) for pair in events)

    def mgpuTensorMapEncodeWords(self, target: int, words: int) -> None:
        """A tensor map of address, element type, rank, sizes, strides, box; see the pass host-copies."""
        address, element, rank, *_ = (ctypes.c_int64 * 3).from_address(words)
        rest = list((ctypes.c_int64 * (3 * rank)).from_address(words + 24))
        found = TensorMap(ELEMENTS[element], rest[2 * rank :], rest[:rank], rest[rank : 2 * rank])
        if not found.point(address):
            raise CudaError(f"the driver makes no tensor map of an array with {found}")
        ctypes.memmove(target, found.parameter, 8 * MAP_WORDS)

    # Streams and events.

    def mgpuStreamCreate(self) -> int:
        self.driver.enter(self.driver.current_device())
        return self._new("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING

    def mgpuStreamDestroy(self, stream: int) -> None:
        self.driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def mgpuStreamSynchronize(self, stream: int) -> None:
        self.driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def mgpuStreamWaitEvent(self, stream: int, event: int) -> None:
        self.driver.call("cuStreamWaitEvent", ctypes.c_void_p(stream), ctypes.c_void_p(event), 0)

    def mgpuEventCreate(self) -> int:
        return self._new("cuEventCreate", 2)

    def mgpuEventDestroy(self, event: int) -> None:
        self.driver.call("cuEventDestroy_v2", ctypes.c_void_p(event))

    def mgpuEventSynchronize(self, event: int) -> None:
        self.driver.call("cuEventSynchronize", ctypes.c_void_p(event))

    def mgpuEventRecord(self, event: int, stream: int) -> None:
        self.driver.call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    # Memory.

    def mgpuMemAlloc(self, size: int, stream: int, shared: bool) -> int:
        return self.driver.allocate(size)

    def mgpuMemFree(self, pointer: int, stream: int) -> None:
        self.driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        self.driver.free(pointer or 0)

    def mgpuMemcpy(self, target: int, source: int, size: int, stream: int) -> None:
        if size:
            place = ctypes.c_uint64
            self.driver.call(
                "cuMemcpyAsync", place(target), place(source), ctypes.c_size_t(size), ctypes.c_void_p(stream)
            )


FUNCTIONS: dict[str, list[Any]] = {
    "mgpuModuleLoad": [_POINTER, _POINTER, _SIZE],
    "mgpuModuleLoadJIT": [_POINTER, _POINTER, _INT32, _SIZE],
    "mgpuModuleUnload": [None, _POINTER],
    "mgpuModuleGetFunction": [_POINTER, _POINTER, ctypes.c_char_p],
    "mgpuLaunchKernel": [None, _POINTER, *[_SIZE] * 6, _INT32, *[_POINTER] * 3, _SIZE],
    "mgpuTensorMapEncodeWords": [None, _POINTER, _POINTER],
    "mgpuStreamCreate": [_POINTER],
    "mgpuStreamDestroy": [None, _POINTER],
    "mgpuStreamSynchronize": [None, _POINTER],
    "mgpuStreamWaitEvent": [None, _POINTER, _POINTER],
    "mgpuEventCreate": [_POINTER],
    "mgpuEventDestroy": [None, _POINTER],
    "mgpuEventSynchronize": [None, _POINTER],
    "mgpuEventRecord": [None, _POINTER, _POINTER],
    "mgpuMemAlloc": [_POINTER, _SIZE, _POINTER, ctypes.c_bool],
    "mgpuMemFree": [None, _POINTER, _POINTER],
    "mgpuMemcpy": [None, _POINTER, _POINTER, _SIZE, _POINTER],
}


def host_module(lowered: str, ptx: str, name: str, arch: str) -> ir.Module:
    """The module with the host's code in the LLVM dialect, from a kernel's stages "llvm" and "ptx"."""
    from .. import pipelines

    context = make_context()
    with context:
        module = parse_module(lowered, "<llvm>")
        with module.operation.location:
            function = next(op for op in module.body.operations if getattr(op, "name", None) == ir.StringAttr.get(name))
            for version, _ in versions_of(function.operation):
                _erase(module, version)  # this one is right for any sizes
            kernels = find_kernels(module, function)
            if kernels is not None:  # there are none where no result has an element
                symbol = ir.StringAttr(kernels.attributes["sym_name"]).value
                code = ir.StringAttr.get(ptx)
                binary = f'gpu.binary @{symbol} [#gpu.object<#nvvm.target<chip = "{arch}">, assembly = {code}>]'
                ir.InsertionPoint(kernels).insert(ir.Operation.parse(binary))
                kernels.erase()
        pass_manager.run(pipelines.nvidia_host(), module)
    return module


def _erase(module: ir.Module, name: str) -> None:
    """A function and its kernels."""
    function = find_entry(module, name)
    kernels = find_kernels(module, function)
    for op in (function.operation, kernels):
        if op is not None:
            op.erase()


class HostKernel:
    """A kernel on numpy arrays; see the module."""

    def __init__(self, lowered: str, ptx: str, signature: Signature, arch: str):
        try:
            self.runtime = GpuRuntime(driver())
        except CudaError as error:
            raise user_error(str(error)) from None
        self.module = host_module(lowered, ptx, symbol_of(signature.name), arch)
        self._kernel = cpu.CpuKernel(self.module, signature, self.runtime.callbacks)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results on arrays that fit the signature."""
        results = self._kernel.invoke(arrays)
        try:
            self.runtime.check()
            self.kernel_seconds = self.runtime.kernel_seconds()
        except CudaError as error:
            raise user_error(str(error)) from None
        return results
