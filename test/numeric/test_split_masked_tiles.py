"""Loops split by masks against loops over all tiles, both evaluated in float64; skipped tiles are counted."""

import itertools

import numpy as np
import pytest
from attention_graph import Attention
from attn_opt.compiler import pass_manager
from attn_opt.dialects.assembly import parse_module, print_module
from attn_opt.dialects.linalg_ext import softmax
from attn_opt.dialects.reference import evaluate
from harness import kernel, relative_error
from hypothesis import event, given
from hypothesis import strategies as st
from properties import examples
from test_fusion import CONTEXT, fuse

BEFORE = [[], ["defer-division"], ["fold-diag", "canonicalize", "cse", "parallel-loops", "canonicalize"]]
DEAD = "%dead = arith.cmpi sgt, %j, %i : index\n"


class Lines:
    """Scalar MLIR, a line per value."""

    def __init__(self):
        self.lines: list[str] = []

    def add(self, line: str) -> str:
        self.lines.append(f"%w{len(self.lines)} = {line}")
        return f"%w{len(self.lines) - 1}"

    def number(self, n: int) -> str:
        return self.add(f"arith.constant {n} : index")

    def compare(self, predicate: str, a: str, b: str) -> str:
        return self.add(f"arith.cmpi {predicate}, {a}, {b} : index")


def graph_with_mask(graph: Attention, lines: Lines, dead: str, form: str = "select") -> str:
    """`graph`, which is causal, with another mask: a select of −∞, or an added one of 0 or −∞."""
    text = graph.text()
    assert DEAD in text
    body = "\n".join([*lines.lines, f"%true = arith.constant true\n%dead = arith.andi {dead}, %true : i1\n"])
    text = text.replace(DEAD, body)
    e = graph.element
    if form == "add":
        old = f"%w = arith.select %dead, %minus_inf, %y : {e}"
        assert old in text
        text = text.replace(
            old, f"%bias = arith.select %dead, %minus_inf, %zero : {e}\n%w = arith.addf %y, %bias : {e}"
        )
    return text


def split(text: str, sizes, order=(), before=()):
    """The module, fused and split, and how many loops there are."""
    module = fuse(text, sizes, order)
    pass_manager.run([*before, "split-masked-tiles"], module)
    assert module.operation.verify()
    return module


