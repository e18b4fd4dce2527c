"""The pass ``fuse-siblings``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...dialects.mlir import ir, scf
from ..attention import is_matmul
from ..equivalence import is_same
from ..graph import Needed, can_move_after, in_order, is_pure, move_users_after, users_of
from ..passes import Pass, option, remark
from ..rewriting import Values, ancestors, defining_op, for_body, is_made_inside, make_for, ops_in, ops_of, terminator
from ..slices import forall_bounds

LOOPS = ("scf.forall", "scf.for")
NESTED = (*LOOPS, "scf.if")


@dataclass(frozen=True)
class FuseSiblings(Pass):
    """Two loop nests over the same tiles that compute the same products become one, which computes them once::

        %dv = scf.forall (%k) … { scf.for %q … iter_args(%a = …) { %s = k[%k]·q[%q]; %p = f(%s); %a + %p·g[%q] } }
        %dk = scf.forall (%k) … { scf.for %q … iter_args(%b = …) { %s = k[%k]·q[%q]; %d = h(%s); %b + %d·q[%q] } }
      becomes
        %dv, %dk = scf.forall (%k) … {
          scf.for %q … iter_args(%a = …, %b = …) {
            %s = k[%k]·q[%q]; %p = f(%s); %d = h(%s); %a + %p·g[%q], %b + %d·q[%q]
          }
        }

    So a derivative by keys and values has its scores computed once for both, and several values that have one softmax
    have that once. Loops inside, such as those with a mask and without, and branches, are fused in pairs, in their
    order; what both carry that starts as the same, and becomes the same, is carried once. Neither nest may need what
    the other one gives. On GPUs threads have registers for two `sums` up to some columns; beside an online softmax they
    have none.
    """

    sums: bool = option("only loops that carry nothing but sums of products", False)
    most_columns: int = option("not if results of all products in one iteration have more columns (0: any number)", 0)

    def run(self, op: ir.Operation) -> None:
        blocks = dict.fromkeys(loop.block for loop in ops_in(op, *LOOPS))
        # From the inside: of two loops that become one, the blocks are gone.
        for block in sorted(blocks, key=lambda block: -sum(1 for _ in ancestors(block.owner.operation))):
            self._fuse_in(block)

    def _fuse_in(self, block: ir.Block) -> None:
        loops = [(op, _products(op)) for op in ops_of(block) if op.name in LOOPS]
        while loops:
            first, products = loops.pop(0)
            for i, (second, others) in enumerate(loops):
                alike = _alike(first, second, {}) if products & others and _run_alike(first, second, {}) else None
                if alike is not None and self._pays(alike) and _may_be_one(first, second):
                    remark(second.location, "what this loop has in common with another one is computed once for both")
                    loops[i] = _fused(alike), products | others
                    known = dict(loops)  # what stood between them may stand behind them now
                    loops = [(op, known[op]) for op in in_order(known, block)]
                    break

    def _pays(self, alike: _Alike) -> bool:
        fits = alike.columns <= (self.most_columns or math.inf) and (alike.carries_sums or not self.sums)
        return fits and alike.has_products


@dataclass
class _Alike:
    """What two ops have in common, loops or branches: `ops` in the second by the ones in the first that do the same,
    `inner` ones that can be one, and what the second carries, by number, that the first does: `carried`."""

    first: ir.Operation
    second: ir.Operation
    ops: dict[ir.Operation, ir.Operation] = field(default_factory=dict)
    inner: list[_Alike] = field(default_factory=list)
    carried: dict[int, int] = field(default_factory=dict)

    @property
    def has_products(self) -> bool:
        return any(map(is_matmul, self.ops)) or any(alike.has_products for alike in self.inner)

    @property
    def carries_sums(self) -> bool:
        """Whether all that innermost loops carry are sums of products."""
        if self.inner:
            return all(alike.carries_sums for alike in self.inner)
        given = [value for op in (self.first, self.second) for block in _blocks(op) for value in _given(block)]
        return all(op is not None and is_matmul(op) for op in map(defining_op, given))

    @property
    def columns(self) -> int:
        """Of the results of all products in one iteration of an innermost loop."""
        found = [alike.columns for alike in self.inner]
        for blocks in zip(_blocks(self.first), _blocks(self.second), strict=True):
            products = [op for block in blocks for op in ops_of(block) if is_matmul(op) and op not in self.ops]
            found.append(sum(max(op.results[0].type.shape[-1], 0) for op in products))
        return max(found)


def _products(loop: ir.Operation) -> set[tuple[frozenset[ir.Value], frozenset[ir.Value]]]:
    """Of what the factors of each product in a loop are made before it: loops of other layers have none in common."""
    products = [op for op in ops_in(loop, "linalg.") if is_matmul(op)]
    return {(_sources(op.operands[0], loop), _sources(op.operands[1], loop)) for op in products}


def _sources(value: ir.Value, loop: ir.Operation) -> frozenset[ir.Value]:
    """The tensors from before a loop that a value in it is made of."""
    found: set[ir.Value] = set()
    pending, seen = [value], {value}
    while pending:
        one = pending.pop()
        if is_made_inside(one, loop):
            maker = defining_op(one)
            new = [v for v in maker.operands if v not in seen] if maker is not None else []
            seen.update(new)
            pending += new
        elif isinstance(one.type, ir.RankedTensorType):
            found.add(one)
    return frozenset(found)


def _may_be_one(first: ir.Operation, second: ir.Operation) -> bool:
    """Whether neither needs the other, and what uses the first one can come after the second."""
    return first not in Needed(second) and can_move_after(users_of(first), second)


def _run_alike(first: ir.Operation, second: ir.Operation, known: Values) -> bool:
    """Whether loops have the same bounds, or branches the same condition."""
    if first.name != second.name:
        return False
    return [known.get(v, v) for v in _bounds(second)] == _bounds(first)


def _bounds(op: ir.Operation) -> list:
    if op.name == "scf.forall":
        return [bound for bounds in forall_bounds(op) for bound in bounds]
    return list(op.operands)[: 3 if op.name == "scf.for" else 1]


def _blocks(op: ir.Operation) -> list[ir.Block]:
    return [block for region in op.regions for block in region.blocks]


def _given(block: ir.Block) -> list[ir.Value]:
    """What a block yields, or inserts into what a scf.forall gives."""
    end = terminator(block)
    return list(end.operands) or [op.operands[0] for region in end.regions for op in ops_of(region.blocks[0])]


def _inductions(op: ir.Operation) -> list[ir.Value]:
    return list(for_body(op).arguments)[: len(for_body(op).arguments) - len(_carried(op))]


def _carried(op: ir.Operation) -> list[ir.Value]:
    arguments = list(for_body(op).arguments)
    return arguments[len(arguments) - len(op.results) :] if op.name in LOOPS else []


def _inits(op: ir.Operation) -> list[ir.Value]:
    return list(op.operands)[len(op.operands) - len(op.results) :] if op.name in LOOPS else []


def _alike(first: ir.Operation, second: ir.Operation, known: Values) -> _Alike:
    """What the two have in common, where values of the second are those of the first that `known` says."""
    same: dict[int, int] = {}
    if first.name == "scf.for":
        starts, others = _inits(first), [known.get(v, v) for v in _inits(second)]
        same = {i: starts.index(v) for i, v in enumerate(others) if v in starts}
    while True:  # what starts as the same is taken to stay so, until it is seen not to
        alike = _Alike(first, second, carried=same)
        for block, other in zip(_blocks(first), _blocks(second), strict=True):
            inner = known | dict(zip(_inductions(second), _inductions(first), strict=True))
            inner |= {_carried(second)[i]: _carried(first)[j] for i, j in same.items()}
            _compare(alike, block, other, inner)
        if not same:
            return alike
        ends, others = (list(terminator(for_body(loop)).operands) for loop in (first, second))
        still = {i: j for i, j in same.items() if inner.get(others[i], others[i]) == ends[j]}
        if still == same:
            return alike
        same = still


def _compare(alike: _Alike, block: ir.Block, other: ir.Block, known: Values) -> None:
    candidates = ops_of(block)[:-1]
    nested = iter([op for op in candidates if op.name in NESTED])
    for op in ops_of(other)[:-1]:
        same = next((one for one in candidates if is_same(op, one, known)), None) if is_pure(op) else None
        if same is not None:
            alike.ops[op] = same
            known.update(zip(op.results, same.results, strict=True))
        elif op.name in NESTED:
            inner = _next_alike(nested, op, known)
            if inner is not None:
                alike.inner.append(inner)
                known.update((op.results[i], inner.first.results[j]) for i, j in inner.carried.items())


def _next_alike(nested: Iterator[ir.Operation], op: ir.Operation, known: Values) -> _Alike | None:
    """The next of the `nested` ops that can become one with `op`."""
    for one in nested:
        alike = _alike(one, op, known) if _run_alike(one, op, known) else None
        if alike is not None and alike.has_products:
            return alike
    return None


def _fused(alike: _Alike) -> ir.Operation:
    """Both ops as one, where the second one stands."""
    first, second = alike.first, alike.second
    move_users_after(users_of(first), second)
    own = [i for i in range(len(second.results)) if i not in alike.carried]  # what the second one gives by itself
    fused = _empty_one(first, second, own)
    carried, results = _carried(fused), list(fused.results)
    places = {j: j for j in range(len(first.results))}
    number = {**alike.carried, **{i: len(first.results) + n for n, i in enumerate(own)}}
    for old, of in ((first, places), (second, number)):
        for value, new in zip(_inductions(old), _inductions(fused), strict=True):
            value.replace_all_uses_with(new)
        for i, j in of.items():
            if old.name in LOOPS:
                _carried(old)[i].replace_all_uses_with(carried[j])
            old.results[i].replace_all_uses_with(results[j])
        for block, new_block in zip(_blocks(old), _blocks(fused), strict=True):
            for op in ops_of(block)[:-1]:
                new_block.append(op)
    for op, same in alike.ops.items():
        for result, other in zip(op.results, same.results, strict=True):
            result.replace_all_uses_with(other)
    for inner in alike.inner:
        _fused(inner)
    for op in reversed(alike.ops):
        op.erase()
    for block, one, other in zip(_blocks(fused), _blocks(first), _blocks(second), strict=True):
        _end(block, terminator(one), terminator(other), own)
    first.erase()
    second.erase()
    return fused


def _empty_one(first: ir.Operation, second: ir.Operation, own: list[int]) -> ir.Operation:
    """What gives the results of both, of the second one its `own`, with blocks that hold nothing."""
    inits = [*_inits(first), *(_inits(second)[i] for i in own if second.name in LOOPS)]
    with ir.InsertionPoint(second), second.location:
        if second.name == "scf.for":
            return make_for(list(second.operands)[:3], inits)[0]
        if second.name == "scf.forall":
            return scf.ForallOp(*forall_bounds(second), inits).operation
        kinds = [v.type for v in (*first.results, *(second.results[i] for i in own))]
        branch = ir.Operation.create("scf.if", kinds, list(second.operands), regions=2)
        for region in branch.regions:
            region.blocks.append()
        return branch


def _end(block: ir.Block, first: ir.Operation, second: ir.Operation, own: list[int]) -> None:
    """Ends a block as two others end, of which the second one gives its `own` values."""
    with ir.InsertionPoint(block), second.location:
        if first.name == "scf.yield":
            ir.Operation.create("scf.yield", [], [*first.operands, *(second.operands[i] for i in own)])
            return
        end = ir.Operation.create("scf.forall.in_parallel", regions=1)
    inserted = end.regions[0].blocks.append()
    for op in (*ops_of(for_body(first)), *ops_of(for_body(second))):
        inserted.append(op)
