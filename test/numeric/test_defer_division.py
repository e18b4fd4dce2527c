"""Division after the loops against division in every tile, both evaluated in float64."""

import numpy as np
from attention_graph import Attention
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from hypothesis import assume, event, given
from hypothesis import strategies as st
from properties import examples
from test_fusion import CONTEXT, fuse, schedules

BEFORE = [[], ["fold-diag"], ["canonicalize", "cse", "parallel-loops"], ["fold-diag", "parallel-loops", "canonicalize"]]


def defer(graph, sizes, order, before):
    inputs = graph.inputs()
    with CONTEXT:
        expected = evaluate(parse_module(graph.text(), "graph.mlir", CONTEXT), inputs)
        module = fuse(graph.text(), sizes, order)
        pass_manager.run([*before, "defer-division"], module)
        found = evaluate(module, inputs)
    text = print_module(module)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=text)
    return text


@given(schedules(), st.sampled_from(BEFORE))
@examples(120)
def test_any_schedule(case, before):
    graph, sizes, order = case
    assume(graph.softmax == "softmax" and any(sizes))
    text = defer(graph, sizes, order, before)
    event(f"deferred: {'unnorm_softmax' in text}")
    columns_tiled = any(sizes[len(graph.batch) + 1 : len(graph.batch) + 2])
    (keys,) = sizes[len(graph.batch) + 2 : len(graph.batch) + 3] or [0]
    # canonicalize folds loops of one iteration: nothing is deferred then
    in_loops = "canonicalize" not in before or graph.dynamic or 0 < keys < graph.k
    if in_loops and not columns_tiled and "result" not in graph.returns and (graph.dynamic or graph.dv <= graph.k):
        assert "linalg_ext.softmax" not in text, text


def test_masked_rows_are_zero():
    """More queries than keys, aligned at the lower right: the first queries see nothing."""
    graph = Attention(9, 4, 3, 5, modify="causal", returns=("max", "accum"))
    text = graph.text().replace("arith.cmpi sgt, %j, %i", "arith.cmpi sgt, %j, %shifted")
    text = text.replace("%dead =", "%c5 = arith.constant 5 : index\n%shifted = arith.subi %i, %c5 : index\n%dead =")
    with CONTEXT:
        module = fuse(text, [4, 0, 2])
        pass_manager.run(["defer-division"], module)
        assert "unnorm_softmax" in print_module(module)
        output, maximum, accum = evaluate(module, graph.inputs())
    assert not output[:5].any() and output[5:].all()
    assert (maximum[:5] == -np.inf).all() and not accum[:5].any()
