"""The pass ``expand-tiles``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....dialects import build
from ....dialects.mlir import arith, func, ir, math, memref, scf, vector
from ...passes import Pass
from ...rewriting import ancestors, ops_in
from ..matrix_unit import DEPTH, PAIRS, ROWS
from ..memory import FRAMES, in_frame
from .tile_panels import for_each, plus

AMX = "x86.amx."
LEAST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class ExpandTiles(Pass):
    """Computes products of AMX tiles by vectors, for CPUs that have no tiles::

        %a = x86.amx.tile_load %p[%i, %k], %stride : memref<…> into !x86.amx.tile<16x32xbf16>
        %d = x86.amx.tile_mulf %a, %b, %c : …
    becomes
        %a = memref.alloca() : memref<16x32xbf16>                 # at the top of the function
        %m = memref.reinterpret_cast %p to offset: [%at], sizes: [16, 32], strides: [%stride, 1] …
        call @tile_load_bf16(%m, %a)
        call @tile_mulf_bf16(%a, %b, %c)                          # adds to %c, which is %d from here on

    The functions compute what the instructions do, in their order, with subnormal factors and sums as 0, at a hundredth
    of their speed: for tests of what else makes kernels with tiles.
    """

    def run(self, op: ir.Operation) -> None:
        ops = [o for o in ops_in(op) if o.name.startswith(AMX)]
        expansion = _Expansion()
        for tile_op in ops:
            with ir.InsertionPoint(tile_op), tile_op.location:
                expansion.expand(tile_op)
        for tile_op in reversed(ops):
            tile_op.erase()
        with ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]), op.location:
            for name, types in expansion.called.items():
                _define(name, types)


@dataclass
class _Expansion:
    """`tiles`: the buffers of tiles; `called`: the functions that calls need, and what they take."""

    tiles: dict[ir.Value, ir.Value] = field(default_factory=dict)
    called: dict[str, list[ir.Type]] = field(default_factory=dict)

    def expand(self, op: ir.Operation) -> None:
        kind = op.name.removeprefix(AMX)
        if kind == "tile_mulf":
            a, b, c = (self.tiles[v] for v in op.operands)
            if len(list(op.operands[2].uses)) > 1:
                before, c = c, self._new(op)
                memref.CopyOp(before, c)
            self.tiles[op.results[0]] = c
            self._call(kind, a, b, c)
        elif kind == "tile_zero":
            self._call(kind, self._new(op))
        elif kind == "tile_load":
            tile = self._new(op)
            self._call(kind, _memory(op.opview, tile.type), tile)
        else:
            tile = self.tiles[op.opview.val]
            self._call(kind, tile, _memory(op.opview, tile.type))

    def _new(self, op: ir.Operation) -> ir.Value:
        """A buffer for the tile that the op makes."""
        frame = next(x for x in ancestors(op) if x.name in FRAMES)
        rows, columns, element = str(op.results[0].type).removesuffix(">").rpartition("<")[2].split("x")
        tile = self.tiles[op.results[0]] = in_frame(frame, [int(rows), int(columns)], ir.Type.parse(element))
        return tile

    def _call(self, kind: str, *operands: ir.Value) -> None:
        name = f"{kind}_{operands[0].type.element_type}"
        self.called.setdefault(name, [v.type for v in operands])
        func.CallOp([], name, list(operands))


def _memory(op: ir.OpView, tile: ir.Type) -> ir.Value:
    """A view of the tile in memory that the op reads or writes."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    buffer, offset, *rest = list(memref.ExtractStridedMetadataOp(op.base).results)
    for i, step in zip(op.indices, rest[op.base.type.rank :], strict=True):
        offset = arith.addi(offset, arith.muli(i, step))
    kind = ir.MemRefType.get(tile.shape, tile.element_type, ir.StridedLayoutAttr.get(dynamic, [dynamic, 1]))
    return memref.ReinterpretCastOp(kind, buffer, [offset], [], [op.stride], [dynamic], tile.shape, [dynamic, 1]).result


def _define(name: str, types: Sequence[ir.Type]) -> None:
    """A function that is called, not inlined: kernels have thousands of products."""
    bodies: dict[str, Callable[..., None]] = {"tile_zero": _clear, "tile_mulf": _multiply}
    body = bodies.get(name.rpartition("_")[0], _copy)
    function = func.FuncOp(name, (types, []), visibility="private")
    function.attributes["llvm.no_inline"] = ir.UnitAttr.get()
    with ir.InsertionPoint(function.add_entry_block()):
        arguments = function.arguments
        for_each(ROWS, lambda row: body(row, *arguments))
        func.ReturnOp([])


def _clear(row: ir.Value, tile: ir.Value) -> None:
    zero = build.constant(ir.VectorType.get([ROWS], tile.type.element_type), 0.0)
    vector.StoreOp(zero, tile, [row, build.index(0)])


def _copy(row: ir.Value, source: ir.Value, target: ir.Value) -> None:
    at = [row, build.index(0)]
    found = vector.LoadOp(ir.VectorType.get(source.type.shape[1:], source.type.element_type), source, at).result
    vector.StoreOp(found, target, at)


def _multiply(row: ir.Value, a: ir.Value, b: ir.Value, c: ir.Value) -> None:
    """TDPBF16PS and TDPFP16PS: even and odd products have sums of their own."""
    f32, start = ir.F32Type.get(), build.index(0)
    kind, pairs = ir.VectorType.get([ROWS], f32), ir.VectorType.get([DEPTH], a.type.element_type)
    zero = build.constant(kind, 0.0)
    loop = scf.ForOp(start, build.index(PAIRS), build.index(1), [zero, zero])
    with ir.InsertionPoint(loop.body):
        k, sums = loop.induction_variable, []
        columns = vector.DeinterleaveOp(vector.LoadOp(pairs, b, [k, start]).result).results
        for i, (column, old) in enumerate(zip(columns, loop.inner_iter_args, strict=True)):
            factor = arith.extf(f32, memref.LoadOp(a, [row, plus(arith.addi(k, k), i)]).result)
            factors = [_normal(x) for x in (vector.broadcast(kind, factor), arith.extf(kind, column))]
            sums.append(_normal(math.fma(*factors, old)))
        scf.YieldOp(sums)
    added = _normal(arith.addf(*loop.results))
    before = vector.LoadOp(kind, c, [row, start]).result
    vector.StoreOp(_normal(arith.addf(before, added)), c, [row, start])


def _normal(x: ir.Value) -> ir.Value:
    """Zero for what is subnormal."""
    least, zero = (build.constant(x.type, value) for value in (LEAST_NORMAL, 0.0))
    return arith.select(arith.cmpf(arith.CmpFPredicate.OLT, math.absf(x), least), zero, x)
