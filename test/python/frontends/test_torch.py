"""compile() on attention as it is written in torch, against torch in float64."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from models import MODELS  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from torch_harness import SHAPES, TOLERANCE, check, close, sdpa, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


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


def test_the_order_in_memory_of_what_torch_returns():
    """Torch's attention returns elements in the order of the query's; the exported program itself keeps its view."""
    q, k, v = (x.transpose(1, 2) for x in tensors((2, 9, 4, 8), (2, 13, 4, 8), (2, 13, 4, 8)))

    class Merged(torch.nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(2, 9, 32)

    check(Merged(), (q, k, v))
    program = torch.export.export(Merged(), (q, k, v))
    kernel = compile(program)
    assert program.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    close(kernel(q, k, v), Merged()(*map(wide, (q, k, v))))


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


def written_in_steps(q, k, v):
    s = q @ k.mT
    s[..., 1::2, 2::3] *= 0.5
    p = s.softmax(-1)
    p[..., ::4] += 0.25 * p[..., ::4]
    return p @ v


def put_together(q, k, v):
    s = q @ k.mT
    s = torch.cat((s[..., :3].tanh(), s[..., 3:5], s[..., 5:] - 1), -1)
    p = s.softmax(-1)
    return torch.cat((p[..., :7] * 2, p[..., 7:]), -1) @ v


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
        *(written_slices, written_in_steps, put_together, written_by_a_mask, weighted),
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
def test_heads_of_no_elements(causal):
    check(sdpa(is_causal=causal), tensors((2, 3, 5, 0), (2, 3, 70, 0), (2, 3, 70, 4)))


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model, args, attentions = MODELS[name]()
    kernel = compile(model, args)
    with torch.no_grad():
        found = kernel(*args)
        expected = model.double()(*map(wide, args))
    close(found, expected)
    assert kernel.ir("raised").count("linalg_ext.softmax") == attentions


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_probabilities_as_scores(dtype):
    """Of halves, large scores are far from what they are rounded to, of which torch takes the maximum and the sum."""

    def attention(q, k, v):
        return ((q @ k.mT).softmax(-1) * 3).softmax(-1) @ v

    args = [x * 5 for x in tensors((3, 130, 2), (3, 33, 2), (3, 33, 5), dtype=dtype)]
    right = attention(*map(wide, args))
    found, eager = ((f(*args).double() - right).abs().max() for f in (compile(attention, args), attention))
    assert found < 2 * eager + 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_relative_to_the_largest(dtype):
    """That one is 0: a function of it is steep there. Where softmax is all that follows, it cancels, and is fused."""

    def attention(q, k, v, bend=torch.tanh):
        s = q @ k.mT / 1.414 * 4.875
        return bend(s - s.amax(-1, keepdim=True)).softmax(-1) @ v

    args = [x * 20 for x in tensors((3, 130, 2), (3, 133, 2), (3, 133, 5), dtype=dtype)]
    right = attention(*map(wide, args))
    found, eager = ((f(*args).double() - right).abs().max() for f in (compile(attention, args), attention))
    assert found < 2 * eager + 1e-6
    plain = compile(lambda q, k, v: attention(q, k, v, lambda s: s), args)
    assert plain.ir("raised").count("linalg_ext.softmax") == 1
