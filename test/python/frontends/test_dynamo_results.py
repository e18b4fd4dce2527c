"""Attention whose scores or probabilities are read elsewhere too, under torch.compile(…, backend="attn_opt"): they are
further results of its kernel."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel  # noqa: E402
from attn_opt.compiler.frontends.torch import dropout  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import close, tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error
SHAPES = [(2, 3, 33, 16), (2, 3, 41, 16), (2, 3, 41, 16)]


def probabilities(q, k, v):
    return (q @ k.mT / 4).softmax(-1)


def all_of_them(q, k, v):
    p = probabilities(q, k, v)
    return p @ v, p


def mean_over_heads(q, k, v):
    """What reads the mean stands before the second matmul."""
    p = probabilities(q, k, v)
    mean = p.mean(1) * 2
    return p @ v + 1, mean, mean.sum()


def sum_over_queries(q, k, v):
    p = probabilities(q, k, v)
    return p @ v, p.sum(-2)


def scores(q, k, v):
    s = q @ k.mT / 4
    return s.softmax(-1) @ v, s


def both(q, k, v):
    s = q @ k.mT / 4
    p = s.softmax(-1)
    return p @ v, s, p.transpose(-1, -2)


def entropy(q, k, v):
    p = probabilities(q, k, v)
    return p @ v, -(p * (p + 1e-9).log()).sum(-1)


def detached(q, k, v):
    p = probabilities(q, k, v)
    return p @ v, p.detach().mean(1)


def of_two_values(q, k, v):
    """The second product reads them from memory."""
    p = probabilities(q, k, v)
    return p @ v, p @ (v * 2)


def seen_before_they_change(q, k, v):
    s = q @ k.mT
    first = s[0]
    s += 1 / (1 + s.shape[-1])
    return s.softmax(-1) @ v, first


FUNCTIONS = [
    *(all_of_them, mean_over_heads, sum_over_queries, scores, both, entropy, detached, of_two_values),
    seen_before_they_change,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_results(function):
    args, counts = tensors(*SHAPES), Counts()
    for found, right in zip(compiled(function)(*args), function(*(a.double() for a in args)), strict=True):
        close(found, right)
    assert counts.kernels == 1 and not counts.left


def test_any_sizes():
    args = tensors(*SHAPES)
    for found, right in zip(compiled(both, dynamic=True)(*args), both(*(a.double() for a in args)), strict=True):
        close(found, right)


def gradients(function, args, chosen):
    with torch.enable_grad():
        results = function(*args)
        return torch.autograd.grad(sum(results[i].cos().sum() for i in chosen), args, allow_unused=True)


def told(chosen):
    """Torch's way, for gradients of other results, is told of."""
    dynamo_kernel._warned.clear()
    way = pytest.warns(UserWarning, match="gradients come to its scores or probabilities")
    return contextlib.nullcontext() if chosen == [0] else way


@pytest.mark.parametrize("chosen", [[0], [0, 1], [1]])
@pytest.mark.parametrize("function", [all_of_them, mean_over_heads, scores])
def test_gradients(function, chosen):
    """By the first result a kernel computes them, by others torch."""
    args = [t.requires_grad_() for t in tensors(*SHAPES)]
    wide = [a.detach().double().requires_grad_() for a in args]
    counts = Counts()
    with told(chosen):
        found = gradients(compiled(function), args, chosen)
    right = gradients(function, wide, chosen)
    assert counts.kernels >= 2
    for one, other in zip(found, right, strict=True):
        if one is not None or other is not None:
            other = torch.zeros_like(one, dtype=torch.float64) if other is None else other
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_what_is_detached_has_no_gradient():
    args = [t.requires_grad_() for t in tensors(*SHAPES)]
    with torch.enable_grad():
        out, mean = compiled(detached)(*args)
    assert out.requires_grad and not mean.requires_grad


def test_a_mode_that_ends_before_the_values():
    """What is read without gradients cannot be moved behind."""

    def function(q, k, v):
        p = probabilities(q, k, v)
        with torch.no_grad():
            mean = p.mean(1) * 2
        return p @ v, mean

    dynamo_kernel._warned.clear()
    args = [t.requires_grad_() for t in tensors(*SHAPES)]
    with torch.enable_grad(), pytest.warns(UserWarning, match="or modes change"):
        out, mean = compiled(function)(*args)
    assert out.requires_grad and not mean.requires_grad
    close(mean.detach(), function(*(a.detach().double() for a in args))[1])


def test_gradients_under_autocast():
    """What torch computes again is cast as it was."""
    args = [t.requires_grad_() for t in tensors(*SHAPES)]
    with torch.autocast("cpu", torch.bfloat16), told([0, 1]):
        found = gradients(compiled(all_of_them), args, [0, 1])
    right = gradients(all_of_them, [a.detach().double().requires_grad_() for a in args], [0, 1])
    for one, other in zip(found, right, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=0, atol=3e-2 * other.abs().max().item())


@pytest.mark.parametrize("chosen", [[0], [0, 1]])
def test_a_dropout_has_one_mask(chosen):
    """Torch, which computes the gradients by the probabilities, has that of the kernel."""

    def function(q, k, v):
        p = F.dropout(probabilities(q, k, v), 0.3)
        return p @ v, p

    args = [t.requires_grad_() for t in tensors(*SHAPES)]
    torch.manual_seed(1)
    with told(chosen):
        found = gradients(compiled(function), args, chosen)
    torch.manual_seed(1)
    seed = torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32)

    def seeded(q, k, v):
        p = dropout.dropped(probabilities(q, k, v), 0.3, seed)
        return p @ v, p

    right = gradients(seeded, [a.detach().double().requires_grad_() for a in args], chosen)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_multi_head_attention(average, training):
    """need_weights is the default of torch."""
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).train(training)
    (x,), counts = tensors((2, 19, 32)), Counts()

    def function(x):
        return layer(x, x, x, average_attn_weights=average)

    with torch.set_grad_enabled(training):
        found, right = compiled(function)(x), function(x)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert counts.kernels >= 1 and not counts.left
