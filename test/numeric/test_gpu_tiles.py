"""Kernels for NVIDIA GPUs at the level of tiles, run block by block by the reference evaluator, without a GPU: what the
passes on tiles decide, such as which maximum is kept, and when a tile is computed again."""

import functools

import gpu_modules  # noqa: F401  # what loads, stores and views of tiles mean
import numpy as np
import pytest
from attn_opt.compiler import pipelines
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.build import constant_value
from attn_opt.dialects.reference.evaluator import Frame
from attn_opt.dialects.reference.interface import rule
from attn_opt.dialects.tile import ONES
from attn_opt.transforms.rewriting import defining_op, ops_in
from gpu_threads import Threads
from harness import CONTEXT, crossed, run_passes

NEXT = "specialize-warps"  # the pass before which kernels are run: what follows is who does it, and when
BEHIND = ["row-sums-by-matmul"]  # passes behind it that change what is computed
MULTIPROCESSORS = 2  # few: blocks go from tile to tile


class Seen:
    """What was seen of blocks."""

    rescaled: list[bool] = []  # noqa: RUF012
    raised: list[bool] = []  # noqa: RUF012


@rule("tile.init_flags")
def init_flags(op, frame):
    def run(operands):
        operands[0][:] = 0
        return []

    return run


@rule("tile.fill_exp2", "tile.fill_ones", "tile.meet")
def nothing(op, frame):
    return lambda operands: []


@rule("tile.exp2")
def exp2(op, frame):
    return lambda operands: [np.exp2(operands[0])]


@rule("tile.append_ones")
def append_ones(op, frame):
    def run(operands):
        tile = operands[0]
        return [np.concatenate([tile, np.ones((len(tile), ONES))], axis=1)]

    return run


@rule("tile.split_sums")
def split_sums(op, frame):
    return lambda operands: [operands[0][:, :-ONES], operands[0][:, -1]]


@rule("tile.raise")
def raise_(op, frame):
    def run(operands):
        bad, flags, number = operands
        flags[number % flags.size] |= int(bad.any())
        Seen.raised.append(bool(bad.any()))
        return []

    return run


@rule("tile.raised")
def raised(op, frame):
    return lambda operands: [np.bool_(operands[0][operands[1] % operands[0].size])]


@rule("tile.any_of_warp")
def any_of_warp(op, frame):
    """Of all rows, which is right for what leaves others as they are."""

    def run(operands):
        Seen.rescaled.append(bool(operands[0].any()))
        return [np.bool_(operands[0].any())]

    return run


@functools.cache
def lowered(graph, **options):
    """The kernel of a graph, in its module."""
    with CONTEXT:
        module = parse_module(graph.text(), "test.mlir", CONTEXT)
        options = {"parts": 1, "multiprocessors": MULTIPROCESSORS, **options}
        passes = ["raise-attention", "fuse-attention{machine=sm_90a}", *pipelines.nvidia(**options)]
        names = [p.partition("{")[0] for p in passes]
        run_passes(passes[: names.index(NEXT)] + BEHIND, module)
    return module


def run(graph, inputs, **options):
    """The result of a graph's kernel, as [batch, heads, queries, d]; poisoned before."""
    module = lowered(graph, **options)
    with module.context:
        (kernel,) = ops_in(module.operation, "gpu.func")
        (launch,) = ops_in(module.operation, "gpu.launch_func")
        Threads.blocks = constant_value(launch.operands[0])
        out = np.full((graph.batch, graph.heads, graph.queries, graph.d_v), np.nan)
        passed = list(launch.operands)[-len(kernel.regions[0].blocks[0].arguments) :]
        made = [defining_op(v) for v in passed]
        names = ["arith.constant", *["bufferization.to_buffer"] * len(inputs), "memref.cast"]
        assert sorted(op.name for op in made) == names
        arguments = []
        for op in made:
            if op.name == "bufferization.to_buffer":
                arguments.append(inputs[op.operands[0].arg_number].astype(np.float64))
            else:  # the result, or the number of tiles
                arguments.append(out if op.name == "memref.cast" else np.int64(constant_value(op.results[0])))
        Seen.rescaled, Seen.raised = [], []
        with np.errstate(all="ignore"):
            body = Frame(round_values=True).region(kernel.regions[0])
            for number in range(Threads.blocks):
                Threads.block = number
                body(list(arguments))
    return out


CASES = {
    "plain": {},
    "padding": {"queries": 200, "keys": 333},
    "causal": {"window": (None, 0)},
    "window": {"window": (-100, 0)},
    "softcap": {"softcap": 30.0},
    "softcap, causal": {"softcap": 30.0, "window": (None, 0)},
    "softcap, padding, bf16": {"softcap": 30.0, "queries": 200, "keys": 333, "element": "bf16", "window": (None, 133)},
    "softcap, window": {"softcap": 30.0, "window": (-100, 0)},
    "a wide softcap": {"softcap": 50.0},
    "a wide softcap, causal, bf16": {"softcap": 50.0, "window": (None, 0), "element": "bf16"},
    "softcap, d 128": {"softcap": 30.0, "head_size": 128, "window": (None, 0)},
    "alibi": {"alibi": True},
    "d 32": {"head_size": 32, "queries": 300},
    "d 128": {"head_size": 128},
    "d 256, causal": {"head_size": 256, "window": (None, 0)},
    "d 320": {"head_size": 320, "keys": 200},  # from here on values are in parts of their columns
    "d 400, causal": {"head_size": 400, "window": (None, 0), "keys": 256},
    "keys of 80, values of 304": {"head_size": 80, "value_size": 304, "queries": 100},
    "bf16": {"element": "bf16"},
    "a tile": {"queries": 128},
    "a small tile": {"queries": 64},
    "a wide tile": {"queries": 64, "head_size": 256},
    "a query": {"queries": 1, "keys": 300},
    "a tile, causal": {"queries": 128, "window": (None, 0)},
    "a tile, causal to the last key": {"queries": 128, "window": (None, 384)},
}
INPUTS = {
    "normal": lambda x, j: x,
    "wide": lambda x, j: 5 * x,  # logits of a standard deviation of 25 · 8
    "growing": lambda x, j: x * (1 + 4 * j / j.size),  # larger and larger keys: the maximum grows
}


