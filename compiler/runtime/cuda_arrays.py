"""Arrays of the libraries that kernels are called with, and what the libraries are asked for: memory, streams, devices.

torch and CuPy: tensors on a GPU, used in place on the library's current stream. JAX: in place, by DLPack, on the
device's default stream, which JAX is told of. numpy: copied to the device and back.
"""

import contextlib
import ctypes
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from . import dlpack
from .cuda_driver import LEGACY_STREAM, CudaError, driver
from .dlpack import contiguous_strides
from .signature import refuse_traced

BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "index": 8}
BYTES |= {"f8E4M3FN": 1, "f8E5M2": 1}


@dataclasses.dataclass(frozen=True)
class Array:
    """Memory on a device; strides in elements. `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    device: int = 0
    owner: Any = None

    def contiguous(self) -> "Array":
        """Such an array whose elements stand in order."""
        return dataclasses.replace(self, strides=contiguous_strides(self.shape))

    def is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape)


class Library(Protocol):
    """`value` is an array as the library has it, or, of a library that `copies`, what `enter` made of it."""

    copies: bool

    def is_array(self, value: Any) -> bool:
        """Whether `value` is an array on a GPU that kernels can use."""

    def key(self, value: Any) -> Hashable:
        """All of `value` that `describe` reads: cheap, for every call."""

    def describe(self, value: Any) -> Array: ...

    def pointer(self, value: Any) -> int: ...

    def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Any]: ...

    def shaped(self, value: Any, shape: tuple[int, ...]) -> Any:
        """The elements of an array in another shape."""

    def contiguous(self, value: Any) -> Any:
        """A copy whose elements stand in order; not of a library that `copies`."""

    def stream(self, device: int) -> int:
        """The caller's stream on that device."""

    def current(self) -> int:
        """The caller's device."""

    def on(self, device: int) -> contextlib.AbstractContextManager:
        """Within the block, `device` is the current one."""


class TorchArrays:
    """torch's tensors, in place, on torch's current stream."""

    copies = False

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.pointer = torch.Tensor.data_ptr
        self.types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
        self.types |= {"i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}
        self.types |= {"f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2}
        self.elements = {dtype: element for element, dtype in self.types.items()}
        # Undocumented, but a tenth of the documented ones' time.
        raw = torch._C
        plain_stream = lambda device: torch.cuda.current_stream(device).cuda_stream  # noqa: E731
        self.stream = getattr(raw, "_cuda_getCurrentRawStream", plain_stream)
        self.current = getattr(raw, "_cuda_getDevice", torch.cuda.current_device)
        self.empty = getattr(raw._dynamo.guards, "_empty_strided_cuda", None)  # on the current device

    def is_array(self, value: Any) -> bool:
        return isinstance(value, self.torch.Tensor) and value.is_cuda

    @staticmethod
    def key(value: Any) -> Hashable:
        if value.is_neg():  # as x.conj().imag: what is in memory are other numbers
            raise CudaError("a tensor is the negative of its memory, as views of conj() are: call resolve_neg() on it")
        return value.shape, value.stride(), value.dtype, value.get_device()

    def describe(self, value: Any) -> Array:
        element = self.elements.get(value.dtype, str(value.dtype))
        return Array(0, tuple(value.shape), tuple(value.stride()), element, value.get_device())

    def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Any]:
        if self.empty is not None:
            return functools.partial(self.empty, shape, contiguous_strides(shape), self.types[element])
        place = self.torch.device("cuda", device)
        return functools.partial(self.torch.empty, shape, dtype=self.types[element], device=place)

    @staticmethod
    def shaped(value: Any, shape: tuple[int, ...]) -> Any:
        return value.reshape(shape)

    @staticmethod
    def contiguous(value: Any) -> Any:
        return value.contiguous()

    def on(self, device: int) -> contextlib.AbstractContextManager:
        return self.torch.cuda.device(device)


class CupyArrays:
    """CuPy's arrays, in place, on CuPy's current stream."""

    copies = False

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.current = cupy.cuda.runtime.getDevice
        self.on = cupy.cuda.Device

    def is_array(self, value: Any) -> bool:
        return isinstance(value, self.cupy.ndarray)

    @staticmethod
    def key(value: Any) -> Hashable:
        return value.shape, value.strides, value.dtype, value.device.id

    def describe(self, value: Any) -> Array:
        strides = tuple(s // value.itemsize for s in value.strides)
        return Array(0, tuple(value.shape), strides, element_of(value.dtype), value.device.id)

    @staticmethod
    def pointer(value: Any) -> int:
        return value.data.ptr

    def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Any]:
        return functools.partial(self.cupy.empty, shape, numpy_type(element))

    @staticmethod
    def shaped(value: Any, shape: tuple[int, ...]) -> Any:
        return value.reshape(shape)

    def contiguous(self, value: Any) -> Any:
        return self.cupy.ascontiguousarray(value)

    def stream(self, device: int) -> int:
        return self.cupy.cuda.get_current_stream().ptr


class EnteringArrays:
    """Libraries whose arrays become ours for the time of a call; `leave` makes theirs of a result."""

    copies = True

    def __init__(self) -> None:
        self.driver = driver()

    @staticmethod
    def key(value: Array) -> Hashable:
        return value.shape, value.strides, value.element, value.device

    def describe(self, value: Array) -> Array:
        return value

    @staticmethod
    def pointer(value: Array) -> int:
        return value.pointer

    def allocator(self, shape: tuple[int, ...], element: str, device: int) -> Callable[[], Array]:
        def allocate() -> Array:
            owner = _Owned(self.driver, math.prod(shape) * BYTES[element])
            return Array(owner.pointer, shape, contiguous_strides(shape), element, device, owner)

        return allocate

    @staticmethod
    def shaped(value: Array, shape: tuple[int, ...]) -> Array:
        return dataclasses.replace(value, shape=shape).contiguous()

    @staticmethod
    def contiguous(value: Array) -> Array:
        raise NotImplementedError

    def stream(self, device: int) -> int:
        return 0

    def current(self) -> int:
        return self.driver.current_device()

    @contextlib.contextmanager
    def on(self, device: int) -> Any:
        before = self.current()
        self.driver.enter(device)
        try:
            yield
        finally:
            self.driver.enter(before)


class NumpyArrays(EnteringArrays):
    """Arrays in the host's memory: copied to the current device and back."""

    def is_array(self, value: Any) -> bool:
        return isinstance(value, np.ndarray)

    def enter(self, value: np.ndarray) -> Array:
        device = self.current()
        value = np.asarray(value, order="C")
        owner = _Owned(self.driver, value.nbytes)
        self.driver.to_device(owner.pointer, value.ctypes.data, value.nbytes)
        element = element_of(value.dtype)
        return Array(owner.pointer, value.shape, contiguous_strides(value.shape), element, device, owner)

    def leave(self, array: Array, inputs: Sequence[Any]) -> np.ndarray:
        out = np.empty(array.shape, numpy_type(array.element))
        self.driver.call("cuCtxSynchronize")
        self.driver.to_host(out.ctypes.data, array.pointer, out.nbytes)
        return out

    def own(self, array: Array, number: int) -> Array:
        return array  # a copy already


class JaxArrays(EnteringArrays):
    """JAX's arrays, in place. JAX's work on them comes first, and results are ready for it when the kernel is done."""

    def is_array(self, value: Any) -> bool:
        refuse_traced(value)
        return hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] == dlpack.CUDA

    def enter(self, value: Any) -> Array:
        found = dlpack.imported(value, LEGACY_STREAM)
        return Array(found.pointer, found.shape, found.strides, found.element, found.device, found.owner)

    def own(self, array: Array, number: int) -> Array:
        """A copy of a donated argument: arrays of JAX are never written to."""
        warnings.warn(
            f"attn_opt: donated argument {number} is copied at each call: arrays of JAX on a GPU are not written to",
            stacklevel=6,
        )
        size = math.prod(array.shape) * BYTES[array.element]
        owned = _Owned(self.driver, size)
        self.driver.call(
            "cuMemcpyDtoDAsync_v2",
            ctypes.c_uint64(owned.pointer),
            ctypes.c_uint64(array.pointer),
            ctypes.c_size_t(size),
            ctypes.c_void_p(LEGACY_STREAM),
        )
        return dataclasses.replace(array, pointer=owned.pointer, owner=(owned, array.owner))

    def leave(self, array: Array, inputs: Sequence[Any]) -> Any:
        import jax

        done = _Done(self.driver, array.device, (array.owner, inputs))
        return jax.dlpack.from_dlpack(
            dlpack.Exported(array.pointer, array.shape, array.element, dlpack.CUDA, array.device, done, done.before)
        )


