"""Training under torch.compile(…, backend="attn_opt") with masks and sinks, and rows without a key."""

import functools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from training_harness import (  # noqa: E402
    BOTH_KEPT,
    PLAIN,
    TWO_NUMBERS,
    assert_like_float64,
    gradients,
    needy,
    with_gradients,  # noqa: F401
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error


MASKS = {
    "numbers": torch.linspace(-2, 2, 35).reshape(5, 7),
    "some keys": torch.tensor([[True, False, True, True, True, False, True]]),
    "rows without keys": torch.tensor([[i > 0] * 7 for i in range(5)]),
    "rows of the lowest number": torch.where(torch.arange(5) > 0, 0, torch.finfo(torch.float32).min)[:, None].repeat(
        1, 7
    ),
    "rows of minus infinity": torch.where(torch.arange(5) > 0, 0, -math.inf)[:, None].repeat(1, 7),
}


@BOTH_KEPT
@pytest.mark.parametrize("name", MASKS)
def test_masks(name, kept):
    mask = MASKS[name]

    def masked(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def written_out(q, k, v, mask):  # torch's own has seven times these gradients in rows of the lowest number
        added = torch.zeros(mask.shape).masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else mask
        return torch._safe_softmax(q @ k.mT / math.sqrt(8) + added, -1) @ v

    args = needy(*PLAIN)
    assert_like_float64(masked, [*args, mask], like=written_out)
    assert kept() == [kept.of_rows if mask.dtype == torch.bool else TWO_NUMBERS, [(3, 3)]]
    if name in ("rows without keys", "rows of minus infinity"):
        (of_queries,) = torch.autograd.grad(compiled(masked)(*args, mask).sum(), args[:1])
        assert of_queries[:, :, 0].eq(0).all() and of_queries.isfinite().all()


def beside_sinks(q, k, v, sinks, mask=None, shifted=False, count=1):
    """As in gpt-oss: softmax over keys and a number of each head, whose probability is dropped."""
    scores = q @ k.mT / 4
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    beside = sinks.reshape(1, -1, 1, 1).expand(*q.shape[:3], 1)
    both = torch.cat([scores, *[beside] * count], -1)
    if shifted:
        both = both - both.max(-1, keepdim=True).values
    return F.softmax(both, -1)[..., : k.shape[2]] @ v


def beside_sinks_by_bmm(q, k, v, sinks):
    heads, queries, keys = q.shape[0] * q.shape[1], q.shape[2], k.shape[2]
    scores = torch.cat([q @ k.mT / 4, sinks.reshape(1, -1, 1, 1).expand(*q.shape[:3], 1)], -1)
    p = F.softmax(scores, -1)[..., :keys].reshape(heads, queries, keys)
    return torch.bmm(p, v.reshape(heads, keys, -1)).view(*q.shape[:3], -1)


NO_KEYS = torch.tensor([[i == 0 or j > i + 2 for j in range(7)] for i in range(5)])
SINKS = {
    "plain": {},
    "shifted": {"shifted": True},
    "two": {"count": 2},
    "a row without keys": {"mask": NO_KEYS},
    "a row without keys, shifted": {"mask": NO_KEYS, "shifted": True},
}


@BOTH_KEPT
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("name", SINKS)
def test_sinks(name, learned, kept):
    function = functools.partial(beside_sinks, **SINKS[name])
    *args, sinks = needy(*PLAIN, (4,))
    assert_like_float64(function, [*args, sinks.detach().requires_grad_(learned)])
    assert kept() == [kept.of_rows, [(3, 3 + learned)]]


def test_sinks_and_reshaped_probabilities(kept):
    assert_like_float64(beside_sinks_by_bmm, needy(*PLAIN, (4,)))
    assert kept() == [kept.of_rows, [(3, 4)]]


@BOTH_KEPT
def test_sinks_that_are_all_there_is(kept):
    """Sinks far above the scores, and far below."""
    for sink in (-200.0, 60.0):
        args = needy(*PLAIN, (4,))
        args[3] = torch.full((4,), sink, requires_grad=True)
        assert_like_float64(beside_sinks, args)
    bf16 = [x.detach().bfloat16().requires_grad_() for x in needy(*PLAIN, (4,))]
    assert_like_float64(beside_sinks, bf16, atol=2e-2)


def test_rows_of_low_numbers(kept):
    """Scores are as large as their masks: what softmax makes of their digits is float32's, not float64's."""
    args, mask = needy(*PLAIN), torch.where(torch.arange(5) % 2 == 0, 0, -1e9)[:, None].repeat(1, 7)

    def masked(*args):
        return torch.softmax(args[0] @ args[1].mT + mask, -1) @ args[2]

    for one, other in zip(gradients(compiled(masked), args)[1], gradients(masked, args)[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert kept() == [TWO_NUMBERS, [(3, 3)]]


@BOTH_KEPT
@pytest.mark.parametrize("strictly", [False, True])
def test_low_numbers_by_position(strictly, kept):
    """Each query has a live key, or, strictly, all but the first one, whose probabilities are those of all keys."""

    def causal(q, k, v):
        later = torch.arange(7)[None, :] + strictly > torch.arange(5)[:, None]
        return torch.softmax((q @ k.mT).masked_fill(later, torch.finfo(q.dtype).min), -1) @ v

    assert_like_float64(causal, needy(*PLAIN))
    assert kept() == [TWO_NUMBERS, [(3, 3)]]


@pytest.mark.parametrize("largest", [lambda s: s.amax(-1, keepdim=True), lambda s: s.max(-1, keepdim=True).values])
def test_maxima_that_are_not_told_to_be_constant(largest):
    def softmax(q, k, v):
        scores = q @ k.mT
        e = torch.exp(scores - largest(scores))
        return e / e.sum(-1, keepdim=True) @ v

    counts = Counts()
    assert_like_float64(softmax, needy(*PLAIN))
    assert (counts.kernels >= 2, counts.left) == (True, 0)


@pytest.mark.parametrize("low", [-1e4, -1e9, -torch.inf])
def test_maxima_of_scores_that_are_masked_afterwards(low):
    """None of the scores in memory was the largest, as that was a kernel's: gradients were 0/0."""

    def softmax(q, k, v):
        scores = q @ k.mT * 0.495
        scores = scores - scores.amax(-1, keepdim=True)
        scores = scores.masked_fill(torch.arange(17) > torch.arange(17)[:, None], low)
        e = torch.exp(scores - scores.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True) @ v

    assert_like_float64(softmax, needy(*[(2, 4, 17, 2)] * 3))


def filled(scores, live):
    return scores.masked_fill(~live, torch.finfo(scores.dtype).min)


def with_the_least_added(scores, live):
    return scores + torch.zeros((), dtype=scores.dtype).masked_fill(~live, torch.finfo(scores.dtype).min)


def least(scores):
    """Twice it is a number, too."""
    return torch.finfo(scores.dtype).min * 0.4


def before():
    """Made in the graph: what is given to it is read from memory."""
    return torch.arange(70) <= torch.arange(70)[:, None]


def added_twice(scores, live):
    low = torch.tensor(least(scores), dtype=scores.dtype)
    return scores + torch.where(live, 0 * low, low) + torch.where(before(), 0 * low, low)


def filled_and_added(scores, live):
    low = torch.tensor(least(scores), dtype=scores.dtype)
    return scores.masked_fill(~before(), low) + torch.zeros((), dtype=scores.dtype).masked_fill(~live, low)


def filled_with_two_numbers(scores, live):
    return scores.masked_fill(~before(), 2 * least(scores)).masked_fill(~live, least(scores))


def filled_with_infinity_before(scores, live):
    return scores.masked_fill(~before(), -torch.inf).masked_fill(~live, least(scores))


PADDING = torch.arange(70) >= torch.tensor([[0], [40]])
BY_DATA = {
    "padding before": (PADDING, lambda i, j, there: there[:, None] & (j <= i)),
    "padding behind": (PADDING.flip(-1), lambda i, j, there: there[:, None] & (j <= i)),
    "padding alone": (PADDING, lambda i, j, there: there[:, None]),
    "documents": (torch.arange(70).expand(2, -1) // 20, lambda i, j, seg: (seg[:, i] == seg[:, None]) & (j <= i)),
}


@BOTH_KEPT
@pytest.mark.parametrize("masked", [filled, with_the_least_added])
@pytest.mark.parametrize("name", BY_DATA)
def test_low_numbers_by_data(name, masked, kept):
    """Rows without a live key are means of all values; in others they are as −∞, and dead tiles are skipped."""
    data, live = BY_DATA[name]

    def function(q, k, v, data):
        i, j = torch.arange(70)[:, None], torch.arange(70)
        return torch.softmax(masked(q @ k.mT, live(i, j, data)), -1) @ v

    assert_like_float64(function, [*needy((2, 70, 4), (2, 70, 4), (2, 70, 3)), data])
    assert kept() == [TWO_NUMBERS, [(3, 3)]]


@pytest.mark.parametrize(
    "masked", [added_twice, filled_and_added, filled_with_two_numbers, filled_with_infinity_before]
)
def test_masks_of_several_numbers(masked, kept):
    """Of a row without a live key those have a probability that have the larger number."""

    def function(q, k, v, there):
        return torch.softmax(masked(q @ k.mT, there[:, None]), -1) @ v

    assert_like_float64(function, [*needy((2, 70, 4), (2, 70, 4), (2, 70, 3)), PADDING])
    assert kept() == [TWO_NUMBERS, [(3, 3)]]
