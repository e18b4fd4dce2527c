"""Active dropout between softmax and values under torch.compile(…, backend="attn_opt"): fused, from torch's seeds."""

import functools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.torch import dropout  # noqa: E402
from dynamo_harness import Counts, Drawn, attention, compiled, fresh  # noqa: E402, F401
from torch_harness import TOLERANCE, tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error
P = 0.3


@pytest.fixture(autouse=True)
def with_gradients(fresh):  # noqa: F811
    with torch.enable_grad():
        yield


def by_hand(q, k, v):
    return F.dropout((q @ k.mT / 4).softmax(-1), P, True) @ v


def in_place(q, k, v):
    return F.dropout((q @ k.mT / 4).softmax(-1), p=P, inplace=True) @ v


def of_aten(q, k, v):
    return torch.dropout_((q @ k.mT / 4).softmax(-1), P, True) @ v


def in_float32(q, k, v):
    return F.dropout((q @ k.mT / 4).float().softmax(-1), P).to(v.dtype) @ v


def twice(q, k, v):
    return by_hand(q, k, by_hand(k, k, v))


def weighed(q, k, v, weights):
    """A gate of each score, and weights that are learned."""
    scores = q @ k.mT / 4
    return (F.dropout(scores.softmax(-1), P) * torch.sigmoid(scores) * weights) @ v


def reshaped(q, k, v):
    b, h, n, m = *q.shape[:3], k.shape[2]
    p = F.dropout((q @ k.mT / 4).softmax(-1), P).view(b * h, n, m)
    return torch.bmm(p, v.reshape(b * h, m, -1)).view(b, h, n, -1)


def sdpa(**keywords):
    return functools.partial(F.scaled_dot_product_attention, dropout_p=P, **keywords)


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask > 0, dropout_p=P)


CROSS = [(2, 4, 37, 16), (2, 4, 53, 16), (2, 4, 53, 16)]
SQUARE = [(2, 3, 67, 16)] * 3
CASES = {
    "sdpa": (sdpa(), CROSS),
    "causal": (sdpa(is_causal=True), SQUARE),
    "grouped": (sdpa(enable_gqa=True), [(2, 4, 37, 16), (2, 2, 53, 16), (2, 2, 53, 16)]),
    "mask": (masked, [*CROSS, (37, 53)]),
    "by hand": (by_hand, CROSS),
    "one sequence": (by_hand, [(37, 16), (53, 16), (53, 16)]),
    "one query": (by_hand, [(2, 4, 1, 16), *CROSS[1:]]),
    "in place": (in_place, CROSS),
    "of aten": (of_aten, CROSS),
    "in float32": (in_float32, CROSS),
    "two layers": (twice, [(2, 3, 41, 16)] * 3),
    "weights that are learned": (weighed, [*CROSS, (53,)]),
    "reshaped": (reshaped, CROSS),
}


def needy(shapes, dtype=torch.float32):
    return [t.requires_grad_() for t in tensors(*shapes, dtype=dtype)]


def run(function, args):
    """The result, and its gradients, of seeds that follow from one of torch."""
    torch.manual_seed(3)
    out = function(*args)
    (one,) = tensors(out.shape, dtype=torch.float64)
    return [out, *torch.autograd.grad(out, args, one.to(out.dtype), allow_unused=True, materialize_grads=True)]


def expected(function, args):
    with Drawn():
        return run(function, [a.detach().double().requires_grad_() for a in args])


def assert_close(found, right, tolerance):
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("name, dynamic", [*((name, False) for name in CASES), ("causal", True)])
def test_as_of_the_same_seeds(name, dynamic):
    function, shapes = CASES[name]
    args, counts = needy(shapes), Counts()
    found = run(compiled(function, dynamic=dynamic), args)
    assert counts.kernels >= 2  # of the derivative, too
    assert_close(found, expected(function, args), TOLERANCE[torch.float32])


HALVES = [(name, dtype) for name in ("causal", "in float32") for dtype in (torch.float16, torch.bfloat16)]


@pytest.mark.parametrize("name, dtype", [*HALVES, ("by hand", torch.float64)])
def test_of_other_types(name, dtype):
    function, shapes = CASES[name]
    args = needy(shapes, dtype)
    assert_close(run(compiled(function), args), expected(function, args), 2 * TOLERANCE[dtype])


