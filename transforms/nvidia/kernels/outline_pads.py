"""The pass ``outline-pads``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir
from ....dialects.tile import CopyPieceOp
from ...passes import Pass, option
from ...rewriting import defining_op, make_for, only_if, ops_in, ops_of
from ...slices import slice_offsets, slice_sizes
from ...splats import is_constant_tensor
from ..alignment import CHUNK
from ..architecture import WARP
from ..axes import DYNAMIC, kept_dims, source_indices
from ..constants import constant_memory
from ..elements import byte_width
from ..launching import (
    allocate,
    block_number,
    ceil_div,
    launch,
    new_kernel,
    read_buffer,
    strided,
    thread_number,
    to_tensor,
)
from ..marks import COPY


@dataclass(frozen=True)
class OutlinePads(Pass):
    """Makes a kernel of copies to aligned rows (``align-rows``) that stand together; its threads copy 16 bytes each::

        %p = tensor.pad %a low[0, 0] high[0, 7] { yield 0 } {tile.copy} : tensor<?x33xf16> to tensor<?x40xf16>
        %q = tensor.pad %b …
      becomes
        %out = memref.alloc(%n) : memref<?x40xf16>
        gpu.launch_func @f_kernels::@f_pad_0 blocks in (⌈%n · 5 / 256⌉ + …, 1, 1) … args(%a, %out, …, %n)
      and in gpu.module @f_kernels
        gpu.func @f_pad_0(…) kernel {
          %number = 256·block + thread
          scf.if %number < %n · 5 {
            %row, %j = %number / 5, 8 · (%number mod 5)
            tile.copy_piece (%a, %out, %row, %j, %row, %j, 33 − %j) {aligned = 2}
          }
          …                                     // of %b, by the blocks that follow

    Where rows have an open number of elements, a warp has a row, and each of its threads every 32nd piece of it. Which
    row that is, a thread divides once.
    """

    threads: int = option("threads of a block", 256)

    def run(self, op: ir.Operation) -> None:
        for function in ops_in(op, "func.func"):
            name = ir.StringAttr(function.attributes["sym_name"]).value
            modules = ops_in(op, "gpu.module")
            for module in [m for m in modules if ir.StringAttr(m.attributes["sym_name"]).value == f"{name}_kernels"]:
                for number, pads in enumerate(_groups(function)):
                    with pads[-1].location:
                        self._outline(pads, module, f"{name}_pad_{number}")

    def _outline(self, pads: list[ir.Operation], module: ir.Operation, name: str) -> None:
        copies = [_Copy(pad, f"{name}_constant_{i}") for i, pad in enumerate(pads)]
        with ir.InsertionPoint(pads[-1]):
            for copy in copies:
                copy.allocate()
            buffers = [v for copy in copies for v in copy.buffers()]
            scalars = list(dict.fromkeys(v for copy in copies for v in copy.scalars()))
            arguments = [*buffers, *scalars]
        block = new_kernel(module, name, [v.type for v in arguments])
        memory, numbers = list(block.arguments)[: len(buffers)], list(block.arguments)[len(buffers) :]
        values = dict(zip(scalars, numbers, strict=True))
        with ir.InsertionPoint(block):
            first = block_number()
            for copy in copies:
                threads = copy.threads(values)
                copy.emit(memory, module, thread_number(self.threads, first), threads, values)
                first = arith.subi(first, ceil_div(threads, self.threads))
            ir.Operation.create("gpu.return")
        with ir.InsertionPoint(pads[-1]):
            blocks = build.index(0)
            for copy in copies:
                blocks = arith.addi(blocks, ceil_div(copy.threads(), self.threads))
            launch(module, name, blocks, arguments)
            for copy in copies:
                copy.pad.results[0].replace_all_uses_with(to_tensor(copy.memory, copy.kind))
        for pad in pads:
            pad.erase()


def _groups(function: ir.Operation) -> list[list[ir.Operation]]:
    """The copies that no launch stands between."""
    groups: list[list[ir.Operation]] = [[]]
    for op in ops_of(function.regions[0].blocks[0]):
        if op.name == "gpu.launch_func":
            groups.append([])
        elif op.name == "tensor.pad" and COPY in op.attributes:
            groups[-1].append(op)
    return [group for group in groups if group]


class _Copy:
    def __init__(self, pad: ir.Operation, name: str):
        self.pad, self.name, self.kind = pad, name, pad.results[0].type
        self.source, self.slices = pad.operands[0], []  # the tensor that the kernel takes, and how it is cut
        while (op := defining_op(self.source)) is not None and op.name == "tensor.extract_slice":
            self.slices.append(op)
            self.source = op.operands[0]
        self.width = byte_width(self.kind.element_type)
        last = self.kind.shape[-1]
        self.lanes = WARP if last == DYNAMIC else last * self.width // CHUNK  # threads of a row

    # The host.

    def allocate(self) -> None:
        *self.outer, self.last = _sizes(self.pad.operands[0])
        width = self.kind.shape[-1]
        if width == DYNAMIC:
            (added,) = list(self.pad.operands)[1:]
            width = arith.addi(_value(self.last), added)
        self.memory = allocate(self.kind, [*self.outer, width])

    def buffers(self) -> list[ir.Value]:
        return [*([] if is_constant_tensor(self.source) else [read_buffer(self.source, 1)]), strided(self.memory, 1)]

    def scalars(self) -> list[ir.Value]:
        sizes = [*self.outer, self.last, *(offset for op in self.slices for offset in slice_offsets(op))]
        return [v for v in sizes if isinstance(v, ir.Value) and build.constant_value(v) is None]

    def threads(self, values: dict[ir.Value, ir.Value] | None = None) -> ir.Value:
        """How many there are, on the host, or in the kernel as `values` says."""
        total = build.index(self.lanes)
        for size in self.outer:
            total = arith.muli(total, _value(size, values))
        return total

    # The kernel.

    def emit(self, memory: list[ir.Value], module: ir.Operation, number, threads, values) -> None:
        """Takes its buffers off the front of `memory`. `number`: of the thread, negative in blocks of copies before."""
        constant = is_constant_tensor(self.source)
        source = constant_memory(self.source, module, self.name) if constant else memory.pop(0)
        target = memory.pop(0)
        inside = arith.cmpi(arith.CmpIPredicate.ult, number, threads)
        with only_if(inside):
            lanes, length = build.index(self.lanes), _value(self.last, values)
            lane, row = arith.remui(number, lanes), arith.divui(number, lanes)
            first, others = build.digits(row, [_value(size, values) for size in self.outer[1:]])
            at = [first, *others]
            if self.kind.shape[-1] != DYNAMIC:
                self._piece(source, target, at, lane, length, values)
            else:
                count = ceil_div(length, CHUNK // self.width)
                _, body = make_for([lane, count, lanes])
                with ir.InsertionPoint(body):
                    self._piece(source, target, at, body.arguments[0], length, values)
                    ir.Operation.create("scf.yield")

    def _piece(self, source, target, at, piece, length, values) -> None:
        column = arith.muli(piece, build.index(CHUNK // self.width))
        to = [*at, column]
        places, inner = to, self.pad.operands[0].type
        for op in self.slices:
            places = source_indices(op, inner, places, lambda offset: _value(offset, values))
            inner = op.operands[0].type
        attribute = build.i64_attribute(self._aligned())
        CopyPieceOp(source, target, [*places, *to, arith.subi(length, column)], attribute)

    def _aligned(self) -> int:
        """What rows begin at multiples of, in bytes."""
        lengths = [self.source.type.shape[-1], *(slice_offsets(op)[-1] for op in self.slices)]
        known = all(isinstance(n, int) and n != DYNAMIC for n in lengths)
        return math.gcd(CHUNK, *(self.width * n for n in lengths)) if known else self.width


def _sizes(value: ir.Value) -> list[ir.Value | int]:
    op = defining_op(value)
    if op is not None and op.name == "tensor.extract_slice":
        sizes = slice_sizes(op)
        return [sizes[d] for d in kept_dims(op, value.type)]
    return build.mixed_sizes(value)


def _value(size: ir.Value | int, values: dict[ir.Value, ir.Value] | None = None) -> ir.Value:
    """A size or offset as a value; in a kernel, as `values` says."""
    if isinstance(size, int):
        return build.index(size)
    number = build.constant_value(size)
    if values is None or number is None:
        return size if values is None else values[size]
    return build.index(number)
