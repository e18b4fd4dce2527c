"""The pass ``pair-contractions``."""

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg, memref
from ....dialects.pair import PackOp, ProductOp, ViewOp, WidenOp
from ...copying import copy_body
from ...host import matrix_unit
from ...linear import upper_bound
from ...passes import Pass, option, remark
from ...rewriting import ancestors, defining_op, ops_in
from ..blocks import Block, part_of, subview
from ..initial_values import find_starts
from ..matrix_unit import MATRIX_OPTION, Product, product_of
from ..memory import FRAMES, element_bytes, has_identity_layout, in_frame
from ..structured import NO_LOOP, Operand, Structured, Unsupported
from .buffer_parts import hoisted, size_of, source_of
from .multiples import is_multiple
from .pair_panels import SharedPanels, Source, pack_here, part_of_panel
from .pair_producers import find_producer, rows_of_pairs, write_pairs
from .schedule import pays_to_copy
from .tile_panels import Extent, halved, if_else, tiles_of
from .unit_dimensions import Expanded, as_part

BF16_BYTES = 2
MOST_BYTES = 256 * 1024  # of a panel on the stack, which has a few megabytes
SPREAD = 4  # from one row to the next, in rows, from which on they are copied next to each other

TransposedPanels = dict[tuple, ir.Value]  # in front of all loops of a task, which each of them uses


@dataclass(frozen=True)
class PairContractions(Pass):
    """Multiplies bf16 in pairs along the sum, where the CPU has an instruction for it (AVX512-BF16), and no tiles::

        linalg.generic {S[n, m] += Q[m, d]·K[n, d]} ins(%q, %k : memref<64x64xbf16>, memref<128x64xbf16>)
                                                    outs(%s : memref<128x64xf32>)
    becomes
        %kw = pair.view %k : (memref<128x64xbf16>) -> (memref<128x32xi32>)
        %qw = pair.view %q : …
        linalg.generic {…} ins(%qw) outs(%panel : memref<32x64xi32>)                # transposed, once per block
        linalg.generic {S[n, m] += Q[p, m]·K[n, p]} ins(%panel, %kw) outs(%s) {
          pair.product
          arith.addf

    Half the steps and half the loads. An operand that is contiguous along another loop than the sum has its rows
    interleaved: by the op that computes it (P, `pair_producers`); into a panel, before the tasks if they share it (V,
    `pair_panels`), else in them; or, where it is read too seldom for that, in registers, as it is multiplied. In the
    same places floats of 8 bits become bf16, which all of them are. What cannot be paired stays for `vectorize-linalg`,
    in f32: as the last of an odd number of rows that would be joined in registers, which is added after the pairs::

        linalg.generic {O[m, d] += P[m, n]·V[n, d]} ins(%p, %v : memref<4x?xbf16>, memref<?x64xbf16>) outs(%o)
    becomes
        linalg.generic {O[m, d] += P[m, p]·(V0[p, d], V1[p, d])} ins(%pw, %v0, %v1 : memref<4x?xi32, …>, …) outs(%o)
        scf.if %odd {
          linalg.generic {O[m, d] += P[m, 0]·V[0, d]} ins(%last_p, %last_v : memref<4x1xbf16, …>, …) outs(%o)

    so that a loop over tiles of keys needs no other body for a last, cut tile.
    """

    matrix: str = option(MATRIX_OPTION, "")

    def run(self, op: ir.Operation) -> None:
        if matrix_unit(self.matrix) != "dot":
            return
        panels = SharedPanels()
        transposed: TransposedPanels = {}
        expanded: Expanded = {}
        for generic in ops_in(op, "linalg.generic"):
            product = None if generic.results else product_of(generic)
            if product is None or not _is_of_bf16(generic):
                continue
            for number in range(2):
                generic.operands[number] = as_part(generic.operands[number], expanded)
            try:
                _Pairing(Structured(generic), product, panels, transposed).apply()
            except Unsupported as reason:
                remark(generic, f"not multiplied in pairs: {reason}")


def _is_of_bf16(generic: ir.Operation) -> bool:
    first, second, out = (v.type.element_type for v in generic.operands)
    return build.is_in_bf16(first) and build.is_in_bf16(second) and isinstance(out, ir.F32Type)


