"""From lowered IR to something that runs on a GPU: the code and the host's program for `runtime.cuda`."""

import dataclasses
from collections.abc import Callable
from typing import Any

from ...dialects.mlir import ir
from ...transforms.nvidia.version_functions import versions_of
from ..diagnostics import user_error
from ..sources import find_entry
from . import cuda, ptx
from .host_program import host_program


def make_image(
    module: ir.Module, function: ir.OpView, arch: str, meanwhile: Callable[[], Any]
) -> tuple[cuda.Image, dict[str, str]]:
    """The image of a function that the GPU pipeline lowered, with its versions, and the texts of the stages after
    it. `meanwhile`: what else there is to do, while LLVM is at work."""
    image, code = _image(module, function, arch, meanwhile)
    texts, versions = {"ptx": code}, []
    for name, conditions in versions_of(function.operation):
        version, code = _image(module, find_entry(module, name), arch)
        texts[f"ptx {name}"] = code
        versions.append(cuda.Version(cuda.conditions(conditions), version))
    return dataclasses.replace(image, versions=tuple(versions)), texts


def _image(
    module: ir.Module, function: ir.OpView, arch: str, meanwhile: Callable[[], Any] = lambda: None
) -> tuple[cuda.Image, str]:
    program = host_program(function)
    kernels = find_kernels(module, function)
    if kernels is None and not _is_empty(function):
        raise user_error(
            "nothing in this function runs on a GPU: no attention was fused, or its loops are not parallel; "
            "use the target cpu"
        )
    code = ptx.emit_ptx("" if kernels is None else ptx.llvm_ir(kernels), arch, meanwhile)
    return cuda.Image(program, code.encode() + b"\0", arch), code


def _is_empty(function: ir.OpView) -> bool:
    """Whether no result has an element, whatever is passed."""
    return all(0 in kind.shape for kind in function.type.results)


def find_kernels(module: ir.Module, function: ir.OpView) -> ir.Operation | None:
    """The gpu.module of a function's kernels."""
    name = f"{function.name.value}_kernels"
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "gpu.module" and ir.StringAttr(operation.attributes["sym_name"]).value == name:
            return operation
    return None
