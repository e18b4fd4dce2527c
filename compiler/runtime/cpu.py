"""Runs a module in the LLVM dialect on this machine's CPU: loads it by MLIR's ExecutionEngine and binds numpy arrays.

    signature = Signature.of(module, "main")       # before lowering
    …                                              # lower `module` to the LLVM dialect
    kernel = CpuKernel(module, signature)
    out = kernel(q, k, v)

A compiled function takes a pointer per argument; a tensor is a memref descriptor, (allocated, aligned, offset, sizes…,
strides…), results are descriptors that it fills in. Results own memory that the function allocated; numpy reads it in
place, and it is freed with the last array that looks at it.
"""

import contextlib
import ctypes
import ctypes.util
import functools
import math
import os
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialects.mlir import execution_engine, ir
from . import elf

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


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    path = openmp_library()
    if path is None:
        return None
    library = ctypes.CDLL(path)
    library.omp_set_num_threads.argtypes = [ctypes.c_int]
    library.omp_set_num_threads.restype = None
    return library


def set_threads(count: int) -> None:
    """Lets parallel loops use `count` threads from now on; without an OpenMP runtime they use one anyway."""
    library = _openmp()
    if library is not None:
        library.omp_set_num_threads(count)


@functools.cache
def symbol_sources() -> list[ctypes.CDLL]:
    """Where compiled code finds the functions that it calls: the OpenMP runtime, and C's libraries."""
    openmp = _openmp()
    found = [ctypes.CDLL(None)] if openmp is None else [openmp, ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        with contextlib.suppress(OSError):
            found.append(ctypes.CDLL(name))
    return found


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
    if element in ("bf16", "f8E4M3FN"):
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16 if element == "bf16" else ml_dtypes.float8_e4m3fn)
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


def _address(array: np.ndarray) -> int:
    """The address of the first element: the first field of numpy's PyArrayObject, several times faster than to ask."""
    return _word_at(id(array) + _HEAD).value or 0


_HEAD = object.__basicsize__
_word_at = ctypes.c_void_p.from_address
_probe = np.zeros(1)
if sys.implementation.name != "cpython" or _address(_probe) != _probe.ctypes.data:
    _address = lambda array: array.ctypes.data  # noqa: E731


def c_name(name: str) -> str:
    """The C interface of the function `name`, which is what `raw_lookup` has a wrapper of."""
    return "_mlir_ciface_" + name