def check(case, values, keep_maximum):
    graph = Attention(
        **{"batch": 1, "heads": 1, "queries": 256, "keys": 512, "head_size": 64, "element": "f16", **CASES[case]}
    )
    inputs = list(graph.inputs("normal", 0))
    for number in (0, 1):
        j = np.arange(inputs[number].shape[2])[:, None]
        inputs[number] = INPUTS[values](inputs[number].astype(np.float32), j).astype(inputs[number].dtype)
    found = run(graph, inputs, keep_maximum=keep_maximum)
    expected, _ = graph.reference(inputs)
    limit = 2e-2 if graph.element == "bf16" else 3e-3
    assert np.linalg.norm(found - expected) <= limit * np.linalg.norm(expected)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("case", "values", "keep_maximum"), crossed(list(CASES), list(INPUTS), [True, False]))
def test_against_float64(case, values, keep_maximum):
    check(case, values, keep_maximum)


def test_a_maximum_that_grows_by_more_than_is_left_alone():
    check("plain", "growing", False)
    assert any(Seen.rescaled)


@pytest.mark.parametrize("case", ["plain", "a tile", "a small tile"])
def test_sums_that_leave_the_range(case):
    check(case, "wide", True)
    assert any(Seen.raised)


@pytest.mark.parametrize("factor", [1.0, 5.0])
def test_scores_at_a_wide_softcap(factor):
    """The maximum is kept within what the cap leaves of exponents: rows that exceed that are computed again."""
    graph = Attention(batch=1, heads=1, queries=256, keys=512, head_size=64, element="f16", softcap=50.0)
    inputs = [x * np.float16(factor) if i < 2 else x for i, x in enumerate(graph.inputs("normal", 0))]
    module = lowered(graph)
    bounds = {op.opview.bound.value for op in ops_in(module.operation, "tile.exp2")}
    assert bounds == {73, -1}  # of the table's short way, and of tiles that are computed again
    found = run(graph, inputs)
    expected, _ = graph.reference(inputs)
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)
    assert any(Seen.raised) == (factor > 1)


def test_little_growth_rescales_nothing():
    graph = Attention(batch=1, heads=1, queries=128, keys=1024, head_size=64, element="f16")
    run(graph, graph.inputs("uniform", 0), keep_maximum=False)
    assert Seen.rescaled and not any(Seen.rescaled)


def test_the_maximum_of_live_scores_where_they_fall_with_the_distance():
    """Under a causal mask keys after the query would have larger scores than all that are live, by ALiBi."""
    graph = Attention(
        batch=1, heads=8, queries=256, keys=256, head_size=64, element="f16", alibi=True, window=(None, 0)
    )
    inputs = graph.inputs("normal", 0)
    found = run(graph, inputs)
    expected, _ = graph.reference(inputs)
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)
    assert Seen.raised and not any(Seen.raised)


@pytest.mark.parametrize("level", [-50.0, 50.0])
@pytest.mark.parametrize("case", ["causal", "d 256, causal", "window"])
def test_scores_far_from_0(case, level):
    """Rows without keys in the first tile have no maximum of their own there: a wrong one would lose all of them."""
    graph = Attention(
        **{"batch": 1, "heads": 1, "queries": 256, "keys": 256, "head_size": 64, "element": "f16", **CASES[case]}
    )
    inputs = [x.copy() for x in graph.inputs("normal", 0)]
    inputs[0][..., 0], inputs[1][..., 0] = 1.0, level / graph.factor
    found = run(graph, inputs)
    expected, _ = graph.reference(inputs)
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize(
    ("options", "keep_maximum", "expected"),
    [
        ({"softcap": 30.0}, True, True),
        ({"softcap": 30.0, "window": (None, 0)}, True, True),
        ({"softcap": 50.0, "window": (None, 0)}, True, True),
        ({"softcap": 30.0}, False, False),  # sums are rescaled
        ({"softcap": 30.0, "head_size": 128}, True, False),  # a table for few, and two times 64 columns
        ({}, True, False),
    ],
)
def test_row_sums_by_matmul(options, keep_maximum, expected):
    sizes = {"batch": 1, "heads": 1, "queries": 256, "keys": 512, "head_size": 64, "element": "f16"}
    module = lowered(Attention(**{**sizes, **options}), keep_maximum=keep_maximum)
    with module.context:
        assert bool(ops_in(module.operation, "tile.append_ones")) == expected


@pytest.mark.parametrize("number", [-1e4, -1e9, -3e38])
def test_the_first_maximum_is_no_masks(number):
    """Padding before the keys, by a number: the first tile has nothing else, and its maximum would suit no other."""
    graph = Attention(batch=1, heads=1, queries=128, keys=512, head_size=64, element="bf16", bias="k")
    *inputs, bias = graph.inputs("normal", 0)
    bias = np.zeros_like(bias)
    bias[..., :200] = number
    found = run(graph, (*inputs, bias))
    expected, _ = graph.reference((*inputs, bias))
    assert np.linalg.norm(found - expected) <= 2e-2 * np.linalg.norm(expected)
    assert Seen.raised and not any(Seen.raised)
