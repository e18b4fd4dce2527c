"""Functions whose tensors are as small as a tile, in which no loop over tiles is left: one block computes them."""

from __future__ import annotations

from ...dialects import build
from ...dialects.mlir import ir
from ...dialects.tiling.structured import dim_position, indexing_maps
from ..attention import contraction_loops, is_contraction
from ..rewriting import defining_op, ops_in, ops_of
from ..slices import insert_parallel

ROWS, COLUMNS = 128, 256  # the most that one block computes at once where there is no loop


def is_one_tile(function: ir.Operation) -> bool:
    """Whether what matmuls compute outside of loops over tiles is as small as a tile."""
    matmuls = [op for op in ops_in(function) if is_contraction(op)]
    return bool(matmuls) and all(map(_is_small, matmuls))


def _is_small(matmul: ir.Operation) -> bool:
    sizes = {
        dim_position(e): value.type.shape[d]  # of a tile that may be cut it is below 0
        for value, m in zip(matmul.operands, indexing_maps(matmul), strict=True)
        for d, e in enumerate(m.results)
    }
    loops = contraction_loops(matmul)
    assert loops is not None, "a contraction has loops"
    most = {**dict.fromkeys((*loops.batch, *loops.m), ROWS), **dict.fromkeys(loops.n, COLUMNS)}
    return all(sizes[d] <= limit for d, limit in most.items()) and 0 not in sizes.values()


def one_block(function: ir.Operation) -> list[ir.Operation]:
    """Moves what computes a function's results into a scf.forall of one iteration."""
    block = function.regions[0].blocks[0]
    terminator = ops_of(block)[-1]
    results = list(terminator.operands)
    kinds = [v.type for v in results]
    tensors = all(isinstance(k, ir.RankedTensorType) and k.has_static_shape for k in kinds)
    if not tensors or not kinds or any(defining_op(v) is None for v in results) or len(set(results)) != len(results):
        return []
    moved = [op for op in ops_of(block)[:-1] if op.name not in ("arith.constant", "tensor.dim")]
    with ir.InsertionPoint(terminator), function.location:
        inits = [build.empty(kind.shape, kind.element_type) for kind in kinds]
        one = ir.DenseI64ArrayAttr.get([1])
        attributes = {
            "staticLowerBound": ir.DenseI64ArrayAttr.get([0]),
            "staticUpperBound": one,
            "staticStep": one,
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0, 0, len(inits)]),
        }
        forall = ir.Operation.create("scf.forall", kinds, inits, attributes, regions=1)
        arguments = [ir.IndexType.get(), *kinds]
        body = forall.regions[0].blocks.append(*arguments, arg_locs=[function.location] * len(arguments))
        for op in moved:
            body.append(op)
        with ir.InsertionPoint(body):
            inserts = ir.Operation.create("scf.forall.in_parallel", [], [], {}, regions=1)
        with ir.InsertionPoint(inserts.regions[0].blocks.append()):
            for value, target in zip(results, list(body.arguments)[1:], strict=True):
                insert_parallel(value, target, [0] * value.type.rank, value.type.shape)
    for i, result in enumerate(forall.results):
        terminator.operands[i] = result
    return [forall]
