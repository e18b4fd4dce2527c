"""compile() on functions and modules of torch, against torch in float64."""

import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from models import MODELS  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 1e-2}


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)


def wide(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def close(found, expected, dtype=torch.float32):
    assert found.shape == expected.shape and found.dtype == dtype
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[dtype], error


def check(function, args, raised=1, **options):
    kernel = compile(function, args, **options)
    with torch.no_grad():
        close(kernel(*args), function(*map(wide, args)), args[0].dtype)
    assert kernel.ir("raised").count("linalg_ext.softmax") == raised
    return kernel


def sdpa(**keywords):
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **keywords)


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
@pytest.mark.parametrize("keys", [2, 300])
@pytest.mark.parametrize("shape", [(2, 4, 1, 16), (1, 4, 1, 16), (4, 1, 16), (1, 16)], ids=str)
def test_one_query(shape, keys, target):
    """The query is a row of the scores, also where torch.export takes its dimension away."""
    q, k, v = tensors(shape, (*shape[:-2], keys, 16), (*shape[:-2], keys, 24), dtype=torch.float16)
    if target == "cpu":
        check(sdpa(), (q, k, v))
    else:
        assert "tile.load" in compile(sdpa(), (q, k, v), target="nvidia").ir("tiles")


def forgetting(q, k, v, c):
    """Forgetting attention: scores decay by what comes between query and key (arXiv:2503.02130)."""
    scores = (q @ k.mT).float() / 8 + c[..., :, None] - c[..., None, :]
    live = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~live, float("-inf")).softmax(-1).to(v.dtype) @ v


def selective(q, k, v, scores):
    """Selective attention: queries before this one have a say in which keys it sees (arXiv:2410.02703)."""
    live = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    hidden = scores.float().where(live, 0.0).relu().roll(1, -2).cumsum(-2)
    scores = (q @ k.mT).float() / 8 - hidden[:, None]
    return scores.masked_fill(~live, float("-inf")).softmax(-1).to(v.dtype) @ v


def pair_bias(q, k, v):
    """As in AlphaFold: a bias of each pair that is projected to heads."""
    pairs = q[:, 0, :, None] * k[:, 0, None, :]
    return ((q @ k.mT) / 4 + (pairs @ v[0, 0, :2].mT).permute(0, 3, 1, 2)).softmax(-1) @ v


def windows(q, k, v):
    """Blocks of queries that see their own keys and the ones before."""
    k, v = (F.pad(x, (0, 0, 20, 0)).unfold(2, 40, 20) for x in (k, v))
    return ((q.unflatten(2, (5, 20)) @ k).softmax(-1) @ v.mT).flatten(2, 3)


AROUND = {
    "every second key": lambda q, k, v: sdpa()(q[:, :, 1::2], k[:, :, ::2], v[:, :, ::2]),
    "every second head": lambda q, k, v: sdpa()(q[:, ::2], k[:, 1::2], v[:, 1::2]),
    "rolled": lambda q, k, v: sdpa()(q, k, v.roll(-3, 2)).roll((3, 1), (2, 1)),
    "a padded mask": lambda q, k, v: (q @ k.mT + F.pad(k[:, :, :-2, 0], (1, 1))[:, :, None]).softmax(-1) @ v,
    "pair bias": pair_bias,
    "windows": windows,
    "two that share all": lambda q, k, v: torch.stack([sdpa()(q, k, v), sdpa()(q + 1, k, v)]),
    "one after the other": lambda q, k, v: sdpa()(sdpa()(q, k, v), k, v),
    "keys that are returned": lambda q, k, v: (sdpa()(q, k.tanh(), v), k.tanh()),
    "a cache that grows": lambda q, k, v: sdpa()(q, torch.cat([k, q[:, :, -1:]], 2), torch.cat([v, q[:, :, :1]], 2)),
    "padded": lambda q, k, v: F.pad(sdpa()(q, k, v), (0, 0, 2, 5)),
    "a part": lambda q, k, v: sdpa()(q, k, v)[:, :, 3:10],
    "q, q, q": lambda q, k, v: sdpa()(q, q, q),
    "running sums": lambda q, k, v: forgetting(q, k, v, F.logsigmoid(k[..., 0].float()).cumsum(2)),
    "running sums, one query": lambda q, k, v: (
        ((q[:, :1, :1] @ k[:, :1].mT).float() - k[:, :1, :, 0].float().cumsum(2)[:, :, None]).softmax(-1).to(v.dtype)
        @ v[:, :1]
    ),
    "rolled running sums of scores": lambda q, k, v: selective(q, k, v, q[:, 0] @ k[:, 0].mT),
    "tanh(v), tanh(v), v": lambda q, k, v: (v.tanh() @ v.tanh().mT / 8).softmax(-1) @ v,
}


