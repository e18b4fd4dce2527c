"""The pass ``outline-parallel``."""

from dataclasses import dataclass

from ...dialects.mlir import func, ir
from ..online.mark_few_rows import FEW_ROWS
from ..passes import Pass
from ..rewriting import ancestors, defining_op, ops_in, ops_of


@dataclass(frozen=True)
class OutlineParallel(Pass):
    """Moves the body of every scf.parallel into a private function, with what it uses as arguments::

        scf.parallel (%i) = (%c0) to (%n) step (%c64) { … %a … }
    becomes
        scf.parallel (%i) = (%c0) to (%n) step (%c64) { func.call @main_parallel_0(%i, %a) : … }
        func.func private @main_parallel_0(%i: index, %a: memref<…>)
            attributes {llvm.linkage = #llvm.linkage<internal>, llvm.no_inline} { … }

    A function gives stack scratch a frame of its own per iteration, and keeps memref.alloca_scope, which
    convert-scf-to-openmp wraps around bodies, apart from control flow. Constants are cloned instead of passed.

    No one else calls it: of a function that others could call, LLVM would compile a wrapper for them, and what is
    inlined, there and here, once more. What `mark-few-rows` says of the loop, its function says.
    """

    def run(self, op: ir.Operation) -> None:
        taken = {o.attributes["sym_name"].value for o in ops_in(op, "func.func")}
        count = 0
        for loop in ops_in(op, "scf.parallel"):
            around = list(ancestors(loop))
            function = next((a for a in around if a.name == "func.func"), None)
            if function is None or any(a.name == "scf.parallel" for a in around) or _is_outlined(loop):
                continue
            while (name := f"{function.attributes['sym_name'].value}_parallel_{count}") in taken:
                count += 1
            taken.add(name)
            _outline(loop, function, name)


def _is_outlined(loop: ir.Operation) -> bool:
    return [o.name for o in ops_of(loop.regions[0].blocks[0])[:-1]] == ["func.call"]


def _outline(loop: ir.Operation, function: ir.Operation, name: str) -> None:
    body = loop.regions[0].blocks[0]
    *moved, end = ops_of(body)
    uses = _uses_from_outside(moved)
    ivs = list(body.arguments)
    captured: list[ir.Value] = []
    constants: list[ir.Value] = []
    for operand in dict.fromkeys(operand for _, _, operand in uses if operand not in ivs):
        made = defining_op(operand)
        (constants if made is not None and made.name == "arith.constant" else captured).append(operand)

    arguments = [*ivs, *captured]
    with ir.InsertionPoint(function), loop.location:
        outlined = func.FuncOp(name, ([v.type for v in arguments], []), visibility="private")
        outlined.operation.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
        outlined.operation.attributes["llvm.no_inline"] = ir.UnitAttr.get()
        if FEW_ROWS in loop.attributes:
            outlined.operation.attributes[FEW_ROWS] = loop.attributes[FEW_ROWS]
        entry = outlined.add_entry_block()
        with ir.InsertionPoint(entry):
            finish = func.ReturnOp([])
    for top in moved:
        top.move_before(finish.operation)
    clones = {}
    with ir.InsertionPoint.at_block_begin(entry):
        for value in constants:
            clones[value] = value.owner.operation.clone().results[0]
    replacements = dict(zip(arguments, entry.arguments, strict=True)) | clones
    for op, number, operand in uses:
        op.operands[number] = replacements[operand]
    with ir.InsertionPoint(end), loop.location:
        func.CallOp([], ir.FlatSymbolRefAttr.get(name), arguments)


def _uses_from_outside(ops: list[ir.Operation]) -> list[tuple[ir.Operation, int, ir.Value]]:
    """The operands of these ops, and of all inside them, that none of them makes: op, number, value."""
    own: set[ir.Value] = set()
    found = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        op = inner.operation
        for number, operand in enumerate(op.operands):
            if operand not in own:
                found.append((op, number, operand))
        own.update(op.results)
        for region in op.regions:
            for block in region.blocks:
                own.update(block.arguments)
        return advance

    advance = ir.WalkResult.ADVANCE
    for op in ops:
        op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return [use for use in found if use[2] not in own]  # blocks need not stand in the order that they run in
