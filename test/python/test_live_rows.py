"""Which masks are seen to leave each row a live key, by its place alone, or which rows: against going through all
queries and keys."""

import math
import operator

import pytest
from attn_opt.dialects import make_context
from attn_opt.dialects.mlir import arith, ir
from attn_opt.transforms.raising.expressions import Expressions
from attn_opt.transforms.raising.indices import Index, Var
from attn_opt.transforms.raising.live_rows import with_infinite_masks
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

PREDICATES = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
}
LOW = -2.38e38


@pytest.fixture(autouse=True, scope="module")
def context():
    with make_context(), ir.Location.unknown():
        yield


class Scores:
    """Scores of some queries and keys, and conditions on these: q < k + 3 is ("slt", 3)."""

    def __init__(self, queries, keys):
        self.make, self.queries, self.keys = Expressions(), Var(queries), Var(keys)
        self.q, self.k = (self.make.index(Index.of(v)) for v in (self.queries, self.keys))
        shape = (self.queries.extent or -1, self.keys.extent or -1)
        of_rows, numbers = self._type(shape[:1]), self._type(shape[:1], "i32")
        self.module = ir.Module.parse(
            f"func.func @f(%s: {self._type(shape)}, %m: {of_rows}, %d: {numbers}) {{ return }}"
        )
        arguments = self.module.body.operations[0].regions[0].blocks[0].arguments
        of_q, of_k = Index.of(self.queries), Index.of(self.keys)
        self.product = self.make.element(arguments[0], (of_q, of_k))
        self.maximum = self.make.element(arguments[1], (of_q,))
        self.documents = [self.make.element(arguments[2], (i,)) for i in (of_q, of_k)]

    @staticmethod
    def _type(shape, element="f32"):
        return f"tensor<{''.join('?x' if s < 0 else f'{s}x' for s in shape)}{element}>"

    def compared(self, predicate, offset):
        later = self.make.op("arith.addi", (self.k, self.make.const(offset, self.k.type)), self.k.type)
        return self.make.compared(getattr(arith.CmpIPredicate, predicate), self.q, later)

    def both(self, *conditions, name="arith.andi"):
        found, *others = conditions
        for other in others:
            found = self.make.op(name, (found, other), other.type)
        return found

    def masked(self, condition, number=LOW, live_first=True):
        """The scores where the condition says so, and what becomes of them."""
        low = self.make.const(number)
        sides = (self.product, low) if live_first else (low, self.product)
        x = self.make.op("arith.select", (condition, *sides))
        return x, with_infinite_masks(self.make, x, self.maximum, frozenset([self.product]))

    def becomes_infinite(self, *args, **options):
        """Whether the mask is −∞ and nothing else in all rows."""
        x, found = self.masked(*args, **options)
        numbers = {n.number for n in found.nodes() if n.number is not None}
        assert found is x or -math.inf in numbers
        return found is not x and not any(-math.inf < n <= -1e4 for n in numbers)

    def value(self, expr, q, k, documents=()):
        """What an expression is for a query and a key; the product is 1."""
        if expr.kind == "const":
            return expr.number
        if expr.kind == "index" or (expr.kind == "element" and expr is not self.product):
            index = expr.payload if expr.kind == "index" else expr.payload[1][0]
            at = index.constant + sum(c * {self.queries: q, self.keys: k}[v] for v, c in index.terms)
            return at if expr.kind == "index" else documents[at]
        if expr is self.product:
            return 1.0
        args = [self.value(a, q, k, documents) for a in expr.args]
        if expr.name == "arith.cmpi":
            return [*PREDICATES.values()][int(str(expr.attribute("predicate")).split()[0])](*args)
        if expr.name == "arith.select":
            return args[1] if args[0] else args[2]
        return {"andi": operator.and_, "ori": operator.or_, "xori": operator.xor, "addi": operator.add}[
            expr.name.removeprefix("arith.")
        ](*args)

    def check(self, condition, documents=()):
        """What is masked is −∞ in rows with a live key alone, and all else as it was; in how many elements it is."""
        x, found = self.masked(condition)
        count = 0
        for q in range(self.queries.extent):
            rows = [[self.value(e, q, k, documents) for k in range(self.keys.extent)] for e in (x, found)]
            assert -math.inf not in rows[1] or 1.0 in rows[0]
            assert all(new in (old, -math.inf) if old == LOW else new == old for old, new in zip(*rows, strict=True))
            count += rows[1].count(-math.inf)
        return count


