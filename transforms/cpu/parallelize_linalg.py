"""The pass ``parallelize-linalg``."""

from dataclasses import dataclass

from ...dialects import build
from ...dialects.mlir import affine, ir, linalg, memref, scf
from ..linear import DYNAMIC
from ..passes import Pass, option
from ..rewriting import ancestors, ops_in
from .structured import Structured, Unsupported


@dataclass(frozen=True)
class ParallelizeLinalg(Pass):
    """Splits large linalg ops that stand outside of parallel loops over their outermost parallel loop::

        linalg.generic … ins(%a : memref<4096x64xf32>) outs(%b : memref<4096x64xf32>)
    becomes
        scf.parallel (%i) = (%c0) to (%c4096) step (%c64) {
          %n = affine.min affine_map<(i) -> (64, -i + 4096)>(%i)
          linalg.generic … ins(%subview of %a) outs(%subview of %b)
        }

    So a graph that is not fused runs on all cores too.
    """

    grain: int = option("the least number of iterations, over all loops, that a task gets", 1 << 16)

    def run(self, op: ir.Operation) -> None:
        for generic in ops_in(op, "linalg.generic"):
            if any(a.name in ("scf.parallel", "scf.forall") for a in ancestors(generic)):
                continue
            if generic.results:
                continue
            try:
                structured = Structured(generic)
            except Unsupported:
                continue
            if not any(o.name == "linalg.index" for o in structured.body_ops):
                self._split(structured)

    def _split(self, op: Structured) -> None:
        total = 1
        for size in op.sizes:
            total *= 256 if size is None else size  # a dynamic size is taken to be middling
        parallel = [d for d in range(op.n_loops) if op.is_parallel(d) and (op.sizes[d] is None or op.sizes[d] > 1)]
        if total < 2 * self.grain or not parallel:
            return
        loop = parallel[0]
        size = op.sizes[loop]
        inner = max(1, total // (256 if size is None else size))
        step = max(1, -(-self.grain // inner))
        if step > 1:
            step = -(-step // 8) * 8  # whole register tiles
        if size is not None and step >= size:
            return
        with ir.InsertionPoint(op.op), op.op.location:
            bound = op.size(loop)
            parallel_op = scf.ParallelOp([], [build.index(0)], [bound], [build.index(step)], [])
            body = parallel_op.regions[0].blocks.append(ir.IndexType.get())
            with ir.InsertionPoint(body):
                iv = body.arguments[0]
                if size is not None and size % step == 0:
                    extent: int | ir.Value = step
                else:
                    d0, s0 = ir.AffineExpr.get_dim(0), ir.AffineExpr.get_symbol(0)
                    rest = ir.AffineMap.get(1, 1, [ir.AffineExpr.get_constant(step), s0 - d0])
                    extent = affine.AffineMinOp(rest, [iv, bound]).result
                tiles = [_tile(o.value, o.dims, loop, iv, extent) for o in op.operands]
                n_inputs = len(op.operands) - len(op.outputs)
                clone = linalg.GenericOp(
                    [],
                    tiles[:n_inputs],
                    tiles[n_inputs:],
                    op.op.attributes["indexing_maps"],
                    op.op.attributes["iterator_types"],
                )
                op.body.append_to(clone.regions[0])
                scf.ReduceOp([], 0)
        op.op.erase()


def _tile(value: ir.Value, dims: tuple | None, loop: int, iv: ir.Value, extent: int | ir.Value) -> ir.Value:
    """The part of a buffer that the iterations [iv, iv + extent) of `loop` touch."""
    if dims is None or loop not in dims:
        return value
    kind = value.type
    position = dims.index(loop)
    offsets = [0] * kind.rank
    offsets[position] = DYNAMIC
    sizes, dynamic_sizes = [], []
    for i in range(kind.rank):
        if i == position:
            sizes.append(extent if isinstance(extent, int) else DYNAMIC)
            dynamic_sizes += [] if isinstance(extent, int) else [extent]
        elif kind.is_dynamic_dim(i):
            sizes.append(DYNAMIC)
            dynamic_sizes.append(memref.dim(value, build.index(i)))
        else:
            sizes.append(kind.get_dim_size(i))
    strides, _ = kind.get_strides_and_offset()
    layout = ir.StridedLayoutAttr.get(ir.ShapedType.get_dynamic_stride_or_offset(), list(strides))
    result = ir.MemRefType.get(sizes, kind.element_type, layout, kind.memory_space)
    return memref.SubViewOp(result, value, [iv], dynamic_sizes, [], offsets, sizes, [1] * kind.rank).result
