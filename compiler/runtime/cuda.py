"""Runs kernels on an NVIDIA GPU by the CUDA driver's interface. Needs the driver's library alone, and no IR.

    image = Image(program, code, "sm_90a")    # `program`: runtime.program's; `code`: PTX or machine code
    kernel = CudaKernel(image)
    out, = kernel(q, k, v)                   # numpy arrays are copied; tensors of torch and CuPy on the GPU are not

Everything is launched on the caller's current stream of torch or CuPy; results are tensors of the same library.
"""

import ctypes
import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SHARED_SIZE_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class CudaError(Exception):
    """There is no GPU, or the driver refused; the message says what to do."""


@dataclasses.dataclass(frozen=True)
class Image:
    """All that runs a compiled function: the host's program, the kernels' code, the architecture it is for."""

    program: Any
    code: bytes
    arch: str
    results: tuple[str, ...] = ()  # element types


@dataclasses.dataclass(frozen=True)
class Array:
    """Memory on the device; strides in elements. `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    owner: Any = None


BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8}


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


# The driver.


class Driver:
    """The functions of libcuda in use; each raises CudaError where it fails."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise CudaError("no NVIDIA driver (libcuda.so.1) is on this machine; use the target cpu") from None
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if not count.value:
            raise CudaError("no NVIDIA GPU is on this machine; use the target cpu")

    def call(self, name: str, *arguments: Any) -> None:
        self.check(name, getattr(self.library, name)(*arguments))

    def check(self, name: str, status: int) -> None:
        """Raises for a status that is no success."""
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            raise CudaError(f"{name} failed: {(text.value or b'unknown error').decode()}")

    def use_primary_context(self, device: int = 0) -> None:
        """The context that torch and CuPy use as well."""
        current = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(current))
        if not current.value:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.call("cuCtxSetCurrent", context)

    def capability(self, device: int = 0) -> tuple[int, int]:
        found = []
        for attribute in (75, 76):  # compute capability, major and minor
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            found.append(value.value)
        return found[0], found[1]

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 1)))
        return pointer.value


@functools.cache
def driver() -> Driver:
    return Driver()


def device_arch() -> str:
    """The architecture of this machine's first GPU, as `Image.arch` spells it."""
    major, minor = driver().capability()
    return "sm_90a" if (major, minor) == (9, 0) else f"sm_{major}{minor}"


# Libraries of arrays.


class NumpyArrays:
    """Arrays in the host's memory: copied to the device and back."""

    def __init__(self) -> None:
        self.driver = driver()
        self.driver.use_primary_context()

    def view(self, value: np.ndarray, element: str) -> Array:
        value = np.ascontiguousarray(value)
        owner = _Owned(self.driver, value.nbytes)
        self.driver.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(owner.pointer), ctypes.c_void_p(value.ctypes.data), value.nbytes
        )
        return Array(owner.pointer, value.shape, contiguous_strides(value.shape), element, owner)

    def empty(self, shape: tuple[int, ...], element: str) -> Array:
        owner = _Owned(self.driver, math.prod(shape) * BYTES[element])
        return Array(owner.pointer, shape, contiguous_strides(shape), element, owner)

    def stream(self) -> int:
        return 0

    def result(self, array: Array, dtype: Any) -> np.ndarray:
        out = np.empty(array.shape, dtype)
        self.driver.call("cuCtxSynchronize")
        self.driver.call(
            "cuMemcpyDtoH_v2", ctypes.c_void_p(out.ctypes.data), ctypes.c_uint64(array.pointer), out.nbytes
        )
        return out


class _Owned:
    """Device memory that is freed with its last user."""

    def __init__(self, of: Driver, size: int):
        self.driver, self.pointer = of, of.allocate(size)

    def __del__(self) -> None:
        self.driver.library.cuMemFree_v2(ctypes.c_uint64(self.pointer))


