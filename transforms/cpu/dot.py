"""A block of sums as dot products of pairs of bf16 (AVX512-BF16).

A vector has the sums of 16 columns; one instruction adds to each the products of a pair of A's row, which is read as
32 bits and broadcast, and of a pair of B's column, of which a row of a panel has 16. A register tile is 8 rows × 2
vectors; loops carry it along k.
"""

from ...dialects import build
from ...dialects.mlir import arith, ir, scf, vector, x86
from .block_sums import Block
from .tile_panels import DEPTH, PAIRS, ROWS, for_each, if_else, plus, value_of

REGISTER_ROWS = 8
STEPS = 4  # pairs of k that are unrolled
Sums = list[ir.Value]


def emit(block: Block) -> None:
    """Adds the product to the block."""
    for_each(ROWS * block.height, lambda first: _RegisterTile(block, first).emit(), step=REGISTER_ROWS)


class _RegisterTile:
    """Rows from `first` on, counted from the block's first one."""

    def __init__(self, block: Block, first: ir.Value):
        self.block = block
        self.rows = [plus(first, r) for r in range(REGISTER_ROWS)]
        self.n_tile = arith.divui(block.start[1], build.index(ROWS))
        self.keys = [(r, j) for r in range(REGISTER_ROWS) for j in range(block.width)]

    def emit(self) -> None:
        k = self.block.k
        whole = k // DEPTH if isinstance(k, int) else arith.divui(k, build.index(DEPTH))
        loop = scf.ForOp(build.index(0), value_of(whole), build.index(1), [self._load(*key) for key in self.keys])
        with ir.InsertionPoint(loop.body):
            scf.YieldOp(self._multiply(list(loop.inner_iter_args), loop.induction_variable, False))
        sums = list(loop.results)

        def rest() -> None:
            self._store(self._multiply(sums, value_of(whole), True))

        if isinstance(k, int):
            rest() if k % DEPTH else self._store(sums)
            return
        is_cut = arith.cmpi(arith.CmpIPredicate.ne, arith.muli(whole, build.index(DEPTH)), k)
        if_else(is_cut, rest, lambda: self._store(sums))

    def _load(self, row: int, j: int) -> ir.Value:
        kind = ir.VectorType.get([ROWS], ir.F32Type.get())
        if self.block.from_zero:
            zero = ir.FloatAttr.get(kind.element_type, 0.0)
            return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, zero)).result
        value, at, _ = self.block.place(self.rows[row], ROWS * j)
        return vector.LoadOp(kind, value, at).result

    def _store(self, sums: Sums) -> None:
        for (row, j), value in zip(self.keys, sums, strict=True):
            target, at, _ = self.block.place(self.rows[row], ROWS * j)
            vector.StoreOp(value, target, at)

    def _multiply(self, sums: Sums, k_tile: ir.Value, is_rest: bool) -> Sums:
        """The sums with the products of one tile of k added."""
        loop = scf.ForOp(build.index(0), build.index(PAIRS), build.index(STEPS), sums)
        with ir.InsertionPoint(loop.body):
            found = list(loop.inner_iter_args)
            for step in range(STEPS):
                found = self._pair(found, k_tile, plus(loop.induction_variable, step), is_rest)
            scf.YieldOp(found)
        return list(loop.results)

    def _pair(self, sums: Sums, k_tile: ir.Value, pair: ir.Value, is_rest: bool) -> Sums:
        block, bf16, i32 = self.block, ir.BF16Type.get(), ir.IntegerType.get_signless(32)
        two, pairs = (ir.VectorType.get([n], bf16) for n in (2, DEPTH))
        of_b = []
        for j in range(block.width):
            *at, _, last = block.panel.subscripts(plus(self.n_tile, j), k_tile, 0)
            of_b.append(vector.LoadOp(pairs, block.panel.value, [*at, pair, last]).result)
        of_a = []
        for row in self.rows:
            value, at, _ = block.a.at(arith.addi(block.start[0], row), k_tile, is_rest, 0)
            column = arith.addi(at[-1], arith.muli(pair, build.index(2)))
            read = vector.LoadOp(two, value, [*at[:-1], column]).result
            bits = vector.extract(vector.bitcast(ir.VectorType.get([1], i32), read), [], [0])
            spread = vector.BroadcastOp(ir.VectorType.get([PAIRS], i32), bits).result
            of_a.append(vector.bitcast(pairs, spread))
        return [x86.avx512_dot(c, of_a[row], of_b[j]) for (row, j), c in zip(self.keys, sums, strict=True)]
