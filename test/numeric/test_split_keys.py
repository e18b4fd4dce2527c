"""Keys split into parts and merged: evaluated in float64 pass by pass, and compiled."""

import re

import numpy as np
import pytest
from attention_graph import Attention as Written
from attn_opt.compiler import CompileError, compile, pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import print_module
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import evaluate
from attn_opt.transforms.open_queries import FEW_BLOCKS
from attn_opt.transforms.rewriting import ops_in
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_fusion import CONTEXT, fuse
from test_log_sum_exp import expected, with_log_sum_exp


def online(parts: int, workers: int = 1) -> list[str]:
    split = f"split-keys{{parts={parts} workers={workers} together=4}}"
    passes = ["fold-diag", "canonicalize", "cse", "fresh-inits", "remove-dead-values", "parallel-loops", "canonicalize"]
    return [*passes, "defer-division", "exp-to-exp2", split, "split-masked-tiles"]


@examples(40)
@given(st.integers(1, 9), st.integers(1, 23), st.integers(2, 7), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_evaluated(m, k, parts, rows, keys, dynamic):
    """Masked rows, parts without tiles, tiles that are cut; the log-sum-exp goes on being right."""
    graph = Written(m, k, 3, 4, matmul="matmul", modify="causal", dynamic=dynamic, returns=("max",))
    inputs = graph.inputs()
    output, lse = expected(graph, inputs)
    with CONTEXT:
        module = fuse(with_log_sum_exp(graph), (rows, 0, keys))
        pass_manager.run(online(parts), module)
        text = print_module(module)
        found = evaluate(module, inputs)
    np.testing.assert_allclose(found[0], output, rtol=1e-11, atol=1e-13, err_msg=text)
    np.testing.assert_allclose(found[1], lse, rtol=1e-11, err_msg=text)


@examples(40)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(2, 20), st.integers(1, 5), st.integers(1, 3))
def test_evaluated_with_parts_by_sizes(m, k, workers, rows, keys):
    """The number of parts comes from the sizes of the call; which tiles a mask makes dead is found for each part."""
    graph = Written(m, k, 3, 4, matmul="matmul", modify="causal", dynamic=True, returns=("max",))
    inputs = graph.inputs()
    output, lse = expected(graph, inputs)
    with CONTEXT:
        module = fuse(with_log_sum_exp(graph), (rows, 0, keys))
        ops_in(module.operation, "linalg.matmul")[-1].attributes[FEW_BLOCKS] = ir.UnitAttr.get()
        pass_manager.run(online(0, workers), module)
        text = print_module(module)
        found = evaluate(module, inputs)
    assert "arith.muli" in text, "parts are counted at run time"
    np.testing.assert_allclose(found[0], output, rtol=1e-11, atol=1e-13, err_msg=text)
    np.testing.assert_allclose(found[1], lse, rtol=1e-11, err_msg=text)


KINDS = [
    {"queries": 1, "heads": 8, "heads_kv": 2, "keys": 1333, "lse": True},
    {"queries": 1, "heads": 1, "keys": 1111, "element": "bf16"},
    {"queries": 3, "heads": 6, "heads_kv": 2, "keys": 900, "softcap": 2.0, "lse": True},
    {"queries": 37, "keys": 300, "window": (None, 100), "alibi": True},
    {"queries": 37, "keys": 300, "window": (-20, -5), "lse": True},  # the first queries see nothing
    {"queries": 5, "heads": 2, "keys": 790, "bias": "bhqk", "input_layout": "bshd", "output_layout": "bshd"},
    {"queries": 70, "keys": 130, "dynamic": True, "heads_kv": 2, "heads": 4, "lse": True},
    {"queries": 1, "keys": 1130, "element": "f64", "values_transposed": True},
]


@pytest.mark.sampled(7, 5)
@pytest.mark.parametrize("parts", [2, 5])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_compiled(kind, parts):
    graph = Attention(head_size=16, value_size=24, **{"heads": 2, **kind})
    inputs = graph.inputs("trigonometric" if graph.element == "f64" else "uniform")
    kernel = compile(graph.text(), split_keys=parts)
    found = kernel(*inputs)
    output, lse = graph.reference(inputs)
    if graph.lse:
        found, found_lse = found
        assert (np.isneginf(found_lse) == np.isneginf(lse)).all()
        live = np.isfinite(lse)
        np.testing.assert_allclose(np.asarray(found_lse, np.float64)[live], lse[live], rtol=1e-5, atol=1e-5)
    tolerance = {"bf16": 2e-2, "f64": 1e-12}.get(graph.element, 1e-5)
    error = np.abs(graph.canonical_output(np.asarray(found, np.float64)) - output).max() / np.abs(output).max()
    assert error < tolerance
    assert f"split into {parts} parts" in kernel.explain()


def test_the_rule():
    """Keys are split where there are fewer blocks than two per thread, and only then; whoever compiles may say so."""

    def parts(threads: int, **shape) -> str:
        options = {"split_keys": shape.pop("split_keys")} if "split_keys" in shape else {}
        graph = Attention(head_size=16, **shape)
        text = compile(graph.text(), threads=threads, **options).explain()
        found = re.search(r"keys are split into (\d+) parts", text)
        return found[1] if found else ""

    one_row = {"queries": 1, "keys": 1 << 16}
    assert parts(2, **one_row) == "8"
    assert parts(2, heads=2, **one_row) == "4"
    assert parts(2, heads=4, **one_row) == ""
    assert parts(1, **one_row) == ""
    assert parts(2, **one_row, split_keys=1) == ""
    assert parts(1, **one_row, split_keys=3) == "3"
    assert parts(2, queries=1, keys=64) == ""


def test_bad_options():
    with pytest.raises(CompileError, match=r"split_keys must be 0 .* but is -1"):
        compile(Attention().text(), split_keys=-1)
