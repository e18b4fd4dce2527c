"""The pass ``outline-loops``."""

from dataclasses import dataclass

from ....dialects.mlir import func, ir
from ...passes import Pass
from ...rewriting import ops_in, ops_of
from .outlining import Names, is_outlined, outline

LOOPS = ("scf.for", "scf.parallel")
MANY = 16  # loops of a function, from which on its parallel ones are moved, too


@dataclass(frozen=True)
class OutlineLoops(Pass):
    """Moves loops that stand between calls of tasks into private functions, with what they use as arguments::

        scf.parallel (%i) = … { func.call @main_parallel_0(%i, %a) : … }
        scf.for %j = %c0 to %c512 step %c16 { … %b … }
      becomes
        scf.parallel (%i) = … { func.call @main_parallel_0(%i, %a) : … }
        func.call @main_loop_1(%b) : …

    What is around tasks then only passes arguments on, which takes LLVM no passes (`runtime/object_files.py`). Loops
    that the layers of a model repeat become one function (`share-functions`). Where there are many loops, as in a
    model, so do those that call tasks: each of them becomes a region of OpenMP, for which LLVM looks at all of the
    function around it. A loop that stands alone stays as it is, and so does one with results.
    """

    def run(self, op: ir.Operation) -> None:
        names = Names(op)
        for function in ops_in(op, "func.func"):
            if not len(function.regions[0].blocks) or is_outlined(function):
                continue
            ops = ops_of(function.regions[0].blocks[0])
            loops = [i for i, o in enumerate(ops) if o.name in LOOPS]
            for i in loops if len(loops) > 1 else ():
                loop = ops[i]
                is_parallel = loop.name == "scf.parallel" or bool(ops_in(loop, "scf.parallel"))
                if len(loop.results) or (is_parallel and len(loops) < MANY):
                    continue
                name, location = names.next(function, "loop"), loop.location
                passed = outline([loop], function, name)
                with ir.InsertionPoint(ops[i + 1]), location:
                    func.CallOp([], ir.FlatSymbolRefAttr.get(name), passed)
