"""Windows of a tm_tensor.scatter of which torch-mlir has made single elements: ONNX's ScatterND, index_put in torch.

  %columns:3, %elements = linalg.generic { %n = linalg.index 0
    %w = %n rem 6; %h = (%n / 6) rem 4; %row = (%n / 24) rem 3
    yield extract %places[%row, %h, %w], %h, %w, extract %updates[%row, %h, %w]     // %places: one for each row
  } -> 72 of each
  scatter 72 elements at the columns [i, h, w] of tensor<8x4x6xf32>
is
  scatter 3 windows of 4 × 6 at [i, 0, 0], row r of %updates at what the columns have at 24·r
"""

import math
from dataclasses import dataclass

from ...dialects import build
from ...dialects.build import constant_value
from ...dialects.mlir import arith, ir, tensor
from ...dialects.tiling.structured import dim_position, indexing_maps, moved_operand
from ...transforms.rewriting import copy_op, defining_op, terminator


@dataclass(frozen=True)
class Windows:
    """`sizes`: of the last `dims` of the result, of which windows have all; `updates`: them, one after the other;
    `columns`: of the other dimensions, in the body of the op over elements."""

    sizes: tuple[int, ...]
    dims: tuple[int, ...]
    updates: ir.Value
    columns: tuple[ir.Value, ...]

    def place(self, number: int, window: ir.Value) -> ir.Value:
        """Where that window is in one of the other dimensions, at the insertion point."""
        first = arith.muli(window, build.index(math.prod(self.sizes)))
        return arith.index_cast(ir.IndexType.get(), _emitted(self.columns[number], first))


def windows(updates: ir.Value, indices: ir.Value, mapped: list[int], shape: list[int]) -> Windows | None:
    """The windows that consecutive elements of `updates` fill, each the next place of the last dimensions, at places
    that `indices` have, by element and dimension in `mapped`; None where these differ within windows."""
    columns = _columns(indices, len(mapped))
    sizes: list[int] = []  # the last one first
    while columns and len(sizes) < len(mapped):
        number = len(mapped) - 1 - len(sizes)
        size = shape[mapped[number]]
        if not _counts(columns[number], math.prod(sizes), size):
            break
        sizes.append(size)
    elements, others = math.prod(sizes), columns[: len(columns) - len(sizes)]
    if not sizes or updates.type.shape[0] % elements or not all(_is_same_within(elements, c) for c in others):
        return None
    kind = ir.RankedTensorType.get([updates.type.shape[0] // elements, *reversed(sizes)], updates.type.element_type)
    return Windows(tuple(reversed(sizes)), tuple(mapped[len(others) :]), _reshaped(_read(updates), kind), tuple(others))


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
    """Whether a value is ⌊i/stride⌋ mod size of the index i of the element."""
    return _digit(value) == (stride, size) or (size == 1 and _number(value) == 0)


def _digit(value: ir.Value) -> tuple[int, int] | None:
    """(s, n) where a value is ⌊i/s⌋ mod n of the index i of the element."""
    op = defining_op(value)
    if op is not None and op.name == "arith.index_cast":
        return _digit(op.operands[0])
    if op is None or op.name not in ("arith.remsi", "arith.remui"):
        return None
    stride, size = _divisor(op.operands[0]), constant_value(op.operands[1])
    return None if stride is None or size is None else (stride, size)


def _divisor(value: ir.Value) -> int | None:
    """s where a value is ⌊i/s⌋."""
    op = defining_op(value)
    if op is None or op.name == "linalg.index":
        return None if op is None else 1
    if op.name not in ("arith.divsi", "arith.divui"):
        return None
    inner, by = _divisor(op.operands[0]), constant_value(op.operands[1])
    return None if inner is None or by is None else inner * by


def _is_same_within(elements: int, value: ir.Value) -> bool:
    """Whether so many consecutive elements have one value: a digit of their number that counts them, or what is read at
    such, along the dimensions of a broadcast's operand."""
    digit = _digit(value)
    if digit is not None or _number(value) is not None:
        return digit is None or digit[0] % elements == 0
    op = defining_op(value)
    if op is None or op.name != "tensor.extract":
        return False
    source, *places = op.operands
    found = _broadcast(source)
    return all(_is_same_within(elements, places[d]) for d in (found[1] if found else range(len(places))))


def _number(value: ir.Value) -> int | None:
    op = defining_op(value)
    return constant_value(value) if op is None or op.name != "arith.index_cast" else _number(op.operands[0])
