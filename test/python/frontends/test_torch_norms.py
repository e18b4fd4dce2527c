"""Norms of layers and variances of torch: in the precision of their elements, float32 at least."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
import torch.nn.functional as F  # noqa: E402
from row_functions import FUNCTIONS, SHAPES  # noqa: E402
from torch.export import Dim  # noqa: E402

X = 3 * torch.randn(6, 50, 64, generator=torch.Generator().manual_seed(0)) + 100
NORMS = {
    "layer": lambda x: F.layer_norm(x, (64,)),
    "group": lambda x: F.group_norm(x.transpose(1, 2), 4),
    "variance": lambda x: torch.var_mean(x, (0, 2), correction=0, keepdim=True),
    "all": lambda x: torch.std_mean(x),
    "of one": lambda x: x[..., :1].var(-1),
    "of none": lambda x: x[..., :0].var(-1),
    "of few": lambda x: x[..., :2].var(-1, correction=3),
}
TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 1e-2, torch.float64: 1e-13}


@pytest.mark.filterwarnings("ignore:var")  # of fewer elements than are subtracted
@pytest.mark.parametrize("kind", TOLERANCE, ids=str)
@pytest.mark.parametrize("sizes", [None, ({0: Dim("batch"), 1: Dim("length")},)], ids=["fixed", "open"])
def test_norms(kind, sizes):
    x = X.to(kind)

    def norms(x):
        return [result for norm in NORMS.values() for result in torch.utils._pytree.tree_leaves(norm(x))]

    kernel = compile(norms, (x,), dynamic_shapes=sizes)
    if kind != torch.float64:
        assert "xf64" not in kernel.ir("graph")
    for found, expected in zip(kernel(x), norms(x.double()), strict=True):
        error = (found.double() - expected).nan_to_num().norm()
        assert found.shape == expected.shape and error <= TOLERANCE[kind] * expected.nan_to_num().norm()
        assert torch.equal(found.isnan(), expected.isnan()) and torch.equal(found.isinf(), expected.isinf())


SUMS = {
    "mean of squares": lambda x: (x * x).mean(-1),
    "mean of all": lambda x: (x * x).mean(),
    "mean of columns": lambda x: x.abs().mean(0),
    "count": lambda x: (x * 0 + 1).sum(-1),
    "running sum": lambda x: (x * x).cumsum(-1) / 4096,
    "product": lambda x: (1 + x / 1024).prod(-1),
    "root mean square": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)),
    "rms_norm": lambda x: F.rms_norm(x * 8, (4096,), torch.ones(4096, dtype=x.dtype) / 2),
    "norm": lambda x: x.norm(dim=-1),
    "normalized": lambda x: F.normalize(x, dim=-1),
    "pooled": lambda x: F.adaptive_avg_pool1d(x.abs()[None], 1),
}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_halves_have_the_digits_of_float32(name, kind):
    """Squares of 64 on average, 4096 of them: in float16 their sum is infinite, in bfloat16 it stops at 256 times."""
    x = (8 * torch.randn(6, 4096, generator=torch.Generator().manual_seed(0))).to(kind)
    found, expected = compile(SUMS[name], (x,))(x), SUMS[name](x.double())
    assert found.dtype == kind and found.isfinite().all()
    assert (found.double() - expected).abs().max() <= 6 * torch.finfo(kind).eps * expected.abs().max()


@pytest.mark.parametrize("shape", SHAPES[::2], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_kernel_of_a_gpu_reads_rows(function, shape):
    """Which `test_gpu_torch_rows.py` runs, on one."""
    args = torch.zeros(shape, dtype=torch.float16), torch.zeros(shape[-1:], dtype=torch.float16)
    kernel = compile(function, args, target="nvidia", arch="sm_90a")
    assert kernel.ir("tiles").count("gpu.func @main_rows") == kernel.ir("tiles").count("gpu.func") == 1
