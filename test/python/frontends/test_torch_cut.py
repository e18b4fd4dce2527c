"""What kernels of torch's functions keep of a call for their derivative (``torch/cut.py``, ``torch/joint.py``)."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from torch_harness import with_gradients as with_gradients  # noqa: E402
from training_harness import assert_like_float64, by_hand, needy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")


def only_halves(kernel):
    (found,) = kernel.gradients._halves.values()
    (one,) = (*found.of_any, *found.by_shapes.values())
    return one


def halves(function, args):
    """The kernels of a function and of its derivative, of which gradients are right, and the shapes of what is kept."""
    kernel = compile(function, args)
    assert_like_float64(function, args, fast=kernel)
    one = only_halves(kernel)
    assert one is not None and one.derivative is not None and not kernel.gradients.derivatives
    return one.forward, one.derivative.kernel, [tuple(t.shape) for t in one.joint.given[: len(one.joint.kept)]]


def test_what_is_computed_by_element_is_computed_again():
    """Of x·w alone: its gelu is not kept, nor what is doubled of x before."""
    _, derivative, kept = halves(lambda x, w, u: F.gelu((2 * x) @ w) @ u, needy((5, 8), (8, 32), (32, 8)))
    assert kept == [(5, 32)]
    assert "math.erf" in derivative.ir("graph")


def test_the_smaller_one_of_a_way_is_kept():
    """A sum over keys, for what it is of; a square of it is as large, and one of both is enough."""
    _, _, kept = halves(lambda x, w: (x @ w).sum(-1, keepdim=True).square().tanh() * x, needy((6, 4), (4, 50)))
    assert kept == [(6, 1)]


def test_nothing_is_kept_where_arguments_do():
    _, _, kept = halves(lambda x, w: x.exp() @ w, needy((5, 8), (8, 6)))
    assert kept == []


def test_results_are_kept_as_they_are():
    """The output of an attention, seen through views, beside the maximum and the sum of each row; and y, of which tanh
    is another result."""
    forward, _, kept = halves(lambda q, k, v: by_hand(q, k, v).transpose(1, 2).flatten(2), needy(*[(2, 3, 9, 8)] * 3))
    assert kept == [(2, 3, 9), (2, 3, 9), (2, 9, 24)]
    assert len(forward.signature.results) == 3


def test_one_result_is_kept_for_another():
    """Of y and tanh(y) either, which are there."""
    args = needy((5, 8), (8, 6))
    kernel = compile(lambda x, w: ((y := x @ w), y.tanh()), args)
    y, bent = kernel(*args)
    (y + bent).sum().backward()
    one = only_halves(kernel)
    assert one.joint.kept in ([0], [1]) and len(one.forward.signature.results) == 2
    g = 1 + (1 - (args[0] @ args[1]).tanh() ** 2).detach()
    torch.testing.assert_close(args[0].grad, g @ args[1].mT.detach())


def test_gradients_of_some_results():
    """The first step keeps what all of them want, and the next one what those do that gradients have come to."""

    def two(x, w, u):
        y = torch.tanh(x @ w)
        return y @ u, torch.log(y.sum() * 0)  # whose gradients are no numbers

    args = needy((5, 8), (8, 6), (6, 8))
    (wanted,) = torch.autograd.grad(two(*args)[0].square().sum(), args[:1])
    kernel = compile(two, args)
    for _ in range(3):
        (found,) = torch.autograd.grad(kernel(*args)[0].square().sum(), args[:1])
        torch.testing.assert_close(found, wanted)
    assert [of for _, of in kernel.gradients._halves] == [(0, 1), (0,)]
    assert [of for _, of in kernel.gradients.derivatives] == [(0,)]
    (last,) = kernel.gradients._halves[(0, 1, 2), (0,)].of_any
    assert vars(last)["derivative"] is not None


class Layer(torch.nn.Module):
    def __init__(self, columns, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(columns) for _ in range(2))
        self.projections, self.out = torch.nn.Linear(columns, 3 * columns), torch.nn.Linear(columns, columns)
        self.up, self.down = torch.nn.Linear(columns, 4 * columns), torch.nn.Linear(4 * columns, columns)

    def forward(self, x):
        qkv = self.projections(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def test_layers_keep_no_scores():
    """Of each of two layers the projections as they lie in memory, the output as the next product reads it, two numbers
    of each row, the sums of both norms, what is between attention and feed-forward, and what the gelu is of; of the
    second, what is added up before it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Layer(32, 4), Layer(32, 4))
    kernel = compile(model, (x := torch.randn(2, 50, 32),))
    kernel(x).square().sum().backward()
    one = only_halves(kernel)
    sizes = sorted(math.prod(t.shape) for t in one.joint.given[: len(one.joint.kept)])
    tokens = 2 * 50
    assert sizes == sorted([*[96 * tokens, 128 * tokens] * 2, *[32 * tokens] * 5, *[4 * tokens] * 4, *[tokens] * 8])
    assert one.derivative.kernel.ir("raised").count("linalg_ext.softmax") == 0
    assert one.derivative.kernel.explain().count("attention without a softmax") == 6


def test_sums_of_norms_are_kept_as_wide_as_they_are():
    """In float32 beside halves, on CPUs, too."""
    model, x = torch.nn.LayerNorm(32, dtype=torch.bfloat16), (10 + torch.randn(9, 32)).bfloat16()
    kernel = compile(model, (x.requires_grad_(),))
    (found,) = torch.autograd.grad(kernel(x).float().sin().sum(), (x,))
    wide = x.detach().double().requires_grad_()
    (wanted,) = torch.autograd.grad(model.double()(wide).sin().sum(), (wide,))
    torch.testing.assert_close(found.double(), wanted, rtol=0.01, atol=0.02)
    one = only_halves(kernel)
    assert [(tuple(t.shape), t.dtype) for t in one.joint.given[:2]] == [((9, 1), torch.float32)] * 2


def test_probabilities_that_others_read_are_computed_again():
    """They are no attention of their own there, and its rows are not kept."""

    def attention(q, k, v):
        p = torch.softmax(q @ k.mT, -1)
        return p @ v, p.square().sum((0, 1))

    kernel = compile(attention, args := needy(*[(1, 2, 9, 8)] * 3))
    out, _ = kernel(*args)
    (wanted,) = torch.autograd.grad(attention(*args)[0].sum(), args[:1])
    torch.testing.assert_close(torch.autograd.grad(out.sum(), args[:1])[0], wanted)


def test_attention_that_keeps_its_scores_is_computed_anew():
    """Written by hand, with exponentials: what lies between would be all scores."""

    def exponentials(q, k, v):
        e = torch.exp(q @ k.mT)
        return (e @ v) / e.sum(-1, keepdim=True)

    kernel = compile(exponentials, args := needy(*[(2, 9, 8)] * 3))
    assert_like_float64(exponentials, args, fast=kernel)
    assert only_halves(kernel) is None
