"""Models of ONNX whose sizes are open, as exporters write them: broadcast, computed, merged."""

import warnings

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import B, D, S, assert_close, model, random, reference, softmax  # noqa: E402

# A mask of [batch, 1, 1, keys] that is broadcast: whether its sizes are 1, the types do not say.
BROADCAST = """g (float[b,s,32] x, float[m,n,t] bias, float[b,k] kept) => (float[b,s,32] y) {
  heads = Constant<value_ints = [0, 0, 4, 8]>()
  x0 = MatMul(x, w)  x1 = Reshape(x0, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(x1)  kt = Transpose<perm = [0, 2, 3, 1]>(x1)
  s0 = MatMul(q, kt)
  ax = Constant<value_ints = [1]>()  b4 = Unsqueeze(bias, ax)  s1 = Add(s0, b4)
  ax12 = Constant<value_ints = [1, 2]>()  k4 = Unsqueeze(kept, ax12)
  zero = Constant<value_float = 0.0>()  low = Constant<value_float = -3.4028234663852886e38>()
  shown = Greater(k4, zero)  s2 = Where(shown, s1, low)
  p = Softmax<axis = -1>(s2)
  o = MatMul(p, q)  o1 = Transpose<perm = [0, 2, 1, 3]>(o)
  flat = Constant<value_ints = [0, 0, 32]>()  y = Reshape(o1, flat)
}"""


