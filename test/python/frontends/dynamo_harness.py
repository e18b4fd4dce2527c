"""torch.compile(…, backend="attn_opt") in tests, and what stats() counts meanwhile."""

import math

import pytest
import torch
import torch.nn.functional as F
from attn_opt.compiler import stats
from attn_opt.compiler.frontends.torch import dropout
from torch.overrides import TorchFunctionMode


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")  # a kernel of another test's counts as compiled, and as a hit
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Counts:
    """What stats() has counted since this was made."""

    def __init__(self):
        self.before = stats()

    def __getattr__(self, name):
        after = stats()
        if name == "reasons":
            return [r for r, n in after["reasons"].items() if n > self.before["reasons"].get(r, 0)]
        return after[name] - self.before[name]

    @property
    def kernels(self):
        return self.compiled + self.cache_hits


def compiled(function, **options):
    return torch.compile(function, backend="attn_opt", **options)


class Drawn(TorchFunctionMode):
    """Dropouts are those of the seeds that a compiled graph draws."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is F.scaled_dot_product_attention and kwargs.get("dropout_p"):
            with self:
                return attention(*args, **kwargs)
        if function in (F.dropout, torch.dropout, torch.dropout_) and kwargs.get("training", True):
            p = kwargs["p"] if "p" in kwargs else args[1]
            return dropout.dropped(args[0], p, torch.randint(-(2**31), 2**31, (2,), dtype=torch.int32))
        return function(*args, **kwargs)


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """F.scaled_dot_product_attention by hand."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return F.dropout(scores.softmax(-1).nan_to_num(), p=dropout_p) @ v
