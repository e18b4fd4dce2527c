"""The pass ``tiles-to-nvvm``."""

from __future__ import annotations

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tile import dims_of, layout_of
from ...attention import is_matmul
from ...passes import Pass, PassError, option
from ...rewriting import ops_in, ops_of
from ..alignment import has_dense_rows
from ..architecture import HOPPER, architecture
from ..axes import DYNAMIC, inner_dim
from ..elements import byte_width
from ..launching import launches_of, relaunch
from ..marks import BLOCK_THREADS, PRODUCERS
from ..registers import REGISTERS, wgmma_registers
from ..shared_layouts import shared_bytes, skewed_bytes
from . import contraction
from .elementwise import DISTRIBUTED
from .memory import SHARED, Memory
from .synchronisation import BARRIER, Barriers, Flags
from .thread import Shared, Skewed, Thread, add, constant, create, i32, i64, pointer
from .tile_ops import TileOps
from .values import parameter_attributes, parameter_types

SPILLED_THREADS = 640  # up to which ptxas can spill what one instruction does not need
ALIGNMENT = 1024  # of buffers: the unit of the swizzle
SHARED_SYMBOL = "shared_memory"
WRITES = "tile.writes"  # of a launch: the numbers of arguments that are written
READS = (  # memory, their first operand
    *(f"tile.{name}" for name in ("load", "row_shifts", "copy_piece", "copy_async", "copy_rows")),
    *("memref.load", "memref.dim", "vector.load"),
)
ELEMENT_THREADS = 256  # of kernels without tiles: outline-elements


@dataclass(frozen=True)
class TilesToNvvm(Pass):
    """Kernels on tiles become what one thread does: llvm.func on registers, op by op, an emitter per op and layout.

    ::
        %s = linalg.generic … ins(%a, %k) outs(%zero) -> tensor<128x64xf32, "fragment">          { a matmul }
        %t = linalg.generic … ins(%s, %m) … -> tensor<128x64xf32, "fragment">     { exp(s − m) }
      becomes, in llvm.func @attention_0(%0: !llvm.ptr<1>, …) attributes {nvvm.kernel, nvvm.maxntid = …}
        %1 = llvm.inline_asm … "wgmma.mma_async … m64n64k16 …" : (…) -> !llvm.struct<(f32, f32, …)>
        %2 = llvm.extractvalue %1[0]                     // one of 32 elements that a thread has
        %3 = arith.subf %2, %m0
        …

    A kernel's parameters: for each memref a pointer, its dynamic sizes (i32), its strides (i64) but that of dense rows;
    scalars.
    `arch`: sm_90a takes wgmma, all others mma.sync. Rows in memory are taken to be aligned as dense ones are.
    """

    arch: str = option("the GPU's architecture: sm_80 or later; sm_90a for Hopper's own instructions", HOPPER)
    vector_bytes: int = option("largest copy to shared memory of a thread: 16, 8, 4 or 2", 16)

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            with kernel.location:
                _Kernel(kernel, self).run()


