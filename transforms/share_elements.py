"""The pass ``share-elements``."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import ir
from ..dialects.tiling.structured import all_parallel, indexing_maps, iterator_types
from .copying import copy_needed
from .equivalence import is_same
from .passes import Pass
from .rewriting import (
    Values,
    defining_op,
    erase_if_unused,
    for_body,
    is_constant,
    is_inside,
    ops_in,
    ops_of,
    terminator,
)

FUNCTIONS = "math."  # what takes longer than to read an element


@dataclass(frozen=True)
class ShareElements(Pass):
    """Functions of the same elements, in two element-wise ops, are computed once::

        %p = linalg.generic … ins(%s, %n)          { %e = exp2(s − n); select(i <= j, %e, 0) }
        %d = linalg.generic … ins(%s, %n, %g, %r)  { %e = exp2(s − n); select(i <= j, %e · (g − r), 0) }
      becomes
        %t = linalg.generic … ins(%s, %n)          { exp2(s − n) }
        %p = linalg.generic … ins(%t)              { select(i <= j, t, 0) }
        %d = linalg.generic … ins(%t, %g, %r)      { select(i <= j, t · (g − r), 0) }

    as in derivatives by keys and by values, which have scores in common (``fuse-siblings``). Where the first op is no
    more than that, or that under masks which the second one has, too, as here, that one reads its result: there is no
    %t then. In loops and branches alone, where tiles are in a cache or in registers.
    """

    def run(self, op: ir.Operation) -> None:
        for block in dict.fromkeys(generic.block for generic in ops_in(op, "linalg.generic")):
            if block.owner.operation.name.startswith("scf."):
                _share_in(block)


def _share_in(block: ir.Block) -> None:
    ops = [op for op in ops_of(block) if op.name == "linalg.generic" and _is_plain(op)]
    for i in range(len(ops)):
        for j in range(i + 1, len(ops)):
            while (common := _common(ops[i], ops[j])) is not None:
                tile = ops[i].results[0]
                if not common.is_result:
                    tile = _computing(ops[i], common.same)
                    ops[i] = _reading(ops[i], {common.same: tile})
                ops[j] = _reading(ops[j], {common.value: tile})


def _is_plain(op: ir.Operation) -> bool:
    """Whether an op takes functions of elements, for one result, at whose place nothing else is."""
    body = ops_of(for_body(op))
    takes_functions = any(inner.name.startswith(FUNCTIONS) for inner in body) and not any(i.regions for i in body)
    plain = len(op.results) == 1 and all_parallel(op) and not list(for_body(op).arguments[-1].uses)
    return takes_functions and plain and indexing_maps(op)[-1] == ir.AffineMap.get_identity(len(iterator_types(op)))


def _yielded(op: ir.Operation) -> ir.Value:
    return terminator(for_body(op)).operands[0]


def _inputs(op: ir.Operation) -> list[tuple[ir.Value, ir.Value, ir.AffineMap]]:
    """The arguments of the body, the operands that they are elements of, and where."""
    return list(zip(for_body(op).arguments, op.operands, indexing_maps(op), strict=True))[:-1]


@dataclass(frozen=True)
class _Common:
    """A `value` in the body of one op, and the `same` one in another's. `is_result`: of that one its result will do."""

    value: ir.Value
    same: ir.Value
    is_result: bool


