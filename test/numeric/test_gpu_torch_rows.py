"""Norms, softmaxes and other functions of rows on an NVIDIA GPU, and copies beside them, against torch in float64."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)

from attn_opt.compiler import compile  # noqa: E402
from row_functions import FUNCTIONS, SHAPES, layer_norm, rms_in_f32  # noqa: E402
from torch.nn import functional as F  # noqa: E402

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-6}


def tensors(*shapes, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    return tuple(torch.randn(s, device="cuda", generator=generator).to(dtype) for s in shapes)


def check(function, inputs, rows=1):
    """`rows`: how many kernels have threads that share rows."""
    dtype = inputs[0].dtype
    kernel = compile(function, inputs, target="nvidia")
    found = kernel(*inputs)
    expected = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    pairs = [(found, expected)] if isinstance(found, torch.Tensor) else list(zip(found, expected, strict=True))
    for out, right in pairs:
        assert (out.double() - right).abs().max() <= TOLERANCE[dtype] * right.abs().max().clamp(min=1)
    assert kernel.ir("tiles").count("gpu.func @main_rows") == rows


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_rows_are_read_once(function, shape, dtype):
    check(function, tensors(shape, shape[-1:], dtype=dtype))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_stands_around_a_norm(dtype):
    def function(x, y, w):
        total = x + F.gelu(y)
        return F.silu(layer_norm(total, w)) * 2, total

    check(function, tensors((4, 50, 768), (4, 50, 768), (768,), dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tokens", [1, 3, 200])
def test_norms_between_matmuls(tokens, dtype):
    def function(x, w, up, down):
        y = rms_in_f32(x, w)
        x = x + F.silu(y @ up[0]) * (y @ up[1]) @ down
        return x, layer_norm(x, w)

    x, w, up, down = tensors((2, tokens, 512), (512,), (2, 512, 768), (768, 512), dtype=dtype)
    check(function, (x, w, up / 23, down / 28), rows=2)


def test_rows_whose_number_is_open():
    sizes = {0: torch.export.Dim("n")}
    x, w = tensors((8, 256), (256,), dtype=torch.float16)
    kernel = compile(layer_norm, (x, w), dynamic_shapes=(sizes, None), target="nvidia")
    for rows in (2, 1000, 3):
        (x,) = tensors((rows, 256), dtype=torch.float16)
        assert (kernel(x, w).double() - layer_norm(x.double(), w.double())).abs().max() < 1e-2


@pytest.mark.parametrize(
    "view", [lambda x: x.mT, lambda x: x[:, 16:80], lambda x: x[::2, 1:]], ids=["T", "part", "odd"]
)
def test_rows_of_any_strides(view):
    (x,) = tensors((64, 96), dtype=torch.float16)
    check(lambda x: x.softmax(-1), (view(x),))


COPIES = {
    "transposed": (lambda x, y: x.transpose(1, 2).contiguous() * 2, 0),
    "put together": (lambda x, y: torch.cat([x, -y], -1) * 2, 0),
    "by element": (lambda x, y: (F.gelu(x) + y, x * y), 0),
    "masked softmax": (lambda x, y: torch.where(y > 0, x, -torch.inf).softmax(-1), 1),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(2, 64, 32, 128), (3, 5, 7, 9)], ids=str)
@pytest.mark.parametrize("name", COPIES)
def test_what_is_returned_is_computed_by_pieces(name, shape, dtype):
    function, rows = COPIES[name]
    check(function, tensors(shape, shape, dtype=dtype), rows)
