"""The way to PTX, without a GPU: literals, code of both kinds, what ptxas says where it is."""

import io
import pathlib
import re
import subprocess
import tempfile
import warnings

import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.diagnostics import Bug, report_bug
from attn_opt.compiler.graphs import Attention
from attn_opt.compiler.runtime import ptx
from attn_opt.compiler.runtime.llvm_text import readable_literals
from attn_opt.transforms.nvidia.architecture import architecture
from crossed import crossed
from lowered import stages

ATTENTION = """
func.func @attention(%q: tensor<256x64xf16>, %k: tensor<320x64xf16>, %v: tensor<320x64xf16>) -> tensor<256x64xf16> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %se = tensor.empty() : tensor<256x320xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%se : tensor<256x320xf32>) -> tensor<256x320xf32>
  %s = linalg_ext.batch_matmul ins(%q, %k : tensor<256x64xf16>, tensor<320x64xf16>) outs(%s0 : tensor<256x320xf32>)
      layout = "nt"
  %re = tensor.empty() : tensor<256xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%re : tensor<256xf32>) -> tensor<256xf32>
  %a0 = linalg.fill ins(%zero : f32) outs(%re : tensor<256xf32>) -> tensor<256xf32>
  %p:4 = linalg_ext.softmax dimension(1) ins(%s : tensor<256x320xf32>)
      outs(%se, %m0, %a0, %re : tensor<256x320xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>)
  %pe = tensor.empty() : tensor<256x320xf16>
  %pn = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%p#0 : tensor<256x320xf32>) outs(%pe : tensor<256x320xf16>) {
  ^bb0(%x: f32, %y: f16):
    %t = arith.truncf %x : f32 to f16
    linalg.yield %t : f16
  } -> tensor<256x320xf16>
  %oe = tensor.empty() : tensor<256x64xf16>
  %z = arith.constant 0.0 : f16
  %o0 = linalg.fill ins(%z : f16) outs(%oe : tensor<256x64xf16>) -> tensor<256x64xf16>
  %o = linalg.matmul ins(%pn, %v : tensor<256x320xf16>, tensor<320x64xf16>) outs(%o0 : tensor<256x64xf16>)
      -> tensor<256x64xf16>
  return %o : tensor<256x64xf16>
}
"""


def test_literals_are_readable_by_every_llvm():
    text = "\n".join(
        [
            "  %1 = fadd float f0x3F800000, %2",
            "  %2 = phi float [ %10, %9 ], [ -inf, %2 ]",
            "  %3 = select i1 %c, half +qnan, half 1.5",
            "  %4 = fmul bfloat %x, 0.1",
            '  call void asm sideeffect "mov.f32 $0, 0.5;", "f"(float %3)',
            '  %5 = call float asm "div.full.f32 $0, $1, $2;", "=f,f,f"(float f0x3FB8AA3B, float %4)',
        ]
    )
    assert readable_literals(text).split("\n") == [
        "  %1 = fadd float 0x3FF0000000000000, %2",
        "  %2 = phi float [ %10, %9 ], [ 0xFFF0000000000000, %2 ]",
        "  %3 = select i1 %c, half 0xH7E00, half 0xH3E00",
        "  %4 = fmul bfloat %x, 0xR3DCD",
        '  call void asm sideeffect "mov.f32 $0, 0.5;", "f"(float %3)',
        '  %5 = call float asm "div.full.f32 $0, $1, $2;", "=f,f,f"(float 0x3FF7154760000000, float %4)',
    ]


def test_code_that_llvm_does_not_read_names_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = "define ptx_kernel void @first() {\n  ret void\n}\n\ndefine ptx_kernel void @second() {\n  ret novoid\n}\n"
    with pytest.raises(Bug, match=r"does not read the code of kernel 'second': line 6: .*: ret novoid") as caught:
        ptx.emit_ptx(text, "sm_90a")
    assert caught.value.ir == text
    told = io.StringIO()
    report_bug(caught.value, "attn-opt", told)
    (file,) = re.findall(r"the IR it failed on: (\S+\.ll)", told.getvalue())
    assert pathlib.Path(file).read_text() == text and "pass-pipeline" not in told.getvalue()


def test_assembly_with_effects_is_convergent():
    line = '  call void asm sideeffect "bar.sync 0;", "~{memory}"()'
    assert ptx._convergent(line) == line + " convergent"


@pytest.mark.parametrize(("arch", "instruction"), [("sm_90a", "wgmma.mma_async"), ("sm_80", "mma.sync.aligned")])
def test_code_of_an_attention(arch, instruction):
    kernel = compile(ATTENTION, target="nvidia", arch=arch)
    names = ["graph", "raised", "fused", "online", "tiles", "layouts", "scheduled", "nvvm", "llvm", "ptx"]
    assert kernel.stages() == names
    code = kernel.ir("ptx")
    assert f".target {arch}" in code and instruction in code and ".entry attention_0" in code
    assert '"fragment"' in kernel.ir("layouts") and "tile.copy_" in kernel.ir("scheduled")
    assembled = ptx.assemble(code, arch)
    if assembled is None:
        pytest.skip("no ptxas")
    assert assembled.spills == 0 and assembled.warnings == [] and 0 < assembled.registers <= 255