class TorchArrays:
    """torch's tensors on the GPU, in place, on torch's current stream."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
        self.types |= {"i1": torch.bool, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64}

    def view(self, value: Any, element: str) -> Array:
        return Array(value.data_ptr(), tuple(value.shape), value.stride(), element, value)

    def contiguous(self, value: Any) -> Any:
        return value.clone(memory_format=self.torch.contiguous_format)

    def empty(self, shape: tuple[int, ...], element: str) -> Array:
        return self.view(self.torch.empty(shape, dtype=self.types[element], device="cuda"), element)

    def stream(self) -> int:
        return self.torch.cuda.current_stream().cuda_stream

    def result(self, array: Array, dtype: Any) -> Any:
        return array.owner


class CupyArrays:
    """CuPy's arrays, in place, on CuPy's current stream."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def view(self, value: Any, element: str) -> Array:
        strides = tuple(s // value.itemsize for s in value.strides)
        return Array(value.data.ptr, tuple(value.shape), strides, element, value)

    def contiguous(self, value: Any) -> Any:
        return self.cupy.array(value, order="C")

    def empty(self, shape: tuple[int, ...], element: str) -> Array:
        if element == "bf16":
            import ml_dtypes

            return self.view(self.cupy.empty(shape, ml_dtypes.bfloat16), element)
        kind = {"f": "float", "i": "int"}[element[0]] + element[1:]
        return self.view(self.cupy.empty(shape, "bool" if element == "i1" else kind), element)

    def stream(self) -> int:
        return self.cupy.cuda.get_current_stream().ptr

    def result(self, array: Array, dtype: Any) -> Any:
        return array.owner


def is_device_array(value: Any) -> bool:
    """Whether `value` is a tensor on a GPU, of torch or CuPy."""
    kind = type(value).__module__.partition(".")[0]
    return kind == "cupy" or (kind == "torch" and getattr(value, "is_cuda", False))


@functools.cache
def _library(name: str) -> Any:
    return {"torch": TorchArrays, "cupy": CupyArrays}.get(name, NumpyArrays)()


def library_of(values: Sequence[Any]) -> Any:
    kinds = {
        type(v).__module__.partition(".")[0] if is_device_array(v) else "numpy" for v in values if hasattr(v, "shape")
    }
    if len(kinds) > 1:
        raise CudaError(f"arguments are of several libraries or places: {', '.join(sorted(kinds))}")
    return _library(kinds.pop() if kinds else "numpy")


# Kernels.


class CudaKernel:
    """A compiled function on the GPU. Code is loaded at the first call."""

    def __init__(self, image: Image):
        self.image = image
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._plans: dict[Any, Plan] = {}
        self._module = ctypes.c_void_p()

    def load(self) -> None:
        """Loads the code onto the device; the driver translates PTX."""
        device = driver()
        device.use_primary_context()
        have = device_arch()
        if self.image.arch.endswith("a") and have != self.image.arch:
            raise CudaError(f"the code is for {self.image.arch}, but this GPU is {have}: compile for it")
        log = ctypes.create_string_buffer(1 << 14)
        options = (ctypes.c_int * 2)(5, 6)  # error log and its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), ctypes.c_void_p(len(log)))
        try:
            device.call("cuModuleLoadDataEx", ctypes.byref(self._module), self.image.code, 2, options, values)
        except CudaError as error:
            raise CudaError(f"{error}: {log.value.decode(errors='replace')}") from None

    def function(self, name: str, shared: int) -> ctypes.c_void_p:
        if name not in self._functions:
            if not self._module:
                self.load()
            found = ctypes.c_void_p()
            driver().call("cuModuleGetFunction", ctypes.byref(found), self._module, name.encode())
            driver().call("cuFuncSetAttribute", found, SHARED_SIZE_ATTRIBUTE, shared)
            self._functions[name] = found
        return self._functions[name]

    def __call__(self, *arguments: Any, elements: Sequence[str], dtypes: Sequence[Any]) -> list[Any]:
        """The results. `elements`: of the arguments as MLIR calls them; `dtypes`: of results, for numpy."""
        library = library_of(arguments)
        values: list[Any] = [
            library.view(v, e) if hasattr(v, "shape") and len(v.shape) else v
            for v, e in zip(arguments, elements, strict=True)
        ]
        key = tuple((v.shape, v.strides) if isinstance(v, Array) else v for v in values)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = Plan(self, values)
        arrays = plan.run(values, library)
        return [library.result(arrays[n], dtype) for n, dtype in zip(self.image.program.results, dtypes, strict=True)]


class Plan:
    """A kernel's program for arguments of known shapes and strides: what to allocate and what to launch is settled."""

    def __init__(self, kernel: CudaKernel, arguments: Sequence[Any]):
        self.allocations: list[tuple[int, tuple[int, ...], str]] = []
        self.launches: list[Launch] = []
        self._lock = threading.Lock()  # launches are described in memory that calls share
        values = list(arguments)
        for step in kernel.image.program.steps:
            operands = [values[n] for n in step.operands]
            result: Any = None
            if step.kind == "constant":
                result = step.detail
            elif step.kind == "dim":
                result = operands[0].shape[operands[1]]
            elif step.kind == "arithmetic":
                result = _formula(step.detail)(*operands)
            elif step.kind == "alloc":
                element, shape = step.detail
                sizes = iter(operands)
                shape = tuple(next(sizes) if s is None else s for s in shape)
                self.allocations.append((len(values), shape, element))
                result = Array(0, shape, contiguous_strides(shape), element)
            else:
                self.launches.append(Launch(kernel, step, operands))
            values.append(result)

    def run(self, arguments: Sequence[Any], library: Any) -> dict[int, Any]:
        """Launches on the library's stream; the arrays by their number in the program."""
        arrays = dict(enumerate(arguments))
        for number, shape, element in self.allocations:
            arrays[number] = library.empty(shape, element)
        stream = ctypes.c_void_p(library.stream())
        with self._lock:
            for launch in self.launches:
                launch.run(arrays, library, stream)
        return arrays


class Launch:
    """One launch, its parameters laid out as the driver wants them; each call fills in the pointers."""

    def __init__(self, kernel: CudaKernel, step: Any, operands: Sequence[Any]):
        name, threads, shared, kinds = step.detail
        blocks, *parameters = operands
        self.blocks = blocks
        words: list[Any] = []
        self.arrays: list[tuple[int, Any, Any]] = []  # its number, where its pointer goes, what it must be like
        for number, value, kind in zip(step.operands[1:], parameters, kinds, strict=True):
            if isinstance(kind, str):
                words.append(_SCALARS[kind](value))
                continue
            element, dynamic, rank, last = kind
            first = len(words)
            strides = value.strides if fits(value, element, rank, last) else contiguous_strides(value.shape)
            words.append(ctypes.c_uint64(0))
            words += [ctypes.c_int32(value.shape[d]) for d in dynamic]
            words += [ctypes.c_int64(s) for s in strides[:-1]]
            self.arrays.append((number, words[first], (element, rank, last)))
        self.pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(w) for w in words))
        self.words = words
        size = ctypes.c_uint
        function = kernel.function(name, shared)
        grid = (size(blocks), size(1), size(1), size(threads), size(1), size(1), size(shared))
        self.fixed = (function, *grid)
        self.launch = driver().library.cuLaunchKernel

    def run(self, arrays: dict[int, Any], library: Any, stream: Any) -> None:
        for number, word, (element, rank, last) in self.arrays:
            array = arrays[number]
            dense = fits(array, element, rank, last)
            if dense and array.pointer % alignment(element, last):
                if array.strides != contiguous_strides(array.shape):
                    raise CudaError(
                        f"an argument of shape {array.shape} starts at an address that is no multiple of "
                        f"{alignment(element, last)}, and is no dense array that could be copied: copy it before"
                    )
                dense = False
            if not dense:
                array = copied(array, element, last, library)
                arrays[-1 - number] = array  # kept until the launch
            word.value = array.pointer
        if self.blocks:
            status = self.launch(*self.fixed, stream, self.pointers, None)
            if status:
                driver().check("cuLaunchKernel", status)


