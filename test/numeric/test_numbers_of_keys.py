"""Masks of numbers that are loaded for each key (documents, positions, padding), against float64: kernels for the CPU,
and for GPUs without one. Which tiles are computed is counted."""

import functools
import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
from attn_opt.compiler import compile, pass_manager
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects.linalg_ext import softmax
from attn_opt.dialects.reference import evaluate
from gpu_modules import run_module
from harness import CONTEXT, crossed
from test_fusion import fuse
from test_gpu_roles import run as run_roles

ERRORS = {"f16": 1.6e-3, "bf16": 8e-3, "f32": 1e-5}

# Where kernels come from: the CPU's, or modules for GPUs as the evaluator runs them.
WAYS = {
    "cpu": None,
    "sm_90a": {},
    "sm_90a, parts": {"parts": 3},
    "sm_80": {"arch": "sm_80"},
    "sm_80, parts": {"arch": "sm_80", "parts": 3},
}


def relative_error(graph, found, expected):
    return np.linalg.norm(graph.canonical_output(np.asarray(found, float)) - expected) / max(
        np.linalg.norm(expected), 1e-9
    )


def check(graph, inputs, way, text="", expected=None):
    """`text` and `expected` are those of the graph, if not given."""
    expected = graph.reference(inputs)[0] if expected is None else expected
    text, options = text or graph.text(), WAYS[way]
    with np.errstate(all="ignore"):
        found = compile(text)(*inputs) if options is None else run_module(text, inputs, **options)
    found = found[0] if options is not None or graph.lse else found
    assert relative_error(graph, found, expected) < ERRORS[graph.element]
    dead = ~expected.any(axis=-1)
    assert not graph.canonical_output(np.asarray(found))[dead].any(), "rows without a key are 0"


def with_numbers(graph, inputs, name, numbers):
    """The inputs with other ones for the argument `name`."""
    at = list(graph.arguments()).index(name)
    shape, dtype = inputs[at].shape, inputs[at].dtype
    return [*inputs[:at], np.broadcast_to(numbers, shape).astype(dtype).copy(), *inputs[at + 1 :]]


SIZES = {"batch": 2, "heads": 2, "queries": 200, "keys": 200, "head_size": 16, "element": "f16"}
DOCUMENTS = (40, 0, 50, 64, 7, 39)  # of 200 tokens
NUMBERS = {
    "sorted": lambda n, rng: n,
    "repeated": lambda n, rng: n % 2,
    "permuted": lambda n, rng: rng.permuted(n, axis=1),
    "negative": lambda n, rng: -n * 10**8,
    "falling": lambda n, rng: 70 - n,
    "falling, from the largest on": lambda n, rng: np.iinfo(np.int32).max - n,
    "the least and the largest": lambda n, rng: np.where(n % 2, *np.int32([-(2**31), 2**31 - 1])),
    "of batch entries that differ": lambda n, rng: np.where(np.arange(len(n))[:, None], n, 7),
}
DOCUMENT_CASES = {
    "plain": {},
    "causal": {"window": (None, 0)},
    "window": {"window": (-50, 0)},
    "window on both sides": {"window": (-40, 30)},
    "later keys": {"window": (0, None)},
    "dynamic": {"dynamic": True},
    "dynamic, causal": {"dynamic": True, "window": (None, 0)},
    "groups of heads": {"heads": 4, "heads_kv": 1},
    "one head": {"heads": 1, "batch": 1, "window": (None, 0)},
    "bf16, with a bias": {"element": "bf16", "bias": "qk"},
    "a mask, too": {"mask": "bk", "window": (None, 0)},
    "log-sum-exp": {"lse": True},
    "alibi, softcap": {"alibi": True, "softcap": 20.0, "window": (None, 0)},
    "b s h d": {"input_layout": "bshd", "output_layout": "bshd"},
    "lengths": {"lengths": (0, 150)},
}


