"""Training under torch.compile(…, backend="attn_opt"): gradients are those of torch in float64."""

import collections
import copy
import functools
import math
import threading

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.diagnostics import Bug  # noqa: E402
from attn_opt.compiler.frontends.dynamo import derivatives as derivatives_of_kernels  # noqa: E402
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error


@pytest.fixture(autouse=True)
def with_gradients(fresh):  # noqa: F811
    dynamo_kernel._warned.clear()
    with torch.enable_grad():
        yield


def by_hand(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def softcapped(q, k, v):
    return torch.softmax(20 * torch.tanh(q @ k.mT / 20), -1) @ v


def in_float32(q, k, v):
    """With casts, as if it were for bf16: torch.export writes down what each of them expects."""
    return torch.softmax((q @ k.mT).float(), -1).to(q.dtype) @ v


def alibi(q, k, v):
    slopes = 2.0 ** -torch.arange(1, q.shape[1] + 1)
    distance = torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None]
    return torch.softmax(q @ k.mT + slopes[:, None, None] * distance, -1) @ v


def learned(q, k, v, bias, temperature):
    return torch.softmax(q @ k.mT * temperature.exp() + bias, -1) @ v


def relative(q, k, v, table):
    """A table of relative positions, looked up outside of the attention."""
    places = torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None] + q.shape[2] - 1
    return torch.softmax(q @ k.mT + table[places].permute(2, 0, 1), -1) @ v


def grouped(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def repeated(q, k, v):
    return by_hand(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


def expanded(q, k, v):
    def many(x):
        batch, heads, length, size = x.shape
        return x[:, :, None].expand(batch, heads, 2, length, size).reshape(batch, 2 * heads, length, size)

    return F.scaled_dot_product_attention(q, many(k), many(v))


def masked_in_place(q, k, v):
    scores = q @ k.mT
    scores.masked_fill_(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    return torch.softmax(scores, -1) @ v


def merged_heads(x):
    batch, length, _ = x.shape
    q, k, v = (y.view(batch, length, 2, 8).transpose(1, 2) for y in x.chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, 16)


def by_einsum(q, k, v):
    return torch.einsum("bhqk,bhkd->bqhd", torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k), -1), v)


def changed_afterwards(q, k, v):
    out = by_hand(q, k, v)
    out += 1
    return out * 2


PLAIN = [(2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)]
SQUARE = [(2, 4, 6, 8)] * 3
GROUPS = [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)]
CASES = {
    "sdpa": (F.scaled_dot_product_attention, PLAIN),
    "by hand": (by_hand, PLAIN),
    "other size of values": (F.scaled_dot_product_attention, [*PLAIN[:2], (2, 4, 7, 6)]),
    "one sequence": (by_hand, [(5, 8), (7, 8), (7, 8)]),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), SQUARE),
    "softcap": (softcapped, PLAIN),
    "alibi": (alibi, PLAIN),
    "casts": (in_float32, PLAIN),
    "enable_gqa": (grouped, GROUPS),
    "repeat_interleave": (repeated, GROUPS),
    "expand": (expanded, GROUPS),
    "one key for all": (lambda q, k: by_hand(q, k.expand(2, 4, 7, 8), k.expand(2, 4, 7, 8)), [PLAIN[0], (7, 8)]),
    "masked in place": (masked_in_place, SQUARE),
    "parts of one tensor": (merged_heads, [(2, 6, 48)]),
    "self": (lambda x: F.scaled_dot_product_attention(x, x, x), [PLAIN[0]]),
    "einsum": (by_einsum, PLAIN),
    "changed afterwards": (changed_afterwards, PLAIN),
    "two layers": (lambda q, k, v: by_hand(q, by_hand(k, k, k), v), PLAIN),
    "detached": (lambda q, k, v: by_hand(q, k.detach(), v) + q, PLAIN),
}
# What the scores are made of besides: their derivatives are read, or summed over.
LEARNED = {
    "mask": (lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), [*PLAIN, (5, 7)]),
    "mask of each head and entry": (F.scaled_dot_product_attention, [*PLAIN, (2, 4, 5, 7)]),
    "bias and temperature": (learned, [*PLAIN, (4, 5, 7), (1,)]),
    "temperatures of heads": (learned, [*PLAIN, (7,), (4, 1, 1)]),
    "relative positions": (relative, [*PLAIN, (11, 4)]),
}


