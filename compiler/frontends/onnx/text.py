"""Pieces of the text of functions of ONNX, which ``onnx_contrib*.py`` put together."""

from collections.abc import Callable, Sequence
from typing import Any

# The node's; "opset" is the version, "shapes" are those of the inputs, "names" what their sizes are called.
Attributes = dict[str, Any]
Shape = Sequence[int | None] | None  # without the sizes that are not known; None where the rank is not
Has = Callable[[int], bool]  # whether the node has an input


def number(name: str, value: float, like: str = "x0") -> str:
    return f"{name}_64 = Constant<value_float = {float(value)!r}>()\n{name} = CastLike({name}_64, {like})\n"


def ints(name: str, *values: int) -> str:
    return f"{name} = Constant<value_ints = [{', '.join(map(str, values))}]>()\n"


def mean(a: Attributes, name: str, source: str) -> str:
    """Along the last dimension, which stays."""
    if a["opset"] < 18:
        return f"{name} = ReduceMean<axes = [-1]>({source})\n"
    return ints(f"{name}_axis", -1) + f"{name} = ReduceMean({source}, {name}_axis)\n"


def split(a: Attributes, names: Sequence[str], source: str, axis: int) -> str:
    """As many equal parts as there are names."""
    parts = f", num_outputs = {len(names)}" if a["opset"] >= 18 else ""
    return f"{', '.join(names)} = Split<axis = {axis}{parts}>({source})\n"


def rms_norm(a: Attributes, x: str, scale: str, epsilon: float, shift: str | None = None, result: str = "y0") -> str:
    """x/√(mean(x²) + ε)·scale + shift, along the last dimension."""
    r = f"{result}_"
    return (
        number(f"{r}epsilon", epsilon, x)
        + f"{r}squares = Mul({x}, {x})\n{mean(a, f'{r}mean', f'{r}squares')}{r}shifted = Add({r}mean, {r}epsilon)\n"
        + f"{r}rms = Sqrt({r}shifted)\n{r}normed = Div({x}, {r}rms)\n"
        + (
            f"{r}scaled = Mul({r}normed, {scale})\n{result} = Add({r}scaled, {shift})\n"
            if shift
            else f"{result} = Mul({r}normed, {scale})\n"
        )
    )


def arange(name: str, end: str) -> str:
    """0, 1, … below `end`, a list of one number."""
    n = f"{name}_"
    return (
        f"{n}zero = Constant<value_int = 0>()\n{n}one = Constant<value_int = 1>()\n{ints(f'{n}axis', 0)}"
        f"{n}end = Squeeze({end}, {n}axis)\n{name} = Range({n}zero, {n}end, {n}one)\n"
    )
