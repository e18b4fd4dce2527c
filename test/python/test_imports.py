"""What compiling does to the process around it."""

import gc
import subprocess
import sys

import pytest
from attn_opt.compiler import CompileError, compile

GPUS = "attn_opt.transforms.nvidia.tile"
REST = "torch_mlir.dialects.linalg.opdsl"
LLVM = "torch_mlir.dialects._llvm_ops_gen"
SELDOM = "attn_opt.dialects.tile.", "attn_opt.dialects.transform_ext", "torch_mlir.dialects.transform"


def python(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True)


def test_what_takes_long_and_is_not_needed_is_not_imported():
    python(
        "import os, sys; os.environ['ATTN_OPT_CACHE'] = '0'\n"
        "from attn_opt.compiler import compile; from attn_opt.compiler.graphs import Attention\n"
        "compile(Attention(window=(None, 0), dynamic=True).text())\n"
        f"assert not any(name.startswith({(REST, GPUS, LLVM, *SELDOM)}) for name in sys.modules)"
    )


@pytest.mark.parametrize(
    "use",
    [
        "from torch_mlir.dialects import linalg; linalg.matmul, linalg.conv_2d_nchw_fchw",
        "from torch_mlir.dialects.linalg import *; transpose, GenericOp",
        f"from {REST}.ops import core_named_ops; core_named_ops.fill",
        "import torch_mlir.dialects.linalg as linalg; assert linalg.ElementwiseOp.__name__ == 'ElementwiseOp_'",
    ],
)
def test_others_get_all_of_linalg(use):
    python("from attn_opt.dialects.mlir import linalg as ours; ours.GenericOp\n" + use)


@pytest.mark.parametrize(
    "use",
    [
        "from torch_mlir.dialects import llvm; llvm.GEPOp, llvm.PointerType",
        "from torch_mlir.dialects.llvm import *; AddOp, mlir_constant",
        "from torch_mlir import ir; from torch_mlir.dialects import llvm\n"
        "with ir.Context(), ir.Location.unknown():\n"
        "  module = ir.Module.parse('llvm.func @f() { llvm.return }')\n"
        "  assert type(module.body.operations[0]) is ir.OpView; llvm.LLVMFuncOp\n"
        "  assert type(module.body.operations[0]) is llvm.LLVMFuncOp",
    ],
)
def test_others_get_all_of_llvm(use):
    python("from attn_opt.dialects import llvm_ops\n" + use)


@pytest.mark.parametrize("collects", [True, False])
def test_cycles_are_collected_as_before(collects):
    assert gc.isenabled()
    try:
        if not collects:
            gc.disable()
        compile("func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
        with pytest.raises(CompileError):
            compile("func.func @f(")
        assert gc.isenabled() == collects
    finally:
        gc.enable()
