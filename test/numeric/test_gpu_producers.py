"""What is computed before attention, in one launch: kernels for NVIDIA GPUs at the level of tiles, without a GPU."""

import numpy as np
import pytest
from attn_opt.compiler.graphs import Attention
from gpu_modules import Launches, run_module

N, S, D = 2, 136, 16
WHOLE, HALF = f"tensor<1x{N}x{S}x{D}xf16>", f"tensor<1x{N}x{S}x{D // 2}xf16>"
PAIRS, ONE = f"tensor<1x{N}x{S}x{D // 2}x2xf16>", f"tensor<1x{N}x{S}x{D // 2}x1xf16>"
LAST = "[[0], [1], [2], [3, 4]]"


def generic(result: str, inputs: str, body: str, kind: str = WHOLE, first: str = "(b, h, i, j)") -> str:
    """An element-wise op on a tensor, and maybe the table @t of rows."""
    tensors = [t.strip() for t in inputs.split(",")]
    kinds = ", ".join([kind, f"tensor<{S}x{D}xf16>"][: len(tensors)])
    maps = [f"affine_map<(b, h, i, j) -> {m}>" for m in [first, "(i, j)"][: len(tensors)]]
    return f"""
  %{result}_empty = tensor.empty() : {kind}
  %{result} = linalg.generic {{indexing_maps = [{", ".join(maps)}, affine_map<(b, h, i, j) -> (b, h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}}
      ins({", ".join(tensors)} : {kinds}) outs(%{result}_empty : {kind}) {{
  ^bb0(%x: f16{", %y: f16" if len(tensors) > 1 else ""}, %old: f16):
    {body}
    linalg.yield %z : f16
  }} -> {kind}"""


def halves(name: str) -> str:
    """name·t + rotated(name): the second half of each head, negated, before the first one."""
    cut = f"[1, {N}, {S}, {D // 2}] [1, 1, 1, 1] : {WHOLE} to {HALF}"
    return (
        f"  %{name}b = tensor.extract_slice %{name}0[0, 0, 0, {D // 2}] {cut}\n"
        f"  %{name}a = tensor.extract_slice %{name}0[0, 0, 0, 0] {cut}"
        + generic(f"{name}n", f"%{name}b", "%z = arith.negf %x : f16", HALF)
        + f"\n  %{name}c = tensor.concat dim(3) %{name}n, %{name}a : ({HALF}, {HALF}) -> {WHOLE}"
        + generic(f"{name}m", f"%{name}0, %t", "%z = arith.mulf %x, %y : f16")
        + generic(name, f"%{name}m, %{name}c", "%z = arith.addf %x, %y : f16")
        .replace(f"tensor<{S}x{D}xf16>", WHOLE)
        .replace("-> (i, j)>", "-> (b, h, i, j)>")
    )


def pairs(name: str) -> str:
    """The odd elements of each head, negated, before the even ones, in pairs."""
    wide = f"%{name}w[0, 0, 0, 0, {{}}] [1, {N}, {S}, {D // 2}, 1] [1, 1, 1, 1, 1] : {PAIRS} to {ONE}"
    shape = f"[1, {N}, {S}, {D // 2}, {{}}]"
    return f"""
  %{name}w = tensor.expand_shape %{name}0 {LAST} output_shape {shape.format(2)} : {WHOLE} into {PAIRS}
  %{name}x = tensor.extract_slice {wide.format(1)}
  %{name}y = tensor.extract_slice {wide.format(0)}
  %{name}u = tensor.collapse_shape %{name}x {LAST} : {ONE} into {HALF}
  {generic(f"{name}n", f"%{name}u", "%z = arith.negf %x : f16", HALF)}
  %{name}v = tensor.expand_shape %{name}n {LAST} output_shape {shape.format(1)} : {HALF} into {ONE}
  %{name}c = tensor.concat dim(4) %{name}v, %{name}y : ({ONE}, {ONE}) -> {PAIRS}
  %{name} = tensor.collapse_shape %{name}c {LAST} : {PAIRS} into {WHOLE}"""


def every_third(name: str) -> str:
    """Written in place: elements 1, 4, 7, … of each head and the rest of what was there."""
    part = f"tensor<1x{N}x{S}x{D // 3}xf16>"
    slice_ = f"[0, 0, 0, 1] [1, {N}, {S}, {D // 3}] [1, 1, 1, 3]"
    return (
        f"  %{name}a = tensor.extract_slice %{name}0{slice_} : {WHOLE} to {part}\n"
        + generic(f"{name}n", f"%{name}a", "%z = arith.negf %x : f16", part)
        + f"\n  %{name} = tensor.insert_slice %{name}n into %{name}0{slice_} : {part} into {WHOLE}"
    )


def table(name: str) -> str:
    return generic(name, f"%{name}0, %t", "%z = arith.addf %x, %y : f16")


def rotated(x: np.ndarray) -> np.ndarray:
    return np.concatenate([-x[..., D // 2 :], x[..., : D // 2]], -1)


def swapped(x: np.ndarray) -> np.ndarray:
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def thirds_negated(x: np.ndarray) -> np.ndarray:
    return np.where(np.isin(np.arange(D), range(1, 1 + D // 3 * 3, 3)), -x, x)


PRODUCERS = {
    "halves": (halves, lambda x, t: x * t + rotated(x), "producers"),
    "pairs": (pairs, lambda x, t: swapped(x), "producers"),
    "every_third": (every_third, lambda x, t: thirds_negated(x), "elements"),
    "table": (table, lambda x, t: x + t, None),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("of", "arch"), [("k", "sm_90a"), ("qkv", "sm_90a"), ("qk", "sm_80")])
@pytest.mark.parametrize("name", PRODUCERS)
def test_against_float64(name, of, arch, monkeypatch):
    """`table` stays in the loops, of so few elements, unless a launch costs nothing."""
    make, meaning, launch = PRODUCERS[name]
    if of != "k" and launch is None:
        launch = "producers"
        monkeypatch.setattr("attn_opt.transforms.nvidia.kernels.producers.PS_LAUNCH", -1e9)
    graph = Attention(heads=N, queries=S, keys=S, head_size=D, element="f16", input_layout="bhsd")
    text = graph.text()
    for x in of:
        text = text.replace(f"%{x}: tensor", f"%{x}0: tensor", 1)
    text = text.replace(") -> ", f", %t: tensor<{S}x{D}xf16>) -> ", 1)
    text = text.replace("{\n", "{\n" + "\n".join(make(x) for x in of) + "\n", 1)
    inputs = [x.astype(np.float64) for x in graph.inputs("normal", 0)]
    t = np.random.default_rng(0).standard_normal((S, D)).astype(np.float16).astype(np.float64)
    (found,) = run_module(text, [*inputs, t], arch=arch)
    values = {n: meaning(x, t).astype(np.float16) if n in of else x for n, x in zip("qkv", inputs, strict=True)}
    expected, _ = graph.reference([values[n].astype(np.float16) for n in "qkv"])
    assert np.abs(found - expected).max() <= 4e-3 * np.abs(expected).max()
    before = {k.removeprefix("attention_").rstrip("_0123456789") for k in Launches.kernels[:-1]}
    assert before == ({launch} if launch is not None else set())
    assert launch != "producers" or len(Launches.kernels) == 2