@pytest.mark.sampled(12, 2)
@pytest.mark.parametrize(("case", "way"), crossed(list(DOCUMENT_CASES), list(WAYS)))
def test_documents(case, way):
    graph = Attention(**SIZES | {"documents": DOCUMENTS} | DOCUMENT_CASES[case])
    check(graph, graph.inputs("normal", 0), way)


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize(("how", "way", "window"), crossed(list(NUMBERS), list(WAYS), [(None, None), (None, 0)]))
def test_numbers_of_documents(how, way, window):
    graph = Attention(**SIZES, documents=DOCUMENTS, window=window)
    inputs = graph.inputs("normal", 0)
    numbers = NUMBERS[how](graph.named(inputs)["documents"], np.random.default_rng(1))
    check(graph, with_numbers(graph, inputs, "documents", numbers), way)


# Which of n keys are there, from a to b ≥ a.
PADDINGS = {
    "left": lambda j, a, b, rng: j >= a,
    "right": lambda j, a, b, rng: j < b,
    "middle": lambda j, a, b, rng: (j >= a) & (j < b),
    "holes": lambda j, a, b, rng: (j < a) | (j >= b),
    "all": lambda j, a, b, rng: j >= 0 * a,
    "none": lambda j, a, b, rng: j < 0 * a,
    "random": lambda j, a, b, rng: rng.random((len(a), j.size)) < 0.5,
}


def padding(how, batch, keys):
    rng = np.random.default_rng(3)
    a, b = np.sort(rng.integers(0, keys + 1, (2, batch, 1)), axis=0)
    return PADDINGS[how](np.arange(keys), a, b, rng)[:, None, None, :]


PADDING_CASES = {
    "plain": {},
    "causal": {"window": (None, 0)},
    "causal to the last key": {"window": (None, 0), "bottom_right": True, "queries": 70},
    "window": {"window": (-50, 20)},
    "one query": {"queries": 1, "heads": 4, "heads_kv": 1},
    "few queries of heads that share keys": {"queries": 3, "heads": 8, "heads_kv": 2},
    "dynamic": {"dynamic": True, "queries": 130},
    "dynamic, one query": {"dynamic": True, "queries": 1, "heads_kv": 1, "lse": True},
    "bf16": {"element": "bf16", "window": (None, 0)},
    "lengths": {"lengths": (230, 77)},
}


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize(("case", "way", "how"), crossed(list(PADDING_CASES), list(WAYS), ["middle", "holes"]))
def test_padding(case, way, how):
    graph = Attention(**SIZES | {"keys": 230, "mask": "bk"} | PADDING_CASES[case])
    check(graph, with_numbers(graph, graph.inputs("normal", 0), "mask", padding(how, 2, graph.keys)), way)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("how", "way"), crossed(list(PADDINGS), list(WAYS)))
def test_where_padding_is(how, way):
    graph = Attention(**SIZES | {"keys": 230, "mask": "bk"})
    check(graph, with_numbers(graph, graph.inputs("normal", 0), "mask", padding(how, 2, graph.keys)), way)


GROUPS = ((50, 40), (0, 5), (70, 100), (1, 1), (60, 30))


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize(
    ("window", "bottom_right", "way"), crossed([(None, None), (None, 0), (-30, 0)], [False, True], list(WAYS))
)
def test_groups(window, bottom_right, way):
    fields = {"batch": 1, "groups": GROUPS, "queries": 181, "keys": 176}
    graph = Attention(**SIZES | fields | {"window": window, "bottom_right": bottom_right})
    check(graph, graph.inputs("normal", 0), way)


FOREIGN = "%is_foreign = arith.cmpi ne, %in1, %in2 : i32"
TYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64}
# A key is dead where this is of the numbers of queries and of keys; in MLIR, and in numpy.
PREDICATES = {
    "ne": np.not_equal,
    "eq": np.equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "ult": lambda a, b: np.less(*(n.view(n.dtype.str.replace("i", "u")) for n in (a, b))),
}


