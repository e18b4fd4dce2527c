"""Masks of finite numbers on GPUs: −∞ where each row surely has a key, else the number that they are."""

import pytest

torch = pytest.importorskip("torch")

from attn_opt.compiler import compile  # noqa: E402
from gpu_modules import run_module  # noqa: E402

Q, K, D = 96, 160, 16


def places(q, k):
    return torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])


def attention(modify):
    def function(q, k, v, *others):
        scores = (q @ k.mT) * q.shape[-1] ** -0.5
        return modify(scores, *places(q, k), *others).softmax(-1) @ v

    return function


INFINITE = {
    "causal": lambda s, i, j: s.masked_fill(j > i, -1e9),
    "causal to the last key": lambda s, i, j: s.masked_fill(j > i + K - Q, -1e9),
    "the least number": lambda s, i, j: torch.where(j <= i, s, torch.finfo(s.dtype).min),
    "that of f16": lambda s, i, j: s.masked_fill(j > i, -65504.0),
    "window": lambda s, i, j: s.masked_fill((j > i) | (j < i - 20), -1e9),
    "window to the last key": lambda s, i, j: s.masked_fill((j > i + K - Q) | (j < i + K - Q - 20), -1e9),
    "two masks": lambda s, i, j: s.masked_fill(j > i, -1e9).masked_fill(j < i - 20, torch.finfo(s.dtype).min),
    "behind −∞": lambda s, i, j: s.masked_fill(j > i, -1e9).masked_fill(j < i - 20, -torch.inf),
    "later keys": lambda s, i, j: s.masked_fill(j < i, -1e9),
    "before the scale": lambda s, i, j: s.masked_fill(j > i, -1e9) * 0.5,
    "softcap": lambda s, i, j: (torch.tanh(s / 20) * 20).masked_fill(j > i, -1e9),
    "ALiBi": lambda s, i, j: (s - 0.1 * (i - j).abs()).masked_fill(j > i, -1e9),
    "added": lambda s, i, j: s + torch.where(j <= i, 0.0, -1e9),
    "the least number, added": lambda s, i, j: s + torch.where(j <= i, 0.0, torch.finfo(s.dtype).min),
}
IN_SOME_ROWS = {
    "rows without a key": (lambda s, i, j: s.masked_fill(j > i - 5, -1e9), ()),
    "padding": (lambda s, i, j, there: s.masked_fill(~there | (j > i), -1e9), (torch.bool,)),
    "added": (lambda s, i, j, there: s + torch.where(there & (j <= i), 0.0, -1e9), (torch.bool,)),
}
FINITE = {
    "too high": (lambda s, i, j: s.masked_fill(j > i, -1e4), ()),
    "a scale that makes it so": (lambda s, i, j: s.masked_fill(j > i, -65504.0) * 0.125, ()),
    "a bias, which may be −∞": (lambda s, i, j, bias: (s + bias).masked_fill(j > i, -1e9), (torch.float32,)),
    "a cap behind it": (lambda s, i, j: torch.tanh(s.masked_fill(j > i, -1e9) / 20) * 20, ()),
    "a distance from it": (lambda s, i, j: s.masked_fill(j > i, -1e9) - 0.1 * (i - j).abs(), ()),
    "by the scores": (lambda s, i, j: torch.where((s > -1) & (j <= i), s, -1e9), ()),
    "one number for another": (lambda s, i, j: torch.where(j > i, torch.where(j > 2 * i, 0.0, s), -1e9), ()),
}


def inputs(kinds=()):
    torch.manual_seed(0)
    others = [torch.rand(K) > 0.5 if kind == torch.bool else torch.randn(K) for kind in kinds]
    return [torch.randn(2, n, D) for n in (Q, K, K)] + others


def told(function, args):
    """What `infinite-masks` says, behind "of a mask for −∞"."""
    explained = compile(function, tuple(args), target="nvidia", arch="sm_90a").explain()
    return [line.partition("of a mask for −∞")[2] for line in explained.splitlines() if "of a mask for −∞" in line]


