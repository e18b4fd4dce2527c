"""Training by kernels of a GPU, without one: forward and derivative at the level of tiles, against float64."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from attn_opt.compiler.frontends.torch.gradients import Gradients  # noqa: E402
from gpu_modules import run_module  # noqa: E402


def rms_norm(x, weight):
    """As torch has it on GPUs."""
    return torch.ops.aten._fused_rms_norm(x, list(weight.shape), weight, 1e-5)[0]


class Gated(torch.nn.Module):
    """A block as Llama's, with norms of queries and keys, or without."""

    def __init__(self, has_norms=True):
        super().__init__()
        self.has_norms = has_norms
        ones = (torch.nn.Parameter(1 + 0.1 * torch.randn(n)) for n in (64, 64, 32))
        self.first, self.second, self.own = ones
        sizes = {"qkv": (64, 192), "out": (64, 64), "gate": (64, 88), "up": (64, 88), "down": (88, 64)}
        for name, size in sizes.items():
            setattr(self, name, torch.nn.Linear(*size, bias=False))

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(rms_norm(x, self.first)).view(batch, tokens, 3, 2, 32).permute(2, 0, 3, 1, 4)
        q, k = (rms_norm(one, self.own) if self.has_norms else one for one in (q, k))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
        h = rms_norm(x, self.second)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def encoder():
    return torch.nn.TransformerEncoderLayer(64, 2, 96, 0.0, batch_first=True, activation="gelu")


def array(tensor):
    tensor = tensor.detach().contiguous()
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.dtype == torch.bfloat16 else tensor.numpy()
    )


def results(kernel, *args):
    flat = [x.detach() for x in args]
    given = [array(x) if isinstance(x, torch.Tensor) else x for x in kernel.program.arguments(flat)]
    found = run_module(kernel.ir("fused"), given, is_fused=True)
    return [
        torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
        if x.dtype == ml_dtypes.bfloat16
        else torch.from_numpy(x)
        for x in found
    ]


def in_training(model, x):
    """What gradients are of, and the kernels forward and backward."""
    gradients = Gradients(compile(model, (x,), target="nvidia"))
    needed = (0, *gradients.program.parameters)
    return needed, gradients._cut(needed, (0,), [*gradients.example], gradients.dims)


@pytest.mark.parametrize(
    ("make", "batch", "dtype", "least"),
    [(Gated, 2, torch.bfloat16, 1e-3), (Gated, 1, torch.bfloat16, 1e-3), (encoder, 2, torch.float32, 1e-6)],
    ids=["gated", "gated, a batch of one", "encoder"],
)
def test_all_gradients(make, batch, dtype, least):
    torch.manual_seed(0)
    model = make().to(dtype)
    x = torch.randn(batch, 70, 64).to(dtype).requires_grad_()
    needed, halves = in_training(model, x)

    own = model(x)
    given = torch.randn_like(own)
    out = results(halves.forward, x)
    found = results(halves.derivative.kernel, x, *(out[n] for n in halves.joint.kept), given)

    wanted = [x, *(model.get_parameter(name) for name in needed[1:])]
    eager = torch.autograd.grad(own, wanted, given)
    exact, wide = copy.deepcopy(model).double(), x.detach().double().requires_grad_()
    right = torch.autograd.grad(
        exact(wide), [wide, *(exact.get_parameter(name) for name in needed[1:])], given.double()
    )
    for name, one, theirs, other in zip(needed, found, eager, right, strict=True):
        error, allowed = ((y.double().reshape(other.shape) - other).abs().max() for y in (one, theirs))
        assert error <= 2 * allowed + least * other.abs().max(), name


def test_a_batch_of_one_takes_no_more_kernels():
    model = Gated(has_norms=False).bfloat16()
    launches = {}
    for batch in (1, 2):
        _, halves = in_training(model, torch.randn(batch, 128, 64).bfloat16().requires_grad_())
        kernels = halves.forward, halves.derivative.kernel
        launches[batch] = [kernel.ir("tiles").count("gpu.launch_func") for kernel in kernels]
    assert all(one <= two for one, two in zip(launches[1], launches[2], strict=True)), launches
