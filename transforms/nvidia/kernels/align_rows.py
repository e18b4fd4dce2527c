"""The pass ``align-rows``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import arith, ir, tensor
from ....dialects.tiling.structured import indexing_maps, iterator_types
from ...attention import is_matmul
from ...linear import divisor
from ...open_queries import FEW_QUERIES
from ...passes import Pass, remark
from ...reshapes import RESHAPES
from ...rewriting import defining_op, functions_of, is_inside, ops_in, ops_of
from ...slices import slice_offsets, slice_sizes
from ...splats import filled_with
from ..alignment import CHUNK, are_aligned
from ..axes import DYNAMIC, kept_dims
from ..elements import byte_width
from ..marks import COPY

COPIED = ("f16", "bf16", "f32", "i1", "i8", "i16", "i32")
LARGEST = 1 << 30  # elements: a kernel numbers them by i32
MOST_DIMS = 5  # of what the copy engine reads
FEW_ROWS = 64  # of a tile, which no copy engine brings
MANY_READERS = {1: 4, 2: 6, 4: 4}  # of a bias or mask, whose elements have so many bytes
SELDOM = 128  # which read keys and values too seldom, where copies of 8 bytes a thread can do without


@dataclass(frozen=True)
class AlignRows(Pass):
    """Copies tensors whose rows the copy engine cannot read to memory whose rows are aligned to 16 bytes::

        %r = scf.forall (%b, %i) … {
          %t = tensor.extract_slice %bias[0, %i, %j] [1, %m, %n] … : tensor<1x4096x4095xbf16> to …
      becomes
        %p = tensor.pad %bias low[0, 0, 0] high[0, 0, 1] { yield 0 } {tile.copy} : … to tensor<1x4096x4096xbf16>
        %r = scf.forall (%b, %i) … {
          %t = tensor.extract_slice %p[0, %i, %j] [1, %m, %n] … : tensor<1x4096x4096xbf16> to …

    The operands of matmuls, such as heads of 33 elements: every block of queries reads keys and values, which without
    the engine come two bytes at a time. And what tiles of scores come together with, a bias or mask for an odd number
    of keys, where enough heads or batch entries share it. In loops over tiles of many queries, all of whose operands
    the engine can then bring.

    (The engine can be pointed at any row of an unaligned array, by maps of its own for rows that are aligned alike; but
    columns too must begin at multiples of 16 bytes, or the instruction is illegal.)
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions_of(op):
            for forall in ops_of(function.regions[0].blocks[0]):
                if forall.name == "scf.forall":
                    _align(forall)


def can_be_aligned(value: ir.Value) -> bool:
    """Whether there is a way to copy a tensor before the loops that read it: the host knows where it is in memory, and
    its sizes."""
    kind = value.type
    small = not kind.has_static_shape or math.prod(kind.shape) < LARGEST
    if not small or not 2 <= kind.rank <= MOST_DIMS or str(kind.element_type) not in COPIED:
        return False
    op = defining_op(value)
    while op is not None and op.name == "tensor.extract_slice":
        places = [v for v in (*slice_offsets(op), *slice_sizes(op)) if isinstance(v, ir.Value)]
        if (
            any(s != 1 for s in op.opview.static_strides)
            or kept_dims(op, value.type)[-1] != op.operands[0].type.rank - 1
        ):
            return False
        if not all(is_known(v) for v in places):
            return False
        value = op.operands[0]
        op = defining_op(value)
    while op is not None and op.name in RESHAPES:
        if op.operands[0].type.shape[-1] != op.results[0].type.shape[-1]:
            return False  # parts of packed rows, which loops read where they stand
        op = defining_op(op.operands[0])
    return op is None or op.name != "tensor.extract_slice"


def operand_can_be_aligned(value: ir.Value) -> bool:
    """The same for an operand of a matmul, which is read as it stands in memory."""
    op = defining_op(value)
    read = op is None or not op.name.startswith("linalg")
    return read and value.type.element_type.width == 16 and can_be_aligned(value)


def is_known(value: ir.Value) -> bool:
    """Whether the host knows a scalar: it comes from no element of a tensor."""
    op = defining_op(value)
    if op is None or op.name == "tensor.dim":
        return True
    return op.name != "tensor.extract" and all(is_known(v) for v in op.operands)


def pays(kind: ir.RankedTensorType, counts: Iterable[int | None], by_keys: bool) -> bool:
    """Whether what scores come together with is read so often that a copy pays: by numbers of heads and batch entries
    that share it, None if unknown. `by_keys`: whether rows of keys come through shared memory as they are.

    As measured on an H200: a copy takes 0.5 ps a byte. Rows of keys that are not aligned, which threads beside the
    engine copy to shared memory (``stage-operands``), cost 0.23 ps an element more than those that are, 0.16 of one
    byte; other tiles, whose elements each thread loads, 1 ps, 2.5 of one byte. Of what a causal mask leaves, half is
    read, and all is copied.
    """
    width = byte_width(kind.element_type)
    least = MANY_READERS.get(width, width) if by_keys else width
    return math.prod(least if n is None else n for n in counts) >= least


def operand_pays(value: ir.Value, queries: int | None) -> bool:
    """Whether a copy of an operand of matmuls pays, for so many queries; None if unknown."""
    last = value.type.shape[-1]
    pieces = last != DYNAMIC and last * byte_width(value.type.element_type) % (CHUNK // 2) == 0
    return queries is None or queries > (SELDOM if pieces else FEW_ROWS)


def _align(forall: ir.Operation) -> None:
    operands = _operands(forall)
    if not operands:
        return
    wanted = [op for op in operands if not are_aligned(op.operands[0].type)]
    reads = ops_in(forall, "tensor.extract_slice")
    wanted += [op for op in reads if op not in operands and _is_wanted(op, forall)]
    copies: dict[ir.Value, ir.Value] = {}
    for read in wanted:
        source = read.operands[0]
        if source not in copies:
            with ir.InsertionPoint(forall), read.location:
                copies[source] = _padded(source)
            what = "for the copy engine" if read in operands else "which heads or batch entries share"
            remark(read, f"copied to aligned rows, {what}")
        read.operands[0] = copies[source]


def _operands(forall: ir.Operation) -> list[ir.Operation]:
    """The slices that are operands of matmuls, if those have many rows, of 16-bit values, and the copy engine can bring
    all right operands, or could after copies; else none."""
    matmuls = [op for op in ops_in(forall, "linalg.", "linalg_ext.") if is_matmul(op)]
    narrow = all(v.type.element_type.width == 16 for op in matmuls for v in list(op.operands)[:2])
    tall = any(n == DYNAMIC or n > FEW_ROWS for op in matmuls for n in op.results[0].type.shape[-2:-1])
    if not narrow or not tall or any(FEW_QUERIES in op.attributes for op in matmuls):
        return []
    found: dict[ir.Operation, None] = {}
    for op in matmuls:
        for number in (0, 1):
            value = _moved(op.operands[number])
            read = defining_op(value)
            if read is not None and read.name == "tensor.extract_slice":
                if not _comes_aligned(read, forall):
                    return []
                found[read] = None
            elif number and not (_is_older(value, forall) and are_aligned(value.type)):
                return []  # computed; a left operand may be: probabilities are
    return list(found)


def _moved(value: ir.Value) -> ir.Value:
    """The slice of a tensor, or whatever else, which `value` is, or moves."""
    op = defining_op(value)
    while op is not None:
        body = ops_of(op.regions[0].blocks[0]) if op.name == "linalg.generic" else []
        moves = len(op.operands) == 2 and len(body) == 1 and isinstance(op.operands[0].type, ir.RankedTensorType)
        if op.name not in RESHAPES and not moves:
            break
        value = op.operands[0]
        op = defining_op(value)
    return value


def _comes_aligned(read: ir.Operation, forall: ir.Operation) -> bool:
    source = read.operands[0]
    if not _begins_aligned(read):
        return False
    aligned = are_aligned(source.type)
    return aligned or (_is_a_tile(read) and _is_older(source, forall) and operand_can_be_aligned(source))


def _begins_aligned(read: ir.Operation) -> bool:
    """Whether a slice's first column is a multiple of 16 bytes: a part of a packed row need not be."""
    return divisor(slice_offsets(read)[-1]) * byte_width(read.operands[0].type.element_type) % CHUNK == 0


def _is_older(value: ir.Value, forall: ir.Operation) -> bool:
    """Whether a tensor is there before the loop."""
    owner = value.owner.owner.operation if isinstance(value.owner, ir.Block) else value.owner.operation
    return owner != forall and not is_inside(owner, forall)


def _is_a_tile(read: ir.Operation) -> bool:
    """Whether two dimensions of a slice have more than an element, and those of the last are side by side."""
    sizes = slice_sizes(read)
    return sizes[-1] != 1 and sum(s != 1 for s in sizes) == 2


def _is_wanted(read: ir.Operation, forall: ir.Operation) -> bool:
    """Whether what scores come together with is copied."""
    source = read.operands[0]
    if are_aligned(source.type) or not _is_older(source, forall) or not can_be_aligned(source):
        return False
    if not _is_a_tile(read) or not _begins_aligned(read) or filled_with(source) is not None:
        return False
    return _is_shared(read, forall, _is_by_keys(read))


def _is_shared(read: ir.Operation, forall: ir.Operation, by_keys: bool) -> bool:
    """Whether enough iterations of the grid read the same."""
    view, body = forall.opview, forall.regions[0].blocks[0]
    used: set[ir.Value] = set()
    pending = [o for o in slice_offsets(read) if isinstance(o, ir.Value)]
    while pending:
        value = pending.pop()
        used.add(value)
        op = defining_op(value) or value.owner.owner.operation
        if is_inside(op, forall):
            pending += [v for v in op.operands if v not in used and not isinstance(v.type, ir.ShapedType)]
    bounds = zip(body.arguments, view.staticLowerBound, view.staticUpperBound, view.staticStep, strict=False)
    counts = (None if DYNAMIC in (a, b, s) else -(-(b - a) // s) for v, a, b, s in bounds if v not in used)
    return pays(read.operands[0].type, counts, by_keys)


def _is_by_keys(read: ir.Operation) -> bool:
    """Whether the elements of a tile's rows are those of a row of scores: along the last loop of what reads them."""
    for use in read.results[0].uses:
        op = use.owner.operation
        if op.name != "linalg.generic":
            return False
        last = ir.AffineDimExpr.get(len(iterator_types(op)) - 1)
        if indexing_maps(op)[use.operand_number].results[-1] != last:
            return False
    return True


def _padded(source: ir.Value) -> ir.Value:
    """The tensor with rows that end at a multiple of 16 bytes."""
    kind, rank = source.type, source.type.rank
    last, multiple = kind.shape[-1], CHUNK // byte_width(kind.element_type)
    high: list[int | ir.Value] = [0] * rank
    if last == DYNAMIC:
        length, whole = tensor.dim(source, build.index(rank - 1)), build.index(multiple)
        rounded = arith.muli(arith.divui(arith.addi(length, build.index(multiple - 1)), whole), whole)
        high[-1] = arith.subi(rounded, length)
    else:
        last = -(-last // multiple) * multiple
        high[-1] = last - kind.shape[-1]
    result = ir.RankedTensorType.get([*kind.shape[:-1], last], kind.element_type)
    dynamic = [v for v in high if isinstance(v, ir.Value)]
    static = [DYNAMIC if isinstance(v, ir.Value) else v for v in high]
    pad = tensor.PadOp(result, source, [], dynamic, [0] * rank, static)
    block = pad.regions[0].blocks.append(*[ir.IndexType.get()] * rank)
    with ir.InsertionPoint(block):
        tensor.YieldOp(build.constant(kind.element_type, 0))
    pad.operation.attributes[COPY] = ir.UnitAttr.get()
    return pad.result