def compared(predicate, kind, numbers, **fields):
    """What `check` takes: attention whose keys are dead by a comparison of numbers."""
    graph = Attention(**SIZES | {"batch": 1, "documents": (200,)} | fields)
    text = graph.text()
    assert FOREIGN in text
    text = text.replace(FOREIGN, FOREIGN.replace("ne", predicate)).replace("i32", kind)
    *inputs, _ = graph.inputs("normal", 0)
    live = ~PREDICATES[predicate](numbers[:, :, None], numbers[:, None, :])[:, None]
    expected, _ = replace(graph, documents=(), mask="bqk").reference([*inputs, live])
    return graph, [*inputs, numbers], text, expected


TYPED = ["i1 ne", "i8 ult", "i8 sgt", "i16 sle", "i32 ult", "i64 ne", "i64 sgt", "i64 ult", "index ne", "index sgt"]


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize(("typed", "way"), crossed(TYPED, list(WAYS)))
def test_types(typed, way):
    kind, predicate = typed.split()
    numbers = np.repeat(np.arange(-2, 3), 40)[None]
    numbers = numbers > 0 if kind == "i1" else numbers.astype(TYPES[kind])
    graph, inputs, text, expected = compared(predicate, kind, numbers)
    check(graph, inputs, way, text, expected)


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize(("predicate", "way"), crossed(list(PREDICATES), list(WAYS)))
def test_comparisons(predicate, way):
    """Of numbers that fall, then rise."""
    numbers = np.abs(np.arange(200) // 10 - 8)[None].astype(np.int32)
    graph, inputs, text, expected = compared(predicate, "i32", numbers, dynamic=predicate in ("sgt", "eq"))
    check(graph, inputs, way, text, expected)


@pytest.mark.sampled(5, 2)
@pytest.mark.parametrize("way", WAYS)
def test_numbers_that_are_far_apart(way):
    """No difference of such fits into 64 bits. In a tile there are several."""
    most, at = np.iinfo(np.int64), np.arange(200)
    numbers = np.select([at < 40, at < 90, at < 120, at < 140], [0, most.max, most.min, most.max - 1], most.max)[None]
    for predicate in ("ne", "sgt"):
        graph, inputs, text, expected = compared(predicate, "i64", numbers)
        check(graph, inputs, way, text, expected)


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("way", WAYS)
def test_lengths_that_are_far_from_all_keys(way):
    most = np.iinfo(np.int64)
    graph = Attention(**SIZES | {"batch": 3, "heads": 1}, lengths=(200, 0, 77), window=(None, 0))
    *inputs, _ = graph.inputs("normal", 0)
    expected, _ = graph.reference([*inputs, None])
    check(graph, [*inputs, np.array([most.max, most.min, 77])], way, graph.text().replace("i32", "i64"), expected)


# Positions: keys are live up to one that is loaded for each query, or up to a number of their own.
POSITION = {
    "of queries": "%at = arith.index_cast %in1 : i32 to index\n%is_foreign = arith.cmpi sgt, %j, %at : index",
    "of keys": "%at = arith.index_cast %in2 : i32 to index\n%is_foreign = arith.cmpi sgt, %at, %i : index",
}


@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize(("of", "way"), crossed(list(POSITION), list(WAYS)))
def test_positions(of, way):
    numbers = (np.arange(200) * 3 // 2 % 190 - 20)[None].astype(np.int32)
    graph = Attention(**SIZES | {"batch": 1, "documents": (200,), "window": (-120, None)})
    text = graph.text()
    assert FOREIGN in text
    *inputs, _ = graph.inputs("normal", 0)
    at, j = np.arange(200)[:, None], np.arange(200)
    live = j <= numbers[0][:, None] if of == "of queries" else numbers[0] <= at
    expected, _ = replace(graph, documents=(), mask="bqk").reference([*inputs, live[None, None]])
    check(graph, [*inputs, numbers], way, text.replace(FOREIGN, POSITION[of]), expected)


# Kernels whose warps have roles.
ROLE_CASES = {
    "documents": {"documents": DOCUMENTS},
    "documents, causal": {"documents": DOCUMENTS, "window": (None, 0)},
    "documents, window": {"documents": DOCUMENTS, "window": (-50, 0)},
    "documents, dynamic": {"documents": DOCUMENTS, "dynamic": True, "window": (None, 0)},
    "documents, alibi": {"documents": DOCUMENTS, "alibi": True, "window": (None, 0)},
    "padding": {"mask": "bk", "keys": 320},
    "padding, causal": {"mask": "bk", "window": (None, 0)},
    "padding, window": {"mask": "bk", "window": (-70, 33)},
    "padding, softcap": {"mask": "bk", "softcap": 20.0},
    "lengths": {"lengths": (0, 150)},
    "lengths, causal": {"lengths": (77, 200), "window": (None, 0), "bottom_right": True},
    "lengths, window": {"lengths": (130, 200), "window": (-60, 0)},
    "groups": {"groups": GROUPS, "batch": 1, "queries": 181, "keys": 176},
    "groups, causal": {"groups": GROUPS, "batch": 1, "queries": 181, "keys": 176, "window": (None, 0)},
}
# The tiles, the order of documents, and where padding is.
ROLE_TILES = {
    (128, 32): ("sorted", "middle"),
    (192, 64): ("repeated", "holes"),
    (128, 64): ("permuted", "right"),
}


@pytest.mark.sampled(30)
@pytest.mark.parametrize(
    ("case", "tiles", "keep_maximum", "multiprocessors"),
    crossed(list(ROLE_CASES), list(ROLE_TILES), [True, False], [1, 132]),
)
def test_roles(case, tiles, keep_maximum, multiprocessors):
    graph = Attention(**SIZES | ROLE_CASES[case])
    inputs, rng = graph.inputs("normal", 0), np.random.default_rng(1)
    how, at = ROLE_TILES[tiles]
    if graph.documents:
        inputs = with_numbers(graph, inputs, "documents", NUMBERS[how](graph.named(inputs)["documents"], rng))
    if graph.mask:
        inputs = with_numbers(graph, inputs, "mask", padding(at, 2, graph.keys))
    found, blocks = run_roles(graph, inputs, tiles, keep_maximum=keep_maximum, multiprocessors=multiprocessors)
    expected, _ = graph.reference(inputs)
    assert relative_error(graph, found, expected) < ERRORS["f16"]
    assert len(blocks) == (1 if multiprocessors == 1 else graph.batch * graph.heads * -(-graph.queries // tiles[0]))


def test_warpgroups_look_at_the_keys_of_their_rows_alone():
    """Of a tile of several documents; all of its warpgroups wait for the same tiles of keys."""
    documents = (100, 130, 64, 26, 192)
    graph = Attention(**SIZES | {"documents": documents, "queries": 512, "keys": 512})
    inputs = graph.inputs("normal", 0)
    rows, keys = 128, 64
    _, blocks = run_roles(graph, inputs, (rows, keys), keep_maximum=False)  # which would do some again
    tiles = live_tiles(graph.named(inputs)["documents"], rows, keys, np.equal)
    count = graph.heads * (2 * tiles.sum() + tiles.shape[0] * tiles.shape[1])  # keys and values; queries
    for warpgroup in range(rows // 64):
        assert sum(block.views[warpgroup] for block in blocks) == count


# Which tiles are computed.

ROWS, COLUMNS = 16, 20


def live_tiles(numbers, rows, columns, is_live):
    """Of each batch entry and tile of rows, which tiles of keys have a live score."""
    live = is_live(numbers[:, :, None], numbers[:, None, :])
    return np.stack(
        [
            [[part[i : i + rows, j : j + columns].any() for j in range(0, part.shape[1], columns)] for i in starts]
            for part in live
            for starts in [range(0, part.shape[0], rows)]
        ]
    )


@functools.lru_cache(maxsize=32)  # most tests of a graph differ by its numbers
def tiled_module(text, options):
    with CONTEXT:
        module = fuse(text, [1, 1, ROWS, 0, COLUMNS])
        before = ["fold-diag", "canonicalize", "cse", "parallel-loops", "canonicalize"]
        pass_manager.run([*before, f"split-masked-tiles{options}", "canonicalize", "cse"], module)
        assert module.operation.verify()
        return module


def tiles_computed(graph, inputs, monkeypatch, options="", text="", expected=None):
    """How many, of all heads."""
    seen = []
    step = softmax.softmax_step

    def watching(x, *arguments, **how):
        seen.append(np.asarray(x))
        return step(x, *arguments, **how)

    module = tiled_module(text or graph.text(), options)
    monkeypatch.setattr(softmax, "softmax_step", watching)
    found, *_ = evaluate(module, inputs)
    monkeypatch.undo()
    assert relative_error(graph, found, graph.reference(inputs)[0] if expected is None else expected) < 1e-13
    return len(seen)


SMALL = {"batch": 2, "heads": 2, "queries": 150, "keys": 150, "head_size": 8, "element": "f64", "scale": 1.0}
COUNTED = {
    "documents": ((30, 0, 45, 64, 11), "sorted"),
    "tiles": ((16, 16, 48, 60, 10), "sorted"),
    "one of each": ((1,) * 150, "sorted"),
    "one for all": ((150,), "sorted"),
    "falling": ((30, 0, 45, 64, 11), "falling"),
    "of batch entries that differ": ((30, 0, 45, 64, 11), "of batch entries that differ"),
}


@pytest.mark.sampled(7, 5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_tiles_of_other_documents_are_left_out(name, dynamic, monkeypatch):
    documents, how = COUNTED[name]
    graph = Attention(**SMALL, documents=documents, dynamic=dynamic)
    inputs = graph.inputs("normal", 0)
    numbers = NUMBERS[how](graph.named(inputs)["documents"], np.random.default_rng(1))
    inputs = with_numbers(graph, inputs, "documents", numbers)
    expected = graph.heads * live_tiles(inputs[-1], 16, 20, np.equal).sum()
    assert tiles_computed(graph, inputs, monkeypatch) == expected
    assert tiles_computed(graph, inputs, monkeypatch, options="{tests=false}") == expected
    assert tiles_computed(graph, inputs, monkeypatch, options="{from-data=false}") == 2 * graph.heads * 10 * 8


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["sorted", "permuted", "repeated"])
def test_tiles_of_causal_documents(how, monkeypatch):
    """Those of later keys are left out, too; what lies between two tiles of a document, if each may be looked at."""
    graph = Attention(**SMALL, documents=(30, 0, 45, 64, 11), window=(None, 0))
    inputs = graph.inputs("normal", 0)
    numbers = NUMBERS[how](graph.named(inputs)["documents"], np.random.default_rng(1))
    inputs = with_numbers(graph, inputs, "documents", numbers)
    causal = live_tiles(np.arange(150)[None], 16, 20, np.greater_equal)
    same = live_tiles(inputs[-1], 16, 20, np.equal)
    before, behind = (np.logical_or.accumulate(same[..., ::way], axis=-1)[..., ::way] for way in (1, -1))
    assert tiles_computed(graph, inputs, monkeypatch) == graph.heads * (same & causal).sum()
    found = tiles_computed(graph, inputs, monkeypatch, options="{tests=false}")
    assert found == graph.heads * (before & behind & causal).sum()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("how", PADDINGS)
def test_tiles_of_padding_are_left_out(how, monkeypatch):
    """Without a test of each, those at the ends."""
    graph = Attention(**SMALL, mask="bk")
    mask = padding(how, 2, 150)
    inputs = with_numbers(graph, graph.inputs("normal", 0), "mask", mask)
    starts = range(0, 150, 20)
    live = [[j for j, start in enumerate(starts) if entry[0, 0, start : start + 20].any()] for entry in mask]
    found = tiles_computed(graph, inputs, monkeypatch, options="{tests=false}")
    assert found == graph.heads * 10 * sum(at[-1] - at[0] + 1 if at else 0 for at in live)
    found = tiles_computed(graph, inputs, monkeypatch)
    assert found == graph.heads * 10 * sum(len(at) for at in live)


@pytest.mark.parametrize("of", POSITION)
def test_tiles_behind_positions_are_left_out(of, monkeypatch):
    graph = Attention(**SMALL | {"batch": 1}, documents=(150,), window=(None, 0))
    numbers = (np.arange(150) - 40 if of == "of queries" else np.arange(150) + 40)[None].astype(np.int32)
    text = graph.text()
    assert FOREIGN in text
    text = text.replace(FOREIGN, POSITION[of])
    *inputs, _ = graph.inputs("normal", 0)
    tiles = live_tiles(np.arange(150)[None], 16, 20, lambda i, j: j <= i - 40)
    expected, _ = replace(graph, documents=(), window=(None, -40)).reference(inputs)
    found = tiles_computed(graph, [*inputs, numbers], monkeypatch, text=text, expected=expected)
    assert found == graph.heads * tiles.sum()


# Whatever there is, together.


def drawn(seed):
    """A graph, its inputs, and ways to run it."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    pick = rng.choice
    heads, kind = pick((1, 2, 4, 4)), pick(("mask", "lengths", "documents", "groups", "documents and a mask"))
    fields = {
        "batch": pick((1, 2, 3)),
        "heads": heads,
        "heads_kv": pick((0, 1, 2)) if heads == 4 else 0,
        "head_size": pick((8, 16, 32, 33)),
        "element": pick(("f16", "bf16")),
        "dynamic": pick((False, False, True)),
        "lse": pick((False, True, False)),
        "window": pick(((None, None), (None, 0), (-50, 0), (-70, 30), (0, None))),
    }
    queries = pick((1, 1, 2, 7, 64, 100, 129, 200, 320))
    keys = pick((queries, 65, 128, 200, 321, 640))
    if "documents" in kind:
        fields["documents"] = (*(pick((0, 1, 7, 33, 64, 100)) for _ in range(pick((1, 2, 4)))), pick((1, 5, 64, 90)))
        queries = keys = sum(fields["documents"])
    if kind == "groups":
        fields["groups"] = tuple((rng.randint(1, 150), rng.randint(1, 200)) for _ in range(pick((1, 2, 3, 5))))
        fields["batch"], (queries, keys) = 1, map(sum, zip(*fields["groups"], strict=True))
    if kind == "lengths":
        fields["lengths"] = tuple(rng.randint(0, keys) for _ in range(fields["batch"]))
    if "mask" in kind:
        fields["mask"] = pick(("bk", "k", "bhk", "hk", "q", "bq", "hq", "qk", "bqk", "qk", "hqk"))
    bottom_right = not fields["dynamic"] and pick((False, True))
    graph = Attention(**fields, queries=queries, keys=keys, bottom_right=bottom_right)
    inputs = graph.inputs("normal", seed)
    if graph.mask:
        shape = graph.named(inputs)["mask"].shape
        a, b = np.sort(numbers.integers(0, shape[3] + 1, (2, *shape[:3], 1)), axis=0)
        mask = PADDINGS[pick([name for name in PADDINGS if name != "random"])](np.arange(shape[3]), a, b, numbers)
        i, j = np.indices(shape[2:])
        if shape[2] > 1 and pick((False, True)):
            mask = mask & pick((i >= j, (i >= j) & (i - j < 70), i // 64 == j // 64, abs(i - j) < 40))
        inputs = with_numbers(graph, inputs, "mask", pick((mask, mask, numbers.random(shape) < 0.5)))
    if graph.documents:
        how = NUMBERS[pick(list(NUMBERS))]
        inputs = with_numbers(graph, inputs, "documents", how(graph.named(inputs)["documents"], numbers))
    return graph, inputs, ["cpu", *(pick((arch, f"{arch}, parts")) for arch in ("sm_90a", "sm_80"))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 16))])
def test_together(seed):
    graph, inputs, ways = drawn(seed)
    for way in ways:
        check(graph, inputs, way)


# Tiles that are listed.

LISTED = Attention(**SMALL | {"queries": 320, "keys": 320}, documents=(60, 0, 101, 159))
BLOCKS = {  # of documents whose tokens are not side by side
    "in turns": lambda n, rng: np.arange(n.shape[1]) // 20 % 4 + 0 * n,
    "of all tiles": lambda n, rng: rng.integers(0, 5, (len(n), 16)).repeat(20, axis=1),
    "far": lambda n, rng: rng.choice([-(2**31), -5, 2**31 - 1], (len(n), 32)).repeat(10, axis=1),
    **NUMBERS,
}


@pytest.mark.sampled(30, 10)
@pytest.mark.parametrize("options", ["", "{tests=false lists=true}"])
@pytest.mark.parametrize("window", [(None, None), (None, 0), (-90, 0), (-30, 20)], ids=str)
@pytest.mark.parametrize("how", BLOCKS)
def test_tiles_between_live_ones_are_left_out(how, window, options, monkeypatch):
    """Those whose numbers lie between others, or are far from 0, are not known to be dead."""
    graph = replace(LISTED, window=window)
    inputs = graph.inputs("normal", 0)
    numbers = BLOCKS[how](graph.named(inputs)["documents"], np.random.default_rng(1))
    inputs = with_numbers(graph, inputs, "documents", numbers)
    numbers, is_far = inputs[-1].astype(int), abs(inputs[-1].astype(int)) > 2**28
    least, greatest = (
        [extreme(np.where(is_far, far, numbers).reshape(2, -1, step), axis=-1) for step in (16, 20)]
        for extreme, far in ((np.min, -(2**40)), (np.max, 2**40))
    )
    overlap = (least[0][:, :, None] <= greatest[1][:, None]) & (least[1][:, None] <= greatest[0][:, :, None])
    (low, high), (i, j) = window, np.indices((320, 320))
    near = (low is None or j - i >= low) & (high is None or j - i <= high)
    near = np.broadcast_to(near, i.shape).reshape(20, 16, 16, 20).any(axis=(1, 3))
    assert tiles_computed(graph, inputs, monkeypatch, options) == graph.heads * (overlap & near).sum()


def drawn_holes(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    pick = rng.choice
    kind, tokens = pick(("mask", "documents", "documents and a mask")), pick((1024, 1024, 1280, 2048))
    fields = {
        "batch": pick((1, 2)),
        "heads": 2,
        "heads_kv": pick((0, 1)),
        "head_size": pick((8, 16)),
        "element": pick(("f16", "bf16")),
        "lse": pick((False, True, False)),
        "window": pick(((None, None), (None, 0), (-150, 0), (-70, 400), (0, None))),
        "bias": pick(("", "", "k", "qk")),
        "softcap": pick((0.0, 0.0, 20.0)),
    }
    queries = pick((64, 100, 130))
    if "documents" in kind:
        fields["documents"], queries = (tokens,), tokens
    if "mask" in kind:
        fields["mask"] = pick(("bk", "qk", "bqk", "qk"))
    graph = Attention(**fields, queries=queries, keys=tokens, bottom_right=pick((False, True)))
    inputs = graph.inputs("normal", seed)
    if graph.mask:
        shape = graph.named(inputs)["mask"].shape
        tiles = [-(-n // 64) for n in shape[2:]]
        mask = numbers.random((*shape[:2], *tiles)) < pick((0.1, 0.3, 0.9))
        mask = mask.repeat(64, axis=2).repeat(64, axis=3)[:, :, : shape[2], : shape[3]]
        inputs = with_numbers(graph, inputs, "mask", mask ^ (numbers.random(shape) < pick((0, 0, 1e-4))))
    if graph.documents:
        count, step = pick((1, 2, 5, 40)), pick((16, 64, 128, 100))
        blocks = numbers.integers(0, count, (graph.batch, -(-tokens // step))).repeat(step, axis=1)[:, :tokens]
        inputs = with_numbers(graph, inputs, "documents", blocks)
    return graph, inputs, pick(("cpu", "sm_90a", "sm_80"))


@pytest.mark.sampled(3, 2)
@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 24))])
def test_listed_tiles(seed):
    graph, inputs, way = drawn_holes(seed)
    check(graph, inputs, way)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_found_before_the_loops_is_not_said_to_be_slow(target, dynamic):
    graph = Attention(**SIZES, documents=DOCUMENTS, dynamic=dynamic, mask="bk")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile(graph.text(), target=target, **({"arch": "sm_90a"} if target == "nvidia" else {}))
