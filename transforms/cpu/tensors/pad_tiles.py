"""The pass ``pad-tiles``."""

from dataclasses import dataclass

from ....dialects import build
from ....dialects.mlir import ir
from ....dialects.tiling.structured import indexing_maps, is_direct, iterator_types
from ...extents import known_sizes
from ...linear import upper_bound
from ...passes import Pass
from ...rewriting import is_inside, ops_in
from ...slices import extract, insert, slice_parts
from .dimension_classes import Dim, DimensionClasses
from .shared_rows import cut_rows
from .tile_values import CARRYING, before, can_change, carried_pairs, carried_uses, hoisted, tile_values

INDEPENDENT = ("arith", "math", "linalg")  # ops of bodies that work element by element


@dataclass(frozen=True)
class PadTiles(Pass):
    """Computes whole tiles of rows also where the last one is cut off; what is beyond is dropped at the end::

        %n = affine.min affine_map<(i) -> (-i + 1023, 64)>(%i)
        %q = tensor.extract_slice %arg0[%i, 0] [%n, 64] [1, 1] : tensor<1023x64xf32> to tensor<?x64xf32>
        %s = linalg.generic … ins(%q, %k : tensor<?x64xf32>, …) outs(%e : tensor<?x128xf32>)
    becomes
        %p = tensor.insert_slice %q into %zeros[0, 0] [%n, 64] [1, 1] : tensor<?x64xf32> into tensor<64x64xf32>
        %s = linalg.generic … ins(%p, %k : tensor<64x64xf32>, …) outs(%e : tensor<64x128xf32>)

    The rows are what all matmuls of the loop read the same keys and values for: no row has to do with another one.
    Where `lanes-innermost` makes lanes of them, vectors need no masks; few of them (decoding) are a register tile; a
    matrix unit (AMX) loads whole tiles where they stand.
    """

    def run(self, op: ir.Operation) -> None:
        for loop in ops_in(op, "scf.forall"):
            classes = DimensionClasses(loop)
            rows = cut_rows(classes)
            if rows is not None:
                padding = _Padding(loop, classes, rows)
                if padding.is_possible():
                    padding.apply()


