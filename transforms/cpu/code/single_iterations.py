"""The pass ``single-iterations``."""

from dataclasses import dataclass
from functools import reduce

from ....dialects import build
from ....dialects.mlir import arith, func, ir, scf
from ...passes import Pass
from ...rewriting import ancestors, ops_in, ops_of


@dataclass(frozen=True)
class SingleIterations(Pass):
    """Runs an outlined scf.parallel of one iteration where it is, without waking threads::

        scf.parallel (%i) = (%a) to (%b) step (%s) { func.call @body(%i) }
    becomes
        %next = arith.addi %a, %s
        %many = arith.cmpi slt, %next, %b
        scf.if %many {
          scf.parallel (%i) = (%a) to (%b) step (%s) { func.call @body(%i) }
        } else {
          %one = arith.cmpi slt, %a, %b
          scf.if %one { func.call @body(%a) }
        }

    Threads take microseconds to wake, and much longer where processors are busy: more than a small problem takes.
    Bodies must be calls (outline-parallel), so that nothing but a call is there twice. A loop that surely has several
    iterations, as over a known number of heads, stays as it is.
    """

    def run(self, op: ir.Operation) -> None:
        for loop in ops_in(op, "scf.parallel"):
            body = ops_of(loop.regions[0].blocks[0])
            nested = any(a.name == "scf.parallel" for a in ancestors(loop))
            is_call = [o.name for o in body] == ["func.call", "scf.reduce"]
            if is_call and not nested and not loop.results and not _has_several(loop):
                _split(loop, body[0])


def _bounds(loop: ir.Operation) -> list[tuple[ir.Value, ir.Value, ir.Value]]:
    """Where each dimension starts and ends, and its step."""
    operands, n = list(loop.operands), len(loop.regions[0].blocks[0].arguments)
    return list(zip(*(operands[i * n : (i + 1) * n] for i in range(3)), strict=True))


def _has_several(loop: ir.Operation) -> bool:
    """Whether one dimension is known to have more than one iteration; that others have one at least is not asked."""
    known = [[build.constant_value(value) for value in bounds] for bounds in _bounds(loop)]
    return any(None not in (a, b, s) and a + s < b for a, b, s in known)  # type: ignore[operator]


def _split(loop: ir.Operation, call: ir.Operation) -> None:
    ivs = list(loop.regions[0].blocks[0].arguments)
    lower, upper, step = zip(*_bounds(loop), strict=True)
    less = arith.CmpIPredicate.slt
    with ir.InsertionPoint(loop), loop.location:
        more = [arith.cmpi(less, arith.addi(a, s), b) for a, b, s in zip(lower, upper, step, strict=True)]
        branch = scf.IfOp(reduce(arith.ori, more), has_else=True)
    with ir.InsertionPoint(branch.then_block), loop.location:
        end = scf.YieldOp([])
    loop.move_before(end.operation)
    with ir.InsertionPoint(branch.else_block), loop.location:
        some = [arith.cmpi(less, a, b) for a, b in zip(lower, upper, strict=True)]
        inner = scf.IfOp(reduce(arith.andi, some))
        scf.YieldOp([])
    arguments = [lower[ivs.index(v)] if v in ivs else v for v in call.operands]
    with ir.InsertionPoint(inner.then_block), loop.location:
        func.CallOp([], call.attributes["callee"], arguments)
        scf.YieldOp([])
