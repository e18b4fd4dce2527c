"""Complex numbers of JAX as pairs of real ones: rotary positions are often written as products of complex numbers.

    lax.complex(x[…, 0], x[…, 1])   x[…, 0], x[…, 1]
    jnp.exp(1j * a)                 cos a, sin a
    x * y                           re·re − im·im, re·im + im·re
    x[…], x.reshape(…), …           the same of both parts

Arguments and results that are complex are passed as arrays of floats, the two parts along one more dimension, the last.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .places import at_place_of, place_of_equation, refusal

Part = Any  # a real array, or None for a part that is 0


@dataclasses.dataclass(frozen=True)
class Pair:
    re: Part
    im: Part

    @staticmethod
    def of(value: Any) -> "Pair":
        """Of a known number or array."""
        re, im = np.real(value), np.imag(value)
        return Pair(*(part if np.any(part) or np.ndim(value) else None for part in (re, im)))

    def mapped(self, fn: Callable) -> "Pair":
        return Pair(*(None if part is None else fn(part) for part in (self.re, self.im)))

    def whole(self, aval: Any) -> tuple[Any, Any]:
        """Both parts, zeros where one is none."""
        zeros = jnp.zeros(aval.shape, real_type(aval.dtype))
        return tuple(zeros if part is None else part for part in (self.re, self.im))  # type: ignore[return-value]


def is_complex(atom: Any) -> bool:
    """Whether a variable or literal of a jaxpr is."""
    return jax.dtypes.issubdtype(getattr(atom.aval, "dtype", bool), np.complexfloating)  # tokens have none


def has_complex(eqn: Any) -> bool:
    return any(map(is_complex, (*eqn.invars, *eqn.outvars)))


def real_type(dtype: Any) -> np.dtype:
    """That of the parts; other types as they are."""
    return np.zeros(0, dtype).real.dtype if jax.dtypes.issubdtype(dtype, np.complexfloating) else np.dtype(dtype)


def of_pairs(eqn: Any, inputs: Sequence[Any]) -> list[Any]:
    """What an equation computes, some of whose `inputs` or results are pairs. A user's error where there is no rule."""
    rule = RULES.get(eqn.primitive.name)
    with at_place_of(eqn):
        made = None if rule is None else rule(eqn, *inputs)
    if made is None:
        problem = f"'{eqn.primitive.name}' of complex numbers is not supported: compute with real and imaginary parts"
        raise refusal(problem, place_of_equation(eqn))
    return made if isinstance(made, list) else [made]


def _times(a: Part, b: Part) -> Part:
    return None if a is None or b is None else a * b


def _plus(a: Part, b: Part) -> Part:
    return b if a is None else a if b is None else a + b


def _minus(a: Part, b: Part) -> Part:
    return a if b is None else -b if a is None else a - b


def _product(x: Pair, y: Pair, times: Callable[[Part, Part], Part] = _times) -> Pair:
    return Pair(
        _minus(times(x.re, y.re), times(x.im, y.im)),
        _plus(times(x.re, y.im), times(x.im, y.re)),
    )


def _quotient(eqn: Any, x: Pair, y: Pair) -> Pair:
    if y.im is None:
        return x.mapped(lambda part: part / y.re)
    size = _plus(_times(y.re, y.re), _times(y.im, y.im))
    return _product(x, Pair(y.re, -y.im)).mapped(lambda part: part / size)


def _exp(eqn: Any, x: Pair) -> Pair:
    size = None if x.re is None else jnp.exp(x.re)
    if x.im is None:
        return Pair(jnp.ones(eqn.outvars[0].aval.shape, real_type(x.re.dtype)) if size is None else size, None)
    turn = Pair(jnp.cos(x.im), jnp.sin(x.im))
    return turn if size is None else turn.mapped(lambda part: size * part)


def _absolute(eqn: Any, x: Pair) -> Any:
    if x.re is None or x.im is None:
        return abs(_plus(x.re, x.im))
    return jnp.sqrt(x.re * x.re + x.im * x.im)


