"""A kernel's program for arguments of known shapes: all sizes, allocations and launches are settled, pointers come with
each call.

A launch's parameters stand in one array of words; a call writes the pointers of its arrays into it, and launches.
"""

import ctypes
import dataclasses
import itertools
import math
import operator
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .cuda_arrays import BYTES, Array, Library
from .cuda_driver import INVALID_CONTEXT, CudaError, driver
from .dlpack import contiguous_strides
from .program import TENSOR_MAP, Program
from .tensor_maps import TensorMap

FUNCTION_OF = Callable[[str, int], ctypes.c_void_p]  # by a kernel's name and its shared memory


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = [("id", ctypes.c_uint), ("_", ctypes.c_uint), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60)]


# A kernel's blocks may come before the launch before it on the stream is done, which they wait for themselves.
PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_…
EARLY = Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)


class Misfit(Exception):
    """An argument's strides or address are none that the kernel takes; the message says what they must be."""


class Apart(CudaError):
    """Dimensions of an array are used as one, but do not stand one after the other. `argument`: the array's number."""

    argument: int | None = None


class Plan:
    """`values`: the arguments, Arrays and scalars; `outs`: Arrays for results that the caller gave; `donated`: the
    numbers of arguments that are written to."""

    copied: Sequence[int] = ()  # the numbers of arguments that are made contiguous before it runs

    def __init__(
        self,
        program: Program,
        values: Sequence[Any],
        outs: Sequence[Array],
        functions: FUNCTION_OF,
        library: Library,
        device: int,
        donated: Sequence[int] = (),
    ):
        self.device, self.library, self.donated = device, library, donated
        self.words: list[int] = []
        self.launches: list[Any] = []
        # (number, mask of the address, the words that take it) of arguments; of others how to make them, too.
        self.arguments: list[tuple[int, int, list[int]]] = []
        self.made: list[tuple[int, int, list[int], Callable[[], Any]]] = []
        self.scalars: list[tuple[int, int, str]] = []  # number, word, type
        self.maps: list[tuple[int, TensorMap]] = []  # the word that has its array's address
        self._places: dict[int, list[int]] = {}
        self._roots = _roots(program)
        self._masks: dict[int, int] = {}
        self._lock = threading.Lock()  # the words are shared by calls
        arrays = enumerate(values) if outs or donated else ()
        self._spans = {n: _span(array) for n, array in arrays if isinstance(array, Array)}
        self._out_spans = [_span(array) for array in outs]
        settled = _settled(program, values, {}, device)
        if outs:
            settled = _settled(program, values, _targets(program, settled, outs), device)
        for step in program.steps:
            if step.kind == "launch":
                self._launch(step, [settled[n] for n in step.operands], functions, len(values))
        self.buffer = (ctypes.c_uint64 * max(len(self.words), 1))(*self.words)
        self._point()
        # Of each result the array that it is, and its shape where the array is made in another one.
        self.results: list[tuple[int, tuple[int, ...] | None]] = []
        shapes: dict[int, tuple[int, ...]] = {}  # that arrays are made in: of the first result that they are
        for number in program.results:
            root, shape = self._roots.get(number, number), settled[number].shape
            own = settled[root].shape if root < len(values) else shapes.setdefault(root, shape)
            self.results.append((root, None if shape == own else shape))
        for number, array in enumerate(settled):
            places = self._places.get(number, [])  # none where there are no elements: nothing is launched
            if number >= len(values) and program.steps[number - len(values)].kind == "alloc":
                shape = shapes.get(number, array.shape)
                make = library.allocator(shape, array.element, device)
                self.made.append((number, self._masks.get(number, 0), places, make))
            elif places:
                self.arguments.append((number, self._masks[number], places))
        self.launch = driver().library.cuLaunchKernelEx  # fewer arguments than cuLaunchKernel, which ctypes converts

    def _launch(self, step: Any, operands: Sequence[Any], functions: FUNCTION_OF, arguments: int) -> None:
        name, threads, shared, kinds, early = step.detail
        blocks, *parameters = operands
        if not blocks:
            return
        _check_counts(name, blocks * threads, parameters)
        places: list[int | TensorMap] = []  # of each parameter
        for number, value, kind in zip(step.operands[1:], parameters, kinds, strict=True):
            if kind == TENSOR_MAP:
                of, made = value
                self.maps.append((self._places[self._roots.get(of, of)][0], made))
                places.append(made)
                continue
            first = len(self.words)
            if isinstance(kind, str):
                if number < arguments:
                    self.scalars.append((number, len(self.words), kind))
                self.words.append(bits(value, kind))
                places.append(first)
                continue
            element, dynamic, rank, last, dense = kind
            self._check_strides(value, element, last, dense)
            root = self._roots.get(number, number)
            self._places.setdefault(root, []).append(len(self.words))
            self._masks[root] = self._masks.get(root, 0) | (alignment(element, last, dense) - 1)
            self.words.append(0)
            self.words += [value.shape[d] for d in dynamic]
            strides = [0 if value.shape[d] == 1 else s for d, s in enumerate(value.strides)]
            self.words += [s & (2**64 - 1) for s in (strides[: rank - 1] if dense else strides)]
            places += range(first, len(self.words))
        attributes = ctypes.addressof(EARLY) if early else None
        config = Config(blocks, 1, 1, threads, 1, 1, shared, None, attributes, int(early))
        self.launches.append((functions(name, shared), config, places))

    def _point(self) -> None:
        """Launches as the driver takes them: its parameters are addresses of our words."""
        start = ctypes.addressof(self.buffer)
        found = []
        for function, config, places in self.launches:
            addresses = [p.parameter if isinstance(p, TensorMap) else start + 8 * p for p in places]
            pointers = (ctypes.c_void_p * max(len(places), 1))(*addresses)
            found.append((config, (ctypes.byref(config), function, pointers, None)))
        self.launches = found

    @staticmethod
    def _check_strides(array: Array, element: str, last: int | None, dense: bool) -> None:
        needed, size = alignment(element, last, dense), BYTES[element]
        if not dense or not array.shape:
            return
        pairs = zip(array.strides[:-1], array.shape[:-1], strict=True)
        rows = all(extent == 1 or stride * size % needed == 0 for stride, extent in pairs)
        if not rows or (array.strides[-1] != 1 and array.shape[-1] != 1):
            raise Misfit(
                f"an array of shape {array.shape} has strides {array.strides}: its rows are not dense and aligned to "
                f"{needed} bytes"
            )

    def run(self, values: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """Launches on the library's stream; the results."""
        pointer, words = self.library.pointer, self.buffer
        arrays = {root: out for (root, _), out in zip(self.results, outs, strict=True)} if outs else {}
        if outs:
            self._check_overlap(values, outs)
        for number in self.donated:
            self._check_donated(values, number)
        for number, _, _, make in self.made:
            if number not in arrays:
                arrays[number] = make()
        with self._lock:
            for number, mask, places in self.arguments:
                address = pointer(values[number])
                if address & mask or not address:
                    self._check_address(address, mask, math.prod(values[number].shape))
                for place in places:
                    words[place] = address
            for number, mask, places, _ in self.made:
                address = pointer(arrays[number])
                if address & mask or (not address and outs):
                    self._check_address(address, mask, math.prod(arrays[number].shape))
                for place in places:
                    words[place] = address
            for number, place, kind in self.scalars:
                words[place] = bits(values[number], kind)
            for place, made in self.maps:
                if not made.point(words[place]):
                    raise Misfit(f"the copy engine does not take an array of {made}")
            stream = self.library.stream(self.device)
            for config, fixed in self.launches:
                config.stream = stream
                status = self.launch(*fixed)
                if status:
                    self._again(status, fixed)
        if outs:
            return list(outs)
        found = [(arrays[n] if n in arrays else values[n], shape) for n, shape in self.results]
        return [array if shape is None else self.library.shaped(array, shape) for array, shape in found]

    @staticmethod
    def _check_address(address: int, mask: int, elements: int) -> None:
        if address & mask:
            raise Misfit(f"an array starts at an address that is no multiple of {mask + 1}")
        if elements:
            raise CudaError("an array has elements, but no memory: it is one of those that only tell types and shapes")

    def _check_donated(self, values: Sequence[Any], number: int) -> None:
        """An argument is written to while others are read: a CudaError where they surely hold its elements."""
        pointer, (size, dense) = self.library.pointer, self._spans[number]
        start = pointer(values[number])
        for n, (others, is_dense) in self._spans.items():
            other = start if n == number else pointer(values[n])
            if n != number and _have_in_common(start, size, dense, other, others, is_dense):
                raise CudaError(f"argument {number}, which is donated, and {n} have memory in common: copy one")

    def _check_overlap(self, values: Sequence[Any], outs: Sequence[Any]) -> None:
        """Results are written while arguments are read, and some are computed again: a CudaError where one surely holds
        another's elements. (Of arrays that stand between each other's elements that is not said.)"""
        pointer = self.library.pointer
        known = [(f"argument {n}", pointer(values[n]), *span) for n, span in self._spans.items()]
        for i, (out, (size, dense)) in enumerate(zip(outs, self._out_spans, strict=True)):
            start = pointer(out)
            for name, other, others, is_dense in known:
                if _have_in_common(start, size, dense, other, others, is_dense):
                    raise CudaError(f"out {i} and {name} have memory in common: give another array")
            known.append((f"out {i}", start, size, dense))

    def _again(self, status: int, fixed: tuple) -> None:
        """A thread that has not used the GPU yet has no context: it gets one."""
        if status == INVALID_CONTEXT:
            driver().enter(self.device)
            status = self.launch(*fixed)
        driver().check("cuLaunchKernelEx", status)


def _have_in_common(start: int, size: int, dense: bool, other: int, others: int, is_dense: bool) -> bool:
    """Whether two arrays surely do, by their starts, their spans, and whether nothing else is among their elements."""
    within = start < other + others and other < start + size
    return bool(size and others and within and (start == other or (dense and is_dense)))


def _check_counts(name: str, threads: int, parameters: Sequence[Any]) -> None:
    """Kernels count threads, and places along a dimension, in 32 bits: a CudaError where there are more."""
    shapes = [p.shape for p in parameters if isinstance(p, Array)]
    for shape in shapes:
        if any(size >= 2**31 for size in shape):
            raise CudaError(f"kernels count to 2^31 along a dimension, but an array has shape {shape}: split it")
    if threads >= 2**32:
        raise CudaError(
            f"kernel {name} needs {threads} threads, but they are numbered to 2^32 only: split its arrays, of shapes "
            f"{', '.join(map(str, shapes))}"
        )


def _roots(program: Program) -> dict[int, int]:
    """Which value another one is in another shape."""
    found: dict[int, int] = {}
    for number, step in enumerate(program.steps, program.arguments):
        if step.kind in ("expand", "collapse"):
            found[number] = found.get(step.operands[0], step.operands[0])
    return found


def _settled(program: Program, values: Sequence[Any], given: dict[int, Array], device: int) -> list[Any]:
    """All values of a program but what its launches give. `given`: arrays of the caller's in place of made ones."""
    found = list(values)
    for step in program.steps:
        operands = [found[n] for n in step.operands]
        result: Any = None
        if step.kind == "constant":
            result = step.detail
        elif step.kind == "dim":
            result = operands[0].shape[operands[1]]
        elif step.kind == "arithmetic":
            result = _FORMULAS[step.detail](*operands)
        elif step.kind == "alloc":
            element, shape = step.detail
            sizes = iter(operands)
            shape = tuple(next(sizes) if s is None else s for s in shape)
            result = given.get(len(found)) or Array(0, shape, contiguous_strides(shape), element, device)
        elif step.kind == "tensor_map":
            array, *extents = operands
            element, box = step.detail
            result = step.operands[0], TensorMap(element, box, extents, array.strides)
        elif step.kind == "expand":
            groups, sizes = step.detail
            result = _expanded(operands[0], groups, sizes, iter(operands[1:]))
        elif step.kind == "collapse":
            try:
                result = _collapsed(operands[0], step.detail)
            except Apart as apart:
                apart.argument = _roots(program).get(step.operands[0], step.operands[0])
                raise
        found.append(result)
    return found


def _targets(program: Program, settled: Sequence[Any], outs: Sequence[Array]) -> dict[int, Array]:
    """For each result that the caller gave an array for, that array, in the shape in which it is made."""
    found: dict[int, Array] = {}
    for i, (number, array) in enumerate(zip(program.results, outs, strict=True)):
        _check_out(array, settled[number].shape, settled[number].element)
        while number >= program.arguments:
            step = program.steps[number - program.arguments]
            if step.kind == "alloc":
                break
            number = step.operands[0]
            if step.kind == "expand":
                array = _collapsed(array, step.detail[0])
            else:
                array = _expanded(array, step.detail, settled[number].shape, iter(()))
        if number < program.arguments or number in found:
            raise CudaError(
                f"result {i} is no array of its own, which could be written to one of out: call without out"
            )
        found[number] = array
    return found


def _check_out(array: Array, shape: tuple[int, ...], element: str) -> None:
    if array.shape != shape or array.element != element:
        raise CudaError(
            f"out must be an array of shape {shape} and type {element}, but is one of {array.shape} and {array.element}"
        )
    reach = 0  # of elements along dimensions with smaller strides
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride <= reach:
            raise CudaError(
                f"out has shape {array.shape} and strides {array.strides}: several of its elements may be one, which "
                "cannot be written to"
            )
        reach += (n - 1) * stride


def _span(array: Array) -> tuple[int, bool]:
    """How many bytes an array reaches over from its start on, and whether there is nothing else among them; 0 where it
    has elements before its start."""
    if 0 in array.shape or any(s < 0 for s in array.strides):
        return 0, False
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return reach * BYTES[array.element], reach == math.prod(array.shape)


def _expanded(array: Array, groups: Any, sizes: Any, dynamic: Iterator[int]) -> Array:
    """The array with each dimension split into a group of them."""
    shape = tuple(next(dynamic) if s is None else s for s in sizes)
    strides = [0] * len(shape)
    for group, stride in zip(groups, array.strides, strict=True):
        for d in reversed(group):
            strides[d] = stride
            stride *= shape[d]
    return dataclasses.replace(array, shape=shape, strides=tuple(strides))


def _collapsed(array: Array, groups: Any) -> Array:
    """The array with each group of dimensions as one."""
    shape, strides = [], []
    for group in groups:
        kept = [d for d in group if array.shape[d] != 1] or group[-1:]
        for outer, inner in itertools.pairwise(kept):
            if array.strides[outer] != array.strides[inner] * array.shape[inner]:
                raise Apart(
                    f"an array of shape {array.shape} with strides {array.strides} is used with dimensions {outer} and "
                    f"{inner} as one, but they do not stand one after the other in memory: make it contiguous"
                )
        shape.append(math.prod(array.shape[d] for d in group))
        strides.append(array.strides[kept[-1]])
    return dataclasses.replace(array, shape=tuple(shape), strides=tuple(strides))


_FORMULAS: dict[str, Callable[..., int]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a // b": lambda a, b: a // b,
    "a % b": lambda a, b: a % b,
    "max(a, b)": max,
    "min(a, b)": min,
    "b if a else c": lambda a, b, c: b if a else c,
    "a == b": operator.eq,
    "a != b": operator.ne,
    "a < b": operator.lt,
    "a <= b": operator.le,
    "a > b": operator.gt,
    "a >= b": operator.ge,
}
_FLOATS = {"f32": "<f", "f16": "<e", "f64": "<d"}


def bits(value: Any, kind: str) -> int:
    """A scalar parameter as a word."""
    if kind in _FLOATS or kind == "bf16":  # narrow floats are f32 in kernels
        return int.from_bytes(struct.pack("<d" if kind == "f64" else "<f", float(value)), "little")
    return int(value) & (2**64 - 1)


def alignment(element: str, last: int | None, dense: bool) -> int:
    """What addresses of rows of `last` elements are multiples of where they are `dense`, up to 16 bytes."""
    return math.gcd(16, BYTES[element] * last) if last and dense else BYTES[element]
