"""Passes make no op outside of a block: nothing owns such a one, and Python may free what it uses before it."""

import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.dialects import mlir
from attn_opt.dialects.mlir import ir

DIALECTS = ("affine", "arith", "func", "linalg", "llvm", "math", "memref", "scf", "tensor", "vector")


@pytest.fixture
def detached(monkeypatch):
    """The names of ops that were made without a place for them."""
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")
    found: list[str] = []

    def watched(make):
        def init(self, *args, **kwargs):
            make(self, *args, **kwargs)
            try:
                place = kwargs.get("ip") or ir.InsertionPoint.current
            except ValueError:
                place = None
            if place is None:
                found.append(type(self).OPERATION_NAME)

        return init

    for dialect in filter(None, (getattr(mlir, name, None) for name in DIALECTS)):
        for kind in {v for v in vars(dialect).values() if isinstance(v, type) and hasattr(v, "OPERATION_NAME")}:
            if "__init__" in vars(kind):
                monkeypatch.setattr(kind, "__init__", watched(kind.__init__))
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
@pytest.mark.parametrize(
    "kind",
    [
        # Where parts of keys start was asked for between ops: one in twenty compilations ended the process.
        {"queries": 1, "keys": 700, "heads": 8, "heads_kv": 2, "head_size": 128, "input_layout": "bshd"},
        {"queries": 70, "keys": 90, "heads": 4, "heads_kv": 2, "head_size": 64, "dynamic": True, "bias": "hqk"},
        {"queries": 128, "keys": 128, "heads": 2, "head_size": 40, "window": (-50, 0), "softcap": 3.0, "lse": True},
    ],
    ids=["decoding", "dynamic", "window"],
)
def test_no_op_is_made_outside_of_a_block(detached, kind, target):
    compile(Attention(element="bf16", **kind).text(), target=target)
    assert detached == []
