"""Models of ONNX as exporters and optimizers write them: open sizes that are broadcast, operators of onnxruntime."""

import warnings

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from test_onnx import assert_close, model, random, reference  # noqa: E402

B, S, D, HEADS = 2, 9, 32, 4


def contributed(body: str, inputs: str, outputs: str = "float[2,9,32] y", opset: int = 17, **weights):
    """A model with operators of onnxruntime's domain."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>\n'
    parsed = onnx.parser.parse_model(f"{header} g ({inputs}) => ({outputs}) {{ {body} }}")
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in weights.items())
    return parsed


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def heads(x):
    return x.astype(np.float64).reshape(*x.shape[:2], HEADS, -1).swapaxes(1, 2)


def attention(q, k, v, mask=0.0):
    q, k, v = heads(q), heads(k), heads(v)
    o = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + mask) @ v
    return o.swapaxes(1, 2).reshape(B, S, -1)


def layer_norm(x, scale, shift=0.0, epsilon=1e-5):
    x = x - x.mean(-1, keepdims=True)
    return rms_norm(x, scale, epsilon) + shift


def rms_norm(x, scale, epsilon=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * scale


def gelu(x):
    from math import erf

    return x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2


def fast_gelu(x):
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


X, Y, Z = (4 * random(B, S, D, seed=i) for i in range(3))
G, C = 4 * random(D), random(D, seed=1)
KEPT = np.ones((B, S), np.int32)
KEPT[1, 5:] = 0
PADDING = np.where(KEPT, 0, -1e4)[:, None, None]
CAUSAL = np.where(np.tril(np.ones((S, S))), 0, -1e4)
THREE = "float[2,9,32] x, float[2,9,32] y0, float[2,9,32] z"
PACKED = {"w": random(D, 3 * D), "b": np.concatenate([C, G, C])}  # weights of queries, keys and values in one
CONTRIBUTED = {
    "attention": (
        contributed("y = com.microsoft.MultiHeadAttention<num_heads=4>(x, y0, z)", THREE),
        [X, Y, Z],
        attention(X, Y, Z),
    ),
    "attention with everything": (
        contributed(
            "y = com.microsoft.MultiHeadAttention<num_heads=4, unidirectional=1>(x, y0, z, b, m, a)",
            f"{THREE}, float[96] b, int32[2,9] m, float[1,4,9,9] a",
        ),
        [X, Y, Z, np.concatenate([C, C, C]), KEPT, random(1, 4, S, S)],
        attention(X + C, Y + C, Z + C, PADDING + random(1, 4, S, S) + CAUSAL),
    ),
    "packed attention": (
        contributed(
            "y = com.microsoft.Attention<num_heads=4>(x, w, b, m)",
            "float[2,9,32] x, int32[2,9] m",
            **PACKED,
        ),
        [X, KEPT],
        attention(*np.split(X @ PACKED["w"] + PACKED["b"], 3, -1), PADDING),
    ),
    "SkipLayerNormalization": (
        contributed(
            "y, , , s = com.microsoft.SkipLayerNormalization<epsilon=1e-5>(x, y0, g, c)",
            "float[2,9,32] x, float[2,9,32] y0",
            "float[2,9,32] y, float[2,9,32] s",
            g=G,
            c=C,
        ),
        [X, Y],
        (layer_norm(X + Y, G, C), X + Y),
    ),
    "SkipSimplifiedLayerNormalization": (
        contributed(
            "y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon=1e-5>(x, y0, g)",
            "float[2,9,32] x, float[2,9,32] y0",
            opset=18,
            g=G,
        ),
        [X, Y],
        rms_norm(X + Y, G),
    ),
    "SimplifiedLayerNormalization": (
        contributed("y = SimplifiedLayerNormalization<epsilon=1e-5>(x, g)", "float[2,9,32] x", g=G),
        [X],
        rms_norm(X, G),
    ),
    "BiasGelu": (contributed("y = com.microsoft.BiasGelu(x, c)", "float[2,9,32] x", c=C), [X], gelu(X + C)),
    "FastGelu": (contributed("y = com.microsoft.FastGelu(x)", "float[2,9,32] x"), [X], fast_gelu(X)),
    "QuickGelu": (contributed("y = com.microsoft.QuickGelu(x)", "float[2,9,32] x"), [X], X / (1 + np.exp(-1.702 * X))),
    "FusedMatMul": (
        contributed("y = com.microsoft.FusedMatMul<alpha=0.5, transB=1>(x, w)", "float[2,9,32] x", w=random(D, D)),
        [X],
        0.5 * X @ random(D, D).T,
    ),
}


LENGTHS = np.array([9, 4], np.int32)
CONTRIBUTED |= {
    "attention with lengths": (
        contributed("y = com.microsoft.MultiHeadAttention<num_heads=4>(x, y0, z, , m)", f"{THREE}, int32[2] m"),
        [X, Y, Z, LENGTHS],
        attention(X, Y, Z, np.where(np.arange(S) < LENGTHS[:, None], 0, -1e4)[:, None, None]),
    ),
    "packed attention with ends and starts": (
        contributed("y = com.microsoft.Attention<num_heads=4>(x, w, b, m)", "float[2,9,32] x, int32[4] m", **PACKED),
        [X, np.array([9, 7, 2, 3], np.int32)],
        attention(
            *np.split(X @ PACKED["w"] + PACKED["b"], 3, -1),
            np.where((np.arange(S) < [[9], [7]]) & (np.arange(S) >= [[2], [3]]), 0, -1e4)[:, None, None],
        ),
    ),
    "attention of packed sequences": (
        contributed("y = com.microsoft.MultiHeadAttention<num_heads=4>(x, y0, z, , m)", f"{THREE}, int32[8] m"),
        [X, Y, Z, np.array([9, 4, 0, 9, 18, 0, 9, 13], np.int32)],
        attention(X, Y, Z, np.where(np.arange(S) < LENGTHS[:, None], 0, -1e4)[:, None, None]),
    ),
    # What comes later counts nothing, however much a key counts that is masked.
    "causal attention with a mask that is hardly one": (
        contributed(
            "y = com.microsoft.MultiHeadAttention<num_heads=4, unidirectional=1, mask_filter_value=-2.0>"
            "(x, y0, z, , m)",
            f"{THREE}, int32[2,9] m",
        ),
        [X, Y, Z, 1 - KEPT],
        attention(X, Y, Z, np.where(KEPT, -2, 0)[:, None, None] + np.where(CAUSAL, -np.inf, 0)),
    ),
    "packed attention with a mask of scores": (
        contributed(
            "y = com.microsoft.Attention<num_heads=4>(x, w, b, m)",
            "float[2,9,32] x, int32[2,9,9] m",
            **PACKED,
        ),
        [X, np.tril(np.ones((B, S, S), np.int32))],
        attention(*np.split(X @ PACKED["w"] + PACKED["b"], 3, -1), CAUSAL),
    ),
    "attention with a past": (
        contributed(
            "y, k, v = com.microsoft.MultiHeadAttention<num_heads=4, unidirectional=1>(x, y0, z, , , , pk, pv)",
            f"{THREE}, float[2,4,5,8] pk, float[2,4,5,8] pv",
            "float[2,9,32] y, float[2,4,14,8] k, float[2,4,14,8] v",
        ),
        [X, Y, Z, random(B, 4, 5, 8), random(B, 4, 5, 8, seed=1)],
        (
            (
                softmax(
                    heads(X) @ np.concatenate([random(B, 4, 5, 8), heads(Y)], 2).swapaxes(-1, -2) / np.sqrt(8)
                    + np.where(np.arange(14) <= np.arange(S)[:, None] + 5, 0, -1e4)
                )
                @ np.concatenate([random(B, 4, 5, 8, seed=1), heads(Z)], 2)
            )
            .swapaxes(1, 2)
            .reshape(B, S, D),
            np.concatenate([random(B, 4, 5, 8), heads(Y)], 2),
            np.concatenate([random(B, 4, 5, 8, seed=1), heads(Z)], 2),
        ),
    ),
    # Keys and values in heads, of another layer; what comes before hides the ranks.
    "cross attention": (
        contributed(
            "a = com.microsoft.QuickGelu(x) y = com.microsoft.MultiHeadAttention<num_heads=4>(a, k, v, , m)",
            "float[2,9,32] x, float[2,4,7,8] k, float[2,4,7,8] v, int32[2] m",
        ),
        [X, random(B, 4, 7, 8), random(B, 4, 7, 8, seed=1), np.array([7, 7], np.int32)],
        (
            softmax(heads(X / (1 + np.exp(-1.702 * X))) @ random(B, 4, 7, 8).swapaxes(-1, -2) / np.sqrt(8))
            @ random(B, 4, 7, 8, seed=1)
        )
        .swapaxes(1, 2)
        .reshape(B, S, D),
    ),
}
TABLES = random(20, 4), random(20, 4, seed=1)


def turned(x, at, interleaved):
    x = heads(x)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else np.split(x, 2, -1)
    cos, sin = (table[at][:, None] for table in TABLES)
    parts = a * cos - b * sin, b * cos + a * sin
    return (np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)).swapaxes(1, 2)


for interleaved in (0, 1):
    for at in (np.array([3]), np.arange(18).reshape(2, 9) % 7):
        CONTRIBUTED[f"RotaryEmbedding {interleaved} {at.ndim}"] = (
            contributed(
                f"y = com.microsoft.RotaryEmbedding<interleaved={interleaved}>(x, p, c, s)",
                f"float[2,9,32] x, int64[{','.join(map(str, at.shape))}] p, float[20,4] c, float[20,4] s",
            ),
            [X, at, *TABLES],
            turned(X, at + np.arange(9)[None] if at.ndim == 1 else at, interleaved).reshape(B, S, D),
        )


@pytest.mark.parametrize("name", CONTRIBUTED)
def test_operators_of_onnxruntime(name):
    source, inputs, expected = CONTRIBUTED[name]
    before = stats()
    found = compile(source)(*inputs)
    assert stats()["compiled"] - before["compiled"] == ("attention" in name)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert_close(found, [e.astype(np.float32) for e in expected])


REFUSED = {
    "a mask of an unknown form": ("y = com.microsoft.MultiHeadAttention<num_heads=4>(x, z, z, , m)", "int32[5] m"),
    "beams": (
        "y, k, v = com.microsoft.MultiHeadAttention<num_heads=4>(x, z, z, , , , p, p, n, c)",
        "float[2,4,5,8] p, int32[1] n, int32[2,1,5] c",
    ),
    "an output of scores": ("y, , , s = com.microsoft.MultiHeadAttention<num_heads=4>(x, z, z)", ""),
    # Of onnxruntime's providers some count the places of keys from the start, some from the end.
    "causal, of fewer queries": ("y = com.microsoft.MultiHeadAttention<num_heads=4, unidirectional=1>(x, z, z)", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_covered_is_refused(name):
    body, inputs = REFUSED[name]
    outputs = "float[2,9,32] y" + (", float[2,4,9,11] s" if ", s =" in body else "")
    source = contributed(body, ", ".join(filter(None, ("float[2,9,32] x, float[2,11,32] z", inputs))), outputs)
    with pytest.raises(CompileError, match=r"com.microsoft.MultiHeadAttention of ONNX \(node 'y'\) has no lowering"):
        compile(source)


def test_lengths_of_an_open_batch():
    source = contributed(
        "y = com.microsoft.MultiHeadAttention<num_heads=4>(x, y0, z, , m)",
        "float[b,s,32] x, float[b,t,32] y0, float[b,t,32] z, int32[b] m",
        "float[b,s,32] y",
    )
    expected = attention(X, Y, Z, np.where(np.arange(S) < LENGTHS[:, None], 0, -1e4)[:, None, None])
    assert_close(compile(source)(X, Y, Z, LENGTHS), [expected.astype(np.float32)])


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


SEQUENTIAL = {
    "CumSum": "g (float[3,4] x, float[3,4] z) => (float[3,4] y) { a = Constant<value_int = 1>() y0 = CumSum(x, a) "
    "y1 = CumSum<exclusive = 1, reverse = 1>(z, a) y = Add(y0, y1) }",
    "ScatterND": "g (float[3,4] x, float[2,4] u) => (float[3,4] y) { i = Constant<value = int64[2,1] {2, 0}>() "
    "y = ScatterND(x, i, u) }",
    "ScatterElements": "g (float[3,4] x, float[2,2] u) => (float[3,4] y) { "
    'i = Constant<value = int64[2,2] {1, 3, 0, 0}>() y = ScatterElements<axis = 1, reduction = "add">(x, i, u) }',
    "Softsign": "g (float[3,4] x) => (float[3,4] y) { y = Softsign(x) }",
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_operators_by_loops_or_by_their_definition(name):
    source = model(SEQUENTIAL[name], 18)
    shapes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in source.graph.input]
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_close(compile(source)(*inputs), reference(source, inputs))


def test_indices_out_of_range_read_nothing_else():
    source = model("g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather(x, i) }")
    x = random(4, 3)
    found = compile(source)(x, np.array([1, 2**40]))
    assert_close(found, [x[[1, 3]]])


def test_inputs_by_name():
    source = model("g (float[3] x, float[3] z) => (float[3] y) { y = Sub(x, z) }")
    x, z = random(3), random(3, seed=1)
    kernel = compile(source)
    assert_close(kernel(z=z, x=x), [x - z])
    assert_close(kernel(x, z=z), [x - z])
    with pytest.raises(CompileError, match="the model has no input 'w' left; its inputs are: x, z"):
        kernel(x, w=z)
    with pytest.raises(CompileError, match="the model also takes 'z'"):
        kernel(x=x)


def test_missing_external_data(tmp_path):
    source = model("g (float[2,400] x) => (float[2,400] y) { y = Mul(x, w) }", w=random(400))
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(CompileError, match=r"m.onnx is no ONNX model: .*w.bin"):
        compile(tmp_path / "m.onnx")


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


WRONG_LOWERINGS = {
    "Mod of ONNX .node 'y'. .* of unsigned": "g (uint8[3] x, uint8[3] z) => (uint8[3] y) { y = Mod(x, z) }",
    "Abs of ONNX .* of unsigned integers": "g (uint8[3] x) => (uint8[3] y) { y = Abs(x) }",
    "Clip of ONNX .* of unsigned integers": "g (uint8[3] x, uint8 a, uint8 b) => (uint8[3] y) { y = Clip(x, a, b) }",
    "MatMulInteger of ONNX .* without a zero point": "g (uint8[3, 3] x, int8[3, 3] z) => (int32[3, 3] y) "
    "{ y = MatMulInteger(x, z) }",
    "Add of ONNX .node 'y'. .* of uint64": "g (uint64[3] x, uint64[3] z) => (uint64[3] y) { y = Add(x, z) }",
    "Reshape of ONNX .* of uint16": "g (uint16[2, 2] x) => (uint16[4] y) { s = Constant<value_ints = [4]>() "
    "y = Reshape(x, s) }",
    "Det of ONNX": "g (float[2, 2] x) => (float y) { y = Det(x) }",
    "Einsum of ONNX .* of scalars": 'g (float x) => (float y) { y = Einsum<equation = "->">(x) }',
}


@pytest.mark.parametrize("message", WRONG_LOWERINGS)
def test_what_the_importer_gets_wrong_is_refused(message):
    """Some of it ended the process."""
    with pytest.raises(CompileError, match=message):
        compile(model(WRONG_LOWERINGS[message], 18))


def test_failures_of_upstream_name_the_node():
    text = "g (float[3, 4] x) => (float[5, 4] y) { b = Exp(x) p = Constant<value_ints = [1, 0, 1, 0]>() "
    with pytest.raises(CompileError, match=r"^y: error: no lowering to linalg: "):
        compile(model(text + 'y = Pad<mode = "wrap">(b, p) }', 19))


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
