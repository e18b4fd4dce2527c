"""Arithmetic on scalars and, elementwise, on whole arrays (tensors, and the bodies of linalg ops)."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import arrays
from .interface import Meaning, rule

# Of two numbers Python's operators take a tenth of the time of numpy's functions, for the same result.
_OF_NUMBERS: dict[Any, Callable[..., Any]] = {
    **{np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.divide: operator.truediv},
    **{np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor},
}


def elementwise(name: str, function: Callable[..., Any], on_bits: Callable[..., Any] | None = None) -> None:
    """Registers a rule that applies `function`, to operands of i1 `on_bits` where that is given."""

    def of_op(op: Any, frame: Any) -> Meaning:
        is_other = on_bits is not None and _is_bit(op)
        return _meaning(on_bits if is_other else function)  # type: ignore[arg-type]

    rule(name)(of_op)


def _is_bit(op: Any) -> bool:
    return arrays.storage_dtype(op.operation.operands[0].type) == np.bool_


def _meaning(function: Callable[..., Any]) -> Meaning:
    """Applies `function`; a ufunc works in place where it can."""
    if not isinstance(function, np.ufunc):
        return lambda operands: [function(*operands)]
    of_numbers = _OF_NUMBERS.get(function)
    if of_numbers is None:
        return lambda operands: [arrays.apply(function, operands)]

    def run(operands: list[Any]) -> list[Any]:
        a, b = operands
        if isinstance(a, np.generic) and isinstance(b, np.generic):
            return [of_numbers(a, b)]
        a = b = None  # `apply` may write to what nothing else refers to
        return [arrays.apply(function, operands)]

    return run


_UNSIGNED = {np.dtype(f"int{width}"): np.dtype(f"uint{width}") for width in (8, 16, 32, 64)}


def unsigned(value: Any) -> Any:
    """The same bits as an unsigned integer."""
    value = np.asarray(value)
    return value.view(_UNSIGNED.get(value.dtype, value.dtype))


def signed(value: Any) -> Any:
    """i1 as the signed integer that it is, 0 or -1; other integers unchanged."""
    return -np.asarray(value).astype(np.int8) if np.asarray(value).dtype == np.bool_ else value


def on_unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on the operands' bits as unsigned integers, the result in the operands' type."""

    def run(*operands: Any) -> Any:
        return np.asarray(function(*map(unsigned, operands))).astype(np.asarray(operands[0]).dtype)[()]

    return run


def divide_truncating(a: Any, b: Any) -> Any:
    quotient = np.floor_divide(a, b)
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0))).astype(np.asarray(a).dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "addf": np.add,
    "subf": np.subtract,
    "mulf": np.multiply,
    "divf": np.divide,
    "remf": np.fmod,
    "negf": np.negative,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxnumf": np.fmax,
    "minnumf": np.fmin,
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "divsi": divide_truncating,
    "floordivsi": np.floor_divide,
    "ceildivsi": lambda a, b: -np.floor_divide(-a, b),
    "remsi": np.fmod,
    "divui": on_unsigned(np.floor_divide),
    "ceildivui": on_unsigned(lambda a, b: np.floor_divide(a, b) + (np.remainder(a, b) != 0).astype(a.dtype)),
    "remui": on_unsigned(np.remainder),
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "maxui": on_unsigned(np.maximum),
    "minui": on_unsigned(np.minimum),
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "shrui": on_unsigned(np.right_shift),
}
# Of i1, whose addition and multiplication are modulo 2, and whose 1 is -1.
_ON_BITS: dict[str, Callable[..., Any]] = {
    "addi": np.logical_xor,
    "subi": np.logical_xor,
    "muli": np.logical_and,
    "maxsi": np.logical_and,
    "minsi": np.logical_or,
}
for _name, _function in _FUNCTIONS.items():
    elementwise(f"arith.{_name}", _function, _ON_BITS.get(_name))


@rule("arith.constant")
def constant(op: Any, frame: Any) -> Meaning:
    value = arrays.constant(op.operation.attributes["value"])
    return lambda operands: [value]


