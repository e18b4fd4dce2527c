"""What torch.export made, saved or cannot make; and what compile() says of it."""

import re
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import CompileError, compile  # noqa: E402
from attn_opt.compiler.frontends.torch import lowering as torch_lowering  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch_harness import SHAPES, close, sdpa, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def test_a_program_that_torch_has_decomposed():
    class Attention(torch.nn.Module):
        def forward(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, mask)

    args = *tensors((2, 4, 9, 8), (2, 4, 13, 8), (2, 4, 13, 8)), torch.arange(13) < torch.arange(9)[:, None]
    kernel = compile(torch.export.export(Attention(), args).run_decompositions())
    close(kernel(*args), Attention()(*map(wide, args)))
    assert "linalg_ext.softmax" in kernel.ir("raised")


def branches(q, k, v):
    return q if q.sum() > 0 else k


@pytest.mark.parametrize(
    "function, args, options, message",
    [
        (sdpa(), None, {}, "no frontend|example_args are needed"),
        (sdpa(), tensors(*SHAPES)[:2], {}, "torch.export cannot trace"),
        (branches, tensors(*SHAPES), {}, "torch.export cannot trace 'branches'"),
        (lambda x: torch.mode(x).values, tensors((5, 7)), {}, "no lowering"),
        (lambda x: x + torch.rand_like(x), tensors((5, 7)), {}, "random numbers are drawn there: pass them"),
        (lambda x: x[x > 0].softmax(0), tensors((5, 2)), {}, "how many elements 'index', of .*, has depends on data"),
        (lambda x: x.nonzero(), tensors((5, 2)), {}, "how many elements 'nonzero', of .*, has depends on data"),
        (sdpa(), tensors(*SHAPES), {"tiles": 1}, "unknown option 'tiles'"),
        (lambda x: x, (object(),), {}, "no frontend traces"),
    ],
)
def test_what_cannot_be_traced(function, args, options, message):
    with pytest.raises(CompileError, match=message):
        compile(function, args, **options)


def written_out(q, k, v):
    scores = q @ k.transpose(-1, -2)
    return torch.softmax(torch.tanh(scores), -1) @ v


def test_attention_is_explained_with_its_line():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, q, k, v):
            return self.inner(q, k, v)

    class Inner(torch.nn.Module):
        def forward(self, q, k, v):
            scores = q @ k.transpose(-1, -2)
            return torch.softmax(torch.tanh(scores), -1) @ v

    q, k, v = tensors((2, 9, 5), (2, 7, 5), (2, 7, 5))
    for function in (written_out, Model()):  # the second one's kernel is there already
        own = written_out if function is written_out else Inner.forward
        lines = range(own.__code__.co_firstlineno, own.__code__.co_firstlineno + 6)
        place = re.search(r"attention at (.*):(\d+), found", compile(function, (q, k, v)).explain())
        assert place[1] == __file__ and int(place[2]) in lines


def test_the_core_imports_no_torch():
    code = "import sys; from attn_opt.compiler import compile, stats; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_single_key_is_explained_and_not_warned_of():
    args = tensors((1, 2, 3, 8), (1, 2, 1, 8), (1, 2, 1, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel = compile(sdpa(), args)
    assert "there is a single key, whose weight is 1" in kernel.explain()


def test_programs_that_torch_export_saved(tmp_path):
    """A path to one is enough; of other files of torch it is said what is missing."""

    class Attention(torch.nn.Module):
        def forward(self, q, k, v):
            return sdpa()(q, k, v)

    args, path = tensors(*SHAPES), tmp_path / "attention.pt2"
    torch.export.save(torch.export.export(Attention(), args), path)
    for kernel in (compile(path), compile(str(path), args)):
        close(kernel(*args), sdpa()(*map(wide, args)))
    torch.save(args, tmp_path / "tensors.pt")
    torch.save(args, tmp_path / "tensors.pt2")
    for name, message in [
        ("tensors.pt", "needs the model, and example_args to trace it with"),
        ("tensors.pt2", "is no program of torch.export"),
        ("none.pt2", "none.pt2: error: cannot be read: no such file"),
    ]:
        with pytest.raises(CompileError, match=message):
            compile(tmp_path / name)


def test_what_is_not_compiled_says_what_to_do():
    """Of ops without a lowering it has the names."""
    (x,) = tensors((2, 6))

    class Module(torch.nn.Module):
        def forward(self, x):
            return kernel(x)

    kernel = compile(torch.exp, (x,))
    for wrong, message in [
        (
            lambda: compile(lambda x: torch.nextafter(x, x), (x,)),
            r"no pattern matches 'torch\.aten\.nextafter'; leave that op to",
        ),
        (lambda: torch.export.export(Module(), (x,)), "export or trace the function that it was compiled from"),
        (
            lambda: torch.func.grad(lambda x: compile(torch.exp, (x,))(x).sum())(x),
            "compile before, or what is transformed",
        ),
    ]:
        with pytest.raises(CompileError, match=message):
            wrong()


@pytest.mark.parametrize("is_decomposed", [False, True])
def test_what_torch_func_differentiates_leaves_no_trace(is_decomposed, monkeypatch):
    """Later functions are compiled as before."""
    if is_decomposed:  # as of other transforms that torch cannot decompose
        monkeypatch.setattr(torch_lowering, "refuse_tangents", lambda *_: None)
    args = tensors((2, 9, 8), (2, 9, 8))
    attention = lambda x: (x @ x.mT).softmax(-1) @ x  # noqa: E731
    with pytest.raises(CompileError, match=r"torch\.compile\(…, backend='attn_opt'\)"):
        compile(lambda x, tangent: torch.func.jvp(attention, (x,), (tangent,))[1], args)
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    with forward_ad.dual_level():  # there can be one
        pass
    close(compile(torch.mul, args)(*args), torch.mul(*map(wide, args)))
