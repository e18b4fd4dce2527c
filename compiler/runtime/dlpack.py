"""DLPack by ctypes: reads what a tensor of any library exports, and exports memory of ours.

    found = imported(array, stream)     # where it is, its shape, strides, type; ready for work on `stream`
    jax.dlpack.from_dlpack(Exported(…)) # the other library owns it then, and calls back when it is done

Format: https://dmlc.github.io/dlpack/latest/c_api.html, the unversioned DLManagedTensor.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

CPU, CUDA = 1, 2
# (type code, bits) of element types.
CODES = {"f16": (2, 16), "f32": (2, 32), "f64": (2, 64), "bf16": (4, 16), "i1": (6, 8)}
CODES |= {f"i{bits}": (0, bits) for bits in (8, 16, 32, 64)}
CODES |= {"f8E3M4": (7, 8), "f8E4M3": (8, 8), "f8E4M3B11FNUZ": (9, 8), "f8E4M3FN": (10, 8), "f8E4M3FNUZ": (11, 8)}
CODES |= {"f8E5M2": (12, 8), "f8E5M2FNUZ": (13, 8)}
ELEMENTS = {code: element for element, code in CODES.items()} | {(1, bits): f"ui{bits}" for bits in (8, 16, 32, 64)}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclasses.dataclass(frozen=True)
class Imported:
    """A tensor that another library exported; strides in elements. `owner` keeps it alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    device_type: int
    device: int
    owner: Any


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def imported(value: Any, stream: int | None) -> Imported:
    """`value` on its own memory, which is ready for work that comes on `stream` (DLPack's numbers of streams)."""
    capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
    # The capsule is not taken over: as it goes, it lets go of the memory.
    tensor = ctypes.cast(_pointer_of(capsule, b"dltensor"), ctypes.POINTER(_Managed)).contents.tensor
    shape = tuple(tensor.shape[: tensor.rank])
    strides = tuple(tensor.strides[: tensor.rank]) if tensor.strides else contiguous_strides(shape)
    element = ELEMENTS.get((tensor.code, tensor.bits), f"type {tensor.code} of {tensor.bits} bits")
    place = (tensor.data or 0) + tensor.byte_offset
    return Imported(place, shape, strides, element, tensor.device_type, tensor.device, capsule)


_exported: dict[int, tuple[Any, ...]] = {}


def _release(address: int) -> None:
    _exported.pop(address, None)


def _destroy(capsule: int) -> None:
    if _is_valid(capsule, b"dltensor"):  # no one took it
        _release(_raw_pointer(capsule, b"dltensor"))


_RELEASE = _Deleter(_release)
_DESTROY = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)


@dataclasses.dataclass
class Exported:
    """Dense memory of ours for another library. `ready(stream)` makes a stream wait for what is written to it."""

    pointer: int
    shape: tuple[int, ...]
    element: str
    device_type: int
    device: int
    owner: Any
    ready: Callable[[int], None] = lambda stream: None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.device

    def __dlpack__(self, stream: int | None = None, **_: Any) -> Any:
        if stream != -1:
            self.ready(stream or 1)
        sizes = (ctypes.c_int64 * max(len(self.shape), 1))(*self.shape)
        strides = (ctypes.c_int64 * max(len(self.shape), 1))(*contiguous_strides(self.shape))
        code, bits = CODES[self.element]
        as_pointer = ctypes.POINTER(ctypes.c_int64)
        tensor = _Tensor(
            self.pointer,
            self.device_type,
            self.device,
            len(self.shape),
            code,
            bits,
            1,
            ctypes.cast(sizes, as_pointer),
            ctypes.cast(strides, as_pointer),
            0,
        )
        managed = _Managed(tensor, None, _RELEASE)
        address = ctypes.addressof(managed)
        _exported[address] = (managed, sizes, strides, self.owner)
        return _new_capsule(address, b"dltensor", ctypes.cast(_DESTROY, ctypes.c_void_p))