def test_a_module():
    """MultiheadAttention in training mode is written out first."""
    layer = torch.nn.MultiheadAttention(32, 4, dropout=P, batch_first=True)
    x, counts = needy([(2, 19, 32)])[0], Counts()
    torch.manual_seed(3)
    found = compiled(lambda x: layer(x, x, x, need_weights=False)[0])(x)

    def right(x):
        q, k, v = F.linear(x, layer.in_proj_weight.double(), layer.in_proj_bias.double()).chunk(3, -1)
        q, k, v = (y.view(2, 19, 4, 8).transpose(1, 2) for y in (q, k, v))
        out = attention(q, k, v, dropout_p=P).transpose(1, 2).reshape(2, 19, 32)
        return F.linear(out, layer.out_proj.weight.double(), layer.out_proj.bias.double())

    assert counts.kernels >= 2
    torch.testing.assert_close(found.double(), expected(right, [x])[0], rtol=0, atol=1e-5)


def test_a_seed_repeats_it():
    args, fast = needy(CROSS), compiled(by_hand)
    one, again = run(fast, args), run(fast, args)
    for a, b in zip(one, again, strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one[0], fast(*args))


def test_a_checkpoint_draws_the_same_again():
    args = needy(CROSS)

    def kept(*args):
        return torch.utils.checkpoint.checkpoint(by_hand, *args, use_reentrant=False)

    assert_close(run(compiled(kept), args), expected(by_hand, args), 1e-5)


@torch._inductor.config.patch(fallback_random=True)  # it draws as torch does then
def test_with_inductor():
    def layer(x):
        q, k, v = (x.sin() * s for s in (1, 2, 3))
        return by_hand(q, k, v).cos()

    args = needy(CROSS[:1])
    assert_close(run(compiled(layer, options={"rest": "inductor"}), args), expected(layer, args), 1e-5)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_of_nothing_and_of_all(p):
    args = needy(CROSS)
    out = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=p))(*args)
    right = F.scaled_dot_product_attention(*args) if p == 0 else torch.zeros_like(out)
    torch.testing.assert_close(out, right, rtol=1e-5, atol=1e-5)


def test_what_is_small_is_torchs():
    args, counts = needy(CROSS), Counts()
    out = compiled(by_hand, options={"min_flops": 10**12})(*args)
    assert counts.kernels == 0 and (out.isfinite()).all()
    share = (compiled(lambda p: F.dropout(p, P))(torch.ones(100, 100)) == 0).double().mean()
    assert abs(share - P) < 0.03


def spread(sample):
    """How far the mean of numbers of mean 0 and variance 1 is from 0, in standard deviations of it."""
    return abs(sample.mean().item()) * math.sqrt(sample.numel())


def mask(p, seed, shape=(2, 4, 256, 320)):
    kept = dropout.is_kept(torch.tensor(seed, dtype=torch.int32), shape, p).double()
    return (kept - (1 - p)) / math.sqrt(p * (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_are_without_a_pattern(p):
    """How many are kept, and whether two, or four at the corners of a rectangle, are so together, at all distances of a
    block of elements that share their bits, and beyond. 5 standard deviations are seen once in 1.7 million times."""
    one, other = mask(p, (1, 2)), mask(p, (-3, 5))
    samples = [one, one * other, one[0] * one[1], one[:, 1:] * one[:, :-1]]
    for rows in (0, 1, 7, 8, 9, 16, 64):
        for columns in (0, 1, 7, 8, 9, 16, 64, 256):
            if rows or columns:
                last_rows, last_columns = 256 - rows, 320 - columns
                corners = (slice(rows, None), slice(0, last_rows)), (slice(columns, None), slice(0, last_columns))
                (below, above), (right, left) = corners
                samples += [
                    one[..., below, right] * one[..., above, left],
                    one[..., below, left] * one[..., above, right],
                ]
                if rows and columns:
                    samples.append(samples[-1] * samples[-2])
    assert max(map(spread, samples)) < 5


def test_seeds_that_are_close_have_nothing_in_common():
    for near in ((1, 3), (2, 2), (0, 2), (1, 2 + 2**16)):
        assert spread(mask(0.5, (1, 2)) * mask(0.5, near)) < 5
