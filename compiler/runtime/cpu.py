"""Runs a module in the LLVM dialect on this machine's CPU: loads it by MLIR's ExecutionEngine and binds numpy arrays.

    signature = Signature.of(function)             # before lowering
    …                                              # lower `module` to the LLVM dialect
    kernel = CpuKernel(module, signature)
    out = kernel(q, k, v)

A compiled function takes a pointer per argument; a tensor is a memref descriptor, (allocated, aligned, offset, sizes…,
strides…), results are descriptors that it fills in. Results own memory that the function allocated; numpy reads it in
place, and it is freed with the last array that looks at it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dialects.diagnostic import DiagnosedError
from ...dialects.mlir import execution_engine, ir
from ...transforms.symbols import symbol_of
from ..diagnostics import diagnostic
from . import elf
from .signature import WORD, Signature, Slot


@functools.cache
def openmp_library() -> str | None:
    """The path of an OpenMP runtime with LLVM's interface (libiomp5 of intel-openmp, or libomp), or None."""
    folders = [os.path.join(sys.prefix, "lib"), sysconfig.get_path("purelib"), os.path.join(sys.base_prefix, "lib")]
    for name in ("libiomp5.so", "libomp.so", "libomp.so.5"):
        for folder in folders:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                return os.path.abspath(path)
    import ctypes.util  # which imports more than a kernel that was compiled before needs

    for short in ("iomp5", "omp"):
        found = ctypes.util.find_library(short)
        if found:
            return found
    return None


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    path = openmp_library()
    return None if path is None else ctypes.CDLL(path)


@functools.cache
def _threads_setter() -> Any:
    """OpenMP's function by which parallel loops use so many threads from now on; None without its runtime, where they
    use one anyway. It is called as one of Python's, as giving the interpreter's lock away takes longer than it."""
    path = openmp_library()
    if path is None:
        return None
    function = ctypes.PyDLL(path).omp_set_num_threads
    function.argtypes, function.restype = [ctypes.c_int], None
    return function


@functools.cache
def symbol_sources() -> list[ctypes.CDLL]:
    """Where compiled code finds the functions that it calls: the OpenMP runtime, and C's libraries."""
    openmp = _openmp()
    found = [ctypes.CDLL(None)] if openmp is None else [openmp, ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        with contextlib.suppress(OSError):
            found.append(ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL))
    return found


@functools.lru_cache(maxsize=256)
def _memory(size: int) -> Any:
    """The type of a buffer of `size` bytes that a kernel returned; freed when no array looks at it any more.

    numpy takes it as memory to look at in a tenth of the time of an `__array_interface__`: after a kernel, whose data
    fills the caches, a call's Python takes several times as long as where calls follow each other, and this was half.
    """

    class Memory(ctypes.c_char * size):  # type: ignore[misc]
        allocated = 0  # what is to be freed

        def __del__(self) -> None:
            if self.allocated:
                _free(self.allocated)

    return Memory


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


@functools.lru_cache(maxsize=256)
def _layout(shape: tuple[int, ...]) -> list[int]:
    """The sizes and strides of a contiguous array, as a descriptor has them."""
    strides, stride = [1] * len(shape), 1
    for d in range(len(shape) - 1, 0, -1):
        stride *= shape[d]
        strides[d - 1] = stride
    return [*shape, *strides]


OPTIMIZATION = 2  # of LLVM: what 3 does in addition takes a tenth of the time, and makes kernels no faster


def c_name(name: str) -> str:
    """The C interface of the function `name`, which is what `raw_lookup` has a wrapper of."""
    return "_mlir_ciface_" + symbol_of(name)


def _refuse_unknown(code: ir.Module | elf.Code) -> None:
    """A user's error where a function has no body, and is in no library."""
    for function in [] if isinstance(code, elf.Code) else code.body.operations:
        operation = function.operation
        if operation.name == "llvm.func" and not operation.regions[0].blocks:
            name = operation.attributes["sym_name"].value
            if not any(hasattr(library, name) for library in symbol_sources()):
                problem = f"@{name.removeprefix('_mlir_ciface_')} is called, but has no body: give it one"
                raise DiagnosedError([diagnostic("error", problem, operation.location)])


