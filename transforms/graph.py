"""Questions about the SSA graph of one block, and the moves that keep it valid."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator

from ..dialects.mlir import ir
from ..dialects.tiling.structured import reduces
from .rewriting import ancestors, defining_op, is_inside

_PURE_DIALECTS = {"affine", "arith", "complex", "linalg", "linalg_ext", "math", "scf", "tensor", "index", "ub"}


def ancestor_in(op: ir.Operation, block: ir.Block) -> ir.Operation | None:
    """The op of `block` that is `op` or holds it; None if there is none."""
    op = op.operation
    return op if op.block == block else next((a for a in ancestors(op) if _stands_in(a, block)), None)


def _stands_in(op: ir.Operation, block: ir.Block) -> bool:
    return op.parent is not None and op.block == block


def stands_before(op: ir.Operation, other: ir.Operation) -> bool:
    """Whether both stand in one block, in that order."""
    return op.block == other.block and op.is_before_in_block(other)


def operands_with_captures(op: ir.Operation) -> list[ir.Value]:
    """The operands of `op` and of every op in its regions."""
    values = list(op.operands)
    if len(op.regions):

        def collect(inner: ir.Operation) -> ir.WalkResult:
            values.extend(inner.operands)
            return ir.WalkResult.ADVANCE

        op.walk(collect)
    return values


def backward_slice(root: ir.Operation, stops: Collection[ir.Operation] = ()) -> list[ir.Operation]:
    """All ops of the root's block that it depends on, and the root itself, in program order. What only `stops` depend
    on is not looked at."""
    block = root.block
    found, pending = {root}, [root]
    while pending:
        new = {op for op in makers_of(pending.pop(), block) if op not in found}
        found |= new
        pending += (op for op in new if op not in stops)
    return in_order(found, block)


def makers_of(op: ir.Operation, block: ir.Block) -> Iterator[ir.Operation]:
    """The ops of the block that make what `op` and all in it read, one for each value."""
    makers = map(defining_op, operands_with_captures(op))
    return (maker for maker in makers if maker is not None and maker.block == block)


class Needed:
    """The ops of the root's block that it depends on, and itself. They are looked for as far back as the ops stand that
    are asked about: in a model of many layers all of them take a hundred times as long."""

    def __init__(self, root: ir.Operation):
        self._block = root.block
        self._found, self._pending = {root}, [root]

    def __contains__(self, op: ir.Operation) -> bool:
        if op.block != self._block:
            return False
        behind, self._pending = self._pending, []
        while behind:
            user = behind.pop()
            if not op.is_before_in_block(user):
                self._pending.append(user)  # what it needs stands before it
                continue
            new = {maker for maker in makers_of(user, self._block) if maker not in self._found}
            self._found |= new
            behind += new
        return op in self._found


def depends_on(value: ir.Value, argument: ir.Value) -> bool:
    """Whether `value` is computed of an argument of its block."""
    op = defining_op(value)
    if op is None or op.block != argument.owner:
        return value == argument
    return any(argument in operands_with_captures(maker) for maker in backward_slice(op))


def users_of(op: ir.Operation, *but: str, given: Collection[ir.Value] = ()) -> list[ir.Operation]:
    """The ops of its block that use results of `op`, or hold such ones, one for each use; `but` those of these names,
    and but for the results that are `given`."""
    using = (use.owner.operation for result in op.results if result not in given for use in result.uses)
    found = (ancestor_in(user, op.block) for user in using if user.name not in but)
    return [user for user in found if user is not None]


def dependents(op: ir.Operation, *but: str) -> set[ir.Operation]:
    """`op` and all ops of its block that depend on it, other than through ops of the names `but`."""
    found, pending = {op}, [op]
    while pending:
        new = [user for user in users_of(pending.pop(), *but) if user not in found]
        found.update(new)
        pending += new
    return found


def ops_on_way(
    first: ir.Operation, last: Collection[ir.Operation], *but: str, given: Collection[ir.Value] = ()
) -> set[ir.Operation]:
    """The ops on ways from `first` to any of `last` in its block, with both; none if there is no way. Ways through ops
    of the names `but`, or through values that are `given`, do not count.

    Nothing that stands behind `last` is looked at: what follows from the first layer of a model is all the others.
    """
    ends = [op for op in last if op.block == first.block]
    found = {first}
    pending = [first]
    while pending:
        users = users_of(pending.pop(), *but, given=given)
        new = {u for u in users if u not in found and any(u == end or u.is_before_in_block(end) for end in ends)}
        found.update(new)
        pending += new
    on_way: set[ir.Operation] = set()
    pending = [end for end in ends if end in found]
    while pending:
        op = pending.pop()
        if op in on_way:
            continue
        on_way.add(op)
        values = (value for value in operands_with_captures(op) if value not in given) if op != first else ()
        pending += [p for p in map(defining_op, values) if p is not None and p in found]
    return on_way


def in_order(ops: Collection[ir.Operation], block: ir.Block) -> list[ir.Operation]:
    """Those of `ops` that stand in `block`, in program order: that of a set is another one in each process."""
    standing = [op.operation for op in ops if _stands_in(op, block)]
    return sorted(standing, key=PLACE)


def _compared(one: ir.Operation, other: ir.Operation) -> int:
    """Negative if it stands before the other one of its block, positive if behind."""
    return -1 if one.is_before_in_block(other) else int(one != other)


PLACE = functools.cmp_to_key(_compared)  # by which ops of one block are in program order


def is_pure(op: ir.Operation) -> bool:
    """Whether `op` and all in its regions only compute values: it may be moved, and erased when unused."""
    if op.name.partition(".")[0] not in _PURE_DIALECTS or not op.results:
        return False
    pure = True

    def visit(inner: ir.Operation) -> ir.WalkResult:
        nonlocal pure
        pure = pure and inner.name.partition(".")[0] in _PURE_DIALECTS
        return ir.WalkResult.ADVANCE if pure else ir.WalkResult.INTERRUPT

    if len(op.regions):
        op.walk(visit)
    return pure


def dependants_before(users: Iterable[ir.Operation], anchor: ir.Operation) -> list[ir.Operation]:
    """Those of `users` that stand before `anchor` in its block, and all before it that depends on them, in order."""
    block = anchor.block
    found: set[ir.Operation] = set()
    pending = [u for u in users if u.is_before_in_block(anchor)]
    while pending:
        op = pending.pop()
        if op in found:
            continue
        found.add(op)
        for result in op.results:
            for use in result.uses:
                top = ancestor_in(use.owner.operation, block)
                if top is not None and top.is_before_in_block(anchor):
                    pending.append(top)
    return in_order(found, block)


def can_move_after(users: Iterable[ir.Operation], anchor: ir.Operation) -> bool:
    """Whether `move_users_after` changes nothing but the order of pure ops."""
    return all(is_pure(op) for op in dependants_before(users, anchor))


def move_users_after(users: Iterable[ir.Operation], anchor: ir.Operation) -> None:
    """Moves those of `users` that stand before `anchor`, with all that depends on them, behind it in order."""
    last = anchor
    for op in dependants_before(users, anchor):
        op.move_after(last)
        last = op


def erase_with_producers(op: ir.Operation, *lists: list[ir.Operation]) -> None:
    """Erases `op`, if nothing uses it, and what only it needed, in its regions, too; from the lists as well."""
    pending = [op]
    while pending:
        op = pending.pop()
        if not is_pure(op) or any(list(r.uses) for r in op.results):
            continue
        makers = dict.fromkeys(defining_op(value) for value in operands_with_captures(op))
        producers = [maker for maker in makers if maker is not None and not is_inside(maker, op)]
        for listed in lists:
            while op in listed:
                listed.remove(op)
        op.erase()
        pending += [p for p in producers if p not in pending]


def other_use(
    first: ir.Operation, last: set[ir.Operation], between: set[ir.Operation], given: frozenset[ir.Value]
) -> ir.Operation | None:
    """An op that needs a value made on the way from `first` to the ops `last`, other than these; None if there is none.

    `given` are values that will be there anyway; whoever uses what is computed from them, element by element, may.
    """
    dead: dict[ir.Operation, bool] = {}

    def is_dead(op: ir.Operation) -> bool:
        if op not in dead:
            dead[op] = False
            dead[op] = is_pure(op) and all(
                is_dead(user) for r in op.results if r not in given for u in r.uses if (user := u.owner.operation)
            )
        return dead[op]

    for op in in_order(between, first.block):
        if op in last:
            continue
        for result in op.results:
            for use in result.uses:
                user = ancestor_in(use.owner.operation, op.block)
                outside = user is not None and user not in between and not is_dead(user)
                if outside and not _follows_from(result, given, ops_on_way(first, last)):
                    return user
    return None


def _follows_from(value: ir.Value, given: frozenset[ir.Value], scores: set[ir.Operation]) -> bool:
    """Whether `value` depends on ops of `scores` by way of values that are `given` alone, and without reductions."""
    op = defining_op(value)
    if value in given or op is None or op not in scores:
        return True
    if reduces(op):
        return False
    return all(_follows_from(v, given, scores) for v in op.operands)
