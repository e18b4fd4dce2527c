"""Probabilities and results that are multiplied, or divided, by what they are made of already."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")
from torch_harness import close, tensors, wide  # noqa: E402


def exponentials(q, k):
    return (q @ k.mT / 4).exp()


def probabilities(q, k):
    e = exponentials(q, k)
    return e / e.sum(-1, keepdim=True)


def total(q, k):
    return exponentials(q, k).sum(-1, keepdim=True)


LOWEST = torch.finfo(torch.float32).min
MASK = torch.tensor([0.0, LOWEST, 0.0, LOWEST, 0.0])[:, None]


def masked(q, k, of=lambda s: s):
    """Scores of rows that are masked as a whole by the lowest number, of the program or from memory: keys are equal."""
    s = of((q @ k.mT / 4)[..., :5, :])
    return s.masked_fill(torch.arange(5)[:, None] == 2, LOWEST) + MASK


def shifted(q, k):
    return (s := masked(q, k)) - s.amax(-1, keepdim=True)


def of_two(q, k):
    p = masked(q, k).softmax(-1) * masked(q, k, torch.tanh).softmax(-1)
    return p / p.sum(-1, keepdim=True)


POWERS = {
    "squares": lambda q, k, v: probabilities(q, k).pow(2) @ v,
    "cubes": lambda q, k, v: probabilities(q, k).pow(3) @ v,
    "of a softmax": lambda q, k, v: (q @ k.mT).softmax(-1).square() @ v,
    "divided once more": lambda q, k, v: probabilities(q, k) / total(q, k) @ v,
    "divided twice more": lambda q, k, v: probabilities(q, k) @ v / total(q, k).square(),
    "times the sum": lambda q, k, v: probabilities(q, k) * total(q, k) @ v,
    "times its square": lambda q, k, v: probabilities(q, k) @ v * total(q, k).square(),
    "squared results": lambda q, k, v: (probabilities(q, k) @ v).square(),
    "squared, then divided": lambda q, k, v: (exponentials(q, k) @ v).square() / total(q, k),
    "divided, then squared": lambda q, k, v: ((exponentials(q, k) @ v) / total(q, k)).square(),
    "inverse results": lambda q, k, v: total(q, k) / (exponentials(q, k) @ v.exp()),
    "renormalised": lambda q, k, v: (p := probabilities(q, k).square()) / p.sum(-1, keepdim=True) @ v,
    "masked, renormalised": lambda q, k, v: (p := masked(q, k).softmax(-1).square()) / p.sum(-1, keepdim=True) @ v,
    "masked, scaled": lambda q, k, v: (shifted(q, k) * 1.7).softmax(-1) @ v,
    "masked twice": lambda q, k, v: (shifted(q, k) + MASK).softmax(-1) @ v,
    "masked, of two": lambda q, k, v: of_two(q, k) @ v,
    "divided by the root of squares": lambda q, k, v: torch.nn.functional.normalize(exponentials(q, k), dim=-1) @ v,
    "relu, divided twice": lambda q, k, v: (a := (q @ k.mT).relu()) / (a.sum(-1, keepdim=True) + 1).square() @ v,
}


@pytest.mark.parametrize("name", POWERS)
def test_powers(name):
    args = tensors((2, 3, 33, 8), (2, 3, 70, 8), (2, 3, 70, 8))
    close(compile(POWERS[name], args)(*args), POWERS[name](*map(wide, args)))
