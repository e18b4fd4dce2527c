"""Compares results with the float64 evaluation of a graph."""

import contextlib
import sys
import threading
from collections.abc import Sequence

import numpy as np

from ...dialects.diagnostic import DiagnosedError
from ...dialects.mlir import ir
from ...dialects.reference import evaluate
from ...dialects.reference.arrays import element_type
from ...dialects.reference.contraction import counting, in_single_precision
from ...dialects.reference.interface import EvaluationError
from .. import accuracy
from ..accuracy import TOLERANCES, errors
from ..diagnostics import diagnostic
from ..runtime.signature import Signature

SLACK = 8.0  # how much worse than a plain evaluation in its types a kernel may be
PATIENCE = 2.0  # seconds after which it is said what takes long


def tolerance(function: ir.OpView) -> float:
    """The tolerance of the narrowest float type that any value of the function has."""
    names: set[str] = set()

    def look(op: ir.Operation) -> ir.WalkResult:
        names.update(str(element_type(value.type)) for value in (*op.operation.operands, *op.operation.results))
        return ir.WalkResult.ADVANCE

    function.operation.walk(look)
    return accuracy.tolerance(names)


def reference(module: ir.Module, entry: str, inputs: Sequence[np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The results in float64, and the floating-point operations of the matmuls on the way."""
    note = threading.Timer(PATIENCE, lambda: print("attn-run: evaluating the graph in float64 …", file=sys.stderr))
    note.start()
    try:
        with counting() as counter:
            return evaluate(module, inputs, entry), counter.flops
    except EvaluationError as error:
        message = f"the check cannot evaluate this graph: {error.message}; run without it: --no-check"
        raise DiagnosedError([diagnostic("error", message, error.location)]) from None
    finally:
        note.cancel()


def limits(
    module: ir.Module,
    function: ir.OpView,
    inputs: Sequence[np.ndarray],
    results: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> list[float]:
    """The tolerance of each result.

    Where a result is outside of that of its types, the graph may be to blame: softmax of large logits, say, loses
    digits in any order of computation. So the graph is evaluated once more with the result of every op rounded to its
    type, and sums of products in single precision unless all is f64; a few times the error of that is tolerated.
    """
    allowed = [tolerance(function)] * len(results)
    found = [errors(result, right)[1] for result, right in zip(results, expected, strict=True)]
    if all(error <= limit or not np.isfinite(error) for error, limit in zip(found, allowed, strict=True)):
        return allowed
    with contextlib.nullcontext() if allowed[0] <= TOLERANCES["f64"] else in_single_precision():
        rounded = evaluate(module, inputs, function.name.value, round_values=True)
    unavoidable = [errors(result, right)[1] for result, right in zip(rounded, expected, strict=True)]
    return [max(a, SLACK * u) if np.isfinite(u) else a for a, u in zip(allowed, unavoidable, strict=True)]


def report(
    signature: Signature, results: Sequence[np.ndarray], expected: Sequence[np.ndarray], allowed: Sequence[float]
) -> tuple[bool, list[dict[str, str]]]:
    """Prints the errors of every result; whether all are within the tolerances, and the table."""
    passed, table = True, []
    print(f"{'result':<8}{'type':<28}{'max abs error':>15}{'max rel error':>15}{'tolerance':>12}")
    for i, (kind, result, right) in enumerate(zip(signature.results, results, expected, strict=True)):
        limit = allowed[i] if np.issubdtype(right.dtype, np.floating) else 0.0
        absolute, relative = errors(result, right)
        good = relative <= limit
        passed &= good
        verdict = "PASS" if good else "FAIL"
        print(f"{i:<8}{kind!s:<28}{absolute:>15.2e}{relative:>15.2e}{limit:>12.1e}  {verdict}")
        numbers = {"max abs error": absolute, "max rel error": relative, "tolerance": limit}
        table.append(
            {"result": str(i), "type": str(kind), **{name: f"{n:.2e}" for name, n in numbers.items()}, "": verdict}
        )
        if np.issubdtype(right.dtype, np.floating) and np.isnan(right).any():
            print("        the graph itself yields NaN here: does it read a tensor.empty, or divide 0 by 0?")
    print("PASS" if passed else "FAIL: the results differ from the float64 evaluation of the graph", flush=True)
    return passed, table
