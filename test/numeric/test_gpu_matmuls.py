"""Matmuls around attention on NVIDIA GPUs: kernels of tiles, evaluated without a GPU, and run on one."""

import itertools
import re

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import compile
from crossed import pairwise
from gpu import needs_gpu
from gpu import poisoned as poisoned
from gpu_modules import Launches, run_module
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
TOLERANCE = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 1e-5}


def graph(element, b, m, n, k, left="mk", right="kn", is_open=False):
    """tanh(A·B + c), rounded to the element type, of `b` matrices, or of one for 0; `left`, `right`: which dimension of
    an operand comes first."""
    sizes = {"b": b, "m": m, "n": n, "k": k}

    def kind(dims, element):
        return "tensor<" + "".join(f"{'?' if is_open and d != 'k' else sizes[d]}x" for d in dims) + element + ">"

    batch = "b" if b else ""
    left, right, out, domain = batch + left, batch + right, batch + "mn", batch + "mnk"
    of = lambda dims, domain: f"affine_map<({', '.join(domain)}) -> ({', '.join(dims)})>"  # noqa: E731
    parallel = ", ".join(['"parallel"'] * len(out))
    a, w, c, s, y = kind(left, element), kind(right, element), kind("n", "f32"), kind(out, "f32"), kind(out, element)
    counts = "".join(  # a batch's is the second operand's, where loops may have the first one's
        f"%c{i} = arith.constant {(right if d in right else left).index(d)} : index\n"
        f"%s{i} = tensor.dim %{'w' if d in right else 'a'}, %c{i} : {w if d in right else a}\n"
        for i, d in enumerate(out)
    )
    dynamic = ", ".join(f"%s{i}" for i in range(len(out))) if is_open else ""
    extended = (
        "" if element == "f32" else f"%p = arith.extf %x : {element} to f32\n%q = arith.extf %y : {element} to f32"
    )
    factors = "%x, %y" if element == "f32" else "%p, %q"
    rounded = "linalg.yield %u : f32"
    if element != "f32":
        rounded = f"%v = arith.truncf %u : f32 to {element}\nlinalg.yield %v : {element}"
    return f"""
func.func @main(%a: {a}, %w: {w}, %c: {c}) -> {y} {{
  %zero = arith.constant 0.0 : f32
  {counts if is_open else ""}
  %e = tensor.empty({dynamic}) : {s}
  %i = linalg.fill ins(%zero : f32) outs(%e : {s}) -> {s}
  %r = linalg.generic {{indexing_maps = [{of(left, domain)}, {of(right, domain)}, {of(out, domain)}],
      iterator_types = [{parallel}, "reduction"]}} ins(%a, %w : {a}, {w}) outs(%i : {s}) {{
  ^bb0(%x: {element}, %y: {element}, %o: f32):
    {extended}
    %t = arith.mulf {factors} : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  }} -> {s}
  %f = tensor.empty({dynamic}) : {y}
  %z = linalg.generic {{indexing_maps = [{of(out, out)}, {of("n", out)}, {of(out, out)}],
      iterator_types = [{parallel}]}} ins(%r, %c : {s}, {c}) outs(%f : {y}) {{
  ^bb0(%x: f32, %y: f32, %o: {element}):
    %t = arith.addf %x, %y : f32
    %u = math.tanh %t : f32
    {rounded}
  }} -> {y}
  return %z : {y}
}}"""


def arguments(element, b, m, n, k, left="mk", right="kn"):
    rng = np.random.default_rng(m * 1000 + n)
    sizes = {"m": m, "n": n, "k": k}
    batch = (b,) if b else ()
    a, w = (rng.standard_normal((*batch, *(sizes[d] for d in dims))) / k**0.5 for dims in (left, right))
    c = rng.standard_normal(n).astype(np.float32)
    a, w = a.astype(DTYPES[element]), w.astype(DTYPES[element])
    x = a.astype(np.float64) if left == "mk" else a.astype(np.float64).swapaxes(-1, -2)
    y = w.astype(np.float64) if right == "kn" else w.astype(np.float64).swapaxes(-1, -2)
    return [a, w, c], np.tanh(x @ y + c)


def check(found, exact, element):
    assert np.abs(np.asarray(found, np.float64) - exact).max() < TOLERANCE[element]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("element", DTYPES)
