"""torch.compile(…, backend="attn_opt") in tests, and what stats() counts meanwhile."""

import pytest
import torch
from attn_opt.compiler import stats


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
