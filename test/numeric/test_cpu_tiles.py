"""Attention through the automatic fusion and the CPU's layouts, padding and types, against float64."""

import ml_dtypes
import numpy as np
import pytest
from attention_graph import Attention
from harness import crossed, fused, relative_error

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
TOLERANCE = {"f32": 1e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1e-2}


def expected(q, k, v, scale=1.0, bias=0.0, causal=False):
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) * scale + bias
    if causal:
        s = np.where(np.arange(s.shape[-1]) > np.arange(s.shape[-2])[:, None], -np.inf, s)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", list(DTYPES))
@pytest.mark.parametrize(
    ("sizes", "modify"), crossed([(64, 128, 32, 48), (131, 99, 40, 17), (17, 70, 300, 5)], ["none", "causal"])
)
def test_shapes(kind, modify, sizes):
    m, k, d, dv = sizes
    graph = Attention(m=m, k=k, d=d, dv=dv, batch=(2,), layout="nt", modify=modify, element=kind)
    inputs = [(x * d**-0.25).astype(DTYPES[kind]) for x in graph.inputs()]
    found = fused(graph.text())(*inputs)
    scale = 1.0 if modify == "none" else 0.5
    assert relative_error(found, expected(*inputs, scale, causal=modify == "causal")) < TOLERANCE[kind]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_vectors(kind, vector_bytes):
    graph = Attention(m=77, k=150, d=24, dv=33, batch=(2,), layout="nt", modify="causal", element=kind)
    inputs = [x.astype(DTYPES[kind]) for x in graph.inputs()]
    found = fused(graph.text(), vector_bytes=vector_bytes)(*inputs)
    assert relative_error(found, expected(*inputs, 0.5, causal=True)) < TOLERANCE[kind]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_dynamic(kind):
    """One kernel for all sizes: whole tiles, cut ones, and fewer queries than lanes."""
    graph = Attention(m=7, k=7, d=7, dv=7, batch=(2,), layout="nt", element=kind, dynamic=True)
    run = fused(graph.text())
    for m, k, d, dv in ((64, 64, 32, 32), (1, 200, 16, 16), (70, 3, 9, 21), (129, 65, 64, 64)):
        sized = Attention(m=m, k=k, d=d, dv=dv, batch=(2,), layout="nt", element=kind)
        inputs = [(x * d**-0.25).astype(DTYPES[kind]) for x in sized.inputs()]
        assert relative_error(run(*inputs), expected(*inputs)) < TOLERANCE[kind]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("m", "k"), [(64, 64), (131, 99)])
@pytest.mark.parametrize("bias_map", ["(b, i, j) -> (i, j)", "(b, i, j) -> (j)", "(b, i, j) -> (b, i)"])
def test_bias(m, k, bias_map):
    """What is loaded for each score is read as it stands, by rows or not, while queries are the lanes."""
    letters = bias_map.partition("-> (")[2].rstrip(")").split(", ")
    sizes = {"b": 2, "i": m, "j": k}
    shape = tuple(sizes[x] for x in letters)
    d = 32
    graph = Attention(m=m, k=k, d=d, dv=d, batch=(2,), layout="nt", modify="scale", element="f32")
    kind = "tensor<" + "".join(f"{s}x" for s in shape) + "f32>"
    text = graph.text().replace(") -> (tensor", f", %bias: {kind}) -> (tensor", 1)
    old, new = "affine_map<(d0, d1, d2) -> (d0, d1, d2)>, ", f"affine_map<{bias_map}>, "
    head, _, tail = text.partition("%mod = linalg.generic {indexing_maps = [")
    tail = tail.replace(old, old + new, 1).replace("ins(%s : ", "ins(%s, %bias : ", 1)
    tail = tail.replace("f32>) outs(%mod_e", f"f32>, {kind}) outs(%mod_e", 1)
    tail = tail.replace("^bb0(%x: f32, %old: f32)", "^bb0(%x: f32, %bi: f32, %old: f32)", 1)
    tail = tail.replace("linalg.yield %y : f32", "%yb = arith.addf %y, %bi : f32\n    linalg.yield %yb : f32", 1)
    run = fused(head + "%mod = linalg.generic {indexing_maps = [" + tail)
    q, key, v = (x.astype(np.float32) for x in graph.inputs())
    bias = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    spread = {("i", "j"): bias, ("j",): bias, ("b", "i"): bias[..., None] if bias.ndim == 2 else bias}[tuple(letters)]
    assert relative_error(run(q, key, v, bias), expected(q, key, v, 0.5, spread.astype(np.float64))) < 1e-5
