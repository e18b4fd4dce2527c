"""Low numbers of masks in probabilities of rows that have a live key by its place alone.

    exp(select(j <= i, s, −2.4e38) − m)   becomes   exp(select(j <= i, s, −∞) − m)

Both are 0 where the mask is, as long as the maximum m of the row is a score and not as low as half of that number; the
latter says that tiles there are dead. Some key must be no mask's for all queries: the first one, the last one, or the
query's own, as ``infinite-masks`` asks of softmax itself. Where that depends on the query, or on what is loaded, rows
are told apart:

    exp(select(c, s, −2.4e38) − m)         exp(select(c or not live, select(c, s, −2.4e38), −∞) − m)

Of a row that has no live key m is that number, and each probability the same. How the number was scaled and rounded on
the way to m is not known here, so that their difference may be anything; where a row is masked is not asked of it::

    exp(select(c, s, −2.4e38) − m)         select(c or m < −2¹⁷, select(c, exp(s − m), 1), 0)
    exp(select(c, s, −2.4e38) − m) / l     select(c or w > 0, select(c, exp2(s·log₂e − n), w), 0)

where n = m·log₂e + log₂ l, and w is 1 / l in rows with m < −2¹⁷ and 0 in others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..online.score_masks import lowest_score
from ..online.scores import HIGHEST_MASK
from .expressions import REAL, Expr, Expressions
from .indices import Index, Var
from .masks import is_score

CASTS = ("arith.index_cast", "arith.extsi", "arith.extui")
EQUAL, OTHER, LESS, AT_MOST, GREATER, AT_LEAST = range(6)  # arith.cmpi's predicates of signed numbers
OPPOSITES = {EQUAL: OTHER, OTHER: EQUAL, LESS: AT_LEAST, AT_LEAST: LESS, AT_MOST: GREATER, GREATER: AT_MOST}


def with_infinite_masks(make: Expressions, x: Expr, maximum: Expr, products: frozenset[Expr]) -> Expr:
    """x, of which `maximum` is subtracted, with −∞ in place of the low numbers of masks in rows that have a live key; x
    as it is if it has no such masks, or that is not known of any row. `products`: of queries and keys."""
    masks = _known_masks(x, products)
    rows = masked_rows(make, x, maximum, masks)
    if rows is None:
        return x
    if rows.number == 0:
        return make.rewritten(x, lambda node: _infinite(make, node, masks))
    return make.op("arith.select", (make.any_of([_live(make, masks), rows]), x, make.const(-math.inf)))


def masked_rows(make: Expressions, x: Expr, maximum: Expr, masks: Sequence[Expr]) -> Expr | None:
    """Whether a row has no key at the places where its score is looked for, and may have none at all; None if x has no
    `masks`, or no such place is known."""
    keys = x.vars - maximum.vars
    if not masks or len(keys) != 1:
        return None
    (key,) = keys
    conditions = [_where_score(make, mask) for mask in masks]
    live = make.all_of(conditions)
    if any(all(_holds(_moved(make, one, key, at)) for one in conditions) for at in _places(key, maximum.vars)):
        return make.const(False, live.type)
    queries = sorted(maximum.vars, key=lambda v: (v.extent or 0, v.serial))[-1:]  # the longest of the rows' variables
    of_rows = [_moved(make, live, key, at) for at in _places(key, frozenset(queries))]
    of_rows = [one for one in dict.fromkeys(of_rows) if _can_be_read(one, key) and _holds(one) is not False]
    return make.negation(make.any_of(of_rows)) if of_rows else None


@dataclass(frozen=True)
class Apart:
    """Scores, the `masks` beside them, where they are `live`, and below which of them the maximum of a row is a mask's
    number."""

    masks: Sequence[Expr]
    scores: Expr
    live: Expr
    lowest: float

    def probabilities(self, make: Expressions, of_scores: Expr, masked: Expr, otherwise: Expr) -> Expr:
        """`of_scores`, in rows that are `masked` as a whole `otherwise`; 0 where others have a mask."""
        # Both choices are left out of tiles in which all is live, and tiles in which nothing is neither of the two.
        found = make.op("arith.select", (self.live, of_scores, otherwise))
        return make.op("arith.select", (make.any_of([self.live, masked]), found, make.const(0.0)))


def masks_apart(make: Expressions, x: Expr, products: frozenset[Expr]) -> Apart | None:
    """What x is besides the low number of a mask; None if it never has one, or not the same number for each mask."""
    masks = _known_masks(x, products)
    if not masks:
        return None

    def with_scores(node: Expr, masked: Sequence[Expr] = ()) -> Expr:
        """The numbers of `masked` in their place, and scores in the place of all others."""

        def side(inner: Expr) -> Expr | None:
            if inner not in masks:
                return None
            low = _low_side(inner)
            return inner.args[low] if inner in masked else with_scores(inner.args[3 - low], masked)

        return make.rewritten(node, side)

    numbers = {with_scores(x, masked).number for masked in (masks, *([mask] for mask in masks))}
    number = numbers.pop()
    if numbers or number is None:
        return None
    return Apart(masks, with_scores(x), _live(make, masks), lowest_score(number))


def _known_masks(x: Expr, products: frozenset[Expr]) -> list[Expr]:
    """The masks on the way to the scores; none if one of them is not known."""
    masks = list(_masks(x, products))
    return [mask for mask in masks if mask is not None] if None not in masks else []


def _live(make: Expressions, masks: Sequence[Expr]) -> Expr:
    """The condition for all masks to leave a score as it is."""
    return make.all_of([_where_score(make, mask) for mask in masks])


def _where_score(make: Expressions, mask: Expr) -> Expr:
    """The condition for a mask to leave a score as it is."""
    return mask.args[0] if _low_side(mask) == 2 else make.negation(mask.args[0])


def _infinite(make: Expressions, node: Expr, masks: Sequence[Expr]) -> Expr | None:
    """A mask whose low number is −∞; None for what is none of the masks."""
    if node not in masks:
        return None
    args = [make.rewritten(a, lambda inner: _infinite(make, inner, masks)) for a in node.args]
    args[_low_side(node)] = make.const(-math.inf)
    return make.op(node.name, tuple(args))


def _can_be_read(condition: Expr, key: Var) -> bool:
    """Whether all that it reads is surely there, and elements side by side: no diagonal of a tensor."""
    elements = [n.payload[1] for n in condition.nodes() if n.kind == "element"]
    used = [[v for index in indices for v, _ in index.terms] for indices in elements]
    return (bool(key.extent) or not elements) and all(len(set(found)) == len(found) for found in used)


def _masks(x: Expr, products: frozenset[Expr], scale: float = 1.0) -> Iterator[Expr | None]:
    """The choices between a score and a low number on the way to the score; None where that is not known. One between
    a low number and 0 may be added to a score."""
    if x.name == "arith.select":
        low = _low_side(x)
        if not -math.inf < (x.args[low].number or 0.0) * scale <= HIGHEST_MASK:
            yield None
        else:
            yield x
            yield from _masks(x.args[3 - low], products, scale)
    elif x.name == "arith.mulf" and any(a.number is not None and a.number > 0 for a in x.args):
        first, second = x.args
        inner, factor = (first, second.number) if second.number is not None else (second, first.number)
        yield from _masks(inner, products, scale * (factor or 1.0))
    elif x.name == "arith.addf":
        for a in x.args:
            yield from _masks(a, products, scale)
    elif not is_score(x, products):
        yield None


def _low_side(select: Expr) -> int:
    """Which of its arguments is the lower number, if any is one."""
    return min((1, 2), key=lambda n: math.inf if select.args[n].number is None else select.args[n].number)


def _places(key: Var, others: frozenset[Var]) -> Iterator[Index]:
    """Where there surely is a key, and may be a live one, of each query."""
    yield Index()
    if key.extent is None:
        return
    yield Index((), key.extent - 1)
    for var in others:
        if var.extent is not None and var.extent <= key.extent:
            yield Index.of(var)
            yield Index(((var, 1),), key.extent - var.extent)


def _moved(make: Expressions, condition: Expr, key: Var, at: Index) -> Expr:
    """The condition at that key."""

    def there(index: Index) -> Index:
        coefficient = dict(index.terms).get(key, 0)
        return index.plus(Index.of(key), -coefficient).plus(at, coefficient)

    def moved(node: Expr) -> Expr | None:
        if node.kind == "index":
            return make.index(there(node.payload))
        if node.kind == "element":
            return make.element(node.payload[0], tuple(map(there, node.payload[1])))
        return None

    return make.rewritten(condition, moved)


def _holds(condition: Expr) -> bool | None:
    """Whether a condition holds for all queries, or for none; None if that depends, or is not known."""
    if condition.number is not None:
        return bool(condition.number)
    if condition.name in ("arith.andi", "arith.ori", "arith.xori"):
        parts = [_holds(a) for a in condition.args]
        if condition.name == "arith.xori":
            return None if None in parts else parts[0] != parts[1]
        deciding = condition.name == "arith.ori"
        return deciding if deciding in parts else None if None in parts else not deciding
    if condition.name != "arith.cmpi" or any(a.type == REAL for a in condition.args):
        return None
    if condition.args[0] is condition.args[1]:  # of documents, at the query's own place
        return _compared(condition, Index())
    a, b = map(_linear, condition.args)
    return None if a is None or b is None else _compared(condition, a.plus(b, -1))


def _compared(comparison: Expr, difference: Index) -> bool | None:
    which = int(str(comparison.attribute("predicate")).split()[0])
    least, most = _bounds(difference)
    always = {
        EQUAL: least == most == 0,
        OTHER: least > 0 or most < 0,
        LESS: most < 0,
        AT_MOST: most <= 0,
        GREATER: least > 0,
        AT_LEAST: least >= 0,
    }
    if which not in OPPOSITES:
        return None
    return True if always[which] else False if always[OPPOSITES[which]] else None


def _bounds(index: Index) -> tuple[float, float]:
    """The least and the largest value, of negative coefficients, too."""
    ends = [(0.0, c * (math.inf if v.extent is None else v.extent - 1)) for v, c in index.terms]
    return index.constant + sum(map(min, ends)), index.constant + sum(map(max, ends))


def _linear(expr: Expr) -> Index | None:
    """An integer as a linear form of variables."""
    if expr.kind == "index":
        return expr.payload
    if expr.number is not None:
        return Index((), int(expr.number))
    if expr.name in CASTS:
        return _linear(expr.args[0])
    if expr.name in ("arith.addi", "arith.subi", "arith.muli"):
        a, b = map(_linear, expr.args)
        if a is None or b is None:
            return None
        if expr.name == "arith.muli":
            return a.scaled(b.constant) if not b.terms else b.scaled(a.constant) if not a.terms else None
        return a.plus(b, 1 if expr.name == "arith.addi" else -1)
    return None