def check(text: str, inputs, sizes, order=(), before=()):
    with CONTEXT:
        expected = evaluate(parse_module(text, "graph.mlir", CONTEXT), inputs)
        module = split(text, sizes, order, before)
        found = evaluate(module, inputs)
        printed = print_module(module)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=printed)
        pass_manager.run(["canonicalize", "cse"], module)  # what is left is as the upstream passes want it
        for a, b in zip(evaluate(module, inputs), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    return printed


TERMS = ["%i", "%j", "arith.subi %j, %i : index", "arith.subi %i, %j : index", "math.absi", "div", "chunks", "max"]
LEAF = st.tuples(
    st.sampled_from(["sle", "slt", "sge", "sgt", "sgt", "sle", "eq", "ne", "ult"]),
    st.sampled_from(TERMS),
    st.integers(-6, 9),
)
# Comparisons of positions, and what logic makes of them, as trees.
CONDITIONS = st.recursive(
    LEAF,
    lambda inner: (
        st.tuples(st.sampled_from(["andi", "ori", "xori"]), inner, inner)
        | st.tuples(st.just("select"), inner, inner, inner)
    ),
    max_leaves=5,
)


def emitted(lines: Lines, tree) -> str:
    if tree[0] in ("andi", "ori", "xori", "select"):
        return lines.add(f"arith.{tree[0]} {', '.join(emitted(lines, part) for part in tree[1:])} : i1")
    predicate, term, constant = tree
    if term in ("div", "chunks"):
        three = lines.number(3)
        chunk = lines.add(f"arith.floordivsi {lines.add('arith.subi %j, %i : index')}, {three} : index")
        if term == "chunks":
            chunks = [lines.add(f"arith.{op} {v}, {three} : index") for v, op in (("%i", "divui"), ("%j", "divsi"))]
            chunk = lines.add(f"arith.subi {', '.join(chunks)} : index")
        return lines.compare(predicate, chunk, lines.number(constant // 3))
    if term == "max":
        largest = lines.add(f"arith.maxsi %i, {lines.number(4)} : index")
        term = f"arith.subi {largest}, {lines.add(f'arith.minsi %j, {lines.number(3)} : index')} : index"
    if term == "math.absi":
        term = f"math.absi {lines.add('arith.subi %i, %j : index')} : index"
    return lines.compare(predicate, term if term in ("%i", "%j") else lines.add(term), lines.number(constant))


@st.composite
def masked_graphs(draw):
    lines = Lines()
    dead = emitted(lines, draw(CONDITIONS))
    graph = Attention(
        draw(st.integers(1, 12)),
        draw(st.integers(1, 14)),
        2,
        2,
        batch=draw(st.sampled_from([(), (2,)])),
        modify="causal",
        softmax=draw(st.sampled_from(["softmax", "unnorm_softmax"])),
        dynamic=draw(st.booleans()),
        returns=draw(st.sampled_from([(), ("max", "accum"), ("scores",)])),
    )
    text = graph_with_mask(graph, lines, dead, draw(st.sampled_from(["select", "add"])))
    tiles = [draw(st.integers(1, 5)), 0, draw(st.integers(1, 5))]
    order = draw(st.sampled_from([(0, 1, 2), (2, 1, 0)]))
    if graph.batch:
        tiles, order = [1, *tiles], (0, *(d + 1 for d in order))
    return graph, text, tiles, order


@given(masked_graphs(), st.sampled_from(BEFORE))
@examples(120)
def test_any_mask(case, before):
    graph, text, tiles, order = case
    printed = check(text, graph.inputs(), tiles, order, before)
    event(f"loops: {printed.count('scf.for ')}")


def count_tiles(module, inputs, monkeypatch) -> int:
    calls = 0

    def counting(*arguments, **options):
        nonlocal calls
        calls += 1
        return step(*arguments, **options)

    step = softmax.softmax_step
    monkeypatch.setattr(softmax, "softmax_step", counting)
    with CONTEXT:
        evaluate(module, inputs)
    monkeypatch.undo()
    return calls


MASKS = {
    "causal": lambda i, j, m, k: j <= i,
    "bottom right": lambda i, j, m, k: j <= i + (k - m),
    "window": lambda i, j, m, k: (j <= i) & (j > i - 7),
    "both sides": lambda i, j, m, k: abs(i - j) < 5,
    "chunks": lambda i, j, m, k: (j <= i) & (j // 6 == i // 6),
    "sinks": lambda i, j, m, k: (j <= i) & ((j > i - 6) | (j < 3)),
}


def mask_lines(name: str, graph: Attention) -> tuple[Lines, str]:
    """The mask as MLIR: dead where it does not hold."""
    lines = Lines()
    late = lines.compare("sgt", "%j", "%i")
    distance = lines.add("arith.subi %i, %j : index")
    if name == "causal":
        return lines, late
    if name == "bottom right":
        sizes = ("%nk", "%nm") if graph.dynamic else (lines.number(graph.k), lines.number(graph.m))
        offset = lines.add(f"arith.subi {sizes[0]}, {sizes[1]} : index")
        return lines, lines.compare("sgt", "%j", lines.add(f"arith.addi %i, {offset} : index"))
    if name == "window":
        return lines, lines.add(f"arith.ori {late}, {lines.compare('sge', distance, lines.number(7))} : i1")
    if name == "chunks":
        six = lines.number(6)
        chunks = [lines.add(f"arith.divsi {v}, {six} : index") for v in ("%i", "%j")]
        return lines, lines.add(f"arith.ori {late}, {lines.compare('ne', *chunks)} : i1")
    if name == "both sides":
        return lines, lines.compare("sge", lines.add(f"math.absi {distance} : index"), lines.number(5))
    early = lines.compare("sge", distance, lines.number(6))
    outside = lines.add(f"arith.andi {early}, {lines.compare('sge', '%j', lines.number(3))} : i1")
    return lines, lines.add(f"arith.ori {late}, {outside} : i1")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "shape", "dynamic", "keys_outside"),
    [
        *itertools.product(MASKS, [(24, 32)], [False, True], [False, True]),
        *itertools.product(["causal", "bottom right", "window"], [(13, 29), (29, 13)], [False, True], [False]),
    ],
)
def test_dead_tiles_are_skipped(name, shape, dynamic, keys_outside, monkeypatch):
    """Exactly those, in any order of the loops."""
    m, k = shape
    graph = Attention(m, k, 2, 2, modify="causal", dynamic=dynamic)
    text = graph_with_mask(graph, *mask_lines(name, graph))
    rows, columns = 5, 4
    check(text, graph.inputs(), [rows, 0, columns])
    visible = MASKS[name](np.arange(m)[:, None], np.arange(k)[None, :], m, k)
    tiles = [visible[i : i + rows, j : j + columns].any() for i in range(0, m, rows) for j in range(0, k, columns)]
    with CONTEXT:
        module = split(text, [rows, 0, columns], (2, 1, 0) if keys_outside else ())
    assert count_tiles(module, graph.inputs(), monkeypatch) == sum(tiles)


def test_masked_rows_stay_zero():
    graph = Attention(12, 5, 3, 4, modify="causal")
    text = graph_with_mask(graph, *mask_lines("bottom right", graph))
    check(text, graph.inputs(), [4, 0, 2])
    with CONTEXT:
        (output,) = evaluate(split(text, [4, 0, 2]), graph.inputs())
    assert not output[:7].any() and output[7:].all()


def test_what_is_stored_in_each_tile_keeps_dead_tiles():
    """The scores are returned, so that every tile must be computed."""
    graph = Attention(8, 8, 2, 2, modify="causal", returns=("scores",))
    printed = check(graph.text(), graph.inputs(), [2, 0, 2])
    assert printed.count("linalg_ext.softmax") == 2


@pytest.mark.parametrize("keep_mask_outside", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_lengths_that_are_loaded(dynamic, keep_mask_outside, monkeypatch):
    """A mask of its own op, of a length per batch entry, computed in the loops or before them."""
    graph = Attention(6, 16, 2, 2, batch=(3,), modify="causal", dynamic=dynamic)
    mask = "tensor<?x?xi1>" if dynamic else "tensor<3x16xi1>"
    sizes = "%b0, %nk" if dynamic else ""
    stop = "attrs = {__stop__} " if keep_mask_outside else ""
    made = (
        f"%mask_e = tensor.empty({sizes}) : {mask}\n"
        "%mask = linalg.generic {indexing_maps = [affine_map<(b, j) -> (b)>, affine_map<(b, j) -> (b, j)>], "
        f'iterator_types = ["parallel", "parallel"]}} ins(%lengths : tensor<3xi32>) outs(%mask_e : {mask}) {stop}{{\n'
        "  ^bb0(%length: i32, %old: i1):\n    %j = linalg.index 1 : index\n"
        "    %j32 = arith.index_cast %j : index to i32\n    %late = arith.cmpi sge, %j32, %length : i32\n"
        f"    linalg.yield %late : i1\n  }} -> {mask}\n%mod_e ="
    )
    text = graph.text().replace("%v: ", "%lengths: tensor<3xi32>, %v: ").replace("%mod_e =", made, 1)
    scores = graph_scores(graph)
    text = text.replace(f"ins(%s : {scores}) outs(%mod_e", f"ins(%s, %mask : {scores}, {mask}) outs(%mod_e")
    identity = "affine_map<(d0, d1, d2) -> (d0, d1, d2)>"
    text = text.replace(
        f"%mod = linalg.generic {{indexing_maps = [{identity}, ",
        f"%mod = linalg.generic {{indexing_maps = [{identity}, affine_map<(d0, d1, d2) -> (d0, d2)>, ",
    ).replace("^bb0(%x: f64, %old: f64)", "^bb0(%x: f64, %dead: i1, %old: f64)")
    text = text.replace(DEAD, "")
    q, k, v = graph.inputs()
    inputs = [q, k, np.array([0, 5, 16], np.int32), v]
    printed = check(text, inputs, [1, 3, 0, 4])
    assert "tensor.extract %" in printed
    with CONTEXT:
        module = split(text, [1, 3, 0, 4])
    assert count_tiles(module, inputs, monkeypatch) == 2 * (0 + 2 + 4)


def graph_scores(graph: Attention) -> str:
    shape = (*graph.batch, graph.m, graph.k)
    return f"tensor<{''.join(('?' if graph.dynamic else str(s)) + 'x' for s in shape)}{graph.element}>"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MASKS)
def test_compiled(name):
    """As machine code; odd sizes, several tiles."""
    graph = Attention(75, 141, 8, 12, batch=(2,), matmul="generic", layout="nt", modify="causal", element="f32")
    text = graph_with_mask(graph, *mask_lines(name, graph), form="add")
    inputs = [x.astype(np.float32) for x in graph.inputs()]
    q, k, v = (x.astype(np.float64) for x in inputs)
    i, j = np.indices((graph.m, graph.k))
    scores = np.where(MASKS[name](i, j, graph.m, graph.k), 0.5 * q @ k.transpose(0, 2, 1), -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = np.nan_to_num(p / p.sum(axis=-1, keepdims=True)) @ v
    with CONTEXT:
        fused = print_module(fuse(text, [1, 16, 0, 24], (0, 1, 3, 2)))
    assert relative_error(kernel(fused)(*inputs), expected) < 1e-5


def test_mask_read_at_two_positions():
    """At a position and at its transpose: dead and live tiles of one are not those of the other."""
    graph = Attention(12, 12, 2, 2, modify="causal")
    identity, transposed = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d1, d0)>"
    made = (
        "%me = tensor.empty() : tensor<12x12xf64>\n%mask = linalg.generic {indexing_maps = "
        f'[{identity}], iterator_types = ["parallel", "parallel"]}} outs(%me : tensor<12x12xf64>) {{\n'
        "  ^bb0(%old: f64):\n    %i = linalg.index 0 : index\n    %j = linalg.index 1 : index\n"
        f"    {DEAD}    %b = arith.select %dead, %minus_inf, %zero : f64\n    linalg.yield %b : f64\n"
        "  } -> tensor<12x12xf64>\n%mod_e ="
    )
    text = graph.text()
    start, end = text.index("    %y = arith.mulf"), text.index("    linalg.yield %w")
    add = "    %y = arith.addf %x, %b : f64\n    %z = math.exp %c : f64\n    %w = arith.addf %y, %z : f64\n"
    text = text[:start] + add + text[end:]
    kind = "tensor<12x12xf64>"
    text = text.replace("%mod_e =", made, 1).replace(
        f"ins(%s : {kind})", f"ins(%s, %mask, %mask : {kind}, {kind}, {kind})"
    )
    text = text.replace(
        f"%mod = linalg.generic {{indexing_maps = [{identity}, ",
        f"%mod = linalg.generic {{indexing_maps = [{identity}, {identity}, {transposed}, ",
    ).replace("^bb0(%x: f64, %old: f64)", "^bb0(%x: f64, %b: f64, %c: f64, %old: f64)")
    printed = check(text, graph.inputs(), [3, 0, 3])
    assert "tensor.extract_slice" in printed
