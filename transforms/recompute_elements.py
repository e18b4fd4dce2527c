"""The pass ``recompute-elements``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling.index import TileBuilder
from ..dialects.tiling.structured import StructuredTiling, all_parallel, indexing_maps
from ..dialects.tiling.tensor_ops import reassociation
from .copying import with_operands
from .extents import known_sizes
from .passes import Pass, remark
from .reshapes import RESHAPES, can_join, joined_operand
from .rewriting import defining_op, erase_if_unused, functions_of, ops_in, ops_of, through
from .slices import tile_of


@dataclass(frozen=True)
class RecomputeElements(Pass):
    """What loops over tiles read once, element by element, is computed on the tile where that reads no more::

        %s = linalg.generic … ins(%g : tensor<2048x2816xbf16>) { 1 / (1 + exp(-g)) } -> tensor<2048x2816xf32>
        %d = scf.forall (%i, %j) … {
          …
          %a, %b = tensor.extract_slice %g[%i, %j] …, tensor.extract_slice %s[%i, %j] …
          %t = linalg.generic … ins(%product, %a, %b) …                      // the derivative of silu
      becomes
        %d = scf.forall (%i, %j) … {
          …
          %a = tensor.extract_slice %g[%i, %j] …
          %b = linalg.generic … ins(%a) { 1 / (1 + exp(-g)) }
          %t = linalg.generic … ins(%product, %a, %b) …

    An element-wise op with several readers is in none of them (``fuse-elements``), and its result would go through
    memory. Here it would come from there to the loop alone: others that read it compute it where they are. What the
    loop reads at the same place anyway counts as nothing. Reshapes that join dimensions go before the op.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for block in function.regions[0].blocks:
                for forall in ops_of(block):
                    if forall.name == "scf.forall":
                        while (found := _worth_it(forall)) is not None:
                            _recompute(*found, forall)


def _worth_it(forall: ir.Operation) -> tuple[ir.Operation, ir.Operation] | None:
    """A slice in a loop, and the op that computes what it is a slice of, from no more than that."""
    slices = [op for op in ops_of(forall.regions[0].blocks[0]) if _is_read_once(op)]
    for one in slices:
        made = _producer(one.operands[0], forall)
        if made is None:
            continue
        beside = {through(s.operands[0], *RESHAPES) for s in slices if tile_of(s) == tile_of(one)}
        read = set(_sources(made, forall)) - beside
        if sum(map(_width, read)) <= _width(one.operands[0]):
            return one, made
    return None


def _is_read_once(op: ir.Operation) -> bool:
    """Whether it is a slice that ops read element by element, in their own places."""
    if op.name != "tensor.extract_slice" or any(s != 1 for s in op.opview.static_strides):
        return False
    if op.operands[0].type.rank != op.results[0].type.rank:
        return False
    uses = list(op.results[0].uses)
    return bool(uses) and all(_reads_in_place(use.owner.operation, use.operand_number) for use in uses)


def _reads_in_place(op: ir.Operation, number: int) -> bool:
    if op.name != "linalg.generic" or not all_parallel(op) or number >= len(op.operands) - len(op.results):
        return False
    m = indexing_maps(op)[number]
    return m == ir.AffineMap.get_identity(m.n_dims)


def _producer(value: ir.Value, forall: ir.Operation) -> ir.Operation | None:
    """The element-wise op that computes a tensor, or what that joins dimensions of; None where its result has to be in
    memory, or where it cannot be moved behind the reshape."""
    op = defining_op(through(value, "tensor.collapse_shape"))
    if op is None or op.block != forall.block or not _is_elementwise(op) or _stays(op.results[0], forall):
        return None
    view = defining_op(value)
    if view == op:
        return op
    return op if view is not None and view.operands[0] == op.results[0] and _can_move(op, view) else None


def _stays(value: ir.Value, forall: ir.Operation) -> bool:
    """Whether a tensor is read by others than element-wise ops and such slices in the loop: by another loop, a matmul
    in this one, or who called."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in RESHAPES:
            if _stays(op.results[0], forall):
                return True
        elif op.block == forall.regions[0].blocks[0]:
            if not _is_read_once(op):
                return True
        elif op.block != forall.block or not _is_elementwise(op):
            return True
    return False


def _is_elementwise(op: ir.Operation) -> bool:
    """Whether each element of the only result comes from elements at places that its own place tells, and some of them
    from as many."""
    if op.name != "linalg.generic" or len(op.results) != 1 or not all_parallel(op):
        return False
    *maps, last = indexing_maps(op)
    identity = ir.AffineMap.get_identity(last.n_dims)
    is_plain = last == identity and not list(op.regions[0].blocks[0].arguments[len(maps)].uses)
    return is_plain and identity in maps and not any(o.name == "tensor.extract" for o in ops_in(op))


def _can_move(op: ir.Operation, view: ir.Operation) -> bool:
    """Whether an op can be computed of what its operands become by a reshape that joins dimensions."""
    return can_join(indexing_maps(op), reassociation(view)) and not any(o.name == "linalg.index" for o in ops_in(op))


def _sources(op: ir.Operation, forall: ir.Operation) -> Iterator[ir.Value]:
    """The tensors of as many elements that an element-wise op is computed from, and others that would be along with
    it."""
    for value, m in zip(list(op.operands)[:-1], indexing_maps(op), strict=False):
        if m != ir.AffineMap.get_identity(m.n_dims):
            continue
        made = _producer(value, forall)
        if made is None:
            yield through(value, *RESHAPES)
        else:
            yield from _sources(made, forall)


def _width(value: ir.Value) -> float:
    """Of its elements, in bits; infinite where they are no floats or integers."""
    kind = value.type.element_type
    return kind.width if isinstance(kind, ir.FloatType | ir.IntegerType) else math.inf


def _recompute(one: ir.Operation, op: ir.Operation, forall: ir.Operation) -> None:
    remark(op, "computed again on the tiles of the loop that reads it")
    moved = op if op.results[0] == one.operands[0] else _moved(op, defining_op(one.operands[0]), forall)
    with ir.InsertionPoint(one), op.location:
        builder = TileBuilder(ir.InsertionPoint(forall), one.block)
        operands = list(moved.operands)
        tiling = StructuredTiling(moved)
        (computed,) = tiling.tile(builder, tile_of(one), lambda number, tile: builder.slice(operands[number], tile))
    one.results[0].replace_all_uses_with(computed)
    view = defining_op(one.operands[0])
    one.erase()
    for left in dict.fromkeys((moved, view, op)):
        erase_if_unused(left)


def _moved(op: ir.Operation, view: ir.Operation, forall: ir.Operation) -> ir.Operation:
    """The op, before a loop, of what its operands become by a reshape that joins dimensions."""
    groups = reassociation(view)
    n, pairs = len(groups), zip(list(op.operands)[:-1], indexing_maps(op), strict=False)
    with ir.InsertionPoint(forall), op.location:
        read = [joined_operand(value, m, groups) for value, m in pairs]
        init = build.empty(known_sizes(view.results[0]), op.results[0].type.element_type)
        kinds = ir.ArrayAttr.get(list(op.attributes["iterator_types"])[:n])
        copy = op.clone()  # whose body it takes
        maps = [*(m for _, m in read), ir.AffineMap.get_identity(n)]
        moved = with_operands(copy, [value for value, _ in read], [init], maps, kinds)
        copy.erase()
        return moved
