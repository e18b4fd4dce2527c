"""Attention whose row statistics are wanted too, however they come about: fused, with the statistics of its softmax."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
MASK = torch.arange(29) <= torch.arange(-3, 18)[:, None] * 2  # the first two queries see nothing


def scores(q, k):
    return q @ k.mT * 0.3


def masked(q, k):
    return scores(q, k).masked_fill(~MASK, -math.inf)


def by_log_sum_exp(q, k, v):
    s = scores(q, k)
    lse = torch.logsumexp(s, -1)
    return torch.exp(s - lse[..., None]) @ v, lse


def besides_softmax(q, k, v):
    return torch.softmax(scores(q, k), -1) @ v, torch.logsumexp(scores(q, k), -1)


def with_masked_rows(q, k, v):
    return torch._safe_softmax(masked(q, k), -1) @ v, torch.logsumexp(masked(q, k), -1)


def maximum_and_sum(q, k, v):
    s = scores(q, k)
    m = s.amax(-1, keepdim=True)
    e = torch.exp(s - m)
    total = e.sum(-1, keepdim=True)
    return (e @ v) / total, m, total[..., 0]


def without_maximum(q, k, v):
    e = torch.exp(scores(q, k))
    return (e @ v) / e.sum(-1, keepdim=True), torch.log(e.sum(-1))


def flat_heads(q, k, v):
    s = scores(q.flatten(0, 1), k.flatten(0, 1))
    return (torch.softmax(s, -1) @ v.flatten(0, 1)).view(q.shape), torch.logsumexp(s, -1).view(q.shape[:3])


def sum_also_scaled(q, k, v):
    s = scores(q, k)
    return torch.softmax(s, -1) @ v, 2 * torch.logsumexp(s, -1) - s.amax(-1)


FORMS = [by_log_sum_exp, besides_softmax, with_masked_rows, maximum_and_sum, without_maximum, flat_heads]


def tensors(queries=21, keys=29):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, n, 8, generator=generator) for n in (queries, keys, keys)]


def check(kernel, found, expected):
    assert "1 attention found and fused" in kernel.explain()
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert torch.equal(torch.isneginf(a), torch.isneginf(b))
        torch.testing.assert_close(a.double(), b.double(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("split_keys", [1, 3])
@pytest.mark.parametrize("function", [*FORMS, sum_also_scaled])
def test_written_out(function, split_keys):
    q, k, v = tensors()
    kernel = compile(function, (q, k, v), split_keys=split_keys, tile_sizes=[1, 1, 8, 0, 8])
    check(kernel, kernel(q, k, v), function(q.double(), k.double(), v.double()))
    assert ("keys are split into 3 parts" in kernel.explain()) == (split_keys == 3)


@pytest.mark.parametrize("batch, heads, group", [(1, 2, 2), (2, 1, 2), (2, 2, 3), (2, 3, 4)])
def test_heads_in_groups(batch, heads, group):
    """The statistics have one dimension for the heads, the scores one for batch, heads and groups."""

    def attention(q, k, v):
        return besides_softmax(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))

    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, heads * group, 21, 8), (batch, heads, 29, 8), (batch, heads, 29, 8))
    q, k, v = (torch.randn(s, generator=generator) for s in shapes)
    kernel = compile(attention, (q, k, v))
    check(kernel, kernel(q, k, v), attention(q.double(), k.double(), v.double()))


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_kernel(causal):
    q, k, v = tensors(21, 21)
    function = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    kernel = compile(lambda *x: function(*x, 0.0, causal), (q, k, v))
    check(kernel, kernel(q, k, v), function(q, k, v, 0.0, causal))


def test_flex_attention():
    mask = create_block_mask(lambda b, h, i, j: i >= j + 3, None, None, 21, 29, device="cpu")

    def attention(q, k, v):
        return flex_attention(q, k, v, block_mask=mask, score_mod=lambda s, b, h, i, j: s + h, return_lse=True)

    q, k, v = tensors()
    kernel = compile(attention, (q, k, v))
    check(kernel, kernel(q, k, v), attention(q.double(), k.double(), v.double()))


def test_another_use():
    """The minimum of a row is no statistic of a softmax: the scores are computed apart for it."""

    def function(q, k, v):
        return torch.softmax(scores(q, k), -1) @ v, scores(q, k).amin(-1)

    args = tensors()
    kernel = compile(function, args)
    assert kernel.ir("fused").count("__pairwise__") == 1
    for found, wanted in zip(kernel(*args), function(*(x.double() for x in args)), strict=True):
        torch.testing.assert_close(torch.as_tensor(found).double(), wanted, rtol=1e-5, atol=1e-5)


def by_sink(q, k, v):
    s = torch.cat([scores(q, k), torch.full((*q.shape[:3], 1), 0.5, dtype=q.dtype)], -1)
    return torch.softmax(s, -1)[..., :-1] @ v


def sum_alone(q, k, v):
    s = scores(q, k)
    e = torch.exp(s - s.amax(-1, keepdim=True))
    total = e.sum(-1, keepdim=True)
    return e / total @ v, total


@pytest.mark.parametrize(
    ("function", "kept"),
    [(besides_softmax, True), (by_sink, True), (sum_alone, False), (maximum_and_sum, False), (sum_also_scaled, False)],
)
def test_results_for_which_any_maximum_does(function, kept):
    """On GPUs: the first tile's maximum may be kept, or one that is off by some powers of 2."""
    q, k, v = (torch.randn(2, 16, 4096, 64, dtype=torch.float16) for _ in range(3))
    for option in (True, False):
        kernel = compile(function, (q, k, v), target="nvidia", arch="sm_90a", keep_maximum=option)
        code = kernel.ir("scheduled")
        assert ("tile.init_flags" in code) == (kept and option)
        assert ("tile.any_of_warp" in code) == kept


def test_causal_masks_of_torch_are_one_loop():
    """They say which scores live."""
    q = torch.randn(2, 16, 4096, 64, dtype=torch.float16)
    function = torch.nn.functional.scaled_dot_product_attention
    kernel = compile(lambda q: function(q, q, q, is_causal=True), (q,), target="nvidia", arch="sm_90a")
    assert "tile.init_flags" in kernel.ir("scheduled")