@given(
    b=st.integers(0, 2),
    sizes=st.tuples(st.integers(1, 70), st.integers(16, 70), st.integers(16, 70)),
    left=st.sampled_from(["mk", "km"]),
    right=st.sampled_from(["kn", "nk"]),
    is_open=st.booleans(),
)
@examples(3)
def test_tiles_of_any_matmul(arch, element, b, sizes, left, right, is_open):
    text = graph(element, b, *sizes, left, right, is_open)
    inputs, exact = arguments(element, b, *sizes, left, right)
    check(run_module(text, inputs, arch=arch), exact, element)
    assert compile(text, target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_a_matmul_is_one_kernel_with_what_follows(arch):
    text = graph("f16", 0, 130, 80, 64)
    run_module(text, arguments("f16", 0, 130, 80, 64)[0], arch=arch)
    assert Launches.kernels == ["main_0"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("sizes", "layouts", "element", "arch"),
    pairwise(
        [(0, 1, 80, 1536), (0, 16, 64, 2048), (2, 5, 64, 1560), (0, 65, 130, 4096)],
        [("mk", "nk"), ("km", "kn")],
        list(DTYPES),
        ["sm_90a", "sm_80"],
    ),
)
def test_long_sums_are_parts_that_are_added_up_with_what_follows(sizes, layouts, element, arch):
    left, right = layouts
    text = graph(element, *sizes, left, right)
    inputs, exact = arguments(element, *sizes, left, right)
    check(run_module(text, inputs, arch=arch), exact, element)
    assert [name for name in Launches.kernels if "pad" not in name] == ["main_0", "main_results"]
    assert "parts" in compile(text, target="nvidia", arch=arch).explain()


@pytest.mark.parametrize("right", ["kn", "nk"])
@pytest.mark.parametrize("left", ["mk", "km"])
def test_tensor_cores_read_both_operands_from_shared_memory(left, right):
    """Whichever dimension stands side by side: Aᵀ·B, as gradients of weights are, goes through no registers."""
    ptx = compile(graph("f16", 0, 512, 256, 1024, left, right), target="nvidia", arch="sm_90a").ir("ptx")
    orders = re.findall(r"p, 1, 1, (\d), (\d);", ptx)
    assert set(orders) == {(str(int(left == "km")), str(int(right == "kn")))} and "ldmatrix" not in ptx


def chain(m, k):
    """y = x·A + x, and y + (y / |y|)·B, with sums so long that they are parts: B's matmul needs the first ones added
    up, which the second ones are added to."""
    x, w, s, row = f"tensor<{m}x{k}xf16>", f"tensor<{k}x{k}xf16>", f"tensor<{m}x{k}xf32>", f"tensor<{m}xf32>"
    matmul = "linalg.matmul ins({0}, {1} : {x}, {w}) outs(%i : {s}) -> {s}"
    pointwise = """linalg.generic {{indexing_maps = [affine_map<(m, n) -> (m, n)>, {map}, affine_map<(m, n) -> (m, n)>],
      iterator_types = ["parallel", "parallel"]}} ins({0}, {1} : {a}, {b}) outs({out}) {{"""
    of = lambda text, *values, **kinds: text.format(*values, x=x, w=w, s=s, **kinds)  # noqa: E731
    same, rows = "affine_map<(m, n) -> (m, n)>", "affine_map<(m, n) -> (m)>"
    return f"""
func.func @main(%x: {x}, %a: {w}, %b: {w}) -> {s} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {s}
  %h = tensor.empty() : {x}
  %er = tensor.empty() : {row}
  %i = linalg.fill ins(%zero : f32) outs(%e : {s}) -> {s}
  %ir = linalg.fill ins(%zero : f32) outs(%er : {row}) -> {row}
  %xa = {of(matmul, "%x", "%a")}
  %y = {of(pointwise, "%xa", "%x", a=s, b=x, map=same, out=f"%e : {s}")}
  ^bb0(%p: f32, %q: f16, %o: f32):
    %r = arith.extf %q : f16 to f32
    %t = arith.addf %p, %r : f32
    linalg.yield %t : f32
  }} -> {s}
  %n = linalg.generic {{indexing_maps = [{same}, {rows}], iterator_types = ["parallel", "reduction"]}}
      ins(%y : {s}) outs(%ir : {row}) {{
  ^bb0(%p: f32, %o: f32):
    %t = arith.mulf %p, %p : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  }} -> {row}
  %z = {of(pointwise, "%y", "%n", a=s, b=row, map=rows, out=f"%h : {x}")}
  ^bb0(%p: f32, %q: f32, %o: f16):
    %r = math.rsqrt %q : f32
    %t = arith.mulf %p, %r : f32
    %u = arith.truncf %t : f32 to f16
    linalg.yield %u : f16
  }} -> {x}
  %zb = {of(matmul, "%z", "%b")}
  %r = {of(pointwise, "%zb", "%y", a=s, b=s, map=same, out=f"%e : {s}")}
  ^bb0(%p: f32, %q: f32, %o: f32):
    %t = arith.addf %p, %q : f32
    linalg.yield %t : f32
  }} -> {s}
  return %r : {s}
}}"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(
    ("left", "right", "out"),
    [
        ("btk", "nk", "btn"),
        ("bthd", "nhd", "btn"),
        ("btk", "hdk", "bthd"),
        ("ubtk", "nk", "ubtn"),
        ("btk", "ubnk", "ubtn"),
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [{"b": 3, "t": 20}, {"b": 1, "t": 1}, {"b": 17, "t": 1}], ids=str)
def test_several_loops_of_a_kind_are_one(arch, left, right, out, sizes):
    """Rows of batch entries and tokens, columns and sums of heads and their elements; u has one element."""
    sizes = {"k": 64, "n": 48, "h": 4, "d": 16, "u": 1} | sizes
    loops = "".join(dict.fromkeys(out + left + right))
    kind = lambda dims, element: f"tensor<{'x'.join(str(sizes[d]) for d in dims)}x{element}>"  # noqa: E731
    of = lambda dims: f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>"  # noqa: E731
    kinds = ", ".join('"parallel"' if d in out else '"reduction"' for d in loops)
    text = f"""
func.func @main(%a: {kind(left, "f16")}, %b: {kind(right, "f16")}) -> {kind(out, "f32")} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {kind(out, "f32")}
  %i = linalg.fill ins(%zero : f32) outs(%e : {kind(out, "f32")}) -> {kind(out, "f32")}
  %r = linalg.generic {{indexing_maps = [{of(left)}, {of(right)}, {of(out)}], iterator_types = [{kinds}]}}
      ins(%a, %b : {kind(left, "f16")}, {kind(right, "f16")}) outs(%i : {kind(out, "f32")}) {{
  ^bb0(%x: f16, %y: f16, %o: f32):
    %p = arith.extf %x : f16 to f32
    %q = arith.extf %y : f16 to f32
    %t = arith.mulf %p, %q : f32
    %u = arith.addf %o, %t : f32
    linalg.yield %u : f32
  }} -> {kind(out, "f32")}
  return %r : {kind(out, "f32")}
}}"""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal([sizes[d] for d in dims]).astype(np.float16) for dims in (left, right))
    (found,) = run_module(text, [a, b], arch=arch)
    exact = np.einsum(f"{left},{right}->{out}", a.astype(np.float64), b.astype(np.float64))
    assert found.shape == exact.shape and np.abs(found - exact).max() < 1e-4 * np.abs(exact).max()
    assert "tiled by" in compile(text, target="nvidia", arch=arch).explain()


OF_ROWS = """
func.func @main(%a: tensor<128x256xf16>, %r: tensor<256xf32>) -> tensor<128x64xf32> {
  %zero = arith.constant 0.0 : f32
  %h = tensor.empty() : tensor<256x64xf16>
  %w = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%r : tensor<256xf32>) outs(%h : tensor<256x64xf16>) {
  ^bb0(%x: f32, %o: f16):
    %e = math.exp2 %x : f32
    %t = arith.truncf %e : f32 to f16
    linalg.yield %t : f16
  } -> tensor<256x64xf16>
  %e = tensor.empty() : tensor<128x64xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<128x64xf32>) -> tensor<128x64xf32>
  %s = linalg.matmul ins(%a, %w : tensor<128x256xf16>, tensor<256x64xf16>) outs(%i : tensor<128x64xf32>)
    -> tensor<128x64xf32>
  return %s : tensor<128x64xf32>
}"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_right_operands_that_are_the_same_along_a_row(arch):
    """Eight equal elements, which upstream makes one op of, are computed once."""
    rng = np.random.default_rng(0)
    a, r = rng.standard_normal((128, 256)).astype(np.float16), rng.standard_normal(256).astype(np.float32)
    (found,) = run_module(OF_ROWS, [a, r], arch=arch)
    exact = a.astype(np.float64) @ np.exp2(r.astype(np.float64)).astype(np.float16)[:, None].repeat(64, 1)
    assert np.abs(found - exact).max() < 1e-3 * np.abs(exact).max()
    assert compile(OF_ROWS, target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_parts_are_added_up_before_what_depends_on_them(arch):
    m, k = 5, 1024
    rng = np.random.default_rng(0)
    x, a, b = (rng.standard_normal((n, k)).astype(np.float16) for n in (m, k, k))
    a, b = a / np.float16(32), b / np.float16(4)
    (found,) = run_module(chain(m, k), [x, a, b], arch=arch)
    y = x.astype(np.float64) @ a + x
    exact = y + y / np.linalg.norm(y, axis=-1, keepdims=True) @ b.astype(np.float64)
    assert np.abs(found - exact).max() < 2e-3 * np.abs(exact).max()


@pytest.mark.parametrize("sizes", [(0, 0, 32, 64), (0, 64, 0, 64), (0, 64, 64, 0)])
def test_no_elements(sizes):
    assert "wgmma" not in compile(graph("f16", *sizes), target="nvidia", arch="sm_90a").ir("ptx")


SHAPES = {
    "square": (0, 512, 512, 512),
    "one_row": (0, 1, 4096, 1024),
    "few_columns": (0, 1000, 3, 512),
    "odd": (0, 77, 201, 99),
    "batch": (3, 130, 257, 64),
    "long": (0, 200, 300, 8192),
}


ORDERS = list(itertools.product(["mk", "km"], ["kn", "nk"], [False, True]))


@needs_gpu
@pytest.mark.parametrize("arch", ["", "sm_80"])
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_on_a_gpu(shape, element, arch, poisoned):
    for left, right, is_open in ORDERS[:: 1 if shape == "odd" else 3]:
        text = graph(element, *SHAPES[shape], left, right, is_open)
        inputs, exact = arguments(element, *SHAPES[shape], left, right)
        check(compile(text, target="nvidia", **({"arch": arch} if arch else {}))(*inputs), exact, element)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(("m", "part"), [(7, 1), (7, 5), (64, 3), (200, 70)])
def test_what_is_computed_of_some_rows(m, part, start, arch):
    """Both are whole: the product, and twice its rows from `start` on."""
    text = f"""
func.func @main(%a: tensor<{m}x20xf32>, %b: tensor<20x24xf32>) -> (tensor<{m}x24xf32>, tensor<{part}x24xf32>) {{
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<{m}x24xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<{m}x24xf32>) -> tensor<{m}x24xf32>
  %p = linalg.matmul ins(%a, %b : tensor<{m}x20xf32>, tensor<20x24xf32>) outs(%z : tensor<{m}x24xf32>)
      -> tensor<{m}x24xf32>
  %rows = tensor.extract_slice %p[{start}, 0] [{part}, 24] [1, 1] : tensor<{m}x24xf32> to tensor<{part}x24xf32>
  %er = tensor.empty() : tensor<{part}x24xf32>
  %twice = linalg.map ins(%rows : tensor<{part}x24xf32>) outs(%er : tensor<{part}x24xf32>)
      (%x: f32, %o: f32) {{ %t = arith.mulf %x, %two : f32 linalg.yield %t : f32 }}
  return %p, %twice : tensor<{m}x24xf32>, tensor<{part}x24xf32>
}}"""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in ((m, 20), (20, 24)))
    product, twice = run_module(text, [a, b], arch=arch)
    exact = a.astype(np.float64) @ b
    for found, wanted in ((product, exact), (twice, 2 * exact[start : start + part])):
        assert np.abs(found - wanted).max() < TOLERANCE["f32"] * np.abs(exact).max()


