"""The dialect ``linalg_ext``, and what its op definitions share."""

from collections.abc import Sequence

from ..build import is_narrow
from ..mlir import ext, ir
from ..verification import expect


class LinalgExt(ext.Dialect, name="linalg_ext"):
    """Ops that attention needs and upstream linalg lacks. All work on ranked tensors and are pure."""


def expect_tensors(operands: dict[str, ir.Value]) -> None:
    """Checks that every operand is a ranked tensor of floats."""
    floats = (ir.F32Type, ir.F64Type)
    for name, value in operands.items():
        kind = value.type
        expect(isinstance(kind, ir.RankedTensorType), f"expects {name} to be a ranked tensor, but found {kind}")
        expect(
            is_narrow(kind.element_type) or isinstance(kind.element_type, floats),
            f"expects {name} to have element type f16, bf16, f32, f64 or one of 8 bits, but found {kind.element_type}",
        )


def expect_shape(name: str, kind: ir.RankedTensorType, shape: Sequence[int], why: str) -> None:
    """Checks the rank and, where both are static, every dimension of `kind` against `shape`."""
    expect(
        kind.rank == len(shape),
        f"expects {name} to have rank {len(shape)} ({why}), but found rank {kind.rank}: {kind}",
    )
    dynamic = ir.ShapedType.get_dynamic_size()
    for d, (found, expected) in enumerate(zip(kind.shape, shape, strict=True)):
        expect(
            found == expected or dynamic in (found, expected),
            f"expects dimension {d} of {name} to be {expected} ({why}), but found {found}: {kind}",
        )


def expect_results_like(op: ir.OpView, inits: Sequence[ir.Value]) -> None:
    """Destination style: result i has the type of the i-th outs operand."""
    for i, (result, init) in enumerate(zip(op.operation.results, inits, strict=True)):
        expect(
            result.type == init.type,
            f"expects result {i} to have the type of its outs operand, {init.type}, but found {result.type}",
        )
