"""The log-sum-exp, m + log(a), as a result besides the output: through every pass of the online level, and compiled."""

import itertools

import numpy as np
import pytest
from attention_graph import Attention
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import print_module
from attn_opt.dialects.reference import evaluate
from harness import kernel, relative_error
from test_fusion import CONTEXT, fuse

ONLINE = ["fold-diag", "canonicalize", "cse", "parallel-loops", "canonicalize"]
ONLINE += ["defer-division", "exp-to-exp2", "split-masked-tiles"]


def with_log_sum_exp(graph: Attention) -> str:
    """`graph`, whose queries see keys j ≤ i − 3, with the log-sum-exp in place of the maximum."""
    text = graph.text()
    row = f"tensor<{'?' if graph.dynamic else graph.m}x{graph.element}>"
    e = graph.element
    identity = "affine_map<(i) -> (i)>"
    shifted = "%c3 = arith.constant 3 : index\n%l = arith.subi %i, %c3 : index\n%dead = arith.cmpi sgt, %j, %l"
    text = text.replace("%dead = arith.cmpi sgt, %j, %i", shifted)
    lse = (
        f'%lse = linalg.generic {{indexing_maps = [{", ".join([identity] * 3)}], iterator_types = ["parallel"]}} '
        f"ins(%p#1, %p#2 : {row}, {row}) outs(%f0 : {row}) {{\n  ^bb0(%mi: {e}, %ai: {e}, %old: {e}):\n"
        f"    %log = math.log %ai : {e}\n    %sum = arith.addf %mi, %log : {e}\n"
        f"    linalg.yield %sum : {e}\n  }} -> {row}\n"
    )
    return text.replace("return %o, %p#1", f"{lse}return %o, %lse")


def expected(graph: Attention, inputs) -> tuple[np.ndarray, np.ndarray]:
    q, k, v = (np.asarray(x, np.float64) for x in inputs)
    i, j = np.indices((graph.m, graph.k))
    scores = np.where(j <= i - 3, 0.5 * q @ k, -np.inf)
    p = np.exp(scores)
    total = p.sum(axis=1)
    with np.errstate(divide="ignore"):
        return p @ v / np.where(total == 0, 1, total)[:, None], np.log(total)


@pytest.mark.parametrize(
    ("sizes", "order", "dynamic"),
    [*itertools.product([(4, 0, 3), (4,), (0, 0, 5)], [(), (2, 1, 0)], [False, True])],
)
def test_evaluated(sizes, order, dynamic):
    graph = Attention(13, 10, 3, 4, matmul="matmul", modify="causal", dynamic=dynamic, returns=("max",))
    inputs = graph.inputs()
    output, lse = expected(graph, inputs)
    assert (lse[:3] == -np.inf).all() and np.isfinite(lse[3:]).all()
    with CONTEXT:
        module = fuse(with_log_sum_exp(graph), sizes, order)
        pass_manager.run(ONLINE, module)
        text = print_module(module)
        assert "linalg_ext.unnorm_softmax {exp2}" in text and "linalg_ext.softmax" not in text
        found = evaluate(module, inputs)
    np.testing.assert_allclose(found[0], output, rtol=1e-11, atol=1e-13, err_msg=text)
    np.testing.assert_allclose(found[1], lse, rtol=1e-11, err_msg=text)


def test_compiled():
    graph = Attention(37, 41, 8, 5, matmul="matmul", modify="causal", element="f32", returns=("max",))
    inputs = [x.astype(np.float32) for x in graph.inputs()]
    output, lse = expected(graph, inputs)
    with CONTEXT:
        text = print_module(fuse(with_log_sum_exp(graph), (8, 0, 16)))
    found = kernel(text)(*inputs)
    assert relative_error(found[0], output) < 1e-5
    np.testing.assert_allclose(np.asarray(found[1]), lse, rtol=1e-5)