@pytest.mark.parametrize("arch", ["", "sm_80", "sm_90a"])
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around(name, arch):
    q, k, v = tensors(*[(1, 2, 100, 16)] * 3, dtype=torch.float16)
    if arch:
        assert compile(AROUND[name], (q, k, v), target="nvidia", arch=arch).ir("ptx")
        return
    kernel = compile(AROUND[name], (q, k, v))
    results = [r if isinstance(r, tuple) else (r,) for r in (kernel(q, k, v), AROUND[name](*map(wide, (q, k, v))))]
    for found, expected in zip(*results, strict=True):
        close(found, expected, torch.float16)


SHAPES = ((2, 4, 9, 8), (2, 4, 13, 8), (2, 4, 13, 6))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("keywords", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_sdpa(keywords, dtype):
    check(sdpa(**keywords), tensors(*SHAPES, dtype=dtype))


def test_a_function_that_is_not_pythons():
    check(F.scaled_dot_product_attention, tensors(*SHAPES))


@pytest.mark.parametrize("shape", [(9, 13), (1, 13), (2, 1, 9, 13), (1, 4, 1, 13), (2, 4, 9, 13)], ids=str)
@pytest.mark.parametrize("kind", ["float", "bool"])
def test_sdpa_mask(kind, shape):
    mask = tensors(shape)[0]
    check(sdpa(), (*tensors(*SHAPES), mask > -1 if kind == "bool" else mask))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(6, 3), (6, 1)])
def test_sdpa_groups(heads, causal):
    q, k, v = tensors((2, heads[0], 9, 8), (2, heads[1], 13, 8), (2, heads[1], 13, 6))
    kernel = check(sdpa(enable_gqa=True, is_causal=causal), (q, k, v))
    assert "2x6x13x" not in kernel.ir("raised")


def test_sdpa_ranks():
    check(sdpa(), tensors((9, 8), (13, 8), (13, 6)))
    check(sdpa(), tensors((3, 9, 8), (3, 13, 8), (3, 13, 6)))
    check(sdpa(), tensors((1, 1, 1, 8), (1, 1, 13, 8), (1, 1, 13, 6)))


def test_sdpa_fully_masked_rows_are_zero():
    q, k, v = tensors(*SHAPES)
    mask = torch.ones(9, 13, dtype=torch.bool)
    mask[4] = False
    kernel = compile(sdpa(), (q, k, v, mask))
    assert torch.all(kernel(q, k, v, mask)[:, :, 4] == 0)


@pytest.mark.parametrize("shape", [(0, 4, 9, 8), (2, 0, 9, 8), (2, 4, 0, 8), (2, 4, 9, 0)], ids=str)
def test_without_elements(shape):
    args = *tensors(shape, shape), tensors((*shape[:3], 5))[0]
    expected = stable(*args) if shape[2] else torch.zeros(2, 4, 0, 5)
    torch.testing.assert_close(compile(plain, args)(*args), expected)


def test_sdpa_dropout_is_left_alone():
    q, k, v = tensors(*SHAPES)
    with pytest.raises(CompileError, match="no lowering"):
        compile(sdpa(dropout_p=0.5), (q, k, v))


def plain(q, k, v):
    return (q @ k.mT).softmax(-1) @ v


def stable(q, k, v):
    s = q @ k.mT
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


def reciprocal(q, k, v):
    s = q @ k.mT
    e = torch.exp2((s - s.max(-1, keepdim=True).values) * math.log2(math.e))
    return (e * e.sum(-1, keepdim=True).reciprocal()) @ v


def einsums(q, k, v):
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bhqk,bhkd->bqhd", s.softmax(-1), v)


def softcap_and_window(q, k, v):
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    s = torch.tanh(q @ k.mT / 5) * 5 - 0.1 * (i - j).abs()
    return torch.where((i >= j - 3) & (i - j < 4), s, -math.inf).softmax(-1) @ v


def alibi(q, k, v):
    slopes = torch.exp2(-8 * torch.arange(1, q.shape[1] + 1) / q.shape[1])
    bias = slopes[:, None, None] * (torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None])
    return (q @ k.mT * 0.3 + bias).softmax(-1) @ v


def gauss(q, k, v):
    s = q @ k.mT - 0.01 * (torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])) ** 2
    return torch.where(torch.isfinite(s), s, -1e4).softmax(-1) @ v


def by_lse(q, k, v):
    s = q @ k.mT
    return torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) @ v


def in_place(q, k, v):
    s = torch.matmul(q, k.transpose(-1, -2))
    s /= math.sqrt(q.shape[-1])
    s.masked_fill_(torch.arange(k.shape[-2]) > 9, -math.inf)
    return F.softmax(s, -1) @ v


