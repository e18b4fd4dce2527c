"""Operators of onnxruntime's domain, as its optimizer writes them."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import B, D, S, assert_close, attention, contributed, heads, random, softmax  # noqa: E402


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
