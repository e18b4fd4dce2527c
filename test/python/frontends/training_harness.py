"""Training under torch.compile(…, backend="attn_opt") in tests: gradients beside those of torch in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel
from dynamo_harness import compiled
from torch_harness import tensors

PLAIN = [(2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8)]
SQUARE = [(2, 4, 6, 8)] * 3
GROUPS = [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)]
ONE_NUMBER, TWO_NUMBERS = [(1, 2)], [(1, 3)]  # attentions and results of a forward that keeps so much of rows
BOTH_KEPT = pytest.mark.parametrize("kept", ["as it is", "as halves"], indirect=True)


@pytest.fixture(autouse=True)
def with_gradients(fresh):
    dynamo_kernel._warned.clear()
    with torch.enable_grad():
        yield


def by_hand(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def merged_heads(x):
    batch, length, _ = x.shape
    q, k, v = (y.view(batch, length, 2, 8).transpose(1, 2) for y in x.chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, 16)


def changed_afterwards(q, k, v):
    out = by_hand(q, k, v)
    out += 1
    return out * 2


def needy(*shapes):
    return [x.requires_grad_() for x in tensors(*shapes)]


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