def written_slices(q, k, v):
    s = q @ k.mT
    s[..., 2:7] = -1e4
    s[:, :, 1:3] *= 0.5
    s[..., -3:] += torch.arange(3.0).sum()
    return s.softmax(-1) @ v


def written_by_a_mask(q, k, v):
    s = q @ k.mT
    s[s < -2] = -math.inf
    return s.softmax(-1) @ v


def weighted(q, k, v):
    return ((q @ k.mT).softmax(-1) * torch.arange(k.shape[-2]).cos()) @ v


@pytest.mark.parametrize(
    "function",
    [
        *(stable, reciprocal, einsums, softcap_and_window, alibi, gauss, by_lse, in_place),
        *(written_slices, written_by_a_mask, weighted),
    ],
    ids=lambda f: f.__name__,
)
def test_written_by_hand(function):
    check(function, tensors(*SHAPES))


def test_flex_attention():
    bias, documents = tensors((4,))[0].double(), torch.arange(32) // 12

    def score_mod(score, b, h, i, j):
        return score + bias[h] * (i - j)

    def mask_mod(b, h, i, j):
        return (i >= j) & (documents[i] == documents[j])

    mask = create_block_mask(mask_mod, None, None, 32, 32, device="cpu", BLOCK_SIZE=16)

    def attention(q, k, v):
        return flex_attention(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=True)

    q, k, v = tensors((2, 4, 32, 16), (2, 2, 32, 16), (2, 2, 32, 16))
    kernel = compile(attention, (q, k, v))
    rows, columns = torch.arange(32)[:, None], torch.arange(32)
    allowed = (rows >= columns) & (documents[:, None] == documents)
    scores = q.double() @ k.double().repeat_interleave(2, 1).mT / 4 + bias[:, None, None] * (rows - columns)
    expected = torch.where(allowed, scores, -math.inf).softmax(-1) @ v.double().repeat_interleave(2, 1)
    close(kernel(q, k, v), expected)
    assert "32x32xi1" not in kernel.ir("raised")


def causal_blocks(queries, keys):
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, queries, keys, device="cpu")


@pytest.mark.parametrize(
    "function",
    [
        lambda q, k, v: flex_attention(q, k, v),
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 0.1 * (j - i), scale=0.3),
        lambda q, k, v: flex_attention(q, k, v, block_mask=causal_blocks(q.shape[2], k.shape[2])),
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s), return_lse=True)[0],
    ],
    ids=["plain", "modified", "mask made inside", "with statistics"],
)
def test_flex_attention_without_a_given_block_mask(function):
    check(function, tensors(*SHAPES))


def in_8_bits(q, k, v, kind):
    p = torch.softmax(q.float() @ k.float().mT * 0.2, -1)
    o = (p * 256).to(kind).float() @ v.float() / 256
    return o.to(kind)


def cached(q, k, v, kind):
    return F.scaled_dot_product_attention(q, k.to(q.dtype) * 0.5, v.to(q.dtype))


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("function", [in_8_bits, cached])
def test_floats_of_8_bits(function, kind):
    q, k, v = (x.to(kind) for x in tensors(*SHAPES))
    q = q if function is in_8_bits else q.float()
    kernel = compile(lambda q, k, v: function(q, k, v, kind), (q, k, v))
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1
    found, expected = kernel(q, k, v), function(q, k, v, kind)
    assert found.dtype == expected.dtype
    error = (found.double() - expected.double()).abs().max() / expected.double().abs().max()
    assert error < (0.2 if function is in_8_bits else 1e-5)
    model = torch.compile(lambda q, k, v: function(q, k, v, kind), backend="attn_opt")
    torch.testing.assert_close(model(q, k, v).double(), found.double())


@pytest.mark.parametrize("causal", [False, True])
def test_dynamic_sizes(causal):
    batch, queries, keys = Dim("batch"), Dim("queries"), Dim("keys")
    shapes = ({0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch, 2: keys})

    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)

    kernel = compile(attention, tensors((2, 4, 9, 8), (2, 2, 13, 8), (2, 2, 13, 8)), dynamic_shapes=shapes)
    for b, m, n in ((2, 9, 13), (1, 70, 70), (3, 1, 129)):
        args = tensors((b, 4, m, 8), (b, 2, n, 8), (b, 2, n, 8))
        close(kernel(*args), attention(*map(wide, args)))


@pytest.mark.parametrize("causal", [False, True])
def test_heads_of_no_elements(causal):
    check(sdpa(is_causal=causal), tensors((2, 3, 5, 0), (2, 3, 70, 0), (2, 3, 70, 4)))


def test_tangents_are_refused():
    (q,) = tensors((2, 3, 5, 8))
    kernel = compile(lambda x: x * 2, (q,))
    with forward_ad.dual_level(), pytest.raises(CompileError, match="has a tangent of forward-mode differentiation"):
        kernel(forward_ad.make_dual(q, q))


