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
    with pytest.warns(match="attention is not fused at .*: tiles of f64 are no results"):
        assert "fma.rn.f64" in compile(text, target="nvidia", arch=arch).ir("ptx")


def test_branches_are_named_rather_than_what_they_start_from():
    text = """func.func @main(%x: tensor<?x4xf32>, %c: tensor<i1>, %row: tensor<?xf32>) -> tensor<?xf32> {
      %is = tensor.extract %c[] : tensor<i1>
      %r = scf.if %is -> tensor<?xf32> {
        %y = linalg.reduce { arith.addf } ins(%x : tensor<?x4xf32>) outs(%row : tensor<?xf32>) dimensions = [1]
        scf.yield %y : tensor<?xf32>
      } else {
        scf.yield %row : tensor<?xf32>
      }
      return %r : tensor<?xf32>
    }"""
    with pytest.raises(CompileError, match=r"'scf.if' stands .*; the host would .* where results have known sizes"):
        compile(text, target="nvidia", arch="sm_90a")
