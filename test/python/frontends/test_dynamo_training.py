"""Training under torch.compile(…, backend="attn_opt"): gradients are those of torch in float64."""

import copy
import functools
import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch_harness import tensors  # noqa: E402
from training_harness import (  # noqa: E402
    BOTH_KEPT,
    GROUPS,
    ONE_NUMBER,
    PLAIN,
    SQUARE,
    TWO_NUMBERS,
    assert_like_float64,
    by_hand,
    changed_afterwards,
    merged_heads,
    needy,
    with_gradients,  # noqa: F401
)

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")  # what is left is an error


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


def of_two_products(q, k, p, r, v):
    return torch.softmax(q @ k.mT * torch.tanh(p @ r.mT), -1) @ v


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


def by_einsum(q, k, v):
    return torch.einsum("bhqk,bhkd->bqhd", torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k), -1), v)


CASES = {
    "sdpa": (F.scaled_dot_product_attention, PLAIN),
    "by hand": (by_hand, PLAIN),
    "other size of values": (F.scaled_dot_product_attention, [*PLAIN[:2], (2, 4, 7, 6)]),
    "one sequence": (by_hand, [(5, 8), (7, 8), (7, 8)]),
    "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), SQUARE),
    "softcap": (softcapped, PLAIN),
    "alibi": (alibi, PLAIN),
    "casts": (in_float32, PLAIN),
    "two products": (of_two_products, [*PLAIN[:2], *PLAIN]),
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


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, shapes = CASES[name]
    counts = Counts()
    assert_like_float64(function, needy(*shapes))
    assert counts.kernels >= 1


@BOTH_KEPT
@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("changed afterwards", "detached", "two layers", "two products")]
)
def test_kept(name, kept):
    function, shapes = CASES[name]
    assert_like_float64(function, needy(*shapes))
    forward, ((attentions, _),) = kept()
    assert forward == (TWO_NUMBERS if name == "alibi" else kept.of_rows) and attentions == 3


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
    assert kept() == [kept.of_rows, [(1, 1)]]


@pytest.mark.parametrize(
    "function",
    [F.scaled_dot_product_attention, functools.partial(F.scaled_dot_product_attention, is_causal=True), in_float32],
    ids=["plain", "causal", "by hand"],
)
def test_kept_in_bfloat16(function, kept):
    args = [x.detach().bfloat16().requires_grad_() for x in needy(*SQUARE)]
    assert_like_float64(function, args, atol=2e-2)
    assert kept() == [ONE_NUMBER, [(3, 3)]]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(48, 16)
        self.outer = torch.nn.Linear(16, 48)

    def forward(self, x):
        return x + self.outer(merged_heads(self.inner(x).repeat(1, 1, 3)))


def test_equal_layers_are_compiled_once(kept):
    model = torch.nn.Sequential(*(Layer() for _ in range(5)))
    for layer in model:
        layer.compile(backend="attn_opt")
    counts = Counts()
    model(torch.randn(2, 9, 48)).sum().backward()
    assert counts.compiled == 4  # a forward, and three derivatives
    assert kept() == [kept.of_rows, [(3, 3)]]


def test_kept_of_open_sizes(kept):
    function = compiled(grouped, dynamic=True)
    for queries, keys in ((5, 7), (9, 12), (3, 4)):
        assert_like_float64(grouped, needy((2, 4, queries, 8), (2, 2, keys, 8), (2, 2, keys, 8)), fast=function)
    forward, backward = kept()
    assert {results for _, results in forward} == {3} and {results for _, results in backward} == {3}


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
    return torch.einsum("bhqk,bhkd->bhqd", torch.relu(q @ k.mT * 0.1).to(v.dtype).square(), v)


def written_into_scores(q, k, v):
    """In float32, which autocast leaves alone, into scores that it has cast."""
    scores = q @ k.mT
    scores[..., 0] = q.sum(-1) * 0.1
    return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize(
    "function, shapes",
    [
        (written_into_scores, PLAIN),
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