def _common(first: ir.Operation, second: ir.Operation) -> _Common | None:
    """What takes a function and both compute: as much of it as there is. None if there is none."""
    if iterator_types(first) != iterator_types(second) or first.results[0].type.shape != second.results[0].type.shape:
        return None
    known: Values = {}
    for argument, operand, at in _inputs(second):
        same = (a for a, v, m in _inputs(first) if m == at and _is_same_tile(v, operand))
        known.update((argument, a) for a in list(same)[:1])
    costly: dict[ir.Operation, bool] = {}
    candidates = ops_of(for_body(first))[:-1]
    for op in ops_of(for_body(second))[:-1]:
        same_op = next((other for other in candidates if is_same(op, other, known)), None)
        if same_op is not None:
            makers = map(defining_op, op.operands)
            costly[op] = op.name.startswith(FUNCTIONS) or any(costly.get(o, False) for o in makers if o is not None)
            known.update(zip(op.results, same_op.results, strict=True))
    for op, is_costly in costly.items():
        if is_costly and any(use.owner.operation not in costly for use in op.results[0].uses):
            value, same = op.results[0], known[op.results[0]]
            (masks, unmasked), (others, _) = _masks(first), _masks(second)
            has_all = {*masks} <= {(known.get(c, c), side) for c, side in others}
            return _Common(value, same, unmasked == same and has_all and not any(_needs(c, value) for c, _ in others))
    return None


def _is_same_tile(a: ir.Value, b: ir.Value) -> bool:
    """Whether two tiles are one, or are loaded from one place; a kernel writes nothing that it reads."""
    loads = [op for op in map(defining_op, (a, b)) if op is not None and op.name == "tile.load"]
    return a == b or (len(loads) == 2 and is_same(loads[0], loads[1], {}))


def _masks(op: ir.Operation) -> tuple[list[tuple[ir.Value, int]], ir.Value]:
    """The conditions that leave a constant in the place of a result, each with the side of the select that it is on,
    and what the result is without them."""
    found = []
    value = _yielded(op)
    while (select := defining_op(value)) is not None and select.name == "arith.select":
        side = next((i for i in (1, 2) if is_constant(select.operands[i])), None)
        if side is None:
            break
        found.append((select.operands[0], side))
        value = select.operands[3 - side]
    return found, value


def _needs(value: ir.Value, other: ir.Value) -> bool:
    """Whether one value of a body is computed from another."""
    op = defining_op(value)
    return value == other or (op is not None and any(_needs(v, other) for v in op.operands))


def _computing(op: ir.Operation, value: ir.Value) -> ir.Value:
    """A tile of what `value` of the op's body is, for each element."""
    with ir.InsertionPoint(op), op.location:
        sizes = [size for size in build.mixed_sizes(op.operands[len(op.operands) - 1]) if isinstance(size, ir.Value)]
        kind = op.results[0].type
        kind = ir.RankedTensorType.get(kind.shape, value.type, kind.encoding)
        return _made(op, value, ir.Operation.create("tensor.empty", [kind], sizes).result, {})


def _reading(op: ir.Operation, tiles: Values) -> ir.Operation:
    """The op, with values of its body read from tiles."""
    with ir.InsertionPoint(op), op.location:
        made = _made(op, _yielded(op), op.operands[len(op.operands) - 1], tiles)
    op.results[0].replace_all_uses_with(made)
    loads = [load for load in map(defining_op, op.operands) if load is not None and load.name == "tile.load"]
    op.erase()
    for load in loads:
        erase_if_unused(load)
    return made.owner.operation


def _made(op: ir.Operation, value: ir.Value, out: ir.Value, tiles: Values) -> ir.Value:
    """What an op gives that yields `value` of the body of `op`, and reads no more than it needs."""
    needed: set[ir.Value] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        maker = defining_op(one)
        if one not in needed and one not in tiles and maker is not None and is_inside(maker, op):
            pending += maker.operands
        needed.add(one)
    inputs = [one for one in _inputs(op) if one[0] in needed]
    identity = indexing_maps(op)[-1]
    of_tiles = [(value, tile, identity) for value, tile in tiles.items()]

    def body(*arguments: ir.Value) -> ir.Value:
        values = dict(zip((value for value, _, _ in (*inputs, *of_tiles)), arguments, strict=False))
        return copy_needed(value, values, lambda inner: is_inside(inner, op))

    ins = [operand for _, operand, _ in (*inputs, *of_tiles)]
    maps = [*(at for _, _, at in (*inputs, *of_tiles)), identity]
    (result,) = build.generic(ins, [out], maps, iterator_types(op), body)
    return result
