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
        status = getattr(self.library, name)(*arguments)
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
        return value.contiguous()

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
        return self.cupy.ascontiguousarray(value)

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
        self._formulas: dict[str, Callable[[int, int], int]] = {}
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
        stream = library.stream()
        for step in self.image.program.steps:
            operands = [values[n] for n in step.operands]
            if step.kind == "constant":
                values.append(step.detail)
            elif step.kind == "dim":
                values.append(operands[0].shape[operands[1]])
            elif step.kind == "arithmetic":
                values.append(self._formula(step.detail)(*operands))
            elif step.kind == "alloc":
                element, shape = step.detail
                sizes = iter(operands)
                values.append(library.empty(tuple(next(sizes) if s is None else s for s in shape), element))
            else:
                self._launch(step.detail, operands, library, stream)
                values.append(None)
        return [library.result(values[n], dtype) for n, dtype in zip(self.image.program.results, dtypes, strict=True)]

    def _formula(self, text: str) -> Callable[[int, int], int]:
        if text not in self._formulas:
            self._formulas[text] = eval(f"lambda a, b: {text}")  # one of runtime.program.ARITHMETIC
        return self._formulas[text]

    def _launch(self, detail: Any, operands: list[Any], library: Any, stream: int) -> None:
        name, threads, shared, kinds = detail
        blocks, *parameters = operands
        function = self.function(name, shared)
        words: list[Any] = []
        kept: list[Any] = []
        for value, kind in zip(parameters, kinds, strict=True):
            if isinstance(kind, str):
                words.append(_SCALARS[kind](value))
                continue
            element, dynamic, rank, last = kind
            value = aligned(value, element, rank, last, library)
            kept.append(value)
            words.append(ctypes.c_uint64(value.pointer))
            words += [ctypes.c_int32(value.shape[d]) for d in dynamic]
            words += [ctypes.c_int64(s) for s in value.strides[:-1]]
        if not blocks:
            return
        pointers = (ctypes.c_void_p * len(words))(*(ctypes.addressof(w) for w in words))
        size = ctypes.c_uint
        driver().call(
            "cuLaunchKernel", function, size(blocks), size(1), size(1), size(threads), size(1), size(1),
            size(shared), ctypes.c_void_p(stream), pointers, None,
        )  # fmt: skip


_SCALARS = {"index": ctypes.c_int32, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


def alignment(element: str, last: int | None) -> int:
    """The alignment of dense rows of `last` elements in bytes, up to 16."""
    return math.gcd(16, BYTES[element] * last) if last else BYTES[element]


def aligned(array: Array, element: str, rank: int, last: int | None, library: Any) -> Array:
    """`array` as kernels take it: unit stride in the inner dimension, rows aligned. Else a copy, which is slow."""
    needed = alignment(element, last)
    size = BYTES[element]
    good = array.pointer % needed == 0 and (not rank or array.strides[-1] == 1 or array.shape[-1] == 1)
    for stride, extent in zip(array.strides[:-1], array.shape[:-1], strict=True):
        good = good and (extent == 1 or stride * size % needed == 0)
    if good:
        return array
    import warnings

    warnings.warn(
        f"an argument of shape {array.shape} with strides {array.strides} is copied before the kernel runs: its rows "
        f"must be dense and aligned to {needed} bytes",
        stacklevel=5,
    )
    return library.view(library.contiguous(array.owner), array.element)
