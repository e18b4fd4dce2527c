"""What is computed of open sizes is seen to be a size; broadcasts that ask for them are reads at a loop's index."""

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.frontends.open_broadcasts import read_by_loops
from attn_opt.compiler.frontends.open_sizes import settle
from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir

# Computed as %r, an index, of the sizes %b and %s, and as numbers of 64 bits %b64 and %s64; what is left of it.
SIZES = {
    "quotient of a product": ("%p = arith.muli %b64, %s64 : i64 %q = arith.divsi %p, %s64 : i64", "%q", "%b"),
    "by numbers": ("%p = arith.muli %b64, %four : i64 %q = arith.divsi %p, %four : i64", "%q", "%b"),
    "never negative": (
        "%p = arith.muli %b64, %s64 : i64 %n = arith.cmpi slt, %p, %zero : i64 %q = arith.select %n, %four, %s64 : i64",
        "%q",
        "%s",
    ),
    "the larger one": (
        "%p = arith.muli %s64, %b64 : i64 %q = arith.divsi %p, %s64 : i64 %m = arith.maxui %q, %b64 : i64",
        "%m",
        "%b",
    ),
    "listed": (
        """%l = tensor.from_elements %b64, %s64 : tensor<2xi64> %t = tensor.concat dim(0) %fours, %l : (tensor<1xi64>,
        tensor<2xi64>) -> tensor<3xi64> %e = tensor.extract_slice %t[2] [1] [1] : tensor<3xi64> to tensor<1xi64>
        %k = tensor.collapse_shape %e [] : tensor<1xi64> into tensor<i64> %q = tensor.extract %k[] : tensor<i64>""",
        "%q",
        "%s",
    ),
    "gathered": (
        """%l = tensor.from_elements %b64, %s64 : tensor<2xi64> %o = tensor.empty() : tensor<1xi64>
        %ones = arith.constant dense<1> : tensor<1xi64>
        %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
          iterator_types = ["parallel"]} ins(%ones : tensor<1xi64>) outs(%o : tensor<1xi64>) {
        ^bb0(%in: i64, %out: i64):
          %i = arith.index_cast %in : i64 to index
          %d = tensor.extract %l[%i] : tensor<2xi64>
          linalg.yield %d : i64
        } -> tensor<1xi64> %q = tensor.extract %g[%c0] : tensor<1xi64>""",
        "%q",
        "%s",
    ),
    "zero for that of the operand": (
        "%is = arith.cmpi eq, %b64, %zero : i64 %q = arith.select %is, %s64, %b64 : i64",
        "%q",
        "%b",
    ),
    "broadcast with one": ("%one = arith.constant 1 : i64 %q = arith.maxui %b64, %one : i64", "%q", "%b"),
    "computed in a list": (
        """%l = tensor.from_elements %s64 : tensor<1xi64> %o = tensor.empty() : tensor<1xi64>
        %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
          iterator_types = ["parallel"]} ins(%l : tensor<1xi64>) outs(%o : tensor<1xi64>) {
        ^bb0(%in: i64, %out: i64):
          %d = arith.muli %in, %b64 : i64
          linalg.yield %d : i64
        } -> tensor<1xi64> %e = tensor.extract %g[%c0] : tensor<1xi64> %q = arith.divsi %e, %s64 : i64""",
        "%q",
        "%b",
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    lines, result, left = SIZES[name]
    text = f"""func.func @main(%x: tensor<?x?xf32>) -> (index, index, index) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0 : i64
      %four = arith.constant 4 : i64
      %fours = arith.constant dense<4> : tensor<1xi64>
      %b = tensor.dim %x, %c0 : tensor<?x?xf32>
      %s = tensor.dim %x, %c1 : tensor<?x?xf32>
      %b64 = arith.index_cast %b : index to i64
      %s64 = arith.index_cast %s : index to i64
      {lines}
      %r = arith.index_cast {result} : i64 to index
      return %r, %b, %s : index, index, index
    }}"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        settle(module)
        assert module.operation.verify()
        end = list(module.body.operations[0].regions[0].blocks[0].operations)[-1]
        assert end.operands[0] == end.operands[1 if left == "%b" else 2], str(module)


@pytest.mark.parametrize("size, is_read", [("%b", True), ("%other", False)])
def test_broadcasts(size, is_read):
    """A size that is not that of the loop may be 1 where the loop is longer."""
    text = f"""func.func @main(%y: tensor<?x8xf32>, %other: index) -> tensor<?x8xf32> {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %b = tensor.dim %y, %c0 : tensor<?x8xf32>
      %e1 = tensor.empty({size}) : tensor<?x1xf32>
      %e = tensor.empty(%b) : tensor<?x8xf32>
      %z = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
          outs(%e : tensor<?x8xf32>) {{
      ^bb0(%o: f32):
        %i = linalg.index 0 : index
        %is = arith.cmpi eq, {size}, %c1 : index
        %at = arith.select %is, %c0, %i : index
        %v = tensor.extract %e1[%at, %c0] : tensor<?x1xf32>
        linalg.yield %v : f32
      }} -> tensor<?x8xf32>
      return %z : tensor<?x8xf32>
    }}"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        read_by_loops(module)
        assert module.operation.verify()
        assert ("tensor.extract" not in str(module)) == is_read, str(module)


def test_a_block_of_open_sizes_has_kernels():
    """Heads that are merged and split by what Shape tells; the norm behind it is computed on rows, of memory."""
    onnx_harness = pytest.importorskip("onnx_harness", reason="the extra 'onnx' is not installed")
    weights = {n: onnx_harness.random(32, 32, seed=i) for i, n in enumerate("opqr")}
    text = """g (float[b, s, 32] x) => (float[b, s, 32] y) {
      shape = Shape(x)   first = Constant<value = int64 {0}> ()   second = Constant<value = int64 {1}> ()
      b0 = Gather(shape, first)   s0 = Gather(shape, second)   none = Constant<value = int64[1] {0}> ()
      b1 = Unsqueeze(b0, none)   s1 = Unsqueeze(s0, none)
      split = Constant<value = int64[2] {4, 8}> ()   rest = Constant<value = int64[1] {-1}> ()
      heads = Concat<axis = 0> (b1, s1, split)   merged = Concat<axis = 0> (b1, s1, rest)
      q0 = MatMul(x, q)   q1 = Reshape(q0, heads)   q2 = Transpose<perm = [0, 2, 1, 3]> (q1)
      k0 = MatMul(x, p)   k1 = Reshape(k0, heads)   k2 = Transpose<perm = [0, 2, 3, 1]> (k1)
      v0 = MatMul(x, r)   v1 = Reshape(v0, heads)   v2 = Transpose<perm = [0, 2, 1, 3]> (v1)
      scores = MatMul(q2, k2)   weights = Softmax<axis = -1> (scores)   found = MatMul(weights, v2)
      turned = Transpose<perm = [0, 2, 1, 3]> (found)   m0 = Reshape(turned, merged)   m1 = MatMul(m0, o)
      sum = Add(m1, x)   y = LayerNormalization<axis = -1> (sum, scale)
    }"""
    model = onnx_harness.model(text, scale=np.ones(32, np.float32), **weights)
    x = onnx_harness.random(2, 9, 32)
    onnx_harness.assert_close(compile(model)(x), onnx_harness.reference(model, [x]))
    told = compile(model, target="nvidia", arch="sm_90a", multiprocessors=132).explain()
    assert "1 attention found and fused" in told and "computed with its sums, in kernel main_rows_0" in told


FOUR = "float[b, 4, s, 16]"
GRAPHS = {  # whose batches are equal, as they have one name
    "Attention": (23, f"g ({FOUR} q, {FOUR} k, {FOUR} v) => ({FOUR} y) {{ y = Attention(q, k, v) }}"),
    "causal": (23, f"g ({FOUR} q, {FOUR} k, {FOUR} v) => ({FOUR} y) {{ y = Attention<is_causal = 1>(q, k, v) }}"),
    "heads in a row": (
        23,
        """g (float[b, s, 32] q, float[b, s, 32] k, float[b, s, 32] v) => (float[b, s, 32] y) {
          y = Attention<q_num_heads = 4, kv_num_heads = 4>(q, k, v)
        }""",
    ),
    "Einsum": (
        17,
        f"""g ({FOUR} q, {FOUR} k) => (float[b, 4, s, s] y) {{ y = Einsum<equation = "bhqd,bhkd->bhqk">(q, k) }}""",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_sizes_of_one_name_are_one(name):
    onnx_harness = pytest.importorskip("onnx_harness", reason="the extra 'onnx' is not installed")
    opset, text = GRAPHS[name]
    kernel = compile(onnx_harness.model(text, opset), target="nvidia", arch="sm_90a", multiprocessors=132)
    assert ("1 attention found and fused" in kernel.explain()) == (name != "Einsum")


@pytest.mark.parametrize("element", ["float", "float16"])
def test_masks_of_positions_need_no_kernel_of_their_own(element, recwarn):
    """Sizes that are told by lists are known in half precision, too: positions are compared as [b, 1, 1, s] and
    [b, 1, s, 1]."""
    onnx_harness = pytest.importorskip("onnx_harness", reason="the extra 'onnx' is not installed")
    kind = f"{element}[b, h, s, 16]"
    text = f"""g ({kind} q, {kind} k, {kind} v) => ({kind} y) {{
      shape = Shape(q)   first = Constant<value = int64[1] {{0}}> ()   third = Constant<value = int64[1] {{2}}> ()
      b0 = Gather(shape, first)   s0 = Gather(shape, third)   one = Constant<value = int64[1] {{1}}> ()
      zero = Constant<value = int64 {{0}}> ()   step = Constant<value = int64 {{1}}> ()   n = Squeeze(s0, first)
      range = Range(zero, n, step)   last = Constant<value = int64[3] {{0, 1, 3}}> ()
      front = Constant<value = int64[3] {{0, 1, 2}}> ()   r0 = Unsqueeze(range, last)   c0 = Unsqueeze(range, front)
      tall = Concat<axis = 0> (b0, one, s0, one)   wide = Concat<axis = 0> (b0, one, one, s0)
      rows = Expand(r0, tall)   columns = Expand(c0, wide)   is = LessOrEqual(columns, rows)
      t = Transpose<perm = [0, 1, 3, 2]> (k)   scores = MatMul(q, t)   low = Constant<value = float {{-1e4}}> ()
      none = CastLike(low, scores)   masked = Where(is, scores, none)   p = Softmax<axis = -1> (masked)
      y = MatMul(p, v)
    }}"""
    inputs = [onnx_harness.random(2, 3, 9, 16, seed=i) for i in range(3)]
    inputs = [x.astype(np.float16 if element == "float16" else np.float32) for x in inputs]
    model = onnx_harness.model(text)
    kernel = compile(model)
    found, expected = kernel(*inputs), onnx_harness.reference(model, inputs)
    onnx_harness.assert_close(found, expected, 5e-3 if element == "float16" else 1e-5)
    assert not recwarn.list and "1 attention found and fused" in kernel.explain()


def test_a_refusal_of_open_sizes_says_what_fixes_them():
    onnx_harness = pytest.importorskip("onnx_harness", reason="the extra 'onnx' is not installed")
    text = """g (float[b, 4] x, bool c) => (float[b, 4] y) {
      y = If(c) <
        then_branch = first () => (float[b, 4] t) { t = Softmax(x) },
        else_branch = second () => (float[b, 4] e) { e = Identity(x) }
      >
    }"""
    model = onnx_harness.model(text)
    with pytest.raises(CompileError, match="example_args would fix"):
        compile(model, target="nvidia", arch="sm_90a")
