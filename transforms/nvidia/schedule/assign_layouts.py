"""The pass ``assign-layouts``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ....dialects.mlir import ir
from ....dialects.tile import ConvertLayoutOp, LoadOp, dims_of, layout_of, with_layout
from ....dialects.tiling.structured import all_parallel, dim_position, indexing_maps
from ...attention import is_matmul
from ...passes import Pass, PassError, option
from ...rewriting import defining_op, erase_if_unused, is_constant, ops_in, ops_of
from ..axes import COLUMN, ROW, Axes
from ..constants import own_constants
from ..own_rows import own_rows
from ..registers import consumer_registers, matmul_registers
from .bulk_copies import is_streamed

CROWDING = ("math.log", "math.log2", "math.sqrt", "math.rsqrt", "arith.sitofp")
OTHER_REGISTERS = 40
FEWEST_LEFT_COLUMNS = 1  # all stay in shared memory
LAYOUT_OF_ROLES = {(ROW, COLUMN): "fragment", (ROW,): "row", (COLUMN,): "column"}


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """Says of every tile in a kernel where its elements are; puts ``tile.convert_layout`` where that changes::

        %q = tile.load(%arg0, …) : … -> tensor<128x64xf16>
        %k = tile.load(%arg1, …) : … -> tensor<64x64xf16>
        %s = linalg.generic … ins(%q, %k) outs(%zero) -> tensor<128x64xf32>        { a matmul }
        %t = linalg.generic … ins(%s) … -> tensor<128xf32>                         { row maximum }
      becomes
        %q = tile.load(%arg0, …) : … -> tensor<128x64xf16, "shared">
        %a = tile.convert_layout(%q) : … -> tensor<128x64xf16, "operand_a">
        %k = tile.load(%arg1, …) : … -> tensor<64x64xf16, "shared">
        %s = linalg.generic … ins(%a, %k) outs(%zero) -> tensor<128x64xf32, "fragment">
        %t = linalg.generic … ins(%s) … -> tensor<128xf32, "row">

    What is computed has one layout by its roles: rows and columns "fragment", rows "row", columns "column". A matmul
    takes its left operand from registers and its right one from shared memory; where that is computed (a cast or scale
    of keys or values), its elements are "spread" over the threads, and so is all that they are computed from. On Hopper
    a left operand can stay in shared memory, too: where it is wide, and half as wide ones where the registers are
    wanted for tiles that are loaded and for functions of scores; or where other tiles leave it none, as scores that are
    made of several products do; or has 8 bits; or is another one in each iteration. A left operand of 8 bits that is
    computed is "paired_a", since a thread has pairs of columns, the right one "paired".
    """

    left_columns: int = option("left operands from memory with more columns stay in shared memory (0: none does)", 0)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            _Assigner(kernel, self.left_columns).run()


def _is_crowded(kernel: ir.Operation) -> bool:
    """Whether scores go through functions that take registers, come together with positions as numbers (ALiBi), or with
    another tile from memory."""
    generics = ops_in(kernel, "linalg.generic")
    last = max((i for i, op in enumerate(generics) if is_matmul(op)), default=0)
    for op in generics[:last]:
        if any(o.name in CROWDING for o in ops_in(op)):
            return True
        if not is_matmul(op) and any(_is_loaded(v) and v.type.rank == 2 for v in op.operands):
            return True
    return False


def _has_several_products(kernel: ir.Operation) -> bool:
    """Whether scores are made of several, and their rows have a maximum."""
    generics = ops_in(kernel, "linalg.generic")
    of_loops = Counter(op.parent for op in generics if is_matmul(op) and _is_loaded(op.operands[0]))
    has_maximum = any(not all_parallel(op) and ops_in(op, "arith.maxnumf", "arith.maximumf") for op in generics)
    return has_maximum and max(of_loops.values(), default=0) > 1


def _is_loaded(value: ir.Value) -> bool:
    load = defining_op(value)
    return load is not None and load.name == "tile.load"


def _fits(matmul: ir.Operation) -> bool:
    """Whether a thread's registers hold what this matmul and others in its loop work on, their left operands too."""
    warpgroups = -(-matmul.results[0].type.shape[0] // 64)
    taken = matmul_registers(filter(is_matmul, ops_of(matmul.block))) + OTHER_REGISTERS
    return taken <= consumer_registers(warpgroups)


class _Assigner:
    def __init__(self, kernel: ir.Operation, left_columns: int):
        self.kernel = kernel
        self.left_columns = left_columns // 2 if _is_crowded(kernel) else left_columns
        if _has_several_products(kernel):
            self.left_columns = min(self.left_columns, FEWEST_LEFT_COLUMNS)

    def run(self) -> None:
        own_constants(self.kernel)  # uses may want different layouts
        own_rows(self.kernel)
        axes = Axes(self.kernel)
        ops = ops_in(self.kernel)
        types: dict[ir.Value, ir.Type] = {}
        for op in ops:
            values = list(op.results)
            if op.name == "scf.for":
                values += list(op.regions[0].blocks[0].arguments)
            for value in values:
                if isinstance(value.type, ir.RankedTensorType):
                    roles = tuple(axes.of(value, d).role for d in range(value.type.rank))
                    types[value] = with_layout(value.type, self._layout(op, roles))
        for value, kind in types.items():
            self._set_type(value, kind)
        for op in ops:
            if op.name == "linalg.generic":
                self._operands(op)

    def _layout(self, op: ir.Operation, roles: tuple[str, ...]) -> str | None:
        if roles in LAYOUT_OF_ROLES:
            return LAYOUT_OF_ROLES[roles]
        if op.name == "tile.load" and roles == (COLUMN, COLUMN):
            return "shared"
        if (
            op.name in ("linalg.generic", "tensor.empty", "arith.constant")
            and roles == (COLUMN, COLUMN)
            and not is_matmul(op)
        ):
            return "spread"
        if not roles:
            return None
        raise PassError(
            f"a tile of {' × '.join(roles)} is computed by '{op.name}': only rows × columns can be, in registers, and "
            "the right operand of a matmul element by element from memory",
            op,
        )

    def _set_type(self, value: ir.Value, kind: ir.Type) -> None:
        value.set_type(kind)
        if is_constant(value):
            op = value.owner.operation
            splat = ir.DenseElementsAttr(op.attributes["value"])
            op.attributes["value"] = ir.DenseElementsAttr.get_splat(kind, splat.get_splat_value())

    def _operands(self, op: ir.Operation) -> None:
        wanted = dict(enumerate(self._matmul(op))) if is_matmul(op) else {}
        if layout_of(op.results[0].type) == "spread":
            wanted = dict.fromkeys(range(len(op.operands)), "spread")
        for number, operand in enumerate(op.operands):
            if isinstance(operand.type, ir.RankedTensorType):
                if "spread" not in wanted.values():
                    self._check_order(op, number)
                self._operand(op, number, wanted.get(number))

    def _matmul(self, matmul: ir.Operation) -> tuple[str, str]:
        """The layouts of a matmul's operands."""
        operand = matmul.operands[0]
        load, width = defining_op(operand), operand.type.element_type.width
        if load is None or load.name != "tile.load":
            return ("paired_a", "paired") if width == 8 else ("operand_a", "shared")
        if not self.left_columns or width > 16:
            return "operand_a", "shared"
        last = load.opview.memory.type.rank - 1
        dense = last in dims_of(load.opview)[1 if width == 8 else 0 :]  # which `wgmma` takes in either order of 16 bits
        wide = operand.type.shape[1] > self.left_columns or not _fits(matmul) or width == 8
        return "shared" if dense and (wide or is_streamed(load)) else "operand_a", "shared"

    def _operand(self, op: ir.Operation, number: int, layout: str | None) -> None:
        operand = op.operands[number]
        found = layout_of(operand.type)
        load = defining_op(operand)
        if layout is None:
            if found == "shared":
                raise PassError("a tile that a matmul takes as its right operand is also used element by element", op)
            return
        if found == layout:
            return
        if load is not None and load.name == "tile.load":
            with ir.InsertionPoint(load), load.location:
                direct = layout if layout in ("spread", "paired") else "shared"
                view, kind = load.opview, with_layout(operand.type, direct)
                operand = LoadOp(view.memory, view.indices, load.attributes["dims"], result=kind).result
                if layout != direct:
                    operand = ConvertLayoutOp(operand, [], result=with_layout(operand.type, layout)).result
        elif layout == "spread":
            self._spread(op, number)
            return
        elif layout == "shared" and found != "spread":
            raise PassError("the right operand of a matmul is computed from rows: not lowered for GPUs", op)
        else:
            with ir.InsertionPoint(op), op.location:
                operand = ConvertLayoutOp(operand, [], result=with_layout(operand.type, layout)).result
        op.operands[number] = operand
        if load is not None and load.name == "tile.load" and not list(load.results[0].uses):
            load.erase()

    def _spread(self, op: ir.Operation, number: int) -> None:
        """A constant, nothing, or what is computed from what is loaded, as an operand of what is spread."""
        source = defining_op(op.operands[number])
        known = source is not None and source.name in ("arith.constant", "tensor.empty")
        if source is None or not (known or _is_elementwise(source)):
            raise PassError(
                "a right operand of a matmul is computed from another tile in registers: compute it before the loop", op
            )
        with ir.InsertionPoint(op):
            own = source.clone().operation
        op.operands[number] = own.results[0]
        self._set_type(own.results[0], with_layout(own.results[0].type, "spread"))
        if not known:
            self._operands(own)
        erase_if_unused(source)

    def _check_order(self, op: ir.Operation, number: int) -> None:
        """Element-wise, dimensions stand in the order rows, columns everywhere."""
        places = [dim_position(e) for e in indexing_maps(op)[number].results]
        if not is_matmul(op) and places != sorted(places):
            raise PassError("a tile is transposed in registers: not lowered for GPUs", op)


def _is_elementwise(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and len(op.results) == 1 and all_parallel(op)
