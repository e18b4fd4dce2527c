"""Runs a module in the LLVM dialect on this machine's CPU: loads it by MLIR's ExecutionEngine and binds numpy arrays.

    signature = Signature.of(module, "main")       # before lowering
    …                                              # lower `module` to the LLVM dialect
    kernel = CpuKernel(module, signature)
    out = kernel(q, k, v)

A compiled function takes a pointer per argument; a tensor is a memref descriptor, (allocated, aligned, offset, sizes…,
strides…), results are descriptors that it fills in. Results own memory that the function allocated; numpy reads it in
place, and it is freed with the last array that looks at it.
"""

import ctypes
import ctypes.util
import functools
import os
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialects.mlir import execution_engine, ir

WORD = 8  # bytes; pointers, sizes and strides are words


@functools.cache
def openmp_library() -> str | None:
    """The path of an OpenMP runtime with LLVM's interface (libiomp5 of intel-openmp, or libomp), or None."""
    folders = [os.path.join(sys.prefix, "lib"), sysconfig.get_path("purelib"), os.path.join(sys.base_prefix, "lib")]
    for name in ("libiomp5.so", "libomp.so", "libomp.so.5"):
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return os.path.abspath(path)
    for short in ("iomp5", "omp"):
        found = ctypes.util.find_library(short)
        if found:
            return found
    return None


def set_threads(count: int) -> None:
    """Lets parallel loops use `count` threads from now on; without an OpenMP runtime they use one anyway."""
    path = openmp_library()
    if path is not None:
        ctypes.CDLL(path).omp_set_num_threads(count)


@dataclass(frozen=True)
class Slot:
    """The type of an argument or result: element type as MLIR spells it, and the shape, None where it is dynamic.

    `shape` is None for a scalar.
    """

    element: str
    shape: tuple[int | None, ...] | None

    @classmethod
    def of(cls, kind: ir.Type) -> "Slot":
        if isinstance(kind, ir.RankedTensorType | ir.MemRefType):
            shape = tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))
            return cls(str(kind.element_type), shape)
        return cls(str(kind), None)

    def __str__(self) -> str:
        if self.shape is None:
            return self.element
        return f"tensor<{''.join(('?' if s is None else str(s)) + 'x' for s in self.shape)}{self.element}>"

    @property
    def dtype(self) -> np.dtype:
        return _dtype(self.element)

    @property
    def words(self) -> int:
        """The size of its memref descriptor."""
        return 3 + 2 * len(self.shape or ())


_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_INTEGERS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@functools.cache
def _dtype(element: str) -> np.dtype:
    if element in _FLOATS:
        return np.dtype(_FLOATS[element])
    if element == "bf16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    if element == "i1":
        return np.dtype(np.bool_)
    if element == "index":
        return np.dtype(np.int64)
    width = element.lstrip("sui")
    if width.isdigit() and int(width) in _INTEGERS:
        kind = np.dtype(_INTEGERS[int(width)])
        return np.dtype(f"u{kind.name}") if element.startswith("u") else kind
    raise TypeError(
        f"element type {element} has no numpy type; use f16, bf16, f32, f64, i1, i8, i16, i32, i64 or index"
    )


@dataclass(frozen=True)
class Signature:
    """A function's name, argument types and result types, as they were on tensors."""

    name: str
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]

    @classmethod
    def of(cls, module: ir.Module, name: str | None = None) -> "Signature":
        """The signature of the function `name`, or of the only public function with a body."""
        functions = {}
        for op in module.body.operations:
            if op.operation.name == "func.func" and op.operation.regions[0].blocks:
                visibility = op.operation.attributes
                if "sym_visibility" not in visibility or visibility["sym_visibility"].value == "public":
                    functions[op.operation.attributes["sym_name"].value] = op
        if name is None and len(functions) == 1:
            name = next(iter(functions))
        if name is None or name not in functions:
            known = ", ".join(f"@{f}" for f in functions) or "none"
            wanted = "one public function with a body" if name is None else f"a public function @{name} with a body"
            raise ValueError(f"expected {wanted}, but found {known}")
        kind = functions[name].type
        return cls(name, tuple(Slot.of(t) for t in kind.inputs), tuple(Slot.of(t) for t in kind.results))


class _Memory:
    """A buffer that a kernel returned; freed when no array looks at it any more."""

    __slots__ = ("__array_interface__", "allocated", "keep")

    def __init__(self, interface: dict, allocated: int, keep: Any):
        self.__array_interface__ = interface
        self.allocated = allocated
        self.keep = keep

    def __del__(self) -> None:
        if self.allocated:
            _free(self.allocated)


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None


