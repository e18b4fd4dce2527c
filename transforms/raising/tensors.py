"""Tensors over variables: sums of products, and back to the dimensions of an op's result."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects import build
from ...dialects.mlir import arith, ir, tensor
from ..reshapes import reshape
from .emission import Emitter
from .indices import Index, Var, mixed_radix


def counted_by(index: Index, size: int) -> list[Var]:
    """The variables that count through a dimension of an output, outer to inner; none where it has one element."""
    if not index.terms:
        return []
    if size < 0 and index.single is not None:
        return [index.single]  # the type leaves open what another op's type says
    group = mixed_radix(index, None if size < 0 else size)
    assert group is not None, "an output dimension is split into variables"
    return group


def contract(
    emit: Emitter,
    lhs: ir.Value,
    lhs_vars: Sequence[Var],
    rhs: ir.Value,
    rhs_vars: Sequence[Var],
    dims: Sequence[Var],
    reduced: Sequence[Var],
    kind: str,
) -> ir.Operation:
    """Σ lhs·rhs over `reduced`, as a tensor over `dims`, summed in f32 at least."""
    wide = "f64" in (kind, str(lhs.type.element_type), str(rhs.type.element_type))
    compute = ir.F64Type.get() if wide else ir.F32Type.get()
    # The loops stand as the rows do, then columns: the output may have them in another order.
    rows = [v for v in lhs_vars if v in dims]
    loops = [*rows, *(v for v in dims if v not in rows), *reduced]
    maps = [build.projection(len(loops), [loops.index(v) for v in used]) for used in (lhs_vars, rhs_vars, tuple(dims))]
    zero = build.fill(build.constant(compute, 0.0), emit.empty(dims, compute))
    (result,) = build.generic(
        [lhs, rhs],
        [zero],
        maps,
        [build.PARALLEL] * len(dims) + [build.REDUCTION] * len(reduced),
        lambda a, b, c: arith.addf(c, arith.mulf(build.convert(a, compute), build.convert(b, compute))),
    )
    return result.owner.operation


def shaped(output: ir.Value, all_groups: list[list[Var]], kind: ir.RankedTensorType) -> ir.Value:
    """From one dimension per variable to the dimensions of a tensor, each counted through by a group of them."""
    groups = [g for g in all_groups if g]
    if any(len(g) > 1 for g in groups):
        output = reshape(output, [[1] * len(g) for g in groups], expand=False)
    if len(groups) < len(all_groups):
        sizes: list[list[int | ir.Value]] = []
        units: list[int | ir.Value] = []
        for d, group in enumerate(all_groups):
            if not group:
                units.append(1)
                continue
            position = len(sizes)
            static = kind.shape[d]
            size = static if static >= 0 else build.mixed_sizes(output)[position]
            sizes.append([*units, size])
            units = []
        if sizes:
            sizes[-1] += units
        output = reshape(output, sizes or [], expand=True) if sizes else _from_scalar(output, kind)
    if output.type != kind:
        output = tensor.cast(kind, output)
    return output


def _from_scalar(output: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    ones = [1] * kind.rank
    result = ir.RankedTensorType.get(ones, kind.element_type)
    return tensor.ExpandShapeOp(result, output, ir.ArrayAttr.get([]), [], ones).result
