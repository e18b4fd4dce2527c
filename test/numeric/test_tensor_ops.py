"""Ops of arith and math on whole tensors, beside those of linalg, against float64."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate

MODIFICATIONS = {
    "bias": "%x = arith.addf %s, %b : S",
    "scale and softcap": """
      %c = arith.constant dense<0.25> : S
      %y = arith.mulf %s, %c : S
      %t = math.tanh %y : S
      %x = arith.addf %t, %b : S""",
    "mask": """
      %low = arith.constant dense<0xFF800000> : S
      %z = arith.constant dense<0.0> : S
      %keep = arith.cmpf ogt, %b, %z : S
      %x = arith.select %keep, %s, %low : MASK, S""",
    "clamp": """
      %low = arith.constant dense<-1.0> : S
      %high = arith.constant dense<1.5> : S
      %t = math.clampf %s to [%low, %high] : S
      %x = arith.subf %t, %b : S""",
}


def attention(modification: str) -> str:
    text = f"""
    func.func @f(%q: tensor<2x5x8xf32>, %k: tensor<2x8x70xf32>, %v: tensor<2x70x4xf32>, %b: S) -> tensor<2x5x4xf32> {{
      %zero = arith.constant 0.0 : f32
      %se = tensor.empty() : S
      %s0 = linalg.fill ins(%zero : f32) outs(%se : S) -> S
      %s = linalg.batch_matmul ins(%q, %k : tensor<2x5x8xf32>, tensor<2x8x70xf32>) outs(%s0 : S) -> S
      {modification}
      %p = linalg.softmax dimension(2) ins(%x : S) outs(%se : S) -> S
      %oe = tensor.empty() : tensor<2x5x4xf32>
      %o0 = linalg.fill ins(%zero : f32) outs(%oe : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
      %o = linalg.batch_matmul ins(%p, %v : S, tensor<2x70x4xf32>) outs(%o0 : tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
      return %o : tensor<2x5x4xf32>
    }}"""
    return text.replace(" S", " tensor<2x5x70xf32>").replace("MASK", "tensor<2x5x70xi1>")


@pytest.mark.parametrize("modification", MODIFICATIONS.values(), ids=list(MODIFICATIONS))
def test_score_modifications_are_fused(modification):
    text = attention(modification)
    kernel = compile(text, threads=1)
    assert "scf.for" in kernel.ir("fused")
    rng = np.random.default_rng(0)
    shapes = [(2, 5, 8), (2, 8, 70), (2, 70, 4), (2, 5, 70)]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    with make_context() as context:
        (expected,) = evaluate(parse_module(text, "graph.mlir", context), inputs)
    np.testing.assert_allclose(kernel(*inputs), expected, atol=1e-6)


def test_sizes_that_they_relate():
    """Open sizes that an op on tensors says to be equal are checked, or made up, to be so."""
    kernel = compile(
        """func.func @f(%a: tensor<?x3xf32>, %b: tensor<?x3xf32>, %flag: i1) -> tensor<?x3xf32> {
             %0 = arith.addf %a, %b : tensor<?x3xf32>
             %1 = arith.select %flag, %0, %a : tensor<?x3xf32>
             return %1 : tensor<?x3xf32>
           }""",
        fuse=False,
    )
    a, b = np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)
    np.testing.assert_array_equal(kernel(a, b, True), a + b)
    with pytest.raises(CompileError, match="dimension 0 of argument 1 must be 4"):
        kernel(a, b[:3], True)
