"""Tile a root op and fuse its producers into the loops, tile by tile: the mechanism behind every fusion here.

The root's tile asks for tiles of its operands. Each request is a ``tensor.extract_slice`` in the loop body; fusing a
producer replaces it by the producer's own tile, which asks for tiles of *its* operands, and so on, from the root
upwards in program order. A producer is fused when all its uses that lead to the root are fused::

    %p = linalg.fill …                      scf.for %i = … iter_args(%o = %empty) {
    %r = linalg.matmul ins(%a, %b) …   →      %a1 = tensor.extract_slice %a[%i, 0] [4, 32] [1, 1]
         outs(%p)                             %p1 = linalg.fill … : tensor<4x8xf32>
                                              %r1 = linalg.matmul ins(%a1, %b) outs(%p1)
                                              %o1 = tensor.insert_slice %r1 into %o[%i, 0] [4, 8] [1, 1]

An op with an online reduction (softmax) may be tiled along the dimension it reduces: see online_accumulation.py.
Where fusing would change a result or compute something twice, the producer stays before the loops and is sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..dialects.mlir import ir
from ..dialects.tiling import (
    Index,
    Range,
    Tile,
    TileBuilder,
    Tiling,
    Untileable,
    is_structured,
    online_reduction_of,
    tiling_of,
)
from .graph import PLACE, Needed, ancestor_in, can_move_after
from .loop_nest import Carried, LoopNest
from .online_accumulation import OnlineAccumulation
from .passes import PassError, remark, warn
from .reshapes import RESHAPES, VIEWS
from .rewriting import defining_op, through
from .tiled_results import erase_dead, fold_whole_slices, replace_by_results

# Whoever else uses them goes on using the ones before the loops: fills are cheap, reshapes are views.
MADE_AGAIN = ("tensor.empty", "linalg.fill", *RESHAPES)


@dataclass
class Tiled:
    """What tiling leaves behind: the root's tile, the loops from outer to inner, and which producers went inside.

    `steps`: for each loop the dimension of the root, the tile size and the extent.
    """

    root: ir.Operation
    loops: list[ir.Operation]
    fused: list[str] = field(default_factory=list)
    steps: list[tuple[int, int, Index]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Request:
    """The body's wish for a tile of `value`, where `slice` stands."""

    slice: ir.Operation
    value: ir.Value
    tile: Tile


def check_options(root: ir.Operation, loops: int, sizes: Sequence[int], interchange: Sequence[int]) -> list[int]:
    """The order of the loops, outer to inner; PassError unless sizes and interchange fit the root's `loops` loops."""
    if len(sizes) > loops:
        raise PassError(f"{len(sizes)} tile sizes given, but '{root.name}' has {loops} loops", root)
    if any(s >= 2**63 for s in sizes):
        raise PassError(f"tile sizes must be below 2^63, but got {list(sizes)}", root)
    if any(s < 0 for s in sizes):
        raise PassError(f"tile sizes must not be negative (0 leaves a loop untiled), but got {list(sizes)}", root)
    order = list(interchange) or list(range(loops))
    if len(sizes) <= len(order) < loops:
        order += range(len(order), loops)
    if sorted(order) != list(range(loops)):
        raise PassError(
            f"tile_interchange must be a permutation of 0…{loops - 1}, the loops of '{root.name}', "
            f"but got {list(interchange)}",
            root,
        )
    return order


def tile_and_fuse(
    root: ir.Operation,
    sizes: Sequence[int],
    interchange: Sequence[int] = (),
    stops: Iterable[ir.Operation] = (),
    fuse_producers: bool = True,
    erase: Callable[[ir.Operation], None] = ir.Operation.erase,
) -> Tiled:
    """Tiles `root` by `sizes` (one per loop, 0 = not tiled) and fuses producers up to, not including, `stops`.

    Loops stand in the order of `interchange`, outer to inner. The root and its fused producers are replaced, and
    erased with `erase`. Raises PassError, with the IR untouched, where the options do not fit the root.
    """
    tiling = tiling_of(root) if is_structured(root) else None
    if tiling is None:
        raise PassError(f"'{root.name}' cannot be tiled: it is no structured op on tensors", root)
    loops = len(tiling.iterator_types())
    order = check_options(root, loops, sizes, interchange)
    tiled_loops = [d for d in order if d < len(sizes) and sizes[d]]
    if not tiled_loops:
        return Tiled(root, [])
    if _reads_nothing(root):
        raise PassError(f"a tensor of '{root.name}' has no elements: there is nothing to tile", root)
    with root.location:
        return _Fusion(root, tiling, {d: sizes[d] for d in tiled_loops}, set(stops), erase).run(fuse_producers)


