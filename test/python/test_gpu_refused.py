"""Types that tensor cores do not multiply: an error that says what to do, or elements computed one by one."""

from pathlib import Path

import pytest
from attn_opt.compiler import CompileError, compile

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention.mlir"


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_matmuls_of_f64(arch):
    text = EXAMPLE.read_text().replace("f32", "f64")
    with pytest.raises(CompileError, match=r"to f32.*, or compile for the CPU"):
        compile(text, target="nvidia", arch=arch, must_fuse=True)
    with pytest.warns(match="attention is not fused at .*: tiles of f64 go to the tensor cores"):
        assert "fma.rn.f64" in compile(text, target="nvidia", arch=arch).ir("ptx")


def test_branches_are_named_rather_than_what_they_start_from():
    text = """func.func @main(%x: tensor<8xf32>, %c: tensor<i1>) -> tensor<8xf32> {
      %is = tensor.extract %c[] : tensor<i1>
      %e = tensor.empty() : tensor<8xf32>
      %r = scf.if %is -> tensor<8xf32> {
        %y = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
        scf.yield %y : tensor<8xf32>
      } else {
        scf.yield %x : tensor<8xf32>
      }
      return %r : tensor<8xf32>
    }"""
    with pytest.raises(CompileError, match=r"'scf.if' stands outside .*; the host would have to wait for what decides"):
        compile(text, target="nvidia", arch="sm_90a")
