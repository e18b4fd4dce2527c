"""From lowered IR to something that runs on a GPU: code for `runtime.cuda`, and its call with checked arguments."""

from collections.abc import Sequence
from typing import Any

from ...dialects.mlir import ir
from ..diagnostics import user_error
from . import cuda, ptx
from .program import host_program
from .signature import Signature

DEFAULT_ARCH = "sm_90a"


def choose_arch(wanted: str | None) -> str:
    """The architecture to compile for: what was asked for, else this machine's GPU, else Hopper."""
    if wanted is None:
        try:
            wanted = cuda.device_arch()
        except cuda.CudaError:
            return DEFAULT_ARCH
    if wanted not in ptx.PTX_VERSION:
        known = ", ".join(ptx.PTX_VERSION)
        raise user_error(f"GPUs of architecture '{wanted}' are not supported; the known architectures are: {known}")
    return wanted


def make_image(module: ir.Module, function: ir.OpView, arch: str) -> tuple[cuda.Image, dict[str, str]]:
    """The image of a function that the GPU pipeline lowered, and the texts of the stages after it."""
    program = host_program(function)
    name = f"{function.name.value}_kernels"
    kernels = [
        op.operation
        for op in module.body.operations
        if op.operation.name == "gpu.module" and ir.StringAttr(op.operation.attributes["sym_name"]).value == name
    ]
    if not kernels:
        raise user_error(
            "nothing in this function runs on a GPU: no attention was fused, or its loops are not parallel; "
            "use the target cpu"
        )
    code = ptx.emit_ptx(ptx.llvm_ir(kernels[0]), arch)
    return cuda.Image(program, code.encode() + b"\0", arch), {"ptx": code}


class NvidiaKernel:
    """Calls an image with arrays: numpy's are copied, torch's and CuPy's on the GPU are not."""

    def __init__(self, image: cuda.Image, signature: Signature):
        self.signature = signature
        self.kernel = cuda.CudaKernel(image)
        self._elements = [slot.element for slot in signature.arguments]
        self._dtypes = [slot.dtype for slot in signature.results]

    def invoke(self, arguments: Sequence[Any], threads: int | None = None) -> list[Any]:
        """The results on arguments that are known to fit; `threads` are the CPU's and mean nothing here."""
        try:
            return list(self.kernel(*arguments, elements=self._elements, dtypes=self._dtypes))
        except cuda.CudaError as error:
            raise user_error(str(error)) from None


_NAMES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "i1", "bool_": "i1"}


def check_device_arrays(signature: Signature, arguments: Sequence[Any]) -> list[Any]:
    """`arguments`, of which some are on a GPU, checked against the signature; nothing is converted."""
    if len(arguments) != len(signature.arguments):
        raise user_error(
            f"'{signature.name}' takes {len(signature.arguments)} arguments, but {len(arguments)} were given"
        )
    for i, (value, slot) in enumerate(zip(arguments, signature.arguments, strict=True)):
        if slot.shape is None:
            continue
        if not cuda.is_device_array(value):
            raise user_error(f"argument {i} must be on the GPU, as others are, but is a {type(value).__name__}")
        found = str(value.dtype).rpartition(".")[2]
        element = _NAMES.get(found, found.replace("uint", "ui").replace("int", "i"))
        shape = tuple(value.shape)
        fits = len(shape) == len(slot.shape) and all(s in (None, n) for s, n in zip(slot.shape, shape, strict=True))
        if element != slot.element or not fits:
            raise user_error(f"argument {i} must be {slot}, but is a tensor of shape {shape} and type {found}")
    signature.check_dimensions(arguments)
    return list(arguments)