def test_a_program_that_torch_has_decomposed():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, mask)

    args = *tensors((2, 4, 9, 8), (2, 4, 13, 8), (2, 4, 13, 8)), torch.arange(13) < torch.arange(9)[:, None]
    kernel = compile(torch.export.export(Attention(), args).run_decompositions())
    close(kernel(*args), Attention()(*map(wide, args)))
    assert "linalg_ext.softmax" in kernel.ir("raised")


@pytest.mark.parametrize(
    ("shapes", "condition", "fitting", "other", "message"),
    [
        ({0: Dim.AUTO}, lambda n: n > 4, 70, 3, r"q\.size\(\)\[0\] >= 5"),
        ({0: Dim.AUTO}, lambda n: n % 2 == 0, 70, 71, r"q\.size\(\)\[0\] % 2 == 0"),
        ({0: Dim("rows", max=64)}, lambda n: n <= 64, 64, 65, r"q\.size\(\)\[0\] <= 64"),
    ],
)
def test_sizes_that_lead_elsewhere_are_refused(shapes, condition, fitting, other, message):
    def attention(q, k):
        return (q @ k.mT).softmax(-1) @ k if condition(q.shape[0]) else q

    kernel = compile(attention, tensors((8, 8), (13, 8)), dynamic_shapes=(shapes, {}))
    args = tensors((fitting, 8), (13, 8))
    close(kernel(*args), attention(*map(wide, args)))
    for wrong in (tensors((other, 8), (13, 8)), [np.zeros((other, 8), np.float32), np.zeros((13, 8), np.float32)]):
        with pytest.raises(CompileError, match=f"was traced for sizes with {message}"):
            kernel(*wrong)


@pytest.mark.parametrize("split", [lambda x: x.chunk(2), lambda x: x.split([3, x.shape[0] - 3])])
def test_parts_of_open_sizes(split):
    def attention(x):
        q, k = split(x)
        return (q @ k.mT).softmax(-1) @ k

    kernel = compile(attention, tensors((8, 8)), dynamic_shapes=({0: Dim.AUTO},))
    for rows in (18, 130):
        (x,) = tensors((rows, 8))
        close(kernel(x), attention(wide(x)))


@pytest.mark.parametrize(
    ("scores", "output", "shape_of_q", "shape_of_k", "open_sizes"),
    [
        ("bgrnd,bgmd->bgrnm", "bgrnm,bgmd->bngrd", (2, 2, 3, 9, 8), (2, 2, 7, 8), ({0: "b", 3: "n"}, {0: "b", 2: "m"})),
        ("...nd,...md->...nm", "...nm,...md->...nd", (2, 3, 9, 8), (2, 3, 11, 8), ({0: "b", 2: "n"}, {0: "b", 2: "m"})),
        ("bncd,bmcd->bnm", "bnm,bmcd->bncd", (2, 9, 3, 8), (2, 11, 3, 8), ({0: "b", 1: "n"}, {0: "b", 1: "m"})),
    ],
    ids=["groups of heads", "dots", "sum over two"],
)
def test_einsums_of_open_sizes(scores, output, shape_of_q, shape_of_k, open_sizes):
    def attention(q, k):
        return torch.einsum(output, torch.einsum(scores, q, k).softmax(-1), k)

    shapes = [dict.fromkeys(of, Dim.AUTO) for of in open_sizes]
    kernel = compile(attention, tensors(shape_of_q, shape_of_k), dynamic_shapes=shapes)
    assert "1 attention found and fused" in kernel.explain()
    for sizes in ({"b": 2, "n": 9, "m": 11}, {"b": 5, "n": 17, "m": 70}):
        args = tensors(
            *(
                [sizes[of[d]] if d in of else size for d, size in enumerate(shape)]
                for shape, of in zip((shape_of_q, shape_of_k), open_sizes, strict=True)
            )
        )
        close(kernel(*args), attention(*map(wide, args)))


def test_a_reshape_of_open_sizes_that_hides_softmax_is_told_of():
    def attention(q, k):  # queries in two dimensions, which the product merges
        return torch.einsum("bxyhm,bmhd->bxyhd", torch.einsum("bxyhd,bmhd->bxyhm", q, k).softmax(-1), k)

    args = tensors((2, 3, 5, 4, 8), (2, 11, 4, 8))
    with pytest.warns(match="a reshape that merges several open sizes, or makes several of one, hides it"):
        kernel = compile(attention, args, dynamic_shapes=[{1: Dim.AUTO, 2: Dim.AUTO}, {1: Dim.AUTO}])
    close(kernel(*args), attention(*map(wide, args)))


