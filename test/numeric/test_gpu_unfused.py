"""Attention that no kernel for a GPU can be made of: it is left with a warning, as an error where one is asked for."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile, stats
from attn_opt.compiler.graphs import Attention
from gpu import have_gpu
from gpu import poisoned as poisoned
from gpu_modules import Launches, run_module

REASON = "a dimension is rows of one matmul together with others, and not of another"
# Scores of queries made of one vector, which all rows have in common: rows of values' matmul alone.
VECTORS = """
func.func @main(%h: tensor<2x90x8xf32>, %a: tensor<2x90xf32>, %b: tensor<8xf32>) -> tensor<2x90x8xf32> {
  %zero = arith.constant 0.0 : f32
  %ek = tensor.empty() : tensor<2x90xf32>
  %zk = linalg.fill ins(%zero : f32) outs(%ek : tensor<2x90xf32>) -> tensor<2x90xf32>
  %k = linalg.generic {indexing_maps = [affine_map<(b, k, d) -> (b, k, d)>, affine_map<(b, k, d) -> (d)>,
      affine_map<(b, k, d) -> (b, k)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %b : tensor<2x90x8xf32>, tensor<8xf32>) outs(%zk : tensor<2x90xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x90xf32>
  %es = tensor.empty() : tensor<2x90x90xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x90x90xf32>) -> tensor<2x90x90xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, q, k) -> (b, q)>, affine_map<(b, q, k) -> (b, k)>,
      affine_map<(b, q, k) -> (b, q, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %k : tensor<2x90xf32>, tensor<2x90xf32>) outs(%es : tensor<2x90x90xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<2x90x90xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x90x90xf32>) outs(%es : tensor<2x90x90xf32>) -> tensor<2x90x90xf32>
  %eo = tensor.empty() : tensor<2x90x8xf32>
  %zo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x90x8xf32>) -> tensor<2x90x8xf32>
  %o = linalg.batch_matmul ins(%p, %h : tensor<2x90x90xf32>, tensor<2x90x8xf32>) outs(%zo : tensor<2x90x8xf32>)
      -> tensor<2x90x8xf32>
  return %o : tensor<2x90x8xf32>
}
"""


BEHIND = """%et = tensor.empty() : tensor<2x8x90xf32>
  %ot = linalg.transpose ins(%o : tensor<2x90x8xf32>) outs(%et : tensor<2x8x90xf32>) permutation = [0, 2, 1]
  %t = linalg.batch_matmul ins(%o, %ot : tensor<2x90x8xf32>, tensor<2x8x90xf32>)
      outs(%zs : tensor<2x90x90xf32>) -> tensor<2x90x90xf32>
  %u = linalg.softmax dimension(2) ins(%t : tensor<2x90x90xf32>) outs(%es : tensor<2x90x90xf32>) -> tensor<2x90x90xf32>
  %r = linalg.batch_matmul ins(%u, %h : tensor<2x90x90xf32>, tensor<2x90x8xf32>) outs(%zo : tensor<2x90x8xf32>)
      -> tensor<2x90x8xf32>
  """


def softmax(x):
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def reference(h, a, b):
    return softmax(a[..., None] + (h @ b)[:, None]) @ h


def inputs():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 90, 8), (2, 90), (8,))]


@pytest.fixture
def refused(monkeypatch):
    """As long as the product that makes part of these scores is computed in the loops."""
    monkeypatch.setattr("attn_opt.transforms.fuse_attention.has_foreign_scores", lambda _: False)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_scores_that_no_product_of_queries_and_keys_makes(arch):
    (found,) = run_module(VECTORS, inputs(), arch=arch)
    np.testing.assert_allclose(found, reference(*(x.astype(np.float64) for x in inputs())), atol=1e-5)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_left_with_a_warning(arch, request):
    before = stats()
    with pytest.warns(match=f"attention is not fused at .*: {REASON}"):
        kernel = compile(VECTORS, target="nvidia", arch=arch)
    found = {name: number - before[name] for name, number in stats().items() if name != "reasons"}
    assert found in [{"found": 1, "compiled": 0, "left": 1, "cache_hits": n} for n in (0, 1)]
    assert REASON in kernel.explain() and "nothing was fused" in kernel.explain()
    if have_gpu():
        request.getfixturevalue("poisoned")
        exact = reference(*(x.astype(np.float64) for x in inputs()))
        np.testing.assert_allclose(kernel(*inputs()), exact, atol=1e-5)


@pytest.mark.usefixtures("refused")
def test_an_error_where_it_must_be_fused():
    heard = []
    for options in ({"must_fuse": True}, {"tile_sizes": (1, 64, 0, 64)}):
        with pytest.raises(CompileError, match=REASON):
            compile(VECTORS, target="nvidia", arch="sm_90a", listener=heard.append, **options)
        assert [str(one) for one in heard if one.severity == "error"]
        heard.clear()
    with pytest.raises(CompileError, match="must_fuse must be True or False"):
        compile(VECTORS, must_fuse="yes")


@pytest.mark.usefixtures("refused")
def test_others_are_fused():
    """The attention behind it, of which nothing was said."""
    text = VECTORS.replace("return %o :", BEHIND + "return %r :")
    with pytest.warns(match=REASON):
        kernel = compile(text, target="nvidia", arch="sm_90a")
    assert "1 attention found and fused" in kernel.explain() and REASON in kernel.explain()


@pytest.mark.parametrize("fields", [{}, {"window": (None, 0)}, {"keys": 100}], ids=str)
def test_scores_in_memory_have_a_kernel_for_their_rows(fields):
    """Their maximum, exponentials and sum: not a thread that goes along each row."""
    graph = Attention(**{"heads": 2, "queries": 96, "keys": 96, "head_size": 264, "element": "f32", **fields})
    (found,) = run_module(graph.text(), graph.inputs("normal", 0), arch="sm_90a", is_fused=True)
    expected, _ = graph.reference(graph.inputs("normal", 0))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [name for name in Launches.kernels if "rows" in name or "elements" in name] == ["attention_rows_0"]
