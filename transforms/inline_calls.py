"""The pass ``inline-calls``."""

from collections import Counter
from dataclasses import dataclass

from ..dialects.mlir import ir
from .copying import copy_body
from .passes import Pass, PassError, option
from .rewriting import functions_of, ops_in


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Puts the body of a private function in place of its call, if that is its only one::

        func.func private @cap(%s: tensor<4x8xf32>) -> tensor<4x8xf32> { %t = math.tanh %s …  return %t }
        func.func @f(…) { …  %c = call @cap(%s) …  %p = linalg.softmax … ins(%c) … }
    becomes
        func.func @f(…) { …  %c = math.tanh %s …  %p = linalg.softmax … ins(%c) … }

    Attention is found in one function. With `every`, so it is for every call: GPUs call no functions of tensors.
    Functions of several blocks, and calls of a function from within it, stay; where no condition stands before such a
    call, it would never return, which is an error. Upstream's inliner knows no ops of ours.
    """

    every: bool = option("also public functions, and those that are called more than once", False)

    def run(self, op: ir.Operation) -> None:
        functions = {f.attributes["sym_name"].value: f for f in functions_of(op)}
        _refuse_endless(functions)
        called = Counter(_callee(use) for use in ops_in(op, "func.call", "func.constant"))
        done: set[str] = set()

        def visit(name: str, callers: tuple[str, ...]) -> None:
            """What is called first, so that bodies are copied as they end up."""
            for call in ops_in(functions[name], "func.call") if name not in done else ():
                callee = _callee(call)
                if callee not in functions or callee in (*callers, name):
                    continue
                visit(callee, (*callers, name))
                function = functions[callee]
                alone = called[callee] == 1 and _is_private(function)
                if (self.every or alone) and len(function.regions[0].blocks) == 1:
                    _inline(call, function)
                    called[callee] -= 1
            done.add(name)

        for name in functions:
            visit(name, ())
        for name, function in functions.items():
            if not called[name] and _is_private(function):
                function.erase()


def _refuse_endless(functions: dict[str, ir.Operation]) -> None:
    """An error for a function that calls itself, directly or by way of others, whatever it is called with."""
    certain = {
        name: [op for op in ops_in(f, "func.call") if op.block == f.regions[0].blocks[0] and _callee(op) in functions]
        for name, f in functions.items()
        if len(f.regions[0].blocks)
    }
    returning: set[str] = set()

    def visit(name: str, callers: tuple[str, ...]) -> None:
        for call in certain.get(name, ()) if name not in returning else ():
            callee = _callee(call)
            ring = (*callers, name)[(*callers, name).index(callee) :] if callee in (*callers, name) else ()
            if ring:
                way = "".join(f" by way of '{other}'" for other in ring[1:])
                message = f"'{callee}' calls itself{way} whatever it is called with, so it never returns"
                raise PassError(f"{message}; call it in a region of scf.if that is not always taken", call)
            visit(callee, (*callers, name))
        returning.add(name)

    for name in functions:
        visit(name, ())


def _callee(use: ir.Operation) -> str:
    return next(use.attributes[name].value for name in ("callee", "value") if name in use.attributes)


def _is_private(function: ir.Operation) -> bool:
    visibility = function.attributes.get("sym_visibility")
    return visibility is not None and visibility.value == "private"


def _inline(call: ir.Operation, function: ir.Operation) -> None:
    block = function.regions[0].blocks[0]
    with ir.InsertionPoint(call):
        returned = copy_body(block, dict(zip(block.arguments, call.operands, strict=True)))
    for result, value in zip(call.results, returned, strict=True):
        result.replace_all_uses_with(value)
    call.erase()
