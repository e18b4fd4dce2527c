"""Arrays that are not contiguous are read where they stand."""

import dataclasses
import warnings

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import signature
from attn_opt.compiler.strided import Bound, strided_text

BASE = Attention(batch=2, heads=4, queries=70, keys=81, head_size=40, value_size=24)
TOLERANCES = {"f16": 3e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-12}


@pytest.fixture(autouse=True)
def _small_arrays_too(monkeypatch):
    monkeypatch.setattr(signature, "SMALL", 0)


def stored(array, order):
    """The same array, its dimensions in memory in that order from outer to inner."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def padded(array):
    large = np.full([n + 3 for n in array.shape], 99, array.dtype)
    part = tuple(slice(1, n + 1) for n in array.shape)
    large[part] = array
    return large[part]


VIEWS = {
    "bshd": lambda x: stored(x, (0, 2, 1, 3)),
    "transposed": lambda x: stored(x, (0, 1, 3, 2)),
    "sequence last, batch inner": lambda x: stored(x, (3, 1, 0, 2)),
    "part": padded,
    "spread": lambda x: np.broadcast_to(x[:, :1], x.shape),
}
GRAPHS = [
    {},
    {"heads_kv": 2, "dynamic": True, "window": (None, 0), "element": "bf16"},
    {"mask": "bhqk", "bias": "hqk", "element": "f16"},
    {"lse": True, "element": "f64", "lengths": (81, 30)},
]


@pytest.mark.parametrize("kind", [*GRAPHS[:1], *(pytest.param(g, marks=pytest.mark.slow) for g in GRAPHS[1:])], ids=str)
def test_views(kind):
    graph = dataclasses.replace(BASE, **kind)
    kernel = compile(graph.text())
    for name, view in VIEWS.items():
        inputs = [view(x) if x.ndim == 4 else x for x in graph.inputs("uniform", 1)]
        bound = kernel.bind(inputs)
        assert type(bound) is Bound, name
        assert all(np.shares_memory(a, b) for a, b in zip(bound, inputs, strict=True)), name
        expected, _ = graph.reference(inputs)
        found = kernel.run(bound)[0].astype(np.float64)
        assert np.abs(found - expected).max() / np.abs(expected).max() < TOLERANCES[graph.element], name


@pytest.mark.slow
def test_one_of_several():
    graph = dataclasses.replace(BASE, dynamic=True)
    kernel = compile(graph.text())
    q, k, v = graph.inputs()
    expected = kernel(q, k, v)
    for inputs in ((q, stored(k, (0, 1, 3, 2)), v), (q[:, :, ::2], k, v), (q, k, stored(v, (2, 0, 1, 3)))):
        found = kernel(*inputs)
        right = expected[:, :, ::2] if inputs[0] is not q else expected
        np.testing.assert_allclose(found, right, rtol=1e-5)


def test_what_memrefs_cannot_be_is_copied_and_told():
    graph = dataclasses.replace(BASE, heads=2)
    kernel = compile(graph.text())
    q, k, v = graph.inputs()
    for view in (lambda x: x[:, :, ::-1], lambda x: stored(x, (0, 2, 3, 1))):  # heads next to each other
        with pytest.warns(RuntimeWarning, match=r"argument 1 is copied at each call: .* in reverse order"):
            found = kernel(q, view(k), v)
        np.testing.assert_allclose(found, kernel(q, np.ascontiguousarray(view(k)), v))


def test_small_arrays_are_copied_in_silence(monkeypatch):
    monkeypatch.setattr(signature, "SMALL", 1 << 20)
    kernel = compile(BASE.text())
    q, k, v = BASE.inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(kernel.bind([q[:, :, ::-1], stored(k, (0, 1, 3, 2)), v])) is list


def test_arguments_that_are_returned():
    kernel = compile("""
func.func @f(%x: tensor<?x?xf32>) -> (tensor<?x?xf32>, index) {
  %c = arith.constant 1 : index
  %d = tensor.dim %x, %c : tensor<?x?xf32>
  return %x, %d : tensor<?x?xf32>, index
}""")
    x = np.arange(150, dtype=np.float32).reshape(5, 30)
    found, size = kernel(x.T)
    np.testing.assert_array_equal(found, x.T)
    assert size == 5 and not np.shares_memory(found, x)


def test_the_graph_of_a_variant():
    text = strided_text(BASE.text(), "attention", ((1, 2), (2, 3)))
    assert "%arg1: tensor<2x4x40x81xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}" in text
    assert "%arg2: tensor<2x4x81x24xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}" in text
    assert "%arg0: tensor<2x4x70x40xf32>," in text
