"""Loops and branches of StableHLO as those of scf, which all that follows knows; their regions keep their ops.

    %0:2 = stablehlo.while(%a = %x, %b = %y) cond { … stablehlo.return %c : tensor<i1> } do { … stablehlo.return … }
  becomes
    %0:2 = scf.while (%a = %x, %b = %y) { … %t = tensor.extract %c[]   scf.condition(%t) %a, %b } do { … scf.yield … }

``stablehlo.if`` becomes ``scf.if``; ``stablehlo.case``, whose last branch is taken for any index that has no branch,
``scf.index_switch``.
"""

from collections.abc import Callable, Sequence

from ...dialects.mlir import arith, ir, scf, tensor
from .lowering import ops


def to_scf(module: ir.Module) -> None:
    """Rewrites all loops and branches in `module`."""
    for op in reversed(ops(module)):  # inner ones first: outer ones then move them
        convert = _CONVERSIONS.get(op.name)
        if convert is not None:
            with ir.InsertionPoint(op), op.location:
                new = convert(op)
            for old, value in zip(op.results, new.results, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


def _while(op: ir.Operation) -> ir.Operation:
    types = [r.type for r in op.results]
    loop = ir.Operation.create("scf.while", types, list(op.operands), regions=2)
    condition = _moved(op.regions[0], loop.regions[0], types)
    arguments = list(condition.arguments)
    _end(condition, lambda values: scf.ConditionOp(_scalar(values[0]), arguments))
    _end(_moved(op.regions[1], loop.regions[1], types), scf.YieldOp)
    return loop


def _if(op: ir.Operation) -> ir.Operation:
    new = ir.Operation.create("scf.if", [r.type for r in op.results], [_scalar(op.operands[0])], regions=2)
    for old, region in zip(op.regions, new.regions, strict=True):
        _end(_moved(old, region, []), scf.YieldOp)
    return new


def _case(op: ir.Operation) -> ir.Operation:
    index = arith.index_cast(ir.IndexType.get(), _scalar(op.operands[0]))
    count = len(op.regions)
    new = ir.Operation.create(
        "scf.index_switch",
        [r.type for r in op.results],
        [index],
        {"cases": ir.DenseI64ArrayAttr.get(list(range(count - 1)))},
        regions=count,
    )
    # The default region is scf's first one.
    for old, region in zip([op.regions[count - 1], *list(op.regions)[: count - 1]], new.regions, strict=True):
        _end(_moved(old, region, []), scf.YieldOp)
    return new


_CONVERSIONS: dict[str, Callable[[ir.Operation], ir.Operation]] = {
    "stablehlo.while": _while,
    "stablehlo.if": _if,
    "stablehlo.case": _case,
}


def _scalar(value: ir.Value) -> ir.Value:
    return tensor.extract(value, [])


def _moved(source: ir.Region, target: ir.Region, types: Sequence[ir.Type]) -> ir.Block:
    """A block in `target` with what stood in the block of `source`."""
    old = source.blocks[0]
    new = target.blocks.append(*types)
    for argument, fresh in zip(old.arguments, new.arguments, strict=True):
        argument.replace_all_uses_with(fresh)
    for inner in list(old.operations):
        new.append(inner)
    return new


def _end(block: ir.Block, make: Callable[[list[ir.Value]], object]) -> None:
    """Replaces the block's ``stablehlo.return``."""
    end = block.operations[len(block.operations) - 1].operation
    with ir.InsertionPoint(end), end.location:
        make(list(end.operands))
    end.erase()
