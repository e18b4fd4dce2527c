"""Divisions of integers by a number, rounded down, as such; the importer computes them in f64.

    %f = arith.sitofp %x : i64 to f64
    %q = arith.divf %f, %c : f64                   // %c = 64.0
    %r = math.floor %q : f64
    %i = arith.fptosi %r : f64 to i64
  becomes
    %i = arith.floordivsi %x, %d : i64             // %d = 64

Masks of such quotients, as of chunks, are understood then, and those of large integers are exact.
"""

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....transforms.splats import repeated_number
from ..lowering import ops


def of_integers(module: ir.Module) -> None:
    """See the module."""
    for op in ops(module.operation):
        if op.name == "arith.fptosi":
            _divide(op)


def _divide(op: ir.Operation) -> None:
    floor = _maker(op.operands[0], "math.floor")
    division = _maker(floor.operands[0], "arith.divf") if floor is not None else None
    if division is None:
        return
    number, by_number = (_maker(v, "arith.sitofp") for v in division.operands)
    if number is None or number.operands[0].type != op.results[0].type:
        return
    divisor = _constant(division.operands[1] if by_number is None else by_number.operands[0])
    if not divisor or divisor != int(divisor):
        return
    with ir.InsertionPoint(op), op.location:
        by = build.constant(op.results[0].type, int(divisor))
        op.results[0].replace_all_uses_with(arith.floordivsi(number.operands[0], by))


def _constant(value: ir.Value) -> float | None:
    """The number that a scalar is, or an element of a structured op's operand."""
    if not isinstance(value.owner, ir.Block):
        return build.constant_value(value)
    op = value.owner.owner
    if op.name != "linalg.generic":
        return None
    number = repeated_number(op.operands[ir.BlockArgument(value).arg_number])
    return number.value if number is not None else None


def _maker(value: ir.Value, name: str) -> ir.Operation | None:
    owner = value.owner
    return owner if not isinstance(owner, ir.Block) and owner.name == name else None
