"""Makes the program (`program.py`) of a function whose loops became kernels."""

from typing import Any

from ...dialects.build import constant_value
from ...dialects.diagnostic import DiagnosedError
from ...dialects.mlir import ir
from ...dialects.tile import is_tensor_map
from ...transforms.nvidia.alignment import has_dense_rows
from ...transforms.nvidia.code.overlap_launches import EARLY
from ...transforms.nvidia.kernels.one_block import COLUMNS, ROWS
from ..diagnostics import diagnostic
from .program import TENSOR_MAP, Program, Step

DYNAMIC = ir.ShapedType.get_dynamic_size()

# Integer ops on sizes.
ARITHMETIC = {
    "arith.addi": "a + b",
    "arith.subi": "a - b",
    "arith.muli": "a * b",
    "arith.divui": "a // b",
    "arith.divsi": "a // b",
    "arith.remui": "a % b",
    "arith.maxsi": "max(a, b)",
    "arith.minsi": "min(a, b)",
    "arith.maxui": "max(a, b)",
    "arith.minui": "min(a, b)",
    "arith.select": "b if a else c",
}
COMPARISONS = ("a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b")  # by the signed predicates of arith.cmpi
ALLOCATIONS = ("memref.alloc", "tensor.empty")  # the latter: what kernels read before all of it is written
ALIASES = (  # the same here
    "bufferization.to_buffer",
    "bufferization.to_tensor",
    "memref.cast",
    "tensor.cast",
    "arith.index_cast",
)


def host_program(function: ir.OpView) -> Program:
    """The program of a function. An op that is no part of such a program is a user's error that names it."""
    numbers: dict[ir.Value, int] = {}
    steps: list[Step] = []
    block = function.body.blocks[0]
    for i, argument in enumerate(block.arguments):
        numbers[argument] = i

    def emit(op: ir.Operation, kind: str, operands: list[ir.Value], detail: Any = None) -> None:
        steps.append(Step(kind, tuple(numbers[v] for v in operands), detail))
        if op.results:
            numbers[op.results[0]] = len(block.arguments) + len(steps) - 1

    returned: tuple[int, ...] = ()
    for view in block.operations:
        op = view.operation
        if op.name in ALLOCATIONS or (op.name == "arith.constant" and _is_empty(op.results[0].type)):
            kind = op.results[0].type
            shape = tuple(None if s == DYNAMIC else s for s in kind.shape)
            emit(op, "alloc", list(op.operands), (str(kind.element_type), shape))
        elif op.name == "arith.constant":
            attribute = op.attributes["value"]
            emit(op, "constant", [], attribute.value if hasattr(attribute, "value") else None)
        elif op.name in ("tensor.dim", "memref.dim"):
            emit(op, "dim", list(op.operands))
        elif op.name in ARITHMETIC:
            emit(op, "arithmetic", list(op.operands), ARITHMETIC[op.name])
        elif op.name == "arith.cmpi" and ir.IntegerAttr(op.attributes["predicate"]).value < len(COMPARISONS):
            emit(op, "arithmetic", list(op.operands), COMPARISONS[ir.IntegerAttr(op.attributes["predicate"]).value])
        elif op.name in ALIASES:
            numbers[op.results[0]] = numbers[op.operands[0]]
        elif op.name.endswith((".collapse_shape", ".expand_shape")):
            groups = tuple(tuple(ir.IntegerAttr(d).value for d in group) for group in op.attributes["reassociation"])
            if op.name.endswith(".collapse_shape"):
                emit(op, "collapse", list(op.operands), groups)
            else:
                sizes = tuple(None if s == DYNAMIC else s for s in op.results[0].type.shape)
                emit(op, "expand", list(op.operands), (groups, sizes))
        elif op.name == "tile.tensor_map":
            box = tuple(ir.IntegerAttr(size).value for size in op.attributes["box"])
            emit(op, "tensor_map", list(op.operands), (str(op.operands[0].type.element_type), box))
        elif op.name == "gpu.launch_func":
            _launch(op, emit)
        elif op.name == "func.return":
            returned = tuple(numbers[v] for v in op.operands)
        else:
            control = {o.operation.name: o.operation for o in reversed(list(block.operations)) if o.operation.regions}
            loop = control.get("scf.for")
            branch = control.get("scf.while") or control.get("scf.if") or control.get("scf.index_switch")
            op = loop or branch or op  # rather than what it starts from
            message = (
                f"'{op.name}' stands outside of the fused loops; on GPUs only linalg ops, slices, reshapes and "
                "tensors that are put together run there"
            )
            if op == branch:
                message += "; the host would have to wait for what decides it: call a kernel of each part instead"
                if op.name != "scf.while":
                    message += (
                        ". Both parts are computed, and one is chosen, where results have known sizes and neither part "
                        "has loops that may not end or reads at a place that nothing bounds"
                    )
            if loop is not None:
                message += (
                    "; a loop over keys must be inside of those over queries (tile_interchange), and a single tile has "
                    f"at most {ROWS} queries and heads of {COLUMNS}; other loops become kernels where they make all "
                    "slices of a tensor, an element from the same one of other tensors' slices and of the slice "
                    "before, or write windows into one"
                )
            raise DiagnosedError([diagnostic("error", message, op.location)])
    return Program(len(block.arguments), tuple(steps), returned)


def _is_empty(kind: ir.Type) -> bool:
    """Whether it is that of tensors without elements, of known sizes."""
    return isinstance(kind, ir.RankedTensorType) and kind.has_static_shape and 0 in kind.shape


def _launch(op: ir.Operation, emit: Any) -> None:
    operands = list(op.operands)
    threads, shared = constant_value(operands[3]), constant_value(operands[6])
    parameters = operands[7:]
    kinds = tuple(_parameter(v.type) for v in parameters)
    name = str(op.attributes["kernel"]).rpartition("@")[2]
    emit(op, "launch", [operands[0], *parameters], (name, threads, shared, kinds, EARLY in op.attributes))


def _parameter(kind: ir.Type) -> Any:
    """A memref: (element, which sizes are passed, rank, the last size if it is known, whether rows are dense); the
    strides of all dimensions are passed, but the last one of dense rows. A scalar: its type."""
    if is_tensor_map(kind):
        return TENSOR_MAP
    if isinstance(kind, ir.MemRefType):
        dynamic = tuple(d for d, s in enumerate(kind.shape) if s == DYNAMIC)
        last = kind.shape[-1] if kind.rank and kind.shape[-1] != DYNAMIC else None
        return str(kind.element_type), dynamic, kind.rank, last, has_dense_rows(kind)
    return str(kind)