def layers(m, kinds):
    """x·A + x, of 64 columns, as all x are, in turns with x + relu(x·B)·C, of 192 columns between these."""
    maps = "affine_map<(m, n) -> (m, n)>"
    lines, x, narrow = [], "%x", f"tensor<{m}x64xf16>"
    tensor = "tensor<{}x{}x{}>".format
    for i, kind in enumerate(kinds):
        widths = {"small": [64], "large": [192, 64]}[kind]
        y = x
        for j, n in enumerate(widths):
            k = 64 if not j else widths[0]
            source, out = tensor(m, k, "f16"), tensor(m, n, "f32")
            last = j == len(widths) - 1
            lines += [
                f"%e{i}{j} = tensor.empty() : {out}",
                f"%i{i}{j} = linalg.fill ins(%zero : f32) outs(%e{i}{j} : {out}) -> {out}",
                f"%w{i}{j} = tensor.extract_slice %w[0, {(7 * i + 3 * j) % 5 * 8}] [{k}, {n}] [1, 1] : "
                f"tensor<192x256xf16> to {tensor(k, n, 'f16')}",
                f"%m{i}{j} = linalg.matmul ins({y}, %w{i}{j} : {source}, {tensor(k, n, 'f16')}) "
                f"outs(%i{i}{j} : {out}) -> {out}",
                f"%h{i}{j} = tensor.empty() : {tensor(m, n, 'f16')}",
                f"%y{i}{j} = linalg.generic {{indexing_maps = [{', '.join([maps] * (3 if last else 2))}], "
                f'iterator_types = ["parallel", "parallel"]}} ins(%m{i}{j}{f", {x}" if last else ""} : '
                f"{out}{f', {narrow}' if last else ''}) "
                f"outs(%h{i}{j} : {tensor(m, n, 'f16')}) {{",
                f"^bb0(%a: f32, {'%b: f16, ' if last else ''}%o: f16):",
                "%c = arith.extf %b : f16 to f32\n%r = arith.addf %a, %c : f32"
                if last
                else "%r = arith.maximumf %a, %zero : f32",
                f"%t = arith.truncf %r : f32 to f16\nlinalg.yield %t : f16\n}} -> {tensor(m, n, 'f16')}",
            ]
            y = f"%y{i}{j}"
        x = y
    text = "\n".join(["%zero = arith.constant 0.0 : f32", *lines])
    return f"func.func @main(%x: {narrow}, %w: tensor<192x256xf16>) -> {narrow} {{\n{text}\nreturn {x} : {narrow}\n}}"