class CpuKernel:
    """A compiled function on numpy arrays. One kernel serves all sizes of its dynamic dimensions, from any thread."""

    def __init__(self, code: ir.Module | elf.Code, signature: Signature, callbacks: Mapping[str, Any] | None = None):
        """`callbacks`: functions of ctypes that a module calls."""
        self.signature = signature
        self._code = code  # whose memory the function is in
        if isinstance(code, elf.Code):
            address = code.symbols.get(f"_mlir_{c_name(signature.name)}")  # it takes the arguments' addresses
        else:
            library = openmp_library()
            self._engine = execution_engine.ExecutionEngine(
                code, opt_level=3, shared_libs=[library] if library else [], enable_object_dump=True
            )
            for name, callback in (callbacks or {}).items():
                self._engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
            if callbacks:
                self._engine.initialize()
            address = self._engine.raw_lookup(c_name(signature.name))
        if not address:
            raise ValueError(f"the module has no C interface for @{signature.name}; add llvm.emit_c_interface")
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._lay_out()

    @classmethod
    def load(cls, image: bytes, signature: Signature) -> "CpuKernel":
        """The kernel whose object file is `image`. Raises elf.LoadError."""
        return cls(elf.load(image, symbol_sources()), signature)

    def object_file(self) -> bytes:
        """The object file of a kernel that was compiled from a module, for `load`."""
        with tempfile.TemporaryDirectory(prefix="attn-opt-") as folder:
            path = os.path.join(folder, "kernel.o")
            self._engine.dump_to_object_file(path)
            with open(path, "rb") as file:
                return file.read()

    def _lay_out(self) -> None:
        """Positions, in words, of everything a call passes: the pointers, the descriptors and scalars, the results."""
        slots, results = self.signature.arguments, self.signature.results
        struct_result = len(results) > 1 or any(r.shape is not None for r in results)
        n_pointers = len(slots) + (1 if results else 0)
        position = n_pointers + len(slots) + 1
        self._arguments: list[tuple[int, bool, bool]] = []  # position, whether a tensor, whether of dynamic shape
        for slot in slots:
            self._arguments.append((position, slot.shape is not None, None in (slot.shape or ())))
            position += slot.words if slot.shape is not None else 1
        self._result_start = position
        offset, self._results = 0, []
        for result in results:  # offsets are as C lays out a struct
            size = result.words * WORD if result.shape is not None else result.dtype.itemsize
            align = WORD if result.shape is not None else result.dtype.itemsize
            offset = -(-offset // align) * align
            self._results.append(_Result.of(result, position, offset))
            offset += size
        self._words = position + -(-offset // WORD) + 1

        # What of a call's block is the same in every call, but for the block's address: pairs of (word, offset).
        links = [(0, WORD * n_pointers), (n_pointers, WORD * self._result_start)] if struct_result else []
        pointer, cell = len(links) // 2, n_pointers + 1
        for at, tensor, _ in self._arguments:
            if not tensor:
                links.append((pointer, WORD * at))
            else:
                links += [(cell, WORD * at), (pointer, WORD * cell)]
            pointer += 1
            cell += 1
        if results and not struct_result:
            links.append((pointer, WORD * self._result_start))
        self._links = links
        self._block_type = ctypes.c_int64 * self._words
        self._idle: list[tuple[Any, int]] = []  # blocks that no call is using

    def _block(self) -> tuple[Any, int]:
        """A block for the call, with its address."""
        block = self._block_type()
        base = ctypes.addressof(block)
        for word, offset in self._links:
            block[word] = base + offset
        for slot, (at, tensor, dynamic) in zip(self.signature.arguments, self._arguments, strict=True):
            if tensor and not dynamic:  # else by each call
                shape: Any = slot.shape
                strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
                block[at + 3 : at + 3 + 2 * len(shape)] = [*shape, *strides]
        return block, base

    def __call__(self, *arrays: Any) -> Any:
        """The result, a tuple of them, or None; the arguments are checked."""
        slots = self.signature.arguments
        if len(arrays) != len(slots):
            raise TypeError(
                f"@{self.signature.name} takes {len(slots)} argument(s) ({', '.join(map(str, slots))}), "
                f"but was called with {len(arrays)}"
            )
        checked = [
            self._scalar(i, slot, value) if slot.shape is None else self._array(i, slot, value)
            for i, (slot, value) in enumerate(zip(slots, arrays, strict=True))
        ]
        results = self.invoke(checked)
        return results[0] if len(results) == 1 else tuple(results) if results else None

    def invoke(self, arrays: Sequence[np.ndarray], threads: int | None = None) -> list:
        """The results on arrays that are known to be of the declared types, C-contiguous and aligned.

        From here on parallel loops use `threads`, if it is given.
        """
        if threads:
            set_threads(threads)
        # Whose memory a result may be: an argument's that is returned as it is, or that of a result before it.
        try:
            block, base = self._idle.pop()
        except IndexError:
            block, base = self._block()
        owners: dict[int, Any] = {}
        for (at, tensor, dynamic), array in zip(self._arguments, arrays):  # noqa: B905 (checked by who called)
            data = _address(array)
            if not tensor:
                ctypes.memmove(base + WORD * at, data, array.itemsize)
                continue
            block[at] = block[at + 1] = data
            owners[data] = array
            if dynamic:
                rank = array.ndim
                block[at + 3 : at + 3 + rank] = array.shape
                stride = 1
                for d in range(at + 2 + 2 * rank, at + 2 + rank, -1):
                    block[d] = stride
                    stride *= block[d - rank]
        self._function(base)
        results = [result.read(block, base, owners) for result in self._results]
        self._idle.append((block, base))
        return results

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


@dataclass(frozen=True)
class _Result:
    """Where a call leaves a result, and what it is."""

    slot: Slot
    dtype: np.dtype
    offset: int  # in bytes, from the block's start
    first: int  # the word there, where the descriptor of a tensor starts
    rank: int
    typestr: str

    @classmethod
    def of(cls, slot: Slot, position: int, offset: int) -> "_Result":
        offset += WORD * position
        typestr = "<V2" if slot.element == "bf16" else slot.dtype.str
        return cls(slot, slot.dtype, offset, offset // WORD, len(slot.shape or ()), typestr)

    def read(self, block: Any, base: int, owners: dict[int, Any]) -> Any:
        """The result as numpy has it, on the memory that the function allocated, which the first reader owns."""
        if self.slot.shape is None:
            return np.frombuffer(ctypes.string_at(base + self.offset, self.dtype.itemsize), dtype=self.dtype)[0]
        first, rank, size = self.first, self.rank, self.dtype.itemsize
        allocated, aligned, shift, *extents = block[first : first + 3 + 2 * rank]
        interface = {
            "version": 3,
            "shape": tuple(extents[:rank]),
            "strides": tuple([s * size for s in extents[rank:]]),
            "typestr": self.typestr,
            "data": (aligned + shift * size, False),
        }
        owner = owners.get(allocated)
        memory = _Memory(interface, 0 if owner is not None else allocated, owner)
        owners.setdefault(allocated, memory)
        array = np.asarray(memory)
        return array.view(self.dtype) if self.slot.element == "bf16" else array