def gradients(function, args):
    """The result, and the gradients of a sum of its elements, each times a number of its own."""
    args = [a.detach().requires_grad_(a.requires_grad) for a in args]
    out = function(*args)
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).reshape(out.shape).to(out.dtype)
    (out * weights).sum().backward()
    return out.detach(), [a.grad for a in args]


def assert_like_float64(function, args, atol=2e-6, fast=None, like=None):
    """`like`: the function for float64."""
    wide = [a.double() if a.is_floating_point() else a for a in args]
    wide = [w.detach().requires_grad_(a.requires_grad) for w, a in zip(wide, args, strict=True)]
    expected, wanted = gradients(like or function, wide)
    out, found = gradients(fast or compiled(function), args)
    torch.testing.assert_close(out.double(), expected, rtol=atol, atol=atol)
    for one, other, arg in zip(found, wanted, args, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == arg.dtype and one.shape == arg.shape
            torch.testing.assert_close(one.double(), other, rtol=10 * atol, atol=10 * atol)


def needy(*shapes):
    return [x.requires_grad_() for x in tensors(*shapes)]


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, shapes = CASES[name]
    counts = Counts()
    assert_like_float64(function, needy(*shapes))
    assert counts.kernels >= 1


@pytest.fixture
def kept(monkeypatch):
    """How many attentions there are in the kernels that were made: in forwards that keep something, and how many
    results these have, and in derivatives that read it."""
    made = collections.OrderedDict()
    monkeypatch.setattr(dynamo_kernel, "_kernels", made)

    def counts():
        found = {"keeping": [], "derivative of what is kept": []}
        for (structure, *_), kernel in made.items():
            if structure[0] in found and not isinstance(kernel, str):
                kinds = [entry["details"].get("kind") for entry in kernel.record["entries"]]
                found[structure[0]].append((kinds.count("fused"), len(kernel.signature.results)))
        return [*found.values()]

    return counts


ONE_NUMBER, TWO_NUMBERS = [(1, 2)], [(1, 3)]


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("changed afterwards", "detached", "two layers")]
)
def test_kept(name, kept):
    function, shapes = CASES[name]
    assert_like_float64(function, needy(*shapes))
    forward, ((attentions, _),) = kept()
    assert forward == (TWO_NUMBERS if name == "alibi" else ONE_NUMBER) and attentions == 3


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned(name, kept):
    function, shapes = LEARNED[name]
    assert_like_float64(function, needy(*shapes))
    forward, ((loops, _),) = kept()
    learned = len(shapes) - 3
    assert len(forward) == 1 and loops == 3 + learned


def test_derivative_by_values_alone(kept):
    q, k, v = tensors(*PLAIN)
    assert_like_float64(by_hand, [q, k, v.requires_grad_()])
    assert kept() == [ONE_NUMBER, [(1, 1)]]


@pytest.mark.parametrize(
    "function",
    [F.scaled_dot_product_attention, functools.partial(F.scaled_dot_product_attention, is_causal=True), in_float32],
    ids=["plain", "causal", "by hand"],
)
def test_kept_in_bfloat16(function, kept):
    args = [x.detach().bfloat16().requires_grad_() for x in needy(*SQUARE)]
    assert_like_float64(function, args, atol=2e-2)
    assert kept() == [ONE_NUMBER, [(3, 3)]]


