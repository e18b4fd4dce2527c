"""The numbers of iterations in the body of a linalg.generic."""

from collections.abc import Callable, Iterable

from ....dialects.mlir import ir


def renumber(ops: Iterable[ir.Operation], number: Callable[[int, ir.Value], ir.Value | None]) -> None:
    """Puts `number(loop, value)` in the place of the value of each linalg.index among `ops`, of that loop, right behind
    it; nothing where that is None."""
    for op in [op for op in ops if op.name == "linalg.index"]:
        uses = [(use.owner.operation, use.operand_number) for use in op.results[0].uses]
        with ir.InsertionPoint.after(op), op.location:
            found = number(ir.IntegerAttr(op.attributes["dim"]).value, op.results[0])
        for user, operand in uses if found is not None else []:
            user.operands[operand] = found