KINDS = [("small",), ("small", "large"), ("large", "small", "small"), ("small", "large", "small")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("m", [64, 40, 100])
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_small_matmuls_beside_larger_ones(kinds, m, arch):
    """What is a tile has no loop; where others have loops it still goes to the tensor cores."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(m, 64)).astype(np.float16), (rng.normal(size=(192, 256)) / 12).astype(np.float16)
    (found,) = run_module(layers(m, kinds), [x, w], arch=arch)
    assert not [name for name in Launches.kernels if "elements" in name]
    wide, y = w.astype(np.float64), x.astype(np.float64)
    for i, kind in enumerate(kinds):
        start = 7 * i % 5 * 8
        if kind == "small":
            y = y + y @ wide[:64, start : start + 64]
        else:
            second = (7 * i + 3) % 5 * 8
            y = y + np.maximum(y @ wide[:64, start : start + 192], 0) @ wide[:, second : second + 64]
    np.testing.assert_allclose(found, y, atol=2e-2 * np.abs(y).max())


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (130, 200, 96), (5, 256, 1024), (256, 128, 64)])
def test_sums_that_start_from_a_tensor(m, n, k, arch):
    """C + A·B, of one tile and more, also where the sum goes in parts: what C has is added once."""
    a, b, c = f"tensor<{m}x{k}xf16>", f"tensor<{k}x{n}xf16>", f"tensor<{m}x{n}xf32>"
    text = f"""func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
  %r = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
  return %r : {c}
}}"""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=s).astype(np.float16) for s in ((m, k), (k, n)))
    start = rng.normal(size=(m, n)).astype(np.float32) * 10
    (found,) = run_module(text, [left, right, start], arch=arch)
    np.testing.assert_allclose(found, start + left.astype(np.float64) @ right, atol=1e-4 * k)


def projected_keys(queries, keys):
    """softmax(q·(c·w)ᵀ)·v of one head, in f32."""
    q, c, k, s = (f"tensor<{m}x{n}xf32>" for m, n in ((queries, 64), (keys, 48), (keys, 64), (queries, keys)))
    w, turned = "tensor<48x64xf32>", f"tensor<64x{keys}xf32>"
    return f"""