def is_skipping(explained):
    return any(told in explained for told in ("skips dead tiles", "lists the tiles that are not dead"))


@pytest.mark.parametrize("name", INFINITE)
def test_each_row_has_a_key(name):
    assert told(attention(INFINITE[name]), inputs()) == [": each row has a live key"]


@pytest.mark.parametrize("name", IN_SOME_ROWS)
def test_some_rows_have_a_key(name):
    modify, kinds = IN_SOME_ROWS[name]
    assert told(attention(modify), inputs(kinds)) == [" in rows that have a live key"]


@pytest.mark.parametrize("name", FINITE)
def test_what_may_count_stays(name):
    modify, kinds = FINITE[name]
    assert not told(attention(modify), inputs(kinds))


def test_scores_that_others_read_stay():
    """They are computed apart; the mask of those that the attention has is −∞."""

    def function(q, k, v):
        i, j = places(q, k)
        scores = (q @ k.mT).masked_fill(j > i, -1e9)
        return scores.softmax(-1) @ v, scores

    args = inputs()
    assert told(function, args) == [": each row has a live key"]
    _, scores = compile(function, args)(*args)
    expected = function(*(x.double() for x in args))[1]
    torch.testing.assert_close(torch.as_tensor(scores).double(), expected, rtol=1e-5, atol=1e-5)


def shorter(s, i, j, length):
    return s.masked_fill((j >= length[:, None])[:, None, None], -1e9)


def padded(s, i, j, there):
    return s.masked_fill(~there[:, None, None], -1e9)


LENGTHS = [torch.tensor(n) for n in ([130, 7], [0, 200], [1, 64])]
THERE = [torch.arange(200) < n[:, None] for n in LENGTHS] + [torch.arange(200) >= n[:, None] for n in LENGTHS]
SEGMENTS = [torch.arange(200).expand(2, -1) // n for n in (30, 100, 1)]
SOME = torch.rand(2, 1, 150, 200, generator=torch.Generator().manual_seed(0)) > 0.9
KNOWN_AT_RUN_TIME = {
    "lengths": (shorter, LENGTHS),
    "lengths, causal": (lambda s, i, j, n: shorter(s, i, j, n).masked_fill(j > i, -1e9), LENGTHS),
    "padding": (padded, THERE),
    "padding, causal": (lambda s, i, j, there: padded(s, i, j, there).masked_fill(j > i, -1e9), THERE),
    "padding, by another number": (lambda s, i, j, there: padded(s, i, j, there).masked_fill(j > i, -1e38), THERE),
    "padding, added": (
        lambda s, i, j, there: s + torch.where(there[:, None, None] & (j <= i), 0.0, -6e4).to(s.dtype),
        THERE,
    ),
    "of documents": (lambda s, i, j, seg: s.masked_fill(seg[:, None, i] != seg[:, None, None], -3e38), SEGMENTS),
    "of queries and keys": (lambda s, i, j, live: s.masked_fill(~live, -1e9), [SOME, SOME & (torch.arange(200) > 150)]),
}


@pytest.mark.parametrize("options", [{}, {"parts": 3}, {"arch": "sm_80"}], ids=str)
@pytest.mark.parametrize("name", KNOWN_AT_RUN_TIME)
def test_tiles_are_skipped_where_all_rows_have_a_key(name, options):
    """And computed where one may have none: its result is the mean of all values."""
    modify, masks = KNOWN_AT_RUN_TIME[name]
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 16, dtype=torch.float16) for n in (150, 200, 200))
    arch = options.get("arch", "sm_90a")
    kernel = compile(attention(modify), (q, k, v, masks[0]), target="nvidia", arch=arch, must_fuse=True)
    assert is_skipping(kernel.explain()) or name == "of queries and keys"  # which too few heads share
    for mask in masks:
        (found,) = run_module(kernel.ir("fused"), [x.numpy() for x in (q, k, v, mask)], is_fused=True, **options)
        right = attention(modify)(q.double(), k.double(), v.double(), mask)
        assert (torch.from_numpy(found).double() - right).abs().max() < 4e-3


