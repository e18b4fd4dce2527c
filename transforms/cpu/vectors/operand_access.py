"""Loads and stores of a structured op's operands, as scalars or vectors along the loop of the lanes.

What is contiguous along the lanes is a vector load, masked at the end of the loop; what is not is gathered, or read as
a square that is transposed in registers; what the lanes do not index is a scalar. i1 is i8 in memory.
"""

from ....dialects import build, llvm_ops
from ....dialects.mlir import arith, ir, memref, vector
from ...linear import DYNAMIC
from ..memory import element_bytes
from ..structured import NO_LOOP, Operand, Structured
from ..target import LINE
from .broadcasts import alternating
from .read_ahead import L1, L2, block_ahead, reaches_too_short, rows_ahead
from .register_tile import Key, RegisterTile
from .scalar_body import BodyEvaluator
from .schedule import Schedule
from .shuffles import transpose


class OperandAccess:
    """Reads and writes operands at points of the register tile, in their register types."""

    def __init__(
        self, op: Structured, schedule: Schedule, tile: RegisterTile, evaluator: BodyEvaluator, asks_l2: bool = False
    ):
        self.schedule = schedule
        self.cache = L2 if asks_l2 else L1  # that streamed operands are asked for into
        self.tile = tile
        self.evaluator = evaluator
        self.v, self.lanes = schedule.vector_loop, schedule.lanes
        self.buffers = {o.number: buffer(o) for o in op.operands}
        unit = [o for o in op.operands if self._stride_kind(o) == "unit"]
        ahead = {o.number: rows_ahead(op, o, self.cache, schedule) for o in unit}
        self.ahead = {number: place for number, place in ahead.items() if place is not None}
        self.asked = {number for number in self.ahead if reaches_too_short(op.operands[number], schedule)}
        blocks = {o.number: block_ahead(op, schedule, o, self.cache) for o in op.operands}
        self.blocks = {number: rows for number, rows in blocks.items() if rows is not None}

    def load(self, operand: Operand, at: dict[int, int]) -> ir.Value:
        """The operand's scalar or vector at these unroll offsets."""
        if operand.is_scalar:
            return self.evaluator.to_register(operand.value)
        source = self.buffers[operand.number]
        element = source.type.element_type
        kind = self._stride_kind(operand)
        if kind == "none":
            value = memref.LoadOp(source, self.tile.subscripts(operand, at)).result
            self._ask_for_block(operand, at)
        else:
            mask = self.tile.mask
            type_ = ir.VectorType.get([self.lanes], element)
            if kind == "unit" and mask is None:
                value = vector.LoadOp(type_, source, self.tile.subscripts(operand, at)).result
                self._ask_ahead(operand, at)
            elif kind == "unit":
                zeros = self._zeros(element)
                value = vector.MaskedLoadOp(type_, source, self.tile.subscripts(operand, at), mask, zeros).result
                if self.cache == L2 and not isinstance(operand.element, ir.F16Type):
                    self._ask_ahead(operand, at)  # to convert f16 takes longer than to read it; into L1 is not measured
            else:
                flat, base, lane_offsets = self._strided(operand, at)
                value = vector.GatherOp(type_, flat, [base], lane_offsets, self._all(), self._zeros(element)).result
        return self.evaluator.from_memory(value, operand.element)

    def load_late(self, operand: Operand, at: dict[int, int]) -> dict[Key, ir.Value]:
        """By unroll offsets, what is needed right now; with its neighbour, where both come by one load."""
        loops = sorted(operand.loops)

        def key(place: dict[int, int]) -> Key:
            return operand.number, tuple(place[d] for d in loops)

        if not self._comes_by_two(operand, at):
            return {key(at): self.load(operand, at)}
        loop = operand.dims[-1]
        first, second = (at | {loop: at[loop] & ~1 | i} for i in range(2))
        pair = self.load_run(operand, first, 2)
        for place in (first, second):
            self._ask_for_block(operand, place)
        return dict(zip((key(first), key(second)), alternating(pair, self.lanes), strict=True))

    def without(self, numbers: frozenset[int], loaded: dict[Key, ir.Value]) -> dict[Key, ir.Value]:
        """What is loaded but for these operands, whose elements LLVM does not keep in registers either."""
        self._fence()
        return {key: value for key, value in loaded.items() if key[0] not in numbers}

    def _comes_by_two(self, operand: Operand, at: dict[int, int]) -> bool:
        """True for every second pair of neighbours, where the schedule says so."""
        if operand.number not in self.schedule.by_two:
            return False
        loop = operand.dims[-1]
        number = at[loop] // 2 + sum(offset for d, offset in at.items() if d != loop)
        return number % 2 == 1 and at[loop] | 1 < self.tile.count(loop)

    def load_all(self, operand: Operand) -> dict[Key, ir.Value]:
        """All that the register tile needs of the operand."""
        if self._is_block(operand):
            return self._load_block(operand)
        return {
            (operand.number, offsets): self.load(operand, self.tile.at(operand.loops, offsets))
            for offsets in self.tile.offsets(sorted(operand.loops))
        }

    def store(self, operand: Operand, value: ir.Value, at: dict[int, int]) -> None:
        target = self.buffers[operand.number]
        kind = self._stride_kind(operand)
        if kind == "none":
            stored = self.evaluator.to_memory(value, operand.element)
            memref.StoreOp(stored, target, self.tile.subscripts(operand, at))
            return
        stored = self.evaluator.to_memory(self.evaluator.broadcast(value), operand.element)
        mask = self.tile.mask
        if kind == "unit" and mask is None:
            vector.StoreOp(stored, target, self.tile.subscripts(operand, at))
        elif kind == "unit":
            vector.MaskedStoreOp(target, self.tile.subscripts(operand, at), mask, stored)
        else:
            flat, base, lane_offsets = self._strided(operand, at)
            vector.ScatterOp(None, flat, [base], lane_offsets, self._all(), stored)

    def load_run(self, operand: Operand, at: dict[int, int], count: int) -> ir.Value:
        """`count` elements that stand side by side along the operand's last dimension."""
        source = self.buffers[operand.number]
        kind = ir.VectorType.get([count], source.type.element_type)
        value = vector.LoadOp(kind, source, self.tile.subscripts(operand, at)).result
        return self.evaluator.from_memory(value, operand.element)

    def store_run(self, operand: Operand, value: ir.Value, at: dict[int, int]) -> None:
        stored = self.evaluator.to_memory(value, operand.element)
        vector.StoreOp(stored, self.buffers[operand.number], self.tile.subscripts(operand, at))

    def _stride_kind(self, operand: Operand) -> str:
        return "none" if self.v == NO_LOOP else operand.stride_kind(self.v)

    def _is_block(self, operand: Operand) -> bool:
        """True if the current tile of the operand is a full square, contiguous across the lanes."""
        across = self.schedule.transposed
        return (
            operand.stride_kind(across) == "unit"
            and operand.stride_kind(self.v) == "strided"
            and self.tile.count(across) == self.lanes
            and self.tile.mask is None
            and all(self.tile.count(d) == 1 for d in operand.loops if d != across)
        )

    def _load_block(self, operand: Operand) -> dict[Key, ir.Value]:
        """A square along the loop across, a vector per lane, transposed."""
        source = self.buffers[operand.number]
        type_ = ir.VectorType.get([self.lanes], source.type.element_type)
        subscripts = self.tile.subscripts(operand, dict.fromkeys(operand.loops, 0))
        position = operand.dims.index(self.v)
        base, rows = subscripts[position], []
        for lane in range(self.lanes):
            subscripts[position] = arith.addi(base, build.index(lane)) if lane else base
            rows.append(vector.LoadOp(type_, source, subscripts).result)
        loops, found = sorted(operand.loops), {}
        for offset, column in enumerate(transpose(rows)):
            offsets = tuple(offset if d == self.schedule.transposed else 0 for d in loops)
            found[operand.number, offsets] = self.evaluator.from_memory(column, operand.element)
        return found

    def _ask_ahead(self, operand: Operand, at: dict[int, int]) -> None:
        """Asks for the lines that a streamed operand is read at later; where that is past its end it does no harm."""
        ahead = self.ahead.get(operand.number)
        if ahead is None or operand.number not in self.asked:
            return
        if at[self.v] % max(1, LINE // (self.lanes * (element_bytes(operand.element) or LINE))):
            return  # a line that was asked for with the vector before
        subscripts = self.tile.subscripts(operand, at)
        here = subscripts[ahead.position]
        for rows in ahead.rows:
            subscripts[ahead.position] = arith.addi(here, build.index(rows))
            memref.PrefetchOp(self.buffers[operand.number], subscripts, False, self.cache, True)
        self._fence()

    def _ask_for_block(self, operand: Operand, at: dict[int, int]) -> None:
        """Asks for lines of later rows, one per step along a row: at the i-th element of a line for that of row i."""
        block = self.blocks.get(operand.number)
        if block is None or at[operand.dims[-2]]:
            return
        at_once, ahead = block
        per_line = LINE // (element_bytes(operand.element) or LINE)
        subscripts = self.tile.subscripts(operand, at)
        of_line = arith.andi(subscripts[-1], build.index(per_line - 1))
        row = of_line if at_once == per_line else arith.andi(of_line, build.index(at_once - 1))
        subscripts[-1] = arith.subi(subscripts[-1], of_line)
        subscripts[-2] = arith.addi(arith.addi(subscripts[-2], build.index(ahead)), row)
        memref.PrefetchOp(self.buffers[operand.number], subscripts, False, self.cache, True)
        self._fence()

    def _fence(self) -> None:
        """Neither loads nor requests pass this: LLVM would put the requests of a whole loop side by side."""
        llvm_ops.memory_fence()

    def _all(self) -> ir.Value:
        mask = self.tile.mask
        return self.evaluator.broadcast(build.constant(ir.IntegerType.get_signless(1), 1)) if mask is None else mask

    def _zeros(self, element: ir.Type) -> ir.Value:
        return self.evaluator.broadcast(build.constant(element, 0))

    def _strided(self, operand: Operand, at: dict[int, int]) -> tuple[ir.Value, ir.Value, ir.Value]:
        """A buffer as one flat run of elements, the position in it, and the lanes' offsets from there."""
        source = self.buffers[operand.number]
        rank = len(operand.dims)
        meta = memref.ExtractStridedMetadataOp(source)
        offset, strides = meta.results[1], list(meta.results)[2 + rank : 2 + 2 * rank]
        position = build.index(0)
        for subscript, stride in zip(self.tile.subscripts(operand, at), strides, strict=True):
            position = arith.addi(position, arith.muli(subscript, stride))
        stride = strides[operand.dims.index(self.v)]
        layout = ir.Attribute.parse("strided<[1], offset: ?>")
        flat_type = ir.MemRefType.get([DYNAMIC], source.type.element_type, layout, source.type.memory_space)
        extent = build.index(1 << 40)  # the accesses stay inside, by the bounds of the loops
        flat = memref.ReinterpretCastOp(
            flat_type, meta.results[0], [offset], [extent], [], [DYNAMIC], [DYNAMIC], [1]
        ).result
        steps = vector.StepOp(ir.VectorType.get([self.lanes], ir.IndexType.get())).result
        lane = arith.muli(steps, self.evaluator.broadcast(stride))
        return flat, position, lane


def buffer(operand: Operand) -> ir.Value:
    """What to access; bytes in place of i1, whose vectors would be packed bits."""
    if operand.is_scalar or operand.element != ir.IntegerType.get_signless(1):
        return operand.value
    kind = operand.value.type
    as_bytes = ir.MemRefType.get(kind.shape, ir.IntegerType.get_signless(8), kind.layout, kind.memory_space)
    cast = ir.Operation.create("builtin.unrealized_conversion_cast", results=[as_bytes], operands=[operand.value])
    return cast.result
