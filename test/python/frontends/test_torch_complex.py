"""Rotary positions as products of complex numbers, and what else of complex numbers is written out as pairs."""

import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler import stats as counted

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

torch.manual_seed(0)
Q, K, V = (torch.randn(2, 7, 3, 8) for _ in range(3))
ANGLES = torch.outer(torch.arange(7.0), torch.rand(4))
TURNS = torch.polar(torch.ones_like(ANGLES), ANGLES)


def rotated(x, turns):
    """As in Llama's first code."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)


def attention(q, k, v, turns):
    q, k, v = rotated(q, turns).transpose(1, 2), rotated(k, turns).transpose(1, 2), v.transpose(1, 2)
    return torch.softmax(q @ k.mT / 8**0.5, -1) @ v


class Held(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones_like(ANGLES), ANGLES))

    def forward(self, q, k, v):
        return attention(q, k, v, self.turns[: q.shape[1]])


WAYS = {
    "an argument": (attention, Q, K, V, TURNS),
    "a buffer": (Held(), Q, K, V),
    "by polar": (lambda q, k, v, a: attention(q, k, v, torch.polar(torch.ones_like(a), a)), Q, K, V, ANGLES),
    "by exp": (lambda q, k, v, a: attention(q, k, v, torch.exp(1j * a)), Q, K, V, ANGLES),
    "conjugated": (lambda q, k, v, t: attention(q, k, v, t.conj()), Q, K, V, TURNS),
}


@pytest.mark.parametrize("name", WAYS)
def test_rotary_positions(name):
    function, *args = WAYS[name]
    before = counted()["found"]
    kernel = compile(function, tuple(args))
    torch.testing.assert_close(kernel(*args), function(*args))
    assert counted()["found"] == before + 1
    torch.testing.assert_close(torch.compile(function, backend="attn_opt")(*args), function(*args))


def arithmetic(a, b):
    x = torch.complex(a, b)
    y = x.conj() * x + x * 2 - x / 3 - 1.5 + (2 - 1j) * a
    return y.real, y.imag, x.abs(), (x.sum(0) * 1j).imag, torch.view_as_real(torch.cat((x, y.to(torch.complex64))))


def test_arithmetic():
    expected = arithmetic(Q, K)
    torch.testing.assert_close(compile(arithmetic, (Q, K))(Q, K), expected)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (torch.complex, "results that are complex are not supported.*return torch.view_as_real of it"),
        (lambda x, _: torch.fft.fft(x).abs(), "complex numbers are not supported, such as 'fft_fft'; leave that op"),
    ],
)
def test_errors(function, message):
    with pytest.raises(CompileError, match=message):
        compile(lambda *args: function(*args), (Q, K))
