"""The reference evaluator needs memory for one matrix of scores, not for every value of the graph."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference import evaluate

def tensor(*shape):
    return "tensor<" + "x".join(map(str, shape)) + "xf32>"

b, h, m, n, d = 6, 8, 1024, 512, 32
S, R, Q, K, V = (tensor(*s) for s in ((b, h, m, n), (b, h, m), (b, h, m, d), (b, h, d, n), (b, h, n, d)))
loops = "affine_map<(b, h, i, j) -> (b, h, i, j)>"
text = f'''
func.func @f(%q: {Q}, %k: {K}, %v: {V}) -> {Q} {{
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %scale = arith.constant 0.25 : f32
  %e = tensor.empty() : {S}
  %er = tensor.empty() : {R}
  %eo = tensor.empty() : {Q}
  %f = linalg.fill ins(%zero : f32) outs(%e : {S}) -> {S}
  %a = linalg.fill ins(%zero : f32) outs(%er : {R}) -> {R}
  %x = linalg.fill ins(%inf : f32) outs(%er : {R}) -> {R}
  %o = linalg.fill ins(%zero : f32) outs(%eo : {Q}) -> {Q}
  %s = linalg_ext.batch_matmul ins(%q, %k : {Q}, {K}) outs(%f : {S}) layout = "nn"
  %c = linalg.generic {{indexing_maps = [{loops}, {loops}],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}} ins(%s : {S}) outs(%e : {S}) {{
  ^bb0(%score: f32, %unused: f32):
    %i = linalg.index 2 : index
    %j = linalg.index 3 : index
    %scaled = arith.mulf %score, %scale : f32
    %visible = arith.cmpi sge, %i, %j : index
    %y = arith.select %visible, %scaled, %inf : f32
    linalg.yield %y : f32
  }} -> {S}
  %p:4 = linalg_ext.softmax dimension(3) ins(%c : {S}) outs(%e, %x, %a, %er : {S}, {R}, {R}, {R}) : {S}, {R}, {R}, {R}
  %r = linalg_ext.batch_matmul ins(%p#0, %v : {S}, {V}) outs(%o : {Q}) layout = "nn"
  return %r : {Q}
}}
'''
module = parse_module(text, "large.mlir", make_context())
generator = np.random.default_rng(0)
arguments = [generator.standard_normal(s, dtype=np.float32) for s in ((b, h, m, d), (b, h, d, n), (b, h, n, d))]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
evaluate(module, arguments)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print((after - before) / (8 * b * h * m * n))
"""


@pytest.mark.slow
def test_scale_mask_and_softmax_are_computed_in_place():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.5
