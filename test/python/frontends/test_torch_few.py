"""Few queries, keys or columns in functions of torch for GPUs: attention is fused nonetheless, and right (found by
random programs)."""

import math
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from gpu_modules import lowered  # noqa: E402
from torch_harness import run_as_on_gpu, tensors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def heads(x, count):
    return x.unflatten(-1, (count, -1)).transpose(-3, -2)


def repeated(x, groups):
    return x.unsqueeze(-3).expand(*x.shape[:-2], groups, *x.shape[-2:]).flatten(-4, -3)


def keys_times_a_vector(q, k, v, u):
    """One query, so that this product has as many results as that of queries and keys. Keys are a result."""
    k, v = repeated(k, 3), repeated(v, 3)
    s = heads(q, 6) @ k.mT / 8 + (k @ u).unsqueeze(-2)
    return s.softmax(-1) @ v, k


def two_products_and_a_constant(q, k, v):
    s = (q @ k.mT) * torch.tanh(q).matmul(k.mT) / 64
    s = s.clone()
    s[..., -1:] = -1e4
    return s.softmax(-1) @ v


def a_length_of_two_keys(q, k, v, order, filled):
    """It is a tensor of one element, which is read as a whole."""
    s = torch.tanh(q[..., order, :] @ k.mT).masked_fill(torch.arange(2) >= filled, -torch.inf)
    return torch.sigmoid(s - math.log(2)) @ v


def a_length_before_a_projection(q, k, v, filled, w):
    """What is dead is left out from a place on that the GPU knows, in a function that is one tile."""
    k = k / (k.norm(dim=-1, keepdim=True) + 0.1)
    mask = (torch.arange(k.shape[-2]) < filled).expand(q.shape[-2], -1)
    return F.scaled_dot_product_attention(F.layer_norm(q, (2,)), k, v, attn_mask=mask) @ w


def a_loop_over_keys_alone(q, k, v, u):
    s = heads(q, 2) @ k.mT / 8 + (k @ u).unsqueeze(-2)
    return (s.softmax(-1) * 0.9 ** torch.arange(k.shape[-2])) @ v


def probabilities_that_are_returned(q, k, v, w):
    p = torch.exp(torch.tanh(heads(q, 3) @ heads(k, 3).mT)) / k.shape[-2]
    return (p @ v) @ w, p


def a_bias_that_is_a_row(x, w, u, k, v):
    q = (x @ w + u).view(2, 1, 4, 16).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


CASES = {
    keys_times_a_vector: ((1, 384), (2, 130, 64), (2, 130, 64), (64,)),
    two_products_and_a_constant: ((3, 3, 1, 64), (3, 3, 65, 64), (3, 3, 65, 64)),
    a_length_of_two_keys: ((3, 1, 1, 32), (3, 1, 2, 32), (3, 1, 2, 8), 0, 1),
    a_length_before_a_projection: ((1, 17, 2), (1, 130, 2), (1, 130, 2), 40, (2, 9)),
    a_loop_over_keys_alone: ((2, 128), (1, 66, 64), (1, 66, 64), (64,)),
    a_bias_that_is_a_row: ((2, 1, 64), (64, 64), (1, 1, 64), (2, 2, 33, 16), (2, 2, 33, 16)),
    probabilities_that_are_returned: ((1, 24), (17, 24), (3, 17, 8), (8, 9)),
}


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_few(function, arch):
    shapes = CASES[function]
    args = list(tensors(*(shape for shape in shapes if isinstance(shape, tuple)), dtype=torch.float32))
    for place, shape in enumerate(shapes):
        if isinstance(shape, int):
            args.insert(place, torch.tensor([shape]))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*no kernel can be made of it")
        kernel = compile(function, tuple(args), target="nvidia", arch=arch)
    assert ".entry" in kernel.ir("ptx")
    right = function(*(x.double() if x.is_floating_point() else x for x in args))
    right = right if isinstance(right, tuple) else (right,)
    module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
    for found, wanted in zip(run_as_on_gpu(module, args, [torch.float32] * len(right)), right, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