def test_differences_of_probabilities_of_open_sizes():
    def attention(q, k, v):
        a, b = ((x @ y.mT).softmax(-1) for x, y in zip(q.chunk(2, -1), k.chunk(2, -1), strict=True))
        return (a - 0.3 * b) @ v

    kernel = compile(attention, tensors((2, 9, 16), (2, 13, 16), (2, 13, 8)), dynamic_shapes=[{1: Dim.AUTO}] * 3)
    assert "2 attentions found and fused" in kernel.explain()
    for n, m in ((9, 13), (70, 5)):
        args = tensors((2, n, 16), (2, m, 16), (2, m, 8))
        close(kernel(*args), attention(*map(wide, args)))


def test_expanded_by_open_sizes_and_kept_ones():
    def attention(q, k, sink):
        column = sink.view(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[2], 1)
        return torch.cat((q @ k.mT, column), -1).softmax(-1)[..., :-1] @ k

    shapes = ({0: Dim.AUTO, 2: Dim.AUTO}, {0: Dim.AUTO, 2: Dim.AUTO}, {})
    kernel = compile(attention, tensors((2, 3, 9, 8), (2, 3, 13, 8), (3,)), dynamic_shapes=shapes)
    for b, m, n in ((2, 9, 13), (4, 70, 5)):
        args = tensors((b, 3, m, 8), (b, 3, n, 8), (3,))
        close(kernel(*args), attention(*map(wide, args)))


def test_numbers_that_sizes_tell_are_results():
    def attention(q, k):
        rows, size = q.shape
        return (q @ k.mT).softmax(-1) @ k, {"next": rows + 1, "half": k.shape[0] / 2, "size": size, "step": -rows // 2}

    kernel = compile(attention, tensors((9, 8), (13, 8)), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    for m, n in ((9, 13), (1, 1), (70, 5)):
        args = tensors((m, 8), (n, 8))
        (found, numbers), (expected, of_torch) = kernel(*args), attention(*map(wide, args))
        close(found, expected)
        assert numbers == of_torch


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model, args, attentions = MODELS[name]()
    kernel = compile(model, args)
    with torch.no_grad():
        found = kernel(*args)
        expected = model.double()(*map(wide, args))
    close(found, expected)
    assert kernel.ir("raised").count("linalg_ext.softmax") == attentions


def test_arguments_and_results_keep_their_structure():
    def function(inputs, *, scale):
        q, k = inputs["q"], inputs["k"]
        return {"out": (q @ k.mT * scale).softmax(-1) @ k, "sum": (q + 1,)}

    q, k = tensors((9, 8), (13, 8))
    kernel = compile(function, ({"q": q, "k": k},), example_kwargs={"scale": torch.tensor(0.3)})
    found = kernel({"q": q, "k": k}, scale=torch.tensor(0.5))
    close(found["out"], (q.double() @ k.double().mT * 0.5).softmax(-1) @ k.double())
    close(found["sum"][0], q.double() + 1)


def test_arguments_that_were_one_tensor():
    """torch.export would take them to be one in every call."""
    layer = torch.nn.Linear(8, 8, bias=False)
    (x,) = tensors((3, 8))
    other, third = x + 1, x - 1
    with torch.no_grad():
        close(compile(lambda a, b: a @ b.T, (x, x))(x, other), x.double() @ other.double().T)
        found = compile(lambda a, b: layer(a) - a @ b[0].T, (x, [layer.weight]))(x, [torch.ones(8, 8)])
        close(found, (layer(x) - x @ torch.ones(8, 8)).double())
        pair = compile(lambda d, b: d["a"] - b, ({"a": x}, x))({"a": other}, third)
        close(pair, torch.full((3, 8), 2.0, dtype=torch.float64))


def test_numpy_in_numpy_out():
    args = tensors(*SHAPES)
    kernel = compile(sdpa(), args)
    found = kernel(*(a.numpy() for a in args))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, kernel(*args).numpy())


def branches(q, k, v):
    return q if q.sum() > 0 else k


@pytest.mark.parametrize(
    "function, args, options, message",
    [
        (sdpa(), None, {}, "no frontend|example_args are needed"),
        (sdpa(), tensors(*SHAPES)[:2], {}, "torch.export cannot trace"),
        (branches, tensors(*SHAPES), {}, "torch.export cannot trace 'branches'"),
        (lambda x: torch.mode(x).values, tensors((5, 7)), {}, "no lowering"),
        (lambda x: torch.nn.functional.dropout(x, 0.5), tensors((5, 7)), {}, r"random numbers .* call eval\(\)"),
        (lambda x: x[x > 0].softmax(0), tensors((5, 2)), {}, "how many elements 'index', of .*, has depends on data"),
        (lambda x: x.nonzero(), tensors((5, 2)), {}, "how many elements 'nonzero', of .*, has depends on data"),
        (sdpa(), tensors(*SHAPES), {"tiles": 1}, "unknown option 'tiles'"),
        (lambda x: x, (object(),), {}, "no frontend traces"),
    ],
)
def test_what_cannot_be_traced(function, args, options, message):
    with pytest.raises(CompileError, match=message):
        compile(function, args, **options)


def test_calls_that_do_not_fit():
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    for args, message in (
        ((q, k), "was traced for 3 arguments, but called with 2 arguments"),
        ((q, k, [v]), "was traced for 3 arguments in this structure"),
        ((q, k, v.double()), "must be"),
        ((q, k, v[:, :, 1:]), "must be"),
    ):
        with pytest.raises(CompileError, match=message):
            kernel(*args)


def test_names_that_do_not_fit():
    q, k, v = tensors(*SHAPES)
    with pytest.raises(CompileError, match="for 3 arguments, but called with 2 arguments and 'value' by name"):
        compile(sdpa(), (q, k, v))(q, k, value=v)


def test_constants_are_those_of_the_trace():
    """Numbers, flags and None are constants: what is called with others must not get the results of the first."""
    q, k, v = tensors(*SHAPES)

    def attention(q, k, v, scale, mask=None, causal=False):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)

    kernel = compile(attention, (q, k, v, 0.5), example_kwargs={"causal": True})
    close(kernel(q, k, v, 0.5, causal=True), attention(*map(wide, (q, k, v)), 0.5, causal=True))
    for scale, causal, message in (
        (0.5, False, "argument 4 was True when the function was traced, and is False now"),
        (0.25, True, "argument 3 was 0.5 when the function was traced, and is 0.25 now"),
        (q, True, "argument 3 was 0.5 when the function was traced, and is a tensor now"),
    ):
        with pytest.raises(CompileError, match=message):
            kernel(q, k, v, scale, causal=causal)