def _reads_nothing(op: ir.Operation) -> bool:
    """Whether one of its tensors has no element, whatever is passed: such a one cannot be sliced."""
    kinds = [value.type for value in (*op.operands, *op.results)]
    return any(isinstance(kind, ir.RankedTensorType) and 0 in kind.shape for kind in kinds)


class _Fusion:
    """One call of tile_and_fuse."""

    def __init__(
        self,
        root: ir.Operation,
        tiling: Tiling,
        steps: dict[int, int],
        stops: set[ir.Operation],
        erase: Callable[[ir.Operation], None],
    ):
        self.root, self.tiling, self.steps, self.stops, self.erase = root, tiling, steps, stops, erase
        self.block = root.block
        self.leads_to_root = Needed(root)
        self.requests: list[Request] = []
        self.fused: set[ir.Operation] = set()
        self.carried: list[Carried] = []
        self.replacements: list[tuple[ir.Value, int]] = []
        iterators = tiling.iterator_types()
        self.reduces = any(iterators[d] == "reduction" for d in steps)

    def run(self, fuse_producers: bool) -> Tiled:
        self._build_nest()
        self._tile_root()
        names = []
        while fuse_producers and (producer := self._next_producer()) is not None:
            if self._fuse(producer):
                names.append(producer.name)
        self._finish_root()
        new_root = self.new_root
        loops = self.nest.carry(self.carried)
        fold_whole_slices(loops)
        replace_by_results(loops[0], self.replacements, self.fused)
        erase_dead(self.root, self.erase)
        return Tiled(new_root, loops, names, [(d, size, self.extents[d]) for d, size in self.steps.items()])

    # The root.

    def _build_nest(self) -> None:
        before = TileBuilder(ir.InsertionPoint(self.root), self.block)
        self.extents = self.tiling.domain(before)
        self.nest = LoopNest(self.root, before, [self.extents[d] for d in self.steps], list(self.steps.values()))
        self.builder = self.nest.builder
        iteration = dict(zip(self.steps, self.nest.induction_variables, strict=True))
        ranges = []
        for d, extent in enumerate(self.extents):
            if d not in self.steps:
                ranges.append(Range.everything(extent, frozenset({d})))
                continue
            step, offset = self.steps[d], Index.of(iteration[d])
            if step == 1:
                size = Index(1)
            elif extent.static is not None and (extent.static % step == 0 or step >= extent.static):
                size = Index(min(step, extent.static))
            else:
                size = self.builder.minimum(Index(step), extent - offset)
            ranges.append(Range(offset, size, whole=True, loops=frozenset({d})))
        self.tile = tuple(ranges)

    def _tile_root(self) -> None:
        """The root's own tile. If a reduction is tiled, its outs operands accumulate from tile to tile."""
        inits = len(self.root.operands) - len(self.root.results)
        self.accumulators: list[Request] = []

        def operand(i: int, tile: Tile) -> ir.Value:
            value = self.root.operands[i]
            if i < inits:
                return self._request(value, tile)
            sliced = self.builder.slice(value, tile)
            self.accumulators.append(Request(sliced.owner, value, tile))
            return sliced

        with self.nest.insertion_point:
            results = self.tiling.tile(self.builder, self.tile, operand)
        self.new_root = results[0].owner.operation
        self.fused.add(self.root)
        if not self.reduces:
            self.requests += self.accumulators
        for i, (result, request) in enumerate(zip(results, self.accumulators, strict=True)):
            slices = [request.slice] if self.reduces else []
            self._carry(Carried(request.value, request.tile, result, slices), self.root.results[i])

    def _finish_root(self) -> None:
        """Where the init is made in the loop (a fill, say), the loops carry an empty tensor to write into."""
        if self.reduces:
            return
        for carried, request in zip(self.carried, self.accumulators, strict=False):
            if request in self.requests:
                carried.slices.append(request.slice)
            else:
                carried.init = self._destination(carried.init)

    def _destination(self, value: ir.Value) -> ir.Value:
        """An empty tensor like `value`."""
        sizes = [self.builder.dim(value, d) for d in range(value.type.rank)]
        with self.builder.outside:
            empty = self.builder.empty_outside(sizes, value.type.element_type)
            if empty.type != value.type:
                empty = ir.Operation.create("tensor.cast", [value.type], [empty]).result
            return empty

    # Producers.

    def _request(self, value: ir.Value, tile: Tile) -> ir.Value:
        sliced = self.builder.slice(value, tile)
        self.requests.append(Request(sliced.owner, value, tile))
        return sliced

    def _next_producer(self) -> ir.Operation | None:
        """The last op, in program order, of which tiles are asked and which was not looked at yet."""
        owners = (request.value.owner for request in self.requests)
        ops = [owner.operation for owner in owners if isinstance(owner, ir.Operation | ir.OpView)]
        left = [op for op in ops if op.block == self.block and op not in self.fused and op not in self.stops]
        return max(left, key=PLACE, default=None)

    def _fuse(self, op: ir.Operation) -> bool:
        """Moves the producer `op` into the loops, or marks it as staying outside; says whether it was moved."""
        asked = len(self.requests)
        try:
            self._fuse_or_raise(op)
        except Untileable as reason:
            self.stops.add(op)
            self._withdraw(asked)
            if online_reduction_of(op) is not None and reason.args:
                warn(op, f"'{op.name}' stays outside the loops: {reason}")
            elif reason.args:
                remark(op, f"'{op.name}' stays outside the loops: {reason}")
            return False
        self.fused.add(op)
        return True

    def _withdraw(self, asked: int) -> None:
        """Takes back the requests after the first `asked`, made for a tile that then could not be built."""
        for request in self.requests[asked:]:
            if not any(True for _ in request.slice.results[0].uses):
                self.requests.remove(request)
                request.slice.erase()

    def _fuse_or_raise(self, op: ir.Operation) -> None:
        tiling = tiling_of(op)
        if tiling is None:
            raise Untileable("it has no tiled form")
        if _reads_nothing(op):
            raise Untileable("one of its tensors has no elements")
        made_again = op.name in MADE_AGAIN or self._is_of_what_stays(op)
        external = {} if made_again else self._external_results(op)
        requests = [r for r in self.requests if r.value.owner == op]
        groups: dict[Tile, list[Request]] = {}
        for request in requests:
            number = list(op.results).index(request.value)
            groups.setdefault(tiling.domain_tile(self.builder, number, request.tile), []).append(request)
        online = self._online(op, groups)
        kept = self._kept_results(tiling, groups, external, online)
        for tile, group in groups.items():
            self._fuse_group(op, tiling, tile, group, kept if tile == next(iter(groups)) else {}, online)

    def _is_of_what_stays(self, op: ir.Operation) -> bool:
        """Whether an op is a slice of what is there as a whole before the loops: a view for whoever reads it."""
        if op.name != "tensor.extract_slice":
            return False
        source = defining_op(through(op.operands[0], *VIEWS))
        return source is None or source in self.stops or not is_structured(source)

    def _external_results(self, op: ir.Operation) -> dict[int, list[ir.Operation]]:
        """Results with uses that do not lead to the root, and their users; Untileable if one that does is not fused."""
        slices = {request.slice for request in self.requests}
        external: dict[int, list[ir.Operation]] = {}
        for number, result in enumerate(op.results):
            for use in result.uses:
                user = use.owner.operation
                if user.name == "tensor.dim":
                    continue  # it reads no element
                top = ancestor_in(user, self.block)
                if top is None:  # another block is behind the loops already
                    external.setdefault(number, [])
                elif top == self.nest.loops[0]:
                    if user not in slices:
                        raise Untileable("the body of a fused op reads it as a whole")
                elif top in self.fused:
                    continue
                elif top in self.leads_to_root:
                    raise Untileable()  # an op that stays outside needs it: nothing to tell
                else:
                    external.setdefault(number, []).append(top)
        return external

    def _online(self, op: ir.Operation, groups: dict[Tile, list[Request]]) -> OnlineAccumulation | None:
        """How `op`, tiled along the dimension that it reduces, is to be fused; None if it is not tiled along it."""
        reduction = online_reduction_of(op)
        if reduction is None or all(tile[reduction.dimension].full for tile in groups):
            return None
        if len(groups) != 1 or any(r.value != op.results[reduction.result] for g in groups.values() for r in g):
            raise Untileable("several different tiles of it are asked for")
        tile = next(iter(groups))
        return OnlineAccumulation(op, reduction, tile, self.root, self.tiling, self.steps, self.leads_to_root)

    def _kept_results(
        self,
        tiling: Tiling,
        groups: dict[Tile, list[Request]],
        external: dict[int, list[ir.Operation]],
        online: OnlineAccumulation | None,
    ) -> dict[int, Tile]:
        """The tiles of results that are used outside as well, and so must be put together by the loops."""
        tile = next(iter(groups))
        kept: dict[int, Tile] = {}
        for number, users in external.items():
            if not can_move_after(users, self.root):
                raise Untileable("it is used elsewhere too, by an op that cannot be moved behind the loops")
            if online is not None:
                online.check_external_use(number)
                self._check_that_loops_run(tile)
                continue
            part = tiling.result_tile(self.builder, number, tile)
            self._check_that_loops_run(part)
            loops = [r.loops for r in part if not r.full]
            if not all(r.whole for r in part) or len(set(loops)) < len(loops):
                raise Untileable("it is used elsewhere too, and the tiles do not cover it exactly once")
            kept[number] = part
        return kept

    def _check_that_loops_run(self, tile: Tile) -> None:
        """Untileable if loops that do not run along `tile` may have no iteration: then no one would compute it."""
        own = frozenset[int]().union(*(r.loops for r in tile))
        if any(not self.extents[d].static for d in self.steps if d not in own):
            raise Untileable("it is used elsewhere too, and a loop around it may have no iteration")

    def _fuse_group(
        self,
        op: ir.Operation,
        tiling: Tiling,
        tile: Tile,
        group: list[Request],
        kept: dict[int, Tile],
        online: OnlineAccumulation | None,
    ) -> None:
        """Builds one tile of `op` before its first use and lets all requests of the group use it."""
        first = group[0].slice
        for request in group[1:]:
            if request.slice.is_before_in_block(first):
                first = request.slice
        state: dict[int, Carried] = {}

        def operand(i: int, part: Tile) -> ir.Value:
            if online is not None and i in online.carried_operands:
                value = op.operands[i]
                init, where, shape = online.state(self.builder, value, part, self.extents, self.tile)
                sliced = self.builder.slice(init, where, shape)
                state[i] = Carried(init, where, sliced, [sliced.owner])
                return sliced
            return self._request(op.operands[i], part)

        with ir.InsertionPoint(first), op.location:
            results = tiling.tile(self.builder, tile, operand)
            for request in group:
                value = results[list(op.results).index(request.value)]
                if value.type != request.slice.results[0].type:
                    value = ir.Operation.create("tensor.cast", [request.slice.results[0].type], [value]).result
                request.slice.results[0].replace_all_uses_with(value)
                for carried in self.carried:  # what an op that only slices its operand gave for its tile
                    if carried.update == request.slice.results[0]:
                        carried.update = value
        for request in group:
            self.requests.remove(request)
            request.slice.erase()
        if online is not None:
            for number, i in online.reduction.carried:
                state[i].update = results[number]
                self._carry(state[i], op.results[number])
            online.rescale(self.builder, self.new_root, results[online.reduction.scale])
        for number, part in kept.items():
            carried = Carried(op.results[number], part, results[number])
            self._carry(carried, op.results[number])
            carried.init = self._destination(op.results[number])

    def _carry(self, carried: Carried, replaces: ir.Value) -> None:
        self.replacements.append((replaces, len(self.carried)))
        self.carried.append(carried)
