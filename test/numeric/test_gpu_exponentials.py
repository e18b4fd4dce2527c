"""Exponentials by a table in shared memory, as a thread makes them, without a GPU, against double precision."""

import numpy as np
import pytest
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.tile import EXP2_WORDS
from attn_opt.transforms.nvidia.code import exponentials
from attn_opt.transforms.nvidia.code.thread import Thread, constant, i32
from attn_opt.transforms.rewriting import ops_in
from harness import CONTEXT
from threads import Memory, Threads

BLOCK, TABLE = 640, 1040  # threads, and where the table is
WORST = 2.0**-10.6  # of the result


def saturated(a, b, c):
    exact = a.astype(np.longdouble) * b + c
    return np.where(np.isnan(exact), 0, np.clip(exact, 0, 1)).astype(np.float32)


def word(value):
    return np.asarray(value).astype(np.int64) & 0xFFFFFFFF


INSTRUCTIONS = {
    "ex2.approx.ftz.f32": lambda x: np.exp2(x.astype(np.float64)).astype(np.float32),
    "fma.rn.sat.f32": saturated,
    "or.b32": np.bitwise_or,
    "add.u32": lambda a, b: word(word(a) + word(b)),
    "mad.lo.s32": lambda a, b, c: word(word(a) * b + word(c)),
}


class CanonicalThreads(Threads):
    """Floats that are no number are the one that the PTX ISA says, whose bits are 1 but the sign."""

    def value(self, op, inputs):
        found = super().value(op, inputs)
        if op.name == "arith.bitcast" and inputs[0].dtype == np.float32:
            return np.where(np.isnan(inputs[0]), np.int32(0x7FFFFFFF), found)
        return found


def exp2(element: np.ndarray, row: np.ndarray, factor: float, bound: float | None) -> np.ndarray:
    """2^(factor · element + row)"""
    arguments = [np.resize(x, -(-element.size // BLOCK) * BLOCK).astype(np.float32) for x in (element, row)]
    with CONTEXT, np.errstate(all="ignore"):
        module = parse_module("func.func @f(%x: f32, %r: f32) {\nreturn\n}", "test.mlir", CONTEXT)
        (function,) = ops_in(module.operation, "func.func")
        block = function.regions[0].blocks[0]
        x, r = block.arguments
        last = block.operations[0]
        with ir.InsertionPoint(last), last.location:
            thread, address = Thread.make(BLOCK), constant(i32(), TABLE)
            exponentials.fill(address, thread)
            of_row = exponentials.row_part(r, bound)
            found = exponentials.look_up(x, factor, of_row, bound is not None, address, thread)
        table = Memory(np.zeros(4 * EXP2_WORDS, np.uint8), TABLE)
        threads = CanonicalThreads(arguments[0].size, [table], in_block=BLOCK, instructions=INSTRUCTIONS)
        threads.values |= zip((x, r), arguments, strict=True)
        threads.run(list(block.operations)[:-1], threads.all)
        assert (table.written == threads.all.size // BLOCK).all()
        return threads.values[found][: element.size].astype(np.float64)


@pytest.mark.parametrize(("bound", "most", "of_row"), [(None, 60.0, 40.0), (60.0, 60.0, 40.0), (84.0, 84.0, 42.0)])
@pytest.mark.parametrize("factor", [1.0, 0.18])
def test_error_bound(factor, bound, most, of_row):
    rng = np.random.default_rng(0)
    element = np.append(rng.uniform(-most / factor, most / factor, 40_000), [0.0]).astype(np.float32)
    row = np.append(rng.uniform(-of_row, of_row, 40_000), [0.0]).astype(np.float32)
    factor = float(np.float32(factor))
    expected = np.exp2(factor * element.astype(np.float64) + row)
    off = exp2(element, row, factor, bound) / expected - 1
    assert abs(off).max() < WORST
    assert np.sqrt((off**2).mean()) < 2.0**-12.4
    assert abs(off.mean()) < 2.0**-17


def test_any_number():
    """Without a bound: what is below the normal numbers becomes at most the least of them, −∞ 0; too large ones NaN."""
    x = np.array([-np.inf, -1e30, -1000, -127.1, -126.9, -126, 128.3, 129, 300, 1e30, np.inf, np.nan])
    for row in (np.zeros_like(x), np.full_like(x, -10.0)):
        found = exp2(x - row, row, 1.0, None)
        assert (found[:4] == 0).all()
        assert (found[4:6] > 0).all() and (found[4:6] <= 2.0**-125.9).all()
        assert np.isnan(found[6:]).all()


def test_rows_far_from_bounded_elements():
    """They are 0 beside others, or larger than what any sum of them may be."""
    element = np.random.default_rng(0).uniform(-40, 40, 700)
    row = np.resize([-1e30, -200, -np.inf, 1e30, 200, np.inf, np.nan], 700)
    found = exp2(element, row, 1.0, 40.0).reshape(-1, 7)
    assert (found[:, :3] >= 0).all() and (found[:, :3] <= 2.0**-45).all()
    assert (found[:, 3:6] >= 2.0**45).all()
    assert np.isnan(found[:, 6]).all()
    assert np.isnan(exp2(np.full(7, np.nan), np.zeros(7), 1.0, 40.0)).all()
