"""The pass ``pieces-to-elements``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg, tensor
from ....dialects.tiling.structured import dim_position, indexing_maps, is_direct, loops_in, on_loops, reduces
from ...copying import copy_needed, index_at
from ...graph import operands_with_captures
from ...passes import Pass
from ...reshapes import RESHAPES
from ...rewriting import defining_op, either, ops_in, ops_of, through
from ...slices import mixed, plus, slice_parts, slice_sizes
from ..axes import kept_dims, source_indices
from .align_rows import is_known

Size: TypeAlias = "ir.Value | int"
Indices: TypeAlias = Sequence[ir.Value]


@dataclass(frozen=True)
class PiecesToElements(Pass):
    """Around the loops over tiles, turns ops that put tensors together into one that says where an element is from::

        %r = tensor.concat dim(0) %a, %b : (tensor<3x8xf16>, tensor<5x8xf16>) -> tensor<8x8xf16>
    becomes
        %r = linalg.generic … outs(%empty) {
          %i = linalg.index 0
          %first = arith.cmpi slt, %i, %c3
          %x = scf.if %first { %y = tensor.extract %a[%i, %j] } else { %y = tensor.extract %b[%i − 3, %j] }
          linalg.yield %x
        } -> tensor<8x8xf16>

    tensor.pad and tensor.insert_slice alike: a cache with new keys behind the old ones, or written at some place. So is
    tensor.extract_slice where a result is made of it, where it has strides and loops over tiles read it, such as every
    second key, or where it begins at a place that only the GPU knows; other slices are read where they stand. What an
    element-wise op does not read at its own loops, such as windows that overlap, is copied so first.
    """

    def run(self, op: ir.Operation) -> None:
        for function in ops_in(op, "func.func"):
            for inner in ops_of(function.regions[0].blocks[0]) if len(function.regions[0].blocks) else []:
                if inner.name not in _REWRITES:
                    continue
                with ir.InsertionPoint(inner), inner.location:
                    result = _REWRITES[inner.name](inner)
                    if result is None:
                        continue
                    if result.type != inner.results[0].type:
                        result = tensor.cast(inner.results[0].type, result)
                inner.results[0].replace_all_uses_with(result)
                inner.erase()
            if len(function.regions[0].blocks):
                _read_inside(function.regions[0].blocks[0])


def _read_inside(block: ir.Block) -> None:
    """Numbers that only the GPU knows, such as the place of a token in a cache, are read in bodies that need them."""
    made: dict[ir.Value, ir.Operation] = {}
    for op in ops_of(block):
        is_scalar = op.name.startswith("arith.") and not isinstance(op.results[0].type, ir.RankedTensorType)
        if op.name == "tensor.extract" or (is_scalar and any(v in made for v in op.operands)):
            made[op.results[0]] = op
    for op in ops_of(block) if made else []:
        if not op.name.startswith("linalg.") or not len(op.regions):
            continue
        body = op.regions[0].blocks[0]
        first, copies = ops_of(body)[0], dict[ir.Value, ir.Value]()
        for value in operands_with_captures(op):
            if value in made and value not in op.operands:
                with ir.InsertionPoint(first):
                    _replace_inside(body, value, copy_needed(value, copies, lambda maker: maker.results[0] in made))
    for op in reversed(made.values()):
        if not list(op.results[0].uses):
            op.erase()


def _replace_inside(block: ir.Block, old: ir.Value, new: ir.Value) -> None:
    for op in ops_of(block):
        for i, operand in enumerate(op.operands):
            if operand == old:
                op.operands[i] = new
        for region in op.regions:
            for inner in region.blocks:
                _replace_inside(inner, old, new)


def _concatenated(op: ir.Operation) -> ir.Value:
    # As large as is known: a roll's parts are cast to open sizes.
    sources = [through(v, "tensor.cast") for v in op.operands]
    along = ir.IntegerAttr(op.attributes["dim"]).value
    ends: list[Size] = []
    for source in sources:
        ends.append(plus(ends[-1] if ends else 0, build.mixed_sizes(source)[along]))
    sizes = build.mixed_sizes(sources[0])
    sizes[along] = ends[-1]
    kind = op.results[0].type.element_type

    def element(at: Indices, number: int = 0) -> ir.Value:
        here = list(at)
        if number:
            here[along] = arith.subi(at[along], build.as_index(ends[number - 1]))
        if number == len(sources) - 1:
            return _extracted(sources[number], here)
        inside = arith.cmpi(arith.CmpIPredicate.slt, at[along], build.as_index(ends[number]))
        return _either(inside, kind, lambda: _extracted(sources[number], here), lambda: element(at, number + 1))

    return _generic(sizes, kind, element)


def _padded(op: ir.Operation) -> ir.Value | None:
    (padding,) = ops_of(op.regions[0].blocks[0])[-1].operands
    if padding.owner == op.regions[0].blocks[0]:
        return None  # it differs from place to place
    maker = None if isinstance(padding.owner, ir.Block) else padding.owner.operation
    if maker is not None and maker.block == op.regions[0].blocks[0]:
        if maker.name != "arith.constant":
            return None
        padding = maker.clone().operation.results[0]
    source = op.operands[0]
    low, high = mixed(op.opview.low, op.opview.static_low), mixed(op.opview.high, op.opview.static_high)
    inner = build.mixed_sizes(source)
    sizes = [plus(plus(a, b), c) for a, b, c in zip(low, inner, high, strict=True)]
    kind = op.results[0].type.element_type

    def element(at: Indices) -> ir.Value:
        inside, here = within(at, low, inner, [1] * len(at))
        return _either(inside, kind, lambda: _extracted(source, here), lambda: padding)

    return _generic(sizes, kind, element)


def _inserted(op: ir.Operation) -> ir.Value | None:
    source, target = op.operands[:2]
    offsets, sizes, steps = slice_parts(op)
    kept, kind = kept_dims(op, source.type, steps=True), op.results[0].type.element_type

    def element(at: Indices) -> ir.Value:
        inside, here = within(at, offsets, sizes, steps)
        of_source = [here[d] for d in kept]
        return _either(inside, kind, lambda: _extracted(source, of_source), lambda: _extracted(target, list(at)))

    return _generic(build.mixed_sizes(target), kind, element)


def _sliced(op: ir.Operation) -> ir.Value | None:
    users = [use.owner.operation for use in op.results[0].uses]
    steps = any(s != 1 for s in op.opview.static_strides)
    from_data = not all(map(is_known, op.opview.offsets))
    if not from_data and not any(
        user.name in ("func.return", *RESHAPES) or (steps and user.block != op.block) for user in users
    ):
        return None  # whoever reads it reads where it stands
    source, kind = op.operands[0], op.results[0].type

    def element(at: Indices) -> ir.Value:
        return _extracted(source, source_indices(op, kind, at, build.as_index, steps=True))

    sizes = slice_sizes(op)
    return _generic([sizes[d] for d in kept_dims(op, kind, steps=True)], kind.element_type, element)


def _moved(op: ir.Operation) -> None:
    """An element-wise op that reads an operand elsewhere than at its own loops, such as windows that overlap, reads a
    copy, made element by element."""
    maps, first = indexing_maps(op), len(op.operands) - len(op.results)
    if len(op.results) != 1 or reduces(op) or not all(map(is_direct, maps[first].results)):
        return
    sizes = dict(zip(map(dim_position, maps[first].results), build.mixed_sizes(op.operands[first]), strict=True))
    for number in range(first):
        if all(map(is_direct, maps[number].results)):
            continue
        source, loops = op.operands[number], sorted(loops_in(maps[number]))
        read = on_loops(maps[number], loops)

        def element(at: Indices, source=source, read=read) -> ir.Value:
            return _extracted(source, [index_at(e, at.__getitem__, len(at)) for e in read.results])

        kind = source.type.element_type
        op.operands[number] = _generic([sizes[d] for d in loops], kind, element)
        maps[number] = build.projection(len(sizes), loops)
    op.attributes["indexing_maps"] = build.map_array(maps)


_REWRITES: dict[str, Callable[[ir.Operation], ir.Value | None]] = {
    "tensor.concat": _concatenated,
    "tensor.pad": _padded,
    "tensor.insert_slice": _inserted,
    "tensor.extract_slice": _sliced,
    "linalg.generic": _moved,
}


def _extracted(source: ir.Value, at: Indices) -> ir.Value:
    """An element of a tensor; of what is cast, if it is, so that slices are read where they stand there, too. What is
    not written may be anything."""
    source = through(source, "tensor.cast")
    op = defining_op(source)
    if op is not None and op.name == "tensor.empty":
        return build.constant(source.type.element_type, 0)
    return tensor.extract(source, at)


def _generic(sizes: Sequence[Size], element: ir.Type, body: Callable[[Indices], ir.Value]) -> ir.Value:
    rank = len(sizes)
    (result,) = build.generic(
        [],
        [build.empty(sizes, element)],
        [build.projection(rank, range(rank))],
        [build.PARALLEL] * rank,
        lambda _: body([linalg.IndexOp(d).result for d in range(rank)]),
    )
    return result


def _either(inside: ir.Value, kind: ir.Type, then: Callable[[], ir.Value], other: Callable[[], ir.Value]) -> ir.Value:
    (chosen,) = either(inside, [kind], lambda: [then()], lambda: [other()])
    return chosen


def within(
    at: Indices, offsets: Sequence[Size], sizes: Sequence[Size], steps: Sequence[Size]
) -> tuple[ir.Value, list[ir.Value]]:
    """Whether an element is in the piece at these offsets, and which of the piece it is then."""
    inside = build.constant(ir.IntegerType.get_signless(1), 1)
    here = []
    for i, offset, size, step in zip(at, offsets, sizes, steps, strict=True):
        place = arith.subi(i, build.as_index(offset))
        if step != 1:
            by = build.as_index(step)
            between = arith.remui(place, by)
            inside = arith.andi(inside, arith.cmpi(arith.CmpIPredicate.eq, between, build.index(0)))
            place = arith.divui(place, by)
        # A place before the piece is beyond its end as an unsigned number, and divided by the step still is.
        inside = arith.andi(inside, arith.cmpi(arith.CmpIPredicate.ult, place, build.as_index(size)))
        here.append(place)
    return inside, here
