"""Mixtures of experts through compile(fn): rows sorted by expert, a matrix for each group of them."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

ENDS = {"all": [3, 3, 10, 13], "rows left over": [0, 5, 5, 9], "few rows": [0, 2, 2, 3]}


def by_group(x, matrices, ends):
    starts = [0, *ends[:-1]]
    parts = [x[a:b] @ m for a, b, m in zip(starts, ends, matrices, strict=True)]
    return torch.cat([*parts, torch.zeros(x.size(0) - ends[-1], matrices.size(2), dtype=x.dtype)])


@pytest.mark.parametrize("name", ENDS)
def test_grouped_mm(name):
    torch.manual_seed(0)
    rows = 3 if name == "few rows" else 13
    x, matrices = torch.randn(rows, 8).bfloat16(), torch.randn(4, 8, 8).bfloat16()
    offs = torch.tensor(ENDS[name], dtype=torch.int32)
    kernel = compile(lambda x, m, o: torch._grouped_mm(x, m, offs=o), (x, matrices, offs))
    torch.testing.assert_close(kernel(x, matrices, offs), by_group(x, matrices, ENDS[name]), rtol=2e-2, atol=2e-2)


def test_grouped_mm_of_transformers():
    """Which registers an op of its own for what torch's does not take: float32, for one."""
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        schema = "(Tensor input, Tensor weight, Tensor offs) -> Tensor"
        name = "transformers::grouped_mm_fallback"
        torch.library.custom_op(name, lambda x, m, o: by_group(x, m, o.tolist()), mutates_args=(), schema=schema)
        torch.library.register_fake(name, lambda x, m, o: x.new_empty(x.size(0), m.size(2)))
    torch.manual_seed(0)
    x, matrices, offs = torch.randn(13, 8), torch.randn(4, 8, 6), torch.tensor(ENDS["all"])
    function = torch.ops.transformers.grouped_mm_fallback
    kernel = compile(lambda *args: function(*args), (x, matrices, offs))
    torch.testing.assert_close(kernel(x, matrices, offs), function(x, matrices, offs))


@pytest.mark.parametrize("name", ENDS)
def test_gradients_of_grouped_mm(name):
    torch.manual_seed(0)
    x = torch.randn(3 if name == "few rows" else 13, 8).bfloat16().requires_grad_()
    matrices = torch.randn(4, 8, 8).bfloat16().requires_grad_()
    offs = torch.tensor(ENDS[name], dtype=torch.int32)
    kernel = compile(lambda x, m, o: torch._grouped_mm(x, m, offs=o), (x, matrices, offs))
    with torch.enable_grad():
        found = torch.autograd.grad(kernel(x, matrices, offs).sin().sum(), (x, matrices))
        wide = [v.detach().double().requires_grad_() for v in (x, matrices)]
        right = torch.autograd.grad(by_group(*wide, ENDS[name]).sin().sum(), wide)
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=5e-2, atol=5e-2)


def test_counts_per_expert():
    chosen = torch.tensor([0.0, 1, 1, 2.5, 4, 5, 5.2, -1, 3])

    def count(x):
        return torch.histc(x, bins=5, min=0, max=5)

    torch.testing.assert_close(compile(count, (chosen,))(chosen), count(chosen))
