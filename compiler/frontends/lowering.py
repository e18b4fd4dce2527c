"""What frontends share: running upstream passes with the user's errors, and a look at what they left."""

import re
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any

from ...dialects import build
from ...dialects.diagnostic import DiagnosedError, Diagnostic
from ...dialects.mlir import arith, ir, passmanager, tensor
from ..diagnostics import diagnostic


def first_line(error: BaseException) -> str:
    """The first line of an error's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def run(module: ir.Module, pipeline: str, way_out: str) -> None:
    """Runs upstream passes. Where they fail: a user's error with their first message and `way_out`."""
    found: list[Diagnostic] = []

    def collect(message: Any) -> bool:
        if str(message.severity).lower().endswith("error"):
            found.append(_failure(str(message.message), message.location, way_out))
        return True

    handler = module.context.attach_diagnostic_handler(collect)
    try:
        with module.context:
            passmanager.PassManager.parse(pipeline).run(module.operation)
    except ir.MLIRError as error:
        with module.context:
            found += [_failure(d.message, d.location, way_out) for d in error.error_diagnostics]
        found = found or [_failure(first_line(error), None, way_out)]
        if any(f"'{name}'" in found[0].message for name in OPERANDS):
            left = [_failure(f"failed to legalize operation '{op.name}'", op.location, way_out) for op in _left(module)]
            found = left or found
        raise DiagnosedError(found[:1]) from None
    finally:
        handler.detach()


# What upstream says of an op of torch that no pattern of it matches; of a generic op it prints whose place that takes.
UNKNOWN = re.compile(r"failed to legalize operation '([^']*)'[^{]*(?:\{name = \"([^\"]*)\"\})?", re.DOTALL)


# What only ever is an operand: it is left because what takes it is, and comes before that.
OPERANDS = (
    *(f"torch.constant.{kind}" for kind in ("int", "float", "bool", "none", "str", "device", "number")),
    *("torch.prim.ListConstruct", "torch.vtensor.literal"),
)


def _left(module: ir.Module) -> list[ir.Operation]:
    """What no pattern of upstream's passes has matched, operands last."""
    left = [op for op in ops(module) if op.name.startswith("torch.")]
    return sorted(left, key=lambda op: op.name in OPERANDS)


def _failure(problem: str, location: ir.Location | None, way_out: str) -> Diagnostic:
    unknown = UNKNOWN.match(problem)
    name = (unknown[2] or unknown[1]) if unknown is not None else ""
    if name.startswith("torch."):  # what ONNX's operators lack, `onnx_lowering` reads
        problem = f"no pattern matches '{name}'"
    return diagnostic("error", f"no lowering to linalg: {problem}; {way_out}", location)


def check_lowered(
    module: ir.Module, dialects: Container[str], way_out: str, hints: Mapping[str, str] = MappingProxyType({})
) -> None:
    """A user's error for the first op of `dialects`: what came through the passes without being linalg.

    `hints` has other ways out, by the names of ops.
    """
    for op in ops(module):
        if op.name.partition(".")[0] in dialects:
            what = f"'{op.name}'"
            if "call_target_name" in op.attributes:
                what += f" of {op.attributes['call_target_name']}"
            problem = f"{what} has no lowering to linalg; {hints.get(op.name, way_out)}"
            raise DiagnosedError([diagnostic("error", problem, op.location)])


def clamp_gathers(module: ir.Module) -> None:
    """Moves indices that are loaded into the range of what they index: no one reads beyond a tensor's end."""
    for op in ops(module):
        if op.name != "tensor.extract" or not op.parent.operation.name.startswith("linalg."):
            continue
        body = op.block
        with ir.InsertionPoint(op), op.location:
            for number, index in enumerate(list(op.operands)[1:]):
                if not _is_loaded(index, body):
                    continue
                size = tensor.dim(op.operands[0], build.index(number))
                last = arith.subi(size, build.index(1))
                op.operands[1 + number] = arith.minsi(arith.maxsi(index, build.index(0)), last)


def convert_by_32_bits(module: ir.Module) -> None:
    """Makes integers of few bits of floats by way of 32: what is beyond their range is taken modulo 2^8 or 2^16, as
    torch has it. It is undefined else, and one processor saturates where others wrap around: types have no signs here,
    so that 200 as an unsigned number of 8 bits is beyond the range of the signed ones that it is converted to."""
    for op in ops(module):
        if op.name not in ("arith.fptosi", "arith.fptoui"):
            continue
        kind = op.results[0].type
        if not isinstance(kind, ir.IntegerType) or not 1 < kind.width < 32:
            continue
        with ir.InsertionPoint(op), op.location:
            wide = arith.fptosi(ir.IntegerType.get_signless(32), op.operands[0])
            op.results[0].replace_all_uses_with(arith.trunci(kind, wide))
        op.erase()


def _is_loaded(value: ir.Value, body: ir.Block) -> bool:
    """Whether a value in the body of an op depends on an element that this is given."""
    if isinstance(value.owner, ir.Block):
        return value.owner == body
    op = value.owner.operation
    return op.block == body and any(_is_loaded(v, body) for v in op.operands)


def ops(module: ir.Module) -> list[ir.Operation]:
    """All ops of the module, those with regions before what is in them."""
    found: list[ir.Operation] = []

    def collect(op: ir.Operation) -> ir.WalkResult:
        found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    return found
