"""Accumulating over the tiles of an online reduction: when it is right, what is carried, how the sum is rescaled.

Softmax tiled along the dimension it reduces knows only the tiles so far. Its consumer's accumulator is rescaled before
each tile is added, so that after the last tile it is what the whole softmax would have given::

    %s:4 = linalg_ext.softmax dimension(1) ins(%x) outs(%e, %m, %a, %f)     // %m, %a: slices of loop-carried tensors
    %d   = linalg_ext.diag ins(%s#3)
    %o1  = linalg.matmul ins(%d, %o) outs(%zero)                            // the old accumulator, row by row
    %o2  = linalg.matmul ins(%s#0, %v) outs(%o1)

That holds only if every path from the softmax to the root is linear, ends at the root's left operand, and each row of
softmax is one row of the root's output.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from ..dialects import build
from ..dialects.build import constant_value, convert_elements
from ..dialects.linalg_ext import BatchMatmulOp, DiagOp
from ..dialects.mlir import arith, ir
from ..dialects.tiling import Index, OnlineReduction, Range, Tile, TileBuilder, Tiling, Untileable
from ..dialects.tiling.structured import all_parallel, dim_position, indexing_maps, is_structured
from .graph import ancestor_in
from .reshapes import VIEWS


class OnlineAccumulation:
    """The online reduction `op`, of which the body computes `tile`, accumulated by `root`. Untileable if wrong."""

    def __init__(
        self,
        op: ir.Operation,
        reduction: OnlineReduction,
        tile: Tile,
        root: ir.Operation,
        root_tiling: Tiling,
        steps: Mapping[int, int],
        leads_to_root: Container[ir.Operation],
    ):
        self.op, self.reduction, self.tile, self.root = op, reduction, tile, root
        self.carried_operands = {operand for _, operand in reduction.carried}
        self._iterators = root_tiling.iterator_types()
        self._steps = steps
        self._leads_to_root = leads_to_root
        self._check_rows()
        self._check_paths(op.results[reduction.result])
        self._check_init()

    # When it is right.

    def _check_rows(self) -> None:
        """The reduced dimension is a reduction of the root, every other one a dimension of its output."""
        if len(self.root.results) != 1 or not is_structured(self.root):
            raise Untileable("the root must be a contraction with one result")
        output = [dim_position(e) for e in indexing_maps(self.root)[-1].results]
        self.rows: list[int] = []
        for d, r in enumerate(self.tile):
            loop = next(iter(r.loops)) if len(r.loops) == 1 else None
            if d == self.reduction.dimension:
                if loop is None or self._iterators[loop] != "reduction" or not r.whole:
                    raise Untileable("the loops tile the dimension it reduces, which the root does not reduce")
            elif loop is None or loop not in output:
                raise Untileable(f"its dimension {d} is no dimension of the root's output")
            else:
                self.rows.append(output.index(loop))
        if len(set(self.rows)) < len(self.rows):
            raise Untileable("two of its dimensions are one dimension of the root's output")
        own = frozenset[int]().union(*(r.loops for r in self.tile))
        self._columns = [d for d in self._steps if d not in own]
        if any(self._iterators[d] == "reduction" for d in self._columns):
            raise Untileable("the loops tile another reduction of the root besides")

    def _check_paths(self, value: ir.Value) -> None:
        """Every use of `value` goes on linearly to the root's left operand, and nowhere else."""
        for use in value.uses:
            user = use.owner.operation
            top = ancestor_in(user, self.root.block)
            if user == self.root:
                if use.operand_number != 0:
                    raise Untileable("its result must be the left operand of the matmul that is tiled")
            elif top is None or top not in self._leads_to_root:
                if top is not None and top.name != "scf.for":
                    raise Untileable("its result is used elsewhere too, where the value over all tiles is needed")
            elif top != user or not is_linear(user, use.operand_number):
                raise Untileable(f"'{user.name}' stands between it and the matmul, and is not linear in it")
            else:
                for result in user.results:
                    self._check_paths(result)

    def _check_init(self) -> None:
        """The accumulator is rescaled, so it must start from zero."""
        init = self.root.operands[len(self.root.operands) - 1]
        if not build.zero_filled(init):
            raise Untileable("the matmul that is tiled must accumulate into zeros (a linalg.fill with 0)")
        self._zero = init.owner.operands[0]

    def check_external_use(self, number: int) -> None:
        """Only what is carried has its final value after the last tile."""
        if number not in {result for result, _ in self.reduction.carried}:
            raise Untileable("its result is used elsewhere too, where the value over all tiles is needed")

    # What is carried.

    def state(
        self,
        builder: TileBuilder,
        init: ir.Value,
        part: Tile,
        extents: Sequence[Index],
        root_tile: Tile,
    ) -> tuple[ir.Value, Tile, list[int] | None]:
        """What the loops carry for the operand `init`: its first value, the iteration's tile of it, the tile's shape.

        A loop over columns of the output runs over all rows again: the state then is kept once per tile of columns.
        """
        if not self._columns:
            return init, part, None
        counts = [builder.ceil_divided_outside(extents[d], self._steps[d]) for d in self._columns]
        kind = init.type
        sizes = counts + [builder.dim(init, d) for d in range(kind.rank)]
        with builder.outside:
            empty = builder.empty_outside(sizes, kind.element_type)
            copies = build.broadcast(init, empty, range(len(counts)))
        tiles = [Range(builder.floor_divided(root_tile[d].offset, self._steps[d]), Index(1)) for d in self._columns]
        dynamic = ir.ShapedType.get_dynamic_size()
        shape = [dynamic if r.size.static is None else r.size.static for r in part]
        return copies, (*tiles, *part), shape

    # How the sum is rescaled.

    def rescale(self, builder: TileBuilder, root: ir.Operation, scale: ir.Value) -> None:
        """Multiplies the accumulator of the tiled `root` by `scale`, row by row, before the tile is added."""
        number = len(root.operands) - 1
        accumulator = root.operands[number]
        with ir.InsertionPoint(root), root.location:
            scale = convert_elements(scale, accumulator.type.element_type)
            root.operands[number] = self._scaled(builder, root, scale, accumulator)

    def _scaled(self, builder: TileBuilder, root: ir.Operation, scale: ir.Value, accumulator: ir.Value) -> ir.Value:
        kind = accumulator.type
        plain = self.rows == list(range(kind.rank - 1))
        products: dict[str, Callable[..., ir.Value]] = {
            "linalg.matmul": build.matmul,
            "linalg.batch_matmul": build.matmul,
            "linalg_ext.batch_matmul": _batch_matmul,
        }
        multiply = products.get(root.name)
        if not plain or multiply is None:
            return row_scaling(scale, accumulator, self.rows)
        rows = [r.size for r in builder.everything(scale)]
        square = builder.empty([*rows, rows[-1]], kind.element_type)
        diagonal = DiagOp(scale, square, result=square.type).result
        sizes = [r.size for r in builder.everything(accumulator)]
        zeros = build.fill(self._zero, builder.empty(sizes, kind.element_type))
        return multiply(diagonal, accumulator, zeros)


