"""Tensors: slices, shapes, padding."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..mlir import ir
from . import arrays
from .interface import Meaning, rule
from .iteration import iotas

DYNAMIC = ir.ShapedType.get_dynamic_size()


def mixed(static: Sequence[int], dynamic: Iterator[Any]) -> list[int]:
    """Sizes or offsets, of which those that are not static are taken from `dynamic` in order."""
    return [int(next(dynamic)) if s == DYNAMIC else s for s in static]


def result_shape(kind: ir.RankedTensorType, dynamic: Iterator[Any]) -> list[int]:
    """The shape of a result type, its dynamic sizes given in order."""
    return mixed(list(kind.shape), dynamic)


class Slices:
    """The offsets, sizes and strides of a slicing op, whose operands from `first` on give the dynamic ones."""

    def __init__(self, op: Any, first: int):
        attributes = op.operation.attributes
        self.first = first
        self.static = [list(attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")]

    def index(self, operands: Sequence[Any], shape: tuple[int, ...]) -> tuple[slice, ...]:
        """The slices of an array of `shape`; IndexError where they leave it."""
        dynamic = iter(operands[self.first :])
        offsets, sizes, strides = (mixed(static, dynamic) for static in self.static)
        slices = []
        for d, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
            last = offset + (size - 1) * stride
            if size < 0 or (size > 0 and not (0 <= offset < shape[d] and 0 <= last < shape[d])):
                raise IndexError(f"[{offset}] [{size}] [{stride}] leaves dimension {d}, which has size {shape[d]}")
            stop = last + (1 if stride > 0 else -1)
            slices.append(slice(offset, stop if stop >= 0 else None, stride) if size > 0 else slice(0, 0))
        return tuple(slices)


def _unit_dims_dropped(sizes: list[int], kind: ir.RankedTensorType) -> list[int]:
    """The dimensions of a slice that its rank-reduced type lacks."""
    dropped, wanted = [], list(kind.shape)
    for d, size in enumerate(sizes):
        if wanted and (len(sizes) - d <= len(wanted) or wanted[0] == size):
            wanted.pop(0)
        else:
            dropped.append(d)
    return dropped


@rule("tensor.extract_slice")
def extract_slice(op: Any, frame: Any) -> Meaning:
    slices = Slices(op, 1)
    dropped = tuple(_unit_dims_dropped(slices.static[1], op.operation.results[0].type))

    def run(operands: list[Any]) -> list[Any]:
        part = operands[0][slices.index(operands, operands[0].shape)]
        return [part.squeeze(dropped) if dropped else part]

    return run


@rule("tensor.insert_slice")
def insert_slice(op: Any, frame: Any) -> Meaning:
    slices = Slices(op, 2)

    def run(operands: list[Any]) -> list[Any]:
        index = slices.index(operands, operands[1].shape)
        destination = arrays.take(operands, 1)
        write(destination, index, operands[0])
        return [destination]

    return run


def write(destination: np.ndarray, index: tuple[slice, ...], source: np.ndarray) -> None:
    """Writes `source`, which may lack unit dimensions, to a slice."""
    part = destination[index]
    if part.size != source.size:
        raise ValueError(f"a source of shape {source.shape} does not fit a slice of shape {part.shape}")
    part[...] = source.reshape(part.shape)


@rule("tensor.empty")
def empty(op: Any, frame: Any) -> Meaning:
    kind = op.operation.results[0].type
    return lambda operands: [arrays.poison(result_shape(kind, iter(operands)), kind)]


@rule("tensor.splat")
def splat(op: Any, frame: Any) -> Meaning:
    kind = op.operation.results[0].type
    return lambda operands: [np.broadcast_to(operands[0], result_shape(kind, iter(operands[1:])))]


@rule("tensor.from_elements")
def from_elements(op: Any, frame: Any) -> Meaning:
    kind = op.operation.results[0].type
    dtype = arrays.value_dtype(kind)
    return lambda operands: [np.array(operands, dtype).reshape(list(kind.shape))]


@rule("tensor.extract")
def extract(op: Any, frame: Any) -> Meaning:
    def run(operands: list[Any]) -> list[Any]:
        array, *where = operands
        for d, i in enumerate(where):
            if np.size(i) and (np.min(i) < 0 or np.max(i) >= array.shape[d]):
                raise IndexError(f"index {np.max(i)} leaves dimension {d}, which has size {array.shape[d]}")
        return [array[tuple(where)]]

    return run


@rule("tensor.insert")
def insert(op: Any, frame: Any) -> Meaning:
    def run(operands: list[Any]) -> list[Any]:
        destination = arrays.take(operands, 1)
        destination[tuple(operands[2:])] = operands[0]
        return [destination]

    return run


@rule("tensor.dim")
def dim(op: Any, frame: Any) -> Meaning:
    return lambda operands: [np.int64(operands[0].shape[operands[1]])]


@rule("tensor.rank")
def rank(op: Any, frame: Any) -> Meaning:
    return lambda operands: [np.int64(operands[0].ndim)]


@rule("tensor.cast")
def cast(op: Any, frame: Any) -> Meaning:
    kind = op.operation.results[0].type
    static = [None if s == DYNAMIC else s for s in kind.shape]

    def run(operands: list[Any]) -> list[Any]:
        if any(s not in (None, found) for s, found in zip(static, operands[0].shape, strict=True)):
            raise ValueError(f"expects {kind}, but found a tensor of shape {operands[0].shape}")
        return [operands[0]]

    return run


@rule("tensor.expand_shape")
def expand_shape(op: Any, frame: Any) -> Meaning:
    static = list(op.operation.attributes["static_output_shape"])
    return lambda operands: [operands[0].reshape(mixed(static, iter(operands[1:])))]


@rule("tensor.collapse_shape")
def collapse_shape(op: Any, frame: Any) -> Meaning:
    groups = [[d.value for d in group] for group in op.operation.attributes["reassociation"]]

    def run(operands: list[Any]) -> list[Any]:
        shape = operands[0].shape
        return [operands[0].reshape([int(np.prod([shape[d] for d in group])) for group in groups])]

    return run


@rule("tensor.reshape")
def reshape(op: Any, frame: Any) -> Meaning:
    return lambda operands: [operands[0].reshape([int(s) for s in operands[1]])]


@rule("tensor.concat")
def concat(op: Any, frame: Any) -> Meaning:
    axis = op.operation.attributes["dim"].value
    return lambda operands: [np.concatenate(operands, axis=axis)]


@rule("tensor.generate")
def generate(op: Any, frame: Any) -> Meaning:
    kind = op.operation.results[0].type
    body = frame.region(op.operation.regions[0])

    def run(operands: list[Any]) -> list[Any]:
        shape = result_shape(kind, iter(operands))
        return [np.broadcast_to(body(list(iotas(shape)))[0], shape)]

    return run


@rule("tensor.pad")
def pad(op: Any, frame: Any) -> Meaning:
    static = [list(op.operation.attributes[f"static_{side}"]) for side in ("low", "high")]
    body = frame.region(op.operation.regions[0])

    def run(operands: list[Any]) -> list[Any]:
        source, *rest = operands
        dynamic = iter(rest)
        low, high = (mixed(side, dynamic) for side in static)
        shape = [before + size + after for before, size, after in zip(low, source.shape, high, strict=True)]
        padded = np.array(np.broadcast_to(body(list(iotas(shape)))[0], shape))
        padded[tuple(slice(before, before + size) for before, size in zip(low, source.shape, strict=True))] = source
        return [padded]

    return run


@rule("tensor.gather")
def gather(op: Any, frame: Any) -> Meaning:
    dims = list(op.operation.attributes["gather_dims"])
    kind = op.operation.results[0].type

    def run(operands: list[Any]) -> list[Any]:
        source, indices = operands
        rest = [d for d in range(source.ndim) if d not in dims]
        points = tuple(indices[..., i] for i in range(len(dims)))
        picked = source.transpose([*dims, *rest])[points]
        if kind.rank != picked.ndim:  # the gathered dimensions are kept, with size 1
            sizes = [1 if d in dims else source.shape[d] for d in range(source.ndim)]
            picked = picked.reshape([*indices.shape[:-1], *sizes])
        return [picked]

    return run
