"""Powers of two against powers of e, both evaluated in float64."""

import numpy as np
import pytest
from attention_graph import Attention
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.reference import evaluate
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_fusion import CONTEXT, fuse, schedules

SCALED = "%y = arith.mulf %x, %half : f64"


def convert(text: str, inputs, sizes=(), order=(), passes=()):
    with CONTEXT:
        expected = evaluate(parse_module(text, "graph.mlir", CONTEXT), inputs)
        module = fuse(text, sizes, order) if any(sizes) else parse_module(text, "graph.mlir", CONTEXT)
        pass_manager.run([*passes, "exp-to-exp2"], module)
        printed = print_module(module)
        for _ in range(2):
            found = evaluate(module, inputs)
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12, err_msg=printed)
            pass_manager.run(["fold-diag", "decompose-linalg-ext"], module)
    return printed


@given(schedules(), st.sampled_from([(), ("defer-division",), ("canonicalize", "cse", "parallel-loops")]))
@examples(60)
def test_any_schedule(case, passes):
    """A maximum that is returned is one of the scores, and the softmax stays with exp."""
    graph, sizes, order = case
    printed = convert(graph.text(), graph.inputs(), sizes, order, passes)
    columns_tiled = any(sizes[len(graph.batch) + 1 : len(graph.batch) + 2])
    if "max" in graph.returns:
        assert "{exp2}" not in printed, printed
    elif graph.modify != "none" and not columns_tiled:
        assert "{exp2}" in printed, printed


MODIFICATIONS = {
    "softcap": ("%t = math.tanh %x : f64\n%c = arith.constant 30.0 : f64\n%y = arith.mulf %c, %t : f64", True),
    "tanh last": ("%t = arith.mulf %x, %half : f64\n%y = math.tanh %t : f64", False),
    "quotient": ("%c = arith.constant 3.0 : f64\n%y = arith.divf %x, %c : f64", True),
    "reciprocal of a scaled score": ("%t = arith.mulf %x, %half : f64\n%y = arith.divf %half, %t : f64", True),
    "square": ("%t = arith.mulf %x, %half : f64\n%y = arith.mulf %t, %t : f64", False),
    "positions": (
        "%j = linalg.index 1 : index\n%j32 = arith.index_cast %j : index to i32\n%f = arith.sitofp %j32 : i32 to f64\n"
        "%slope = arith.constant -0.25 : f64\n%b = arith.mulf %f, %slope : f64\n"
        "%t = arith.mulf %x, %half : f64\n%y = arith.addf %t, %b : f64",
        True,
    ),
    "an unscaled part": ("%t = arith.mulf %x, %half : f64\n%y = arith.addf %t, %x : f64", False),
    "clamped": ("%t = arith.mulf %x, %half : f64\n%y = arith.minnumf %t, %half : f64", True),
    "a finite mask": (
        "%t = arith.mulf %x, %half : f64\n%c = arith.constant -1.0e9 : f64\n%p = arith.cmpf ogt, %t, %half : f64\n"
        "%y = arith.select %p, %t, %c : f64",
        False,
    ),
    "a range exceeded": (
        "%t = arith.mulf %x, %half : f64\n%c = arith.constant 1.79e308 : f64\n%y = arith.minnumf %t, %c : f64",
        False,
    ),
    "next to the least number": (
        "%t = arith.mulf %x, %half : f64\n%c = arith.constant -1.79e308 : f64\n%y = arith.maxnumf %t, %c : f64",
        True,
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MODIFICATIONS)
@pytest.mark.parametrize("sizes", [(), (3, 0, 4)])
def test_folded_where_that_is_exact(name, sizes):
    body, folds = MODIFICATIONS[name]
    graph = Attention(7, 9, 3, 4, modify="scale", returns=("accum",))
    text = graph.text().replace(SCALED, body)
    assert body in text
    assert ("{exp2}" in convert(text, graph.inputs(), sizes)) == folds


def test_folded_into_scaled_queries():
    """Through the matmul, which is linear, and no further than to the op that scales."""
    graph = Attention(7, 9, 3, 4, modify="none")
    identity = "affine_map<(i, j) -> (i, j)>"
    scaled = (
        "%qe = tensor.empty() : tensor<7x3xf64>\n"
        f'%qs = linalg.generic {{indexing_maps = [{identity}, {identity}], iterator_types = ["parallel", "parallel"]}} '
        "ins(%q : tensor<7x3xf64>) outs(%qe : tensor<7x3xf64>) {\n  ^bb0(%x: f64, %old: f64):\n"
        f"    {SCALED}\n    linalg.yield %y : f64\n  }} -> tensor<7x3xf64>\n%s = "
    )
    text = graph.text().replace("ins(%q, %k", "ins(%qs, %k").replace("%s = ", scaled, 1)
    for sizes in [(), (3, 0, 4)]:
        assert "{exp2}" in convert(text, graph.inputs(), sizes)
    assert "{exp2}" not in convert(graph.text(), graph.inputs(), (3, 0, 4))
