"""Windows of a tm_tensor.scatter of which torch-mlir has made single elements: ONNX's ScatterND, index_put in torch.

  %columns:3, %elements = linalg.generic { %n = linalg.index 0
    %w = %n rem 6; %h = (%n / 6) rem 4; %row = (%n / 24) rem 3
    yield extract %places[%row, %h, %w], %h, %w, extract %updates[%row, %h, %w]     // %places: one for each row
  } -> 72 of each
  scatter 72 elements at the columns [i, h, w] of tensor<8x4x6xf32>
is
  scatter 3 windows of 4 × 6 at [i, 0, 0], row r of %updates at what the columns have at 24·r

Windows may lie between what places differ in: of ScatterElements along the tokens of a cache [heads, tokens, 64] they
are [heads, 1, 64], for each token one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir, tensor
from ...dialects.tiling.structured import all_parallel, dim_position, indexing_maps, moved_operand
from ...transforms.rewriting import copy_op, defining_op, ops_in, terminator


@dataclass(frozen=True)
class Digit:
    """⌊i/stride⌋ mod size of the number i of an element."""

    stride: int
    size: int

    def is_apart(self, other: "Digit") -> bool:
        """Whether neither changes with the other."""
        return self.stride % (other.stride * other.size) == 0 or other.stride % (self.stride * self.size) == 0


@dataclass(frozen=True)
class Windows:
    """`updates`: them, of which all dimensions but `free` are those of windows; `dims`: these in the result, of which
    windows have all; `columns`: of its other dimensions, in the body of the op over elements; `strides`: how many
    elements the next one of each free dimension is apart."""

    updates: ir.Value
    free: tuple[int, ...]
    strides: tuple[int, ...]
    dims: tuple[int, ...]
    columns: tuple[ir.Value, ...]

    def place(self, number: int, at: Sequence[ir.Value]) -> ir.Value:
        """Where the window `at` these places of the free dimensions is in one of the others, at the insertion point."""
        element = build.index(0)
        for index, stride in zip(at, self.strides, strict=True):
            element = arith.addi(element, arith.muli(index, build.index(stride)))
        return arith.index_cast(ir.IndexType.get(), _emitted(self.columns[number], element))


def windows(updates: ir.Value, indices: ir.Value, mapped: list[int], shape: list[int]) -> Windows | None:
    """The windows that elements of `updates` fill, each in the order of the result's dimensions, at places that
    `indices` have, by element and dimension in `mapped`; None where there are none."""
    columns = _columns(indices, len(mapped))
    count = updates.type.shape[0]
    counting: dict[int, Digit] = {}  # which go through all of their dimension
    for number, column in enumerate(columns):
        size = shape[mapped[number]]
        if (digit := _digit(column)) is not None and digit.size == size and count % (digit.stride * size) == 0:
            counting[number] = digit
    while True:
        others = _all(_digits(column) for number, column in enumerate(columns) if number not in counting)
        if others is None:
            return None
        of_all = [(None, digit) for digit in others] + list(counting.items())
        clash = next((n for n, d in counting.items() if not all(d.is_apart(o) for m, o in of_all if m != n)), None)
        if clash is None:
            break
        del counting[clash]
    along = sorted(counting, key=lambda number: -counting[number].stride)
    if not along or [mapped[n] for n in along] != sorted(mapped[n] for n in along):
        return None
    sizes: list[int] = []
    strides: list[int] = []
    free: list[int] = []
    left = count  # of elements that a dimension goes through, with all that follow
    for digit in [*(counting[n] for n in along), Digit(0, 1)]:
        inner = digit.stride * digit.size or 1
        if left > inner:
            free.append(len(sizes))
            strides.append(inner)
            sizes.append(left // inner)
        if digit.stride:
            sizes.append(digit.size)
        left = digit.stride
    kind = ir.RankedTensorType.get(sizes, updates.type.element_type)
    return Windows(
        _reshaped(_read(updates), kind),
        tuple(free),
        tuple(strides),
        tuple(mapped[n] for n in along),
        tuple(column for number, column in enumerate(columns) if number not in counting),
    )


def _all(parts: Iterable[list[Digit] | None]) -> list[Digit] | None:
    """All of them together; None where there is None."""
    found: list[Digit] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


def _read(updates: ir.Value) -> ir.Value:
    """The tensor whose elements are the updates, one after the other."""
    op = defining_op(updates)
    if op is None or op.name != "linalg.generic":
        return updates
    extract = defining_op(terminator(op.regions[0].blocks[0]).operands[ir.OpResult(updates).result_number])
    if extract is None or extract.name != "tensor.extract":
        return updates
    source, *places = extract.operands
    shape = source.type.shape
    counted = all(_counts(place, math.prod(shape[d + 1 :]), shape[d]) for d, place in enumerate(places))
    return source if counted and math.prod(shape) == updates.type.shape[0] else updates


def _reshaped(value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    if value.type.rank > 1 and value.type != kind:
        flat = ir.RankedTensorType.get([math.prod(kind.shape)], kind.element_type)
        value = tensor.collapse_shape(flat, value, [list(range(value.type.rank))])
    if value.type == kind:
        return value
    return tensor.expand_shape(kind, value, [list(range(kind.rank))], [], kind.shape)


def _emitted(value: ir.Value, element: ir.Value) -> ir.Value:
    """What is computed in a body over elements, for that element, at the insertion point."""
    op = defining_op(value)
    if op is None or op.name == "linalg.index":
        return value if op is None else element
    if op.name == "tensor.extract":
        source, *places = op.operands
        while (found := _broadcast(source)) is not None:
            source, kept = found
            places = [places[d] for d in kept]
        return tensor.extract(source, [_emitted(v, element) for v in places])
    return copy_op(op, {v: _emitted(v, element) for v in op.operands}).results[0]


def _broadcast(value: ir.Value) -> tuple[ir.Value, list[int]] | None:
    """What is moved to `value`, and which of its dimensions the operand's are."""
    op = defining_op(value)
    moved = moved_operand(op) if op is not None and op.name == "linalg.generic" and len(op.results) == 1 else None
    if op is None or moved is None or not isinstance(op.operands[moved].type, ir.RankedTensorType):
        return None
    maps = indexing_maps(op)
    written = [dim_position(e) for e in maps[-1].results]
    read = [dim_position(e) for e in maps[moved].results]
    if None in read or not set(read) <= set(written):
        return None
    return op.operands[moved], [written.index(d) for d in read]