# In the order of the predicates' numbers. The signed ones of i1, whose 1 is -1, are those of exchanged operands.
_SIGNED = range(2, 6)
_INTEGER_PREDICATES: list[Callable[..., Any]] = [
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    *(lambda a, b, f=f: f(unsigned(a), unsigned(b)) for f in (np.less, np.less_equal, np.greater, np.greater_equal)),
]


def _unordered(a: Any, b: Any) -> Any:
    return np.isnan(a) | np.isnan(b)


_ORDERED = [np.equal, np.greater, np.greater_equal, np.less, np.less_equal, np.not_equal]
_FLOAT_PREDICATES: list[Callable[..., Any]] = [
    lambda a, b: np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool)[()],
    *(lambda a, b, f=f: f(a, b) & ~_unordered(a, b) for f in _ORDERED),
    lambda a, b: ~_unordered(a, b),
    *(lambda a, b, f=f: f(a, b) | _unordered(a, b) for f in _ORDERED),
    _unordered,
    lambda a, b: np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), bool)[()],
]


@rule("arith.cmpi", "arith.cmpf")
def compare(op: Any, frame: Any) -> Meaning:
    number, is_float = op.operation.attributes["predicate"].value, op.operation.name == "arith.cmpf"
    predicate = (_FLOAT_PREDICATES if is_float else _INTEGER_PREDICATES)[number]
    if not is_float and number in _SIGNED and _is_bit(op):
        return lambda operands: [predicate(*operands[::-1])]
    return lambda operands: [predicate(*operands)]


@rule("arith.select")
def select(op: Any, frame: Any) -> Meaning:
    def run(operands: list[Any]) -> list[Any]:
        condition, chosen, other = operands
        if np.ndim(condition) == 0:
            return [chosen if condition else other]
        shape = np.broadcast_shapes(np.shape(condition), np.shape(chosen), np.shape(other))
        for i, where in ((1, ~condition), (2, condition)):
            if np.size(operands[i]) >= arrays.LARGE and np.shape(operands[i]) == shape:
                source = other if i == 1 else chosen
                chosen = other = None
                free = arrays.take_if_free(operands, i)
                if free is not None:
                    np.copyto(free, source, where=where)
                    return [free]
                _, chosen, other = operands
        return [np.where(condition, chosen, other)]

    return run


@rule("arith.truncf", "arith.extf", "arith.convertf")
def cast_float(op: Any, frame: Any) -> Meaning:
    return lambda operands: operands


@rule("arith.index_cast", "arith.trunci", "arith.extsi", "arith.sitofp")
def cast_signed(op: Any, frame: Any) -> Meaning:
    dtype = arrays.value_dtype(op.operation.results[0].type)
    if dtype == np.bool_:
        return lambda operands: [(np.asarray(operands[0]) & 1).astype(bool)[()]]
    return lambda operands: [np.asarray(signed(operands[0])).astype(dtype)[()]]


@rule("arith.index_castui", "arith.extui", "arith.uitofp")
def cast_unsigned(op: Any, frame: Any) -> Meaning:
    dtype = arrays.value_dtype(op.operation.results[0].type)
    return lambda operands: [np.asarray(unsigned(operands[0])).astype(dtype)[()]]


@rule("arith.fptosi", "arith.fptoui")
def float_to_integer(op: Any, frame: Any) -> Meaning:
    dtype = arrays.value_dtype(op.operation.results[0].type)
    wide = np.int64 if op.operation.name == "arith.fptosi" else np.uint64
    return lambda operands: [np.asarray(operands[0]).astype(wide).astype(dtype)[()]]


@rule("arith.bitcast", "tensor.bitcast")
def bitcast(op: Any, frame: Any) -> Meaning:
    source, target = op.operation.operands[0].type, op.operation.results[0].type
    stored, seen = arrays.storage_dtype(source), arrays.storage_dtype(target)
    dtype = arrays.value_dtype(target)
    return lambda operands: [np.asarray(operands[0]).astype(stored).view(seen).astype(dtype)[()]]