@pytest.mark.parametrize("bias", [(1, 1, 1), (B, S, S), (1, S, S), (B, 1, S)])
@pytest.mark.parametrize("keys", [1, S])
def test_open_sizes_that_are_broadcast(bias, keys):
    source = model(BROADCAST, w=random(D, D))
    kernel = compile(source)
    kept = np.ones((B, keys), np.float32)
    kept[:, keys // 2 + 1 :] = 0
    inputs = [random(B, S, D), 4 * random(*bias), kept]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is compiled for these sizes
        assert_close(kernel(*inputs), reference(source, inputs))
        assert_close(kernel(*inputs), reference(source, inputs))


def test_a_kernel_for_open_sizes_says_when_it_does_not_fit():
    source = model("g (float[a] x, float[b] y) => (float[c] z) { z = Add(x, y) }")
    kernel = compile(source)
    x, y = random(5), random(1)
    with pytest.warns(UserWarning, match="is not right where a size of 1 is broadcast"):
        assert_close(kernel(x, y), [x + y])
    assert_close(kernel(x, x), [x + x])
    with pytest.raises(CompileError, match="do not fit together"):
        kernel(x, random(4))


def test_errors_of_open_sizes_name_the_way_out():
    source = model("g (float[n] x) => (float[k] y) { y = Unique(x) }")
    with pytest.raises(CompileError, match=r"Unique.*\n.*leaves sizes open, which example_args would fix"):
        compile(source)


# Shapes as exporters compute them: sizes that are known beside those that are not, an expand of some dimensions.
COMPUTED = """g (float[b,s,32] x, bool[b,s] kept) => (float[b,s,32] y) {
  all = Shape(x)
  i0 = Constant<value_int = 0>()  i1 = Constant<value_int = 1>()
  b0 = Gather(all, i0)  s0 = Gather(all, i1)
  ax = Constant<value_ints = [0]>()  b1 = Unsqueeze(b0, ax)  s1 = Unsqueeze(s0, ax)
  tail = Constant<value_ints = [4, 8]>()  heads = Concat<axis = 0>(b1, s1, tail)
  x0 = MatMul(x, w)  x1 = Reshape(x0, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(x1)
  size = Shape(q)
  i3 = Constant<value_ints = [3]>()  end = Constant<value_ints = [4]>()  i2 = Constant<value_ints = [2]>()
  s2 = Slice(size, i2, i3)  d2 = Slice(size, i3, end)  outer = Slice(size, ax, i2)
  minus = Constant<value_ints = [-1]>()  merged = Concat<axis = 0>(minus, s2, d2)
  k0 = Reshape(q, merged)  k1 = Transpose<perm = [0, 2, 1]>(k0)
  split = Concat<axis = 0>(outer, d2, s2)  kt = Reshape(k1, split)
  p0 = MatMul(q, kt)
  ax12 = Constant<value_ints = [1, 2]>()  m0 = Unsqueeze(kept, ax12)
  one = Constant<value_ints = [1]>()  wanted = Concat<axis = 0>(minus, one, s1, minus)
  ones = Constant<value_ints = [1, 1, 1, 1]>()  minuses = Constant<value_ints = [-1, -1, -1, -1]>()
  same = Equal(wanted, minuses)  form = Where(same, ones, wanted)  m = Expand(m0, form)
  low = Constant<value_float = -3.4028234663852886e38>()  p1 = Where(m, p0, low)
  p = Softmax<axis = -1>(p1)
  o = MatMul(p, q)  o1 = Transpose<perm = [0, 2, 1, 3]>(o)
  width = Constant<value_ints = [32]>()  flat = Concat<axis = 0>(b1, s1, width)  y = Reshape(o1, flat)
}"""


@pytest.mark.parametrize("opset", [13, 18])
def test_shapes_that_are_computed(opset):
    source, before = model(COMPUTED, opset, w=random(D, D)), stats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that it is compiled for these sizes
        kernel = compile(source)
        for b, s in ((2, 9), (3, 4), (1, 1)):
            inputs = [4 * random(b, s, D), np.arange(s) <= np.arange(b)[:, None] + s // 2]
            assert_close(kernel(*inputs), reference(source, inputs))
    assert stats()["compiled"] - before["compiled"] == 1


# Of open sizes the importer took all but one to be what leaves the last ones as they are, and read beyond the arrays.
MERGED = [
    ("s,b,4,8", "-1,32"),
    ("s,b,4,8", "-1,8"),
    ("s,b,32", "-1,32"),
    ("s,b,32", "-1,2,16"),
    ("s,6,b,8", "-1,48"),
    ("s,6,b,8", "-1,8,6"),
    ("s,b", "-1,2"),
    ("2,s,b,8", "2,-1,8"),
    ("2,s,b,8", "0,-1,16"),
]


@pytest.mark.parametrize(("sizes", "shape"), MERGED)
def test_open_sizes_that_are_merged(sizes, shape):
    source = model(
        f"g (float[{sizes}] x) => (float[m] y) "
        f"{{ to = Constant<value_ints = [{shape}]>() e = Exp(x) y = Reshape(e, to) }}"
    )
    source.graph.output[0].type.tensor_type.ClearField("shape")
    kernel = compile(source)
    for given in ({"s": 6, "b": 4}, {"s": 1, "b": 6}, {"s": 2, "b": 1}):
        x = random(*(given[size] if size in given else int(size) for size in sizes.split(",")))
        assert_close(kernel(x), [np.exp(x).reshape([int(n) or x.shape[0] for n in shape.split(",")])])


EINSUMS = """g (float[b,s,32] x, float[b,t,4,8] k, float[b,t,4,8] v) => (float[b,s,4,8] y) {
  q = Einsum<equation = "bsd,dhe->bshe">(x, w)
  s0 = Einsum<equation = "bqhd, bkhd -> bhqk">(q, k)
  p = Softmax<axis = -1>(s0)
  y = Einsum<equation = "bhqk,bkhd->bqhd">(p, v)
}"""


def test_einsums_of_open_sizes():
    source, before = model(EINSUMS, w=random(D, 4, 8)), stats()
    kernel = compile(source)
    for b, s, t in ((2, 9, 7), (1, 1, 12)):
        inputs = [4 * random(b, s, D), random(b, t, 4, 8), random(b, t, 4, 8, seed=1)]
        assert_close(kernel(*inputs), reference(source, inputs))
    assert stats()["compiled"] - before["compiled"] == 1


SEQUENCE_FIRST = """g (float[b,s,32] x) => (float[b,s,32] y) {
  t = Transpose<perm = [1, 0, 2]>(x)
  whole = Shape(t)
  zero = Constant<value_ints = [0]>()  two = Constant<value_ints = [2]>()  outer = Slice(whole, zero, two)
  tail = Constant<value_ints = [4, 8]>()  split = Concat<axis = 0>(outer, tail)
  h = Reshape(t, split)
  q = Transpose<perm = [1, 2, 0, 3]>(h)  kt = Transpose<perm = [1, 2, 3, 0]>(h)
  s0 = MatMul(q, kt)  p = Softmax<axis = -1>(s0)  o = MatMul(p, q)
  o1 = Transpose<perm = [2, 0, 1, 3]>(o)
  rows = Constant<value_ints = [-1, 32]>()  o2 = Reshape(o1, rows)
  o3 = MatMul(o2, w)  o4 = Reshape(o3, whole)  y = Transpose<perm = [1, 0, 2]>(o4)
}"""


def test_sequences_before_batches():
    """As torch's MultiheadAttention has them, before its last projection."""
    source, before = model(SEQUENCE_FIRST, 18, w=random(D, D)), stats()
    kernel = compile(source)
    for b, s in ((2, 9), (3, 20), (1, 1)):
        inputs = [4 * random(b, s, D)]
        assert_close(kernel(*inputs), reference(source, inputs))
    assert stats()["compiled"] - before["compiled"] == 1


def test_sizes_of_one_name_that_differ():
    source = model("g (float[b,s] x, float[b,s] z) => (float[b,s] y) { y = Add(x, z) }")
    kernel = compile(source)
    x = random(3, 4)
    assert_close(kernel(x, x), [x + x])
    with pytest.warns(UserWarning, match="is not right where a size of 1 is broadcast"):
        assert_close(kernel(x, x[:1]), [x + x[:1]])


HEADS_IN_BATCHES = """<ir_version: 9, opset_import: ["" : 17]>
g (float[b,s,4,8] q, float[b,t,4,8] k, float[b,t,4,8] v) => (float[n,s,8] o) {
    four = Constant<value = int64[1] {4}>()
    rest = Constant<value = int64[2] {-1, 8}>()
    sizes = Shape<start = 0, end = 1>(q)
    n = Mul(sizes, four)
    shape = Concat<axis = 0>(n, rest)
    qh = Transpose<perm = [0, 2, 1, 3]>(q)
    kh = Transpose<perm = [0, 2, 1, 3]>(k)
    vh = Transpose<perm = [0, 2, 1, 3]>(v)
    q3 = Reshape(qh, shape)
    k3 = Reshape(kh, shape)
    v3 = Reshape(vh, shape)
    kt = Transpose<perm = [0, 2, 1]>(k3)
    s0 = MatMul(q3, kt)
    p = Softmax<axis = -1>(s0)
    o = MatMul(p, v3)
}"""


@pytest.mark.parametrize("layout", ["heads", "batches"])
def test_open_batches_of_three_dimensions(layout):
    """As BLOOM's export has them: batches and heads as one dimension, whose size is computed, or a plain batch."""
    text = HEADS_IN_BATCHES
    if layout == "batches":
        first, last = text.index("four ="), text.index("kt =")
        text = text[:first] + text[last:].replace("k3", "k").replace("q3", "q").replace("v3", "v")
        text = text.replace(",4,8]", ",8]").replace("float[n,", "float[b,")
    kernel = compile(onnx.parser.parse_model(text), threads=1)
    for b, s, t in ((2, 5, 7), (1, 3, 4)):
        shapes = [(b, n, *((4, 8) if layout == "heads" else (8,))) for n in (s, t, t)]
        inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
        q, k, v = (x.astype(np.float64) for x in inputs)
        if layout == "heads":
            q, k, v = (x.swapaxes(1, 2).reshape(b * 4, -1, 8) for x in (q, k, v))
        expected = softmax(q @ k.swapaxes(-1, -2)) @ v
        assert_close(kernel(*inputs), [expected.astype(np.float32)])


@pytest.mark.parametrize("sizes", [("4", "n"), ("n", "4"), ("4", "1"), ("1", "4"), ("1", "n")])
def test_batches_of_products_of_three_dimensions(sizes):
    """Known in one operand, or of one in the other, which is broadcast."""
    source = model("g (float[{},s,8] a, float[{},8,t] b) => (float[m,s,t] y) {{ y = MatMul(a, b) }}".format(*sizes))
    kernel = compile(source)
    for n in (4, 1):
        a, b = (
            random(n if size == "n" else int(size), *shape) for size, shape in zip(sizes, ((5, 8), (8, 7)), strict=True)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is compiled for these sizes
            assert_close(kernel(a, b), [a @ b])
