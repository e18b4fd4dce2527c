"""Probabilities that are multiplied by something of each key before the second matmul, fused, against float64."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import run_module

B, Q, K, D = 2, 37, 300, 16

WEIGHTS = {
    "of keys": (("d2",), "%r = arith.mulf %p, %w : f32"),
    "of both": (("d0", "d1", "d2"), "%r = arith.mulf %p, %w : f32"),
    "of heads and keys": (("d0", "d2"), "%r = arith.mulf %p, %w : f32"),
    "dropout": (
        ("d0", "d1", "d2"),
        """%c = arith.constant 0.5 : f32
           %none = arith.constant 0.0 : f32
           %scale = arith.constant 2.0 : f32
           %keep = arith.cmpf ogt, %w, %c : f32
           %scaled = arith.mulf %p, %scale : f32
           %r = arith.select %keep, %scaled, %none : f32""",
    ),
    "divisor": (("d1", "d2"), "%r = arith.divf %p, %w : f32"),
}


def graph(dims: tuple[str, ...], body: str, causal: bool, kind: str) -> tuple[str, list[int]]:
    sizes = [{"d0": B, "d1": Q, "d2": K}[d] for d in dims]
    weights = f"tensor<{'x'.join(map(str, sizes))}x{kind}>"
    s, out = f"tensor<{B}x{Q}x{K}xf32>", f"tensor<{B}x{Q}x{D}xf32>"
    id_, of = "affine_map<(d0, d1, d2) -> (d0, d1, d2)>", f"affine_map<(d0, d1, d2) -> ({', '.join(dims)})>"
    mask = f"""
      %x = linalg.generic {{indexing_maps = [{id_}, {id_}], iterator_types = ["parallel", "parallel", "parallel"]}}
          ins(%s : {s}) outs(%se : {s}) {{
      ^bb0(%a: f32, %b: f32):
        %i = linalg.index 1 : index
        %j = linalg.index 2 : index
        %ten = arith.constant 10 : index
        %last = arith.muli %i, %ten : index
        %is = arith.cmpi sle, %j, %last : index
        %low = arith.constant 0xFF800000 : f32
        %y = arith.select %is, %a, %low : f32
        linalg.yield %y : f32
      }} -> {s}"""
    narrow = kind != "f32"
    widened = "%w = arith.extf %n : " + kind + " to f32" if narrow else ""
    text = f"""
    func.func @f(%q: tensor<{B}x{Q}x{D}x{kind}>, %k: tensor<{B}x{D}x{K}x{kind}>, %v: tensor<{B}x{K}x{D}x{kind}>,
                 %weights: {weights}) -> {out} {{
      %zero = arith.constant 0.0 : f32
      %se = tensor.empty() : {s}
      %s0 = linalg.fill ins(%zero : f32) outs(%se : {s}) -> {s}
      %s = linalg.batch_matmul ins(%q, %k : tensor<{B}x{Q}x{D}x{kind}>, tensor<{B}x{D}x{K}x{kind}>)
          outs(%s0 : {s}) -> {s}
      {mask if causal else ""}
      %p0 = linalg.softmax dimension(2) ins({"%x" if causal else "%s"} : {s}) outs(%se : {s}) -> {s}
      %pe = tensor.empty() : {s.replace("f32", kind)}
      %pw = linalg.generic
          {{indexing_maps = [{id_}, {of}, {id_}], iterator_types = ["parallel", "parallel", "parallel"]}}
          ins(%p0, %weights : {s}, {weights}) outs(%pe : {s.replace("f32", kind)}) {{
      ^bb0(%p: f32, {"%n" if narrow else "%w"}: {kind}, %b: {kind}):
        {widened}
        {body}
        {"%rn = arith.truncf %r : f32 to " + kind if narrow else ""}
        linalg.yield {"%rn" if narrow else "%r"} : {kind}
      }} -> {s.replace("f32", kind)}
      %oe = tensor.empty() : {out}
      %o0 = linalg.fill ins(%zero : f32) outs(%oe : {out}) -> {out}
      %o = linalg.batch_matmul ins(%pw, %v : {s.replace("f32", kind)}, tensor<{B}x{K}x{D}x{kind}>)
          outs(%o0 : {out}) -> {out}
      return %o : {out}
    }}"""
    return text, sizes


def expected(name: str, inputs: list[np.ndarray], causal: bool) -> np.ndarray:
    q, k, v, w = (x.astype(np.float64) for x in inputs)
    s = q @ k
    if causal:
        s = np.where(np.arange(K) <= 10 * np.arange(Q)[:, None], s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    w = w[:, None] if name == "of heads and keys" else w
    factors = {"dropout": np.where(w > 0.5, 2.0, 0.0), "divisor": 1 / w}
    return (p * factors.get(name, w)) @ v


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize(
    "name, causal, options",
    [
        *((name, i % 2 == 0, {}) for i, name in enumerate(WEIGHTS)),
        *((name, True, {"split_keys": 3}) for name in WEIGHTS),
    ],
)
def test_weights(name, causal, options):
    check(name, causal, "f32", options, 1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["of keys", "dropout"])
def test_narrow(name, kind):
    check(name, True, kind, {}, 2e-2 if kind == "bf16" else 3e-3)


def check(name, causal, kind, options, tolerance):
    text, sizes = graph(*WEIGHTS[name], causal, kind)
    kernel = compile(text, threads=1, **options)
    assert "linalg_ext.softmax" in kernel.ir("raised") and "scf.for" in kernel.ir("fused")
    inputs = made_up(sizes, kind)
    found = np.asarray(kernel(*inputs))
    np.testing.assert_allclose(found, expected(name, inputs, causal), atol=tolerance)


def made_up(sizes: list[int], kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(B, Q, D), (B, D, K), (B, K, D)]
    inputs = [rng.standard_normal(shape) for shape in shapes] + [rng.uniform(0.2, 1, sizes)]
    return [narrowed(x, kind) for x in inputs]


def narrowed(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16)
    return x.astype({"f32": np.float32, "f16": np.float16}[kind])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name, kind", [("of keys", "f32"), ("dropout", "f16")])
def test_on_gpus(name, kind, arch):
    """At the level of tiles, without a GPU."""
    text, sizes = graph(*WEIGHTS[name], True, kind)
    inputs = made_up(sizes, kind)
    (found,) = run_module(text, [x.astype(np.float64) for x in inputs], arch=arch)
    np.testing.assert_allclose(found, expected(name, inputs, True), atol=1e-5 if kind == "f32" else 3e-3)
