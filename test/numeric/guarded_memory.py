"""Runs kernels whose buffers, and arrays, end where memory does (or begin there): what reads or writes beyond them ends
the process, which is why it is one of its own.

    python guarded_memory.py < graphs       # JSON: fields of Attention, a list of them; their errors, one on a line
"""

import ctypes
import json
import math
import mmap
import sys
import types

import numpy as np
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cpu, elf
from harness import relative_error

PAGE = mmap.PAGESIZE
ALIGNMENT = 16  # of what malloc gives

_free = cpu._free


class GuardedMemory:
    """Pages between two that no one may touch; a buffer fills them from the first byte or to the last one."""

    def __init__(self, at_end: bool):
        self.at_end = at_end
        self.regions: dict[int, mmap.mmap] = {}
        # As a library that compiled code finds its functions in.
        malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(lambda size: self.allocate(size, ALIGNMENT))
        self.library = types.SimpleNamespace(malloc=malloc, free=ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.free))

    def allocate(self, size: int, alignment: int) -> int:
        pages = max(1, math.ceil(size / PAGE)) * PAGE
        memory = mmap.mmap(-1, pages + 2 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for guard in (base, base + PAGE + pages):
            elf._protect(guard, PAGE, 0)
        ctypes.memset(base + PAGE, 0xA5, pages)  # no zeros where none were written
        place = base + PAGE + (pages - math.ceil(size / alignment) * alignment if self.at_end else 0)
        self.regions[place] = memory
        return place

    def free(self, place: int | None) -> None:
        if self.regions.pop(place, None) is None:
            _free(place)

    def array(self, like: np.ndarray) -> np.ndarray:
        """A copy whose last element, or first one, is the memory's."""
        place = self.allocate(like.nbytes, 1)
        copy = np.frombuffer((ctypes.c_char * like.nbytes).from_address(place), like.dtype).reshape(like.shape)
        copy[...] = like
        return copy


def error(graph: Attention, at_end: bool) -> float:
    """That of a kernel in guarded memory."""
    memory = GuardedMemory(at_end)
    cpu._free = memory.library.free
    kernel = compile(graph.text(), threads=2)._runtime
    code = elf.load(kernel.object_file(), [memory.library, *cpu.symbol_sources()])
    guarded = cpu.CpuKernel(code, kernel.signature)
    inputs = graph.inputs("normal", 0)
    found = guarded(*[memory.array(x) for x in inputs])
    return relative_error(graph.canonical_output(found), graph.reference(inputs)[0])


def main() -> None:
    for fields in json.load(sys.stdin):
        graph = Attention.of_plain(fields)
        for at_end in (True, False):
            print(f"{fields} at_end={at_end}:", end=" ", flush=True)
            print(error(graph, at_end), flush=True)


if __name__ == "__main__":
    main()
