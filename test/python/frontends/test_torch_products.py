"""Scores of torch that are the sum of several products: one, over more columns."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile  # noqa: E402
from gpu_modules import lowered  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import close, run_as_on_gpu, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
ARE_ONE = "two products that are added up as scores are one"


def latent(q, k, p, r, v):
    """Multi-head latent attention: heads share keys' positions (arXiv:2405.04434)."""
    scores = (q @ k.mT + p @ r.mT) * 24**-0.5
    live = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    return scores.masked_fill(~live, float("-inf")).softmax(-1) @ v


def absorbed(q, p, latents, positions):
    """… as DeepSeek's code has it: heads share keys, which are values, too."""
    scores = torch.einsum("bshc,btc->bsht", q, latents) + torch.einsum("bshr,btr->bsht", p, positions)
    return torch.einsum("bsht,btc->bshc", (scores * 0.2).softmax(-1), latents)


def in_groups(q, k, p, r, v):
    q, p = (x.unflatten(1, (2, 2)) for x in (q, p))
    scores = torch.einsum("bghid,bgjd->bghij", q, k) + torch.einsum("bghid,bjd->bghij", p, r)
    return torch.einsum("bghij,bgjd->bghid", scores.softmax(-1), v).flatten(1, 2)


def scaled(q, k, p, r, v):
    return ((q @ k.mT) * 0.25 + (p @ r.mT) * 0.25).softmax(-1) @ v


def keys_first(q, k, p, r, v):
    return (q @ k.mT + (r @ p.mT).mT).tanh().softmax(-1) @ v


def three(q, k, p, r, v):
    return (q @ k.mT + (p @ r.mT + q @ v.mT)).softmax(-1) @ v


M, N = 90, 130
KEYS = {"r": (2, 1, N, 8), "v": (2, 4, N, 16)}
SHAPES = {
    latent: ((2, 4, M, 16), (2, 4, N, 16), (2, 4, M, 8), KEYS["r"], KEYS["v"]),
    absorbed: ((2, M, 4, 16), (2, M, 4, 8), (2, N, 16), (2, N, 8)),
    in_groups: ((2, 4, M, 16), (2, 2, N, 16), (2, 4, M, 8), (2, N, 8), (2, 2, N, 16)),
    scaled: ((2, 4, M, 16), (2, 4, N, 16), (2, 4, M, 8), KEYS["r"], KEYS["v"]),
    keys_first: ((2, 4, M, 16), (2, 4, N, 16), (2, 4, M, 8), (2, 4, N, 8), KEYS["v"]),
    three: ((2, 4, M, 16), (2, 4, N, 16), (2, 4, M, 8), KEYS["r"], KEYS["v"]),
}


@pytest.mark.parametrize("arch", ["", "sm_80", "sm_90a"])
@pytest.mark.parametrize("function", SHAPES, ids=lambda function: function.__name__)
def test_products_are_one(function, arch):
    args, heard = tensors(*SHAPES[function], dtype=torch.float16), []
    where = {"target": "nvidia", "arch": arch} if arch else {}
    kernel = compile(function, args, listener=lambda told: heard.append(told.message), **where)
    assert heard.count(ARE_ONE) == (2 if function == three else 1)
    assert f"{M}x{N}xf" not in kernel.ir("fused"), "scores are in memory"
    if arch:
        module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
        (found,) = run_as_on_gpu(module, args, [torch.float16])
    else:
        found = kernel(*args)
    close(found, function(*map(wide, args)), torch.float16)


def test_open_sizes():
    args = tensors(*SHAPES[absorbed])
    batch, queries, keys = Dim("batch"), Dim("queries"), Dim("keys")
    sizes = ({0: batch, 1: queries}, {0: batch, 1: queries}, {0: batch, 1: keys}, {0: batch, 1: keys})
    kernel = compile(absorbed, args, dynamic_shapes=sizes)
    for shapes in (SHAPES[absorbed], ((1, 130, 4, 16), (1, 130, 4, 8), (1, 33, 16), (1, 33, 8))):
        args = tensors(*shapes)
        close(kernel(*args), absorbed(*map(wide, args)))


def test_few_queries_are_left():
    """All scores are fewer than what would be copied."""
    args, heard = tensors((2, 4, 3, 16), (2, 4, N, 16), (2, 4, 3, 8), KEYS["r"], KEYS["v"]), []
    kernel = compile(scaled, args, listener=lambda told: heard.append(told.message))
    assert ARE_ONE not in heard
    close(kernel(*args), scaled(*map(wide, args)))
