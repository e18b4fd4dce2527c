"""From a module in the LLVM dialect to an object file for this machine's CPU, by llvmlite's LLVM.

    image = object_code(module, "_mlir_ciface_main")   # None where llvmlite cannot read what MLIR's translation wrote

MLIR's ExecutionEngine does so too, but with all of LLVM's passes: unrolling, vectorising, inlining, which find nothing
to do in register tiles, and take more time than instructions take to be selected and registers allocated. What is left
out here is what they cost. llvmlite's LLVM has a release of its own, which need not read all that ours writes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .llvm_text import readable_literals

if TYPE_CHECKING:
    from ...dialects.mlir import ir

# What lowering leaves to LLVM: memory of scalars, folding of addresses, loops that test before their first iteration,
# which keep induction variables apart, and numbers of which each vectorised op computes its own.
PASSES = (
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "loop_rotate",
    "new_gvn",
    "simplify_cfg",
    "dead_code_elimination",
)
CODE_GENERATION = 2  # of 3


def object_code(module: ir.Module, interface: str) -> bytes | None:
    """The object file of a module. `_mlir_<interface>` calls the function `interface` with its arguments, and then its
    result, where an array of addresses says, as ExecutionEngine has it."""
    from ...dialects.mlir import llvm as mlir_llvm

    try:
        import llvmlite.binding as llvm
    except ImportError:
        return None
    machine = _machine()
    try:
        read = llvm.parse_assembly(readable_literals(mlir_llvm.translate_module_to_llvmir(module.operation)))
        read.link_in(llvm.parse_assembly(_packed(read.get_function(interface))))
    except (RuntimeError, NameError):
        return None
    read.triple, read.data_layout = machine.triple, str(machine.target_data)
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(read, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return machine.emit_object(read)


@functools.cache
def _machine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=CODE_GENERATION,
        reloc="static",
        codemodel="large",  # the code may be far from what it calls; see elf.py
    )


def _packed(function: Any) -> str:
    """LLVM IR of the function that takes an array of addresses."""
    kinds = [str(argument.type) for argument in function.arguments]
    result = str(function.global_value_type).partition(" (")[0]
    lines = [
        f"declare {result} @{function.name}({', '.join(kinds)})",
        f"define void @_mlir_{function.name}(ptr %all) {{",
    ]
    for i, kind in enumerate([*kinds, *(["ptr"] if result != "void" else [])]):
        at = f"%at{i} = getelementptr ptr, ptr %all, i64 {i}"
        lines += [at, f"%address{i} = load ptr, ptr %at{i}"]
        if i < len(kinds):
            lines.append(f"%x{i} = load {kind}, ptr %address{i}")
    call = f"call {result} @{function.name}({', '.join(f'{kind} %x{i}' for i, kind in enumerate(kinds))})"
    if result == "void":
        lines.append(call)
    else:
        lines += [f"%result = {call}", f"store {result} %result, ptr %address{len(kinds)}"]
    return "\n".join([*lines, "ret void", "}"])
