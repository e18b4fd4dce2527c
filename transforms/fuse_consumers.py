"""The pass ``fuse-consumers``."""

from __future__ import annotations

from dataclasses import dataclass

from ..dialects import build
from ..dialects.mlir import arith, ir
from ..dialects.tiling.index import Index, Range, Tile, TileBuilder
from ..dialects.tiling.structured import (
    StructuredTiling,
    all_parallel,
    dim_position,
    indexing_maps,
    iterator_types,
    reduces,
)
from ..dialects.tiling.tensor_ops import reassociation
from .copying import copy_elements, in_loops
from .extents import known_sizes
from .graph import stands_before
from .passes import Pass, option, remark
from .reshapes import RESHAPES, can_join, joined_operand, readers, replace_if_undone, reshape, simplified
from .rewriting import defining_op, erase_if_unused, ops_in, ops_of
from .slices import Size, insert_parallel, tile_of


@dataclass(frozen=True)
class FuseConsumers(Pass):
    """Moves element-wise ops on the results of a loop over tiles into the loop: they work on the tile::

        %o:2 = scf.forall (%i) … shared_outs(%a = %x, %b = %y) {
          …
          scf.forall.in_parallel { parallel_insert_slice %t into %a[%i, 0]… , parallel_insert_slice %l into %b[%i] }
        }
        %r = linalg.generic … ins(%o#0, %o#1) outs(%z) { divf, truncf }
      becomes
        %r = scf.forall (%i) … shared_outs(%c = %z) {
          …
          %u = linalg.generic … ins(%t, %l) …
          scf.forall.in_parallel { parallel_insert_slice %u into %c[%i, 0] }
        }

    A kernel then writes what is asked for, and nothing that is only read again. What reads a reshape of a result,
    element by element, goes before it (torch rounds the result of a collapsed matmul, and adds to it).
    Kernels of tiles for GPUs store narrow floats: with `narrow` a comparison moves into the loop only if narrow floats
    are made of it; where some of them stay behind, its bits are stored as 0.0 and 1.0.
    """

    narrow: bool = option("only what ends in floats of up to 32 bits", False)

    def run(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                ops = [o for o in ops_of(block) if o.name in ("scf.forall", "func.func", "builtin.module")]
                for inner in ops:  # no consumer among them: these are erased on the way
                    if inner.name == "scf.forall":
                        self._fuse_all(inner)
                    else:
                        self.run(inner)

    def _fuse_all(self, forall: ir.Operation) -> None:
        _move_before_reshapes(forall)
        consumer = self._consumer(forall)
        while consumer is not None:
            location = consumer.location
            forall = _Fusion(forall, consumer).run()
            remark(location, "computed on the tiles of the loop before it")
            _move_before_reshapes(forall)
            consumer = self._consumer(forall)
        if self.narrow:
            _numbers_for_bits(forall)

    def _consumer(self, forall: ir.Operation) -> ir.Operation | None:
        """An op that can move into the loop."""
        for result in forall.results:
            for use in result.uses:
                op = use.owner.operation
                if op.name != "linalg.generic" or op.block != forall.block or (self.narrow and not _ends_narrow(op)):
                    continue
                if not _is_computed_where_read(op, forall) and _Fusion(forall, op).is_possible():
                    return op
        return None


def _is_computed_where_read(op: ir.Operation, forall: ir.Operation) -> bool:
    """Whether the loop stores what an op reads anyway, for sums, and less than its result, which is read by ops that
    can compute it element by element."""
    read = [v for v in op.operands if v in list(forall.results)]
    stored = all(any(map(reduces, readers(v, op.block, RESHAPES))) for v in read)
    widths = [v.type.element_type.width for v in read]
    wider = len(read) == 1 and op.results[0].type.element_type.width > widths[0]
    names = {user.name for user in readers(op.results[0], op.block, RESHAPES)}
    return stored and wider and names == {"linalg.generic"}


def _numbers_for_bits(forall: ir.Operation) -> None:
    """Results of the loop that are bits, as not all that is made of them has moved into it, become 0.0 and 1.0."""
    bit = next((r for r in forall.results if r.type.element_type == ir.IntegerType.get_signless(1)), None)
    if bit is None:
        return
    f32, n = ir.F32Type.get(), bit.type.rank
    maps, loops = [ir.AffineMap.get_identity(n)] * 2, [build.PARALLEL] * n
    with ir.InsertionPoint(forall), forall.location:
        sizes = build.mixed_sizes(_init_of(bit, forall))
        init, empty = (build.empty(sizes, kind) for kind in (f32, bit.type.element_type))
    with ir.InsertionPoint.after(forall), forall.location:
        (number,) = build.generic([bit], [init], maps, loops, lambda x, _: arith.uitofp(f32, x))
        (again,) = build.generic([number], [empty], maps, loops, lambda x, _: _is_not_zero(x))
    bit.replace_all_uses_except(again, number.owner.operation)
    fusion = _Fusion(forall, number.owner.operation)
    if fusion.is_possible():
        _numbers_for_bits(fusion.run())


def _init_of(result: ir.Value, forall: ir.Operation) -> ir.Value:
    return forall.operands[len(forall.operands) - len(forall.results) + ir.OpResult(result).result_number]


def _is_not_zero(x: ir.Value) -> ir.Value:
    return arith.cmpf(arith.CmpFPredicate.UNE, x, build.constant(x.type, 0.0))


def _ends_narrow(op: ir.Operation) -> bool:
    """Whether the result of `op` is of narrow floats, or only what is computed from it element by element is read."""
    is_view = op.name in RESHAPES
    if not is_view and (op.name != "linalg.generic" or len(op.results) != 1 or reduces(op)):
        return False
    element, users = op.results[0].type.element_type, [use.owner.operation for use in op.results[0].uses]
    if isinstance(element, ir.FloatType) and element.width <= 32:
        return True
    return (is_view or bool(users)) and all(user.block == op.block and _ends_narrow(user) for user in users)


def _move_before_reshapes(forall: ir.Operation) -> None:
    """generic(reshape(result), …) → reshape(generic(result, …)), for element-wise ops."""
    for result in forall.results:
        for view in dict.fromkeys(use.owner.operation for use in result.uses):  # in an order that is known
            if view.name not in RESHAPES:
                continue
            for op in dict.fromkeys(use.owner.operation for use in view.results[0].uses):
                if op.name in RESHAPES and replace_if_undone(op):
                    continue
                if op.block == forall.block and _can_move(op, view):
                    _Move(forall, view, op).run()
            erase_if_unused(view)


def _can_move(op: ir.Operation, view: ir.Operation) -> bool:
    """Whether each element of the result comes from the one at the same place of what is reshaped, wherever that is;
    of other operands, from one that the places along some of the dimensions tell; where dimensions are split, from the
    one at the same place, too, or from one that the places along others tell."""
    if op.name != "linalg.generic" or len(op.results) != 1 or reduces(op):
        return False
    *maps, last = indexing_maps(op)
    identity = ir.AffineMap.get_identity(len(iterator_types(op)))
    body = op.regions[0].blocks[0]
    if last != identity or list(body.arguments[len(maps)].uses):
        return False
    if any(inner.name in ("linalg.index", "tensor.extract") for inner in ops_in(op)):
        return False
    if any(m != identity for m, v in zip(maps, op.operands, strict=False) if v == view.results[0]):
        return False
    if view.name == "tensor.expand_shape":
        return can_join(maps, reassociation(view))
    return all(dim_position(e) is not None for m in maps for e in m.results)


class _Move:
    """Of an op before a reshape of a loop's result, from which it takes its sizes."""

    def __init__(self, forall: ir.Operation, view: ir.Operation, op: ir.Operation):
        self.view, self.op = view, op
        with ir.InsertionPoint(forall), op.location:
            self.sizes = known_sizes(_init_of(view.operands[0], forall))
        self.groups = reassociation(view)  # for each dimension of the narrow side those of the wide one

    def run(self) -> None:
        op, n = self.op, len(self.sizes)
        body = op.regions[0].blocks[0]
        operands = [self._operand(v, m) for v, m in zip(list(op.operands)[:-1], indexing_maps(op)[:-1], strict=True)]

        def copied(*scalars: ir.Value) -> list[ir.Value]:
            return copy_elements(
                op, dict(zip(body.arguments, scalars, strict=True)), in_loops(ir.AffineMap.get_identity(0))
            )

        with ir.InsertionPoint(op), op.location:
            init = build.empty(self.sizes, op.results[0].type.element_type)
            maps = [*(m for _, m in operands), ir.AffineMap.get_identity(n)]
            (computed,) = build.generic([v for v, _ in operands], [init], maps, [build.PARALLEL] * n, copied)
            moved = self.view.clone()
            moved.operands[0] = computed
            moved.results[0].set_type(op.results[0].type)
        op.results[0].replace_all_uses_with(moved.results[0])
        op.erase()

    def _operand(self, value: ir.Value, m: ir.AffineMap) -> tuple[ir.Value, ir.AffineMap]:
        """An operand, and how the new loops read it."""
        n = len(self.sizes)
        if value == self.view.results[0]:
            return self.view.operands[0], ir.AffineMap.get_identity(n)
        if self.view.name == "tensor.expand_shape":
            with ir.InsertionPoint(self.op), self.op.location:
                return joined_operand(value, m, self.groups)
        groups = [self.groups[dim_position(e)] for e in m.results]
        if any(len(group) > 1 for group in groups):
            with ir.InsertionPoint(self.op), self.op.location:
                sizes = [[self.sizes[d] for d in group] for group in groups]
                value = simplified(reshape(value, sizes, expand=True))
        return value, build.projection(n, [d for group in groups for d in group])


class _Fusion:
    def __init__(self, forall: ir.Operation, consumer: ir.Operation):
        self.forall, self.consumer = forall, consumer
        self.body = forall.regions[0].blocks[0]
        self.terminator = ops_of(self.body)[-1]
        count = len(forall.results)
        self.outputs = list(self.body.arguments)[len(self.body.arguments) - count :]
        self.stores = {store.operands[1]: store for store in ops_of(self.terminator.regions[0].blocks[0])}

    def _store_of(self, value: ir.Value) -> ir.Operation | None:
        """How a tile is put into the loop's result `value`."""
        results = list(self.forall.results)
        return self.stores.get(self.outputs[results.index(value)]) if value in results else None

    def ranges(self) -> Tile | None:
        """The loops of the consumer that a tile of the loop's results needs; None where that is not one box."""
        op = self.consumer
        ranges: list[Range | None] = [None] * len(iterator_types(op))
        for value, m in zip(op.operands, indexing_maps(op), strict=True):
            store = self._store_of(value)
            if store is None:
                continue
            if store.operands[0].type.rank != value.type.rank:
                return None
            for r, expression in zip(tile_of(store), m.results, strict=True):
                loop = dim_position(expression)
                if loop is None or ranges[loop] not in (None, r):
                    return None
                ranges[loop] = r
        found = [r for r in ranges if r is not None]
        return tuple(found) if len(found) == len(ranges) else None

    def is_possible(self) -> bool:
        op = self.consumer
        if len(op.results) != 1 or reduces(op):
            return False
        if self._store_of(op.operands[len(op.operands) - 1]) is not None:  # it writes over the loop's result
            return False
        last = indexing_maps(op)[-1].results
        if [dim_position(e) for e in last] != list(range(len(last))) or self.ranges() is None:
            return False
        inside = set(ops_in(op))
        for value in [v for inner in inside for v in inner.operands]:
            owner = defining_op(value)
            if owner is not None and owner not in inside and not stands_before(owner, self.forall):
                return False  # its body reads the loop's result at some other place
        moved: list[ir.Operation] = []
        owners = [defining_op(value) for value in op.operands if self._store_of(value) is None]
        if not all(owner is None or _can_precede(owner, self.forall, moved) for owner in owners):
            return False
        for owner in moved:
            owner.move_before(self.forall)
        return True

    def run(self) -> ir.Operation:
        """The new loop."""
        op, old = self.consumer, self.forall
        ranges = self.ranges()
        assert ranges is not None, "is_possible was asked"
        with ir.InsertionPoint(self.terminator), op.location:
            builder = TileBuilder(ir.InsertionPoint(old), self.body)
            tiling = StructuredTiling(op)
            sizes = {}

            def operand(number: int, tile: Tile) -> ir.Value:
                value = op.operands[number]
                store = self._store_of(value)
                if store is not None:
                    return store.operands[0]
                if number == len(op.operands) - 1:
                    sizes["out"] = tile
                return builder.slice(value, tile)

            (computed,) = tiling.tile(builder, ranges, operand)
        return self._rebuilt(computed, sizes["out"])

    def _rebuilt(self, computed: ir.Value, tile: Tile) -> ir.Operation:
        op, old = self.consumer, self.forall
        kept = [i for i, r in enumerate(old.results) if any(u.owner.operation != op for u in r.uses)]
        bounds = len(old.operands) - len(old.results)
        inits = [old.operands[bounds + i] for i in kept] + [op.operands[len(op.operands) - 1]]
        attributes = {name: old.attributes[name] for name in old.attributes}
        segments = list(ir.DenseI32ArrayAttr(attributes["operandSegmentSizes"]))
        segments[3] = len(inits)
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(segments)
        with ir.InsertionPoint(old), old.location:
            operands = [*list(old.operands)[:bounds], *inits]
            new = ir.Operation.create("scf.forall", [v.type for v in inits], operands, attributes, regions=1)
        count = len(self.body.arguments) - len(old.results)
        kinds = [a.type for a in list(self.body.arguments)[:count]] + [v.type for v in inits]
        block = new.regions[0].blocks.append(*kinds, arg_locs=[old.location] * len(kinds))
        pairs = list(zip(list(self.body.arguments)[:count], list(block.arguments)[:count], strict=True))
        pairs += [(self.outputs[i], block.arguments[count + n]) for n, i in enumerate(kept)]
        # What reads an output that is gone reads what it started as.
        pairs += [(a, old.operands[bounds + i]) for i, a in enumerate(self.outputs) if i not in kept]
        out = block.arguments[len(block.arguments) - 1]
        builder = TileBuilder(ir.InsertionPoint(old), self.body)
        with ir.InsertionPoint(self.terminator.regions[0].blocks[0]), op.location:
            places = [[_number(builder, x) for x in (r.offset, r.size)] for r in tile]
            insert_parallel(computed, out, [offset for offset, _ in places], [size for _, size in places])
        gone = [self.stores[a] for i, a in enumerate(self.outputs) if i not in kept]
        for store in gone:
            store.erase()
        for before, after in pairs:
            before.replace_all_uses_with(after)
        for inner in ops_of(self.body):
            block.append(inner)
        # The tile's init was sliced from the tensor that is now the loop's output.
        for use in list(inits[-1].uses):
            if use.owner.operation.name == "tensor.extract_slice" and use.owner.operation.block == block:
                use.owner.operation.operands[0] = out
        for n, i in enumerate(kept):
            old.results[i].replace_all_uses_with(new.results[n])
        op.results[0].replace_all_uses_with(new.results[len(kept)])
        op.erase()
        erase_if_unused(old)
        return new


def _can_precede(op: ir.Operation, forall: ir.Operation, moved: list[ir.Operation]) -> bool:
    """Whether an op stands before a loop, or can be `moved` there with what it needs: those that compute element by
    element, or move elements, which are added to the list in order."""
    if op in moved or stands_before(op, forall):
        return True
    if op.name not in ("tensor.empty", *RESHAPES) and not (op.name == "linalg.generic" and all_parallel(op)):
        return False
    inside = set(ops_in(op))
    owners = [defining_op(v) for inner in (op, *inside) for v in inner.operands]
    if not all(o is None or o in inside or _can_precede(o, forall, moved) for o in owners):
        return False
    moved.append(op)
    return True


def _number(builder: TileBuilder, index: Index) -> Size:
    return builder.value(index) if index.static is None else index.static