def test_masks_that_leave_each_row_a_key():
    for queries, keys in ((5, 5), (5, 9)):
        s = Scores(queries, keys)
        assert s.becomes_infinite(s.compared("sge", 0))  # causal
        assert s.becomes_infinite(s.compared("slt", 0), live_first=False)
        assert s.becomes_infinite(s.compared("sge", queries - keys))  # to the last key
        assert s.becomes_infinite(s.both(s.compared("sge", 0), s.compared("sle", 2)))  # a window
        assert s.becomes_infinite(s.both(s.compared("sge", -1), s.compared("sle", 1)))
    s = Scores(5, 5)
    same = s.make.compared(arith.CmpIPredicate.eq, *s.documents)
    assert s.becomes_infinite(same) and s.becomes_infinite(s.both(same, s.compared("sge", 0)))
    assert s.becomes_infinite(s.make.const(True, same.type)) is False  # no mask is left


def test_masks_that_may_leave_a_row_none():
    s = Scores(5, 5)
    assert not s.becomes_infinite(s.compared("sgt", 0))  # the first query has no key
    assert not s.becomes_infinite(s.both(s.compared("sge", 0), s.compared("slt", 0)))
    assert not s.becomes_infinite(s.make.compared(arith.CmpIPredicate.ne, *s.documents))
    assert not s.becomes_infinite(s.compared("sge", 0), number=-1e4)  # a score may be as low
    causal = s.compared("sge", 0)
    below = s.make.op("arith.select", (causal, s.make.const(LOW), s.product))
    x = s.make.op("arith.select", (causal, below, s.make.const(LOW)))  # all of it
    assert with_infinite_masks(s.make, x, s.maximum, frozenset([s.product])) is x


def test_rows_that_have_a_key():
    s = Scores(5, 5)
    assert s.check(s.compared("sgt", 0)) == 4 + 3 + 2 + 1  # in all rows but the first one
    assert s.check(s.compared("sge", 2)) == 4 + 3 + 2
    padding = s.make.compared(arith.CmpIPredicate.sgt, s.documents[1], s.make.const(0, s.documents[1].type))
    assert s.check(padding, [0, 1, 1, 0, 1]) == 2 * 5
    assert s.check(padding, [0, 1, 1, 1, 0]) == 2 * 3  # those whose own key is there
    assert s.check(padding, [0, 0, 0, 0, 0]) == 0
    assert s.check(s.both(padding, s.compared("sge", 0)), [0, 0, 1, 1, 0]) == 4 + 3
    assert s.check(s.both(padding, s.compared("sge", 0)), [1, 1, 1, 0, 0]) == 4 + 3 + 2 + 2 + 2


def test_what_may_hold_a_mask_itself():
    s = Scores(5, 5)
    biased = s.make.add(s.product, s.maximum)
    x = s.make.op("arith.select", (s.compared("sge", 0), biased, s.make.const(LOW)))
    assert with_infinite_masks(s.make, x, s.maximum, frozenset([s.product])) is x


@examples(200)
@given(
    queries=st.integers(1, 6),
    keys=st.integers(1, 6),
    parts=st.lists(st.tuples(st.sampled_from(list(PREDICATES)), st.integers(-7, 7)), min_size=1, max_size=3),
    name=st.sampled_from(["arith.andi", "arith.ori"]),
)
def test_no_row_without_a_key(queries, keys, parts, name):
    s = Scores(queries, keys)
    condition = s.both(*(s.compared(*part) for part in parts), name=name)
    s.check(condition)
    combine = all if name == "arith.andi" else any
    live = [[combine(PREDICATES[p](q, k + c) for p, c in parts) for k in range(keys)] for q in range(queries)]
    if s.becomes_infinite(condition):
        assert all(map(any, live))
