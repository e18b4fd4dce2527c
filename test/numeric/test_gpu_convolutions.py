"""Convolutions around attention, such as the patches of a vision transformer, on NVIDIA GPUs: products of matrices,
evaluated without a GPU, and run on one."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu import needs_gpu
from gpu import poisoned as poisoned
from gpu_modules import Launches, run_module
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from test_gpu_matmuls import DTYPES, check


def graph(element, batch, channels, size, filters, window, step, dilation=1, padding=0, last=False):
    """Y[n, f, y, x] = Σ X[n, c, step·y + dilation·i, …]·W[f, c, i, j] + b[f], rounded; with `last` channels are the
    last dimension of X and Y, and f that of W. And arguments, with what is right."""
    wide = tuple(s + 2 * padding for s in size)
    out = tuple((s - dilation * (w - 1) - 1) // step + 1 for s, w in zip(wide, window, strict=True))
    kind = lambda sizes, e: "tensor<" + "".join(f"{s}x" for s in sizes) + e + ">"  # noqa: E731
    of_x = lambda s: (batch, *s, channels) if last else (batch, channels, *s)  # noqa: E731
    of_w = (*window, channels, filters) if last else (filters, channels, *window)
    y = (batch, *out, filters) if last else (batch, filters, *out)
    at = ", ".join(f"{d} * {step} + {i} * {dilation}" for d, i in (("y", "i"), ("x", "j")))
    maps = (
        (f"(n, {at}, c)", "(i, j, c, f)", "(n, y, x, f)") if last else (f"(n, c, {at})", "(f, c, i, j)", "(n, f, y, x)")
    )
    maps = ", ".join(f"affine_map<(n, f, y, x, c, i, j) -> {m}>" for m in maps)
    same = "affine_map<(a, b, c, d) -> (a, b, c, d)>"
    bias = f"affine_map<(a, b, c, d) -> ({'d' if last else 'b'})>"
    low = ", ".join(map(str, (0, padding, padding, 0) if last else (0, 0, padding, padding)))
    pad = f"""%p = tensor.pad %x low[{low}] high[{low}] {{
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %none : {element}
  }} : {kind(of_x(size), element)} to {kind(of_x(wide), element)}"""
    product, rounded = "%u = arith.mulf %a, %b : f32", "linalg.yield %s1 : f32"
    if element != "f32":
        product = f"%c = arith.extf %a : {element} to f32\n%d = arith.extf %b : {element} to f32\n"
        product += "%u = arith.mulf %c, %d : f32"
        rounded = f"%r = arith.truncf %s1 : f32 to {element}\nlinalg.yield %r : {element}"
    x, w, b, s, z = (
        kind(of_x(size), element),
        kind(of_w, element),
        f"tensor<{filters}xf32>",
        kind(y, "f32"),
        kind(y, element),
    )
    source, p = ("%p", kind(of_x(wide), element)) if padding else ("%x", x)
    parallel = ", ".join(['"parallel"'] * 4)
    text = f"""
func.func @main(%x: {x}, %w: {w}, %bias: {b}) -> {z} {{
  %none = arith.constant 0.0 : {element}
  {pad if padding else ""}
  %e = tensor.empty() : {s}
  %i = linalg.generic {{indexing_maps = [{bias}, {same}], iterator_types = [{parallel}]}}
      ins(%bias : {b}) outs(%e : {s}) {{
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }} -> {s}
  %s = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{parallel}, "reduction", "reduction", "reduction"]}}
      ins({source}, %w : {p}, {w}) outs(%i : {s}) {{
  ^bb0(%a: {element}, %b: {element}, %o: f32):
    {product}
    %t = arith.addf %o, %u : f32
    linalg.yield %t : f32
  }} -> {s}
  %h = tensor.empty() : {z}
  %z = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = [{parallel}]}}
      ins(%s : {s}) outs(%h : {z}) {{
  ^bb0(%s1: f32, %o: {element}):
    {rounded}
  }} -> {z}
  return %z : {z}
}}"""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape) for shape in (of_x(size), of_w)]
    arrays[1] /= np.sqrt(np.prod(window) * channels)
    arrays = [a.astype(DTYPES[element]) for a in arrays] + [rng.normal(size=filters).astype(np.float32)]
    return text, arrays, exact(*(a.astype(np.float64) for a in arrays), step, dilation, padding, last)


def exact(x, w, bias, step, dilation, padding, last):
    if last:
        x, w = x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    spans = [dilation * (n - 1) + 1 for n in w.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    windows = windows[:, :, ::step, ::step, ::dilation, ::dilation]
    y = np.einsum("ncyxij,fcij->nfyx", windows, w) + bias[:, None, None]
    return y.transpose(0, 2, 3, 1) if last else y


CASES = {
    "patches": (2, 3, (32, 48), 96, (16, 16), 16),
    "patches_of_7": (1, 3, (35, 21), 40, (7, 7), 7),
    "three": (2, 16, (7, 10), 32, (3, 3), 1, 1, 1),
    "three_last": (2, 8, (7, 10), 32, (3, 3), 1, 1, 1, True),
    "one": (2, 32, (8, 6), 64, (1, 1), 1),
    "one_last": (2, 32, (8, 6), 64, (1, 1), 1, 1, 0, True),
    "one_of_every_other": (2, 32, (9, 7), 64, (1, 1), 2),
    "dilated": (1, 8, (15, 11), 24, (3, 3), 1, 2),
    "line": (3, 12, (1, 50), 48, (1, 3), 1, 1, 1),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("case", CASES)
def test_products_of_matrices(case, arch):
    text, inputs, right = graph("f16", *CASES[case])
    check(run_module(text, inputs, arch=arch), right, "f16")
    assert Launches.kernels.count("main_0") == 1 and len(Launches.kernels) <= 4  # windows; rows that are not aligned
    assert "mma" in compile(text, target="nvidia", arch=arch).ir("ptx")


@examples(10)
@given(
    batch=st.integers(1, 3),
    channels=st.integers(1, 20),
    filters=st.integers(1, 40),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    window=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    step=st.integers(1, 4),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
    last=st.booleans(),
    element=st.sampled_from(sorted(DTYPES)),
    arch=st.sampled_from(["sm_90a", "sm_80"]),
)
def test_any(arch, **fields):
    spans = [fields["dilation"] * (n - 1) + 1 for n in fields["window"]]
    fields["size"] = tuple(max(n, s - 2 * fields["padding"]) for n, s in zip(fields["size"], spans, strict=True))
    text, inputs, right = graph(**fields)
    check(run_module(text, inputs, arch=arch), right, fields["element"])


@needs_gpu
@pytest.mark.parametrize("arch", ["", "sm_80"])
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu(case, element, arch, poisoned):
    text, inputs, right = graph(element, *CASES[case])
    check(compile(text, target="nvidia", **({"arch": arch} if arch else {}))(*inputs), right, element)