class _Pairing:
    """One contraction: how its factors become words, and what takes its place."""

    def __init__(self, op: Structured, product: Product, panels: SharedPanels, transposed: TransposedPanels):
        self.op, self.panels, self.transposed = op, panels, transposed
        self.k = max(product.summed, key=lambda d: op.sizes[d] or 1 << 30)
        self.lanes = op.outputs[0].dims[-1] if op.outputs[0].dims else NO_LOOP
        self.joined: list[int] = []  # operands of which two rows are joined in registers
        self.has_rest = False  # of joined rows the last may have no partner, and no memory where that would be
        self.frame = next(a for a in ancestors(op.op) if a.name in FRAMES)

    def apply(self) -> None:
        inputs = [o for o in self.op.operands if not o.is_output]
        starts = list(find_starts(self.op).values())
        old = self.op.op
        with ir.InsertionPoint(old), old.location:
            for operand in inputs:
                self._check(operand)  # makes ops, too: where parts start
            factors = [
                (rows_of_pairs(operand, self.k), list(operand.dims))
                if operand.number in self.joined
                else self._words(operand)
                for operand in inputs
            ]
            if self.has_rest:
                factors = [
                    (parts if len(parts) == 2 else [self._whole_pairs(parts[0], dims)], dims) for parts, dims in factors
                ]
            for start in starts:  # right before the sums that start from it, after what is packed
                start.move_before(old)
            self._multiply(factors)
            if self.has_rest:
                self._add_rest()
        values = [o.value for o in inputs]
        old.erase()
        for value in values:
            made = defining_op(value)
            while made is not None and made.name in ("memref.subview", "memref.expand_shape"):
                value = made.operands[0]
                if list(made.results[0].uses):
                    break
                made.erase()
                made = defining_op(value)

    # --- which operands can be read in pairs

    def _check(self, operand: Operand) -> None:
        """Raises Unsupported unless the operand's words can be had, and are worth it; notes what is to be joined."""
        if not operand.dims or operand.strides[-1] != 1:
            raise Unsupported("a factor whose rows are not contiguous")
        if self._is_in_place(operand):
            return
        if not pays_to_copy(self.op, operand):
            if operand.dims[-1] != self.lanes or self.op.sizes[self.k] == 1:
                raise Unsupported("a factor that would have to be copied for few uses")
            self.joined.append(operand.number)
            self.has_rest = (self.op.sizes[self.k] or 1) % 2 == 1
            return
        if not self._fits(operand) and not self.panels.can_have(operand.value, operand.dims.index(self.k)):
            raise Unsupported("a factor that has no bound, or is larger than the stack of a task")

    def _is_in_place(self, operand: Operand) -> bool:
        """True if pairs stand side by side, each in a word of the buffer, and are read there.

        Floats of 8 bits that are used often are better copied: then they become bf16 once.
        """
        if build.is_float8(operand.element) and pays_to_copy(self.op, operand):
            return False
        kind = operand.value.type
        if operand.dims[-1] != self.k or kind.is_dynamic_dim(kind.rank - 1) or kind.get_dim_size(kind.rank - 1) % 2:
            return False
        found = source_of(operand.value)
        if found is None:
            return False
        root, offsets = found
        whole = root.type
        last = whole.rank - 1
        if whole.is_dynamic_dim(last) or whole.get_dim_size(last) % 2 or not is_multiple(offsets[last], 2):
            return False
        strides, start = whole.get_strides_and_offset()
        return has_identity_layout(whole) or all(s % 2 == 0 and s > 0 for s in [start or 2, *strides[:-1]])

    def _is_spread(self, operand: Operand) -> bool:
        """True if rows are so far apart that many of them fall on few sets of the cache, and often used."""
        kind = operand.value.type
        pitches = [s for d, s in enumerate(operand.strides[:-1]) if kind.is_dynamic_dim(d) or kind.get_dim_size(d) > 1]
        is_far = any(s < 0 or s >= SPREAD * kind.get_dim_size(kind.rank - 1) for s in pitches)
        return is_far and pays_to_copy(self.op, operand)

    def _bounds(self, operand: Operand) -> list[int | None]:
        """The largest size of each dimension."""
        kind = operand.value.type
        bounds: list[int | None] = []
        for d in range(kind.rank):
            extent = size_of(operand.value, d) if kind.is_dynamic_dim(d) else kind.get_dim_size(d)
            bounds.append(None if extent is None else upper_bound(extent))
        return bounds

    def _fits(self, operand: Operand) -> bool:
        """Whether a panel of it may be on the stack of a task."""
        bounds = self._bounds(operand)
        return None not in bounds and math.prod(bounds) * BF16_BYTES <= MOST_BYTES

    # --- words

    def _words(self, operand: Operand) -> tuple[list[ir.Value], list[int]]:
        """The operand as words, and the loops of its dimensions."""
        dims = list(operand.dims)
        is_lanes = self.lanes in operand.loops and dims[-1] == self.k
        # What stands in pairs and is larger than a panel on the stack may be is gathered in place.
        if is_lanes and pays_to_copy(self.op, operand) and self._fits(operand):
            return self._transposed(operand)
        return [self._paired(operand)], dims

    def _paired(self, operand: Operand) -> ir.Value:
        value, position = operand.value, operand.dims.index(self.k)
        scratch = self._in_whole_words(operand) if self.has_rest else None
        if scratch is not None:
            return scratch
        in_place = self._is_in_place(operand)
        shared = self.panels.part(value, position) if not in_place or self._is_spread(operand) else None
        if shared is not None:
            return shared
        if in_place:
            return ViewOp(value, words=_words_type(value.type)).result
        sizes = build.mixed_sizes(value)
        producer = find_producer(value, position, self.op.op)
        bounds = [bound or 1 for bound in self._bounds(operand)]
        shape = Source(value, position, [0] * len(bounds), bounds).panel_extents()
        panel, zeros = in_frame(self.frame, shape, ir.IntegerType.get_signless(32)), [0] * len(sizes)
        counts = [tiles_of(s, 2) if d == position else s for d, s in enumerate(sizes)]
        if producer is not None:
            with ir.InsertionPoint(producer.op):
                words = part_of_panel(panel, zeros, counts)
            write_pairs(producer, value, position, words)
            return words
        with hoisted(value, sizes, self.frame):
            if self.has_rest:  # which is not read in pairs
                sizes[position] = _times(halved(sizes[position]), 2)
            pack_here(Source(value, position, zeros, sizes), panel)
        return part_of_panel(panel, zeros, counts)

    def _transposed(self, operand: Operand) -> tuple[list[ir.Value], list[int]]:
        """The words with the lanes innermost, copied where the operand does not change."""
        inner = [operand.dims.index(d) for d in (self.k, self.lanes)]
        order = [i for i in range(len(operand.dims)) if i not in inner] + inner
        dims = [operand.dims[i] for i in order]
        key = (self.frame, *_place(operand.value), tuple(order), self.has_rest)
        known = self.transposed.get(key)
        if known is not None:
            return [known], dims
        bounds = [bound or 1 for bound in self._bounds(operand)]
        bounds[operand.dims.index(self.k)] = -(-bounds[operand.dims.index(self.k)] // 2)
        panel = in_frame(self.frame, [bounds[d] for d in order], ir.IntegerType.get_signless(32))
        before = ir.InsertionPoint.current.block
        with hoisted(operand.value, build.mixed_sizes(operand.value), self.frame):
            words = self._paired(operand)
            sizes = build.mixed_sizes(words)
            whole = part_of_panel(panel, [0] * len(order), [sizes[d] for d in order])
            n = len(order)
            maps = [build.projection(n, [order.index(d) for d in range(n)]), build.projection(n, range(n))]
            build.generic([words], [whole], maps, [build.PARALLEL] * n, lambda x, _: x)
            place = ir.InsertionPoint.current.block
        if place != before and place.owner.operation == self.frame:
            self.transposed[key] = whole
        return [whole], dims

    # --- the contraction

    def _multiply(self, factors: list[tuple[list[ir.Value], list[int]]]) -> None:
        """The contraction of factors that are words, or even and odd rows to be joined."""
        op = self.op.op
        n = self.op.n_loops
        zero = ir.AffineExpr.get_constant(0)
        values, maps = [], []
        for parts, dims in factors:
            map_ = ir.AffineMap.get(n, 0, [zero if d == NO_LOOP else ir.AffineExpr.get_dim(d) for d in dims])
            values += parts
            maps += [ir.AffineMapAttr.get(map_)] * len(parts)
        maps.append(op.attributes["indexing_maps"][2])
        new = linalg.GenericOp([], values, [op.operands[2]], ir.ArrayAttr.get(maps), op.attributes["iterator_types"])
        f32, i32 = ir.F32Type.get(), ir.IntegerType.get_signless(32)
        block = new.regions[0].blocks.append(*[v.type.element_type for v in values], f32)
        with ir.InsertionPoint(block):
            *arguments, total = block.arguments
            words = []
            for operand, (parts, _) in zip(self.op.operands, factors, strict=False):
                own, arguments = arguments[: len(parts)], arguments[len(parts) :]
                if len(own) == 2:
                    words.append(PackOp(*(arith.extf(f32, x) for x in own), word=i32).result)
                elif own[0].type != i32:
                    words.append(WidenOp(ir.TypeAttr.get(operand.element), own[0], word=i32).result)
                else:
                    words.append(own[0])
            linalg.YieldOp([arith.addf(total, ProductOp(*words, sum=f32).result)])

    # --- what has no partner

    def _in_whole_words(self, operand: Operand) -> ir.Value | None:
        """The words of scratch whose rows may have an odd number of elements: rows get room for the most they can have,
        so that each starts with a word. None for what is not bf16 in scratch, or of a size that is not seen."""
        view, kind, bounds = defining_op(operand.value), operand.value.type, self._bounds(operand)
        if view is None or view.name != "memref.view" or build.constant_value(view.operands[1]) != 0:
            return None
        shape = [bound for bound in bounds if bound is not None]
        if operand.dims[-1] != self.k or len(shape) < kind.rank or shape[-1] % 2 or build.is_float8(operand.element):
            return None
        room, element = view.operands[0].type.get_dim_size(0), element_bytes(operand.element)
        if element is None or math.prod(shape) * element > room:
            return None
        if any(use.owner.operation.name != "linalg.generic" for use in operand.value.uses):
            return None
        dynamic = iter(list(view.operands)[2:])
        sizes = [next(dynamic) if kind.is_dynamic_dim(d) else kind.get_dim_size(d) for d in range(kind.rank)]
        with ir.InsertionPoint(view), view.location:
            wide = memref.ViewOp(ir.MemRefType.get(shape, operand.element), *list(view.operands)[:2], []).result
            part = part_of_panel(wide, [0] * kind.rank, sizes)
        operand.value.replace_all_uses_with(part)
        operand.value = part
        view.erase()
        return ViewOp(wide, words=_words_type(wide.type)).result

    def _whole_pairs(self, words: ir.Value, dims: list[int]) -> ir.Value:
        sizes = build.mixed_sizes(words)
        sizes[dims.index(self.k)] = halved(self._count())
        strides, start = words.type.get_strides_and_offset()
        return subview(words, ir.StridedLayoutAttr.get(start, strides), [0] * len(sizes), sizes)

    def _count(self) -> Extent:
        """How many products a sum has."""
        size = self.op.sizes[self.k]
        return self.op.size(self.k) if size is None else size

    def _add_rest(self) -> None:
        """Adds the product that no pair has, if there is one."""
        size = self._count()
        if isinstance(size, int):
            self._add_last(build.index(size - 1))
            return
        is_odd = arith.cmpi(arith.CmpIPredicate.ne, arith.remui(size, build.index(2)), build.index(0))
        if_else(is_odd, lambda: self._add_last(arith.subi(size, build.index(1))))

    def _add_last(self, at: ir.Value) -> None:
        """Adds the products of one place along the sum: no contraction any more, for which there would be more code."""
        loops = [d for d in range(self.op.n_loops) if d != self.k]
        zero = ir.AffineExpr.get_constant(0)
        places = {d: ir.AffineExpr.get_dim(i) for i, d in enumerate(loops)}
        maps = [ir.AffineMap.get(len(loops), 0, [places.get(d, zero) for d in o.dims]) for o in self.op.operands]
        *ins, out = [part_of(o, {self.k: Block(at, 1)}) for o in self.op.operands]
        body = self.op.body

        def products(*scalars: ir.Value) -> list[ir.Value]:
            return copy_body(body, dict(zip(body.arguments, scalars, strict=True)))

        build.generic(ins, [out], maps, [self.op.iterators[d] for d in loops], products)


def _times(size: Extent, factor: int) -> Extent:
    return size * factor if isinstance(size, int) else arith.muli(size, build.index(factor))


def _place(value: ir.Value) -> tuple:
    """Equal for parts of one buffer that start in the same place and have the same type."""
    found = source_of(value)
    if found is None:
        return (value,)
    root, offsets = found
    return root, value.type, tuple(("at" if isinstance(x, int) else "value", x) for x in offsets)


def _words_type(kind: ir.MemRefType) -> ir.MemRefType:
    strides, _ = kind.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    halved = [s if s == dynamic else s // 2 for s in strides[:-1]] + [1]
    shape = [*kind.shape[:-1], kind.shape[-1] // 2]
    word = ir.IntegerType.get_signless(2 * kind.element_type.width)
    return ir.MemRefType.get(shape, word, ir.StridedLayoutAttr.get(0, halved))
