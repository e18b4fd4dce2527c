"""The pass ``rotate-loops``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, scf
from ...online.mark_few_rows import FEW_ROWS
from ...passes import Pass
from ...rewriting import functions_of, ops_in, terminator


@dataclass(frozen=True)
class RotateLoops(Pass):
    """Lets loops ask at the end of an iteration whether there is one more, not at the start, in functions `few_rows`::

        %r = scf.for %i = %a to %n step %c4 iter_args(%x = %init) -> (vector<16xf32>) {
          …
          scf.yield %y : vector<16xf32>
        }
    becomes
        %some = arith.cmpi slt, %a, %n
        %r = scf.if %some -> (vector<16xf32>) {
          %w:2 = scf.while (%i = %a, %x = %init) : (index, vector<16xf32>) -> (index, vector<16xf32>) {
            …
            %next = arith.addi %i, %c4
            %more = arith.cmpi slt, %next, %n
            scf.condition(%more) %next, %y : index, vector<16xf32>
          } do {
          ^bb0(%i: index, %x: vector<16xf32>):
            scf.yield %i, %x : index, vector<16xf32>
          }
          scf.yield %w#1
        } else {
          scf.yield %init
        }

    Where there surely is an iteration, nothing is asked before. LLVM's passes do this, too, but they are left out for
    such functions (`runtime/object_files.py`). Its code generation keeps constants of a loop in registers only if an
    iteration surely runs once the loop is entered: softmax under a softcap takes 1.15 times as long without.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            if FEW_ROWS in function.attributes:
                for loop in ops_in(function, "scf.for"):
                    _rotate(loop)


def _rotate(loop: ir.Operation) -> None:
    lower, upper, _, *inits = loop.operands
    start, end = build.constant_value(lower), build.constant_value(upper)
    with ir.InsertionPoint(loop), loop.location:
        if start is not None and end is not None and start < end:
            values = _do_while(loop)
        else:
            some = arith.cmpi(arith.CmpIPredicate.slt, lower, upper)
            choice = scf.IfOp(some, [v.type for v in loop.results], has_else=bool(inits))
            values = list(choice.results)
            if inits:
                with ir.InsertionPoint(choice.else_block):
                    scf.yield_(inits)
            with ir.InsertionPoint(choice.then_block):
                scf.yield_(_do_while(loop))
    for old, new in zip(loop.results, values, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()


def _do_while(loop: ir.Operation) -> list[ir.Value]:
    """What the loop carries in the end, of one that has its body, and runs once at least."""
    lower, upper, step, *inits = loop.operands
    body = loop.regions[0].blocks[0]
    kinds = [argument.type for argument in body.arguments]
    new = scf.WhileOp(kinds, [lower, *inits])
    for name in loop.attributes:
        if name != "operandSegmentSizes":
            new.operation.attributes[name] = loop.attributes[name]
    with ir.InsertionPoint(new.after.blocks.append(*kinds)) as place:
        scf.yield_(list(place.block.arguments))
    body.append_to(new.before)
    end = terminator(body)
    with ir.InsertionPoint(end):
        following = arith.addi(body.arguments[0], step)
        more = arith.cmpi(arith.CmpIPredicate.slt, following, upper)
        scf.ConditionOp(more, [following, *end.operands])
    end.erase()
    return list(new.results)[1:]
