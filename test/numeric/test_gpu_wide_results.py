"""What is made of an attention's result and is no float of up to 32 bits, for GPUs: computed in a kernel behind it."""

import numpy as np
import pytest
from gpu_modules import run_module
from harness import relative_error
from probability_graphs import SIZES, Graph, softmax

# What is made of %in0, and the same in numpy.
RESULTS = {
    "i1": (["%r = arith.cmpf ogt, %in0, %half : f32"], lambda o: o > 0.5),
    "i32": (["%y = arith.mulf %in0, %many : f32", "%r = arith.fptosi %y : f32 to i32"], lambda o: np.trunc(o * 100)),
    "f64": (["%y = arith.extf %in0 : f32 to f64", "%r = arith.mulf %y, %y : f64"], lambda o: o * o),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("element", RESULTS)
def test_results(element, arch):
    graph = Graph("bf16", SIZES | {"n": 16})
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    p = graph.softmax("p", graph.scores("s", q, k))
    p = graph.elementwise("narrow", "hmk", [(p, "hmk")], ["%r = arith.addf %in0, %zero : f32"], "bf16")
    o = graph.matmul("o", (p, "hmk", "bf16"), (v, "hkn", "bf16"), "hmn", "k")
    body, function = RESULTS[element]
    body = ["%half = arith.constant 0.5 : f32", "%many = arith.constant 100.0 : f32", *body]
    graph.empty("made", "hmn", element)
    ins = [(o, "hmn", "f32")]
    graph.generic("made", "hmn", "", ins, ("%made_empty", "hmn", element), [*body, f"linalg.yield %r : {element}"])
    text = graph.function("%made").replace(graph.type("hmn", "f32") + " {", graph.type("hmn", element) + " {")
    text = text.replace(f"return %made : {graph.type('hmn', 'f32')}", f"return %made : {graph.type('hmn', element)}")
    inputs = [x.astype(np.float64) for x in graph.inputs()]
    (found,) = run_module(text, inputs, arch=arch)
    q, k, v = inputs
    expected = function(softmax(0.25 * q @ k.swapaxes(1, 2)) @ v)
    if element == "i32":
        assert np.abs(found - expected).max() <= 1
    elif element == "i1":
        assert np.mean(found != expected) < 1e-2
    else:
        assert relative_error(found, expected) < 4e-2