def test_unknown_architecture():
    with pytest.raises(CompileError, match=r"arch: expects a GPU's architecture, sm_80 or later, .* found 'sm_1'"):
        compile(ATTENTION, target="nvidia", arch="sm_1")


@pytest.mark.sampled(2, 1)
@pytest.mark.parametrize(
    ("arch", "target"),
    [("sm_87", "sm_87"), ("sm_88", "sm_87"), ("sm_90", "sm_90"), ("sm_120", "sm_90"), ("sm_121", "sm_90")],
)
def test_later_gpus_take_code_of_the_last_before_them(arch, target):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = compile(ATTENTION, target="nvidia", arch=arch).ir("ptx")
    assert f".target {target}\n" in code and "mma.sync.aligned" in code
    ptx.assemble(code, arch)


def test_gpus_with_faster_matmuls_of_their_own():
    with pytest.warns(UserWarning, match="kernels for sm_100 .* its own instructions for matmuls, which are faster"):
        code = compile(ATTENTION, target="nvidia", arch="sm_100").ir("ptx")
    assert ".target sm_90\n" in code


ARCHS = ["sm_80", "sm_86", "sm_120"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("head_size", "arch", "element"), crossed([20, 64, 128, 256], ARCHS, ["f16", "f32"]))
def test_shared_memory_suffices(head_size, arch, element):
    graph = Attention(heads=2, queries=130, keys=200, head_size=head_size, element=element, window=(None, 0))
    text = stages(graph.text(), f"nvidia{{arch={arch} parts=1}}")["llvm"]
    (used,) = re.findall(r"dynamic_shared_memory_size %c(\d+)_i32", text)
    assert int(used) <= architecture(arch).shared_memory


def test_what_no_ptxas_knows(monkeypatch):
    refusal = subprocess.CompletedProcess(
        [], 1, "", "ptxas fatal   : Value 'sm_999' is not defined for option 'gpu-name'"
    )
    monkeypatch.setattr(ptx, "find_tool", lambda name: name)
    monkeypatch.setattr(ptx.subprocess, "run", lambda *_, **__: refusal)
    assert ptx.assemble("", "sm_999") is None


def test_a_ptxas_that_uses_one_thread(monkeypatch):
    """Older ones do not know the option."""

    def run(command, **_):
        if ptx.THREADED in command:
            return subprocess.CompletedProcess(command, 1, "", "ptxas fatal   : Unknown option '-split-compile'")
        pathlib.Path(command[-1]).write_bytes(b"code")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(ptx, "find_tool", lambda name: name)
    monkeypatch.setattr(ptx.subprocess, "run", run)
    assert ptx.assemble("", "sm_90a").cubin == b"code"


def test_what_is_not_fused_has_tiles_for_each_matmul_and_a_kernel_for_the_rows():
    kernel = compile(ATTENTION, target="nvidia", arch="sm_90a", fuse=False)
    assert "nothing was fused" in kernel.explain()
    entries = re.findall(r"\.entry (\w+)", kernel.ir("ptx"))
    assert len(entries) == 3 and sum("rows" in name for name in entries) == 1


def test_no_gpu_is_told():
    from attn_opt.compiler.runtime import cuda_driver

    try:
        cuda_driver.driver()
    except cuda_driver.CudaError:
        pass
    else:
        pytest.skip("a GPU is here")
    import numpy as np

    kernel = compile(ATTENTION, target="nvidia", arch="sm_90a")
    with pytest.raises(Exception, match="no NVIDIA driver"):
        kernel(np.ones((256, 64), np.float16), np.ones((320, 64), np.float16), np.ones((320, 64), np.float16))


def test_stages_are_dumped_down_to_code(tmp_path, monkeypatch, capfd):
    from attn_opt.compiler.tools.attn_opt import main

    monkeypatch.setattr(ptx, "sass", lambda code, arch: f"machine code for {arch}")
    source = tmp_path / "attention.mlir"
    source.write_text(ATTENTION)
    steps = ["--raise-attention", "--fuse-attention=machine=sm_80", "--lower-to=nvidia"]
    assert main([str(source), *steps, f"--dump-stages={tmp_path}/stages"]) == 0
    names = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert names[-2:] == [f"{len(names) - 2:03}-kernels.ptx", f"{len(names) - 1:03}-kernels.sass"]
    for stage in ("decompose-linalg-ext", "outline-kernels", "assign-layouts", "stage-loads", "tiles-to-nvvm"):
        assert any(name.endswith(f"-{stage}.mlir") for name in names)
    assert ".target sm_90a" in (tmp_path / "stages" / names[-2]).read_text()


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_a_number_of_16_bits_in_memory(kind):
    """LLVM's backend has no text for it but as an element of an array, and ends the process."""
    body = f"  %v = load volatile {kind}, ptr @c\n  store {kind} %v, ptr %o\n  ret void\n"
    code = ptx.emit_ptx(f"@c = constant {kind} 1.5, align 16\ndefine ptx_kernel void @k(ptr %o) {{\n{body}}}", "sm_90a")
    assert re.search(r"c\[2\] = \{", code) and ".visible .entry k" in code