@functools.cache
def _formula(text: str) -> Callable[[int, int], int]:
    return eval(f"lambda a, b: {text}")  # one of runtime.program.ARITHMETIC


_SCALARS = {"index": ctypes.c_int32, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


def alignment(element: str, last: int | None) -> int:
    """The alignment of dense rows of `last` elements in bytes, up to 16."""
    return math.gcd(16, BYTES[element] * last) if last else BYTES[element]


def fits(array: Array, element: str, rank: int, last: int | None) -> bool:
    """Whether kernels take an array of such strides: dense in the inner dimension, rows aligned."""
    needed, size = alignment(element, last), BYTES[element]
    if rank and array.strides[-1] != 1 and array.shape[-1] != 1:
        return False
    pairs = zip(array.strides[:-1], array.shape[:-1], strict=True)
    return all(extent == 1 or stride * size % needed == 0 for stride, extent in pairs)


def copied(array: Array, element: str, last: int | None, library: Any) -> Array:
    """A dense copy of an array that kernels do not take as it is."""
    import warnings

    warnings.warn(
        f"an argument of shape {array.shape} with strides {array.strides} is copied before the kernel runs: its rows "
        f"must be dense and aligned to {alignment(element, last)} bytes",
        stacklevel=6,
    )
    return library.view(library.contiguous(array.owner), array.element)
