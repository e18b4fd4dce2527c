"""The pass ``fuse-attention``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import TypeAlias

from ..dialects.mlir import ir
from ..dialects.tiling.structured import all_parallel, iterator_types
from .attention import (
    LEFT,
    PARALLEL,
    ROOT,
    SEQUENTIAL,
    Attention,
    attention_at,
    find_attention,
    fused_loops,
    has_foreign_scores,
    has_scores_by_keys,
    is_in,
    products_beside,
)
from .cpu.one_nest import pays_to_turn
from .cpu.tile_sizes import PAIRWISE_TILE, choose_tile_sizes
from .extents import lift_sizes, read_sizes
from .graph import PLACE, ancestor_in, makers_of, ops_on_way
from .nvidia.architecture import MULTIPROCESSORS, architecture
from .pairwise import Pairwise, find_pairwise, pairwise_at
from .parallel_nest import parallel_nest
from .passes import Pass, PassError, option, remark, warn
from .separate_scores import separate_scores
from .siblings import of_sibling, siblings
from .stops import warn_of_idle_stops
from .tile_and_fuse import MADE_AGAIN, tile_and_fuse
from .tiling_remarks import TilingRemark
from .turn_weights import turn_weights

Tiles: TypeAlias = tuple[list[int], list[int]]  # their sizes, and the order of the loops
Choice: TypeAlias = Callable[[Attention, bool], Tiles]  # whether its loops will be one with a sibling's
STOP = "__stop__"
WHOLE = ("tensor.reshape",)  # no tile of what they give is made of a tile
NO_ATTENTION = "no attention was found"  # how the warning begins


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Tiles attention and fuses it into one loop nest with online softmax::

        %s   = linalg.matmul ins(%q, %kt : …) outs(%zero) -> tensor<1024x512xf32>
        %p:4 = linalg_ext.softmax dimension(1) ins(%s) outs(…)
        %o   = linalg.matmul {__root__} ins(%p#0, %v : …) outs(%zero_o) -> tensor<1024x32xf32>
      becomes, with tile-sizes=4,0,8 tile-interchange=2,1,0
        scf.for %k = %c0 to %c512 step %c8 iter_args(%o = %zero_o, %m = %minus_inf, %a = %zeros) {
          scf.for %i = %c0 to %c1024 step %c4 iter_args(…) {
            %s1   = linalg.matmul … -> tensor<4x8xf32>
            %p1:4 = linalg_ext.softmax dimension(1) ins(%s1) outs(…, %m[%i], %a[%i], …)
            %d    = linalg_ext.diag ins(%p1#3) …
            %o1   = linalg.matmul ins(%d, %o[%i]) …
            %o2   = linalg.matmul {__root__} ins(%p1#0, %v[%k]) outs(%o1)

    Roots are the ops marked ``__root__``; without any, the second matmul of every attention that is found, unless it is
    marked ``__left__``, with the reason. Loops that are fused already stay as they are, but where sizes are given for
    marked roots in them. Producers from ops marked ``__stop__`` on stay outside; of a mark that no root depends on a
    warning tells. Where sizes or roots are chosen here, so do matmuls and reductions that feed queries, keys and
    values, which would be computed again in every tile, and what others use as well; for GPUs other producers too,
    where that pays (``nvidia/kernels/producers.py``). Results for each query and key (``pairwise.py``) have loops of
    their own. Those whose loops can be one afterwards (``fuse-siblings``) have the same sizes; on CPUs derivatives by
    queries are among them where that pays (``turn_weights.py``). Outer parallel loops are marked
    ``__byteir_parallel__``, but those that are not in a sibling's nest ``__sequential__``.
    """

    tile_sizes: tuple[int, ...] = option("one size per loop of the root, 0 = not tiled (default: by cache size)")
    tile_interchange: tuple[int, ...] = option("the root's loops from outer to inner (default: as they are)")
    machine: str = option(
        "what tile sizes are chosen for where none are given: cpu, or a GPU's architecture, as sm_90a (default: what "
        "--lower-to says, else cpu)",
        "",
    )
    multiprocessors: int = option("how many such a GPU has", MULTIPROCESSORS)
    threads: int = option("how many of a CPU share the work", 1)

    def run(self, op: ir.Operation) -> None:
        machine = self.machine or "cpu"
        choice = self._choice(machine, op)
        fused = fused_loops(op)
        marked = [root for root in marked_ops(op, ROOT) if self.tile_sizes or not is_in(root, fused)]
        everywhere = find_attention(op)
        if machine != "cpu":
            everywhere = list(filterfalse(_is_turned, everywhere))
        turns = machine == "cpu" and not marked and not self.tile_sizes
        turns = turns and turn_weights(everywhere, functools.partial(pays_to_turn, threads=self.threads))
        if turns:
            everywhere = find_attention(op)
        left = [] if marked else [attention for attention in everywhere if LEFT in attention.root.attributes]
        for attention in left:
            warn(attention.root, f"attention is left as it is: {ir.StringAttr(attention.root.attributes[LEFT]).value}")
            del attention.root.attributes[LEFT]
            everywhere.remove(attention)
        if left and not everywhere:
            return
        found: list[Attention | Pairwise] = [*everywhere, *find_pairwise(op)]
        roots = marked or [one.root for one in found if not _is_empty(one)]
        if not roots and everywhere:
            remark(everywhere[0].root, "attention is left as it is: it has no elements")
            return
        if not roots:
            if self.tile_sizes:
                raise PassError(
                    "nothing to tile: no op is marked {__root__}, and no matmul -> softmax -> matmul was found", op
                )
            if not fused:
                warn(
                    op,
                    f"{NO_ATTENTION}: no op is marked {{__root__}}, and there is no matmul -> softmax -> matmul (of "
                    "linalg_ext.softmax: other forms become that by raise-attention)",
                )
            return
        groups: list[list[Attention]] = []
        if not marked:
            groups = siblings([one for one in everywhere if not _is_empty(one)])
            separate_scores(everywhere)
        stops = marked_ops(op, STOP)
        warn_of_idle_stops(stops, roots)
        lift_sizes(op)
        read_sizes(op)
        together = [[roots.index(one.root) for one in group] for group in groups] if turns else []
        nests: dict[int, list[ir.Operation]] = {}  # by the root's number
        tiles = _tiles_of_siblings([[one.root for one in group] for group in groups], choice)
        for number, root in enumerate(roots):
            pairwise = None if marked else pairwise_at(root)
            if pairwise is not None:
                self._fuse_pairwise(pairwise, machine, stops)
                continue
            attention = attention_at(root)  # anew: another one may have taken along what this one had in common with it
            if attention is None and not marked:
                remark(root, "attention is left as it is: its scores are part of another one's loops")
                continue
            tiling_remark = TilingRemark.of(root)
            sizes, order = self._chosen(root, attention, choice, tiles.get(root))
            outside = [] if attention is None or (marked and self.tile_sizes) else producers_outside(attention)
            if machine != "cpu" and attention is not None and not marked:
                from .nvidia.kernels.producers import computed_before

                memory = architecture(machine).tile_memory
                outside += computed_before(attention, sizes, memory, self.multiprocessors, outside)
                outside += [attention.scores] if has_foreign_scores(attention) else []
            tiled = tile_and_fuse(root, sizes, order, [*stops, *outside])
            mark_parallel(tiled.loops)
            nests[number] = tiled.loops
            tiling_remark.tell(tiled, sizes, order)
        for numbers in together:
            _mark_sequential([nests[number] for number in numbers if number in nests])

    def _fuse_pairwise(self, pairwise: Pairwise, machine: str, stops: Sequence[ir.Operation]) -> None:
        tiling_remark = TilingRemark.of(pairwise.root)
        if machine == "cpu":
            rows, columns = PAIRWISE_TILE
        else:
            from .nvidia.tile_sizes import PAIRWISE_TILE as GPU_TILE

            rows, columns = GPU_TILE
        sizes = list(self.tile_sizes) or pairwise.tile_sizes(rows, columns)
        order = list(self.tile_interchange) or pairwise.loops
        tiled = tile_and_fuse(pairwise.root, sizes, order, [*stops, *producers_outside(pairwise)])
        mark_parallel(tiled.loops)
        tiling_remark.tell(tiled, sizes, order)

    def _choice(self, machine: str, op: ir.Operation) -> Choice:
        """The rule by which tile sizes are chosen for a machine."""
        if machine == "cpu":
            return lambda attention, together: choose_tile_sizes(attention)
        # For CPUs not imported: 20 files.
        from .nvidia.tile_sizes import choose_gpu_tile_sizes, choose_hopper_tile_sizes

        try:
            gpu = architecture(machine)
        except ValueError as error:
            raise PassError(f"machine: {error}; or cpu", op) from None
        if gpu.is_hopper:
            return functools.partial(choose_hopper_tile_sizes, multiprocessors=self.multiprocessors)
        return lambda attention, together: choose_gpu_tile_sizes(attention, gpu.shared_memory)

    def _chosen(self, root: ir.Operation, attention: Attention | None, choice: Choice, tiles: Tiles | None) -> Tiles:
        """The tile sizes and the order of the loops; of a sibling `tiles`, if none are given."""
        sizes, order = list(self.tile_sizes), list(self.tile_interchange)
        if not sizes:
            if attention is None:
                raise PassError(
                    f"no tile sizes are given, and '{root.name}' is not the second matmul of an attention, "
                    "for which they could be chosen; give tile-sizes",
                    root,
                )
            sizes, chosen = tiles or choice(attention, False)
            order = order or chosen
        if attention is not None:  # of loops that no size is given for
            sizes += [0] * (len(iterator_types(root)) - len(sizes))
        return sizes, order