def test_tensors_without_elements_in_memory():
    """Each says what it is; only of what is on a device, how that is compiled for."""
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    for other in (q.to("meta"), q.to_sparse(), FakeTensorMode().from_tensor(q)):
        with pytest.raises(CompileError, match=r"argument .* (is|has) no ") as caught:
            kernel(other, k, v)
        assert "nvidia" not in str(caught.value)


@pytest.mark.parametrize("traced", [True, False])
def test_tensors_that_torch_transforms(traced):
    """torch.func's tensors stand for others: kernels are not called with them, and say what can be done instead."""
    q, k, v = tensors(*SHAPES)
    graph = "func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"
    kernel = compile(lambda x: x * 2, (q,)) if traced else compile(graph)
    for call, message in (
        (lambda: torch.vmap(kernel)(q[None]), r"under torch\.vmap.*\n.*compile\(torch\.vmap\(fn\), args\)"),
        (lambda: torch.func.grad(lambda x: kernel(x).sum())(q), "kernels have no derivative"),
        (lambda: torch.func.functionalize(kernel)(q), "torch.func transforms"),
        (lambda: torch.jit.trace(lambda x: kernel(x), (q,)), "would take the results of a kernel for constants"),
    ):
        with pytest.raises(CompileError, match=message):
            call()
    close(compile(torch.vmap(sdpa()), (q[None], k[None], v[None]))(q[None], k[None], v[None])[0], sdpa()(q, k, v))


@pytest.mark.parametrize(("taken", "put"), [(0, 0), (1, 1), (1, -1), (0, 2)])
def test_functions_that_map_along_any_dimension(taken, put):
    """torch.export cannot run one that puts its results elsewhere than first: dynamo reads it."""
    check(lambda q, k, v: torch.vmap(sdpa(), taken, put)(q, k, v), tensors((2, 2, 9, 8), (2, 2, 13, 8), (2, 2, 13, 5)))


@pytest.mark.parametrize("backend", ["eager", "attn_opt"])
def test_kernels_in_what_torch_compiles(backend):
    """A kernel is called as it is, between what is compiled before and after it."""
    q, k, v = tensors(*SHAPES)
    kernel = compile(sdpa(), (q, k, v))
    compiled = torch.compile(lambda q, k, v: kernel(q * 2, k, v) + 1, backend=backend)
    close(compiled(q, k, v), sdpa()(*map(wide, (q * 2, k, v))) + 1)


def written_out(q, k, v):
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(torch.tanh(scores), -1) @ v


def test_attention_is_explained_with_its_line():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, q, k, v):
            return self.inner(q, k, v)

    class Inner(torch.nn.Module):
        def forward(self, q, k, v):
            scores = q @ k.transpose(-1, -2)
            return torch.softmax(torch.tanh(scores), -1) @ v

    q, k, v = tensors((2, 9, 5), (2, 7, 5), (2, 7, 5))
    for function in (written_out, Model()):  # the second one's kernel is there already
        own = written_out if function is written_out else Inner.forward
        lines = range(own.__code__.co_firstlineno, own.__code__.co_firstlineno + 6)
        place = re.search(r"attention at (.*):(\d+), found", compile(function, (q, k, v)).explain())
        assert place[1] == __file__ and int(place[2]) in lines


