"""Reshapes that merge several open sizes between the matmuls: told of, with a way out that works."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
from torch.export import Dim  # noqa: E402

LENGTH, KEYS, OTHER = Dim("length"), Dim("keys"), Dim("other")
Q, K, V, W = (torch.randn(shape) for shape in ((2, 4, 20, 16), (2, 4, 30, 16), (2, 4, 30, 16), (4, 4)))
IMAGE = torch.randn(2, 4, 5, 7, 16)


def talking_heads(q, k, v, w):
    return torch.softmax(torch.einsum("bhnm,hg->bgnm", q @ k.mT, w), -1) @ v


def image(q, k, v):
    p = torch.softmax(torch.einsum("bhxyd,bhmd->bhxym", q, k), -1)
    return torch.einsum("bhxym,bhmd->bhxyd", p, v)


def merged_before(q, k, v):
    return (torch.softmax(q.flatten(2, 3) @ k.mT, -1) @ v).view(q.shape)


@pytest.mark.parametrize(
    "fn, args, sizes",
    [
        (talking_heads, (Q, K, V, W), ({2: LENGTH}, {2: KEYS}, {2: KEYS}, None)),
        (image, (IMAGE, K, V), ({2: LENGTH, 3: OTHER}, {2: KEYS}, {2: KEYS})),
    ],
)
def test_of_what_is_left_a_warning_tells(fn, args, sizes):
    with pytest.warns(UserWarning, match="merges several open sizes.*merge them before the first matmul"):
        kernel = compile(fn, args, dynamic_shapes=sizes)
    torch.testing.assert_close(kernel(*args), fn(*args), atol=1e-5, rtol=1e-5)


def test_queries_that_are_merged_before_are_fused():
    kernel = compile(merged_before, (IMAGE, K, V), dynamic_shapes=({2: LENGTH, 3: OTHER}, {2: KEYS}, {2: KEYS}))
    assert "1 attention found and fused" in kernel.explain()
    torch.testing.assert_close(kernel(IMAGE, K, V), image(IMAGE, K, V), atol=1e-5, rtol=1e-5)