def _power(eqn: Any, x: Pair) -> Pair | None:
    exponent = eqn.params.get("y", 2)
    if exponent < 1:
        return None
    result = x
    for _ in range(exponent - 1):
        result = _product(result, x)
    return result


def _converted(eqn: Any, x: Any) -> Any:
    to = eqn.params["new_dtype"]
    x = x if isinstance(x, Pair) else Pair(x, None)
    if not jax.dtypes.issubdtype(to, np.complexfloating):
        return x.whole(eqn.invars[0].aval)[0].astype(to)
    return x.mapped(lambda part: part.astype(real_type(to)))


def _conjugate(eqn: Any, x: Any) -> Pair:
    return Pair(x.re, None if x.im is None else -x.im) if isinstance(x, Pair) else Pair(x, None)


def _matmul(eqn: Any, x: Pair, y: Pair) -> Pair:
    wanted = eqn.params["preferred_element_type"]
    params = {**eqn.params, "preferred_element_type": None if wanted is None else real_type(wanted)}

    def times(a: Part, b: Part) -> Part:
        return None if a is None or b is None else eqn.primitive.bind(a, b, **params)

    return _product(x, y, times)


def _linear(eqn: Any, *inputs: Any) -> list[Any]:
    """The same of both parts; operands that are real, such as indices, are those of both."""
    results = []
    for number in range(2):
        if all((x.re, x.im)[number] is None for x in inputs if isinstance(x, Pair)):
            results.append([None] * len(eqn.outvars))
            continue
        parts = [x.whole(v.aval)[number] if isinstance(x, Pair) else x for x, v in zip(inputs, eqn.invars, strict=True)]
        made = eqn.primitive.bind(*parts, **eqn.params)
        results.append(made if eqn.primitive.multiple_results else [made])
    return [Pair(*parts) for parts in zip(*results, strict=True)]


RULES: dict[str, Callable] = {
    **dict.fromkeys(
        (
            *("reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev"),
            *("dynamic_update_slice", "gather", "concatenate", "pad", "split", "select_n", "copy", "reduce_sum"),
            *("cumsum", "neg", "optimization_barrier", "sharding_constraint"),
        ),
        _linear,
    ),
    **dict.fromkeys(("add", "add_any"), lambda eqn, x, y: Pair(_plus(x.re, y.re), _plus(x.im, y.im))),
    "abs": _absolute,
    "complex": lambda eqn, re, im: Pair(re, im),
    "conj": _conjugate,
    "convert_element_type": _converted,
    "div": _quotient,
    "dot_general": _matmul,
    "exp": _exp,
    "imag": lambda eqn, x: x.whole(eqn.invars[0].aval)[1],
    "integer_pow": _power,
    "mul": lambda eqn, x, y: _product(x, y),
    "real": lambda eqn, x: x.whole(eqn.invars[0].aval)[0],
    "square": _power,
    "sub": lambda eqn, x, y: Pair(_minus(x.re, y.re), _minus(x.im, y.im)),
}


def joined(value: np.ndarray) -> np.ndarray:
    """A complex array as one of floats, on its memory if that is contiguous."""
    value = np.ascontiguousarray(value).reshape(np.shape(value))
    return value[..., None].view(value.real.dtype)


def parted(value: jax.Array) -> Pair:
    """What `joined` made, as the kernel reads it."""
    return Pair(value[..., 0], value[..., 1])


def stacked(value: Pair, aval: Any) -> jax.Array:
    """A result of type `aval` as the kernel writes it."""
    return jnp.stack(value.whole(aval), axis=-1)


def unstacked(value: Any, dtype: np.dtype) -> Any:
    """What `stacked` made as a complex array, on its memory if it is one of numpy."""
    return value.view(dtype)[..., 0] if isinstance(value, np.ndarray) else jax.lax.complex(value[..., 0], value[..., 1])