def test_the_core_imports_no_torch():
    code = "import sys; from attn_opt.compiler import compile, stats; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- for a GPU, by a driver that notes down what is launched


def test_a_function_for_the_gpu(gpu):
    args = tensors((2, 4, 200, 64), (2, 4, 200, 64), (2, 4, 200, 64), dtype=torch.float16)
    kernel = compile(sdpa(is_causal=True), args, target="nvidia")
    out = kernel(*args)
    assert out.shape == args[0].shape and out.dtype == torch.float16
    assert [launch.kernel for launch in gpu.launches] == ["main_0"], "the kernel rounds its output"
    assert kernel.ir("raised").count("linalg_ext.softmax") == 1


def test_tiles_of_equal_sizes_for_the_gpu(gpu):
    """Transposes of queries, whose rows are rows, and of keys, whose rows are columns, go to tensors of one shape."""

    def packed(x):
        q, k, v = x.unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    args = tensors((2, 64, 3 * 2 * 64), dtype=torch.float16)
    kernel = compile(packed, args, target="nvidia")
    assert kernel(*args).shape == (2, 64, 128) and len(gpu.launches) == 1


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_open_lengths_leave_no_scores_in_memory(target):
    args = tensors((2, 4, 50, 64), (2, 4, 60, 64), (2, 4, 60, 64), dtype=torch.float16)
    kernel = compile(sdpa(is_causal=True), args, target=target, dynamic_shapes=[{2: Dim.AUTO}] * 3)
    assert "stays outside" not in kernel.explain()


