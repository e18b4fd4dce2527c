"""Masks in memory that several heads share, which are looked at before the loops, against float64: kernels for GPUs,
without one, and for the CPU. Which tiles are computed is counted."""

import numpy as np
import pytest
from attn_opt.compiler import compile, pipelines
from attn_opt.compiler.graphs import Attention
from attn_opt.transforms.online import mask_tables
from derivative_graphs import Case
from gpu_modules import Launches, run_module
from harness import crossed, relative_error
from test_numbers_of_keys import ERRORS, SIZES, WAYS, tiles_computed, with_numbers
from test_numbers_of_keys import relative_error as error_of

MASKS = {
    "causal": lambda i, j: j <= i + 800,
    "window": lambda i, j: abs(j - 7 * i) < 90,
    "documents": lambda i, j: i // 40 == j // 300,
    "blocks": lambda i, j: (i // 64 + j // 128) % 3 == 0,
    "all": lambda i, j: i >= 0,
    "none": lambda i, j: i < 0,
    "one": lambda i, j: (i == 129) & (j == 1023),
}
GPUS = ["sm_90a", "sm_80"]
SHARED = SIZES | {"queries": 130, "keys": 1024, "head_size": 8}
LOOKED_AT = "lists the tiles that are not dead"
LOW = {"-inf": -np.inf, "the least": np.finfo(np.float16).min, "-40000": -4e4}


@pytest.fixture
def small_ones():
    """What is added is looked at, however little there is to compute."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mask_tables, "FEWEST_READERS", 2)
        patch.setattr(pipelines, "ADDED_SCORES", {"cpu": 1, "nvidia": 1})
        yield


def check(graph, inputs, way, launches, expected=None, text="", sizes="1,1,64,0,64"):
    """`launches`: how many there are on a GPU."""
    text = text or graph.text()
    with np.errstate(all="ignore"):
        if way == "cpu":
            found = compile(text)(*inputs)
        else:
            found = run_module(text, inputs, **{"parts": 1, "tile_sizes": sizes, **WAYS[way]})[0]
            assert len(Launches.kernels) == launches, Launches.kernels
    assert error_of(graph, found, graph.reference(inputs)[0] if expected is None else expected) < ERRORS[graph.element]


def added(graph, live, number, rng=None):
    """Inputs whose bias is 0, or random, where a score is live, else the number."""
    inputs = graph.inputs("normal", 0)
    other = 0.0 if rng is None else rng.normal(size=live.shape)
    return with_numbers(graph, inputs, "bias", np.where(live, other, number))


def positions(graph):
    return np.indices((graph.queries, graph.keys))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("how", "letters", "way"), crossed(list(MASKS), ["qk", "bqk"], GPUS))
def test_selections(how, letters, way):
    """Rows of tiles; tiles, which are to be computed; then attention."""
    graph = Attention(**SHARED | {"mask": letters})
    inputs = with_numbers(graph, graph.inputs("normal", 0), "mask", MASKS[how](*positions(graph)))
    check(graph, inputs, way, launches=3)


@pytest.mark.parametrize(
    "fields", [{"mask": "bhqk"}, {"keys": 1023}, {"keys": 896}, {"mask": "", "bias": "bqk"}], ids=str
)
def test_what_is_not_looked_at(fields):
    """Of as many elements as scores, of a cut tile, of few tiles; numbers that are added, of few scores."""
    graph = Attention(**SHARED | {"mask": "bqk", "head_size": 16} | fields)  # no other test's, whose kernels are kept
    check(graph, graph.inputs("normal", 0), "sm_90a", launches=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("how", "number", "way"), crossed(list(MASKS), list(LOW), [*GPUS, "cpu"]))
def test_numbers_that_are_added(how, number, way, small_ones):
    graph = Attention(**SHARED | {"bias": "bqk"})
    inputs = added(graph, MASKS[how](*positions(graph)), LOW[number], np.random.default_rng(1))
    check(graph, inputs, way, launches=3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", [*GPUS, "cpu"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_biases(way, scale, small_ones):
    """No mask at all: numbers as of a bias."""
    graph = Attention(**SHARED | {"bias": "qk"})
    inputs = graph.inputs("normal", 0)
    inputs = with_numbers(graph, inputs, "bias", scale * np.random.default_rng(1).normal(size=(130, 1024)))
    check(graph, inputs, way, launches=3)


@pytest.mark.parametrize("way", ["sm_90a", "cpu"])
@pytest.mark.parametrize("number", LOW)
def test_rows_that_are_low_as_a_whole(number, way, small_ones):
    """They have the mean of all values, but of −∞, which makes them 0: all tiles of such a row are computed."""
    graph = Attention(**SHARED | {"bias": "qk"})
    i, j = positions(graph)
    inputs = added(graph, (i >= 70) & (j < 300), LOW[number])
    check(graph, inputs, way, launches=3)


@pytest.mark.parametrize("way", ["sm_90a", "cpu"])
def test_numbers_about_as_low(way, small_ones):
    """What is low is so beside others of its row: not where the highest is as low, but for so much as scores differ."""
    graph = Attention(**SHARED | {"bias": "qk", "scale": 4.0})
    _, j = positions(graph)
    inputs = with_numbers(graph, graph.inputs("normal", 0), "bias", np.where(j < 448, -32752.0, -32768.0))
    check(graph, inputs, way, launches=3)


@pytest.mark.sampled(3, 1)
@pytest.mark.parametrize("way", [*GPUS, "cpu"])
def test_low_numbers_beside_another_mask(way, small_ones):
    """A causal one leaves the first queries no keys but such as padding masks: these are theirs."""
    graph = Attention(**SHARED | {"queries": 1024, "bias": "bqk", "window": (None, 0)})
    _, j = positions(graph)
    check(graph, added(graph, j >= 300, LOW["the least"]), way, launches=1)


@pytest.mark.parametrize("way", ["sm_90a", "cpu"])
def test_a_part_of_longer_rows(way, small_ones):
    """Their higher numbers are those of keys that there are not."""
    graph = Attention(**SHARED | {"bias": "qk"})
    i, j = np.indices((130, 1536))
    longer = np.where((i > 40) & (j < 300) | (j >= 1024), 0.0, LOW["the least"]).astype(np.float16)
    inputs = graph.inputs("normal", 0)
    expected, _ = graph.reference(with_numbers(graph, inputs, "bias", longer[:, :1024]))
    at = list(graph.arguments()).index("bias")
    text = graph.text().replace("%bias: tensor<1x1x130x1024xf16>", "%longer: tensor<1x1x130x1536xf16>")
    kinds = "tensor<1x1x130x1536xf16> to tensor<1x1x130x1024xf16>"
    slice_ = f"%bias = tensor.extract_slice %longer[0, 0, 0, 0] [1, 1, 130, 1024] [1, 1, 1, 1] : {kinds}"
    head, brace, rest = text.partition("{\n")
    inputs[at] = longer[None, None]
    check(graph, inputs, way, 3, expected, head + brace + slice_ + rest)


def twice_biased(text):
    """The graph with another argument that is added to its scores."""
    kind = "tensor<1x1x130x1024xf16>"
    for old, new in (
        (f"%bias: {kind}", f"%bias: {kind}, %other: {kind}"),
        ("(0, 0, m, n)>,", "(0, 0, m, n)>, affine_map<(b, h, m, n) -> (0, 0, m, n)>,"),
        ("ins(%s, %bias : tensor<2x2x130x1024xf32>,", f"ins(%s, %bias, %other : tensor<2x2x130x1024xf32>, {kind},"),
        ("^bb0(%in0: f32, %in1: f16, %out: f32)", "^bb0(%in0: f32, %in1: f16, %in2: f16, %out: f32)"),
        (
            "linalg.yield %biased",
            "%w = arith.extf %in2 : f16 to f32\n%b = arith.addf %biased, %w : f32\nlinalg.yield %b",
        ),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("way", ["sm_90a", "cpu"])
def test_two_that_are_added(way, small_ones):
    """Neither one's rows say what the other leaves of them: here it is no key but low ones."""
    graph = Attention(**SHARED | {"bias": "qk"})
    _, j = positions(graph)
    lows = [np.where(live, 0.0, LOW["the least"]) for live in (j < 512, j >= 512)]
    inputs = with_numbers(graph, graph.inputs("normal", 0), "bias", lows[0])
    again = with_numbers(graph, inputs, "bias", lows[1])[list(graph.arguments()).index("bias")]
    text = twice_biased(graph.text())
    expected, _ = graph.reference(with_numbers(graph, inputs, "bias", lows[0] + lows[1]))
    check(graph, [*inputs, again], way, 1, expected, text)


@pytest.mark.sampled(9, 18)
@pytest.mark.parametrize("number", LOW)
@pytest.mark.parametrize("how", MASKS)
def test_tiles_that_are_left_out(how, number, monkeypatch, small_ones):
    """Of rows that have live keys those without; of others all, but of −∞."""
    graph = Attention(**SIZES | {"queries": 160, "keys": 320, "head_size": 8, "element": "f64", "bias": "bqk"})
    live = MASKS[how](*positions(graph))
    inputs = added(graph, live, LOW[number])
    tiles = live.reshape(10, 16, 16, 20)
    computed = tiles.any(axis=(1, 3))
    if number != "-inf":
        computed |= ~tiles.any(axis=(2, 3)).all(axis=1)[:, None]
    for options in ("{tests=false lists=true added=1}", "{tests=false added=1}"):
        expected = computed.copy()
        if "lists" not in options:  # all between the first one and the last
            for row in expected:
                row[row.argmax() : len(row) - row[::-1].argmax()] |= row.any()
        found = tiles_computed(graph, inputs, monkeypatch, options=options)
        assert found == graph.batch * graph.heads * expected.sum()
    all_tiles = graph.batch * graph.heads * computed.size
    assert tiles_computed(graph, inputs, monkeypatch, options="{tests=false lists=true}") == all_tiles


# Derivatives: loops over keys, and over queries.

DERIVED = {"h": 2, "m": 1024, "k": 2048, "d": 8, "n": 8}


def biased(how, number, m, k, **fields):
    """Derivatives, by what is added too, which is low where a mask has none live; and inputs."""
    case = Case(DERIVED | {"m": m, "k": k} | fields, "bf16", learned="bias")
    _, inputs = case.graph()
    i, j = np.indices((m, k))
    live = {"causal": j <= i, "blocks": (i // 128 + j // 128) % 3 == 0, "padding": j >= 300, "bias": i >= 0}[how]
    inputs[4] = np.where(live, inputs[4], LOW[number]).astype(inputs[4].dtype)
    return case, inputs


def check_derivatives(case, inputs, way):
    text, _ = case.graph()
    if way == "cpu":
        results = compile(text, threads=1)(*inputs)
    else:
        given = [np.asarray(x, bool if x.dtype == bool else np.float64) for x in inputs]
        few = {"arch": way, "multiprocessors": 8}  # which have enough to do, so that keys are not split
        results, explained = run_module(text, given, **few), compile(text, target="nvidia", **few).explain()
        assert explained.count(LOOKED_AT) == 4, explained  # the output's, three derivatives'
    for found, wanted in zip(results, case.expected(inputs), strict=True):
        assert relative_error(found, wanted) < 2e-2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "number", "way"), crossed(["causal", "blocks", "padding", "bias"], list(LOW), [*GPUS, "cpu"])
)
def test_derivatives_by_what_is_added(how, number, way, small_ones):
    case, inputs = biased(how, number, 1024, 2048)
    check_derivatives(case, inputs, way)


@pytest.mark.slow
@pytest.mark.parametrize("way", [*GPUS, "cpu"])
@pytest.mark.parametrize("how", ["causal", "random"])
def test_derivatives_of_selections(how, way):
    case = Case(DERIVED, "bf16", masked="shared")
    _, inputs = case.graph()
    if how == "causal":
        inputs[4] &= np.tril(np.ones((1024, 2048), bool))
    check_derivatives(case, inputs, way)