class CpuKernel:
    """A compiled function on numpy arrays. One kernel serves all sizes of its dynamic dimensions, from any thread."""

    def __init__(self, module: ir.Module, signature: Signature):
        self.signature = signature
        self._module = module  # the engine refers to it
        library = openmp_library()
        self._engine = execution_engine.ExecutionEngine(module, opt_level=3, shared_libs=[library] if library else [])
        address = self._engine.raw_lookup("_mlir_ciface_" + signature.name)
        if not address:
            raise ValueError(f"the module has no C interface for @{signature.name}; add llvm.emit_c_interface")
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._lay_out()

    def _lay_out(self) -> None:
        """Positions, in words, of everything a call passes: the pointers, the descriptors and scalars, the results."""
        slots, results = self.signature.arguments, self.signature.results
        self._struct_result = len(results) > 1 or any(r.shape is not None for r in results)
        n_pointers = len(slots) + (1 if results else 0)
        position = n_pointers + len(slots) + 1
        self._positions = []
        for slot in slots:
            self._positions.append(position)
            position += slot.words if slot.shape is not None else 1
        self._result_start = position
        offset, self._result_offsets = 0, []  # in bytes from there, as C lays out a struct
        for result in results:
            size = result.words * WORD if result.shape is not None else result.dtype.itemsize
            align = WORD if result.shape is not None else result.dtype.itemsize
            offset = -(-offset // align) * align
            self._result_offsets.append(offset)
            offset += size
        self._buffer_type = ctypes.c_int64 * (position + -(-offset // WORD) + 1)
        self._n_pointers = n_pointers

    def __call__(self, *arrays: Any) -> Any:
        slots = self.signature.arguments
        if len(arrays) != len(slots):
            raise TypeError(
                f"@{self.signature.name} takes {len(slots)} argument(s) ({', '.join(map(str, slots))}), "
                f"but was called with {len(arrays)}"
            )
        buffer = self._buffer_type()
        base = ctypes.addressof(buffer)
        kept = []
        pointer = 0
        if self._struct_result:  # the address of the struct comes first, by one more pointer
            buffer[0] = base + WORD * self._n_pointers
            buffer[self._n_pointers] = base + WORD * self._result_start
            pointer = 1
        cell = self._n_pointers + 1
        for i, (slot, value) in enumerate(zip(slots, arrays, strict=True)):
            position = self._positions[i]
            if slot.shape is None:
                scalar = self._scalar(i, slot, value)
                ctypes.memmove(base + WORD * position, scalar.ctypes.data, scalar.itemsize)
                buffer[pointer] = base + WORD * position
            else:
                array = self._array(i, slot, value)
                kept.append(array)
                data, rank, size = array.ctypes.data, array.ndim, array.itemsize
                strides = [s // size for s in array.strides]
                buffer[position : position + 3 + 2 * rank] = [data, data, 0, *array.shape, *strides]
                buffer[cell] = base + WORD * position
                buffer[pointer] = base + WORD * cell
            pointer += 1
            cell += 1
        if self.signature.results and not self._struct_result:
            buffer[pointer] = base + WORD * self._result_start
        self._function(base)
        results = self._results(buffer, base, kept)
        return results[0] if len(results) == 1 else results if results else None

    def _array(self, i: int, slot: Slot, value: Any) -> np.ndarray:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.dtype != slot.dtype:
            same_bits = array.dtype.kind in "iu" and slot.dtype.kind in "iu" and slot.element != "index"
            if not same_bits or array.dtype.itemsize != slot.dtype.itemsize:
                raise self._mismatch(i, slot, f"dtype {slot.dtype}", f"{array.dtype}")
        shape = slot.shape or ()
        if array.ndim != len(shape):
            raise self._mismatch(i, slot, f"rank {len(shape)}", f"rank {array.ndim}, shape {array.shape}")
        for d, (expected, found) in enumerate(zip(shape, array.shape, strict=True)):
            if expected is not None and expected != found:
                raise self._mismatch(i, slot, f"{expected} in dimension {d}", f"{found}, shape {array.shape}")
        if not array.flags.c_contiguous or not array.flags.aligned:
            array = np.array(array, order="C")
        return array

    def _scalar(self, i: int, slot: Slot, value: Any) -> np.ndarray:
        array = np.asarray(value)
        if array.ndim != 0 or array.dtype.kind not in "biufV" or (slot.dtype.kind in "biu" and array.dtype.kind == "f"):
            raise self._mismatch(i, slot, f"a scalar of {slot.dtype}", f"{array.dtype} of shape {array.shape}")
        return array.astype(slot.dtype)

    def _mismatch(self, i: int, slot: Slot, expected: str, found: str) -> Exception:
        kind = TypeError if expected.startswith(("dtype", "a scalar")) else ValueError
        return kind(f"argument {i} of @{self.signature.name}, {slot}: expected {expected}, but found {found}")

    def _results(self, buffer: Any, base: int, kept: Sequence[np.ndarray]) -> tuple:
        results = []
        owners: dict[int, _Memory] = {}
        arguments = {a.ctypes.data for a in kept}
        start = base + WORD * self._result_start
        for slot, offset in zip(self.signature.results, self._result_offsets, strict=True):
            if slot.shape is None:
                raw = ctypes.string_at(start + offset, slot.dtype.itemsize)
                results.append(np.frombuffer(raw, dtype=slot.dtype)[0])
                continue
            rank, first = len(slot.shape), self._result_start + offset // WORD
            words = buffer[first : first + 3 + 2 * rank]
            allocated, aligned, shift = words[:3]
            size = slot.dtype.itemsize
            interface = {
                "version": 3,
                "shape": tuple(words[3 : 3 + rank]),
                "strides": tuple(s * size for s in words[3 + rank :]),
                "typestr": slot.dtype.str if slot.element != "bf16" else "<V2",
                "data": (aligned + shift * size, False),
            }
            keep = owners.get(allocated) if allocated not in arguments else kept
            memory = _Memory(interface, 0 if keep is not None else allocated, keep)
            owners.setdefault(allocated, memory)
            array = np.asarray(memory)
            results.append(array.view(slot.dtype) if slot.element == "bf16" else array)
        return tuple(results)