def later(s, i, j, length):
    return s.masked_fill((j < i) | (length.amax() > 250), -1e9)  # no length is


@pytest.mark.parametrize("options", [{}, {"parts": 3}], ids=str)
@pytest.mark.parametrize("keys", [slice(100, None), slice(None, 200), slice(50, 250)], ids=str)
@pytest.mark.parametrize("lengths", [[0, 200], [130, 0], [1, 64]], ids=str)
@pytest.mark.parametrize("modify", [shorter, later])
def test_keys_that_are_a_part_of_a_cache(modify, keys, lengths, options):
    """The first key is the first of the part, wherever that stands; rows beyond the last key have none."""

    def function(q, k, v, length):
        return attention(modify)(q, k[:, :, keys], v[:, :, keys], length)

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 16, dtype=torch.float16) for n in (230, 300, 300))
    args = (q, k, v, torch.tensor(lengths))
    kernel = compile(function, args, target="nvidia", arch="sm_90a", must_fuse=True)
    (found,) = run_module(kernel.ir("fused"), [x.numpy() for x in args], is_fused=True, **options)
    right = function(*(x.double() for x in args[:3]), args[3])
    assert (torch.from_numpy(found).double() - right).abs().max() < 4e-3


@pytest.mark.parametrize("there", [torch.arange(150) >= torch.tensor([[0], [70]]), torch.arange(150) < 40])
def test_derivatives(there):
    """Probabilities of rows that have no live key are those of all keys; others tell which tiles are dead."""
    jax = pytest.importorskip("jax", reason="the extra 'jax' is not installed")

    def scores(q, k, there):
        live = there[..., None, None, :] & (jax.numpy.arange(150)[:, None] >= jax.numpy.arange(150))
        return jax.numpy.where(live, q @ k.mT, -1e30)

    def gradients(q, k, v, g, there):
        return jax.vjp(lambda q, k, v: jax.nn.softmax(scores(q, k, there)) @ v, q, k, v)[1](g)

    wide = torch.randn(4, 2, 2, 150, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).numpy()
    args = [*wide.astype("float32"), there.numpy()]
    kernel = compile(gradients, tuple(args), target="nvidia", arch="sm_90a", must_fuse=True)
    assert sum(is_skipping(line) for line in kernel.explain().splitlines()) == 3
    with jax.enable_x64(True):
        wanted = gradients(*wide, there.numpy())
    for found, right in zip(run_module(kernel.ir("fused"), args, is_fused=True), wanted, strict=True):
        assert abs(found - right).max() < 1e-2 * abs(right).max()


@pytest.mark.parametrize("number", [-1e9, -1e30, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("added", [False, True])
def test_gradients_where_a_row_has_no_key(number, added):
    """All of its probabilities are the same, whatever the number becomes on the way to the maximum that is kept."""
    torch.compiler.reset()

    def masked(s, i, j, there):
        live = there[:, None, None] & (j <= i)
        return s + torch.where(live, 0.0, number) if added else torch.where(live, s, number)

    def exact(s, i, j, there):
        """Of scores that the number leaves nothing of, of which it has the gradients, where it is added."""
        left = (s - s.detach()) if added else 0.0
        return torch.where(there[:, None, None] & (j <= i), s, number + left)

    torch.manual_seed(0)
    there = torch.arange(70) >= torch.tensor([9, 70])[:, None]  # padding from the left, and nothing else
    inputs = [torch.randn(2, 3, n, 20).requires_grad_() for n in (70, 70, 70)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    found = torch.compile(attention(masked), backend="attn_opt")(*inputs, there)
    right = attention(exact)(*wide, there)
    gradient = torch.randn(found.shape)
    found.backward(gradient)
    right.backward(gradient.double())
    pairs = [(found, right), *((x.grad, y.grad) for x, y in zip(inputs, wide, strict=True))]
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
