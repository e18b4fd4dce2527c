"""Halves on GPUs: what one kernel stores and another one computes again is the same number."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile  # noqa: E402
from gpu_modules import Launches, lowered  # noqa: E402
from torch_harness import run_as_on_gpu, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def one_key(q, k, v, u, lengths):
    p = (((q / 8) @ k.mT + (q @ u).unsqueeze(-1)) * 0.5 + u[3]).softmax(-1)
    return p @ v, p


def one_live_key(q, k, v, u, lengths):
    """The sum of squares keeps it from being fused."""
    q, k, v = q.unflatten(1, (2, 3)), k.unsqueeze(2), v.unsqueeze(2)
    s = q @ k.mT / 2.828
    s = s.masked_fill(torch.arange(k.shape[-2]) >= lengths[:, None, None, None, None], -torch.inf)
    e = torch.exp2(s - s.amax(-1, keepdim=True))
    p = (e * (1 / e.sum(-1, keepdim=True))).square()
    p = p / (p.sum(-1, keepdim=True) + 1e-6)
    return p @ v, p.sum(-1)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "function, shapes",
    [
        (one_key, ((2, 130, 16), (2, 1, 16), (2, 1, 8), (16,))),
        (one_live_key, ((2, 6, 130, 8), (2, 2, 17, 8), (2, 2, 17, 8), (8,))),
    ],
)
def test_the_weight_of_a_single_key_is_one(function, shapes, dtype, arch):
    args = *(x * 5 for x in tensors(*shapes, dtype=dtype)), torch.tensor([1, 1])
    kernel = compile(function, args, target="nvidia", arch=arch)
    out, p = run_as_on_gpu(lowered(kernel.ir("fused"), is_fused=True, arch=arch), args, [torch.float64] * 2)
    assert len(Launches.kernels) > 1
    right = function(*map(wide, args))
    assert (p - right[1]).abs().max() < 1e-5
    assert (out - right[0]).abs().max() < 1e-5 * right[0].abs().max()
