"""Copies of ops with other operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..dialects import build
from ..dialects.build import PARALLEL
from ..dialects.mlir import arith, ir, linalg, tensor
from ..dialects.tiling.structured import dim_position, indexing_maps, iterator_types
from .rewriting import Values, copy_op, defining_op, erase_dead, ops_of


def copy_scalar_body(
    block: ir.Block,
    known: Values,
    outer: Callable[[ir.Value], ir.Value],
    index: Callable[[int], ir.Value],
    extract: Callable[[ir.Operation, Callable[[ir.Value], ir.Value]], ir.Value],
    branches: bool = True,
) -> list[ir.Value]:
    """What a linalg.generic's body yields, computed at the insertion point. `known`: its values, of arguments to begin
    with; `outer`: of others; `index` of a loop; `extract` a tensor.extract, given what values are here. Without
    `branches` both sides of a scf.if are computed, which must be harmless."""

    def copied(block: ir.Block, known: Values) -> list[ir.Value]:
        *ops, terminator = ops_of(block)

        def here(value: ir.Value) -> ir.Value:
            return known[value] if value in known else outer(value)

        for op in ops:
            if op.name == "linalg.index":
                known[op.results[0]] = index(ir.IntegerAttr(op.attributes["dim"]).value)
            elif op.name == "tensor.extract":
                known[op.results[0]] = extract(op, here)
            elif op.name == "scf.if" and not branches:
                sides = [copied(region.blocks[0], dict(known)) for region in op.regions]
                for result, yes, no in zip(op.results, *sides, strict=True):
                    known[result] = arith.select(here(op.operands[0]), yes, no)
            else:
                operands = [here(v) for v in op.operands]
                copy = with_regions(op, operands, known) if len(op.regions) else op.clone().operation
                for i, v in enumerate(operands):
                    copy.operands[i] = v
                known.update(zip(op.results, copy.results, strict=True))
        return [here(v) for v in terminator.operands]

    def with_regions(op: ir.Operation, operands: list[ir.Value], known: Values) -> ir.Operation:
        attributes = {name: op.attributes[name] for name in op.attributes}
        kinds = [r.type for r in op.results]
        copy = ir.Operation.create(op.name, kinds, operands, attributes, regions=len(op.regions))
        for old, new in zip(op.regions, copy.regions, strict=True):  # of scf.if
            for block in old.blocks:
                arguments = [a.type for a in block.arguments]
                own = new.blocks.append(*arguments, arg_locs=[op.location] * len(arguments))
                with ir.InsertionPoint(own):
                    yielded = copied(block, {**known, **dict(zip(block.arguments, own.arguments, strict=True))})
                    ir.Operation.create(ops_of(block)[-1].name, [], yielded)
        return copy

    return copied(block, known)


def copy_elements(op: ir.Operation, known: Values, index: Callable[[int], ir.Value]) -> list[ir.Value]:
    """What a linalg.generic's body yields, copied into another one's at the insertion point. `known`: what its
    arguments are there; `index`: where its loops are."""

    def extract(inner: ir.Operation, here: Callable[[ir.Value], ir.Value]) -> ir.Value:
        return tensor.extract(here(inner.operands[0]), [here(v) for v in list(inner.operands)[1:]])

    return copy_scalar_body(op.regions[0].blocks[0], known, lambda value: value, index, extract)


def in_loops(loops: ir.AffineMap) -> Callable[[int], ir.Value]:
    """Indices of an op whose body is copied into one with other loops, which `loops` turns into those of the op."""
    return lambda loop: index_at(loops.results[loop], lambda d: linalg.IndexOp(d).result, loops.n_dims)


def index_at(e: ir.AffineExpr, index: Callable[[int], ir.Value], loops: int) -> ir.Value:
    """An index that is computed from those of so many loops."""
    if isinstance(e, ir.AffineDimExpr):
        return index(e.position)
    if isinstance(e, ir.AffineConstantExpr):
        return build.index(e.value)
    attributes = {"map": ir.AffineMapAttr.get(ir.AffineMap.get(loops, 0, [e]))}
    return ir.Operation.create(
        "affine.apply", [ir.IndexType.get()], [index(d) for d in range(loops)], attributes
    ).result


def copy_body(block: ir.Block, values: Values) -> list[ir.Value]:
    """The ops of a body once more at the insertion point, on what `values` says; what the body yields, there."""
    *ops, end = ops_of(block)
    for op in ops:
        copy_op(op, values)
    return [values.get(v, v) for v in end.operands]


def with_operands(
    generic: ir.Operation,
    inputs: Sequence[ir.Value],
    inits: Sequence[ir.Value],
    maps: Iterable[ir.AffineMap],
    iterators: ir.ArrayAttr,
) -> ir.Operation:
    """A linalg.generic at the insertion point that takes the body of `generic`, which is to be erased."""
    results = [v.type for v in inits if isinstance(v.type, ir.RankedTensorType)]
    new = linalg.GenericOp(results, inputs, inits, build.map_array(maps), iterators).operation
    generic.regions[0].blocks[0].append_to(new.regions[0])
    return new


def without_inputs(generic: ir.Operation, numbers: Sequence[int]) -> ir.Operation:
    """Puts a linalg.generic in the place of `generic` that lacks these inputs, which its body does not read."""
    first = len(generic.operands) - len(generic.results)
    kept = [i for i in range(len(generic.operands)) if i not in numbers]
    maps = indexing_maps(generic)
    block = generic.regions[0].blocks[0]
    for i in sorted(numbers, reverse=True):
        block.erase_argument(i)
    with ir.InsertionPoint(generic), generic.location:
        new = with_operands(
            generic,
            [generic.operands[i] for i in kept if i < first],
            list(generic.operands)[first:],
            [maps[i] for i in kept],
            generic.attributes["iterator_types"],
        )
    for old, value in zip(generic.results, new.results, strict=True):
        old.replace_all_uses_with(value)
    generic.erase()
    return new


def without_result(generic: ir.Operation, number: int) -> ir.Operation:
    """Puts a linalg.generic in the place of `generic` that lacks a result which no one reads."""
    first = len(generic.operands) - len(generic.results)
    maps, operands = indexing_maps(generic), list(generic.operands)
    del maps[first + number], operands[first + number]
    left = {dim_position(e) for m in maps[first:] for e in m.results}
    iterators = [PARALLEL if loop in left else kind for loop, kind in enumerate(iterator_types(generic))]
    block = generic.regions[0].blocks[0]
    end = ops_of(block)[-1]
    yielded = list(end.operands)
    with ir.InsertionPoint(end), end.location:
        linalg.YieldOp([v for i, v in enumerate(yielded) if i != number])
    end.erase()
    erase_dead(block)
    block.erase_argument(first + number)
    with ir.InsertionPoint(generic), generic.location:
        new = with_operands(generic, operands[:first], operands[first:], maps, build.iterator_array(iterators))
    for old, value in zip((r for i, r in enumerate(generic.results) if i != number), new.results, strict=True):
        old.replace_all_uses_with(value)
    generic.erase()
    return new


def copy_needed(value: ir.Value, values: Values, is_missing: Callable[[ir.Operation], bool]) -> ir.Value:
    """What `value` is at the insertion point, after copies of the ops it comes from, as far as those are missing there
    and `values` has them not."""
    op = defining_op(value)
    if value not in values and op is not None and is_missing(op):
        for operand in op.operands:
            copy_needed(operand, values, is_missing)
        copy_op(op, values)
    return values.get(value, value)
