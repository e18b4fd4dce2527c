"""Masks of what is loaded for each token, as programs of torch write them: documents, padding, positions. Tiles that
they make dead are left out, on CPUs and on GPUs."""

import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import compile  # noqa: E402
from attn_opt.transforms.attention import is_matmul  # noqa: E402
from attn_opt.transforms.online.before_loops import SMALL  # noqa: E402
from attn_opt.transforms.rewriting import ops_in  # noqa: E402
from gpu_modules import Launches, lowered  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from torch_harness import close, run_as_on_gpu, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

TOKENS = 300
DOCUMENTS = torch.repeat_interleave(torch.arange(4), torch.tensor([100, 7, 143, 50]))
SEGMENTS = torch.stack([DOCUMENTS, DOCUMENTS.flip(0)]).int()
PADDING = torch.arange(TOKENS) >= torch.tensor([[70], [0]])


def documents(q, k, v, segments):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    same = segments[:, None, :, None] == segments[:, None, None, :]
    i = torch.arange(q.shape[2])
    return scores.masked_fill(~(same & (i[:, None] >= i)), -math.inf).softmax(-1) @ v


def documents_of_sdpa(q, k, v, segments):
    return F.scaled_dot_product_attention(q, k, v, segments[:, None, :, None] == segments[:, None, None, :])


def documents_of_the_last_queries(q, k, v, segments):
    """As a cache's, to which a part of a prompt was added."""
    last = TOKENS - 70
    same = segments[:, None, last:, None] == segments[:, None, None, :]
    late = torch.arange(last, TOKENS)[:, None] >= torch.arange(TOKENS)
    return F.scaled_dot_product_attention(q[:, :, last:], k, v, same & late)


def documents_of_the_last_query(q, k, v, segments):
    same = segments[:, None, -1:, None] == segments[:, None, None, :]
    return F.scaled_dot_product_attention(q[:, :, -1:], k, v, same)


def documents_behind_a_header(q, k, v, segments):
    return documents_of_sdpa(q[:, :, 3:], k[:, :, 3:], v[:, :, 3:], segments[:, 3:])


def documents_of_columns(q, k, v, segments):
    return documents_of_sdpa(q, k, v, segments.T)


def documents_that_are_added(q, k, v, segments):
    same = segments[:, None, :, None] == segments[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, torch.where(same, 0.0, -math.inf).to(q.dtype))


def documents_by_their_starts(q, k, v, starts):
    return documents_of_sdpa(q, k, v, starts.cumsum(1))


def padding(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :])


def causal_padding(q, k, v, mask):
    i = torch.arange(q.shape[2])
    return F.scaled_dot_product_attention(q, k, v, mask[:, None, None, :] & (i[:, None] >= i))


def padding_of_ones(q, k, v, mask):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return scores.masked_fill(mask[:, None, None, :] == 0, -math.inf).softmax(-1) @ v


def positions(q, k, v, last):
    return F.scaled_dot_product_attention(q, k, v, torch.arange(k.shape[2]) <= last[:, None, :, None])


def flex(q, k, v, segments):
    def mask_mod(b, h, i, j):
        return (segments[b, i] == segments[b, j]) & (i >= j)

    n = q.shape[2]
    return flex_attention(q, k, v, block_mask=create_block_mask(mask_mod, q.shape[0], None, n, n, device="cpu"))


LAST = torch.arange(TOKENS).flip(0)[None].expand(2, -1)
# How it is written, what is loaded, and how many loops there are over keys.
CASES = {
    "documents": (documents, SEGMENTS, 3),
    "documents, of 64 bits": (documents, SEGMENTS.long() - 3, 3),
    "documents, not causal": (documents_of_sdpa, SEGMENTS, 3),
    "documents of 8 bits": (documents_of_sdpa, SEGMENTS.to(torch.int8), 3),
    "documents of the last queries": (documents_of_the_last_queries, SEGMENTS, 3),
    "the document of the last query, far from others": (
        documents_of_the_last_query,
        torch.where(SEGMENTS[:, -1:] == SEGMENTS, torch.iinfo(torch.int64).max, SEGMENTS.long()),
        3,
    ),
    "documents behind a header": (documents_behind_a_header, SEGMENTS, 3),
    "documents of columns": (documents_of_columns, SEGMENTS.T.contiguous(), 3),
    "documents that are added": (documents_that_are_added, SEGMENTS, 3),
    "documents by their starts": (documents_by_their_starts, SEGMENTS.diff(dim=1, prepend=SEGMENTS[:, :1]).abs(), 3),
    "flex_attention": (flex, SEGMENTS, 3),
    "padding": (padding, PADDING, 3),
    "padding, causal": (causal_padding, PADDING, 3),
    "padding that is 0": (padding_of_ones, PADDING.long(), 3),
    "positions": (positions, LAST, 2),
}
SKIPS = "skips dead tiles and computes live tiles without the mask: {} loops in place of one"
JOINED = "loops that were split at a mask are one, with a branch around the mask"


@pytest.mark.parametrize("name", CASES)
def test_on_cpus(name):
    function, loaded, _ = CASES[name]
    args = (*tensors(*[(2, 2, TOKENS, 16)] * 3), loaded)
    heard = []
    kernel = compile(function, args, listener=lambda told: heard.append(told.message))
    found = kernel(*args)
    close(found, function(*map(wide, args)))
    is_one_query = found.shape[2] == 1  # which has all keys in a tile
    assert is_one_query or any(message.startswith(("skips dead tiles", "looks at each tile")) for message in heard)


