"""The pass ``join-loops``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....dialects.mlir import arith, ir
from ....dialects.tiling.structured import indexing_maps
from ...equivalence import is_same, is_same_value
from ...graph import backward_slice, depends_on
from ...passes import Pass, remark
from ...rewriting import Values, copy_op, defining_op, for_body, for_inits, make_for, ops_in, ops_of, single_use
from ..masking import LOWEST, is_rising_line, masks, modifies_first, say_what_is_dead, unmasked, yielded
from .bulk_copies import bulk_copies


@dataclass(frozen=True)
class JoinLoops(Pass):
    """Loops that were split at a mask become one again, in which only the mask is behind a branch::

        %a:3 = scf.for %j = %lower to %middle … iter_args(…)   { …; %x = c · %s;                           … }
        %b:3 = scf.for %j = %middle to %upper … iter_args(%a…) { …; %x = select(%j > %i, −inf, c · %s);     … }
      becomes
        %b:3 = scf.for %j = %lower to %upper … iter_args(…) {
          …
          %masked = %j ≥ %middle
          %t = scf.if %masked { select(%j > %i, −inf, %s) } else { %s }
          %x = c · %t
          …

    Each of two short loops would fill and drain a pipeline of its own; a branch that is the same for a whole block
    costs an instruction. What is computed for the mask alone, such as tiles that are loaded for it, goes to the branch,
    too. A mask may as well stand before a scale by a positive number, which can then become part of what follows. For
    kernels whose loads the copy engine does, which are pipelined deeper (``specialize-warps``).
    """

    def run(self, op: ir.Operation) -> None:
        for kernel in ops_in(op, "gpu.func"):
            if not bulk_copies(kernel):
                continue
            loops = [o for o in ops_of(kernel.regions[0].blocks[0]) if o.name == "scf.for"]
            for chain in _chains(loops):
                for mask in (op for loop in chain for op in ops_in(loop, "linalg.generic") if modifies_first(op)):
                    say_what_is_dead(mask, finite=True)  # as `split-scales` said it, if canonicalize has undone that
                plain = min(chain, key=_work)
                found = [_masks(loop, plain) for loop in chain]
                if None not in found:
                    _Join(chain, plain, found).run()


def _work(loop: ir.Operation) -> int:
    return len(ops_in(loop))


def _chains(loops: Sequence[ir.Operation]) -> list[list[ir.Operation]]:
    """Loops of which each goes on where the one before ends, with what it yields."""
    chains: list[list[ir.Operation]] = []
    for loop in loops:
        if chains and _follows(chains[-1][-1], loop):
            chains[-1].append(loop)
        else:
            chains.append([loop])
    return [c for c in chains if len(c) > 1]


def _follows(before: ir.Operation, loop: ir.Operation) -> bool:
    """Whether a loop goes on where another one ends, of which nothing else needs the results."""
    (_, upper, step), (lower, _, own_step) = list(before.operands)[:3], list(loop.operands)[:3]
    users = [u.owner.operation for r in before.results for u in r.uses]
    return (
        _is_end(upper, lower)
        and step == own_step
        and list(before.results) == for_inits(loop)
        and all(user == loop for user in users)
    )


def _is_end(upper: ir.Value, end: ir.Value) -> bool:
    """Whether a loop is known to end where another one begins: an upper bound may say again that it is not below a
    lower one, or what that is the maximum of."""
    op = defining_op(upper)
    is_maximum = op is not None and _is_plain(op, "affine.max") and end in list(op.operands)
    return upper == end or (is_maximum and all(_is_least(v, end) for v in op.operands))


def _is_least(least: ir.Value, value: ir.Value) -> bool:
    """Whether it is known that `value` is not below `least`."""
    op = defining_op(value)
    if value == least:
        return True
    if op is None:
        return False
    found = [_is_least(least, v) for v in op.operands]
    return (_is_plain(op, "affine.max") and any(found)) or (_is_plain(op, "affine.min") and all(found))


def _is_plain(op: ir.Operation, name: str) -> bool:
    """Whether `op` is a minimum or maximum (`name`) of its operands as they are."""
    if op.name != name:
        return False
    found = ir.AffineMapAttr(op.attributes["map"]).value
    symbols = [ir.AffineSymbolExpr.get(i) for i in range(found.n_symbols)]
    return found.n_dims == 0 and all(e in symbols for e in found.results) and len(found.results) == len(symbols)


@dataclass
class _Mask:
    """`op`, in a loop, makes −inf of some elements of what is `value` in the plain loop, or another `number`. `known`:
    its values there; `needs`: what is computed for it, and others, in that loop alone."""

    op: ir.Operation
    value: ir.Value
    known: Values
    needs: list[ir.Operation]

    @property
    def number(self) -> float:
        return _number(self.op)

    @property
    def is_alone(self) -> bool:
        """Whether it leaves the other elements as they are."""
        return unmasked(yielded(self.op), self.number, finite=True) == self.op.regions[0].blocks[0].arguments[0]


def _number(op: ir.Operation) -> float:
    """What masked elements become: where weights are made of scores without a softmax 0, else −inf, or as low."""
    return LOWEST if masks(yielded(op), finite=True) else 0.0


def _masks(loop: ir.Operation, plain: ir.Operation) -> list[_Mask] | None:
    """What a loop masks that the plain one does not; None if it differs in more than that."""
    known: Values = dict(zip(for_body(loop).arguments, for_body(plain).arguments, strict=True))
    found: list[_Mask] = []
    own: list[ir.Operation] = []  # what the plain loop does not compute
    waiting = ops_of(for_body(plain))
    for op in ops_of(for_body(loop)):
        model = waiting[0] if waiting else None
        if model is not None and is_same(op, model, known):
            known.update(zip(op.results, model.results, strict=True))
            waiting.pop(0)
            continue
        value = _masked_value(op, model, known)
        if value is None:
            if not len(op.results) or (len(op.regions) and op.name != "linalg.generic"):
                return None
            own.append(op)
            continue
        needed = backward_slice(op)
        mask = _Mask(op, value, known, [other for other in own if other in needed])
        found.append(mask)
        if model is not None and _is_alike(op, model, known) and not mask.is_alone:
            known[op.results[0]] = model.results[0]
            waiting.pop(0)
        else:
            known[op.results[0]] = value
    takers = [*own, *(mask.op for mask in found)]
    is_own = all(u.owner.operation in takers for op in own for r in op.results for u in r.uses)
    return found if is_own and not waiting else None


def _is_alike(op: ir.Operation, model: ir.Operation, known: Values) -> bool:
    """Whether two element-wise ops have the same operands."""
    return (
        modifies_first(model)
        and [known.get(v, v) for v in op.operands] == list(model.operands)
        and indexing_maps(op) == indexing_maps(model)
    )


def _masked_value(op: ir.Operation, model: ir.Operation | None, known: Values) -> ir.Value | None:
    """The plain loop's value of which `op` masks some elements; None if `op` does anything else."""
    if not modifies_first(op):
        return None
    block, number = op.regions[0].blocks[0], _number(op)
    selects, element = masks(yielded(op), number, finite=True), unmasked(yielded(op), number, finite=True)
    source = block.arguments[0]
    if not selects or any(depends_on(select.operands[0], source) for select in selects):
        return None
    before = known.get(op.operands[0], op.operands[0])
    if element == source:
        return before if single_use(before) or single_use(op.operands[0]) or model is None else None
    if model is None or not _is_alike(op, model, known):
        return None
    own = model.regions[0].blocks[0]
    inner = known | dict(zip(block.arguments, own.arguments, strict=True))
    plain = ops_of(own)[-1].operands[0]
    if not is_same_value(element, plain, inner):
        return None
    # −∞ times a positive number is −∞: the mask may as well stand before the scale.
    is_infinite = len(masks(yielded(op))) == len(selects)
    is_line = is_infinite and is_rising_line(plain, own.arguments[0])
    return before if is_line and single_use(before) else model.results[0]


class _Join:
    """One loop in place of those of a `chain`; `masks` are those that each has and the `plain` one has not."""

    def __init__(self, chain: list[ir.Operation], plain: ir.Operation, masks: list[list[_Mask]]):
        self.chain, self.plain, self.masks = chain, plain, masks

    def run(self) -> None:
        first, last = self.chain[0], self.chain[-1]
        bounds = [first.operands[0], last.operands[1], first.operands[2]]
        with ir.InsertionPoint(last), last.location:
            loop, block = make_for(bounds, for_inits(first))
        self.values: Values = dict(zip(for_body(self.plain).arguments, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in ops_of(for_body(self.plain)):
                with op.location:
                    copy_op(op, self.values)
                    for result in op.results:
                        self._mask(result, block.arguments[0])
        for old, new in zip(last.results, loop.results, strict=True):
            old.replace_all_uses_with(new)
        remark(loop, "loops that were split at a mask are one, with a branch around the mask")
        for old in reversed(self.chain):
            old.erase()

    def _mask(self, value: ir.Value, induction: ir.Value) -> None:
        """Puts a branch behind `value` for all loops that mask it, one for those that do it in the same way."""
        found = [(i, m) for i, masks in enumerate(self.masks) for m in masks if m.value == value]
        while found:
            first = found[0][1]
            alike = [(i, m) for i, m in found if _mask_alike(m, first)]
            self._branch(first, [i for i, _ in alike], induction)
            found = [pair for pair in found if pair not in alike]

    def _branch(self, mask: _Mask, loops: list[int], induction: ir.Value) -> None:
        """Puts a branch behind what is masked: in the range of these loops with the mask, elsewhere without it."""
        value = self.values[mask.value]
        branch = ir.Operation.create("scf.if", [value.type], [self._within(loops, induction)], regions=2)
        with ir.InsertionPoint(branch.regions[0].blocks.append()):
            ir.Operation.create("scf.yield", [], [self._masked(mask, value)])
        with ir.InsertionPoint(branch.regions[1].blocks.append()):
            ir.Operation.create("scf.yield", [], [value])
        self.values[mask.value] = branch.results[0]

    def _masked(self, mask: _Mask, value: ir.Value) -> ir.Value:
        """`value` with the mask, and nothing else that its op does."""
        own = {theirs: self.values.get(plain, plain) for theirs, plain in mask.known.items()}
        for op in (*mask.needs, mask.op):
            copy_op(op, own)
        masked = own[mask.op.results[0]]
        op = defining_op(masked)
        op.operands[0] = value
        given, element = op.regions[0].blocks[0].arguments[0], unmasked(yielded(op), mask.number, finite=True)
        if element != given:
            element.replace_all_uses_with(given)
        return masked

    def _within(self, loops: list[int], induction: ir.Value) -> ir.Value:
        """Whether the induction variable is in the range of one of the loops."""
        found = None
        for i in loops:
            lower, upper = list(self.chain[i].operands)[:2]
            above = arith.cmpi(arith.CmpIPredicate.sge, induction, lower) if i else None
            below = arith.cmpi(arith.CmpIPredicate.slt, induction, upper) if i + 1 < len(self.chain) else None
            inside = arith.andi(above, below) if above is not None and below is not None else above or below
            found = inside if found is None else arith.ori(found, inside)
        return found


def _mask_alike(a: _Mask, b: _Mask) -> bool:
    """Whether masks of two loops do the same, by the same."""
    known = _renamed(a.known, b.known)
    if len(a.needs) != len(b.needs):
        return False
    for op, other in zip(a.needs, b.needs, strict=True):
        if not is_same(op, other, known):
            return False
        known.update(zip(op.results, other.results, strict=True))
    return is_same(a.op, b.op, known)


def _renamed(known: Values, other: Values) -> Values:
    """From the values of one loop to those of another, by what both are in the plain one."""
    back: Values = {}
    for theirs, plain in other.items():
        back.setdefault(plain, theirs)  # what is masked, not what a mask makes of it
    return {mine: back[plain] for mine, plain in known.items() if plain in back}
