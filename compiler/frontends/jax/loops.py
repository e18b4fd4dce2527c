"""Loops of fixed length, written out: attention is found in every layer of a model that scans over its layers.

    y, _ = jax.lax.scan(layer, x, weights)          # weights: [3, …]
  becomes
    y = layer(layer(layer(x, weights[0]), weights[1]), weights[2])

``fori_loop`` with constant bounds is such a scan too. StableHLO's ``while``, which these are otherwise, has no lowering
to linalg. ``approx_max_k`` and ``approx_min_k``, which XLA alone knows, are computed exactly.
"""

from collections.abc import Sequence
from typing import Any

import jax

from .complex import Pair, has_complex, is_complex, of_pairs

LONGEST = 128  # iterations that are written out
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # the parameters in which calls (jit, checkpoint, custom_jvp, …) hold code


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """What `jaxpr` computes, its scans and searches written out, also those inside of calls; to be traced. What is
    complex is a Pair, among `consts`, `args` and the results too."""
    known: dict[Any, Any] = {}

    def read(atom: Any) -> Any:
        if hasattr(atom, "val"):
            return Pair.of(atom.val) if is_complex(atom) else atom.val
        return known[atom]

    known.update(zip(jaxpr.constvars, consts, strict=True))
    known |= {v: Pair.of(x) for v, x in known.items() if is_complex(v) and not isinstance(x, Pair)}
    known.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        inputs = [read(atom) for atom in eqn.invars]
        if eqn.primitive.name == "scan" and eqn.params["length"] <= LONGEST:
            outputs = _scan(eqn.params, inputs)
        elif _is_search(eqn):
            outputs = _largest(eqn.params, *inputs)
        elif is_rewritten(body := _body(eqn)):
            outputs = evaluate(*_opened(body), inputs)
        elif has_complex(eqn):
            outputs = of_pairs(eqn, inputs)
        else:
            variables = list(dict.fromkeys(atom for atom in eqn.invars if not hasattr(atom, "val")))
            outputs = jax.core.eval_jaxpr(_alone(jaxpr, eqn, variables), (), *(known[v] for v in variables))
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _alone(jaxpr: Any, eqn: Any, variables: list[Any]) -> Any:
    """A jaxpr of one equation of `jaxpr`, as a function of `variables`."""
    names = jaxpr.debug_info
    if names is not None:
        names = names._replace(arg_names=("",) * len(variables), result_paths=("",) * len(eqn.outvars))
    return jaxpr.replace(constvars=[], invars=variables, outvars=eqn.outvars, eqns=[eqn], debug_info=names)


def is_rewritten(jaxpr: Any) -> bool:
    """Whether there is a scan, a search or what is complex in `jaxpr` or in what it calls; False for None."""
    if jaxpr is None:
        return False
    jaxpr, _ = _opened(jaxpr)
    return any(map(is_complex, jaxpr.invars)) or any(
        eqn.primitive.name == "scan" or _is_search(eqn) or has_complex(eqn) or is_rewritten(_body(eqn))
        for eqn in jaxpr.eqns
    )


def _body(eqn: Any) -> Any:
    """The code of a call, None for what is no call: loops and branches hold code as well."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    body = next((eqn.params[name] for name in CALLS if name in eqn.params), None)
    return body if body is not None and len(_opened(body)[0].invars) == len(eqn.invars) else None


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def _scan(params: dict[str, Any], inputs: Sequence[Any]) -> list[Any]:
    body, body_consts = _opened(params["jaxpr"])
    fixed, carried, length = params["num_consts"], params["num_carry"], params["length"]
    consts, carry, scanned = inputs[:fixed], list(inputs[fixed : fixed + carried]), inputs[fixed + carried :]
    rows: list[list[Any]] = [[] for _ in range(len(body.outvars) - carried)]
    for i in reversed(range(length)) if params["reverse"] else range(length):
        outputs = evaluate(body, body_consts, [*consts, *carry, *(_row(x, i) for x in scanned)])
        carry = outputs[:carried]
        for row, value in zip(rows, outputs[carried:], strict=True):
            row.append(value)
    if params["reverse"]:
        rows = [row[::-1] for row in rows]
    return [*carry, *(_stacked(row, v.aval) for row, v in zip(rows, body.outvars[carried:], strict=True))]


def _row(x: Any, i: int) -> Any:
    return x.mapped(lambda part: part[i]) if isinstance(x, Pair) else x[i]


def _stacked(rows: list[Any], aval: Any) -> Any:
    if not rows:
        return jax.numpy.zeros((0, *aval.shape), aval.dtype)
    if isinstance(rows[0], Pair):
        return Pair(*map(jax.numpy.stack, zip(*(row.whole(aval) for row in rows), strict=True)))
    return jax.numpy.stack(rows)


def _is_search(eqn: Any) -> bool:
    return eqn.primitive.name == "approx_top_k" and eqn.params["aggregate_to_topk"]


def _largest(params: dict[str, Any], x: Any) -> list[Any]:
    """The k largest numbers, or smallest ones, along a dimension, and where they are."""
    rows = jax.numpy.moveaxis(x, params["reduction_dimension"], -1)
    sign = 1 if params["is_max_k"] else -1
    values, places = jax.lax.top_k(sign * rows, params["k"])
    return [jax.numpy.moveaxis(found, -1, params["reduction_dimension"]) for found in (sign * values, places)]


__all__ = ["evaluate", "is_rewritten"]
