"""Comparisons of positions, as masks make them, in lanes of 32 bits.

What a mask says of a score, such as i − j > 255, is computed in index values, of 64 bits, of which a vector has half as
many as of scores: two subtractions and two comparisons for each, and an instruction that joins their results. The
difference is split into what moves within the op, which is small, and what does not, such as where the tile starts,
which is brought near enough to 0 once, before the loops::

    arith.cmpi sgt, %i - %j, 255              # i = linalg.index 1 + %q, j = linalg.index 0 + %k
    becomes
    %far = max(min(%q - %k, 2³⁰), -2³⁰) : i32
    arith.cmpi sgt, (%far + lanes) - %j0, 255 : vector<16xi32>

Several comparisons of one difference are then one subtraction, and LLVM makes one unsigned comparison of two.
"""

from ....dialects import build
from ....dialects.mlir import arith, ir, vector
from ...linear import linear
from ...rewriting import defining_op
from ..structured import NO_LOOP, Structured
from .register_tile import Offsets, RegisterTile

SMALL = 1 << 29  # what is compared with, and how far positions go within the op
FAR = 1 << 30  # with SMALL added, still of 32 bits; with SMALL taken away, beyond all that is compared with

_P = arith.CmpIPredicate
MIRRORED = {
    int(a): int(b)
    for a, b in ((_P.slt, _P.sgt), (_P.sle, _P.sge), (_P.sgt, _P.slt), (_P.sge, _P.sle), (_P.eq, _P.eq), (_P.ne, _P.ne))
}


def compared(op: Structured, inner: ir.Operation, tile: RegisterTile, point: Offsets) -> ir.Value | None:
    """The result of a comparison in the body, for the lanes at a point of the register tile; None for other ones."""
    predicate = inner.attributes["predicate"].value if inner.name == "arith.cmpi" else None
    if tile.v == NO_LOOP or predicate not in MIRRORED or not isinstance(inner.operands[0].type, ir.IndexType):
        return None
    form = linear(inner.operands[0]) - linear(inner.operands[1])
    loops: dict[int, int] = {}
    fixed: list[tuple[ir.Value, int]] = []
    for atom, factor in form.terms:
        made = defining_op(atom)
        if made is not None and made.name == "linalg.index":
            d = made.attributes["dim"].value
            loops[d] = loops.get(d, 0) + factor
        elif (atom.owner if made is None else made.block) == op.body or not isinstance(atom.type, ir.IndexType):
            return None
        else:
            fixed.append((atom, factor))
    if not loops.get(tile.v):
        return None
    sign = 1 if loops[tile.v] > 0 else -1
    sizes = {d: op.most(d) for d in loops}
    if None in sizes.values() or abs(form.const) + sum(abs(f) * (sizes[d] or 0) for d, f in loops.items()) >= SMALL:
        return None
    i32 = ir.IntegerType.get_signless(32)
    kind = ir.VectorType.get([tile.lanes], i32)
    start = _near(fixed, sign, i32)
    for d, factor in loops.items():
        if d == tile.v:
            base = _scaled(arith.index_cast(i32, tile.indices[d, point[d]]), sign * factor)
            start = base if start is None else arith.addi(start, base)
    lanes = ir.DenseElementsAttr.get([ir.IntegerAttr.get(i32, n * abs(loops[tile.v])) for n in range(tile.lanes)], kind)
    x = arith.addi(vector.BroadcastOp(kind, start).result, arith.ConstantOp(kind, lanes).result)
    for d, factor in loops.items():
        if d != tile.v and factor:
            moved = _scaled(arith.index_cast(i32, tile.indices[d, point[d]]), abs(factor))
            add = arith.addi if sign * factor > 0 else arith.subi
            x = add(x, vector.BroadcastOp(kind, moved).result)
    limit = build.constant(kind, -sign * form.const)
    return arith.cmpi(_P(predicate if sign > 0 else MIRRORED[predicate]), x, limit)


def _near(fixed: list[tuple[ir.Value, int]], sign: int, i32: ir.Type) -> ir.Value | None:
    """The sum of what does not move, or what is as good as it where it is far away; None without any."""
    total = None
    for value, factor in fixed:
        term = _scaled(value, sign * factor)
        total = term if total is None else arith.addi(total, term)
    if total is None:
        return None
    near = arith.maxsi(arith.minsi(total, build.index(FAR)), build.index(-FAR))
    return arith.index_cast(i32, near)


def _scaled(value: ir.Value, factor: int) -> ir.Value:
    return value if factor == 1 else arith.muli(value, build.constant(value.type, factor))
