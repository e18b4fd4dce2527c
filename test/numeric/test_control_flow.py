"""Attention in functions that are called, in loops and in branches: it is fused there too, and right."""

import numpy as np
import pytest
from attn_opt.compiler import compile

M, N, D = 70, 45, 16
Q, K, S = f"tensor<{M}x{D}xf32>", f"tensor<{N}x{D}xf32>", f"tensor<{M}x{N}xf32>"
TRANSPOSED = "[affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]"
ARGUMENTS = f"%q: {Q}, %k: {K}, %v: {K}"


def attention(q: str, out: str, modified: str = "") -> str:
    """Ops that compute %`out` from %`q`, %k and %v; `modified` makes %x of the scores %s."""
    x = "%x" if modified else f"%{out}_s"
    return f"""
  %{out}_zero = arith.constant 0.0 : f32
  %{out}_e = tensor.empty() : {S}
  %{out}_s0 = linalg.fill ins(%{out}_zero : f32) outs(%{out}_e : {S}) -> {S}
  %{out}_s = linalg.matmul indexing_maps = {TRANSPOSED} ins(%{q}, %k : {Q}, {K}) outs(%{out}_s0 : {S}) -> {S}
  {modified}
  %{out}_p = linalg.softmax dimension(1) ins({x} : {S}) outs(%{out}_e : {S}) -> {S}
  %{out}_oe = tensor.empty() : {Q}
  %{out}_o0 = linalg.fill ins(%{out}_zero : f32) outs(%{out}_oe : {Q}) -> {Q}
  %{out} = linalg.matmul ins(%{out}_p, %v : {S}, {K}) outs(%{out}_o0 : {Q}) -> {Q}
"""


ONES = "%c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index"
CALLED = f"func.func private @called({ARGUMENTS}) -> {Q} {{{attention('q', 'o')}  return %o : {Q}\n}}\n"
CALL = f"%o = func.call @called(%q, %k, %v) : ({Q}, {K}, {K}) -> {Q}"
AGAIN = f"%o2 = func.call @called(%o, %k, %v) : ({Q}, {K}, {K}) -> {Q}"
LOOP = f"""
  {ONES}
  %o = scf.for %i = %c0 to %n step %c1 iter_args(%x = %q) -> {Q} {{{attention("x", "y")}
    scf.yield %y : {Q}
  }}"""
WHILE = f"""
  {ONES}
  %o, %last = scf.while (%x = %q, %i = %c0) : ({Q}, index) -> ({Q}, index) {{
    %more = arith.cmpi slt, %i, %n : index
    scf.condition(%more) %x, %i : {Q}, index
  }} do {{
  ^bb0(%x: {Q}, %i: index):{attention("x", "y")}
    %next = arith.addi %i, %c1 : index
    scf.yield %y, %next : {Q}, index
  }}"""
BLOCKS = f"""
  {ONES}
  cf.br ^head(%q, %c0 : {Q}, index)
^head(%o: {Q}, %i: index):
  %more = arith.cmpi slt, %i, %n : index
  cf.cond_br %more, ^body, ^end
^body:{attention("o", "y")}
  %next = arith.addi %i, %c1 : index
  cf.br ^head(%y, %next : {Q}, index)
^end:"""
BRANCH = f"""
  %c2 = arith.constant 2 : index
  %twice = arith.cmpi eq, %n, %c2 : index
  {attention("q", "first")}
  %o = scf.if %twice -> {Q} {{{attention("first", "second")}
    scf.yield %second : {Q}
  }} else {{
    scf.yield %first : {Q}
  }}"""
RECURSIVE = f"""func.func private @again({ARGUMENTS}, %n: index) -> {Q} {{
  {ONES}
  %end = arith.cmpi eq, %n, %c0 : index
  %r = scf.if %end -> {Q} {{
    scf.yield %q : {Q}
  }} else {{{attention("q", "y")}
    %less = arith.subi %n, %c1 : index
    %z = func.call @again(%y, %k, %v, %less) : ({Q}, {K}, {K}, index) -> {Q}
    scf.yield %z : {Q}
  }}
  return %r : {Q}
}}
"""
BESIDE = f"""
  {ONES}
  %w = arith.constant dense<0.25> : tensor<{D}x{D}xf32>
  %zero = arith.constant dense<0.0> : {Q}
  %other = scf.for %i = %c0 to %c0 step %c1 iter_args(%x = %q) -> {Q} {{
    %y = linalg.matmul ins(%x, %w : {Q}, tensor<{D}x{D}xf32>) outs(%zero : {Q}) -> {Q}
    scf.yield %y : {Q}
  }}{attention("other", "o")}"""

# Functions before the one that is compiled, its body, which computes %o, and how often attention is applied.
CASES = {
    "a call": (CALLED, CALL, 1),
    "two calls": (CALLED, CALL + AGAIN.replace("%o2", "\n  %o2") + "\n", 2),
    "a loop": ("", LOOP, 3),
    "a while": ("", WHILE, 3),
    "blocks": ("", BLOCKS, 3),
    "a branch": ("", BRANCH, 2),
    "a loop beside it": ("", BESIDE, 1),
    "recursion": (RECURSIVE, f"%o = func.call @again(%q, %k, %v, %n) : ({Q}, {K}, {K}, index) -> {Q}", 3),
}


def expected(q, k, v, times=1, modified=lambda s: s):
    for _ in range(times):
        s = modified(q @ k.T)
        p = np.exp(s - s.max(-1, keepdims=True))
        q = p / p.sum(-1, keepdims=True) @ v
    return q


def arrays():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((M, D), (N, D), (N, D))]


def compiled(text: str):
    """Fused wherever there is an attention, each in tiles of 16 keys."""
    told: list = []
    kernel = compile(text, listener=told.append, tile_sizes=(32, 0, 16))
    assert not [found for found in told if found.severity == "warning"]
    assert "step %c16" in kernel.ir("fused")
    return kernel


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_attention_inside(name):
    functions, body, times = CASES[name]
    result = "%o2" if "%o2" in body else "%o"
    text = f"{functions}func.func @main({ARGUMENTS}, %n: index) -> {Q} {{\n  {body}\n  return {result} : {Q}\n}}"
    q, k, v = arrays()
    found = compiled(text)(q, k, v, times)
    np.testing.assert_allclose(found, expected(*(x.astype(float) for x in (q, k, v)), times), atol=2e-6)


def test_what_is_between_the_matmuls_may_be_a_function():
    cap = f"func.func private @cap(%s: {S}) -> {S} {{\n  %t = math.tanh %s : {S}\n  return %t : {S}\n}}\n"
    body = attention("q", "o", f"%x = func.call @cap(%o_s) : ({S}) -> {S}")
    q, k, v = arrays()
    found = compiled(f"{cap}func.func @main({ARGUMENTS}) -> {Q} {{{body}  return %o : {Q}\n}}")(q, k, v)
    double = (x.astype(float) for x in (q, k, v))
    np.testing.assert_allclose(found, expected(*double, modified=np.tanh), atol=2e-6)


def test_fused_loops_are_compiled_as_they_are():
    q, k, v = arrays()
    text = f"func.func @main({ARGUMENTS}) -> {Q} {{{attention('q', 'o')}  return %o : {Q}\n}}"
    fused = compiled(text).ir("fused")
    kernel = compile(fused)
    assert kernel.ir("fused").count("scf.for") == fused.count("scf.for")
    np.testing.assert_allclose(kernel(q, k, v), expected(*(x.astype(float) for x in (q, k, v))), atol=2e-6)
