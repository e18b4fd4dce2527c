"""Kernels and their launches, as the passes that outline make them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...dialects import build
from ...dialects.mlir import arith, gpu, ir, memref
from ..linear import DYNAMIC
from ..rewriting import ops_in
from ..slices import Size

STRIDED = ir.ShapedType.get_dynamic_stride_or_offset()
DIM_X = "#gpu<dim x>"
FIRST_ARGUMENT = 6  # of a launch's operands, after the sizes of grid and block
CONTROL = "nvvm.griddepcontrol"  # of a kernel beside those that are launched before it, and after


def kernel_module(function: ir.Operation) -> ir.Operation:
    """The gpu.module with a function's kernels, which stands before it; a new one if there is none."""
    name = f"{ir.StringAttr(function.attributes['sym_name']).value}_kernels"
    for other in function.block.operations:
        if other.operation.name == "gpu.module" and ir.StringAttr(other.attributes["sym_name"]).value == name:
            return other.operation
    with ir.InsertionPoint(function), function.location:
        module = gpu.GPUModuleOp(ir.StringAttr.get(name)).operation
    module.regions[0].blocks.append()
    function.parent.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
    return module


def new_kernel(
    module: ir.Operation, name: str, kinds: Sequence[ir.Type], attributes: Mapping[str, ir.Attribute] | None = None
) -> ir.Block:
    """The body of a new gpu.func in `module`, that takes arguments of those types."""
    with ir.InsertionPoint(module.regions[0].blocks[0]):
        function_type = ir.TypeAttr.get(ir.FunctionType.get(list(kinds), []))
        named = {"function_type": function_type, "gpu.kernel": ir.UnitAttr.get(), "sym_name": ir.StringAttr.get(name)}
        kernel = ir.Operation.create("gpu.func", [], [], {**named, **(attributes or {})}, regions=1)
    return kernel.regions[0].blocks.append(*kinds, arg_locs=[ir.Location.current] * len(kinds))


def launch(module: ir.Operation, name: str, blocks: ir.Value, arguments: Sequence[ir.Value]) -> None:
    """A launch of so many blocks; ``tiles-to-nvvm`` says of how many threads."""
    one = build.index(1)
    symbol = ir.StringAttr(module.attributes["sym_name"]).value
    segments = ir.DenseI32ArrayAttr.get([0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, len(arguments), 0])
    attributes = {"kernel": ir.Attribute.parse(f"@{symbol}::@{name}"), "operandSegmentSizes": segments}
    ir.Operation.create("gpu.launch_func", [], [blocks, one, one, one, one, one, *arguments], attributes)


def relaunch(launch: ir.Operation, operands: Sequence[ir.Value], memory: ir.Value | None = None) -> ir.Operation:
    """The launch with other operands, of which what follows the sizes are the kernel's arguments; `memory`: how much
    shared memory a block has, which is not said yet."""
    segments = list(ir.DenseI32ArrayAttr(launch.attributes["operandSegmentSizes"]))
    segments[11] += len(operands) - len(launch.operands)
    if memory is not None:
        segments[10], operands = 1, [*operands[:FIRST_ARGUMENT], memory, *operands[FIRST_ARGUMENT:]]
    attributes = {
        "kernel": launch.attributes["kernel"],
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
    }
    made = ir.Operation.create("gpu.launch_func", [], operands, attributes)
    launch.erase()
    return made


def launches_of(kernel: ir.Operation) -> list[ir.Operation]:
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    launches = ops_in(kernel.parent.operation.parent.operation, "gpu.launch_func")
    return [o for o in launches if launched(o) == name]


def launched(launch: ir.Operation) -> str:
    """The name of the kernel."""
    return str(launch.attributes["kernel"]).rpartition("@")[2]


def update_type(kernel: ir.Operation) -> None:
    """To that of the arguments which its body has by now."""
    kinds = [a.type for a in kernel.regions[0].blocks[0].arguments]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))


def control(kind: str) -> ir.Operation:
    """In a kernel: "wait" until the launches before its own are done, or let the one behind it come early, as
    "launch_dependents" does. (CUDA's programmatic dependent launch.)"""
    return ir.Operation.create(CONTROL, [], [], {"kind": ir.Attribute.parse(f"#nvvm<grid_dep_action {kind}>")})


def ceil_div(value: ir.Value, by: int) -> ir.Value:
    """⌈value / by⌉: how many blocks of `by` threads have so many, say."""
    return arith.divui(arith.addi(value, build.index(by - 1)), build.index(by))


def block_number() -> ir.Value:
    return gpu.BlockIdOp(ir.Attribute.parse(DIM_X)).result


def grid_size() -> ir.Value:
    return gpu.GridDimOp(ir.Attribute.parse(DIM_X)).result


def thread_of_block() -> ir.Value:
    return gpu.ThreadIdOp(ir.Attribute.parse(DIM_X)).result


def thread_number(of: int, block: ir.Value | None = None) -> ir.Value:
    """The number of a thread among all, whose blocks have `of`; that of `block` for its own one."""
    first = arith.muli(block_number() if block is None else block, build.index(of))
    return arith.addi(first, thread_of_block())


def memory_type(kind: ir.RankedTensorType, last_stride: int = STRIDED) -> ir.MemRefType:
    """A tensor's type as a kernel's argument: of any strides, but maybe that of its last dimension."""
    strides = [STRIDED] * (kind.rank - 1) + [last_stride] * (kind.rank > 0)
    layout = ir.StridedLayoutAttr.get(0, strides) if kind.rank else None
    return ir.MemRefType.get(kind.shape, kind.element_type, layout)


def allocate(kind: ir.RankedTensorType, sizes: Sequence[Size]) -> ir.Value:
    """Memory for a tensor of these sizes."""
    dynamic = [build.as_index(size) for size, known in zip(sizes, kind.shape, strict=True) if known == DYNAMIC]
    return memref.AllocOp(ir.MemRefType.get(kind.shape, kind.element_type), dynamic, []).result


def read_buffer(value: ir.Value, last_stride: int = STRIDED) -> ir.Value:
    """The memory of a tensor that a kernel reads."""
    attributes = {"read_only": ir.UnitAttr.get()}
    kind = memory_type(value.type, last_stride)
    return ir.Operation.create("bufferization.to_buffer", [kind], [value], attributes).result


def strided(memory: ir.Value, last_stride: int = STRIDED) -> ir.Value:
    """Memory that was allocated, as a kernel's argument."""
    kind = memory.type
    if not kind.rank:
        return memory
    of = ir.RankedTensorType.get(kind.shape, kind.element_type)
    return ir.Operation.create("memref.cast", [memory_type(of, last_stride)], [memory]).result


def to_tensor(memory: ir.Value, kind: ir.Type) -> ir.Value:
    """What a kernel has written, as a tensor."""
    attributes = {"restrict": ir.UnitAttr.get()}
    return ir.Operation.create("bufferization.to_tensor", [kind], [memory], attributes).result