def _varying(value: ir.Value) -> list[int]:
    """The dimensions along which the elements of a tensor may differ: of a broadcast, and of what is computed of one,
    those of its operands."""
    op, dims = defining_op(value), [d for d, size in enumerate(value.type.shape) if size != 1]
    if (
        op is None
        or op.name != "linalg.generic"
        or not all_parallel(op)
        or ops_in(op, "linalg.index", "tensor.extract")
    ):
        return dims
    maps, number = indexing_maps(op), ir.OpResult(value).result_number
    loops: set[int | None] = set()
    for operand, m in zip(list(op.operands)[: -len(op.results)], maps, strict=False):
        if isinstance(operand.type, ir.RankedTensorType):
            loops |= {dim_position(m.results[d]) for d in _varying(operand)}
    written = maps[len(op.operands) - len(op.results) + number].results
    return dims if None in loops else [d for d in dims if dim_position(written[d]) in (None, *loops)]


def _columns(indices: ir.Value, count: int) -> list[ir.Value]:
    """What an element-wise op over elements yields for each column that is inserted; [] if it is anything else."""
    found: dict[int, ir.Value] = {}
    while (op := defining_op(indices)) is not None and op.name == "tensor.insert_slice":
        (part, indices), (_, column) = op.operands, list(op.attributes["static_offsets"])
        maker = defining_op(part)
        if maker is None or maker.name != "linalg.generic" or indexing_maps(maker)[0].n_dims != 1:
            return []
        end = terminator(maker.regions[0].blocks[0])
        found.setdefault(column, end.operands[ir.OpResult(part).result_number])
    return [found[n] for n in range(count)] if sorted(found) == list(range(count)) else []


def _counts(value: ir.Value, stride: int, size: int) -> bool:
    return _digit(value) == Digit(stride, size) or (size == 1 and _number(value) == 0)


def _digit(value: ir.Value) -> Digit | None:
    op = defining_op(value)
    if op is not None and op.name == "arith.index_cast":
        return _digit(op.operands[0])
    if op is None or op.name not in ("arith.remsi", "arith.remui"):
        return None
    stride, size = _divisor(op.operands[0]), constant_value(op.operands[1])
    return None if stride is None or size is None else Digit(stride, size)


def _divisor(value: ir.Value) -> int | None:
    """s where a value is ⌊i/s⌋."""
    op = defining_op(value)
    if op is None or op.name == "linalg.index":
        return None if op is None else 1
    if op.name not in ("arith.divsi", "arith.divui"):
        return None
    inner, by = _divisor(op.operands[0]), constant_value(op.operands[1])
    return None if inner is None or by is None else inner * by


def _digits(value: ir.Value) -> list[Digit] | None:
    """What a value is computed from, of the number of an element: a digit, or those at which an element is read; None
    where it cannot be told."""
    digit = _digit(value)
    if digit is not None or _number(value) is not None:
        return [] if digit is None else [digit]
    op = defining_op(value)
    if op is None or op.name != "tensor.extract":
        return None
    source, *places = op.operands
    return _all(_digits(places[d]) for d in _varying(source))


def _number(value: ir.Value) -> int | None:
    op = defining_op(value)
    return constant_value(value) if op is None or op.name != "arith.index_cast" else _number(op.operands[0])