def test_kept_of_open_sizes(kept):
    function = compiled(grouped, dynamic=True)
    for queries, keys in ((5, 7), (9, 12), (3, 4)):
        assert_like_float64(grouped, needy((2, 4, queries, 8), (2, 2, keys, 8), (2, 2, keys, 8)), fast=function)
    forward, backward = kept()
    assert {results for _, results in forward} == {2} and {results for _, results in backward} == {3}


MASKS = {
    "numbers": torch.linspace(-2, 2, 35).reshape(5, 7),
    "some keys": torch.tensor([[True, False, True, True, True, False, True]]),
    "rows without keys": torch.tensor([[i > 0] * 7 for i in range(5)]),
    "rows of the lowest number": torch.where(torch.arange(5) > 0, 0, torch.finfo(torch.float32).min)[:, None].repeat(
        1, 7
    ),
    "rows of minus infinity": torch.where(torch.arange(5) > 0, 0, -math.inf)[:, None].repeat(1, 7),
}


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
    assert kept() == [ONE_NUMBER if mask.dtype == torch.bool else TWO_NUMBERS, [(3, 3)]]
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


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("name", SINKS)
def test_sinks(name, learned, kept):
    function = functools.partial(beside_sinks, **SINKS[name])
    *args, sinks = needy(*PLAIN, (4,))
    assert_like_float64(function, [*args, sinks.detach().requires_grad_(learned)])
    assert kept() == [ONE_NUMBER, [(3, 3 + learned)]]


def test_sinks_and_reshaped_probabilities(kept):
    assert_like_float64(beside_sinks_by_bmm, needy(*PLAIN, (4,)))
    assert kept() == [ONE_NUMBER, [(3, 4)]]


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


def least(kind):
    """Twice it is a number, too."""
    return torch.finfo(kind).min * 0.4


def added_twice(scores, live):
    low = torch.tensor(least(scores.dtype), dtype=scores.dtype)
    before = torch.arange(70) <= torch.arange(70)[:, None]
    return scores + torch.where(live, 0 * low, low) + torch.where(before, 0 * low, low)


def filled_and_added(scores, live):
    low = torch.tensor(least(scores.dtype), dtype=scores.dtype)
    before = torch.arange(70) <= torch.arange(70)[:, None]
    return scores.masked_fill(~before, low) + torch.zeros((), dtype=scores.dtype).masked_fill(~live, low)


def filled_with_two_numbers(scores, live):
    before = torch.arange(70) <= torch.arange(70)[:, None]
    return scores.masked_fill(~before, 2 * least(scores.dtype)).masked_fill(~live, least(scores.dtype))


def filled_with_infinity_before(scores, live):
    before = torch.arange(70) <= torch.arange(70)[:, None]
    return scores.masked_fill(~before, -torch.inf).masked_fill(~live, least(scores.dtype))