def _tiles_of_siblings(groups: Sequence[Sequence[ir.Operation]], choice: Choice) -> dict[ir.Operation, Tiles]:
    """Tile sizes and the order of the loops, by roots: of all in a group as of the first, so that their loops can be
    one (``fuse-siblings``)."""
    found: dict[ir.Operation, Tiles] = {}
    for group in groups:
        attentions = [one for one in map(attention_at, group) if one is not None]
        if not attentions:
            continue
        first = attentions[0]
        sizes, order = choice(first, True)
        for one in attentions:
            moved = [0] * len(sizes)
            for loop, size in zip(of_sibling(range(len(sizes)), first, one), sizes, strict=True):
                moved[loop] = size
            found[one.root] = moved, of_sibling(order, first, one)
    return found


def _is_turned(attention: Attention) -> bool:
    """Whether no tile of it is one for GPUs, of which rows of scores are rows of the result: those of queries."""
    return attention.softmax is None and has_scores_by_keys(attention)


def _is_empty(found: Attention | Pairwise) -> bool:
    """Whether it has no query, no key or no head, whatever is passed."""
    operands = [*found.scores.operands, *found.root.operands] if isinstance(found, Attention) else found.root.operands
    return any(0 in v.type.shape for v in operands)


def marked_ops(op: ir.Operation, attribute: str) -> list[ir.Operation]:
    """All ops in `op` that carry the attribute, in program order."""
    found: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        if attribute in inner.attributes:
            found.append(inner.operation)
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def producers_outside(found: Attention | Pairwise) -> list[ir.Operation]:
    """What feeds the loops and is better computed once, before them: reductions of any kind, which would be computed
    again in every tile at a cost, what has no tiles, and what others use as well, such as keys that are returned for a
    cache: the loops would have to put it together, each of their iterations a part."""
    root = found.root
    products = {found.scores, *products_beside(found)} if isinstance(found, Attention) else {*found.products}
    own = {*products, root, found.softmax if isinstance(found, Attention) else None}
    # What stands between the matmuls, which is fused or the attention is not.
    after = {*products}.union(*(ops_on_way(product, {root}) for product in products))
    within: set[ir.Operation] = set()  # whose tiles the loops may compute

    def is_outside(op: ir.Operation) -> bool:
        elsewhere = op not in after and op.name not in MADE_AGAIN and _is_used_elsewhere(op, within)
        if op.name.startswith("tensor."):  # a view is no more than where its tiles are
            return op.name in WHOLE or (op.name == "tensor.insert_slice" and elsewhere)
        return not all_parallel(op) or elsewhere

    outside: list[ir.Operation] = []
    pending = {root}
    while pending:
        op = max(pending, key=PLACE)  # all its users are known by then
        pending.remove(op)
        if op not in own and is_outside(op):
            outside.append(op)
        else:
            within.add(op)
            pending.update(makers_of(op, root.block))
    return outside


def _is_used_elsewhere(op: ir.Operation, within: set[ir.Operation]) -> bool:
    users = (ancestor_in(use.owner.operation, op.block) for result in op.results for use in result.uses)
    return any(user not in within for user in users)


def _mark_sequential(nests: Sequence[Sequence[ir.Operation]]) -> None:
    """Marks loops that are parallel in some of the nests, and not in all: these can be one nest only if it has none."""
    for level in zip(*nests, strict=False):
        parallel = [loop for loop in level if PARALLEL in loop.attributes]
        if 0 < len(parallel) < len(level):
            for loop in parallel:
                del loop.attributes[PARALLEL]
            for loop in level:
                loop.attributes[SEQUENTIAL] = ir.UnitAttr.get()


def mark_parallel(loops: Sequence[ir.Operation]) -> None:
    """Marks the outermost loops up to the first that is not parallel."""
    if loops:
        for level in parallel_nest(loops[0].opview):
            if level.loop.operation in loops:
                level.loop.operation.attributes[PARALLEL] = ir.UnitAttr.get()