class _Kernel:
    def __init__(self, kernel: ir.Operation, options: TilesToNvvm):
        self.kernel, self.options = kernel, options
        self.block = kernel.regions[0].blocks[0]
        self.name = ir.StringAttr(kernel.attributes["sym_name"]).value
        self.inner = self._inner_dims()
        if all(kind.width <= 16 for kind in self._given_types()):
            # Scores are no better than their operands.
            for name, freedom in (("math.tanh", "afn"), ("arith.mulf", DISTRIBUTED)):
                for op in ops_in(kernel, name):
                    op.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{freedom}>")

    def _given_types(self) -> list[ir.Type]:
        """The types of what matmuls load, beside which what is computed may be f32; without matmuls, of all floats in
        memory."""
        loaded = [o.operands[1].type.element_type for o in ops_in(self.kernel) if is_matmul(o)]
        elements = [getattr(argument.type, "element_type", None) for argument in self.block.arguments]
        return loaded or [kind for kind in elements if isinstance(kind, ir.FloatType)]

    def run(self) -> None:
        kinds: list[ir.Type] = []
        attributes: list[ir.Attribute] = []
        for argument in self.block.arguments:
            kinds += parameter_types(argument.type)
            attributes += parameter_attributes(argument.type)
        threads = self._rows() // 16 * 32 or ELEMENT_THREADS
        if BLOCK_THREADS in self.kernel.attributes:
            threads = ir.IntegerAttr(self.kernel.attributes[BLOCK_THREADS]).value
        if PRODUCERS in self.kernel.attributes:
            threads += 128 * ir.IntegerAttr(self.kernel.attributes[PRODUCERS]).value
        self._check_registers(threads)
        function = ir.Type.parse(f"!llvm.func<void ({', '.join(map(str, kinds))})>")
        with ir.InsertionPoint(self.kernel):
            new = ir.Operation.create(
                "llvm.func",
                [],
                [],
                {
                    "sym_name": ir.StringAttr.get(self.name),
                    "function_type": ir.TypeAttr.get(function),
                    "arg_attrs": ir.ArrayAttr.get(attributes),
                    "gpu.kernel": ir.UnitAttr.get(),
                    "nvvm.kernel": ir.UnitAttr.get(),
                    "nvvm.maxntid": ir.DenseI32ArrayAttr.get([threads]),
                    "CConv": ir.Attribute.parse("#llvm.cconv<ccc>"),
                    "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
                },
                regions=1,
            )
        body = new.regions[0].blocks.append(*kinds, arg_locs=[self.kernel.location] * len(kinds))
        with ir.InsertionPoint(body):
            module, hopper = self.kernel.parent.operation, architecture(self.options.arch).is_hopper
            emitter = TileOps(module, Thread.make(threads), hopper, self.options.vector_bytes)
            self.values = emitter.values
            self._arguments(list(body.arguments))
            shared = self._buffers()
            most = architecture(self.options.arch).shared_memory
            if shared > most:
                have = f"of which it may have {most} on {self.options.arch}"
                message = f"a block needs {shared} bytes of shared memory, {have}: choose smaller tiles (tile_sizes)"
                raise PassError(message, self.kernel)
            emitter.ops(ops_of(self.block)[:-1])
            ir.Operation.create("llvm.return")
        new.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(i32(), 1)
        self._update_launches(threads, shared)
        self.kernel.erase()

    # What the kernel is.

    def _rows(self) -> int:
        """How many rows the tiles have: all the same number."""
        found = set()
        for op in ops_in(self.kernel):
            for value in op.results:
                if layout_of(value.type) in ("fragment", "row", "operand_a"):
                    found.add(value.type.shape[0])
        if not found:
            return 0
        if len(found) != 1:
            raise PassError(f"expects tiles of one number of rows in a kernel, but found {sorted(found)}", self.kernel)
        (rows,) = found
        if rows % 64 or rows > 512:
            raise PassError(f"tiles have {rows} rows; expects 64, 128, … up to 512", self.kernel)
        return rows

    def _check_registers(self, threads: int) -> None:
        """Whether ptxas can give threads the registers that their matmuls take, some of them in memory."""
        matmuls = [o for o in ops_in(self.kernel) if is_matmul(o) and o.operands[1].type.element_type.width <= 16]
        if not architecture(self.options.arch).is_hopper or not matmuls:
            return
        have, need = REGISTERS // threads // 8 * 8, wgmma_registers(matmuls, whole=threads > SPILLED_THREADS)
        if need > have:
            raise PassError(
                f"{threads} threads have {have} registers each, but their matmuls take {need}: choose tiles of fewer "
                "rows or columns (tile_sizes)",
                self.kernel,
            )

    def _inner_dims(self) -> dict[ir.Value, int]:
        """Per buffer, which dimension of its tiles stands side by side in memory."""
        inner: dict[ir.Value, int] = {}
        for op in (*ops_in(self.kernel, "tile.copy_async"), *ops_in(self.kernel, "tile.copy_bulk")):
            view = op.opview
            dims = dims_of(view)
            last = (len(view.indices) if op.name == "tile.copy_bulk" else view.memory.type.rank) - 1
            found = dims.index(last) if last in dims else 1
            if inner.setdefault(view.staged, found) != found:
                raise PassError("one buffer takes tiles of different orders in memory", op)
        for op in ops_in(self.kernel, "tile.arrange"):
            inner[op.operands[1]] = op.opview.inner.value
        for op in ops_in(self.kernel, "tile.store_shared"):
            inner[op.operands[1]] = inner_dim(op.operands[0])
        return inner

    def _arguments(self, parameters: list[ir.Value]) -> None:
        for argument in self.block.arguments:
            kind = argument.type
            mine, parameters = parameters[: len(parameter_types(kind))], parameters[len(parameter_types(kind)) :]
            if not isinstance(kind, ir.MemRefType):
                self.values[argument] = mine[0]
                continue
            dynamic = iter(mine[1:])
            sizes = [next(dynamic) if s == DYNAMIC else constant(i32(), s) for s in kind.shape]
            strides = list(dynamic)
            if has_dense_rows(kind):
                strides.append(constant(i64(), 1))
            self.values[argument] = Memory(kind, mine[0], strides, sizes)

    def _buffers(self) -> int:
        """Places for all buffers in shared memory; the value is their size in bytes."""
        buffers = [op for op in ops_of(self.block) if op.name == "memref.alloc"]
        if not buffers:
            return 0
        module = self.kernel.parent.operation
        if not any(_is_named(o, SHARED_SYMBOL) for o in ops_of(module.regions[0].blocks[0])):
            with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]):
                ir.Operation.create(
                    "llvm.mlir.global",
                    [],
                    [],
                    {
                        "sym_name": ir.StringAttr.get(SHARED_SYMBOL),
                        "global_type": ir.TypeAttr.get(ir.Type.parse("!llvm.array<0 x i8>")),
                        "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
                        "addr_space": ir.IntegerAttr.get(i32(), SHARED),
                        "alignment": ir.IntegerAttr.get(i64(), ALIGNMENT),
                    },
                    regions=1,
                )
        symbol = ir.FlatSymbolRefAttr.get(SHARED_SYMBOL)
        start = create("llvm.mlir.addressof", pointer(SHARED), global_name=symbol)
        address = create("llvm.ptrtoint", i32(), start)
        mask = constant(i32(), -ALIGNMENT)
        address = create("arith.andi", i32(), add(address, ALIGNMENT - 1), mask)
        offset, small = 0, None
        buffers.sort(key=_order)
        for op in buffers:
            value = op.results[0]
            kind = ir.MemRefType(value.type)
            width = byte_width(kind.element_type)
            stages, *shape = kind.shape
            if not shape:
                if small is None:
                    small, start = offset, add(address, offset)
                if width == 8:
                    self.values[value] = Barriers(start, offset - small, stages)
                else:
                    self.values[value] = Flags(add(address, offset), stages)
                offset += -(-stages * width // BARRIER) * BARRIER  # which all of them are aligned to
                continue
            types = (*contraction.ELEMENTS, *contraction.NAMES_OF_8_BITS)
            if str(kind.element_type) not in types and not _is_read_by_threads(value):
                known = ", ".join(types)
                raise PassError(
                    f"tiles of {kind.element_type} go to the tensor cores: the operands of matmuls must be {known}; "
                    "convert them before (of f64, to f32), or compile for the CPU",
                    op,
                )
            if any(use.owner.operation.name == "tile.copy_rows" for use in value.uses):
                self.values[value] = Skewed(add(address, offset), tuple(shape), width, stages)
                offset += -(-stages * skewed_bytes(shape[0], shape[1], width) // ALIGNMENT) * ALIGNMENT
                continue
            inner = self.inner.get(value, 1)
            self.values[value] = Shared(add(address, offset), tuple(shape), inner, width, stages)
            offset += -(-stages * shared_bytes(shape[1 - inner], shape[inner], width) // ALIGNMENT) * ALIGNMENT
        return offset + ALIGNMENT

    def _update_launches(self, threads: int, shared: int) -> None:
        """Tells the launches how many threads and how much shared memory a block has."""
        for launch in launches_of(self.kernel):
            with ir.InsertionPoint(launch), launch.location:
                operands = list(launch.operands)
                operands[3] = build.index(threads)
                made = relaunch(launch, operands, memory=constant(i32(), shared))
                made.attributes[WRITES] = ir.DenseI32ArrayAttr.get(self._written())

    def _written(self) -> list[int]:
        """The numbers of the arguments that the kernel may write: memory that it does not only read."""
        found = []
        for number, argument in enumerate(self.block.arguments):
            users = [(use.owner.operation.name, use.operand_number) for use in argument.uses]
            if isinstance(argument.type, ir.MemRefType) and any(name not in READS or n for name, n in users):
                found.append(number)
        return found


def _is_named(op: ir.Operation, symbol: str) -> bool:
    return "sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == symbol


def _order(buffer: ir.Operation) -> tuple[bool, bool]:
    """Barriers come last, since tiles are aligned, and ones behind all tiles that they may belong to."""
    users = [use.owner.operation.name for use in buffer.results[0].uses]
    return buffer.results[0].type.rank == 1, "tile.fill_ones" in users


def _is_read_by_threads(buffer: ir.Value) -> bool:
    """Whether all tiles of a buffer go to registers for element-wise ops."""
    views = [use.owner.operation for use in buffer.uses if use.owner.operation.name == "tile.view"]
    users = [use.owner.operation for view in views for use in view.results[0].uses]
    return all(u.name == "tile.convert_layout" and layout_of(u.results[0].type) == "fragment" for u in users)
