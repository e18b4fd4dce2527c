"""NaN through maxima, minima and clamps of elements, and their places, which the importers' comparisons lose.

    %g = arith.cmpf ogt, %x, %y; %m = arith.select %g, %x, %y       // aten.maximum: y where x is NaN
  becomes
    %m = arith.maximumf %x, %y

    %l = arith.cmpf ult, %x, %c; %m = arith.select %l, %c, %x       // aten.clamp: c where x is NaN
  becomes
    %l = arith.cmpf olt, %x, %c; %m = arith.select %l, %c, %x       // if %c is a constant, else a maximum

    %m = arith.maximumf %x, %most                                   // aten.argmax: never the place of a NaN
    %g = arith.cmpf ogt, %x, %most; %p = arith.select %g, %i, %place
  becomes
    %g = arith.cmpf ugt, %x, %most; %n = arith.cmpf ord, %most, %most   // that of the first one
    %f = arith.andi %g, %n; %p = arith.select %f, %i, %place

    %e = arith.cmpf oeq, %x, %most; %p = arith.select %e, %i, %place    // aten.max_pool2d_with_indices: −1
    %u = arith.cmpi eq, %place, %none; %r = arith.select %u, %p, %place
  becomes
    %n = arith.cmpf uno, %x, %x; %p = arith.select (%e or %n), %i, %place   // that of the last one, as torch has it
    %r = arith.select (%u or %n), %p, %place

What a program compares and chooses itself stands in two ops of linalg, and stays as it is.
"""

from ...dialects.mlir import arith, ir
from .lowering import ops

P = arith.CmpFPredicate
ORDERED = {P.ULT: P.OLT, P.UGT: P.OGT}
UNORDERED = {o: u for u, o in ORDERED.items()}
EXTREMA = {P.OGT: "arith.maximumf", P.OLT: "arith.minimumf"}  # where x is chosen
BOUNDED = {P.ULT: "arith.maximumf", P.UGT: "arith.minimumf"}  # where y is


def keep(module: ir.Module) -> None:
    """See the module."""
    for op in ops(module.operation):
        if op.name == "arith.select":
            _keep(op)


def _keep(select: ir.Operation) -> None:
    condition, chosen, other = select.operands
    if isinstance(condition.owner, ir.Block) or condition.owner.name != "arith.cmpf":
        return
    compare = condition.owner
    predicate = P(ir.IntegerAttr(compare.attributes["predicate"]).value)
    x, y = compare.operands
    extremum = None
    if (chosen, other) == (x, y):
        extremum = EXTREMA.get(predicate)
    elif predicate in ORDERED and (chosen, other) == (y, x):
        extremum = BOUNDED[predicate]
        if not isinstance(y.owner, ir.Block) and y.owner.name == "arith.constant":
            kind = compare.attributes["predicate"].type
            compare.attributes["predicate"] = ir.IntegerAttr.get(kind, ORDERED[predicate])
            return
    elif predicate in EXTREMA and _has(EXTREMA[predicate], x, y):
        with ir.InsertionPoint(select), select.location:
            is_better = arith.cmpf(UNORDERED[predicate], x, y)
            select.operands[0] = arith.andi(is_better, arith.cmpf(P.ORD, y, y))
    elif predicate == P.OEQ and isinstance(other.owner, ir.Block):
        _keep_last(select, x)
    if extremum and len(list(condition.uses)) == 1:
        with ir.InsertionPoint(select), select.location:
            new = ir.Operation.create(extremum, [select.result.type], [x, y])
        select.result.replace_all_uses_with(new.result)
        select.erase()


def _has(extremum: str, x: ir.Value, y: ir.Value) -> bool:
    """Whether the running `extremum` y of elements x is computed beside."""
    users = (use.owner.operation for use in y.uses)
    return isinstance(y.owner, ir.Block) and any(u.name == extremum and set(u.operands) == {x, y} for u in users)


def _keep_last(select: ir.Operation, x: ir.Value) -> None:
    """Of the place where x is an extremum that is known already; a further choice keeps the first such place."""
    place = select.operands[2]
    for use in list(select.result.uses):
        first = use.owner.operation
        if first.name != "arith.select" or (first.operands[1], first.operands[2]) != (select.result, place):
            continue
        with ir.InsertionPoint(select), select.location:
            is_nan = arith.cmpf(P.UNO, x, x)
            select.operands[0] = arith.ori(select.operands[0], is_nan)
        with ir.InsertionPoint(first), first.location:
            first.operands[0] = arith.ori(first.operands[0], is_nan)
