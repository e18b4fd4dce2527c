"""Makes the modules beside the tests importable, and those of tests for GPUs, one folder up and in `numeric`."""

import collections
import gc
import os
import sys
from pathlib import Path

import pytest

# What is compared with runs once: XLA optimises it for longer than it takes. Read when jax is imported.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[1] / "numeric")]
pytest.register_assert_rewrite("torch_harness", "onnx_harness", "jax_harness")


def pytest_collection_finish() -> None:
    """Frameworks are imported by then: what they consist of stays, and the collector need not go through it."""
    gc.freeze()


@pytest.fixture
def gpu():
    """A driver that notes down what is launched."""
    from fake_cuda import fake_driver

    with fake_driver() as fake:
        yield fake


@pytest.fixture
def kept(request, monkeypatch):
    """How many attentions there are in the kernels that were made: in forwards that keep something, and how many
    results these have, and in derivatives that read it; `of_rows`: the former where a forward keeps all it must. "as
    halves" (`BOTH_KEPT`): of float32 what is kept of halves, and is seen to be right to more digits than these have."""
    from attn_opt.compiler.frontends.dynamo import kernel as dynamo_kernel
    from attn_opt.compiler.frontends.torch import kept as kept_of_rows
    from training_harness import ONE_NUMBER, TWO_NUMBERS

    as_halves = getattr(request, "param", "") == "as halves"
    if as_halves:
        monkeypatch.setattr(kept_of_rows, "EXACT", ())
    made = collections.OrderedDict()
    monkeypatch.setattr(dynamo_kernel, "_kernels", made)

    def counts():
        found = {"keeping": [], "derivative of what is kept": []}
        for (structure, *_), kernel in made.items():
            if structure[0] in found and not isinstance(kernel, str):
                kinds = [entry["details"].get("kind") for entry in kernel.record["entries"]]
                found[structure[0]].append((kinds.count("fused"), len(kernel.signature.results)))
        return [*found.values()]

    counts.of_rows = ONE_NUMBER if as_halves else TWO_NUMBERS
    return counts
