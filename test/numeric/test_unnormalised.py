"""Attention without a softmax, whose weights are made of each score by itself, fused, against float64."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from gpu_modules import run_module
from harness import crossed, relative_error
from hypothesis import given
from hypothesis import strategies as st
from probability_graphs import SIZES, TOLERANCE, Graph, check_on_gpu
from properties import examples

FEW = "%few = arith.constant -1.5 : f32"
# What makes weights %r of scores %in0, and the same in numpy.
FUNCTIONS = {
    "sigmoid": (
        [
            FEW,
            "%one = arith.constant 1.0 : f32",
            "%y = arith.addf %in0, %few : f32",
            "%n = arith.negf %y : f32",
            "%e = math.exp %n : f32",
            "%d = arith.addf %one, %e : f32",
            "%r = arith.divf %one, %d : f32",
        ],
        lambda s: 1 / (1 + np.exp(1.5 - s)),
    ),
    "squared relu": (
        [
            "%is = arith.cmpf ogt, %in0, %zero : f32",
            "%y = arith.select %is, %in0, %zero : f32",
            "%r = arith.mulf %y, %y : f32",
        ],
        lambda s: np.maximum(s, 0) ** 2,
    ),
    "gaussian": (
        ["%y = arith.mulf %in0, %in0 : f32", "%n = arith.negf %y : f32", "%r = math.exp %n : f32"],
        lambda s: np.exp(-(s**2)),
    ),
    "signed": (["%r = math.tanh %in0 : f32"], np.tanh),
}
PLACE = ["%i = linalg.index 1 : index", "%j = linalg.index 2 : index"]
DECAY = [
    *PLACE,
    "%slope = arith.constant -0.1 : f32",
    "%distance = arith.subi %i, %j : index",
    "%whole = arith.index_cast %distance : index to i32",
    "%far = arith.sitofp %whole : i32 to f32",
    "%t = arith.mulf %far, %slope : f32",
    "%g = math.exp %t : f32",
    "%r0 = arith.mulf %in0, %g : f32",
    "%is = arith.cmpi sle, %j, %i : index",
    "%r = arith.select %is, %r0, %zero : f32",
]
MASKS = ("", "scores", "weights", "window", "loaded", "factor")
WINDOW = 20


def masked(graph: Graph, x: str, mask: str, kept: str) -> str:
    """`x` where j ≤ i, in a window, or where an argument says so; `kept` is what it becomes elsewhere."""
    ins, body = [(x, "hmk")], [*PLACE, "%is = arith.cmpi sle, %j, %i : index"]
    if mask == "window":
        body += [
            f"%size = arith.constant {WINDOW} : index",
            "%end = arith.addi %j, %size : index",
            "%near = arith.cmpi sgt, %end, %i : index",
            "%is = arith.andi %causal, %near : i1",
        ]
        body[2] = "%causal = arith.cmpi sle, %j, %i : index"
    if mask in ("loaded", "factor"):
        ins.append((graph.argument("mask", "mk", "i1"), "mk"))
        body = ["%is = arith.ori %in1, %in1 : i1"]
    if mask == "factor":
        body += ["%f = arith.uitofp %is : i1 to f32", "%r = arith.mulf %in0, %f : f32"]
    else:
        body.append(f"%r = arith.select %is, %in0, {kept} : f32")
    return graph.elementwise(f"masked_{mask}", "hmk", ins, body)


def case(function: str, mask: str, kind: str, sizes: dict[str, int], total: str = "", wide: bool = False):
    """A graph's text, its inputs, and what it gives. `total`: where they are divided by the sum of weights, and a half:
    "before" values are multiplied by them, or "after". `wide`: weights stay f32, whatever values are."""
    graph = Graph(kind, sizes)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    s = graph.scores("s", q, k)
    if mask == "scores":
        s = masked(graph, s, mask, "%lowest")
    body = DECAY if function == "decay" else FUNCTIONS[function][0]
    p = graph.elementwise("p", "hmk", [(s, "hmk")], body)
    if mask not in ("", "scores"):
        p = masked(graph, p, mask, "%zero")
    if wide:
        o = graph.matmul("o", (p, "hmk", "f32"), (v, "hkn", kind), "hmn", "k")
        return graph.function(o), (inputs := graph.inputs()), expected(function, mask, inputs, total)
    if not total:
        return graph.text(p, v), (inputs := graph.inputs()), expected(function, mask, inputs, total)
    sums = graph.reduced("sums", p, "hmk", "k", "addf")
    half = ["%half = arith.constant 0.5 : f32", "%d = arith.addf %in1, %half : f32", "%r = arith.divf %in0, %d : f32"]
    if total == "before":
        text = graph.text(graph.elementwise("share", "hmk", [(p, "hmk"), (sums, "hm")], half), v)
    else:
        o = graph.product(p, v)
        text = graph.function(graph.elementwise("shares", "hmn", [(o, "hmn"), (sums, "hm")], half))
    inputs = graph.inputs()
    return text, inputs, expected(function, mask, inputs, total)


def expected(function: str, mask: str, inputs: list[np.ndarray], total: str) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in inputs[:3])
    s = 0.25 * q @ k.swapaxes(1, 2)
    i, j = np.arange(s.shape[1])[:, None], np.arange(s.shape[2])
    if function == "decay":
        p = np.where(j <= i, s * np.exp(-0.1 * (i - j)), 0)
    else:
        p = FUNCTIONS[function][1](s)
    if mask in ("scores", "weights", "window"):
        p = np.where((j <= i) & ((j + WINDOW > i) | (mask != "window")), p, 0)
    elif mask:
        p = p * inputs[3]
    return (p / (p.sum(-1, keepdims=True) + 0.5) if total else p) @ v


def check(function: str, mask: str, kind: str, sizes: dict[str, int], total: str = "", **options) -> str:
    text, inputs, wanted = case(function, mask, kind, sizes, total)
    kernel = compile(text, threads=1, **options)
    assert "linalg_ext.softmax" not in kernel.ir("raised") and "scf.for" in kernel.ir("fused"), kernel.explain()
    assert relative_error(kernel(*inputs), wanted) < TOLERANCE[kind]
    return kernel.explain()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("function, mask", [*crossed(list(FUNCTIONS), MASKS[:2] + MASKS[3:]), ("decay", "")])
def test_functions_and_masks(function, mask):
    if mask == "scores" and function in ("gaussian", "signed"):  # of −∞ the one is 0 in other ways, the other −1
        mask = "weights"
    explained = check(function, mask, "f32", SIZES | {"m": 150, "k": 150})
    assert "attention without a softmax at" in explained
    if mask in ("scores", "weights", "window"):
        assert "skips dead tiles" in explained
    elif mask:
        assert "looks at each tile" in explained


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mask", ["", "scores", "loaded"])
@pytest.mark.parametrize("options", [{}, {"split_keys": 3}, {"tile_sizes": (1, 8, 0, 24)}])
def test_narrow_divided_and_split(mask, options):
    sizes = SIZES | {"n": 16}  # one more column would leave rows unaligned: eight are added
    check("sigmoid", mask, "bf16", sizes, total="" if "tile_sizes" in options else "before", **options)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_divided_afterwards(kind):
    check("squared relu", "weights", kind, SIZES, total="after")


@examples(12)
@given(
    function=st.sampled_from([*FUNCTIONS, "decay"]),
    mask=st.sampled_from(["", "weights", "window", "factor"]),
    kind=st.sampled_from(["f32", "bf16"]),
    sizes=st.fixed_dictionaries({d: st.integers(1, most) for d, most in (("m", 90), ("k", 200), ("d", 40), ("n", 40))}),
    heads=st.integers(2, 4),
    total=st.sampled_from(["", "before", "after"]),
    parts=st.integers(1, 4),
)
def test_shapes(function, mask, kind, sizes, heads, total, parts):
    if function in ("signed", "decay"):
        total = ""  # sums near −1/2
    text, inputs, wanted = case(function, mask, kind, sizes | {"h": heads}, total)
    kernel = compile(text, threads=1, split_keys=parts)
    assert relative_error(kernel(*inputs), wanted) < 2 * TOLERANCE[kind]


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("function, mask", [("sigmoid", "scores"), ("squared relu", "window"), ("decay", "")])
def test_on_gpus(function, mask, arch):
    """At the level of tiles, without a GPU."""
    sizes = SIZES | {"m": 150, "k": 150, "n": 16}
    text, inputs, wanted = case(function, mask, "f32" if function == "decay" else "bf16", sizes)
    check_on_gpu(text, wanted, inputs, "bf16", arch)


@pytest.mark.sampled(5, 5)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("size", [40, 64])
@pytest.mark.parametrize("name", ["sigmoid", "squared relu", "steps"])
def test_single_tiles_on_gpus(name, size, arch):
    """`steps`: a decay by sums up to queries and up to keys, of which a tile is read as a row and as a column."""
    sizes = SIZES | {"m": size, "k": size, "n": 16}
    text, inputs, wanted = steps(sizes) if name == "steps" else case(name, "weights", "f32", sizes)
    check_on_gpu(text, wanted, inputs, "f32", arch)
    assert compile(text, target="nvidia", arch=arch).ir("ptx")


def steps(sizes: dict[str, int]):
    graph = Graph("f32", sizes)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    c, s = graph.argument("g", "hm"), graph.scores("s", q, k)
    body = ["%d = arith.subf %in1, %in2 : f32", "%e = math.exp %d : f32", "%r = arith.mulf %in0, %e : f32"]
    text = graph.text(graph.elementwise("p", "hmk", [(s, "hmk"), (c, "hm"), (c, "hk")], body), v)
    inputs = graph.inputs()
    q, k, v, c = (x.astype(np.float64) for x in inputs)
    return text, inputs, (0.25 * q @ k.swapaxes(1, 2) * np.exp(c[..., None] - c[:, None])) @ v


def test_rows_that_are_not_aligned_on_gpus():
    """They are copied to rows that are."""
    text, inputs, wanted = case("sigmoid", "loaded", "bf16", SIZES | {"m": 150, "k": 130, "d": 9, "n": 11})
    kernel = compile(text, target="nvidia", arch="sm_90a")
    assert "tile.copy_piece" in kernel.ir("layouts")
    check_on_gpu(text, wanted, inputs, "bf16", "sm_90a")


def test_what_is_left():
    """Weights that are multiples of scores, perceptrons, and weights that are returned as a whole."""
    sizes = SIZES
    graph = Graph("f32", sizes)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    multiples = graph.text(graph.scores("s", q, k), v)
    graph = Graph("f32", sizes)
    x, w1, w2 = (graph.argument(name, dims) for name, dims in (("x", "hmd"), ("w1", "kd"), ("w2", "kn")))
    s = graph.matmul("s", (x, "hmd", "f32"), (w1, "kd", "f32"), "hmk", "d")
    p = graph.elementwise("p", "hmk", [(s, "hmk")], FUNCTIONS["squared relu"][0])
    perceptron = graph.function(graph.matmul("o", (p, "hmk", "f32"), (w2, "kn", "f32"), "hmn", "k"))
    for text in (multiples, perceptron):
        kernel = compile(text, threads=1)
        assert "scf.for" not in kernel.ir("fused")
        assert "nothing was fused" in kernel.explain()


@pytest.mark.sampled(2, 3)
@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("share", ["of their sum", "of a constant"])
def test_weights_beyond_the_range_of_f16(share, arch):
    """What they are divided by keeps them below 65504, also where it is taken out of the loop."""
    graph = Graph("bf16", SIZES)
    q, k, v = (graph.argument(name, dims) for name, dims in (("q", "hmd"), ("k", "hkd"), ("v", "hkn")))
    p = graph.elementwise("p", "hmk", [(graph.scores("s", q, k), "hmk")], FUNCTIONS["squared relu"][0])
    if share == "of their sum":
        ins, body = (
            [(p, "hmk"), (graph.reduced("sums", p, "hmk", "k", "addf"), "hm")],
            "%r = arith.divf %in0, %in1 : f32",
        )
    else:
        ins, body = [(p, "hmk")], "%c = arith.constant 4096.0 : f32\n%r = arith.divf %in0, %c : f32"
    text = graph.text(graph.elementwise("share", "hmk", ins, [body]), v).replace("bf16", "f16")
    q, k, v = (x.astype(np.float16).astype(np.float64) for x in graph.inputs())
    (found,) = run_module(text, [q * 256, k, v], arch=arch)
    p = np.maximum(0.25 * 256 * q @ k.swapaxes(1, 2), 0) ** 2
    wanted = p / (p.sum(-1, keepdims=True) if share == "of their sum" else 4096) @ v
    assert p.max() > 65504 and relative_error(found, wanted) < 2e-3
    assert "mma" in compile(text, target="nvidia", arch=arch).ir("ptx")
