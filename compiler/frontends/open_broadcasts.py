"""Broadcasts of open sizes as what they are: reads at the indices of the loops.

  %y = linalg.generic outs(%e : tensor<?x?x256xf32>) {           // of [%b, %s, 256]; %x : [%b, %s, 1]
    %is = arith.cmpi eq, %b, %c1    %i = arith.select %is, %c0, %index0    …
    %v = tensor.extract %x[%i, %j, %c0]
    linalg.yield %v
  }
becomes
  %y = linalg.generic {affine_map<(d0, d1, d2) -> (d0, d1, 0)>, …} ins(%x) outs(%e) { ^bb0(%v, %out): linalg.yield %v }

The importer asks whether a size is 1, and would be broadcast. That of the loop itself is not: where it is 1, its
only index is 0. Thus norms are seen to be computed on the same rows.
"""

from collections.abc import Callable

from ...dialects import build
from ...dialects.build import PARALLEL, constant_value
from ...dialects.mlir import arith, ir, linalg
from ...dialects.tiling.structured import indexing_maps, iterator_types
from ...transforms.copying import copy_scalar_body
from ...transforms.products import factors
from ...transforms.rewriting import defining_op, ops_in
from .lowering import ops


def read_by_loops(module: ir.Module) -> None:
    """Makes operands of what the bodies of element-wise ops read at their own indices, in place."""
    for op in ops(module):
        if op.name == "linalg.generic" and len(op.results) == 1 and all(k == PARALLEL for k in iterator_types(op)):
            with op.location:
                found = {e: m for e in ops_in(op, "tensor.extract") if (m := _map(e, op)) is not None}
                if found and indexing_maps(op)[-1].is_permutation:
                    _with_operands(op, found)


def _with_operands(op: ir.Operation, found: dict[ir.Operation, ir.AffineMap]) -> None:
    maps, body, (*inputs, init) = indexing_maps(op), op.regions[0].blocks[0], op.operands
    read = [e.operands[0] for e in found]
    with ir.InsertionPoint(op), op.location:
        new = linalg.GenericOp(
            [op.results[0].type],
            [*inputs, *read],
            [init],
            build.map_array([*maps[:-1], *found.values(), maps[-1]]),
            op.attributes["iterator_types"],
        ).operation
        kinds = [build.element_of(v.type) if isinstance(v.type, ir.ShapedType) else v.type for v in new.operands]
        block = new.regions[0].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
        own = list(block.arguments)
        known = dict(zip(body.arguments, [*own[: len(inputs)], own[-1]], strict=True))
        elements = dict(zip(found, own[len(inputs) :], strict=False))

        def extract(inner: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
            if inner in elements:
                return elements[inner]
            copy = inner.clone().operation
            for i, v in enumerate(inner.operands):
                copy.operands[i] = here(v)
            return copy.results[0]

        with ir.InsertionPoint(block):
            linalg.YieldOp(copy_scalar_body(body, known, lambda v: v, lambda d: linalg.IndexOp(d).result, extract))
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _map(extract: ir.Operation, op: ir.Operation) -> ir.AffineMap | None:
    """From the loops of `op` to where an element is read; None if they do not say that, or not of the whole array."""
    source, *indices = extract.operands
    made = defining_op(source)
    if made is not None and made.block != op.block:
        return None
    results = []
    for d, index in enumerate(indices):
        loop = _loop(index, op)
        if loop is not None and factors([(source, d)]) == factors([_size(op, loop)]):
            results.append(ir.AffineDimExpr.get(loop))
        elif constant_value(index) == 0 and source.type.shape[d] == 1:
            results.append(ir.AffineConstantExpr.get(0))
        else:
            return None
    return ir.AffineMap.get(len(iterator_types(op)), 0, results)


def _loop(index: ir.Value, op: ir.Operation) -> int | None:
    """The loop whose index this is, also where it is 0 instead if the loop has one step."""
    made = defining_op(index)
    if made is not None and made.name == "arith.select" and constant_value(made.operands[1]) == 0:
        loop, asked = _loop(made.operands[2], op), defining_op(made.operands[0])
        if loop is None or asked is None or asked.name != "arith.cmpi" or constant_value(asked.operands[1]) != 1:
            return None
        is_equal = ir.IntegerAttr(asked.attributes["predicate"]).value == arith.CmpIPredicate.eq
        return loop if is_equal and factors([asked.operands[0]]) == factors([_size(op, loop)]) else None
    if made is None or made.name != "linalg.index" or made.parent.operation != op:
        return None
    return ir.IntegerAttr(made.attributes["dim"]).value


def _size(op: ir.Operation, loop: int) -> tuple[ir.Value, int]:
    """The size of a loop, as that of a dimension of the result."""
    places = [ir.AffineDimExpr(e).position for e in indexing_maps(op)[-1].results]
    return op.operands[len(op.operands) - 1], places.index(loop)
