"""The pass ``outline-parallel``."""

from dataclasses import dataclass

from ....dialects.mlir import func, ir
from ...online.mark_few_rows import FEW_ROWS
from ...passes import Pass
from ...rewriting import ancestors, ops_in, ops_of
from .outlining import Names, outline


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
        names = Names(op)
        for loop in ops_in(op, "scf.parallel"):
            around = list(ancestors(loop))
            function = next((a for a in around if a.name == "func.func"), None)
            if function is None or any(a.name == "scf.parallel" for a in around) or _is_outlined(loop):
                continue
            body = loop.regions[0].blocks[0]
            *moved, end = ops_of(body)
            name = names.next(function, "parallel")
            kept = {n: loop.attributes[n] for n in (FEW_ROWS,) if n in loop.attributes}
            passed = outline(moved, function, name, list(body.arguments), kept)
            with ir.InsertionPoint(end), loop.location:
                func.CallOp([], ir.FlatSymbolRefAttr.get(name), passed)


def _is_outlined(loop: ir.Operation) -> bool:
    return [o.name for o in ops_of(loop.regions[0].blocks[0])[:-1]] == ["func.call"]
