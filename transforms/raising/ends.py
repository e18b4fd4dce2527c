"""Where an attention ends: in its second matmul, or behind that in a transpose or a division of its result."""

from __future__ import annotations

import contextlib

from ...dialects.mlir import ir
from ...dialects.tiling.structured import all_parallel, body_names
from ..reshapes import RESHAPES, VIEWS
from ..transposes import permutation
from .given import Given
from .matching import Match, match_attention
from .quotients import NearMiss

MOST_DIVIDING = 16  # ops behind a matmul that are looked at


def matched_at(op: ir.Operation, normalised: bool = True, given: Given | None = None) -> Match | None:
    """The attention that `op` ends, or the transpose that all of its result goes to; see `match_attention`."""
    end = transposing_end(op)
    if end != op:
        with contextlib.suppress(NearMiss):
            match = match_attention(end, normalised, given)
            if match is not None:
                return match
    return match_attention(op, normalised, given)


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
    """The element-wise ops that use the result of `op`, directly or through others, the nearest first."""
    found: list[ir.Operation] = []
    pending, seen = [op], {op}
    while pending:
        for result in pending.pop(0).results:
            for use in result.uses:
                user = use.owner.operation
                if user in seen or user.block != op.block:
                    continue
                seen.add(user)
                if user.name in VIEWS or user.name == "linalg.transpose":
                    pending.append(user)
                elif all_parallel(user) and len(user.results) == 1:
                    found.append(user)
                    pending.append(user)
    return found[:MOST_DIVIDING]
