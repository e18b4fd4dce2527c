"""Emits a contraction on buffers in blocks of 32 × 32 sums, as a matrix unit computes them.

    C[m, n] += A[m, k]·B[k, n]

A is read where it stands, if its rows are contiguous, else from a panel, as is what is left of its rows beyond whole
tiles; B always comes from a panel of pairs (`tile_panels`, `prepack`). A block that is cut off by an edge is computed
whole in a scratch block. A dynamic size that has a bound, such as what is left of a tile of keys, is tested for being
the bound: the code for that case has constant sizes. How a block is computed stands in `amx`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, vector
from ...host import cache_bytes
from ...linear import upper_bound
from ...rewriting import ancestors
from ..blocks import loop_nest, part_of
from ..matrix_unit import DEPTH, PAIRS, ROWS, Product, is_native
from ..memory import FRAMES, in_frame
from ..structured import Operand, Structured, Unsupported
from . import amx
from .block_sums import Block, PackedRows, Place, Rows, RowsInPlace
from .buffer_parts import hoisted, size_of
from .prepack import Panel, Prepacking
from .tile_panels import Extent, Matrix, for_each, if_else, pack_pairs, pack_rows, parts_of, plus

BLOCK = 2 * ROWS
NARROW, WIDE = 2, 4  # bytes of a factor, of a sum
LARGEST = {"m": 64, "n": 512, "k": 512}  # of a part that is packed at once


@dataclass(frozen=True)
class Roles:
    """Which loops and operands are what; loops in neither of m, n and k run one by one."""

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand


def roles_of(op: Structured, product: Product) -> Roles:
    """Columns are what the sums are contiguous along. Raises Unsupported where they are contiguous along neither."""
    first, second, c = op.operands
    n = c.dims[-1] if c.dims else -1
    if c.strides[-1] != 1 or not isinstance(c.element, ir.F32Type):
        raise Unsupported("sums that are not contiguous numbers of f32")
    if n in product.only_second:
        rows, a, b = product.only_first, first, second
    elif n in product.only_first:
        rows, a, b = product.only_second, second, first
    else:
        raise Unsupported("sums that are contiguous along a loop of both factors")

    def size(d: int) -> float:
        found = op.sizes[d]
        return float("inf") if found is None else found

    return Roles(max(rows, key=size), n, max(product.summed, key=size), a, b, c)


class BlockedProduct:
    """One contraction; `from_zero`: the sums start from zero, else from what C holds."""

    def __init__(self, op: Structured, roles: Roles, from_zero: bool, unit: str, prepacking: Prepacking):
        self.op, self.roles, self.from_zero, self.prepacking = op, roles, from_zero, prepacking
        self.f32 = ir.F32Type.get()
        own = roles.a.element
        is_one = own == roles.b.element and is_native(unit, own) and not build.is_float8(own)
        self.kind = own if is_one else ir.BF16Type.get()
        self.parts = parts_of(own, self.kind)
        self.unit: Callable[[Block], None] = amx.Tiles(self.kind).emit

    # --- sizes

    def emit(self) -> None:
        """Emits it at the insertion point."""
        r, op = self.roles, self.op
        bounds = {d: self._bound(d) for d in (r.m, r.n, r.k)}
        steps = {
            d: min(-(-bound // BLOCK) * BLOCK, LARGEST[name]) if bound is not None else LARGEST[name]
            for name, d, bound in (("m", r.m, bounds[r.m]), ("n", r.n, bounds[r.n]), ("k", r.k, bounds[r.k]))
        }
        if op.sizes[r.m] is not None and self._is_natural(r.a, r.k, bounds[r.m]):
            del steps[r.m]  # nothing of A is copied
        others = [d for d in range(op.n_loops) if d not in (r.m, r.n, r.k)]
        summed = [d for d in others if not op.is_parallel(d) and op.sizes[d] != 1]
        once = not summed and (bounds[r.k] or steps[r.k] + 1) <= steps[r.k]
        if self.from_zero and not once:
            self._clear()
            self.from_zero = False
        order = [*((d, 1) for d in others), *steps.items()]
        single = [d for d, step in steps.items() if (bounds[d] or step + 1) <= step]  # one part is all of it
        with loop_nest(op, [(d, step) for d, step in order if op.sizes[d] != 1 and d not in single]) as blocks:
            extents: dict[int, Extent] = {}
            for d in (r.m, r.n, r.k):
                size = op.sizes[d]
                extents[d] = blocks[d].extent if d in blocks else (size if size is not None else op.size(d))
            a, b, c = (part_of(x, blocks) for x in (r.a, r.b, r.c))
            of_b = Matrix(b, r.b.dims.index(r.k), r.b.dims.index(r.n))
            panel = self.prepacking.panel(of_b, self.kind)
            self._specialised(
                [(d, min(bounds[d] or steps[d], steps[d])) for d in (r.n, r.k) if not isinstance(extents[d], int)],
                extents,
                lambda known: self._product(
                    Matrix(a, r.a.dims.index(r.m), r.a.dims.index(r.k)),
                    of_b if panel is None else panel,
                    Matrix(c, r.c.dims.index(r.m), r.c.dims.index(r.n)),
                    (known[r.m], known[r.n], known[r.k]),
                    (steps.get(r.m), steps[r.n], steps[r.k]),
                ),
            )

    def _specialised(self, dynamic: list[tuple[int, int]], extents: dict[int, Extent], body: Callable) -> None:
        """Emits `body` for the case that dynamic extents are what they usually are, and for all others."""
        if not dynamic:
            body(extents)
            return
        (d, usual), *rest = dynamic
        is_usual = arith.cmpi(arith.CmpIPredicate.eq, extents[d], build.index(usual))
        if_else(is_usual, lambda: self._specialised(rest, {**extents, d: usual}, body), lambda: body(extents))

    def _bound(self, d: int) -> int | None:
        """The most iterations of a loop, if that is known."""
        size = self.op.sizes[d]
        if size is not None:
            return size
        for operand in self.op.operands:
            if d in operand.loops:
                extent = size_of(operand.value, operand.dims.index(d))
                bound = None if extent is None else upper_bound(extent)
                if bound is not None:
                    return bound
        return None

    def _clear(self) -> None:
        """Fills C with zero: what cannot start from zero in registers."""
        c = self.roles.c.value
        rank = c.type.rank
        maps = [ir.AffineMap.get(rank, 0, []), build.projection(rank, range(rank))]
        zero = build.constant(self.f32, 0.0)
        build.generic([zero], [c], maps, [build.PARALLEL] * rank, lambda x, _: x)

    # --- factors

    def _is_natural(self, operand: Operand, k: int, rows: int | None) -> bool:
        """True if tiles of A can be loaded from where it stands."""
        is_read = operand.element == self.kind and operand.stride_kind(k) == "unit"
        return is_read and rows is not None and rows % ROWS == 0

    def _product(self, a: Matrix, b: Matrix | Panel, c: Matrix, extents: Sequence[Extent], most: Sequence) -> None:
        m, n, k = extents
        frame = next(x for x in ancestors(self.op.op) if x.name in FRAMES)
        if isinstance(b, Panel):
            panel = b
        else:
            shape = [most[1] // ROWS, most[2] // DEPTH * self.parts, PAIRS, DEPTH]
            panel = Panel(in_frame(frame, shape, self.kind), parts=self.parts)
            pack_pairs(b, k, n, panel.value)
        if most[0] is None:
            rest = None
            if not (isinstance(k, int) and k % DEPTH == 0):
                rest = in_frame(frame, [1, m, DEPTH], self.kind)
                with hoisted(a.value, (m, k), frame):
                    pack_rows(a, m, k, rest, _over(k, DEPTH))
            source: Rows = RowsInPlace(a, a.row_stride(), rest)
        else:
            rows = in_frame(frame, [most[2] // DEPTH * self.parts, most[0], DEPTH], self.kind)
            with hoisted(a.value, (m, k), frame):
                pack_rows(a, m, k, rows)
            source = PackedRows(rows, self.parts)
        self._blocks(source, panel, c, (m, n, k), frame)

    def _is_streamed(self, extents: Sequence[Extent]) -> bool:
        """True if each tile of the panel is read once, and A and C may stay in the L1 cache, of which they fill half at
        most: what an op before or after them has to do with is there, too."""
        m, n, k = (extent if isinstance(extent, int) else None for extent in extents)
        if m is None or n is None or k is None or m > BLOCK:
            return False
        return m * k * self.parts * NARROW + m * n * WIDE <= cache_bytes(1) // 2

    # --- blocks of sums

    def _blocks(self, a: Rows, panel: Panel, c: Matrix, extents: Sequence[Extent], frame: ir.Operation) -> None:
        m, n, k = extents
        stride = c.row_stride()
        is_streamed = self._is_streamed(extents)

        def column(n0: ir.Value, width: int, is_cut: bool) -> None:
            def row(m0: ir.Value, height: int, is_cut_too: bool) -> None:
                if is_cut or is_cut_too:
                    self._cut_block(a, panel, c, (m0, n0), (height, width), extents, frame)
                    return

                def place(i: Extent, j: int) -> Place:
                    return c.value, c.subscripts(arith.addi(m0, build.as_index(i)), plus(n0, j)), stride

                self.unit(Block(a, panel, self.parts, (m0, n0), height, width, k, place, self.from_zero, is_streamed))

            _over_blocks(m, row)

        _over_blocks(n, column)

    def _cut_block(
        self,
        a: Rows,
        panel: Panel,
        c: Matrix,
        start: tuple[ir.Value, ir.Value],
        tiles: tuple[int, int],
        extents: Sequence[Extent],
        frame: ir.Operation,
    ) -> None:
        """A block of which only a part exists, by way of a scratch block."""
        scratch = in_frame(frame, [BLOCK, BLOCK], self.f32)
        m, n, k = extents
        whole = Matrix(scratch, 0, 1)
        rows = arith.minui(arith.subi(build.as_index(m), start[0]), build.index(ROWS * tiles[0]))
        if not self.from_zero:
            self._copy(c, start, whole, (build.index(0), build.index(0)), rows, n, start[1], tiles[1])

        def place(i: Extent, j: int) -> Place:
            return scratch, whole.subscripts(build.as_index(i), build.index(j)), build.index(BLOCK)

        self.unit(Block(a, panel, self.parts, start, tiles[0], tiles[1], k, place, self.from_zero))
        self._copy(whole, (build.index(0), build.index(0)), c, start, rows, n, start[1], tiles[1])

    def _copy(self, source: Matrix, at, target: Matrix, to, rows: ir.Value, columns: Extent, first, tiles: int) -> None:
        """Copies `rows` rows of a block, and of its columns those before `columns`, counted from `first`."""
        kind = ir.VectorType.get([ROWS], self.f32)
        bits = ir.VectorType.get([ROWS], ir.IntegerType.get_signless(1))
        zero = build.constant(kind, 0.0)
        rest = arith.subi(build.as_index(columns), first)
        masks = []
        for j in range(tiles):
            left = arith.maxsi(arith.subi(rest, build.index(ROWS * j)), build.index(0))
            masks.append(vector.CreateMaskOp(bits, [left]).result)

        def row(r: ir.Value) -> None:
            for j, mask in enumerate(masks):
                places = [
                    x.subscripts(arith.addi(s[0], r), plus(s[1], ROWS * j)) for x, s in ((source, at), (target, to))
                ]
                read = vector.MaskedLoadOp(kind, source.value, places[0], mask, zero).result
                vector.MaskedStoreOp(target.value, places[1], mask, read)

        for_each(rows, row)


def _over(extent: Extent, size: int) -> Extent:
    return extent // size if isinstance(extent, int) else arith.divui(extent, build.index(size))


def _over_blocks(extent: Extent, body: Callable[[ir.Value, int, bool], None]) -> None:
    """Calls body(start, tiles, whether it is cut off) in loops over blocks of two tiles, and for what is left."""
    if isinstance(extent, int):
        main = extent // BLOCK * BLOCK
        for_each(main, lambda at: body(at, 2, False), step=BLOCK)
        if extent - main >= ROWS:
            body(build.index(main), 1, False)
            main += ROWS
        if extent > main:
            body(build.index(main), 1, True)
        return
    main = arith.muli(arith.divui(extent, build.index(BLOCK)), build.index(BLOCK))
    for_each(main, lambda at: body(at, 2, False), step=BLOCK)
    left = arith.subi(extent, main)
    more = arith.CmpIPredicate.ugt
    # A panel that is packed before has no tile behind the last one that holds an element.
    if_else(
        arith.cmpi(more, left, build.index(ROWS)),
        lambda: body(main, 2, True),
        lambda: if_else(arith.cmpi(more, left, build.index(0)), lambda: body(main, 1, True)),
    )
