"""Ops that go through their elements one after the other, as loops over slices: scatters and running sums.

    stablehlo.scatter, tm_tensor.scatter
      for each index: the window of the result there = its update, or what the region makes of both
      (indices of TMTensor that are negative count from the end)
    tm_tensor.scan
      for each slice along the dimension: the running value, and the slice, become the next running value

Windows that do not fit into the result are left out, as StableHLO wants it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...dialects import build
from ...dialects.mlir import arith, ir, scf, tensor
from .lowering import ops
from .scatter_windows import windows

Mixed: TypeAlias = int | Any  # a size or an offset; an SSA value of type index where it is no number


def to_loops(module: ir.Module) -> None:
    """Rewrites all such ops in `module` that this knows; others stay."""
    for op in ops(module):
        convert = _CONVERSIONS.get(op.name)
        if convert is None:
            continue
        with ir.InsertionPoint(op), op.location:
            results = convert(op)
        if results is not None:
            for old, value in zip(op.results, results, strict=True):
                old.replace_all_uses_with(value)
            op.erase()


def _loop(count: Mixed, inits: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]) -> list[ir.Value]:
    """scf.for from 0 to `count`; `body` gets the index and what is carried, and returns what is carried on."""
    end = build.as_index(count)
    loop = scf.ForOp(build.index(0), end, build.index(1), list(inits))
    with ir.InsertionPoint(loop.body):
        scf.YieldOp(list(body(loop.induction_variable, *loop.inner_iter_args)))
    return list(loop.results)


def _nest(counts: Sequence[Mixed], value: ir.Value, body: Callable[[list[ir.Value], ir.Value], ir.Value]) -> ir.Value:
    """Loops within loops; `body` gets their indices and the value that they carry, and returns the next one."""

    def level(depth: int, indices: list[ir.Value], carried: ir.Value) -> ir.Value:
        if depth == len(counts):
            return body(indices, carried)
        return _loop(counts[depth], [carried], lambda i, v: [level(depth + 1, [*indices, i], v)])[0]

    return level(0, [], value)


def _slice_type(value: ir.Value, sizes: Sequence[Mixed], dropped: Sequence[int]) -> ir.RankedTensorType:
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [s if isinstance(s, int) else dynamic for d, s in enumerate(sizes) if d not in dropped]
    return ir.RankedTensorType.get(shape, value.type.element_type)


def _slice_operands(offsets: Sequence[Mixed], sizes: Sequence[Mixed]) -> tuple[list, list, list, list, list, list]:
    dynamic = ir.ShapedType.get_dynamic_size()
    parts = (offsets, sizes, [1] * len(sizes))
    return (
        *([v for v in part if not isinstance(v, int)] for part in parts),
        *([v if isinstance(v, int) else dynamic for v in part] for part in parts),
    )  # type: ignore[return-value]


def _extract(value: ir.Value, offsets: Sequence[Mixed], sizes: Sequence[Mixed], dropped: Sequence[int]) -> ir.Value:
    kind = _slice_type(value, sizes, dropped)
    return tensor.ExtractSliceOp(kind, value, *_slice_operands(offsets, sizes)).result


def _insert(part: ir.Value, value: ir.Value, offsets: Sequence[Mixed], sizes: Sequence[Mixed]) -> ir.Value:
    return tensor.InsertSliceOp(part, value, *_slice_operands(offsets, sizes)).result


def _write(
    result: ir.Value,
    update: ir.Value,
    offsets: Sequence[ir.Value],
    sizes: Sequence[Mixed],
    dropped: Sequence[int],
    combine: Callable[[ir.Value, ir.Value], ir.Value] | None,
) -> ir.Value:
    """`result` with `update`, combined with what is there, at the window; `result` itself where that does not fit."""
    fits = build.constant(ir.IntegerType.get_signless(1), 1)
    for offset, size, extent in zip(offsets, sizes, build.mixed_sizes(result), strict=True):
        size, extent = map(build.as_index, (size, extent))
        starts = arith.cmpi(arith.CmpIPredicate.sge, offset, build.index(0))
        ends = arith.cmpi(arith.CmpIPredicate.sle, arith.addi(offset, size), extent)
        fits = arith.andi(fits, arith.andi(starts, ends))
    choice = scf.IfOp(fits, [result.type], has_else=True)
    with ir.InsertionPoint(choice.then_block):
        if combine is not None:
            update = combine(_extract(result, offsets, sizes, dropped), update)
        scf.YieldOp([_insert(update, result, offsets, sizes)])
    with ir.InsertionPoint(choice.else_block):
        scf.YieldOp([result])
    return choice.results[0]


def _position(indices: ir.Value, at: Sequence[ir.Value]) -> ir.Value:
    return arith.index_cast(ir.IndexType.get(), tensor.extract(indices, list(at)))


# StableHLO.


def _numbers(op: ir.Operation) -> dict[str, list[int]]:
    """The fields of scatter_dimension_numbers, of which the bindings show the text."""
    text = str(op.attributes["scatter_dimension_numbers"])
    found = {
        name: [int(n) for n in re.findall(r"\d+", digits)] for name, digits in re.findall(r"(\w+) = \[([^]]*)\]", text)
    }
    found.update({name: [int(n)] for name, n in re.findall(r"(\w+) = (\d+)", text)})
    return found


def _stablehlo_scatter(op: ir.Operation) -> list[ir.Value] | None:
    if len(op.results) != 1:
        return None
    result, indices, updates = op.operands
    if ir.IntegerType(indices.type.element_type).is_unsigned:  # which index_cast does not take
        wide = ir.RankedTensorType.get(indices.type.shape, ir.IntegerType.get_signless(64))
        indices = ir.Operation.create("stablehlo.convert", [wide], [indices]).results[0]
    numbers = _numbers(op)
    window_dims = numbers.get("update_window_dims", [])
    batching = numbers.get("input_batching_dims", [])
    of_indices = numbers.get("scatter_indices_batching_dims", [])
    to_operand = numbers.get("scatter_dims_to_operand_dims", [])
    vector_dim = numbers.get("index_vector_dim", [0])[0]
    dropped = sorted({*numbers.get("inserted_window_dims", []), *batching})
    extents = build.mixed_sizes(updates)
    scattered = [d for d in range(updates.type.rank) if d not in window_dims]
    windows = iter([extents[d] for d in window_dims])
    sizes: list[Mixed] = [1 if d in dropped else next(windows) for d in range(result.type.rank)]

    def body(at: list[ir.Value], value: ir.Value) -> ir.Value:
        offsets = [build.index(0)] * value.type.rank
        for j, d in enumerate(to_operand):
            place = list(at)
            if vector_dim < indices.type.rank:
                place.insert(vector_dim, build.index(j))
            offsets[d] = _position(indices, place)
        for d, of in zip(batching, of_indices, strict=True):
            offsets[d] = at[of - (of > vector_dim)]
        starts: list[Mixed] = [0] * updates.type.rank
        for d, i in zip(scattered, at, strict=True):
            starts[d] = i
        part = _extract(updates, starts, [1 if d in scattered else s for d, s in enumerate(extents)], scattered)
        return _write(value, part, offsets, sizes, dropped, _elementwise(op.regions[0]))

    return [_nest([extents[d] for d in scattered], result, body)]


def _elementwise(region: ir.Region) -> Callable[[ir.Value, ir.Value], ir.Value] | None:
    """What a region of tensors of rank 0 computes, of whole windows; None for a region that returns the update."""
    block = region.blocks[0]
    inner = [op.operation for op in block.operations]
    if inner[-1].operands[0] == block.arguments[1]:
        return None

    def combine(old: ir.Value, update: ir.Value) -> ir.Value:
        known = dict(zip(block.arguments, (old, update), strict=True))
        for op in inner[:-1]:
            kind = ir.RankedTensorType.get(old.type.shape, op.results[0].type.element_type)
            operands = [known[v] for v in op.operands]
            attributes = {name: op.attributes[name] for name in op.attributes}
            made = ir.Operation.create(op.name, [kind], operands, attributes)
            known[op.results[0]] = made.results[0]
        return known[inner[-1].operands[0]]

    return combine


# TMTensor, which torch-mlir makes of scatters and running sums.


def _cloned(region: ir.Region) -> Callable[[ir.Value, ir.Value], ir.Value]:
    """The element-wise op that applies a region of scalars, of two arguments, to two tensors."""
    block = region.blocks[0]

    def scalar(*arguments: ir.Value) -> ir.Value:
        known = dict(zip(block.arguments, arguments, strict=False))
        inner = [op.operation for op in block.operations]
        for op in inner[:-1]:
            copy = op.clone().operation
            for i, value in enumerate(copy.operands):
                copy.operands[i] = known.get(value, value)
            known.update(zip(op.results, copy.results, strict=True))
        return known.get(inner[-1].operands[0], inner[-1].operands[0])

    def combine(a: ir.Value, b: ir.Value) -> ir.Value:
        n = a.type.rank
        identity = build.projection(n, range(n))
        init = build.empty(build.mixed_sizes(a), a.type.element_type)
        return build.generic([a, b], [init], [identity] * 3, [build.PARALLEL] * n, scalar)[0]

    return combine


def _without(value: ir.Value, units: list[int]) -> ir.Value:
    """The tensor without these dimensions of one element, none of which is the first."""
    groups: list[list[int]] = []
    for d in range(value.type.rank):
        groups[-1].append(d) if d in units else groups.append([d])
    shape = [size for d, size in enumerate(value.type.shape) if d not in units]
    kind = ir.RankedTensorType.get(shape, value.type.element_type)
    return tensor.collapse_shape(kind, value, groups) if units else value


def _tm_scatter(op: ir.Operation) -> list[ir.Value] | None:
    updates, indices, result = op.operands
    mapped = list(op.attributes["dimension_map"])
    rank, shape = result.type.rank, list(result.type.shape)
    is_by_elements = updates.type.rank == 1 and updates.type.has_static_shape
    whole = windows(updates, indices, mapped, shape) if is_by_elements else None
    if whole is not None:
        updates, mapped = whole.updates, [d for d in mapped if d not in whole.dims]
    free, dropped = [0] if whole is None else list(whole.free), mapped
    # A window has all dimensions of the result, or only those in which it is not placed by indices; those of one
    # element in which it is placed are left out in either case.
    if whole is None and updates.type.rank == 1 + rank:
        dropped = [d for d in mapped if updates.type.shape[1 + d] == 1]
        updates = _without(updates, [1 + d for d in dropped])
    extents = build.mixed_sizes(updates)
    if len(extents) - len(free) != rank - len(dropped):
        return None
    window = iter([size for d, size in enumerate(extents) if d not in free])
    sizes: list[Mixed] = [1 if d in dropped else next(window) for d in range(rank)]
    combine = _cloned(op.regions[0])

    def body(at: list[ir.Value], value: ir.Value) -> ir.Value:
        offsets = [build.index(0)] * value.type.rank
        for j, d in enumerate(mapped):
            position = whole.place(j, at) if whole is not None else _position(indices, [at[0], build.index(j)])
            from_end = arith.addi(position, build.as_index(build.mixed_sizes(result)[d]))
            is_negative = arith.cmpi(arith.CmpIPredicate.slt, position, build.index(0))
            offsets[d] = arith.select(is_negative, from_end, position)
        starts: list[Mixed] = [0] * len(extents)
        for d, i in zip(free, at, strict=True):
            starts[d] = i
        part = _extract(updates, starts, [1 if d in free else s for d, s in enumerate(extents)], free)
        return _write(value, part, offsets, sizes, dropped, lambda old, new: combine(new, old))

    return [_nest([extents[d] for d in free], result, body)]


def _tm_scan(op: ir.Operation) -> list[ir.Value]:
    x, out, start = op.operands
    d = ir.IntegerAttr(op.attributes["dimension"]).value
    inclusive = ir.BoolAttr(op.attributes["inclusive"]).value
    combine = _cloned(op.regions[0])
    sizes = build.mixed_sizes(x)
    part: list[Mixed] = [1 if i == d else s for i, s in enumerate(sizes)]

    def body(i: ir.Value, result: ir.Value, running: ir.Value) -> list[ir.Value]:
        at = [i if j == d else 0 for j in range(len(sizes))]
        following = combine(_extract(x, at, part, [d]), running)
        return [_insert(following if inclusive else running, result, at, part), following]

    return _loop(sizes[d], [out, start], body)


_CONVERSIONS: dict[str, Callable[[ir.Operation], list[ir.Value] | None]] = {
    "stablehlo.scatter": _stablehlo_scatter,
    "tm_tensor.scatter": _tm_scatter,
    "tm_tensor.scan": _tm_scan,
}
