"""Attention of torch with what stands before and after it: slices, pads, running sums, pages of a cache."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch_harness import close, sdpa, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


def forgetting(q, k, v, c):
    """Forgetting attention: scores decay by what comes between query and key (arXiv:2503.02130)."""
    scores = (q @ k.mT).float() / 8 + c[..., :, None] - c[..., None, :]
    live = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~live, float("-inf")).softmax(-1).to(v.dtype) @ v


def selective(q, k, v, scores):
    """Selective attention: queries before this one have a say in which keys it sees (arXiv:2410.02703)."""
    live = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    hidden = scores.float().where(live, 0.0).relu().roll(1, -2).cumsum(-2)
    scores = (q @ k.mT).float() / 8 - hidden[:, None]
    return scores.masked_fill(~live, float("-inf")).softmax(-1).to(v.dtype) @ v


def pair_bias(q, k, v):
    """As in AlphaFold: a bias of each pair that is projected to heads."""
    pairs = q[:, 0, :, None] * k[:, 0, None, :]
    return ((q @ k.mT) / 4 + (pairs @ v[0, 0, :2].mT).permute(0, 3, 1, 2)).softmax(-1) @ v


def windows(q, k, v):
    """Blocks of queries that see their own keys and the ones before."""
    k, v = (F.pad(x, (0, 0, 20, 0)).unfold(2, 40, 20) for x in (k, v))
    return ((q.unflatten(2, (5, 20)) @ k).softmax(-1) @ v.mT).flatten(2, 3)


AROUND = {
    "every second key": lambda q, k, v: sdpa()(q[:, :, 1::2], k[:, :, ::2], v[:, :, ::2]),
    "every second head": lambda q, k, v: sdpa()(q[:, ::2], k[:, 1::2], v[:, 1::2]),
    "rolled": lambda q, k, v: sdpa()(q, k, v.roll(-3, 2)).roll((3, 1), (2, 1)),
    "a padded mask": lambda q, k, v: (q @ k.mT + F.pad(k[:, :, :-2, 0], (1, 1))[:, :, None]).softmax(-1) @ v,
    "pair bias": pair_bias,
    "windows": windows,
    "two that share all": lambda q, k, v: torch.stack([sdpa()(q, k, v), sdpa()(q + 1, k, v)]),
    "one after the other": lambda q, k, v: sdpa()(sdpa()(q, k, v), k, v),
    "keys that are returned": lambda q, k, v: (sdpa()(q, k.tanh(), v), k.tanh()),
    "a cache that grows": lambda q, k, v: sdpa()(q, torch.cat([k, q[:, :, -1:]], 2), torch.cat([v, q[:, :, :1]], 2)),
    "padded": lambda q, k, v: F.pad(sdpa()(q, k, v), (0, 0, 2, 5)),
    "a part": lambda q, k, v: sdpa()(q, k, v)[:, :, 3:10],
    "q, q, q": lambda q, k, v: sdpa()(q, q, q),
    "running sums": lambda q, k, v: forgetting(q, k, v, F.logsigmoid(k[..., 0].float()).cumsum(2)),
    "running sums, one query": lambda q, k, v: (
        ((q[:, :1, :1] @ k[:, :1].mT).float() - k[:, :1, :, 0].float().cumsum(2)[:, :, None]).softmax(-1).to(v.dtype)
        @ v[:, :1]
    ),
    "rolled running sums of scores": lambda q, k, v: selective(q, k, v, q[:, 0] @ k[:, 0].mT),
    "tanh(v), tanh(v), v": lambda q, k, v: (v.tanh() @ v.tanh().mT / 8).softmax(-1) @ v,
}


@pytest.mark.parametrize("arch", ["", "sm_80", "sm_90a"])
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around(name, arch):
    q, k, v = tensors(*[(1, 2, 100, 16)] * 3, dtype=torch.float16)
    if arch:
        assert compile(AROUND[name], (q, k, v), target="nvidia", arch=arch).ir("ptx")
        return
    kernel = compile(AROUND[name], (q, k, v))
    results = [r if isinstance(r, tuple) else (r,) for r in (kernel(q, k, v), AROUND[name](*map(wide, (q, k, v))))]
    for found, expected in zip(*results, strict=True):
        close(found, expected, torch.float16)


def pages(q, k, v, table):
    """Keys and values in pages [page, key, head, d] that a table lists, as caches of servers are."""
    k, v = (x[table].flatten(1, 2).transpose(1, 2) for x in (k, v))
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


# Of the table [entries, pages of one]: one page, of one key, several; as many keys as a tile has, in pages of some.
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
@pytest.mark.parametrize("shape", [(2, 1, 16), (2, 2, 1), (1, 2, 5), (1, 8, 16)], ids=str)
def test_pages_that_a_table_lists(shape, target):
    batch, count, size = shape
    q, k, v = tensors((batch, 4, 5, 16), (9, size, 2, 16), (9, size, 2, 16), dtype=torch.float16)
    table = torch.arange(batch * count).reshape(batch, count).flip(1).remainder(9).to(torch.int32)
    kernel = compile(pages, (q, k, v, table), target=target, **{"arch": "sm_90a"} if target == "nvidia" else {})
    assert kernel.ir("fused").count("linalg_ext.softmax") == 1 and "scf.for" in kernel.ir("fused")
    if target == "cpu":
        close(kernel(q, k, v, table), pages(q.double(), k.double(), v.double(), table), torch.float16)


@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_an_open_number_of_pages_leaves_no_scores_in_memory(target):
    q, k, v = tensors((2, 4, 5, 16), (9, 16, 2, 16), (9, 16, 2, 16), dtype=torch.float16)
    table = torch.tensor([[3, 1, 7], [0, 8, 2]])
    shapes = [{}, {0: Dim.AUTO}, {0: Dim.AUTO}, {1: Dim.AUTO}]
    kernel = compile(pages, (q, k, v, table), target=target, dynamic_shapes=shapes)
    assert "softmax' stays outside" not in kernel.explain()
    if target == "cpu":
        close(kernel(q, k, v, table), pages(q.double(), k.double(), v.double(), table), torch.float16)
