"""Machine code by llvmlite is what MLIR's ExecutionEngine makes; where llvmlite cannot, that one does."""

import numpy as np
import pytest
from attn_opt.compiler import compile
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import cpu, object_code

SCALARS = """
func.func @f(%a: f64, %n: i32, %x: tensor<?xf32>) -> f64 {
  %s = math.sin %a : f64
  %i = arith.sitofp %n : i32 to f64
  %r = arith.addf %s, %i : f64
  return %r : f64
}
"""
SEVERAL = """
func.func @f(%x: tensor<?xf32>, %a: f32) -> (tensor<?xf32>, f32) { return %x, %a : tensor<?xf32>, f32 }
"""


@pytest.fixture(autouse=True)
def compiled_anew(monkeypatch):
    monkeypatch.setenv("ATTN_OPT_CACHE", "0")


@pytest.fixture(params=["llvmlite", "engine"])
def maker(request, monkeypatch):
    """Compiles by the one or the other; gives the names of those that did."""
    used = []
    original = cpu.object_code

    def made(*arguments):
        image = original(*arguments) if request.param == "llvmlite" else None
        used.append("engine" if image is None else "llvmlite")
        return image

    monkeypatch.setattr(cpu, "object_code", made)
    yield
    assert used and set(used) == {request.param}


def test_scalars(maker):
    x = np.zeros(3, np.float32)
    assert compile(SCALARS)(np.float64(0.5), np.int32(3), x) == np.sin(0.5) + 3


def test_several_results(maker):
    x = np.arange(3, dtype=np.float32)
    same, number = compile(SEVERAL)(x, np.float32(-np.inf))
    assert (same == x).all() and number == -np.inf


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_attention(maker, element):
    graph = Attention(heads=2, queries=70, keys=130, dynamic=True, element=element, window=(None, 0), bottom_right=True)
    inputs = graph.inputs("normal")
    out = compile(graph.text())(*inputs).astype(np.float64)
    wanted, _ = graph.reference(inputs)
    assert np.abs(out - wanted).max() < (2e-6 if element == "f32" else 2e-2)


def test_what_cannot_be_read_is_left(monkeypatch):
    monkeypatch.setattr(object_code, "readable_literals", lambda text: text + "\nnonsense")
    assert compile(SCALARS)(np.float64(0.5), np.int32(3), np.zeros(1, np.float32)) == np.sin(0.5) + 3
