"""Attention without a softmax in torch.compile: of several heads, whatever makes weights of the scores."""

import math

import pytest
from attn_opt.compiler import stats

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
import torch.nn.functional as F  # noqa: E402

QKV = [torch.randn(2, 3, n, 16, generator=torch.Generator().manual_seed(n)) for n in (21, 34, 34)]


def distance(q, k):
    return torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])


def retention(q, k, v):
    decay = torch.where(distance(q, k) >= 0, 0.9 ** distance(q, k).clamp(min=0).float(), 0)
    return (q @ k.mT * decay) @ v


def linear_and_causal(q, k, v):
    weights = torch.tril((F.elu(q) + 1) @ (F.elu(k) + 1).mT)
    return (weights @ v) / weights.sum(-1, keepdim=True)


WEIGHTS = {
    "tanh": torch.tanh,
    "silu": lambda s: F.silu(s) / s.shape[-1],
    "laplace": lambda s: 0.5 + 0.5 * torch.erf((s - 0.7) / (0.28 * math.sqrt(2))),
    "threshold": lambda s: (s > 0.5).to(s.dtype),
    "softplus": lambda s: F.softplus(s) / F.softplus(s).sum(-1, keepdim=True),
    "polynomial": lambda s: (s + 1) ** 2,
    "masked": lambda s: s.masked_fill(s < 0, 0),
    "cube": lambda s: (s / 2) ** 3,
    "product with itself": lambda s: s * s,
    "in place": lambda s: s.tril_(),
    "reciprocal": lambda s: 1 / (s.abs() + 1),
    **{f.__name__: f for f in (F.leaky_relu, F.hardswish, F.logsigmoid, F.softsign, torch.sin, torch.asinh)},
    "rsqrt": lambda s: (s.square() + 1).rsqrt(),
}
FOUND = {
    "retention": retention,
    "linear and causal": linear_and_causal,
    **{name: lambda q, k, v, weights=weights: weights(q @ k.mT / 4) @ v for name, weights in WEIGHTS.items()},
}
LEFT = {
    "multiples": lambda q, k, v: (q @ k.mT / 4) @ v,
    "sums": lambda q, k, v: (q @ k.mT + v[..., :1].mT) @ v,
    "one of a row": lambda q, k, v: F.normalize(q @ k.mT, p=1, dim=-1) @ v,
    "one head": lambda q, k, v: torch.tanh(q[0, 0] @ k[0, 0].mT) @ v[0, 0],
}


def compiled(fn):
    """The result, and how many attentions were found."""
    torch._dynamo.reset()
    before = stats()["found"]
    with torch.no_grad():
        result = torch.compile(fn, backend="attn_opt")(*QKV)
    return result, stats()["found"] - before


@pytest.mark.parametrize("name", [*FOUND, *LEFT])
def test_functions_of_scores(name):
    fn = FOUND.get(name) or LEFT[name]
    result, found = compiled(fn)
    assert found == (name in FOUND)
    torch.testing.assert_close(result.double(), fn(*[x.double() for x in QKV]), rtol=1e-5, atol=1e-5)
