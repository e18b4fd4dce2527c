"""The pass ``pack-contractions``."""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir, memref
from ....dialects.tiling.structured import indexing_maps
from ...passes import Pass, option
from ...rewriting import ancestors
from ..blocks import Block, loop_nest, part_of, subview, with_operands
from ..initial_values import find_starts
from ..memory import ALIGNMENT, FRAMES, element_bytes
from ..structured import NO_LOOP, Operand, Structured, reductions_in
from ..target import LINE, host_target
from .schedule import LIKELY_SIZE, Schedule, choose, is_scratch, pays_to_copy, size_of

COPIED = 256  # the most rows, and columns, of a copied block
SMALL = 8192  # elements, as of the queries of all heads that are read side by side: 32 KB of the L1 cache


@dataclass(frozen=True)
class PackContractions(Pass):
    """Copies the operand that a contraction reads along the lanes into contiguous panels that stay in the L1 cache::

        linalg.generic {C[m, n] += A[m, k]·B[n, k]} ins(%a, %b) outs(%c : memref<64x128xf32>)
    becomes
        %bytes = memref.alloca() {alignment = 64} : memref<32768xi8>                # shared by all panels of a task
        %panel = memref.view %bytes[%c0][] : memref<32768xi8> to memref<128x64xf32>
        scf.for %n = %c0 to %c128 step %c64 {
          scf.for %k = … step %c128 {
            linalg.generic {…} ins(%b[%n.., %k..]) outs(%panel)                  # transposes, extends f16 to f32
            linalg.generic {C[m, n] += A[m, k]·B[k, n]} ins(%a[.., %k..], %panel) outs(%c[.., %n..])
          }
        }

    A panel is as wide as the register tile. It is needed where B is contiguous along k, or narrower than computed
    with, or where its rows are far apart: those of a wide matrix fall on the same few sets of the cache.
    """

    panel_bytes: int = option("bytes of a packed panel", 32 * 1024)
    vector_bytes: int = option("bytes of a vector; 0 = what the host has", 0)

    @functools.cached_property
    def _shared(self) -> list[tuple[ir.Operation, str, ir.Operation]]:
        """The frames that have memory for panels, for what, and its alloca."""
        return []

    def run(self, op: ir.Operation) -> None:
        target = host_target(self.vector_bytes)
        self._shared.clear()
        for structured in reductions_in(op):
            generic, schedule = structured.op, choose(structured, target)
            starts = find_starts(structured).values()
            copied = _copying(structured, schedule)
            if copied is not None:
                with ir.InsertionPoint(generic), generic.location:
                    new = self._copy(structured, copied)
                generic.erase()
                structured = Structured(new)
            packing = packed_operand(structured, schedule)
            if packing is not None:
                generic = structured.op
                with ir.InsertionPoint(generic), generic.location:
                    new = self._pack(structured, packing, schedule)
                generic.erase()
                structured = Structured(new)
            for start in starts:  # right before the sums that start from it, after what is copied
                if start.block == structured.op.block:
                    start.move_before(structured.op)

    def _copy(self, op: Structured, copied: Operand) -> ir.Operation:
        """Copies blocks of an operand whose elements are broadcast, in their order, with lines apart in the cache."""
        element = _packed_type(op, copied)
        others, matrix = _matrix(op, copied)
        dims = others + matrix
        with loop_nest(op, [*((d, 1) for d in others), *((d, COPIED) for d in matrix)]) as blocks:
            extents = [blocks[d].extent if d in blocks else op.sizes[d] for d in matrix]
            shape = [min(COPIED, op.sizes[d] or COPIED) for d in matrix]
            per_line = LINE // (element_bytes(element) or 1)
            pitch = (-(-shape[-1] // per_line) | 1) * per_line  # an odd number of lines: rows fall on all sets
            panel = self._panel(op.op, [*shape[:-1], pitch], element, "copy")
            strides = [pitch * math.prod(shape[d + 1 : -1]) for d in range(len(shape) - 1)]
            layout = ir.StridedLayoutAttr.get(0, [*strides, 1])
            tile = subview(panel, layout, [0] * len(shape), extents)
            n = len(dims)
            source = [ir.AffineExpr.get_constant(0) if d == NO_LOOP else None for d in copied.dims]
            for position, d in enumerate(copied.dims):
                if d != NO_LOOP:
                    source[position] = ir.AffineExpr.get_dim(dims.index(d))
            kinds = [build.REDUCTION] * (n - len(shape)) + [build.PARALLEL] * len(shape)
            maps = [ir.AffineMap.get(n, 0, source), build.projection(n, range(n - len(shape), n))]
            build.generic([part_of(copied, blocks)], [tile], maps, kinds, lambda x, _: build.convert(x, element))
            values = [tile if o is copied else part_of(o, blocks) for o in op.operands]
            maps = indexing_maps(op.op)
            maps[copied.number] = build.projection(op.n_loops, matrix)
            _retype(op, copied, element)
            return with_operands(op, values, maps).operation

    def _pack(self, op: Structured, packed: Operand, schedule: Schedule) -> ir.Operation:
        v = schedule.vector_loop
        width = schedule.unroll.get(v, 1) * schedule.lanes
        summed = [d for d in packed.dims if d != NO_LOOP and not op.is_parallel(d)]
        k = _deepest(op, summed)
        element = _packed_type(op, packed)
        depth = max(16, self.panel_bytes // (width * (element_bytes(element) or 1)))
        depth = min(depth, op.sizes[k] or depth)
        others = [(d, 1) for d in packed.dims if d not in (NO_LOOP, v, k)]

        panel = self._panel(op.op, [depth, width], element, "panel")
        with loop_nest(op, [*others, (v, width), (k, depth)]) as blocks:
            for d in (v, k):
                size = op.sizes[d]
                if d not in blocks and size is not None:
                    blocks[d] = Block(build.index(0), size)
            sizes = [blocks[k].extent, blocks[v].extent]
            layout = ir.StridedLayoutAttr.get(0, [width, 1])
            tile = panel if sizes == [depth, width] else subview(panel, layout, [0, 0], sizes)
            source_dims = [d for d in packed.dims if d != NO_LOOP]
            order = [*(d for d in source_dims if d not in (k, v)), k, v]
            position = {d: order.index(d) for d in order}
            source_map = ir.AffineMap.get(
                len(order),
                0,
                [
                    ir.AffineExpr.get_constant(0) if d == NO_LOOP else ir.AffineExpr.get_dim(position[d])
                    for d in packed.dims
                ],
            )
            target_map = build.projection(len(order), [position[k], position[v]])
            kinds = [build.PARALLEL if d in (k, v) else build.REDUCTION for d in order]
            build.generic(
                [part_of(packed, blocks)],
                [tile],
                [source_map, target_map],
                kinds,
                lambda x, _: build.convert(x, element) if x.type != element else x,
            )
            values = [tile if o is packed else part_of(o, blocks) for o in op.operands]
            maps = indexing_maps(op.op)
            maps[packed.number] = build.projection(op.n_loops, [k, v])
            _retype(op, packed, element)
            return with_operands(op, values, maps).operation

    def _panel(self, op: ir.Operation, shape: list[int], element: ir.Type, role: str) -> ir.Value:
        """A buffer on the stack of the function or parallel task around `op`; those of a role take turns in it."""
        frame = next(a for a in ancestors(op) if a.name in FRAMES)
        needed = math.prod(shape) * (element_bytes(element) or 1)
        storage = next((a for f, r, a in self._shared if f == frame and r == role), None)
        if storage is None or storage.results[0].type.get_dim_size(0) < needed:
            flat = ir.MemRefType.get([max(needed, self.panel_bytes)], ir.IntegerType.get_signless(8))
            with ir.InsertionPoint.at_block_begin(frame.regions[0].blocks[0]), op.location:
                storage = memref.AllocaOp(flat, [], [], alignment=ALIGNMENT).operation
            self._shared.append((frame, role, storage))
        return memref.ViewOp(ir.MemRefType.get(shape, element), storage.results[0], build.index(0), []).result


def _copying(op: Structured, schedule: Schedule) -> Operand | None:
    """The operand to be copied, if it is narrow: it is converted once instead of in every use. One whose elements are
    broadcast, or, where lanes run along the sum, one that is read along them.

    Rows that fall on few sets of the L1 cache alone are no reason: to fetch their lines again from L2 is faster.
    """
    v = schedule.vector_loop
    if len(op.outputs) != 1 or v == NO_LOOP:
        return None
    for operand in op.operands:
        if operand.is_output or operand.is_scalar or not pays_to_copy(op, operand):
            continue
        if op.is_parallel(v) == (v in operand.loops):
            continue
        dims = [d for d in operand.dims if d != NO_LOOP]
        summed = [d for d in dims if not op.is_parallel(d)]
        if not summed or operand.stride_kind(dims[-1]) != "unit":
            continue
        if not _are_told(op, operand, _matrix(op, operand)[0]):
            continue
        if _packed_type(op, operand) != operand.element:
            return operand
    return None


def _matrix(op: Structured, operand: Operand) -> tuple[list[int], list[int]]:
    """The loops of an operand: the outer ones, and those of what is copied at once: all of them if it is small, else
    the contiguous one and the largest."""
    *outer, last = [d for d in operand.dims if d != NO_LOOP]
    wide = [d for d in outer if op.sizes[d] != 1]
    if len(wide) > 1 and math.prod(op.sizes[d] or COPIED for d in (*wide, last)) <= SMALL:
        return [d for d in outer if d not in wide], [*wide, last]
    rows = max(outer, key=lambda d: size_of(op, d), default=None)
    return [d for d in outer if d != rows], [last] if rows is None else [rows, last]


def _are_told(op: Structured, operand: Operand, loops: Iterable[int]) -> bool:
    """True if other operands than this one, whose copy lacks these loops, tell how far they go."""
    others = [o for o in op.operands if o is not operand]
    return all(any(d in o.loops for o in others) for d in loops)


def packed_operand(op: Structured, schedule: Schedule) -> Operand | None:
    """The operand to pack, if packing pays."""
    if len(op.outputs) != 1 or not op.reductions:
        return None
    inputs = [o for o in op.operands if not o.is_output and not o.is_scalar]
    v = schedule.vector_loop
    if v == NO_LOOP or not op.is_parallel(v) or len(inputs) < 2:
        return None
    along = [o for o in inputs if v in o.loops]
    if len(along) != 1 or v not in op.outputs[0].loops or op.outputs[0].stride_kind(v) != "unit":
        return None
    packed = along[0]
    summed = [d for d in packed.dims if d != NO_LOOP and not op.is_parallel(d)]
    if not pays_to_copy(op, packed) or not summed:
        return None
    if not _are_told(op, packed, packed.loops - {v, _deepest(op, summed)}):
        return None
    width = schedule.unroll.get(v, 1) * schedule.lanes
    if packed.stride_kind(v) == "strided" or _packed_type(op, packed) != packed.element:
        return packed
    pitches = [packed.strides[packed.dims.index(d)] for d in summed]
    if all(0 < p <= 2 * width for p in pitches):
        return None
    apart = packed.strides[-2] * (element_bytes(packed.element) or 0) if len(packed.strides) > 1 else 0
    return None if is_scratch(packed) and falls_on_all_sets(apart) else packed


def falls_on_all_sets(apart: int) -> bool:
    """True if rows that are so many bytes apart, an odd number of lines, fall on all sets of a cache in turn."""
    return apart > 0 and apart % (2 * LINE) == LINE


def _deepest(op: Structured, summed: list[int]) -> int:
    return max(summed, key=lambda d: op.sizes[d] or LIKELY_SIZE**2)


def _packed_type(op: Structured, packed: Operand) -> ir.Type:
    """f32 for a narrow operand whose every use extends it."""
    if not build.is_narrow(packed.element):
        return packed.element
    uses = list(op.body.arguments[packed.number].uses)
    f32 = ir.F32Type.get()
    if all(u.owner.operation.name == "arith.extf" and u.owner.operation.results[0].type == f32 for u in uses):
        return f32
    return packed.element


def _retype(op: Structured, packed: Operand, element: ir.Type) -> None:
    """Makes the body take `element` for the packed operand; the extensions of it fall away."""
    argument = op.body.arguments[packed.number]
    if argument.type == element:
        return
    extensions = [u.owner.operation for u in argument.uses]
    argument.set_type(element)
    for extension in extensions:
        extension.results[0].replace_all_uses_with(argument)
        extension.erase()
