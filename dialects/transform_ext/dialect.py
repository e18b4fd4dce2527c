"""The dialect ``transform_ext``: its loading, and how its ops are applied.

A transform op must implement upstream's TransformOpInterface and say what it does to handles. Both are attached when
the dialect is loaded. What an op *does* lives with the transformations, which register it in ``APPLY``.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..mlir import ext, ir, pdl, transform
from ..verification import expect

# By op name: apply(op, rewriter, payload) -> payload ops for each result. `payload` holds the ops of each operand.
Apply = Callable[[ir.OpView, Any, list[list[ir.Operation]]], Sequence[Sequence[ir.Operation]]]
APPLY: dict[str, Apply] = {}

# Why ops failed since whoever runs a script last looked: an exception cannot pass through the interpreter.
FAILURES: list[Exception] = []


def expect_op_handles(op: ir.OpView) -> None:
    """Checks that operands stand for ops: asking a handle of values for ops ends the process."""
    for operand in op.operation.operands:
        is_handle = isinstance(operand.type, transform.AnyOpType | transform.OperationType | pdl.OperationType)
        expect(is_handle, f"expects handles of ops, but found {operand.type}")


class TransformExt(ext.Dialect, name="transform_ext"):
    """Transform ops that tile and fuse by our tiling interface."""

    @classmethod
    def load(cls) -> None:
        super().load()
        for op in cls.operations:
            _interface(op).attach(op.OPERATION_NAME)
            _effects(op).attach(op.OPERATION_NAME)


@functools.cache  # each context gets them
def _interface(op_class: type) -> type:
    class Interface(transform.TransformOpInterface):
        @staticmethod
        def apply(op: ir.OpView, rewriter: Any, results: Any, state: Any) -> Any:
            payload = [[p.operation for p in state.get_payload_ops(v)] for v in op.operation.operands]
            try:
                produced = APPLY[op_class.OPERATION_NAME](op, rewriter, payload)
            except Exception as error:
                FAILURES.append(error)
                return transform.DiagnosedSilenceableFailure.DefiniteFailure
            for result, ops in zip(op.operation.results, produced, strict=True):
                results.set_ops(result, list(ops))
            return transform.DiagnosedSilenceableFailure.Success

        @staticmethod
        def allow_repeated_handle_operands(op: ir.OpView) -> bool:
            return False

    return Interface


@functools.cache
def _effects(op_class: type) -> type:
    """The first `consumed_operands` handles are consumed, the others read; every result is a new handle."""
    consumed = op_class.consumed_operands

    class Effects(ir.MemoryEffectsOpInterface):
        @staticmethod
        def get_effects(op: ir.OpView, effects: Any) -> None:
            operands = list(op.operation.op_operands)
            if operands[:consumed]:
                transform.consumes_handle(operands[:consumed], effects)
            if operands[consumed:]:
                transform.only_reads_handle(operands[consumed:], effects)
            if len(op.operation.results):
                transform.produces_handle(op.operation.results, effects)
            transform.modifies_payload(effects)

    return Effects
