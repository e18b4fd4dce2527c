"""Sizes that dynamo has as symbols."""

import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

import attn_opt.compiler.frontends.dynamo  # noqa: E402, F401
import torch.nn.functional as F  # noqa: E402
from attn_opt.compiler import stats  # noqa: E402
from test_torch import close, tensors, wide  # noqa: E402


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
