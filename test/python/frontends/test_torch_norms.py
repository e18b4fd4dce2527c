"""Norms of layers and variances of torch: in the precision of their elements, float32 at least."""

import pytest
from attn_opt.compiler import compile

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
import torch.nn.functional as F  # noqa: E402
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
