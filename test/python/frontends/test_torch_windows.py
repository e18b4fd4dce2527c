"""Gradients of convolutions of groups, of transposed ones, of pools and of upsampling."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler.frontends.torch.gradients import Gradients  # noqa: E402

X = (2, 8, 10, 9)
KINDS = ("weights", "sizes alone")
CASES = {
    "depthwise": (X, (8, 1, 3, 3), lambda x, w: F.conv2d(x, w, padding=1, groups=8)),
    "depthwise, two channels each": (X, (16, 1, 3, 2), lambda x, w: F.conv2d(x, w, stride=(2, 1), groups=8)),
    "depthwise, dilated": (X, (8, 1, 3, 3), lambda x, w: F.conv2d(x, w, padding=(2, 1), dilation=(2, 1), groups=8)),
    "groups": (X, (6, 4, 3, 3), lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2)),
    "rows in groups": ((2, 8, 20), (8, 1, 4), lambda x, w: F.conv1d(x, w, padding=3, groups=8)[..., :20]),
    "transposed": (X, (8, 4, 2, 2), lambda x, w: F.conv_transpose2d(x, w, stride=2)),
    "transposed, output padding": (
        *(X, (8, 4, 3, 3)),
        lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), padding=1, output_padding=(1, 2), dilation=(1, 2)),
    ),
    "transposed, groups": (X, (8, 3, 3, 3), lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=2)),
    "transposed, depthwise": (X, (8, 2, 3, 3), lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, groups=8)),
    "pool": (X, None, lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "pool, padding apart": (X, None, lambda x: F.avg_pool2d(x, (3, 2), (2, 1), 1, count_include_pad=False)),
    "pool, last windows cut": (X, None, lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
    "pool, divided by 5": (X, None, lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5)),
    "pool of rows": ((2, 8, 21), None, lambda x: F.avg_pool1d(x, 4, 2, 1)),
    "pool of three": ((2, 3, 5, 6, 7), None, lambda x: F.avg_pool3d(x, 2, 2, (1, 0, 1))),
    "as many": (X, None, lambda x: F.adaptive_avg_pool2d(x, (4, 7))),
    "as many of three": ((2, 3, 5, 6, 7), None, lambda x: F.adaptive_avg_pool3d(x, (2, 4, 3))),
    "linear": ((2, 8, 10), None, lambda x: F.interpolate(x, scale_factor=2, mode="linear")),
    "bilinear": (X, None, lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear")),
    "bilinear, corners": (X, None, lambda x: F.interpolate(x, size=(13, 1), mode="bilinear", align_corners=True)),
    "trilinear": ((2, 3, 3, 4, 2), None, lambda x: F.interpolate(x, size=(5, 3, 4), mode="trilinear")),
    "bicubic": (X, None, lambda x: F.interpolate(x, size=(7, 15), mode="bicubic")),
    "bicubic, corners": (X, None, lambda x: F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=True)),
}


GROUPS = {kind: [name for name in CASES if (CASES[name][1] is None) == (kind == "sizes alone")] for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    """Of all cases of a kind in one program, which is compiled once; every third one in bfloat16."""
    generator, args, functions = torch.Generator().manual_seed(0), [], []
    for number, name in enumerate(GROUPS[kind]):
        shape, weights, function = CASES[name]
        dtype = torch.float32 if number % 3 else torch.bfloat16
        own = [torch.randn(s, generator=generator).to(dtype) for s in (shape, weights) if s is not None]
        functions.append((function, len(args), len(args) + len(own)))
        args += own

    def all_of_them(*args):
        return [function(*args[first:end]) for function, first, end in functions]

    wide = [x.double().requires_grad_() for x in args]
    args = [x.requires_grad_() for x in args]
    found, expected = compile(all_of_them, tuple(args))(*args), all_of_them(*wide)
    given = [torch.randn(y.shape, generator=generator).to(x.dtype) for x, y in zip(found, expected, strict=True)]
    gradients = torch.autograd.grad(found, args, given)
    right = torch.autograd.grad(expected, wide, [g.double() for g in given])
    for name, (_, first, end) in zip(GROUPS[kind], functions, strict=True):
        for one, other in zip(gradients[first:end], right[first:end], strict=True):
            assert one.shape == other.shape, name
            assert (one.double() - other).norm() < (1e-5 if one.dtype == torch.float32 else 1e-2) * other.norm(), name


def test_kernels_of_a_gpu():
    """A block with a depthwise convolution beside its attention, and a pool: forward and derivative have kernels."""

    def block(x, weight):
        h = x + F.conv2d(x, weight, padding=1, groups=16)
        tokens = F.adaptive_avg_pool2d(h, 6).flatten(2).mT
        return F.scaled_dot_product_attention(tokens, tokens, tokens)

    args = [torch.randn(s, dtype=torch.float16).requires_grad_() for s in ((2, 16, 8, 8), (16, 1, 3, 3))]
    kernel = compile(block, tuple(args), target="nvidia")
    derivative = Gradients(kernel).derivative((0, 1), (0,), args)
    assert derivative.kernel.ir("ptx").count(".entry") > 2
