"""The pass ``outline-loops``."""

from dataclasses import dataclass

from ...dialects.mlir import func, ir
from ..passes import Pass
from ..rewriting import defining_op, ops_in, ops_of
from .outlining import Names, captures, is_outlined, outline, uses_from_outside

LOOPS = ("scf.for", "scf.parallel")
MAKE_VECTORS = ("vector.broadcast", "vector.constant_mask", "vector.create_mask", "vector.shape_cast", "vector.step")
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

    Vectors are not passed: of many, which come on the stack, some did not arrive. They are made anew in the function; a
    loop whose vectors come from memory stays, too.
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
                vectors = _vectors_anew(loop)
                if vectors is None:
                    continue
                name, location = names.next(function, "loop"), loop.location
                passed = outline([*vectors, loop], function, name)
                with ir.InsertionPoint(ops[i + 1]), location:
                    func.CallOp([], ir.FlatSymbolRefAttr.get(name), passed)


def _vectors_anew(loop: ir.Operation) -> list[ir.Operation] | None:
    """The ops that make the vectors that a loop uses from outside, copied for it in front of it; None if some vector is
    not made of numbers alone."""
    copies: list[ir.Operation] = []
    known: dict[ir.Value, ir.Value] = {}

    def can_copy(value: ir.Value) -> bool:
        op = defining_op(value)
        if (
            not isinstance(value.type, ir.VectorType)
            or value in known
            or (op is not None and op.name == "arith.constant")
        ):
            return True
        if op is None or not (op.name.startswith(("arith.", "math.")) or op.name in MAKE_VECTORS):
            return False
        if not all(can_copy(operand) for operand in op.operands):
            return False
        copy = op.clone().operation
        for i, operand in enumerate(op.operands):
            copy.operands[i] = known.get(operand, operand)
        known.update(zip(op.results, copy.results, strict=True))
        copies.append(copy)
        return True

    with ir.InsertionPoint(loop):
        all_copied = all(can_copy(value) for value in captures([loop]))
    if not all_copied:
        for copy in reversed(copies):
            copy.erase()
        return None
    for op, number, operand in uses_from_outside([loop]):
        op.operands[number] = known.get(operand, operand)
    return copies