PADDING = torch.arange(70) >= torch.tensor([[0], [40]])
BY_DATA = {
    "padding before": (PADDING, lambda i, j, there: there[:, None] & (j <= i)),
    "padding behind": (PADDING.flip(-1), lambda i, j, there: there[:, None] & (j <= i)),
    "padding alone": (PADDING, lambda i, j, there: there[:, None]),
    "documents": (torch.arange(70).expand(2, -1) // 20, lambda i, j, seg: (seg[:, i] == seg[:, None]) & (j <= i)),
}


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


@pytest.mark.parametrize("needed", [[0], [1, 2]])
def test_inputs_that_need_no_gradients(needed):
    args = tensors(*PLAIN)
    assert_like_float64(by_hand, [a.requires_grad_() if i in needed else a for i, a in enumerate(args)])


def test_what_is_computed_without_gradients():
    def partly(q, k, v):
        with torch.no_grad():
            keys = k.transpose(-1, -2).contiguous()
        return torch.softmax(q @ keys, -1) @ v

    assert_like_float64(partly, needy(*PLAIN))


def under_autocast(function):
    def cast(*args):
        with torch.autocast("cpu", torch.bfloat16):
            return function(*args)

    return cast


def test_autocast():
    """The result is bfloat16, and gradients are those of float32 in what that has of digits, and of the type of the
    inputs."""
    args = needy(*PLAIN)

    fast, counts = compiled(by_hand), Counts()
    for one in (compiled(under_autocast(by_hand)), under_autocast(fast)):
        assert_like_float64(by_hand, args, atol=2e-2, fast=one)
        assert one(*args).dtype == torch.bfloat16
    assert counts.kernels >= 2


def by_einsum_of_probabilities(q, k, v):
    """In what autocast leaves alone, einsum's own products are cast."""
    p = torch.softmax(q.float() @ k.float().mT, -1).to(v.dtype)
    return torch.einsum("bhqk,bhkd->bhqd", p, v)


def sharing_keys_without_softmax(q, k, v):
    q, k, v = q.unflatten(1, (2, 2)), k.unsqueeze(2), v.unsqueeze(2)
    return (torch.exp(torch.tanh(q @ k.mT * 0.3)) / 7 @ v).flatten(1, 2)


def by_einsum_without_softmax(q, k, v):
    """Of one key it is no sum, and is not cast."""
    return torch.einsum("bhqk,bhkd->bhqd", torch.relu(q @ k.mT).to(v.dtype).square(), v)


@pytest.mark.parametrize(
    "function, shapes",
    [
        (by_einsum_of_probabilities, PLAIN),
        (sharing_keys_without_softmax, GROUPS),
        (by_einsum_without_softmax, PLAIN),
        (by_einsum_without_softmax, [PLAIN[0], (2, 4, 1, 8), (2, 4, 1, 8)]),
    ],
)
def test_what_is_called_under_autocast(function, shapes):
    args, cast = needy(*shapes), under_autocast(compiled(function))
    assert_like_float64(function, args, atol=2e-2, fast=cast)
    assert cast(*args).dtype == under_autocast(function)(*args).dtype


@pytest.mark.parametrize("weights", [F.silu, F.mish, F.gelu, F.softplus, F.hardswish, F.elu, F.logsigmoid, torch.sin])
@pytest.mark.parametrize("normalised", [False, True])
def test_activations_of_scores(weights, normalised):
    """HSTU has SiLU in place of the softmax."""

    def attention(q, k, v):
        p = weights(q @ k.mT * 0.3)
        return (p.softmax(-1) if normalised else p / k.shape[-2]) @ v

    counts = Counts()
    assert_like_float64(attention, needy(*PLAIN))
    assert counts.left == 0 < counts.found, counts.reasons


def test_bfloat16():
    args = [x.detach().bfloat16().requires_grad_() for x in needy(*PLAIN)]
    assert_like_float64(by_hand, args, atol=2e-2)


def test_open_sizes():
    function, counts = compiled(by_hand, dynamic=True), Counts()
    for queries, keys in ((5, 7), (9, 12), (12, 12), (3, 4)):
        assert_like_float64(by_hand, needy((2, 4, queries, 8), (2, 4, keys, 8), (2, 4, keys, 8)), fast=function)
    assert counts.compiled <= 5  # one, and four of its derivative


def test_numbers_among_inputs():
    def scaled(q, k, v, position):
        return torch.softmax(q @ k.mT + position * torch.arange(k.shape[2]), -1) @ v

    fast = compiled(scaled, dynamic=True)
    for position in (3, 5, 8):
        one, like = (functools.partial(f, position=position) for f in (fast, scaled))
        assert_like_float64(scaled, needy(*PLAIN), fast=one, like=like)


def test_kernels_are_shared():
    counts = Counts()
    assert_like_float64(lambda q, k, v: by_hand(by_hand(q, k, v), k, v), needy(*PLAIN))
    assert_like_float64(lambda q, k, v: by_hand(by_hand(by_hand(q, k, v), k, v), k, v), needy(*PLAIN))
    assert counts.cache_hits >= 4


def test_inputs_whose_elements_share_memory():
    keys, values = (x.expand(2, 4, 7, 8) for x in tensors((1, 1, 7, 8), (2, 1, 1, 8)))
    assert_like_float64(by_hand, [*needy((2, 4, 5, 8)), keys.requires_grad_(), values.requires_grad_()])


def test_retained_graphs_accumulate():
    args = needy(*PLAIN)
    out = compiled(by_hand)(*args)
    out.sum().backward(retain_graph=True)
    first = [a.grad.clone() for a in args]
    out.sum().backward()
    for one, arg in zip(first, args, strict=True):
        torch.testing.assert_close(arg.grad, 2 * one)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.sum().backward()


def test_derivatives_have_no_derivative():
    args = needy(*PLAIN)
    (gradient,) = torch.autograd.grad(compiled(by_hand)(*args).square().sum(), args[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_inputs_changed_before_the_gradients():
    args = needy(*PLAIN)
    keys = args[1] * 1
    out = compiled(by_hand)(args[0], keys, args[2])
    keys.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_results_changed_before_the_gradients(kept):
    """As torch has it: scaled_dot_product_attention keeps its result, too."""
    for function in (F.scaled_dot_product_attention, compiled(F.scaled_dot_product_attention)):
        out = function(*needy(*PLAIN))
        out += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
    assert_like_float64(changed_afterwards, needy(*PLAIN))
    assert kept() == [ONE_NUMBER, [(3, 3)]]  # of the former


def test_nothing_of_the_size_of_the_scores_is_kept():
    kept = []
    args = needy((1, 1, 64, 4), (1, 1, 64, 4), (1, 1, 64, 4))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        compiled(by_hand)(*args).sum().backward()
    assert kept and max(kept) == 256


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_around_it(reentrant):
    fast, counts = compiled(by_hand), Counts()

    def checkpointed(*args):
        return torch.utils.checkpoint.checkpoint(fast, *args, use_reentrant=reentrant)

    assert_like_float64(by_hand, needy(*PLAIN), fast=checkpointed)
    assert counts.kernels >= 1


@pytest.mark.parametrize("rest", ["eager", "inductor"])
def test_checkpoints_within_it(rest):
    """Nothing but a layer's inputs is kept until its gradients are computed, by its kernels once more."""

    def layer(x, w):
        return torch.relu(merged_heads(torch.sin(x @ w))) + 1

    def model(x, w, v):
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(layer, x, w, use_reentrant=False) @ v
        return x

    kept, counts = [], Counts()
    fast = compiled(model, options={"rest": rest})
    args = [(0.3 * x).detach().requires_grad_() for x in needy((2, 6, 12), (12, 48), (16, 12))]
    assert_like_float64(model, args, fast=fast)
    assert counts.kernels >= 2
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        out = fast(*args)
    assert kept and max(kept) <= 12 * 48, "q, k, v of 2·6·48, or more"  # by what is outside of the checkpoints
    assert out.grad_fn is not None
    with torch.no_grad():
        torch.testing.assert_close(fast(*args), out)


def test_checkpoints_that_stay_with_torch():
    def layer(x, scale):
        scale.mul_(1)
        return F.scaled_dot_product_attention(x, x, x) * scale

    (x, scale), counts = tensors((1, 2, 4, 8), (8,)), Counts()
    with pytest.warns(UserWarning, match="writes to what it is given"):
        compiled(lambda x: torch.utils.checkpoint.checkpoint(layer, x, scale, use_reentrant=False))(x.requires_grad_())
    assert counts.compiled == 0


def test_another_thread():
    args, found = needy(*PLAIN), []
    out = compiled(by_hand)(*args)
    thread = threading.Thread(target=lambda: found.extend(torch.autograd.grad(out.sum(), args)))
    thread.start()
    thread.join()
    for one, other in zip(found, torch.autograd.grad(by_hand(*args).sum(), args), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_with_inductor():
    def layer(x, w):
        y = torch.relu(x @ w)
        return (merged_heads(y) * 2).sin()

    fast, counts = compiled(layer, options={"rest": "inductor"}), Counts()
    assert_like_float64(layer, needy((2, 6, 12), (12, 48)), fast=fast, atol=1e-5)
    assert counts.kernels >= 1


def test_without_gradients_nothing_is_kept():
    args, fast = needy(*PLAIN), compiled(by_hand)
    with torch.no_grad():
        assert fast(*args).grad_fn is None
    assert fast(*(a.detach() for a in args)).grad_fn is None
    assert fast(*args).grad_fn is not None


class Block(torch.nn.Module):
    """A layer of a language model: causal, its 4 heads sharing keys and values by twos."""

    def __init__(self):
        super().__init__()
        self.norm, self.other = torch.nn.LayerNorm(32), torch.nn.RMSNorm(32)
        self.qkv, self.out = torch.nn.Linear(32, 64, bias=False), torch.nn.Linear(32, 32)
        self.up, self.down = torch.nn.Linear(32, 48), torch.nn.Linear(48, 32)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(self.norm(x)).split([32, 16, 16], -1)
        q, k, v = (part.view(batch, length, -1, 8).transpose(1, 2) for part in parts)
        k, v = (y[:, :, None].expand(batch, 2, 2, length, 8).reshape(batch, 4, length, 8) for y in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, 32))
        return x + self.down(F.gelu(self.up(self.other(x))))


class LanguageModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(20, 32), torch.nn.Linear(32, 20)
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 48, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embedding(tokens), src_key_padding_mask=tokens == 0).square().mean()


@pytest.mark.parametrize("kind", [LanguageModel, Encoder])
def test_steps_of_training(kind):
    torch.manual_seed(0)
    model, counts = kind(), Counts()
    wide = copy.deepcopy(model).double()
    tokens = torch.randint(0, 20, (2, 9))
    fast, losses = compiled(model), []
    for run, held in ((fast, model), (wide, wide)):
        optimizer = torch.optim.SGD(held.parameters(), lr=0.1)
        losses.append([])
        for _ in range(3):
            optimizer.zero_grad()
            loss = run(tokens)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert counts.kernels >= 1
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0][-1] < losses[0][0]
    for one, other in zip(model.parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_derivatives_without_a_kernel_leave_attention_to_torch(monkeypatch):
    def refused(*arguments):
        return "no lowering"

    monkeypatch.setattr(derivatives_of_kernels, "_kernel", refused)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    counts, fast = Counts(), compiled(by_hand)
    with pytest.warns(UserWarning, match="attention is left to torch: of its derivative: no lowering"):
        assert_like_float64(by_hand, needy(*PLAIN), fast=fast)
    assert counts.reasons == ["of its derivative: no lowering"]
    with torch.no_grad():
        fast(*tensors(*PLAIN))
    assert counts.kernels >= 2


def test_an_internal_error_leaves_attention_to_torch(monkeypatch, capfd):
    def broken(*arguments):
        raise Bug("pass 'cse' crashed", "builtin.module(cse)", "module {}")

    monkeypatch.setattr(derivatives_of_kernels, "_kernel", broken)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    with pytest.warns(
        UserWarning, match="left to torch: of its derivative: an internal error of attn_opt: pass 'cse' crash"
    ):
        assert_like_float64(by_hand, needy(*PLAIN))
    assert "--pass-pipeline='builtin.module(cse)'" in capfd.readouterr().err


def test_ops_that_torch_cannot_differentiate(monkeypatch):
    def broken(*arguments):
        raise RuntimeError("no formula")

    monkeypatch.setattr(torch.autograd, "grad", broken)
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())
    with pytest.warns(UserWarning, match="torch cannot write its derivative down"):
        assert_like_float64(by_hand, needy(*PLAIN))
