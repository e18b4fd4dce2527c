"""The pass ``check-calls``."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..dialects.mlir import ir
from .passes import Pass, PassError
from .rewriting import functions_of, ops_in


@dataclass(frozen=True)
class CheckCalls(Pass):
    """Fails where a function calls itself, by way of others or not, without a condition before that. Changes nothing::

        func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> { %y = call @f(%x) … }   // error: 'f' calls itself whatever …

    It would never return; of two that call each other upstream makes invalid IR.
    """

    def run(self, op: ir.Operation) -> None:
        refuse_endless({f.attributes["sym_name"].value: f for f in functions_of(op)})


def refuse_endless(functions: Mapping[str, ir.Operation]) -> None:
    """An error for a function that calls itself, directly or by way of others, whatever it is called with."""
    certain = {
        name: [op for op in ops_in(f, "func.call") if op.block == f.regions[0].blocks[0] and callee_of(op) in functions]
        for name, f in functions.items()
        if len(f.regions[0].blocks)
    }
    returning: set[str] = set()

    def visit(name: str, callers: tuple[str, ...]) -> None:
        for call in certain.get(name, ()) if name not in returning else ():
            callee = callee_of(call)
            ring = (*callers, name)[(*callers, name).index(callee) :] if callee in (*callers, name) else ()
            if ring:
                way = "".join(f" by way of '{other}'" for other in ring[1:])
                message = f"'{callee}' calls itself{way} whatever it is called with, so it never returns"
                raise PassError(f"{message}; call it in a region of scf.if that is not always taken", call)
            visit(callee, (*callers, name))
        returning.add(name)

    for name in functions:
        visit(name, ())


def callee_of(use: ir.Operation) -> str:
    return next(use.attributes[name].value for name in ("callee", "value") if name in use.attributes)