class _Padding:
    def __init__(self, loop: ir.Operation, classes: DimensionClasses, rows: Dim):
        self.loop = loop
        self.classes = classes
        self.rows = rows
        self.ops = ops_in(loop)
        self.padded: dict[ir.Value, int] = {}  # the dimension of the rows
        for value in tile_values(loop):
            d = classes.position(value, rows)
            if d is not None and can_change(value, loop):
                self.padded[value] = d
        self.extent: ir.Value | None = None
        self.size = 0

    def is_possible(self) -> bool:
        """True if all rows have one dynamic extent, with a bound, and each is computed apart from the others."""
        extents = [x for op in self.ops for x in self._extents(op)]
        if not extents or any(not isinstance(x, ir.Value) or x != extents[0] for x in extents):
            return False
        self.extent = extents[0]
        self.size = upper_bound(self.extent) or 0
        body = self.loop.regions[0].blocks[0]
        owner = self.extent.owner
        stands_first = owner == body or (not isinstance(owner, ir.Block) and owner.operation.block == body)
        is_outside = not isinstance(owner, ir.Block) and not is_inside(owner.operation, self.loop)
        return (
            self.size > 0
            and (stands_first or is_outside)
            and not any(self.classes.is_repeated(v) for v in self.padded)
            and all(v.type.is_dynamic_dim(d) for v, d in self.padded.items())
            and all(self._is_independent(op) for op in self.ops)
        )

    def _extents(self, op: ir.Operation) -> list:
        """How far tiles that this op makes reach along the rows; 0 for what cannot be padded."""
        if not op.results or op.results[0] not in self.padded:
            return []
        d = self.padded[op.results[0]]
        if op.name == "tensor.empty":
            return [build_sizes(op)[d]]
        if op.name in ("tensor.extract_slice", "tensor.insert_slice"):
            offsets, sizes, strides = slice_parts(op)
            return [sizes[d] if offsets[d] == 0 and strides[d] == 1 else 0]
        return []

    def _is_independent(self, op: ir.Operation) -> bool:
        if op.name == "tensor.dim":
            return op.operands[0] not in self.padded
        if op.name != "linalg.generic" or not any(r in self.padded for r in op.results):
            return True  # what has no rows reads those that are there
        kinds = iterator_types(op)
        touched = [loop for loop, c in self.classes.loop_classes(op).items() if c == self.rows]
        body = [o.operation.name.split(".")[0] for o in op.regions[0].blocks[0].operations]
        direct = all(is_direct(e) for m in indexing_maps(op) for e in m.results)
        return all(kinds[t] == "parallel" for t in touched) and (
            not touched or (direct and all(name in INDEPENDENT for name in body))
        )

    def apply(self) -> None:
        slices = []
        for op in self.ops:
            if op.name == "linalg.generic":
                self._generic(op)
            elif op.name in ("tensor.extract_slice", "tensor.insert_slice"):
                is_padded = op.results[0] in self.padded
                for number in range(2 if op.name == "tensor.insert_slice" else 1):
                    op.operands[number] = self._as(op.operands[number], is_padded, op)
                if is_padded:
                    slices.append(op)
            elif op.name == "tensor.empty":
                if op.results[0] in self.padded:
                    slices.append(op)
            elif op.name in CARRYING:
                for result, other in carried_pairs(op):
                    if (result in self.padded) != (other in self.padded):
                        for user, number in carried_uses(op, result, other):
                            user.operands[number] = self._as(other, result in self.padded, user)
            elif op.name not in ("scf.yield", "tensor.dim"):
                for number, operand in enumerate(op.operands):
                    if operand in self.padded:
                        op.operands[number] = self._as(operand, False, op)
        for value, d in self.padded.items():
            shape = list(value.type.shape)
            shape[d] = self.size
            value.set_type(ir.RankedTensorType.get(shape, value.type.element_type, value.type.encoding))
        for op in slices:
            self._rebuild(op)

    def _generic(self, op: ir.Operation) -> None:
        n_inputs = len(op.operands) - len(op.results)
        touched = any(r in self.padded for r in op.results)
        for number, operand in enumerate(list(op.operands)):
            if self.classes.position(operand, self.rows) is None:
                continue
            is_read = bool(list(op.regions[0].blocks[0].arguments[number].uses))
            op.operands[number] = self._as(operand, touched, op, number < n_inputs or is_read)

    def _rebuild(self, op: ir.Operation) -> None:
        d = self.padded[op.results[0]]
        with ir.InsertionPoint(op), op.location:
            if op.name == "tensor.empty":
                sizes = build_sizes(op, d)
                sizes[d] = self.size
                new = build.empty(sizes, op.results[0].type.element_type)
            else:
                offsets, sizes, strides = slice_parts(op)
                sizes[d] = self.size
                if op.name == "tensor.insert_slice":
                    new = insert(op.operands[0], op.operands[1], offsets, sizes, strides)
                else:
                    new = extract(op.results[0].type, op.operands[0], offsets, sizes, strides)
        op.results[0].replace_all_uses_with(new)
        op.erase()

    def _as(self, value: ir.Value, padded: bool, user: ir.Operation, is_read: bool = True) -> ir.Value:
        """`value` with whole tiles of rows, or without; copied in front of `user` where it is not so."""
        d = self.classes.position(value, self.rows)
        if (value in self.padded) == padded or d is None:
            return value
        kind = value.type
        place = hoisted(value, before(user), self.loop) if padded else before(user)
        with ir.InsertionPoint(place), user.location:
            sizes = known_sizes(value)
            zeros, ones = [0] * kind.rank, [1] * kind.rank
            sizes[d] = self.extent
            if not padded:
                return extract(kind, value, zeros, sizes, ones)
            whole = [self.size if i == d else s for i, s in enumerate(sizes)]
            init = build.empty(whole, kind.element_type)
            if is_read:
                init = build.fill(build.constant(kind.element_type, 0), init)
                init = insert(value, init, zeros, sizes, ones)
            return init


def build_sizes(op: ir.Operation, rows: int | None = None) -> list:
    """The sizes of a tensor.empty, ints where static; `rows` is dynamic whatever the type says by now."""
    kind = op.results[0].type
    values = iter(list(op.operands))
    return [next(values) if kind.is_dynamic_dim(d) or d == rows else kind.get_dim_size(d) for d in range(kind.rank)]
