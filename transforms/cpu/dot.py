"""A block of sums as dot products of pairs of bf16 (AVX512-BF16).

A vector has the sums of 16 columns; one instruction adds to each the products of a pair of A's row, which is read as
32 bits and broadcast, and of a pair of B's column, of which a row of a panel has 16. A register tile is 8 rows × 2
vectors.
"""

from ...dialects import build
from ...dialects.mlir import arith, ir, scf, vector, x86
from .block_sums import Block
from .tile_panels import DEPTH, PAIRS, ROWS, if_else, plus, value_of

REGISTER_ROWS = 8
Sums = dict[tuple[int, int], ir.Value]  # by row and vector


def emit(block: Block) -> None:
    """Adds the product to the block."""
    for first in range(0, ROWS * block.height, REGISTER_ROWS):
        _register_tile(block, first)


def _register_tile(block: Block, first: int) -> None:
    k = block.k
    keys = [(r, j) for r in range(first, first + REGISTER_ROWS) for j in range(block.width)]
    whole = k // DEPTH if isinstance(k, int) else arith.divui(k, build.index(DEPTH))
    sums = [_load(block, *key) for key in keys]
    loop = scf.ForOp(build.index(0), value_of(whole), build.index(1), sums)
    with ir.InsertionPoint(loop.body):
        carried = dict(zip(keys, loop.inner_iter_args, strict=True))
        _multiply(block, carried, first, loop.induction_variable, False)
        scf.YieldOp(list(carried.values()))
    done = dict(zip(keys, loop.results, strict=True))

    def finish(sums: Sums) -> None:
        for key, value in sums.items():
            target, at = _place(block, *key)
            vector.StoreOp(value, target, at)

    def rest() -> None:
        _multiply(block, done, first, value_of(whole), True)
        finish(done)

    if isinstance(k, int):
        rest() if k % DEPTH else finish(done)
        return
    is_cut = arith.cmpi(arith.CmpIPredicate.ne, arith.muli(whole, build.index(DEPTH)), k)
    before = dict(done)
    if_else(is_cut, rest, lambda: finish(before))


def _place(block: Block, row: int, j: int) -> tuple[ir.Value, list[ir.Value]]:
    """Where a vector of sums is."""
    value, at, _ = block.place(row, ROWS * j)
    return value, at


def _load(block: Block, row: int, j: int) -> ir.Value:
    kind = ir.VectorType.get([ROWS], ir.F32Type.get())
    if block.from_zero:
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 0.0)))
    value, at = _place(block, row, j)
    return vector.LoadOp(kind, value, at).result


def _multiply(block: Block, sums: Sums, first: int, k_tile: ir.Value, is_rest: bool) -> None:
    m0, n0 = block.start
    n_tile = arith.divui(n0, build.index(ROWS))
    pair, pairs = (ir.VectorType.get([n], ir.BF16Type.get()) for n in (2, DEPTH))
    i32 = ir.IntegerType.get_signless(32)
    as_bits = ir.VectorType.get([1], i32)
    rows = range(first, first + REGISTER_ROWS)
    places = [block.a.at(plus(m0, r), k_tile, is_rest, 0)[:2] for r in rows]
    columns = [block.panel.subscripts(plus(n_tile, j), k_tile, 0) for j in range(block.width)]
    for p in range(PAIRS):
        of_b = [vector.LoadOp(pairs, block.panel.value, [*at[:-2], build.index(p), at[-1]]).result for at in columns]
        for r, (value, at) in zip(rows, places, strict=True):
            read = vector.LoadOp(pair, value, [*at[:-1], plus(at[-1], 2 * p)]).result
            bits = vector.extract(vector.bitcast(as_bits, read), [], [0])
            spread = vector.BroadcastOp(ir.VectorType.get([PAIRS], i32), bits).result
            of_a = vector.bitcast(pairs, spread)
            for j, column in enumerate(of_b):
                sums[r, j] = x86.avx512_dot(sums[r, j], of_a, column)
