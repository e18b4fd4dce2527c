"""Sizes and numbers that dynamo has as symbols."""

import collections
import math

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import attn_opt.compiler.frontends.dynamo.entry as dynamo  # noqa: E402
import sympy  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import stats  # noqa: E402
from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel  # noqa: E402
from attn_opt.compiler.frontends.dynamo.sizes import combination  # noqa: E402
from dynamo_harness import Counts, compiled, fresh  # noqa: E402, F401
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402
from torch_harness import close, tensors, wide  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:flex_attention called")


def test_new_sizes():
    def attention(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    fast, counts = compiled(attention), Counts()
    for n in (5, 9, 33, 70, 12):
        args = tensors((2, 3, n, 8), (2, 3, n, 8), (2, 3, n, 8))
        close(fast(*args), attention(*map(wide, args)))
    assert counts.compiled == 2, "one for the first size and one for all others"


def test_sizes_that_happen_to_be_equal():
    def attention(q, k):
        return (q @ k.mT).softmax(-1) @ k

    fast = compiled(attention, dynamic=True)
    for m, n in ((8, 8), (8, 12), (5, 8)):
        args = tensors((2, m, 8), (2, n, 8))
        close(fast(*args), attention(*map(wide, args)))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("masked", [False, True])
def test_sizes_of_kernels_for_the_gpu(gpu, monkeypatch, masked, dynamic):
    """One kernel for all lengths; where torch takes all sizes to be open, only those that change are: a kernel must
    know its head size."""

    def attention(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not masked)

    monkeypatch.setattr(dynamo, "TARGETS", {"cpu": "nvidia"})
    monkeypatch.setattr(dynamo_kernel, "_kernels", collections.OrderedDict())  # those of other drivers
    fast, counts, kernels = compiled(attention, dynamic=dynamic), Counts(), []
    for n, size in ((64, 64), (90, 64), (201, 64), (513, 64), (300, 64), (300, 32)):
        shape = (2, 4, n, size)
        args = tensors(shape, shape, shape, *[(1, 4, n, n)] * masked, dtype=torch.float16)
        assert fast(*args).shape == shape
        kernels.append(counts.kernels)
        assert {launch.kernel for launch in gpu.launches} <= {"main_0", "main_1", "main_pad_0"} and gpu.launches
        gpu.launches.clear()
    assert kernels[4] == kernels[2] < kernels[5] and counts.left == 0


def test_numbers_that_flex_attention_captures():
    """The position of a token, in a mask_mod: one kernel for all."""

    def step(q, keys, values, position):
        def seen(b, h, row, column):
            return column <= row + position

        blocks = create_block_mask(seen, None, None, q.shape[2], keys.shape[2], device="cpu", BLOCK_SIZE=128)
        return flex_attention(q, keys, values, block_mask=blocks)

    def reference(q, keys, values, position):
        seen = torch.arange(keys.shape[2]) <= torch.arange(q.shape[2])[:, None] + position
        return F.scaled_dot_product_attention(*map(wide, (q, keys, values)), attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for position in (3, 4, 5, 9):
        args = tensors((2, 3, 2, 16), (2, 3, 12, 16), (2, 3, 12, 16))
        close(fast(*args, position), reference(*args, position))
    assert (counts.kernels, counts.left) == (2, 0), "one for the number that dynamo takes as it is, one for all others"


def test_sizes_that_are_symbols():
    """A view to sizes that come as a tuple, and as numbers from the mask: one kernel for all."""

    def attention(x, mask):
        b, _, n, _ = mask.shape
        y = x.view((*mask.size()[:1], n, 24))
        q, k, v = (t.view(b, n, -1, 8).transpose(1, 2) for t in (y, y + 1, y - 1))
        return (q @ k.mT + mask).softmax(-1) @ v

    fast, counts = compiled(attention, dynamic=True), Counts()
    for b, n in ((2, 5), (2, 9), (3, 12)):
        x, mask = tensors((b * n, 24), (b, 1, n, n))
        close(fast(x, mask), attention(x.double(), mask.double()))
    assert (counts.kernels, counts.left) == (1, 0)


@pytest.mark.parametrize("shifted", ["", "max", "amax"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sinks_beside_an_open_number_of_keys(shifted, count, dtype):
    """gpt-oss: scores that each head has learned, in the softmax and not before the values, while a cache grows."""

    def attention(q, k, v, sinks, mask):
        s = q @ k.mT + mask
        s = torch.cat((s, *[sinks.reshape(1, 3, 1, 1).expand(2, 3, q.shape[2], 1)] * count), -1)
        if shifted == "max":
            s = s - s.max(-1, keepdim=True).values
        elif shifted:
            s = s - s.amax(-1, keepdim=True)
        return s.softmax(-1)[..., :-count] @ v

    fast, counts = compiled(attention), Counts()
    for n in (5, 9, 12, 33):
        args = [x.to(dtype) for x in tensors((2, 3, 2, 8), (2, 3, n, 8), (2, 3, n, 8), (3,), (2, 1, 2, n))]
        args[4][1, 0, 1] = -math.inf  # a row that is all sinks
        tolerance = {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(fast(*args), attention(*map(wide, args)).to(dtype), **tolerance)
    assert (counts.compiled, counts.left) == (2, 0)


def test_numbers_that_sizes_tell():
    """A causal mask made of the length that a cache had before: one kernel for all lengths."""

    def step(x, keys, values):
        past, new = keys.shape[2], x.shape[2]
        keys, values = torch.cat((keys, x + 1), 2), torch.cat((values, x - 1), 2)
        seen = torch.arange(past + new) <= (torch.arange(new) + past)[:, None]
        return F.scaled_dot_product_attention(x, keys, values, attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for past, new in ((5, 3), (8, 4), (12, 2), (40, 5), (77, 6)):
        args = tensors((2, 3, new, 8), *[(2, 3, past, 8)] * 2)
        close(fast(*args), step(*map(wide, args)))
    assert counts.kernels == 2, "one for the first sizes and one for all others"


@pytest.mark.parametrize("window", [5, 1000])
def test_numbers_that_no_size_tells(window):
    """A window over a cache that is no longer than it: the positions in the mask are the same kernel's arguments."""

    def step(q, keys, values, position, first):
        rows, columns = position + torch.arange(q.shape[2])[:, None], torch.arange(keys.shape[2]) + first
        seen = (columns <= rows) & (rows - window < columns)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)

    fast, counts = compiled(step), Counts()
    for position in (9, 10, 11, 25, 400):
        args = tensors((2, 3, 2, 8), (2, 3, 12, 8), (2, 3, 12, 8))
        where = (position, max(position - 10, 0))
        close(fast(*args, *where), step(*map(wide, args), *where))
    assert counts.kernels <= 3 and counts.left == 0, "two for numbers that dynamo takes as they are, one for all others"


@pytest.mark.parametrize(
    "wanted, known, expected",
    [
        ("s", ["s"], [1, 0]),
        ("s", ["t", "s + 1"], [0, 1, -1]),
        ("s", ["s + t", "t"], [1, -1, 0]),
        ("2*s*t - 3", ["s", "s*t + 1"], [0, 2, -5]),
        ("s", ["2*s"], None),
        ("s", ["t"], None),
        ("s", [], None),
    ],
)
def test_sizes_by_other_sizes(wanted, known, expected):
    assert combination(sympy.sympify(wanted), [sympy.sympify(one) for one in known]) == expected


def grouped(queries, keys, values):
    """As in a decoder's step on a static cache."""

    def repeated(x):
        b, heads, n, d = x.shape
        return x[:, :, None].expand(b, heads, 2, n, d).reshape(b, heads * 2, n, d)

    k, mask = repeated(keys), (torch.arange(keys.shape[2]) < 11)[None]
    queries = queries + torch.zeros(2, 4, 1, 8)  # from here on these sizes are numbers
    return F.scaled_dot_product_attention(queries, k, repeated(values), attn_mask=mask)


def test_a_symbol_that_turns_out_to_be_a_number():
    torch._dynamo.reset()
    args, before = tensors((2, 4, 1, 8), (2, 2, 17, 8), (2, 2, 17, 8)), stats()
    with torch.no_grad():
        fast = torch.compile(grouped, backend="attn_opt", dynamic=True)
        close(fast(*args), grouped(*map(wide, args)))
        longer = (args[0], *tensors((2, 2, 29, 8), (2, 2, 29, 8)))
        close(fast(*longer), grouped(*map(wide, longer)))
    after = stats()
    assert (after["compiled"] - before["compiled"], after["left"] - before["left"]) == (1, 0), after["reasons"]
