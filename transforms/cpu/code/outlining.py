"""Moving ops into a private function of their own: what `outline-parallel` and `outline-loops` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ....dialects.mlir import arith, func, ir
from ...rewriting import for_body, is_constant, ops_of


class Names:
    """Names for functions of a module, none of which is taken: of one that is named after `f` f_parallel_0, …"""

    def __init__(self, module: ir.Operation) -> None:
        self._taken = {o.attributes["sym_name"].value for o in ops_of(for_body(module)) if o.name == "func.func"}
        self._count = 0

    def next(self, function: ir.Operation, kind: str) -> str:
        while (name := f"{function.attributes['sym_name'].value}_{kind}_{self._count}") in self._taken:
            self._count += 1
        self._taken.add(name)
        return name


def outline(
    ops: Sequence[ir.Operation],
    function: ir.Operation,
    name: str,
    first: Sequence[ir.Value] = (),
    attributes: Mapping[str, ir.Attribute] = MappingProxyType({}),
) -> list[ir.Value]:
    """Moves `ops`, whose results nothing else uses, into a new private function before `function`, with `attributes`;
    returns what a call of it passes: `first`, and what else they use from outside. Constants are cloned instead.

    Masks are passed as bytes: LLVM 24 loses lanes of a vector of i1 that comes on the stack (AVX-512) and is stored
    again, as where a function hands it to a region of OpenMP.
    """
    uses = _uses_from_outside(ops)
    used = dict.fromkeys(operand for _, _, operand in uses if operand not in first)
    constants = [value for value in used if is_constant(value)]
    arguments = [*first, *(value for value in used if not is_constant(value))]
    with ir.InsertionPoint(ops[0]), ops[0].location:
        passed = [arith.extui(_as_bytes(v.type), v) if _is_mask(v.type) else v for v in arguments]
    with ir.InsertionPoint(function), ops[0].location:
        outlined = func.FuncOp(name, ([v.type for v in passed], []), visibility="private")
        outlined.operation.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
        outlined.operation.attributes["llvm.no_inline"] = ir.UnitAttr.get()
        for attribute, value in attributes.items():
            outlined.operation.attributes[attribute] = value
        entry = outlined.add_entry_block()
        with ir.InsertionPoint(entry):
            finish = func.ReturnOp([])
    for op in ops:
        op.move_before(finish.operation)
    replacements = {}
    with ir.InsertionPoint.at_block_begin(entry), ops[0].location:
        for value in constants:
            replacements[value] = value.owner.operation.clone().results[0]
        for value, argument in zip(arguments, entry.arguments, strict=True):
            replacements[value] = arith.trunci(value.type, argument) if _is_mask(value.type) else argument
    for op, number, operand in uses:
        op.operands[number] = replacements[operand]
    return passed


def is_outlined(function: ir.Operation) -> bool:
    """Whether `outline` made a function: only calls in functions after it use it."""
    return "llvm.no_inline" in function.attributes and len(function.regions[0].blocks) > 0


def _is_mask(kind: ir.Type) -> bool:
    return isinstance(kind, ir.VectorType) and kind.element_type == ir.IntegerType.get_signless(1)


def _as_bytes(mask: ir.VectorType) -> ir.VectorType:
    return ir.VectorType.get(mask.shape, ir.IntegerType.get_signless(8))


def _uses_from_outside(ops: Sequence[ir.Operation]) -> list[tuple[ir.Operation, int, ir.Value]]:
    """The operands of these ops, and of all inside them, that none of them makes: op, number, value."""
    every: list[ir.Operation] = []
    own: set[ir.Value] = set()

    def visit(inner: ir.Operation) -> ir.WalkResult:
        op = inner.operation
        every.append(op)
        own.update(op.results)
        if len(op.regions):  # most have none
            own.update(argument for region in op.regions for block in region.blocks for argument in block.arguments)
        return advance

    advance = ir.WalkResult.ADVANCE
    for op in ops:
        op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return [(op, number, v) for op in every for number, v in enumerate(op.operands) if v not in own]
