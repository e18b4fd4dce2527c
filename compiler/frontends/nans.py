"""NaN through maxima, minima and clamps of elements, which the importer's comparisons lose.

    %g = arith.cmpf ogt, %x, %y; %m = arith.select %g, %x, %y       // aten.maximum: y where x is NaN
  becomes
    %m = arith.maximumf %x, %y

    %l = arith.cmpf ult, %x, %c; %m = arith.select %l, %c, %x       // aten.clamp: c where x is NaN
  becomes
    %l = arith.cmpf olt, %x, %c; %m = arith.select %l, %c, %x       // if %c is a constant, else a maximum

What a program compares and chooses itself stands in two ops of linalg, and stays as it is.
"""

from ...dialects.mlir import arith, ir
from .lowering import ops

P = arith.CmpFPredicate
ORDERED = {P.ULT: P.OLT, P.UGT: P.OGT}
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
    if extremum and len(list(condition.uses)) == 1:
        with ir.InsertionPoint(select), select.location:
            new = ir.Operation.create(extremum, [select.result.type], [x, y])
        select.result.replace_all_uses_with(new.result)
        select.erase()