@pytest.mark.parametrize("name", CASES)
def test_on_gpus(name):
    """Three loops over keys, or two, become one again; what it computes is right."""
    function, loaded, loops = CASES[name]
    args = (*tensors(*[(2, 2, TOKENS, 16)] * 3, dtype=torch.float16), loaded)
    heard = []
    kernel = compile(function, args, target="nvidia", arch="sm_90a", listener=lambda told: heard.append(told.message))
    assert SKIPS.format(loops) in heard and JOINED in heard
    module = lowered(kernel.ir("graph"), last="reverse-keys", parts=1)
    with module.context:
        found = ops_in(module.operation, "scf.for")
        assert len([loop for loop in found if any(map(is_matmul, ops_in(loop, "linalg.generic")))]) == 1
    (found,) = run_as_on_gpu(lowered(kernel.ir("graph"), parts=1), args, [torch.float16])
    close(found, function(*map(wide, args)), torch.float16)


# Masks with holes.

LONG = 2048  # 16 tiles of 128 keys
IN_TURNS = ((torch.arange(LONG) // 128) % 8)[None].int() - 4
ODD = torch.stack([torch.arange(17 * 128) // 100 % 5, torch.arange(17 * 128) // 700]).int()
ENTRIES = torch.export.Dim("entries", max=1000)
LAYOUT = torch.rand(16, 16, generator=torch.Generator().manual_seed(1)) < 0.3


def places():
    return torch.arange(LONG)[:, None], torch.arange(LONG)


def half_documents(q, k, v, segments):
    return documents_of_sdpa(q, k, v, segments // 2)


def layout(q, k, v, table):
    i, j = places()
    return F.scaled_dot_product_attention(q, k, v, table[i // 128, j // 128])


def layout_of_each_entry(q, k, v, tables):
    """The queries' blocks are shorter than tiles of keys, so that one may be live in part."""
    i, j = places()
    return F.scaled_dot_product_attention(q, k, v, tables[:, None, i // 64, j // 128])


def counted_from_the_end(q, k, v, table):
    i, j = places()
    return F.scaled_dot_product_attention(q, k, v, table[-1 - i // 128, j // 128])


def documents_of_heads(q, k, v, segments):
    return F.scaled_dot_product_attention(q, k, v, segments[:, :, :, None] == segments[:, :, None, :])


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


def first_keys_and_window(q, k, v, _):
    i, j = places()
    return F.scaled_dot_product_attention(q, k, v, (j <= i) & ((j < 64) | (i - j < 300)))


# And how many launches make the list.
HOLES = {
    "documents in turns": (documents_of_sdpa, IN_TURNS, 2),
    "two of them": (half_documents, IN_TURNS, 2),
    "a table of blocks": (layout, LAYOUT, 1),
    "a table of each entry": (layout_of_each_entry, LAYOUT[torch.arange(32) // 2][None], 1),
    "a table from its end on": (counted_from_the_end, LAYOUT, 0),
    "first keys and a window": (first_keys_and_window, IN_TURNS, 1),
    "17 tiles, two entries": (documents_of_sdpa, ODD, 2),
    "17 tiles, open": (documents_of_sdpa, ODD, 2),
    "documents of each head": (documents_of_heads, torch.stack([IN_TURNS, IN_TURNS.flip(1) // 3], 1), 2),
    "a mask": (masked, LAYOUT.repeat_interleave(128, 0).repeat_interleave(128, 1)[None, None].clone(), 2),
}


def args_of(name, dtype):
    _, loaded, _ = HOLES[name]
    n = 17 * 128 if name.startswith("17") else LONG
    return (*tensors(*[(2 if n > LONG else 1, 2, n, 16)] * 3, dtype=dtype), loaded)


@pytest.mark.parametrize("name", HOLES)
def test_tiles_are_listed_on_gpus(name):
    """Where a table is read backwards, it is not looked at before."""
    function, _, launches = HOLES[name]
    args = args_of(name, torch.float16)
    sizes = ({0: ENTRIES},) * 4 if name.endswith("open") else None
    text = compile(function, args, target="nvidia", arch="sm_90a", dynamic_shapes=sizes).ir("graph")
    online = lowered(text, last="decompose-linalg-ext", parts=1)
    with online.context:
        made = [op for op in ops_in(online.operation, "linalg.generic") if SMALL in op.attributes]
    assert bool(made) == bool(launches)
    (found,) = run_as_on_gpu(lowered(text, parts=1), args, [torch.float16])
    close(found, function(*map(wide, args)), torch.float16)
    assert sum("elements" in kernel for kernel in Launches.kernels) == launches


@pytest.mark.parametrize("name", HOLES)
def test_holes_on_cpus(name):
    function, args = HOLES[name][0], args_of(name, torch.float32)
    close(compile(function, args)(*args), function(*map(wide, args)))


@pytest.mark.parametrize("divisor", [64, 7, -3])
def test_quotients_are_integers(divisor):
    """Also where f64 would round."""
    numbers = torch.tensor([0, 1, 63, 64, -1, -64, 2**62 + 1, -(2**62) - 1, 2**53 + 1])
    kernel = compile(lambda x: (x // divisor, torch.div(x, divisor, rounding_mode="floor")), (numbers,))
    assert "f64" not in kernel.ir("graph")
    for found in kernel(numbers):
        assert torch.equal(found, numbers // divisor)
