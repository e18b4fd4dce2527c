"""Operators of onnxruntime with quantized weights, as its tools for language models write them, against float64."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import assert_close, attention, contributed, random  # noqa: E402

N = 24
TABLE = random(9, 32), random(5, 32, seed=1), random(2, 32, seed=2), 4 * random(32), random(32, seed=3)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes in bytes along the last dimension, the lowest bits first; what is left of the last byte is 0."""
    count = 8 // bits
    room = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // count) * count), np.uint8)
    room[..., : codes.shape[-1]] = codes
    return sum(room[..., i::count] << (bits * i) for i in range(count)).astype(np.uint8)


def blocks(k: int, block: int, bits: int, zeros: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The weights of a MatMulNBits, and what they are as floats, [K, N]."""
    numbers, count = np.random.default_rng(k + bits), -(-k // block)
    codes = numbers.integers(0, 2**bits, (N, count, block))
    scales = random(N, count)
    zero = {
        "none": np.full((N, count), 2 ** (bits - 1)),
        "packed": numbers.integers(0, 2**bits, (N, count)),
        "float": random(N, count, seed=5),
    }[zeros]
    weights = {"w": packed(codes, bits), "s": scales}
    if zeros != "none":
        weights["z"] = packed(zero, bits) if zeros == "packed" else zero
    floats = (codes - zero[..., None].astype(np.float64)) * scales[..., None]
    return weights, floats.reshape(N, -1)[:, :k].T


@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("k", "block"), [(32, 32), (80, 32), (48, 16)])
def test_matmuls_with_weights_in_blocks(k, block, bits, zeros):
    weights, floats = blocks(k, block, bits, zeros)
    operator = f"com.microsoft.MatMulNBits<K={k}, N={N}, bits={bits}, block_size={block}>"
    last = ", z" if "z" in weights else ""
    x, bias = random(2, 3, k), random(N)
    source = contributed(f"y = {operator}(x, w, s{last})", f"float[2,t,{k}] x", f"float[2,t,{N}] y", **weights)
    assert_close(compile(source)(x), [(x @ floats).astype(np.float32)])
    flat = {**weights, "s": weights["s"].reshape(-1)}  # as old models have it
    source = contributed(
        f"y = {operator}(x, w, s{last or ', '}, , c)", f"float[2,3,{k}] x", f"float[2,3,{N}] y", c=bias, **flat
    )
    assert_close(compile(source)(x), [(x @ floats + bias).astype(np.float32)])


def test_weights_in_blocks_of_half_precision():
    weights, _ = blocks(64, 32, 4, "packed")
    weights["s"] = weights["s"].astype(np.float16)
    codes = np.stack([weights["w"] & 15, weights["w"] >> 4], -1).reshape(N, 2, 32).astype(np.float64)
    zeros = np.stack([weights["z"] & 15, weights["z"] >> 4], -1).reshape(N, 2, 1)
    floats = ((codes - zeros) * weights["s"][..., None].astype(np.float64)).reshape(N, 64)
    x = random(2, 64).astype(np.float16)
    source = contributed(
        f"y = com.microsoft.MatMulNBits<K=64, N={N}, bits=4, block_size=32>(x, w, s, z)",
        "float16[2,64] x",
        f"float16[2,{N}] y",
        **weights,
    )
    found = compile(source)(x)
    assert found.dtype == np.float16
    expected = x.astype(np.float64) @ floats.T
    assert np.abs(found - expected).max() < 2e-3 * np.abs(expected).max()


def test_blocks_that_are_told_by_index():
    k, block = 64, 32
    weights, floats = blocks(k, block, 4, "none")
    place = np.arange(k, dtype=np.int32) % 2
    codes = floats.T.reshape(N, 2, block) / weights["s"][..., None]
    expected = codes.reshape(N, k) * weights["s"][:, place]
    body = f"y = com.microsoft.MatMulNBits<K={k}, N={N}, bits=4, block_size={block}>(x, w, s, , g)"
    source = contributed(body, f"float[3,{k}] x", f"float[3,{N}] y", g=place, **weights)
    assert_close(compile(source)(random(3, k)), [(random(3, k) @ expected.T).astype(np.float32)])


@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_table_in_blocks(bits, zeros):
    numbers = np.random.default_rng(0)
    codes, scales = numbers.integers(0, 2**bits, (7, 40)), random(7, 3)
    zero = numbers.integers(0, 2**bits, (7, 3)) if zeros else np.full((7, 3), 2 ** (bits - 1))
    floats = (codes - zero.repeat(16, 1)[:, :40]) * scales.repeat(16, 1)[:, :40]
    weights = {"d": packed(codes, bits), "s": scales} | ({"z": packed(zero, bits)} if zeros else {})
    body = (
        f"y = com.microsoft.GatherBlockQuantized<bits={bits}, block_size=16, quantize_axis=-1>(d, i, s{', z' * zeros})"
    )
    source = contributed(body, "int64[2,3] i", "float[2,3,40] y", **weights)
    places = np.array([[0, 6, 2], [2, 2, 5]])
    assert_close(compile(source)(places), [floats[places].astype(np.float32)])


def test_weights_that_are_no_constants_are_told_of():
    body = f"y = com.microsoft.MatMulNBits<K=32, N={N}, bits=4, block_size=32>(x, w, s)"
    source = contributed(body, f"float[3,32] x, uint8[{N},1,16] w, float[{N},1] s", f"float[3,{N}] y")
    with pytest.raises(CompileError, match=r"MatMulNBits of ONNX \(node 'y'\), whose input 'w' is no constant, has no"):
        compile(source)


def test_operators_that_are_not_known_are_told_of():
    source = contributed("y = com.microsoft.PagedAttention<num_heads=4>(x, x, x)", "float[2,9,32] x")
    with pytest.raises(CompileError, match=r"PagedAttention of ONNX \(node 'y'\) has no lowering to linalg; run that"):
        compile(source)


@pytest.mark.parametrize("segments", [True, False])
def test_embeddings_of_bert(segments):
    words, positions, kinds, scale, shift = TABLE
    tokens = np.array([[1, 5, 2], [0, 3, 7]], np.int32)
    kind, kept = np.array([[0, 1, 1], [0, 0, 1]], np.int32), np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    total = (words[tokens] + positions[:3] + (kinds[kind] if segments else 0)).astype(np.float64)
    normed = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 1e-5) * scale + shift
    second, last, inputs = (", g", ", m", [tokens, kind, kept]) if segments else (", ", "", [tokens])
    source = contributed(
        f"y, n, e = com.microsoft.EmbedLayerNormalization<epsilon=1e-5>(i{second}, w, p, {'k' * segments}, a, b{last})",
        "int32[2,s] i" + (", int32[2,s] g, int32[2,s] m" if segments else ""),
        "float[2,s,32] y, int32[2] n, float[2,s,32] e",
        **dict(zip("wpkab", TABLE, strict=True)),
    )
    counts = np.array([2, 3] if segments else [0, 0], np.int32)
    assert_close(compile(source)(*inputs), [normed.astype(np.float32), counts, total.astype(np.float32)])


WHOLE = np.random.default_rng(0).integers(-127, 128, (32, 6)).astype(np.int8)


def test_matmuls_of_integers_to_floats():
    x, zero = np.random.default_rng(1).integers(0, 256, (3, 32)).astype(np.uint8), np.array(3, np.uint8)
    a, b, c = np.float32(0.1), random(6), random(6, seed=1)
    expected = (x.astype(np.float64) - 3) @ WHOLE.astype(np.float64) * a * b + c
    body = "y = com.microsoft.MatMulIntegerToFloat(x, w, a, b, z, , c)"
    weights = {"w": WHOLE, "a": np.array(a), "b": b, "z": zero, "c": c}
    source = contributed(body, "uint8[3,32] x", "float[3,6] y", **weights)
    assert_close(compile(source)(x), [expected.astype(np.float32)])


def test_matmuls_that_quantize_what_comes():
    x, b, c = random(3, 32), np.array(0.02, np.float32), random(6)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = (high - low) / np.float32(255)
    zero = np.round(-low / scale)
    codes = np.clip(np.round(x / scale) + zero, 0, 255) - zero
    source = contributed(
        "y = com.microsoft.DynamicQuantizeMatMul(x, w, b, , c)", "float[3,32] x", "float[3,6] y", w=WHOLE, b=b, c=c
    )
    assert_close(compile(source)(x), [(codes @ WHOLE.astype(np.float64) * scale * b + c).astype(np.float32)])


def test_quantization_of_its_own():
    x, scale, zero = random(3, 32), random(32) ** 2 + 0.05, np.full(32, 7, np.int8)
    expected = (np.clip(np.round(x / scale) + 7, -128, 127) - 7) * scale
    body = "q = com.microsoft.QuantizeLinear<axis=1>(x, s, z) y = com.microsoft.DequantizeLinear<axis=1>(q, s, z)"
    source = contributed(body, "float[3,32] x", "float[3,32] y", s=scale.astype(np.float32), z=zero)
    assert_close(compile(source)(x), [expected.astype(np.float32)])


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("masked", ["", "keys", "lengths"])
def test_attention_of_whole_numbers(masked, causal):
    """As quantize_dynamic makes it of a BERT that onnxruntime's optimizer has fused."""
    numbers = np.random.default_rng(0)
    x, w = numbers.integers(0, 256, (2, 9, 32)).astype(np.uint8), numbers.integers(-127, 128, (32, 96)).astype(np.int8)
    weights = {"w": w, "b": random(96), "a": np.array(0.02, np.float32), "s": np.array(0.005, np.float32)}
    weights |= {"o": np.array(120, np.uint8), "z": np.array(3, np.int8)}
    packed_heads = (x.astype(np.float64) - 120) @ (w.astype(np.float64) - 3) * 0.02 * 0.005 + weights["b"]
    lengths = np.array([9, 4], np.int32)
    kept = np.arange(9) < (lengths[:, None] if masked else np.full((2, 1), 9))
    mask = np.where(kept, 0, -1e4)[:, None, None] + np.where(np.tril(np.ones((9, 9))) if causal else 1, 0, -1e4)
    given, declared = {
        "": ([], ""),
        "keys": ([kept.astype(np.int32)], ", int32[2,9] m"),
        "lengths": ([lengths], ", int32[2] m"),
    }[masked]
    inputs = f"x, w, b, a, s, {'m' * bool(masked)}, o, z"
    body = f"y = com.microsoft.QAttention<num_heads=4, unidirectional={causal}>({inputs})"
    source = contributed(body, f"uint8[2,9,32] x{declared}", **weights)
    assert_close(compile(source)(x, *given), [attention(*np.split(packed_heads, 3, -1), mask).astype(np.float32)])
