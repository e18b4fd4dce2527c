"""Sorts of the three frontends, and what is made of them: all become ranks (compiler/frontends/sorting.py)."""

import importlib
import math

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile

ROWS = np.random.default_rng(0).standard_normal((4, 12)).astype(np.float32)
ROWS[1] = ROWS[1].round()  # equal elements
ROWS[2, 1:4] = -0.0, math.inf, -math.inf
WHOLE = np.random.default_rng(1).integers(0, 6, (4, 12))
WITH_NAN = ROWS.copy()
WITH_NAN[0, 3] = WITH_NAN[0, 7] = math.nan

OF_TORCH = {
    "sort": lambda x: x.sort(dim=-1, stable=True),
    "sort along the first": lambda x: x.sort(dim=0, stable=True),
    "sort down": lambda x: x.sort(dim=-1, descending=True, stable=True),
    "argsort": lambda x: x.argsort(dim=0, stable=True),
    "topk": lambda x: x.topk(3).values,
    "topk of the smallest": lambda x: x.topk(2, 0, largest=False).values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "kthvalue kept": lambda x: x.kthvalue(2, 0, keepdim=True).values,
    "median": lambda x: x.median(),
    "median of rows": lambda x: x.median(-1).values,
}


@pytest.mark.parametrize("x", [ROWS, WHOLE, WITH_NAN], ids=["floats", "integers", "with NaN"])
@pytest.mark.parametrize("name", OF_TORCH)
def test_torch(name, x):
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    function, x = OF_TORCH[name], torch.from_numpy(x)
    torch.testing.assert_close(compile(function, (x,))(x), function(x), equal_nan=True)


@pytest.mark.parametrize("name", ["products", "distances"])
def test_torch_ranks_of_sums(name):
    """Each sum is compared with itself, too: it must be one number wherever it is read."""
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    x, w = torch.randn((128, 256), generator=torch.manual_seed(0)), torch.randn((256, 8))
    sums = {"products": lambda x, w: x @ w, "distances": lambda x, w: ((x[:, :, None] - w) ** 2).sum(1)}[name]
    values, indices = compile(lambda x, w: tuple(sums(x, w).topk(2)), (x, w))(x, w)
    right = sums(x, w).topk(2)
    torch.testing.assert_close(values, right.values)
    assert (indices == right.indices).all()


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "bfloat16"])
def test_torch_of_other_types(name):
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    x = torch.from_numpy(WHOLE * 50 - 20).to(getattr(torch, name))
    kernel = compile(OF_TORCH["sort"], (x,))
    torch.testing.assert_close(kernel(x), OF_TORCH["sort"](x))


def test_torch_of_an_open_size():
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

    def function(x):
        return x.sort(-1)

    kernel = compile(function, (torch.from_numpy(ROWS),), dynamic_shapes={"x": {1: torch.export.Dim("n")}})
    for size in (5, 40):
        x = torch.randn(4, size)
        torch.testing.assert_close(kernel(x), function(x))


def test_torch_routes_tokens():
    """What a mixture of experts does."""
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

    def routed(x, gate, experts):
        weights, chosen = (x @ gate).softmax(-1).topk(2)
        weights = weights / weights.sum(-1, keepdim=True)
        return torch.einsum("tk,tkd->td", weights, torch.einsum("td,tkde->tke", x, experts[chosen]))

    torch.manual_seed(0)
    args = torch.randn(7, 8), torch.randn(8, 4), torch.randn(4, 8, 8)
    torch.testing.assert_close(compile(routed, args)(*args), routed(*args))


def sparse(q, k, v):
    scores = q @ k.mT
    return scores.masked_fill(scores < scores.topk(3).values[..., -1:], -math.inf).softmax(-1) @ v


def hard(q, k, v):
    scores = q @ k.mT
    return scores.masked_fill(scores != scores.amax(-1, keepdim=True), -math.inf).softmax(-1) @ v


@pytest.mark.parametrize("function", [sparse, hard])
@pytest.mark.parametrize("way", ["compile", "torch.compile"])
def test_torch_keeps_the_largest_scores(function, way):
    """Scores that are computed twice, in different orders, are not equal."""
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    importlib.import_module("attn_opt.compiler.frontends.dynamo.kernel")._warned.clear()  # once for each reason
    torch.manual_seed(0)
    args = [torch.randn(2, 3, 9, 8) for _ in range(3)]
    with pytest.warns(UserWarning, match="scores are compared with what is computed from all of them") as told:
        kernel = compile(function, args) if way == "compile" else torch.compile(function, backend="attn_opt")
        kernel(*args)
    assert sum("scores are compared" in str(w.message) for w in told) == 1
    torch.testing.assert_close(kernel(*args), function(*args), rtol=1e-4, atol=1e-5)


OF_JAX = {
    "sort": lambda jax, x: jax.numpy.sort(x),
    "sort down": lambda jax, x: jax.numpy.sort(x, axis=0, descending=True),
    "argsort": lambda jax, x: jax.numpy.argsort(x),
    "top_k": lambda jax, x: jax.lax.top_k(x, 3),
    "by two keys": lambda jax, x: jax.lax.sort((x, x + 1), num_keys=2),
    "lexsort": lambda jax, x: jax.numpy.lexsort((x, jax.numpy.round(x / 2))),
    "median": lambda jax, x: jax.numpy.median(x, axis=1),
    "unique": lambda jax, x: jax.numpy.unique(
        x, size=9, fill_value=7, return_index=True, return_inverse=True, return_counts=True
    ),
}


@pytest.mark.parametrize("kind", ["float32", "with NaN", "int32", "uint8"])
@pytest.mark.parametrize("name", OF_JAX)
def test_jax(name, kind):
    jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")
    x = WITH_NAN if kind == "with NaN" else (ROWS if kind == "float32" else WHOLE).astype(kind)

    def function(x):
        return OF_JAX[name](jax, x)

    for ours, expected in zip(*map(jax.tree.leaves, (compile(function, (x,))(x), jax.jit(function)(x))), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.parametrize("search", ["approx_max_k", "approx_min_k"])
def test_jax_searches_that_may_miss(search):
    """They miss nothing here, also where they are called in a loop that is written out."""
    jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

    def function(x):
        step = lambda c, row: (c, getattr(jax.lax, search)(row, 2))  # noqa: E731
        return jax.jit(lambda x: getattr(jax.lax, search)(x, 3, reduction_dimension=0))(x), jax.lax.scan(step, 0, x)[1]

    x = ROWS.astype(np.float32)
    for ours, expected in zip(*map(jax.tree.leaves, (compile(function, (x,))(x), function(x))), strict=True):
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("x", [ROWS, WHOLE], ids=["floats", "integers"])
@pytest.mark.parametrize("axis", [0, -1])
def test_onnx(axis, x, largest):
    onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    helper, reference = onnx.helper, pytest.importorskip("onnx.reference")
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    node = helper.make_node("TopK", ["x", "k"], ["values", "indices"], axis=axis, largest=largest)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("values", kind, None), helper.make_tensor_value_info("indices", 7, None)],
        [onnx.numpy_helper.from_array(np.array([3]), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    values, indices = compile(model)(x)
    np.testing.assert_array_equal(values, reference.ReferenceEvaluator(model).run(None, {"x": x})[0])
    np.testing.assert_array_equal(np.take_along_axis(x, indices, axis), values)


def test_what_has_no_lowering_says_so():
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    with pytest.raises(CompileError, match=r"test_sorts\.py:\d+.*'torch\.aten\.mode'; leave that op to torch"):
        compile(lambda x: x.mode(-1), (torch.from_numpy(ROWS),))