class _Owned:
    """Device memory that is freed with its last user."""

    def __init__(self, of: Any, size: int):
        self.driver, self.pointer = of, of.allocate(size)

    def __del__(self) -> None:
        self.driver.free(self.pointer)


class _Done:
    """What was launched on the default stream; `kept` stays until it is done."""

    def __init__(self, of: Any, device: int, kept: Any):
        self.driver, self.device, self.kept = of, device, kept
        self.event = of.recorded(0)

    def before(self, stream: int) -> None:
        """Lets `stream` wait for it."""
        self.driver.call("cuStreamWaitEvent", ctypes.c_void_p(stream), self.event, 0)

    def __del__(self) -> None:
        self.driver.library.cuEventSynchronize(self.event)
        self.driver.library.cuEventDestroy_v2(self.event)


_ELEMENTS = {"bool": "i1", "bfloat16": "bf16", "float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}


def element_of(dtype: np.dtype) -> str:
    """MLIR's name of an element type."""
    return _ELEMENTS.get(dtype.name, dtype.name.replace("float", "f").replace("uint", "ui").replace("int", "i"))


def numpy_type(element: str) -> np.dtype:
    from .signature import Slot

    return Slot(element, ()).dtype


_KINDS: dict[str, Callable[[], Library]] = {
    "torch": TorchArrays,
    "cupy": CupyArrays,
    "jaxlib": JaxArrays,
    "jax": JaxArrays,
}


@functools.cache
def library(kind: Hashable) -> Library | None:
    """The library of arrays of that type; None for numpy's and all that is no array on a GPU."""
    for base in getattr(kind, "__mro__", ()):
        package = base.__module__.partition(".")[0]
        if package in _KINDS:
            return _of_package("jax" if package == "jaxlib" else package)
    return None


@functools.cache
def _of_package(package: str) -> Library:
    return _KINDS[package]()


def device_library(values: Sequence[Any]) -> Library | None:
    """The library whose arrays on a GPU `values` are; None if none of them is on a GPU."""
    for value in values:
        found = library(value.__class__)
        if found is not None and found.is_array(value):
            return found
    return None


def check_places(values: Sequence[Any], of: Library, tensors: Sequence[int], name: str = "argument") -> None:
    """A CudaError where an argument is not of that library and on a GPU."""
    for i in tensors:
        if not of.is_array(values[i]):
            kind = values[i].__class__
            package = kind.__module__.partition(".")[0]
            what = "an array" if library(kind) is of else f"a {package}.{kind.__name__}"
            raise CudaError(f"{name} {i} must be on the GPU as others are, but is {what} elsewhere: move it")