def is_linear(op: ir.Operation, number: int) -> bool:
    """Whether every result of `op` is a linear function of operand `number`, the others being fixed."""
    if op.name in VIEWS:
        return number == 0
    if not all_parallel(op) or not len(op.regions):
        return False
    body = op.regions[0].blocks[0]
    linear = {body.arguments[number]}
    for inner in body.operations:
        name, flags = inner.operation.name, [v in linear for v in inner.operation.operands]
        if not any(flags):
            continue
        if (
            name in ("linalg.yield", "arith.extf", "arith.truncf", "arith.negf")
            or (name == "arith.mulf" and flags.count(True) == 1)
            or (name == "arith.divf" and flags == [True, False])
            or (name == "arith.select" and _is_masked(inner.operation, flags))
        ):
            pass
        else:
            return False
        if name == "linalg.yield":
            return all(flags)
        linear.update(inner.operation.results)
    return False


def _is_masked(select: ir.Operation, flags: Sequence[bool]) -> bool:
    """Whether a choice between what is linear (`flags`) and 0 does not depend on it."""
    return not flags[0] and all(
        f or constant_value(v) == 0.0 for f, v in zip(flags[1:], list(select.operands)[1:], strict=True)
    )


def row_scaling(scale: ir.Value, matrix: ir.Value, rows: Sequence[int]) -> ir.Value:
    """``linalg.generic``: matrix[i…] · scale[i at rows]; dimension d of `scale` is dimension rows[d] of `matrix`."""
    kind = matrix.type
    identity = build.projection(kind.rank, range(kind.rank))
    (scaled,) = build.generic(
        [scale, matrix],
        [build.empty(build.mixed_sizes(matrix), kind.element_type)],
        [build.projection(kind.rank, rows), identity, identity],
        [build.PARALLEL] * kind.rank,
        lambda s, x, _: arith.mulf(s, x),
    )
    return scaled


def _batch_matmul(lhs: ir.Value, rhs: ir.Value, out: ir.Value) -> ir.Value:
    return BatchMatmulOp(ir.StringAttr.get("nn"), lhs, rhs, out, result=out.type).result
