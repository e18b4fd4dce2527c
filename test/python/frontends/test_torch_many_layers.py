"""What passes do for a model of many layers grows with these, no faster: counted in calls of functions of Python. The
kernels are those of two layers."""

import collections
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile, pass_manager  # noqa: E402
from attn_opt.compiler.frontends.torch.gradients import Gradients  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "error:attn_opt")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = torch.nn.RMSNorm(32), torch.nn.RMSNorm(32)
        of_matrices = {"heads": (32, 96), "out": (32, 32), "up": (32, 128), "down": (64, 32)}
        self.of = torch.nn.ModuleDict({name: torch.nn.Linear(*size, bias=False) for name, size in of_matrices.items()})

    def forward(self, x):
        q, k, v = self.of["heads"](self.before(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.of["out"](y.transpose(1, 2).flatten(-2))
        gate, up = self.of["up"](self.between(x)).chunk(2, -1)
        return x + self.of["down"](F.silu(gate) * up)


class Calls(pass_manager.Hook):
    def __init__(self, by_pass):
        self.by_pass = by_pass

    def before(self, stage, module):
        def note(frame, event, argument):
            self.by_pass[stage.name] += event == "call"

        sys.setprofile(note)

    def after(self, stage, module, failed):
        sys.setprofile(None)


def training(layers, kind=torch.float32):
    """The kernels that a model of so many layers trains with."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(*(Layer() for _ in range(layers))).to(kind), torch.randn(2, 64, 32, dtype=kind)
    gradients = Gradients(compile(model, (x,), target="nvidia"))
    needed = tuple(gradients.program.parameters)
    halves = gradients._cut(needed, (0,), gradients.example, gradients.dims)
    assert halves is not None and halves.derivative is not None
    return halves.forward, halves.derivative.kernel


def test_layers_share_their_kernels():
    def kernels(layers):
        return [kernel.ir("ptx").count(".entry") for kernel in training(layers, torch.bfloat16)]

    # Sums over columns of up to eight norms are one kernel.
    assert kernels(3) == kernels(2)


@pytest.mark.slow
def test_training_kernels_of_many_layers(monkeypatch):
    run, by_pass = pass_manager.run, collections.Counter()

    def counted(passes, module, hooks=(), **options):
        return run(passes, module, hooks=[*hooks, Calls(by_pass)], **options)

    monkeypatch.setattr(pass_manager, "run", counted)

    def calls(layers):
        by_pass.clear()
        training(layers)
        return collections.Counter(by_pass)

    few, more, most = calls(1), calls(3), calls(5)
    assert most["fuse-attention"] > more["fuse-attention"] > few["fuse-attention"] > 0
    for name in most:
        first, second = max(0, more[name] - few[name]), most[name] - more[name]
        assert second <= 1.3 * first + 0.05 * most[name], f"{name}: {few[name]}, {more[name]}, {most[name]} calls"
