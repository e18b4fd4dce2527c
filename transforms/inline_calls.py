"""The pass ``inline-calls``."""

from collections import Counter
from dataclasses import dataclass

from ..dialects.mlir import ir
from .check_calls import callee_of, refuse_endless
from .copying import copy_body
from .passes import Pass, option
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
        refuse_endless(functions)
        called = Counter(callee_of(use) for use in ops_in(op, "func.call", "func.constant"))
        done: set[str] = set()

        def visit(name: str, callers: tuple[str, ...]) -> None:
            """What is called first, so that bodies are copied as they end up."""
            for call in ops_in(functions[name], "func.call") if name not in done else ():
                callee = callee_of(call)
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
