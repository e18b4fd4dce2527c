"""Where an attention ends: in its second matmul, or behind that in a transpose or a division of its result.

What else needs the result before it is divided, u of o = u / l, as derivatives do, gets o·l: then all that there is of
it are o, and the sum of exponentials l.
"""

from __future__ import annotations

import contextlib

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import all_parallel, body_names, indexing_maps, is_structured, reduces
from ..graph import in_order, makers_of, move_users_after, ops_on_way
from ..reshapes import RESHAPES, VIEWS
from ..transposes import permutation
from .candidates import Followers
from .given import Given
from .matching import Match, match_attention
from .quotients import NearMiss

MOST_DIVIDING = 16  # ops behind a matmul that are looked at


def matched_at(
    op: ir.Operation, normalised: bool = True, given: Given | None = None, followers: Followers | None = None
) -> Match | None:
    """The attention that `op` ends, or the transpose that all of its result goes to; see `match_attention`."""
    end = transposing_end(op)
    if end != op:
        with contextlib.suppress(NearMiss):
            match = match_attention(end, normalised, given, followers)
            if match is not None:
                return match
    return match_attention(op, normalised, given, followers)


def divided_at(op: ir.Operation, normalised: bool = True, no_ends: set[ir.Operation] | None = None) -> Match | None:
    """The attention that ends in a division after the sum of products `op`; see `matched_at`. `no_ends`: ops that are
    known to end none, to which others are added; many sums have the same ops behind them."""
    no_ends = set() if no_ends is None else no_ends
    for end in dividing_users(op):
        if end in no_ends:
            continue
        with contextlib.suppress(NearMiss):
            match = matched_at(end, normalised)
            if match is not None and (normalised or match.softmax.own_sum is not None):
                return match
        no_ends.add(end)
    return None


def multiply_back(op: ir.Operation, end: ir.Operation) -> None:
    """Gives others than `end` the quotient times the divisor for what is divided between the sum of products `op` and
    that."""
    way = {*ops_on_way(op, {end}), end}
    for division in [o for o in way if o.name == "linalg.generic" and body_names(o) == ["arith.divf"]]:
        dividend, divisor, *_ = division.operands
        maps, body = indexing_maps(division), division.regions[0].blocks[0]
        is_in_order = list(next(iter(body.operations)).operands) == list(body.arguments)[:2] and maps[0] == maps[-1]
        users = [use.owner.operation for use in dividend.uses if use.owner.operation not in way]
        if not is_in_order or not users or dividend.type != division.results[0].type:
            continue
        with ir.InsertionPoint.after(division), division.location:
            init = build.empty(build.mixed_sizes(dividend), dividend.type.element_type)
            iterators = [build.PARALLEL] * maps[0].n_dims
            quotient = division.results[0]
            (undivided,) = build.generic(
                [quotient, divisor], [init], [maps[-1], maps[1], maps[-1]], iterators, lambda o, l, _: arith.mulf(o, l)
            )
        for use in [use for use in dividend.uses if use.owner.operation in users]:
            use.owner.operation.operands[use.operand_number] = undivided
        move_users_after(users, undivided.owner.operation)


def transposing_end(op: ir.Operation) -> ir.Operation:
    """The last transpose on the way of the result of `op` through reshapes, transposes and casts; `op` without any."""
    end, current = op, op
    while True:
        uses = list(current.results[0].uses)
        user = uses[0].owner.operation if len(uses) == 1 else None
        if user is None or user.block != op.block or len(user.results) != 1:
            return end
        if is_transpose(user):
            end = user
        elif user.name not in (*RESHAPES, "tensor.cast") and not is_cast(user):
            return end
        current = user


def is_transpose(op: ir.Operation) -> bool:
    """Whether `op` only puts the elements of a tensor in another order."""
    order = permutation(op)
    return order is not None and order != sorted(order)


def is_cast(op: ir.Operation) -> bool:
    """Whether `op` only converts each element to another float type."""
    return all_parallel(op) and len(op.operands) == 2 and body_names(op) in (["arith.truncf"], ["arith.extf"])


def dividing_users(op: ir.Operation) -> list[ir.Operation]:
    """The element-wise ops that use the result of `op`, directly or through others, and another sum, the nearest
    first."""
    found: list[ir.Operation] = []
    pending, seen = [op], {op}
    while pending:
        users = {use.owner.operation for result in pending.pop(0).results for use in result.uses}
        for user in in_order({u for u in users if u.block == op.block and u not in seen}, op.block):
            seen.add(user)
            if user.name in VIEWS or user.name == "linalg.transpose":
                pending.append(user)
            elif all_parallel(user) and len(user.results) == 1:
                found.append(user)
                pending.append(user)
    return [user for user in found[:MOST_DIVIDING] if _reads_another_sum(user, op)]


def _reads_another_sum(end: ir.Operation, product: ir.Operation) -> bool:
    """Whether `end` may divide what it reads of a sum of products: by another sum, of weights."""
    pending, seen = [end], {end, product}
    while pending:
        new = {maker for maker in makers_of(pending.pop(), end.block) if maker not in seen}
        if any(reduces(maker) or not _is_by_element(maker) for maker in new):
            return True
        seen |= new
        pending += new
    return False


def _is_by_element(op: ir.Operation) -> bool:
    return op.name.startswith(("tensor.", "arith.")) or (is_structured(op) and all_parallel(op))
