"""Masks in memory, selected by and added, against numpy in float64; which tiles are computed, and how, is counted."""

import itertools

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.linalg_ext import softmax
from attn_opt.dialects.reference import evaluate
from harness import CONTEXT
from test_fusion import fuse


def live(name: str, m: int, n: int) -> np.ndarray:
    """Whether query i sees key j."""
    i, j = np.indices((m, n))
    rng = np.random.default_rng(7)
    blocks = np.repeat(np.repeat(rng.random((m // 20 + 1, n // 20 + 1)) < 0.4, 20, 0), 20, 1)[:m, :n]
    return {
        "all": i >= 0,
        "none": i < 0,
        "causal": j <= i,
        "window": (j <= i) & (j > i - 20),
        "blocks": blocks,
        "padding": (j < n - 30) & (i >= 0),
        "one key": j == 3,
        "one query": i == m - 1,
        "random": rng.random((m, n)) < 0.5,
    }[name]


MASKS = ["all", "none", "causal", "window", "blocks", "padding", "one key", "one query", "random"]
SHAPES = {
    "even": {"queries": 128, "keys": 192},
    "odd": {"queries": 75, "keys": 141},
    "dynamic": {"queries": 75, "keys": 141, "dynamic": True},
    "one query": {"queries": 1, "keys": 300, "heads_kv": 1},
}


def inputs_of(graph: Attention, mask: np.ndarray, value: float = 0.0) -> list[np.ndarray]:
    """`value` where a key is seen, of masks that are added."""
    inputs = graph.inputs("normal", 1)
    at = list(graph.arguments()).index("mask" if graph.mask else "bias")
    shape = inputs[at].shape
    mask = np.broadcast_to(mask if shape[2] > 1 else mask[:1], shape)
    inputs[at] = np.ascontiguousarray(mask if graph.mask else np.where(mask, value, -np.inf).astype(graph.dtype))
    return inputs


def check(graph: Attention, kernel, inputs: list[np.ndarray]) -> None:
    expected, _ = graph.reference(inputs)
    found = np.asarray(kernel(*inputs), np.float64)
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() < {"f32": 2e-6, "f64": 1e-13, "bf16": 2e-2}[graph.element]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("form", "shape"), list(itertools.product(["mask", "bias"], SHAPES)))
def test_of_queries_and_keys(form, shape):
    graph = Attention(heads=2, head_size=24, **SHAPES[shape], **{form: "qk"})
    kernel = compile(graph.text())
    for name in MASKS:
        mask = live(name, graph.queries, graph.keys)
        check(graph, kernel, inputs_of(graph, mask))
    check(graph, kernel, inputs_of(graph, mask, value=1.5))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("letters", ["k", "bk", "hqk", "bhqk"])
@pytest.mark.parametrize("form", ["mask", "bias"])
def test_broadcast(form, letters):
    """Beside a causal mask of indices, whose tiles are known before."""
    graph = Attention(
        batch=2, heads=2, queries=130, keys=150, head_size=16, window=(None, 0), bottom_right=True, **{form: letters}
    )
    kernel = compile(graph.text())
    for name in ("all", "none", "causal", "padding", "blocks", "one key"):
        check(graph, kernel, inputs_of(graph, live(name, graph.queries, graph.keys)))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("element", ["f64", "bf16"])
@pytest.mark.parametrize("form", ["mask", "bias"])
def test_elements(form, element):
    graph = Attention(heads=2, queries=100, keys=200, head_size=32, element=element, **{form: "qk"})
    kernel = compile(graph.text())
    for name in ("all", "causal", "blocks", "random"):
        check(graph, kernel, inputs_of(graph, live(name, graph.queries, graph.keys)))


def test_numbers_that_only_look_like_masks():
    """Biases of 0 in part of the tiles, and −∞ among other numbers; large and tiny ones."""
    graph = Attention(heads=1, queries=128, keys=256, head_size=16, bias="qk")
    kernel = compile(graph.text())
    bias = np.zeros((1, 1, 128, 256), np.float32)
    bias[..., 64:128] = np.random.default_rng(3).standard_normal((1, 1, 128, 64))
    bias[..., :50, 100:] = -np.inf
    bias[..., 127, 255] = 1e-30
    bias[..., 0, 0] = -0.0
    inputs = graph.inputs("normal", 1)
    inputs[3] = bias
    check(graph, kernel, inputs)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("form", ["mask", "bias"])
@pytest.mark.parametrize("heads", [1, 3])
def test_tiles(heads, form, name, monkeypatch):
    """Dead ones are skipped, wherever they are; with several heads tests are made before."""
    graph = Attention(heads=heads, queries=64, keys=80, head_size=8, element="f64", scale=1.0, **{form: "qk"})
    rows, columns = 16, 20
    mask = live(name, 64, 80)
    with CONTEXT:
        module = fuse(graph.text(), [1, 1, rows, 0, columns])
        before = ["fold-diag", "canonicalize", "cse", "parallel-loops", "canonicalize"]
        pass_manager.run([*before, "split-masked-tiles", "canonicalize", "cse"], module)
        assert str(module).count("scf.forall (") == (2 if heads > 1 else 1)
        assert module.operation.verify()
        seen: list[np.ndarray] = []
        step = softmax.softmax_step

        def watching(x, *arguments, **options):
            seen.append(np.asarray(x))
            return step(x, *arguments, **options)

        monkeypatch.setattr(softmax, "softmax_step", watching)
        inputs = inputs_of(graph, mask)
        (found,) = evaluate(module, inputs)
    expected, _ = graph.reference(inputs)
    assert np.abs(found - expected).max() < 1e-13
    tiles = mask.reshape(64 // rows, rows, 80 // columns, columns).swapaxes(1, 2)
    assert len(seen) == heads * sum(tile.any() for line in tiles for tile in line)


def test_compiled_once_more_is_the_same():
    """The IR, and so what the cache is keyed by, does not depend on the order of sets."""
    graph = Attention(heads=1, queries=128, keys=128, head_size=16, window=(None, 0), mask="qk", bias="k")
    with CONTEXT:
        texts = set()
        for _ in range(2):
            module = parse_module(graph.text(), "graph.mlir", CONTEXT)
            pass_manager.run(["raise-attention", "fuse-attention", "parallel-loops", "split-masked-tiles"], module)
            texts.add(str(module))
    assert len(texts) == 1