class CpuKernel:
    """A compiled function on numpy arrays. One kernel serves all sizes of its dynamic dimensions, from any thread."""

    def __init__(
        self,
        code: ir.Module | elf.Code,
        signature: Signature,
        callbacks: Mapping[str, Any] | None = None,
        meanwhile: Callable[[], Any] | None = None,
    ):
        """`callbacks`: functions of ctypes that a module calls. `meanwhile`: what else there is to do, which is done
        where this thread would wait for others that compile the module."""
        self.signature = signature
        self._image: bytes | None = None  # where it was loaded
        if not isinstance(code, elf.Code) and not callbacks:
            code = self._in_parts(code, meanwhile) or code
        self._code = code  # whose memory the function is in
        if isinstance(code, elf.Code):
            address = code.symbols.get(f"_mlir_{c_name(signature.name)}")  # it takes the arguments' addresses
        else:
            symbol_sources()  # loads what the engine finds by itself then
            library = openmp_library()
            self._engine = execution_engine.ExecutionEngine(
                code, opt_level=OPTIMIZATION, shared_libs=[library] if library else [], enable_object_dump=True
            )
            for name, callback in (callbacks or {}).items():
                self._engine.raw_register_runtime(name, ctypes.cast(callback, ctypes.c_void_p))
            if callbacks:
                self._engine.initialize()
            address = self._engine.raw_lookup(c_name(signature.name))
        if not address:
            _refuse_unknown(code)
            raise ValueError(f"the module has no C interface for @{signature.name}; add llvm.emit_c_interface")
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)
        self._set_threads = _threads_setter()  # kept here: a call comes after a kernel, which leaves caches cold
        self._lay_out()

    @classmethod
    def load(cls, image: bytes, signature: Signature) -> CpuKernel:
        """The kernel whose object file is `image`. Raises elf.LoadError."""
        kernel = cls(elf.load(image, symbol_sources()), signature)
        kernel._image = image
        return kernel

    def _in_parts(self, module: ir.Module, meanwhile: Callable[[], Any] | None) -> elf.Code | None:
        """The module's code, compiled by several threads; None where it is small, or more than `elf` knows."""
        from . import object_files  # which a kernel that was compiled before does without

        libraries = symbol_sources()
        name, library = c_name(self.signature.name), openmp_library()
        image = object_files.object_files(module, name, OPTIMIZATION, library, meanwhile)
        with contextlib.suppress(elf.LoadError):
            if image:
                code = elf.load(image, libraries)
                self._image = image
                return code
        return None

    def object_file(self) -> bytes:
        """The object files, for `load`."""
        if self._image is not None:
            return self._image
        with open(os.memfd_create("kernel.o"), "rb") as file:  # LLVM ends the process where a disk is full
            self._engine.dump_to_object_file(f"/proc/self/fd/{file.fileno()}")
            return file.read()

    def _lay_out(self) -> None:
        """Positions, in words, of everything a call passes: the pointers, the descriptors and scalars, the results."""
        slots, results = self.signature.arguments, self.signature.results
        struct_result = len(results) > 1 or any(r.shape is not None for r in results)
        n_pointers = len(slots) + (1 if results else 0)
        position = n_pointers + len(slots) + 1
        # Position, whether a tensor, whether a call tells its sizes and strides, and whether it may have gaps.
        self._arguments: list[tuple[int, bool, bool, bool]] = []
        for slot in slots:
            told = slot.strided or None in (slot.shape or ())
            self._arguments.append((position, slot.shape is not None, told, slot.strided))
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
        for at, tensor, _, _ in self._arguments:
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
        for slot, (at, tensor, told, _) in zip(self.signature.arguments, self._arguments, strict=True):
            if tensor and not told:
                shape: Any = slot.shape
                block[at + 3 : at + 3 + 2 * len(shape)] = [*_layout(shape)]
        return block, base

    def __call__(self, *arguments: Any) -> Any:
        """The result, a tuple of them, or None; the arguments are checked."""
        results = self.invoke(self.signature.bind(arguments))
        return results[0] if len(results) == 1 else tuple(results) if results else None

    def invoke(self, arrays: Sequence[np.ndarray], threads: int | None = None) -> list:
        """The results on arrays that are known to be of the declared types, aligned, and contiguous or strided.

        From here on parallel loops use `threads`, if it is given.
        """
        if threads and self._set_threads is not None:
            self._set_threads(threads)
        # Whose memory a result may be: an argument's that is returned as it is, or that of a result before it.
        try:
            block, base = self._idle.pop()
        except IndexError:
            block, base = self._block()
        owners: dict[int, Any] = {}
        for (at, tensor, told, strided), array in zip(self._arguments, arrays):  # noqa: B905 (checked by who called)
            data = _address(array)
            if not tensor:
                ctypes.memmove(base + WORD * at, data, array.itemsize)
                continue
            block[at] = block[at + 1] = data
            owners[data] = array
            if told:
                end = at + 3 + 2 * array.ndim
                if strided:
                    block[at + 3 : end] = [*array.shape, *(s // array.itemsize for s in array.strides)]
                else:
                    block[at + 3 : end] = _layout(array.shape)
        self._function(base)
        results = [result.read(block, base, owners) for result in self._results]
        self._idle.append((block, base))
        return results


@dataclass(frozen=True, slots=True)
class _Result:
    """Where a call leaves a result, and what it is."""

    dtype: np.dtype
    shape: tuple[int, ...] | None  # None where a call tells
    rank: int | None  # None: a scalar
    offset: int  # in bytes, from the block's start
    first: int  # the word there, where the descriptor of a tensor starts
    memory: Any  # the type of its memory; None where a call tells the size

    @classmethod
    def of(cls, slot: Slot, position: int, offset: int) -> _Result:
        offset += WORD * position
        shape = None if slot.shape is None or None in slot.shape else tuple(s or 0 for s in slot.shape)
        rank = None if slot.shape is None else len(slot.shape)
        memory = None if shape is None else _memory(math.prod(shape) * slot.dtype.itemsize)
        return cls(slot.dtype, shape, rank, offset, offset // WORD, memory)

    def read(self, block: Any, base: int, owners: dict[int, Any]) -> Any:
        """The result as numpy has it, on the memory that the function allocated, which the first reader owns.

        It is contiguous: results are memrefs without a layout."""
        if self.rank is None:
            return np.frombuffer(ctypes.string_at(base + self.offset, self.dtype.itemsize), dtype=self.dtype)[0]
        first, shape, kind = self.first, self.shape, self.memory
        if shape is None:
            shape = tuple(block[first + 3 : first + 3 + self.rank])
            kind = _memory(math.prod(shape) * self.dtype.itemsize)
        allocated = block[first]
        memory = kind.from_address(block[first + 1])
        if allocated in owners:
            memory.owner = owners[allocated]
        else:
            memory.allocated = allocated
            owners[allocated] = memory
        return np.ndarray(shape, self.dtype, memory)
