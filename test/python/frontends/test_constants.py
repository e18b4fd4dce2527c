"""Constants that follow from their indices are computed: masks made by numpy are understood as any other."""

import numpy as np
import pytest
from attn_opt.compiler.frontends.constants import Band, Linear, compute_constants, pattern
from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import ir
from attn_opt.dialects.reference import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

N = np.arange(9)
DISTANCE = N[None, :] - N[:, None]
INF = float("inf")
FOUND = {
    "arange": (np.arange(20), Linear(0, (1,))),
    "steps": (np.arange(40, 0, -2).astype(np.int32), Linear(40, (-2,))),
    "distances": (DISTANCE, Linear(0, (-1, 1))),
    "distances of floats": (DISTANCE.astype(np.float32), Linear(0, (-1, 1))),
    "lower triangle": (DISTANCE <= 0, Band(0, 1, None, 0, True, False)),
    "upper triangle of minus infinity": (
        np.triu(np.full((9, 9), -INF, np.float32), 1),
        Band(0, 1, None, 0, 0.0, -INF),
    ),
    "window": (abs(DISTANCE) < 3, Band(0, 1, -2, 2, True, False)),
    "prefix": (np.arange(30) < 7, Band(None, 0, None, 6, True, False)),
    "prefix of rows": (np.broadcast_to(N < 4, (5, 9)), Band(None, 1, None, 3, True, False)),
    "with units": ((DISTANCE <= 1)[None, :, None], Band(1, 3, None, 1, True, False)),
}
NONE = {
    "random": np.random.default_rng(0).standard_normal((8, 8)),
    "random mask": np.random.default_rng(0).random((8, 8)) < 0.5,
    "small": np.arange(9),
    "equal": np.zeros((5, 5)),
    "three values": np.sign(DISTANCE),
    "blocks": (N[:, None] // 3) == (N // 3),
    "sum": (N[:, None] + N) < 8,
    "two masks beside each other": np.tril(np.full((9, 9), np.finfo(np.float32).min), -1) + np.eye(9, dtype=np.float32),
    "halves": np.arange(20) / 2,
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    array, expected = FOUND[name]
    assert pattern(array) == expected


@pytest.mark.parametrize("name", NONE)
def test_not_found(name):
    assert pattern(NONE[name]) is None


def computed(array: np.ndarray) -> np.ndarray:
    context = make_context()
    with context, ir.Location.unknown():
        kind = {"b": "i1", "i": "i64", "f": "f32"}[array.dtype.kind]
        text = f"tensor<{'x'.join(map(str, array.shape))}x{kind}>"
        words = {True: "true", False: "false", -INF: "0xFF800000"}
        values = ", ".join(words.get(v, str(v)) if kind != "i64" else str(v) for v in array.ravel().tolist())
        nested = f"%c = arith.constant dense<[{values}]> : tensor<{array.size}x{kind}>"
        if array.ndim > 1:
            nested = f"%c = arith.constant dense<{array.tolist()}> : {text}".replace("True", "true").replace(
                "False", "false"
            )
            nested = nested.replace("-inf", "0xFF800000")
        module = ir.Module.parse(f"func.func @main() -> {text} {{\n{nested}\nreturn %c : {text}\n}}")
        compute_constants(module)
        assert "dense" not in str(module)
        return evaluate(module, [])[0]


@pytest.mark.parametrize("name", FOUND)
def test_computed(name):
    array = FOUND[name][0]
    np.testing.assert_array_equal(computed(array), array)


@given(
    st.integers(2, 9),
    st.integers(3, 9),
    st.one_of(st.none(), st.integers(-9, 9)),
    st.one_of(st.none(), st.integers(-9, 9)),
)
@settings(deadline=None, max_examples=30)
def test_any_band(m, n, low, high):
    distance = np.arange(n)[None] - np.arange(m)[:, None]
    array = np.ones((m, n), bool)
    array &= True if low is None else distance >= low
    array &= True if high is None else distance <= high
    if pattern(array) is not None:
        np.testing.assert_array_equal(computed(array), array)