def pages(q, k, v, table):
    """Keys and values in pages [page, key, head, d] that a table lists, as caches of servers are."""
    k, v = (x[table].flatten(1, 2).transpose(1, 2) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


# Of the table [entries, pages of one]: one page, of one key, several; as many keys as a tile has, in pages of some.
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
@pytest.mark.parametrize("shape", [(2, 1, 16), (2, 2, 1), (1, 2, 5), (1, 8, 16)], ids=str)
def test_pages_that_a_table_lists(shape, target):
    batch, count, size = shape
    q, k, v = tensors((batch, 4, 5, 16), (9, size, 2, 16), (9, size, 2, 16), dtype=torch.float16)
    table = torch.arange(batch * count).reshape(batch, count).flip(1).remainder(9).to(torch.int32)
    kernel = compile(pages, (q, k, v, table), target=target, **{"arch": "sm_90a"} if target == "nvidia" else {})
    assert kernel.ir("fused").count("linalg_ext.softmax") == 1 and "scf.for" in kernel.ir("fused")
    if target == "cpu":
        close(kernel(q, k, v, table), pages(q.double(), k.double(), v.double(), table), torch.float16)


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_an_open_number_of_pages_leaves_no_scores_in_memory(target):
    q, k, v = tensors((2, 4, 5, 16), (9, 16, 2, 16), (9, 16, 2, 16), dtype=torch.float16)
    table = torch.tensor([[3, 1, 7], [0, 8, 2]])
    shapes = [{}, {0: Dim.AUTO}, {0: Dim.AUTO}, {1: Dim.AUTO}]
    kernel = compile(pages, (q, k, v, table), target=target, dynamic_shapes=shapes)
    assert "softmax' stays outside" not in kernel.explain()
    if target == "cpu":
        close(kernel(q, k, v, table), pages(q.double(), k.double(), v.double(), table), torch.float16)


def test_a_traced_graph_knows_no_devices():
    with FakeTensorMode():
        args = tuple(torch.empty(2, 4, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
        kernel = compile(sdpa(is_causal=True), args, target="nvidia", arch="sm_90a")
    assert "wgmma" in kernel.ir("ptx")


def test_a_cache_that_is_donated():
    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(tensors((8, 8))[0])

        def forward(self, q, cache, token):
            cache = torch.slice_scatter(cache, token @ self.weight, 1, 5, 6)
            return F.scaled_dot_product_attention(q, cache, cache), cache

    step, (q, cache, token) = Step(), tensors((2, 1, 8), (2, 9, 8), (2, 1, 8))
    with torch.no_grad():
        expected = step(q, cache, token)
        kernel = compile(step, (q, cache, token), donate=[1])
        given = cache.clone()
        for one, other in zip(kernel(q, given, token), expected, strict=True):
            torch.testing.assert_close(one, other)
        assert kernel(q, given, token)[1].data_ptr() == given.data_ptr()
        with pytest.raises(CompileError, match="donate: there is no argument 3 that is a tensor, and read"):
            compile(step, (q, cache, token), donate=[3])


def test_tensors_elsewhere_are_told_of():
    args = tensors(*SHAPES)
    kernel = compile(sdpa(), args)
    with pytest.raises(CompileError, match=r"argument 0, of type Tensor, is no array in .*: .* meta"):
        kernel(*(x.to("meta") for x in args))


def test_a_single_key_is_explained_and_not_warned_of():
    args = tensors((1, 2, 3, 8), (1, 2, 1, 8), (1, 2, 1, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = compile(sdpa(), args)
    assert "there is a single key, whose weight is 1" in kernel.explain()


def test_arguments_that_need_gradients_are_told_of():
    (x,) = tensors((1, 2, 6, 8))
    with (
        torch.enable_grad(),
        pytest.warns(UserWarning, match="arguments or parameters need gradients, but results of kernels have none"),
    ):
        compile(lambda q: F.scaled_dot_product_attention(q, q, q), (x.requires_grad_(),))


def test_parameters_that_need_gradients_are_told_of_once():
    model, (x,) = torch.nn.Linear(8, 8), tensors((2, 8))
    with warnings.catch_warnings(record=True) as caught, torch.enable_grad():
        warnings.simplefilter("always")
        compile(model, (x,))(x.requires_grad_())
        compile(model.eval(), (x.detach(),))  # eval() says that it is for inference
    (told,) = caught
    assert "parameters need gradients, but results of kernels have none" in str(told.message)
    assert told.filename == __file__


def test_gradients_are_told_of_once_where_a_call_asks_for_them():
    (x,) = tensors((1, 2, 6, 8))
    kernel, needy = compile(torch.exp, (x,)), x.clone().requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.no_grad():
            kernel(needy)
        assert not caught
        with torch.enable_grad():
            kernel(needy), kernel(needy)
    (told,) = caught
    assert "need gradients" in str(told.message)
    assert told.filename == __file__


@pytest.mark.parametrize("shape", [(1,), (), (1, 1, 1, 1)], ids=str)
@pytest.mark.parametrize(
    "masked",
    [
        lambda s, i, j, n: s.masked_fill((i < j) & (j >= n), -math.inf),
        lambda s, i, j, n: s.masked_fill(j >= n.reshape(()), -math.inf),
        lambda s, i, j, n: s + (j - i) * n.reshape(-1)[0] * 0.01,
    ],
)
def test_scores_by_a_tensor_of_one_number(masked, shape):
    def attention(q, k, v, n):
        i, j = torch.arange(70)[:, None], torch.arange(70)[None]
        return torch.softmax(masked(q @ k.mT, i, j, n), -1) @ v

    args, n = tensors(*[(1, 2, 70, 8)] * 3), torch.full(shape, 20)
    close(compile(attention, (*args, n))(*args, n), attention(*map(wide, args), n))


@pytest.mark.parametrize("places", [[1, 3], [-1, 2], [0, -4]], ids=str)
def test_rows_and_columns_are_written_by_index(places):
    """Also where places are counted from the end."""

    def written(x, at, row, column):
        x = x.clone()
        x[at] = row
        x[:, at] = column
        return x

    args = (*tensors((5, 6)), torch.tensor(places), *tensors((2, 6), (1, 2)))
    torch.testing.assert_close(compile(written, args)(*args), written(*args))


def test_programs_that_torch_export_saved(tmp_path):
    """A path to one is enough; of other files of torch it is said what is missing."""

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return sdpa()(q, k, v)

    args, path = tensors(*SHAPES), tmp_path / "attention.pt2"
    torch.export.save(torch.export.export(Attention(), args), path)
    for kernel in (compile(path), compile(str(path), args)):
        close(kernel(*args), sdpa()(*map(wide, args)))
    torch.save(args, tmp_path / "tensors.pt")
    torch.save(args, tmp_path / "tensors.pt2")
    for name, message in [
        ("tensors.pt", "needs the model, and example_args to trace it with"),
        ("tensors.pt2", "is no program of torch.export"),
        ("none.pt2", "none.pt2: error: cannot be read: no such file"),
    ]:
        with pytest.raises(CompileError, match=message):
            compile(tmp_path / name)


def test_what_is_not_compiled_says_what_to_do():
    """Of ops without a lowering it has the names."""
    (x,) = tensors((2, 6))

    class Module(torch.nn.Module):
        def forward(self, x):
            return kernel(x)

    kernel = compile(torch.exp, (x,))
    for wrong, message in [
        (
            lambda: compile(lambda x: torch.nextafter(x, x), (x,)),
            r"no pattern matches 'torch\.aten\.nextafter'; leave that op to",
        ),
        (lambda: torch.export.export(Module(), (x,)), "export or trace the function that it was compiled from"),
        (
            lambda: torch.func.grad(lambda x: compile(torch.exp, (x,))(x).sum())(x),
            "compile before, or what is transformed",
        ),
    ]:
        with pytest.raises(CompileError, match=message):
            wrong()
