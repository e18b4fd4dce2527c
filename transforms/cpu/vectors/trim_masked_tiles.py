"""The pass ``trim-masked-tiles``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, memref, scf
from ....dialects.tiling import Index
from ....dialects.tiling.structured import body_names, indexing_maps
from ...linear import DYNAMIC
from ...online.masks import DeadTiles
from ...online.positions import Local, Scalar
from ...online.tile_forms import TileForms
from ...online.tile_sets import TileSets
from ...passes import Pass, option
from ...rewriting import defining_op, ops_in, ops_of, terminator
from ..blocks import subview
from ..initial_values import ALLOCATIONS, is_arithmetic, origin_of
from ..memory import VIEWS
from ..target import host_target
from .dead_values import LOW, Known, yielded
from .loop_indices import renumber
from .schedule import PART
from .tile_axes import Axis, TileAxes

ROWS, KEYS = "rows", "keys"
STEP = 16  # keys: two register tiles of 8 keys × a vector of rows


@dataclass(frozen=True)
class TrimMaskedTiles(Pass):
    """Computes of a tile that a mask cuts, for each vector of rows, only the keys from the first to the last live one::

        scf.for %k = … {
          linalg.generic {S[n, m] += K[n, d]·Q[d, m]} …                              // 64 keys × 64 rows
          linalg.generic {x = j <= i ? s : -inf; yield x, max(x, t)} outs(%s, %t)    // i = linalg.index 1 + %q, …
          …
          linalg.generic {O[d, m] += V[n, d]·P[n, m]} …
    becomes
        scf.for %k = … {
          scf.for %i = 0 to 64 step 16 {
            %low = …   %high = …                                                     // of the 16 rows from %i
            … the first op on subviews: 16 rows from %i, keys from %low to %high
          }
          scf.for %i = 0 to 64 step 16 { … those in between … }
          scf.for %i = 0 to 64 step 16 { … the last one … }

    The range comes from the IR that computes the mask (online/masks.py), for 16 keys at a time. A triangle then costs
    10/16 of its square. All ops of the tile have to treat a masked score as what is not there (dead_values.py), and
    rows apart from each other; the tile's scores and probabilities must be used by no one else. Keys may stand in
    pairs (`pair-contractions`), of which a range has half as many. What has no rows, such as a copy of the values in
    another type, stays as it is, between the loops. Contractions get the attribute `part`: to `vectorize-linalg` a few
    rows look like decoding, whose keys come from memory, but the first part leaves the keys in the cache.
    """

    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    def run(self, op: ir.Operation) -> None:
        by_block: dict[ir.Block, tuple[ir.Operation, int]] = {}  # one a block: its ops become others
        for generic in ops_in(op, "linalg.generic"):
            x = _scores(generic)
            if x is not None:
                by_block.setdefault(generic.block, (generic, x))
        for mask, x in by_block.values():
            tile = _Tile.of(mask, x, host_target(self.vector_bytes).vector_bytes)
            if tile is not None:
                tile.trim()


def _scores(generic: ir.Operation) -> int | None:
    """The output that is selected by a mask of indices, or none."""
    names = body_names(generic)
    if "linalg.index" not in names or "arith.select" not in names:
        return None
    first = len(generic.operands) - len(generic.opview.outputs)
    maps = indexing_maps(generic)
    return next((n for n in range(first, len(generic.operands)) if maps[n].is_permutation), None)


@dataclass
class _Tile:
    mask: ir.Operation  # the op that masks the scores
    x: int  # as its operand of that number
    ops: list[ir.Operation]
    axes: TileAxes
    lanes: int

    @staticmethod
    def of(mask: ir.Operation, x: int, vector_bytes: int) -> _Tile | None:
        """The tile of scores of which `x` is the mask's output, if it can be trimmed."""
        kind = mask.operands[x].type
        if not isinstance(kind, ir.MemRefType) or not isinstance(kind.element_type, ir.F32Type | ir.F64Type):
            return None
        lanes = vector_bytes * 8 // kind.element_type.width
        *outer, rows = list(kind.shape)
        keys = [d for d, size in enumerate(outer) if size != 1]
        if (
            len(keys) != 1
            or rows == DYNAMIC
            or rows <= lanes
            or rows % lanes
            or kind.get_strides_and_offset()[0][-1] != 1
        ):
            return None
        ops = ops_of(mask.block)
        found = [o for o in ops if o.name == "linalg.generic"]
        views = [o for o in ops if o.name in VIEWS]
        if not all(_is_known(o) for o in ops[:-1]) or ops[-1].operands:
            return None
        axes = TileAxes(found, mask.operands[x], {ROWS: len(outer), KEYS: keys[0]}, views)
        tile = _Tile(mask, x, found, axes, lanes)
        return tile if axes.consistent and tile._are_rows_apart() and tile._is_own() and tile._leaves_dead() else None

    def _has_rows(self, op: ir.Operation) -> bool:
        return ROWS in self.axes.loops[op]

    def _are_rows_apart(self) -> bool:
        for op in self.ops:
            dims = [self.axes.dims.get(out, {}) for out in op.opview.outputs]
            if self._has_rows(op) and not (self.axes.is_parallel(op, ROWS) and all(ROWS in d for d in dims)):
                return False
        axes = [d for dims in (*self.axes.dims.values(), *self.axes.loops.values()) for d in dims.items()]
        return all(STEP % axis.unit == 0 if name == KEYS else axis.unit == 1 for name, axis in axes)

    def _is_own(self) -> bool:
        """Whether what has keys and rows and is written is scratch of this tile: only ops on ranges of keys use it."""
        for op in filter(self._has_rows, self.ops):
            for out in op.opview.outputs:
                root = origin_of(out)
                if KEYS in self.axes.dims[out] and not (_is_scratch(root) and self._is_used_by_ranges(root, out)):
                    return False
        return True

    def _is_used_by_ranges(self, root: ir.Value, out: ir.Value) -> bool:
        pending = [root]
        while pending:
            value = pending.pop()
            for user in (use.owner.operation for use in value.uses):
                if user.name in VIEWS and user.block == self.mask.block:
                    pending += list(user.results)
                elif not (user in self.ops and self._has_rows(user) and KEYS in self.axes.dims.get(value, {})):
                    return False
        return _is_all_of(out, root)

    def _leaves_dead(self) -> bool:
        """Whether masked elements change nothing but elements of their own."""
        of_buffer: dict[ir.Value, Known] = {}
        for op in self.ops:
            operands = list(op.operands)
            first = len(operands) - len(op.opview.outputs)
            if KEYS not in self.axes.loops[op] or not self._has_rows(op):
                continue
            known: dict[int, Known] = {}
            for number, value in enumerate(operands):
                is_tile = KEYS in self.axes.dims.get(value, {})
                known[number] = of_buffer.get(origin_of(value)) if is_tile else number if number >= first else None
            body = op.regions[0].blocks[0]
            end = terminator(body)
            assumed: dict[ir.Value, Known] = {end.operands[self.x - first]: LOW} if op == self.mask else {}
            for number, what in enumerate(yielded(op, known, assumed), first):
                if KEYS in self.axes.dims[operands[number]]:
                    of_buffer[origin_of(operands[number])] = what
                elif what != number:
                    return False
        return True

    # The rewrite.

    def trim(self) -> None:
        place = terminator(self.mask.block)
        rows = self.mask.operands[self.x].type.shape[-1]
        made: list[ir.Operation] = []
        with ir.InsertionPoint(place), self.mask.location:
            for group in self._groups():
                if not self._has_rows(group[0]):
                    made.append(group[0].clone().operation)
                    continue
                loop = scf.ForOp(build.index(0), build.index(rows), build.index(self.lanes), [])
                made.append(loop.operation)
                with ir.InsertionPoint(loop.body):
                    found = self._live_keys(loop.induction_variable)
                    if found is not None:
                        low, high = found
                        starts = {ROWS: loop.induction_variable, KEYS: low}
                        self._emit(group, starts, {ROWS: self.lanes, KEYS: arith.subi(high, low)})
                    scf.YieldOp([])
                if found is None:  # nothing is to be trimmed
                    for op in reversed(made):
                        op.erase()
                    return
        for op in reversed(self.ops):
            op.erase()

    def _groups(self) -> list[list[ir.Operation]]:
        """Ops that go over the rows together: a contraction with what its accumulator starts from, and what is between.

        A contraction finds its keys or values in the cache for all rows but the first then. What has no rows is alone.
        """
        groups: list[list[ir.Operation]] = [[]]
        for op in self.ops:
            if not self._has_rows(op):
                groups += [[op], []]
            elif len(op.opview.inputs) == 2 and not all("parallel" in str(t) for t in op.attributes["iterator_types"]):
                start: list[ir.Operation] = []
                while groups[-1] and list(groups[-1][-1].opview.outputs) == list(op.opview.outputs):
                    start.insert(0, groups[-1].pop())
                groups += [[*start, op], []]
            else:
                groups[-1].append(op)
        return [group for group in groups if group]

    def _live_keys(self, row: ir.Value) -> tuple[ir.Value, ir.Value] | None:
        """The first live key of the rows from `row` on and what follows the last one; None if that is all of them."""
        x = self.mask.operands[self.x]
        d = self.axes.dims[x][KEYS].number
        size = memref.dim(x, build.index(d)) if x.type.is_dynamic_dim(d) else build.index(x.type.shape[d])
        keys = scf.ForOp(build.index(0), size, build.index(STEP), []).operation  # what is asked of: steps along keys
        with ir.InsertionPoint(keys.regions[0].blocks[0]):
            scf.YieldOp([])
        sets = TileSets(keys)
        loops = self.axes.loops[self.mask]
        n_loops = indexing_maps(self.mask)[0].n_dims
        sizes = [[Index(1)] for _ in range(n_loops)]
        position = [Index(0)] * n_loops
        for name, start, extent in ((ROWS, row, self.lanes), (KEYS, sets.variable, STEP)):
            loop = loops[name].number
            sizes[loop] = [Index(extent)]
            position[loop] = Index(0, ((Local(loop), 1), (start, 1)))
        body = self.mask.regions[0].blocks[0]
        *_, end = ops_of(body)
        first = len(self.mask.operands) - len(self.mask.opview.outputs)
        score = Scalar(end.operands[self.x - first], tuple(position))
        live = sets.complement(DeadTiles(TileForms(sets, sizes)).dead(score).tiles)
        low, high = (live[0][0], live[-1][1]) if live else (0, 0)
        found = None if live == sets.all else (sets.value(low), sets.value(high))
        keys.erase()
        return found

    def _emit(self, ops: list[ir.Operation], starts: dict[str, ir.Value], sizes: dict[str, int | ir.Value]) -> None:
        """The ops on the part of the tile that starts there, of these sizes."""
        parts: dict[ir.Value, ir.Value] = {}
        for op in ops:
            for operand in op.operands:
                if operand in self.axes.dims and operand not in parts:
                    parts[operand] = _part(operand, self.axes.dims[operand], starts, sizes)
            copy = op.clone().operation
            for number, operand in enumerate(op.operands):
                copy.operands[number] = parts.get(operand, operand)
            if len(op.opview.inputs) == 2:
                copy.attributes[PART] = ir.UnitAttr.get()
            _move_indices(copy, self.axes.loops[op], starts)


def _move_indices(op: ir.Operation, loops: dict[str, Axis], starts: dict[str, ir.Value]) -> None:
    by_loop = {axis.number: (starts[name], axis.unit) for name, axis in loops.items()}

    def moved(loop: int, number: ir.Value) -> ir.Value | None:
        return arith.addi(number, _steps(*by_loop[loop])) if loop in by_loop else None

    renumber(ops_of(op.regions[0].blocks[0]), moved)


def _steps(extent: int | ir.Value, unit: int) -> int | ir.Value:
    """How many steps of `unit`, which divides it, an extent has."""
    if isinstance(extent, int) or unit == 1:
        return extent if unit == 1 else extent // unit
    return arith.divui(extent, build.index(unit))


def _is_scratch(root: ir.Value) -> bool:
    made = defining_op(root)
    return made is not None and made.name in ALLOCATIONS


def _is_all_of(view: ir.Value, root: ir.Value) -> bool:
    """Whether a view of scratch leaves no rows out."""
    op = defining_op(view)
    while view != root and op is not None:
        if op.name == "memref.subview" and any(step != 1 for step in op.attributes["static_strides"]):
            return False
        view = op.operands[0]
        op = defining_op(view)
    return True


def _is_known(op: ir.Operation) -> bool:
    if op.name == "linalg.generic":
        return all(isinstance(v.type, ir.MemRefType) or not isinstance(v.type, ir.ShapedType) for v in op.operands)
    return op.name in VIEWS or op.name == "memref.dim" or is_arithmetic(op)


def _part(
    buffer: ir.Value, dims: dict[str, Axis], starts: dict[str, ir.Value], sizes: dict[str, int | ir.Value]
) -> ir.Value:
    kind = buffer.type
    offsets: list[int | ir.Value] = [0] * kind.rank
    extents: list[int | ir.Value] = [
        memref.dim(buffer, build.index(d)) if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank)
    ]
    for name, axis in dims.items():
        offsets[axis.number], extents[axis.number] = _steps(starts[name], axis.unit), _steps(sizes[name], axis.unit)
    layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), kind.get_strides_and_offset()[0])
    return subview(buffer, layout, offsets, extents)
