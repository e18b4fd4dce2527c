"""From a gpu.module in the LLVM dialect to PTX, and to machine code where ptxas is found. Needs no GPU.

    text = llvm_ir(gpu_module)            # LLVM IR, by MLIR's translation
    ptx  = emit_ptx(text, "sm_90a")       # by llvmlite's NVPTX backend
    cubin, report = assemble(ptx, "sm_90a")

The bindings' LLVM has no NVPTX backend, llvmlite's has.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from typing import Any

from ...dialects.mlir import ir
from ...transforms.nvidia.architecture import architecture
from ..diagnostics import Bug
from .llvm_text import readable_literals

TRIPLE = "nvptx64-nvidia-cuda"
THREADED = "--split-compile=0"  # of ptxas: kernels side by side, on all CPUs; each is the same, byte for byte
LAYOUT = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-n16:32:64"


def llvm_ir(module: ir.Operation) -> str:
    """The LLVM IR of a gpu.module whose functions are all in the LLVM dialect."""
    from ...dialects.mlir import llvm

    return llvm.translate_module_to_llvmir(module.operation)


def _convergent(text: str) -> str:
    """Marks inline assembly with side effects as convergent: it may synchronise threads, so no branch moves it."""
    lines = text.split("\n")
    marked = (f"{line} convergent" if " asm sideeffect " in line and line.endswith(")") else line for line in lines)
    return "\n".join(marked)


_SCALAR = re.compile(r"^(@\S+ = .*\bconstant) (half|bfloat) ([^\s,]+)", re.MULTILINE)


def _in_arrays(text: str) -> str:
    """Constants in memory that are one number of 16 bits, as arrays of one: LLVM ends the process on such a scalar."""
    return _SCALAR.sub(r"\1 [1 x \2] [\2 \3]", text)


def _parsed(text: str) -> Any:
    """A module of llvmlite's; LLVM IR that it does not read is a bug of ours."""
    import llvmlite.binding as llvm

    try:
        return llvm.parse_assembly(text)
    except RuntimeError as error:
        place = re.search(r"<string>:(\d+):\d+: ([^\n]*)", str(error))
        before = text.split("\n")[: int(place[1])] if place else []
        name = next(
            (found[1] for line in reversed(before) if (found := re.match(r"define [^@]*@([^(]+)\(", line))), "?"
        )
        what = f"line {place[1]}: {place[2]}: {before[-1].strip()}" if place else str(error)
        raise Bug(f"LLVM does not read the code of kernel '{name}': {what}", "", text) from error


def emit_ptx(text: str, arch: str, meanwhile: Callable[[], Any] = lambda: None) -> str:
    """PTX of LLVM IR for an architecture such as "sm_90a"; of a newer one than those known, for the last that is.

    `meanwhile`: what this thread does while another one waits for LLVM, which takes none of the interpreter's time.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        code = threads.submit(_emitted, text, arch)
        meanwhile()
    return code.result()


def _emitted(text: str, arch: str) -> str:
    import llvmlite.binding as llvm

    of = architecture(arch)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = _parsed(_convergent(_in_arrays(readable_literals(text))))
    module.triple = TRIPLE
    module.data_layout = LAYOUT
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=of.ptx_target, features=f"+ptx{of.ptx_version}", opt=3, codemodel="default"
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # Register tiles are scalars on purpose, and loops are as the schedule says.
    options.loop_unrolling = False
    options.slp_vectorization = False
    options.loop_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)


@dataclasses.dataclass(frozen=True)
class Assembled:
    """Machine code, and what ptxas said of it."""

    cubin: bytes
    log: str

    @property
    def spills(self) -> int:
        """Bytes that registers were spilled to."""
        return sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", self.log))

    @property
    def registers(self) -> int:
        """Registers of a thread of the largest kernel."""
        return max((int(n) for n in re.findall(r"Used (\d+) registers", self.log)), default=0)

    @property
    def warnings(self) -> list[str]:
        """Lines of ptxas that say that something was not done as asked, such as C7510."""
        return [line for line in self.log.splitlines() if "warning" in line.lower() or re.search(r"\bC75\d\d\b", line)]


@functools.cache
def find_tool(name: str) -> str | None:
    """The path of one of CUDA's tools (ptxas, nvdisasm, cuobjdump): of the package nvidia-cuda-nvcc or another one, of
    Triton, or of an installed CUDA; None if there is none."""
    packages = pathlib.Path(sysconfig.get_path("purelib"))
    places = [
        *packages.glob(f"nvidia/cu*/bin/{name}"),
        *packages.glob(f"nvidia/cuda_*/bin/{name}"),
        pathlib.Path(sys.prefix) / "bin" / name,
        packages / "triton/backends/nvidia/bin" / name,
    ]
    for place in places:
        if place.exists():
            return str(place)
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


def sass(ptx: str, arch: str) -> str | None:
    """The machine code of PTX as text; None where there is no ptxas, or neither nvdisasm nor cuobjdump."""
    disassembler = find_tool("nvdisasm") or find_tool("cuobjdump")
    assembled = assemble(ptx, arch) if disassembler else None
    if assembled is None or disassembler is None:
        return None
    with tempfile.NamedTemporaryFile(prefix="attn-opt-", suffix=".cubin") as file:
        file.write(assembled.cubin)
        file.flush()
        options = ["--dump-sass"] if disassembler.endswith("cuobjdump") else ["-c"]
        done = subprocess.run([disassembler, *options, file.name], capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else None


def assemble(ptx: str, arch: str) -> Assembled | None:
    """Machine code by ptxas; None where there is none that knows `arch`. Invalid PTX is an error of ours:
    RuntimeError."""
    ptxas = find_tool("ptxas")
    if ptxas is None:
        return None
    with tempfile.TemporaryDirectory(prefix="attn-opt-") as folder:
        source, target = pathlib.Path(folder, "kernel.ptx"), pathlib.Path(folder, "kernel.cubin")
        source.write_text(ptx)
        command = [ptxas, "-v", "-O3", f"-arch={arch}", str(source), "-o", str(target)]
        done = subprocess.run([*command, THREADED], capture_output=True, text=True)
        if done.returncode and "split-compile" in done.stderr:  # an older ptxas
            done = subprocess.run(command, capture_output=True, text=True)
        log = done.stderr + done.stdout
        if done.returncode and "gpu-name" in log:
            return None
        if done.returncode:
            raise RuntimeError(f"ptxas refused the PTX: {log}")
        return Assembled(target.read_bytes(), log)