func.func @main(%q: {q}, %c: {c}, %w: {w}, %v: {k}) -> {q} {{
  %zero = arith.constant 0.0 : f32
  %ek = tensor.empty() : {k}
  %et = tensor.empty() : {turned}
  %es = tensor.empty() : {s}
  %eo = tensor.empty() : {q}
  %ik = linalg.fill ins(%zero : f32) outs(%ek : {k}) -> {k}
  %k = linalg.matmul ins(%c, %w : {c}, {w}) outs(%ik : {k}) -> {k}
  %t = linalg.transpose ins(%k : {k}) outs(%et : {turned}) permutation = [1, 0]
  %is = linalg.fill ins(%zero : f32) outs(%es : {s}) -> {s}
  %s = linalg.matmul ins(%q, %t : {q}, {turned}) outs(%is : {s}) -> {s}
  %p = linalg.softmax dimension(1) ins(%s : {s}) outs(%es : {s}) -> {s}
  %io = linalg.fill ins(%zero : f32) outs(%eo : {q}) -> {q}
  %o = linalg.matmul ins(%p, %v : {s}, {k}) outs(%io : {q}) -> {q}
  return %o : {q}
}}"""


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize(("queries", "keys"), [(64, 77), (40, 120)])
def test_one_tile_beside_loops(queries, keys, arch):
    """An attention of one tile of queries has a loop over keys alone."""
    rng = np.random.default_rng(0)
    shapes = (queries, 64), (keys, 48), (48, 64), (keys, 64)
    q, c, w, v = ((rng.normal(size=shape) / 8).astype(np.float32) for shape in shapes)
    (found,) = run_module(projected_keys(queries, keys), [q, c, w, v], arch=arch)
    assert not [name for name in Launches.kernels if "elements" in name]
    p = np.exp(q @ (c @ w).T)
    np.testing.assert_allclose(found, p / p.sum(1, keepdims=True) @ v, atol=TOLERANCE["f32"])


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("rows", [10, 130])
def test_a_product_that_is_the_same_for_all_of_a_batch(rows, arch):
    """Both operands are repeated, as learned queries with their projection; it is computed once."""
    z, w, s = f"tensor<{rows}x32xf16>", "tensor<32x48xf16>", f"tensor<3x{rows}x48xf32>"
    repeated = 'iterator_types = ["parallel", "parallel", "parallel"]'
    copied = f"[affine_map<(b, i, j) -> (i, j)>, affine_map<(b, i, j) -> (b, i, j)>], {repeated}}}"
    text = f"""func.func @main(%z: {z}, %w: {w}, %c: {s}) -> {s} {{
  %zero = arith.constant 0.0 : f32
  %ez = tensor.empty() : tensor<3x{rows}x32xf16>
  %zs = linalg.generic {{indexing_maps = {copied} ins(%z : {z}) outs(%ez : tensor<3x{rows}x32xf16>) {{
  ^bb0(%x: f16, %o: f16):
    linalg.yield %x : f16
  }} -> tensor<3x{rows}x32xf16>
  %ew = tensor.empty() : tensor<3x32x48xf16>
  %ws = linalg.generic {{indexing_maps = {copied} ins(%w : {w}) outs(%ew : tensor<3x32x48xf16>) {{
  ^bb0(%x: f16, %o: f16):
    linalg.yield %x : f16
  }} -> tensor<3x32x48xf16>
  %e = tensor.empty() : {s}
  %i = linalg.fill ins(%zero : f32) outs(%e : {s}) -> {s}
  %r = linalg.batch_matmul ins(%zs, %ws : tensor<3x{rows}x32xf16>, tensor<3x32x48xf16>) outs(%i : {s}) -> {s}
  %y = linalg.add ins(%r, %c : {s}, {s}) outs(%e : {s}) -> {s}
  return %y : {s}
}}"""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=shape).astype(np.float16) for shape in ((rows, 32), (32, 48)))
    c = rng.normal(size=(3, rows, 48)).astype(np.float32)
    (found,) = run_module(text, [left, right, c], arch=arch)
    np.testing.assert_allclose(found, left.astype(np.float64) @ right + c, atol=1e-4)
    assert f"<{rows}x48xf32" in compile(text, target="nvidia", arch=arch).ir("tiles")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize("batch, rows", [("?", "?"), ("?", "20"), ("3", "?")])
def test_layers_of_open_sizes(batch, rows, is_computed):
    """Rows of all of a batch are one loop, of a product of sizes; also where another kernel makes them."""
    x, y = (f"tensor<{batch}x{rows}x{n}xf32>" for n in (32, 48))
    sizes = ", ".join(f"%s{d}" for d, size in enumerate((batch, rows)) if size == "?")
    three, sums = '["parallel", "parallel", "parallel"]', '["parallel", "parallel", "parallel", "reduction"]'
    same = "affine_map<(b, m, n) -> (b, m, n)>"
    text = f"""func.func @main(%x: {x}, %w: tensor<48x32xf32>) -> {y} {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s0 = tensor.dim %x, %c0 : {x}
  %s1 = tensor.dim %x, %c1 : {x}
  %ex = tensor.empty({sizes}) : {x}
  %l = tensor.empty({sizes}) : tensor<{batch}x{rows}xf32>
  %z = linalg.fill ins(%zero : f32) outs(%l : tensor<{batch}x{rows}xf32>) -> tensor<{batch}x{rows}xf32>
  %t = linalg.reduce {{ arith.addf }} ins(%x : {x}) outs(%z : tensor<{batch}x{rows}xf32>) dimensions = [2]
  %c = linalg.generic {{indexing_maps = [{same}, affine_map<(b, m, n) -> (b, m)>, {same}], iterator_types = {three}}}
      ins(%x, %t : {x}, tensor<{batch}x{rows}xf32>) outs(%ex : {x}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.subf %a, %b : f32
    linalg.yield %r : f32
  }} -> {x}
  %e = tensor.empty({sizes}) : {y}
  %i = linalg.fill ins(%zero : f32) outs(%e : {y}) -> {y}
  %y = linalg.generic {{indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (n, k)>,
      affine_map<(b, m, n, k) -> (b, m, n)>], iterator_types = {sums}}}
      ins({"%c" if is_computed else "%x"}, %w : {x}, tensor<48x32xf32>) outs(%i : {y}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  }} -> {y}
  return %y : {y}
}}"""
    rng = np.random.default_rng(0)
    a, w = rng.normal(size=(3, 20 if rows == "20" else 75, 32)), rng.normal(size=(48, 32))
    exact = (a - a.sum(-1, keepdims=True) if is_computed else a) @ w.T
    for arch in ("sm_90a", "sm_80"):
        (found,) = run_module(text, [a, w], arch=arch)
        np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
        assert "tiled by" in compile(text, target="nvidia", arch=arch).explain()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("batch, rows", [("?", "?"), ("?", "20"), ("3", "?")])
def test_two_small_layers_of_open_sizes(batch, rows):
    """Columns fit one tile, rows need not: each product has tiles; the second one's rows are those of the first one."""
    x, y = (f"tensor<{batch}x{rows}x{n}xf32>" for n in (32, 48))
    sizes = ", ".join(f"%s{d}" for d, size in enumerate((batch, rows)) if size == "?")
    of_rows, of_all = (f"affine_map<(b, m, n, k) -> (b, m, {d})>" for d in "kn")
    sums = '["parallel", "parallel", "parallel", "reduction"]'

    def layer(result, value, weights, source, kind, map_of_weights):
        return f"""
  %e{result} = tensor.empty({sizes}) : {kind}
  %i{result} = linalg.fill ins(%zero : f32) outs(%e{result} : {kind}) -> {kind}
  %{result} = linalg.generic {{indexing_maps = [{of_rows}, affine_map<(b, m, n, k) -> {map_of_weights}>, {of_all}],
      iterator_types = {sums}}} ins({value}, %w : {source}, {weights}) outs(%i{result} : {kind}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  }} -> {kind}"""

    w = "tensor<48x32xf32>"
    text = f"""func.func @main(%x: {x}, %w: {w}) -> {x} {{
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %s0 = tensor.dim %x, %c0 : {x}
  %s1 = tensor.dim %x, %c1 : {x}{layer("y", "%x", w, x, y, "(n, k)")}{layer("z", "%y", w, y, x, "(k, n)")}
  return %z : {x}
}}"""
    rng = np.random.default_rng(0)
    a, weights = rng.normal(size=(3, 20 if rows == "20" else 75, 32)), rng.normal(size=(48, 32))
    exact = a @ weights.T @ weights
    for arch in ("sm_90a", "sm_80"):
        (found,) = run_module(text, [a, weights], arch=arch)
        np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
        assert compile(text, target="nvidia", arch=arch).explain().count("tiled by") == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("tokens", [1, 2, 50])
