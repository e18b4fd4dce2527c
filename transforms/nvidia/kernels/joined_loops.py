"""One loop for those of rows, of columns and along the sum that a matmul goes through together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import iterator_types, operand_loops
from ...attention import contraction_loops
from ...copying import with_operands
from ...extents import static_extents
from ...products import product
from ...reshapes import reshape
from ...splats import filled_with


def with_joined_loops(matmul: ir.Operation) -> ir.Operation:
    """The matmul in its place, with one loop for those of a kind whose dimensions stand side by side in all operands.
    What has one element is left out::

        %c = linalg.generic {C[b, t, n] += A[b, t, k]·B[n, k]} ins(%a, %b : tensor<8x512x64xf16>, tensor<96x64xf16>) …
      becomes
        %a1 = tensor.collapse_shape %a [[0, 1], [2]] : tensor<8x512x64xf16> into tensor<4096x64xf16>
        %c1 = linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a1, %b : tensor<4096x64xf16>, tensor<96x64xf16>) …
        %c = tensor.expand_shape %c1 [[0, 1], [2]] : tensor<4096x96xf32> into tensor<8x512x96xf32>
    """
    loops, extents = contraction_loops(matmul), static_extents(matmul)
    assert loops is not None, "a matmul is a contraction"
    first: dict[int, int | None] = {d: d for d in range(len(extents))}  # of those that a loop is joined to
    for kind in (loops.m, loops.n, loops.k):
        wide = [d for d in kind if extents[d] != 1] or kind[:1]
        first.update({d: d if d in wide else None for d in kind})
    known = {*loops.batch, *loops.m, *loops.n, *loops.k}
    first.update({d: None for d in first if d not in known and extents[d] == 1})  # of one operand alone
    places = [[d for d in dims if d is not None] for dims in operand_loops(matmul)]
    following = [_following([d for d in dims if first[d] is not None]) for dims in places]
    for kind in (loops.m, loops.n, loops.k):
        for d in (d for dims in places for d in dims if d in kind):
            behind = {after[d] for after in following if d in after}
            if len(behind) == 1 and (other := behind.pop()) in kind and first[other] == other:
                first.update({e: first[d] for e in first if first[e] == other})
    if all(first[d] == d for d in first):
        return matmul
    grouped = [_grouped(dims, first) for dims in places]
    if any(_owner(group, first) is None for groups in grouped for group in groups):
        return matmul
    return _rebuilt(matmul, grouped, first)


def _following(dims: Sequence[int]) -> dict[int, int | None]:
    """The loop of the next dimension, for that of each one."""
    return dict(zip(dims, [*dims[1:], None], strict=True))


def _owner(group: Sequence[int], first: Mapping[int, int | None]) -> int | None:
    return next((first[d] for d in group if first[d] is not None), None)


def _grouped(dims: Sequence[int], first: Mapping[int, int | None]) -> list[list[int]]:
    """An operand's dimensions, by their loops, in groups of those that become one."""
    groups: list[list[int]] = []
    for d in dims:
        owner = _owner(groups[-1], first) if groups else None
        if groups and (owner is None or first[d] in (None, owner)):
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def _rebuilt(
    matmul: ir.Operation, grouped: Sequence[Sequence[Sequence[int]]], first: Mapping[int, int | None]
) -> ir.Operation:
    left = sorted({owner for groups in grouped for group in groups if (owner := _owner(group, first)) is not None})
    kinds = iterator_types(matmul)
    with ir.InsertionPoint(matmul), matmul.location:
        *operands, init = matmul.operands
        sizes, number, element = build.mixed_sizes(init), filled_with(init), init.type.element_type
        left_over = iter(sizes)
        of_result = [[next(left_over) for _ in group] for group in grouped[-1]]
        values = [_joined(v, groups) for v, groups in zip(operands, grouped, strict=False)]
        if number is None:
            values.append(_joined(init, grouped[-1]))
        else:  # of no tensor that is made for its sizes alone
            init = build.empty([product(group) for group in of_result], element)
            values.append(build.fill(build.constant(element, number.value), init))
        maps = [build.projection(len(left), [left.index(_owner(g, first)) for g in groups]) for groups in grouped]
        made = with_operands(matmul, values[:-1], values[-1:], maps, build.iterator_array([kinds[d] for d in left]))
        result = made.result
        if len(of_result) < len(sizes):
            result = reshape(result, of_result, expand=True)
    matmul.results[0].replace_all_uses_with(result)
    matmul.erase()
    return made


def _joined(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    if len(groups) == value.type.rank:
        return value
    return reshape(value, [[1] * len(group) for group in groups], expand=False)
