"""Arithmetic on scalars and, elementwise, on whole arrays (tensors, and the bodies of linalg ops)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from . import arrays
from .interface import Meaning, rule


def elementwise(name: str, function: Callable[..., Any]) -> None:
    """Registers a rule that applies `function`; a ufunc works in place where it can."""
    if isinstance(function, np.ufunc):
        ufunc = function
        rule(name)(lambda op, frame: lambda operands: [arrays.apply(ufunc, operands)])
    else:
        rule(name)(lambda op, frame: lambda operands: [function(*operands)])


def unsigned(value: Any) -> Any:
    """The same bits as an unsigned integer."""
    value = np.asarray(value)
    return value if value.dtype == np.bool_ else value.view(f"uint{8 * value.dtype.itemsize}")


def signed(value: Any) -> Any:
    """i1 as the signed integer that it is, 0 or -1; other integers unchanged."""
    return -np.asarray(value).astype(np.int8) if np.asarray(value).dtype == np.bool_ else value


def on_unsigned(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on the operands' bits as unsigned integers, the result in the operands' type."""

    def run(*operands: Any) -> Any:
        return np.asarray(function(*map(unsigned, operands))).astype(np.asarray(operands[0]).dtype)[()]

    return run


def wrapping(function: Callable[..., Any], on_bits: Callable[..., Any]) -> Callable[..., Any]:
    """`function` on integers; `on_bits` on i1, where addition and multiplication are modulo 2."""
    return lambda a, b: (on_bits if np.asarray(a).dtype == np.bool_ else function)(a, b)


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
    "addi": wrapping(np.add, np.logical_xor),
    "subi": wrapping(np.subtract, np.logical_xor),
    "muli": wrapping(np.multiply, np.logical_and),
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
    "maxsi": wrapping(np.maximum, np.logical_and),
    "minsi": wrapping(np.minimum, np.logical_or),
    "maxui": on_unsigned(np.maximum),
    "minui": on_unsigned(np.minimum),
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "shrui": on_unsigned(np.right_shift),
}
for _name, _function in _FUNCTIONS.items():
    elementwise(f"arith.{_name}", _function)


@rule("arith.constant")
def constant(op: Any, frame: Any) -> Meaning:
    value = arrays.constant(op.operation.attributes["value"])
    return lambda operands: [value]


# In the order of the predicates' numbers.
_INTEGER_PREDICATES: list[Callable[..., Any]] = [
    np.equal,
    np.not_equal,
    *(lambda a, b, f=f: f(signed(a), signed(b)) for f in (np.less, np.less_equal, np.greater, np.greater_equal)),
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
    predicates = _INTEGER_PREDICATES if op.operation.name == "arith.cmpi" else _FLOAT_PREDICATES
    predicate = predicates[op.operation.attributes["predicate"].value]
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
