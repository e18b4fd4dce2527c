"""What memory kernels use, as their launches say, and which of it no kernel writes."""

from __future__ import annotations

from ...dialects import build
from ...dialects.mlir import ir
from ..donated import donated_arguments
from ..reshapes import RESHAPES
from ..rewriting import ancestors, defining_op, ops_in, through
from .launching import FIRST_ARGUMENT, launches_of

OF_MEMORY = ("memref.cast", "memref.expand_shape", "memref.collapse_shape", "memref.subview")
VIEWS = (
    *OF_MEMORY,
    *("bufferization.to_buffer", "bufferization.to_tensor", "tensor.cast", "tensor.extract_slice", *RESHAPES),
    "tile.tensor_map",
)


def root(value: ir.Value) -> ir.Value | None:
    """The memory, or the tensor, that a value of the host is a view of; None: any."""
    value = through(value, *VIEWS)
    op = defining_op(value)
    return value if op is None or op.name == "memref.alloc" else None


def is_surely_launched(launch: ir.Operation) -> bool:
    """Whether a launch is known to have blocks."""
    return bool(build.constant_value(launch.operands[0]))


def given_before(kernel: ir.Operation) -> set[ir.Value]:
    """Arguments of a kernel whose memory is there before the launches that come before its own in the same function:
    parts of the function's arguments. None where its own may be the first one."""
    arguments = list(kernel.regions[0].blocks[0].arguments)
    found = set(arguments)
    for launch in launches_of(kernel):
        function = next(o for o in ancestors(launch) if o.name == "func.func")
        launches = ops_in(function, "gpu.launch_func")
        if launch == launches[0] or not is_surely_launched(launches[0]):
            return set()
        written = donated_arguments(function)
        of_function = {a for a in function.regions[0].blocks[0].arguments if a not in written}
        operands = list(launch.operands)[FIRST_ARGUMENT:]
        found &= {a for a, value in zip(arguments, operands, strict=True) if root(value) in of_function}
    return found
