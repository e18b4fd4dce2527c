"""Elements of tensors as expressions in real numbers.

Floats have no width here, so that casts between them vanish, but for those to 8 bits, which ROUND stands for; integers
keep their types. A float that is made of an integer's bits, as random numbers are, is OF_BITS of it. Nodes are unique:
what is computed alike is one object, so equality is identity.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...dialects import build
from ...dialects.mlir import arith, ir
from ...dialects.tiling.structured import FLOAT_CASTS
from .indices import Index, Var

REAL = "real"
ROUND = "round"  # the operation that rounds to its attribute "type"
EXPONENTIALS = ("math.exp", "math.exp2")
OF_BITS = "of bits"  # the operation that takes an integer for a float of its attribute "type"
COMMUTATIVE = {
    *("arith.addf", "arith.mulf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"),
    *("arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori"),
}


@dataclass(frozen=True, eq=False)
class Expr:
    """One node. By `kind`:

    element: `payload` = (tensor, indices); const: a number; index: an Index; scalar: an SSA value outside of all loops;
    op: (name, attributes), applied to `args`.
    """

    kind: str
    payload: Any
    args: tuple[Expr, ...]
    type: Any  # REAL or an integer or index type
    vars: frozenset[Var]
    serial: int

    @property
    def name(self) -> str:
        """The name of the operation, "" for other kinds."""
        return self.payload[0] if self.kind == "op" else ""

    @property
    def number(self) -> Any:
        """The value of a constant."""
        return self.payload if self.kind == "const" else None

    def attribute(self, name: str) -> Any:
        return dict(self.payload[1]).get(name)

    def nodes(self) -> Iterator[Expr]:
        """This node and all below it, each once."""
        seen, pending = {self}, [self]
        while pending:
            node = pending.pop()
            yield node
            for arg in node.args:
                if arg not in seen:
                    seen.add(arg)
                    pending.append(arg)


def scalar_type(kind: ir.Type) -> Any:
    return REAL if isinstance(kind, ir.FloatType) else kind


class Expressions:
    """Makes expressions, each once."""

    def __init__(self) -> None:
        self._unique: dict[Any, Expr] = {}

    def _make(self, kind: str, payload: Any, args: tuple[Expr, ...], type_: Any, vars_: frozenset[Var]) -> Expr:
        key: tuple[Any, ...] = (kind, payload, type_, args)
        if isinstance(payload, float):
            key += (math.copysign(1, payload), payload != payload)
        found = self._unique.get(key)
        if found is None:
            found = self._unique[key] = Expr(kind, payload, args, type_, vars_, len(self._unique))
        return found

    def element(self, tensor: ir.Value, indices: tuple[Index, ...]) -> Expr:
        used = frozenset[Var]().union(*(i.vars for i in indices))
        return self._make("element", (tensor, indices), (), scalar_type(tensor.type.element_type), used)

    def const(self, value: float | int | bool, type_: Any = REAL) -> Expr:
        return self._make("const", float(value) if type_ == REAL else int(value), (), type_, frozenset())

    def index(self, index: Index) -> Expr:
        return self._make("index", index, (), ir.IndexType.get(), index.vars)

    def scalar(self, value: ir.Value) -> Expr:
        return self._make("scalar", value, (), scalar_type(value.type), frozenset())

    def op(self, name: str, args: tuple[Expr, ...], type_: Any = REAL, attributes: tuple = ()) -> Expr:
        simple = _simplified(self, name, args, type_)
        if simple is None and name == "arith.cmpi":
            simple = _simplified_sign_test(self, args, type_, attributes)
        if simple is None and name in _COMPARED:
            simple = _simplified_comparison(self, name, args, type_, attributes)
        if simple is not None:
            return simple
        if name in COMMUTATIVE:
            args = tuple(sorted(args, key=lambda a: a.serial))
        used = frozenset[Var]().union(*(a.vars for a in args))
        return self._make("op", (name, attributes), args, type_, used)

    def mul(self, a: Expr, b: Expr) -> Expr:
        return self.op("arith.mulf", (a, b))

    def add(self, a: Expr, b: Expr) -> Expr:
        return self.op("arith.addf", (a, b))

    def compared(self, how: arith.CmpFPredicate | arith.CmpIPredicate, a: Expr, b: Expr) -> Expr:
        """Whether that holds of a and b, which are floats or integers as `how` says: an i1."""
        name = "arith.cmpf" if isinstance(how, arith.CmpFPredicate) else "arith.cmpi"
        return self.op(name, (a, b), ir.IntegerType.get_signless(1), (("predicate", build.i64_attribute(int(how))),))

    def all_of(self, conditions: Iterable[Expr]) -> Expr:
        """Whether all conditions hold, of which there is one at least: an i1."""
        return functools.reduce(lambda a, b: self.op("arith.andi", (a, b), a.type), conditions)

    def any_of(self, conditions: Iterable[Expr]) -> Expr:
        """Whether one of the conditions holds, of which there is one at least: an i1."""
        return functools.reduce(lambda a, b: self.op("arith.ori", (a, b), a.type), conditions)

    def negation(self, condition: Expr) -> Expr:
        """not `condition`, an i1."""
        return self.op("arith.xori", (condition, self.const(1, condition.type)), condition.type)

    def rewritten(self, expr: Expr, replace: Callable[[Expr], Expr | None]) -> Expr:
        """`expr` with every node for which `replace` gives another replaced by that, from the top."""
        done: dict[Expr, Expr] = {}

        def visit(node: Expr) -> Expr:
            if node not in done:
                other = replace(node)
                if other is None and node.args:
                    args = tuple(visit(a) for a in node.args)
                    other = node if args == node.args else self.op(node.name, args, node.type, node.payload[1])
                done[node] = node if other is None else other
            return done[node]

        return visit(expr)


_FOLDED: dict[str, Callable[..., float]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b if b else math.copysign(math.inf, a) * math.copysign(1, b) if a else math.nan,
    "arith.negf": lambda a: -a,
    "arith.sitofp": float,
    "arith.uitofp": float,
}


def folded(name: str, numbers: Sequence[float | None]) -> float | None:
    """What an operation makes of numbers; None if one of them is not known, or that of the operation."""
    if name not in _FOLDED or None in numbers or (name == "arith.uitofp" and numbers[0] < 0):
        return None
    return _FOLDED[name](*numbers)


def _simplified(make: Expressions, name: str, args: tuple[Expr, ...], type_: Any) -> Expr | None:
    """A simpler expression for that operation, or None. Only identities that hold for every real number and −inf."""
    if name in FLOAT_CASTS:
        return args[0]
    numbers = [a.number for a in args]
    if (number := folded(name, numbers)) is not None:
        return make.const(number)
    if name == "math.powf" and numbers[0] is not None and numbers[0] > 0:  # 2^x is how exp2 may be spelled
        if numbers[0] == 2:
            return make.op("math.exp2", (args[1],))
        return make.op("math.exp", (make.mul(args[1], make.const(math.log(numbers[0]))),))
    if name == "math.powf" and numbers[1] == 1:  # in a norm of order 1
        return args[0]
    if name == "arith.index_cast" and args[0].name == name and str(args[0].args[0].type) == str(type_):
        return args[0].args[0]
    if name == "arith.index_cast" and numbers[0] is not None:
        return make.const(numbers[0], type_)
    if name == "arith.select":
        if numbers[0] is not None:
            return args[1] if numbers[0] else args[2]
        same = [a.name == name and a.args[0] is args[0] for a in args[1:]]
        if any(same):  # the same choice once more
            chosen = (a.args[i + 1] if again else a for i, (a, again) in enumerate(zip(args[1:], same, strict=True)))
            return make.op(name, (args[0], *chosen), type_)
        if str(type_) == "i1" and None not in numbers[1:] and bool(numbers[1]) != bool(numbers[2]):
            return args[0] if numbers[1] else make.negation(args[0])
        return args[1] if args[1] is args[2] else None
    if name in ("arith.andi", "arith.ori", "arith.xori") and str(type_) == "i1":
        return _simplified_logic(make, name, args, numbers)
    if name in ("arith.addf", "arith.mulf"):
        neutral = 0.0 if name == "arith.addf" else 1.0
        for this, other in (0, 1), (1, 0):
            if numbers[this] == neutral:
                return args[other]
            inner = args[other]
            if name == "arith.mulf" and numbers[this] is not None and inner.name == name:
                for at in 0, 1:
                    if inner.args[at].number is not None:
                        return make.mul(inner.args[1 - at], make.const(inner.args[at].number * numbers[this]))
    if name in ("arith.maximumf", "arith.maxnumf") and -math.inf in numbers:
        return args[1 - numbers.index(-math.inf)]
    if name == "arith.subf" and numbers[1] == 0:
        return args[0]
    if name in ("arith.maxsi", "arith.minsi") and numbers[1] is not None:  # a gather by an index that is in range
        largest = _largest(args[0])
        if numbers[1] <= 0 if name == "arith.maxsi" else largest is not None and largest <= numbers[1]:
            return args[0] if _counts_from_zero(args[0]) else None
    if name == "arith.divf" and numbers[1] and math.isfinite(numbers[1]):
        return make.mul(args[0], make.const(1 / numbers[1]))
    return None


def _simplified_logic(make: Expressions, name: str, args: tuple[Expr, ...], numbers: list) -> Expr | None:
    dual = {"arith.andi": "arith.ori", "arith.ori": "arith.andi"}.get(name)
    for this, other in (0, 1), (1, 0):
        if dual and (args[this] is args[other] or (args[other].name == dual and args[this] in args[other].args)):
            return args[this]  # a and (a or b)
        if numbers[this] is None:
            continue
        true = bool(numbers[this] & 1)
        if name == "arith.xori":
            inner = args[other]
            if not true:
                return inner
            if inner.name == "arith.xori":
                for at in 0, 1:
                    if inner.args[at].number is not None and inner.args[at].number & 1:
                        return inner.args[1 - at]
            if inner.name == "arith.cmpf":
                return _opposite(make, inner)
        elif true == (name == "arith.andi"):
            return args[other]
        else:
            return args[this]
    return None


def _opposite(make: Expressions, comparison: Expr) -> Expr:
    """What holds where a comparison of floats does not, of NaN too."""
    attributes = dict(comparison.payload[1])
    predicate = ir.IntegerAttr(attributes["predicate"])
    opposite = {0: 15, 7: 14, 14: 7, 15: 0}.get(predicate.value, 14 - predicate.value)
    attributes["predicate"] = ir.IntegerAttr.get(predicate.type, opposite)
    return make.op("arith.cmpf", comparison.args, comparison.type, tuple(attributes.items()))


# Of two numbers that are no NaN, by the predicate's number.
_EQUAL, _GREATER, _AT_LEAST, _LESS, _AT_MOST, _OTHER = (
    operator.eq,
    operator.gt,
    operator.ge,
    operator.lt,
    operator.le,
    operator.ne,
)
_COMPARED: dict[str, dict[int, Callable[[float, float], bool]]] = {
    "arith.cmpi": dict(enumerate((_EQUAL, _OTHER, _LESS, _AT_MOST, _GREATER, _AT_LEAST))),
    "arith.cmpf": {
        **dict(enumerate((_EQUAL, _GREATER, _AT_LEAST, _LESS, _AT_MOST, _OTHER), 1)),
        **dict(enumerate((_EQUAL, _GREATER, _AT_LEAST, _LESS, _AT_MOST, _OTHER), 8)),
    },
}


def _simplified_comparison(
    make: Expressions, name: str, args: tuple[Expr, ...], type_: Any, attributes: tuple
) -> Expr | None:
    """(c ? 1 : 0) = 0 and the like: a condition that was made a number; c = false, as which torch has its negation."""
    compare = _COMPARED[name].get(ir.IntegerAttr(dict(attributes)["predicate"]).value)
    for this, other in (0, 1), (1, 0):
        if name == "arith.cmpi" and str(args[this].type) == "i1" and compare in (_EQUAL, _OTHER):
            if args[other].number is not None:
                return args[this] if compare(args[other].number & 1, 1) else make.negation(args[this])
            continue
        parts = _numbers_of_choice(args[this])
        number = args[other].number
        if compare is None or parts is None or number is None or str(args[other].type) == "i1":
            continue  # true is 1 as a number, and −1 as a signed one
        if any(n != n for n in (*parts[1:], number)):
            continue
        outcomes = [compare(n, number) if this == 0 else compare(number, n) for n in parts[1:]]
        if outcomes[0] == outcomes[1]:
            return make.const(outcomes[0], type_)
        return parts[0] if outcomes[0] else make.negation(parts[0])
    return None


def _numbers_of_choice(expr: Expr) -> tuple[Expr, float, float] | None:
    """(condition, then, otherwise) if `expr` is a choice between two numbers."""
    if expr.name == "arith.select" and None not in (expr.args[1].number, expr.args[2].number):
        return expr.args[0], expr.args[1].number, expr.args[2].number
    if expr.name in ("arith.extui", "arith.uitofp") and str(expr.args[0].type) == "i1":
        return expr.args[0], 1, 0
    return None


def _simplified_sign_test(make: Expressions, args: tuple[Expr, ...], type_: Any, attributes: tuple) -> Expr | None:
    """i < 0 and i ≥ 0 for an index that counts from 0, or a number: what a gather tests before it reads."""
    outcome = {2: False, 5: True}.get(ir.IntegerAttr(dict(attributes)["predicate"]).value)  # slt, sge
    if outcome is None or args[1].number != 0:
        return None
    number = args[0].number
    if number is not None:
        return make.const(outcome == (number >= 0), type_)
    return make.const(outcome, type_) if _counts_from_zero(args[0]) else None


def _largest(expr: Expr) -> int | None:
    """The largest value of an index that counts from 0."""
    expr = _uncast(expr)
    if not _counts_from_zero(expr) or any(v.extent is None for v in expr.vars):
        return None
    return expr.payload.constant + sum(c * ((v.extent or 1) - 1) for v, c in expr.payload.terms)


def _counts_from_zero(expr: Expr) -> bool:
    expr = _uncast(expr)
    return expr.kind == "index" and expr.payload.constant >= 0 and all(c > 0 for _, c in expr.payload.terms)


def _uncast(expr: Expr) -> Expr:
    """The integer that others are made from by casts."""
    while expr.name in ("arith.index_cast", "arith.extsi", "arith.extui"):
        expr = expr.args[0]
    return expr
