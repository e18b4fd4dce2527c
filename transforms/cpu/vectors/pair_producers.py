"""Lets the op that computes a factor of a contraction write it in pairs.

    linalg.generic {… (m, n) …} ins(%s : memref<128x64xf32>) outs(%p, %l : memref<128x64xbf16>, memref<64xf32>)
becomes
    %s0 = memref.subview %s[0, 0] [64, 64] [2, 1]           # the even rows, and the odd ones
    %s1 = memref.subview %s[1, 0] [64, 64] [2, 1]
    linalg.generic {… (m, p) …} ins(%s0, %s1) outs(%w : memref<64x64xi32>, %l) {
      …                                                     # the body on both, one after the other; pair.pack
"""

from ....dialects import build
from ....dialects.mlir import arith, ir, linalg
from ....dialects.pair import PackOp
from ...copying import copy_body
from ...rewriting import ops_in
from ..blocks import subview
from ..structured import Operand, Structured, structured_of
from .loop_indices import renumber
from .tile_panels import halved


def find_producer(value: ir.Value, position: int, reader: ir.Operation) -> Structured | None:
    """The op right here that computes the buffer `value` for `reader` alone, if it can write words of its rows.

    `position` is the dimension of pairs: the rows are an even number, and all that it reads of them is contiguous
    along another dimension.
    """
    kind = value.type
    if kind.is_dynamic_dim(position) or kind.get_dim_size(position) % 2:
        return None
    others = [use.owner.operation for use in value.uses if use.owner.operation != reader]
    if len(others) != 1 or others[0].name != "linalg.generic" or others[0].block != reader.block:
        return None
    op = structured_of(others[0])
    out = None if op is None else next((o for o in op.outputs if o.value == value), None)
    if op is None or out is None or out.is_read or not isinstance(out.element, ir.BF16Type):
        return None
    loop = out.dims[position]
    for operand in op.operands:
        if loop in operand.loops and operand.dims[-1] == loop:
            return None
        if operand.is_output and operand is not out and loop in operand.loops:
            return None
    return op


def write_pairs(op: Structured, value: ir.Value, position: int, words: ir.Value) -> None:
    """Makes the op write `words` in the place of `value`."""
    old, out = op.op, next(o for o in op.outputs if o.value == value)
    loop = out.dims[position]
    n_inputs = len(op.operands) - len(op.outputs)
    with ir.InsertionPoint(old), old.location:
        ins: list[ir.Value] = []
        maps: list[ir.AffineMapAttr] = []
        places: list[tuple[int, int]] = []  # of each old operand: the arguments of its even and of its odd row
        for operand, map_ in zip(op.operands, old.attributes["indexing_maps"], strict=True):
            if operand.number >= n_inputs:
                continue
            rows = rows_of_pairs(operand, loop) if loop in operand.loops else [operand.value]
            places.append((len(ins), len(ins) + len(rows) - 1))
            ins += rows
            maps += [map_] * len(rows)
        outs = [words if o is out else o.value for o in op.outputs]
        maps += list(old.attributes["indexing_maps"])[n_inputs:]
        new = linalg.GenericOp([], ins, outs, ir.ArrayAttr.get(maps), old.attributes["iterator_types"])
        block = new.regions[0].blocks.append(*[build.element_of(v.type) for v in [*ins, *outs]])
        with ir.InsertionPoint(block):
            sums = list(block.arguments)[len(ins) :]
            halves = []
            for row in range(2):
                seen = ops_in(new, "linalg.index")
                arguments = [block.arguments[place[row]] for place in places] + sums
                results = copy_body(op.body, dict(zip(op.body.arguments, arguments, strict=True)))
                number = out.number - n_inputs
                halves.append(arith.extf(ir.F32Type.get(), results[number]))
                sums = [block.arguments[len(ins) + i] if i == number else r for i, r in enumerate(results)]

                def of_row(d: int, number: ir.Value, row: int = row) -> ir.Value | None:
                    """Of the pair's even or odd row."""
                    is_along = d == loop
                    return arith.addi(arith.muli(number, build.index(2)), build.index(row)) if is_along else None

                renumber([o for o in ops_in(new, "linalg.index") if o not in seen], of_row)
            word = PackOp(*halves, word=ir.IntegerType.get_signless(32)).result
            linalg.YieldOp([word if i == out.number - n_inputs else s for i, s in enumerate(sums)])
    old.erase()


def rows_of_pairs(operand: Operand, loop: int) -> list[ir.Value]:
    """The even and the odd rows of a buffer along `loop`; of an odd number the last is left out."""
    kind, position = operand.value.type, operand.dims.index(loop)
    strides, start = kind.get_strides_and_offset()
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    steps = [2 if d == position else 1 for d in range(kind.rank)]
    pitches = [s if s == dynamic else s * step for s, step in zip(strides, steps, strict=True)]
    sizes = build.mixed_sizes(operand.value)
    sizes[position] = halved(sizes[position])
    found = []
    for row in range(2):
        offsets = [row if d == position else 0 for d in range(kind.rank)]
        is_known = dynamic not in (start, strides[position] if row else 0)
        layout = ir.StridedLayoutAttr.get(start + row * strides[position] if is_known else dynamic, pitches)
        found.append(subview(operand.value, layout, offsets, sizes, steps))
    return found