def test_pooling_by_scores_of_one_query(tokens, arch):
    """Of one token the scores of a tile are in its only row."""
    x, s, v = f"tensor<2x{tokens}x64xf32>", f"tensor<2x{tokens}xf32>", "tensor<2x64xf32>"
    text = f"""func.func @main(%x: {x}, %q: tensor<64xf32>) -> {v} {{
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : {x} into tensor<{2 * tokens}x64xf32>
  %es = tensor.empty() : tensor<{2 * tokens}xf32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<{2 * tokens}xf32>) -> tensor<{2 * tokens}xf32>
  %m = linalg.matvec ins(%flat, %q : tensor<{2 * tokens}x64xf32>, tensor<64xf32>) outs(%zs : tensor<{2 * tokens}xf32>)
    -> tensor<{2 * tokens}xf32>
  %s = tensor.expand_shape %m [[0, 1]] output_shape [2, {tokens}] : tensor<{2 * tokens}xf32> into {s}
  %ep = tensor.empty() : {s}
  %p = linalg.softmax dimension(1) ins(%s : {s}) outs(%ep : {s}) -> {s}
  %ev = tensor.empty() : {v}
  %zv = linalg.fill ins(%zero : f32) outs(%ev : {v}) -> {v}
  %o = linalg.generic {{indexing_maps = [affine_map<(b, n, d) -> (b, n)>, affine_map<(b, n, d) -> (b, n, d)>,
      affine_map<(b, n, d) -> (b, d)>], iterator_types = ["parallel", "reduction", "parallel"]}}
      ins(%p, %x : {s}, {x}) outs(%zv : {v}) {{
  ^bb0(%a: f32, %b: f32, %c: f32):
    %t = arith.mulf %a, %b : f32
    %u = arith.addf %c, %t : f32
    linalg.yield %u : f32
  }} -> {v}
  return %o : {v}
}}"""
    rng = np.random.default_rng(0)
    a, q = rng.normal(size=(2, tokens, 64)), rng.normal(size=64) / 8
    e = np.exp(a @ q)
    (found,) = run_module(text, [a, q], arch=arch)
    np.testing.assert_allclose(found, np.einsum("bn,bnd->bd", e / e.sum(-1, keepdims=True), a), atol=1e-5)
    assert compile(text, target="nvidia", arch=arch).ir("ptx")


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("rows, columns", [(200, 144), (64, 100), (130, 37)])
def test_results_that_are_made_of_one_sigmoid(rows, columns, element, arch):
    """The derivative of silu(g)·u: both of its results, and the loop's product, take the sigmoid of g, which is in no
    memory."""
    y, w, f = (f"tensor<{rows}x{columns}x{kind}>" for kind in (element, element, "f32"))
    same, twice = "affine_map<(i, j) -> (i, j)>", '["parallel", "parallel"]'
    text = f"""func.func @main(%x: tensor<{rows}x96x{element}>, %w: tensor<96x{columns}x{element}>, %g: {y}, %u: {y})
    -> ({y}, {y}) {{
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %ef = tensor.empty() : {f}
  %e = tensor.empty() : {y}
  %i = linalg.fill ins(%zero : f32) outs(%ef : {f}) -> {f}
  %d = linalg.matmul ins(%x, %w : tensor<{rows}x96x{element}>, tensor<96x{columns}x{element}>) outs(%i : {f}) -> {f}
  %s = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = {twice}}} ins(%g : {y}) outs(%ef : {f}) {{
  ^bb0(%a: {element}, %o: f32):
    %b = arith.extf %a : {element} to f32
    %n = arith.negf %b : f32
    %p = math.exp %n : f32
    %q = arith.addf %p, %one : f32
    %r = arith.divf %one, %q : f32
    linalg.yield %r : f32
  }} -> {f}
  %du = linalg.generic {{indexing_maps = [{same}, {same}, {same}, {same}], iterator_types = {twice}}}
      ins(%d, %s, %g : {f}, {f}, {y}) outs(%e : {y}) {{
  ^bb0(%a: f32, %b: f32, %c: {element}, %o: {element}):
    %v = arith.extf %c : {element} to f32
    %silu = arith.mulf %v, %b : f32
    %t = arith.mulf %a, %silu : f32
    %r = arith.truncf %t : f32 to {element}
    linalg.yield %r : {element}
  }} -> {y}
  %dg = linalg.generic {{indexing_maps = [{same}, {same}, {same}, {same}, {same}], iterator_types = {twice}}}
      ins(%d, %s, %g, %u : {f}, {f}, {y}, {y}) outs(%e : {y}) {{
  ^bb0(%a: f32, %b: f32, %c: {element}, %h: {element}, %o: {element}):
    %v = arith.extf %c : {element} to f32
    %m = arith.extf %h : {element} to f32
    %rest = arith.subf %one, %b : f32
    %t = arith.mulf %v, %rest : f32
    %k = arith.addf %t, %one : f32
    %l = arith.mulf %b, %k : f32
    %dm = arith.mulf %a, %m : f32
    %z = arith.mulf %dm, %l : f32
    %r = arith.truncf %z : f32 to {element}
    linalg.yield %r : {element}
  }} -> {y}
  return %du, %dg : {y}, {y}
}}"""
    rng = np.random.default_rng(0)
    shapes = ((rows, 96), (96, columns), (rows, columns), (rows, columns))
    args = [rng.normal(size=shape).astype(DTYPES[element]) for shape in shapes]
    x, w, g, u = (a.astype(np.float64) for a in args)
    s, d = 1 / (1 + np.exp(-g)), x @ w
    (du, dg) = run_module(text, args, arch=arch)
    for found, exact in ((du, d * g * s), (dg, d * u * s * (1 + g * (1 - s)))):
        error = np.abs(found.astype(np.float64) - exact).max()
        assert error < TOLERANCE[element] * np.abs(exact).max()
    assert Launches.kernels == ["main_0"]
