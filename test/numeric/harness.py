"""Compiles MLIR text for the CPU as it stands, and runs it."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from attn_opt.compiler import pass_manager
from attn_opt.compiler.pipelines import cpu
from attn_opt.compiler.runtime.cpu import CpuKernel
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference.evaluator import find_function

CONTEXT = make_context()


def kernel(text: str, **options: Any) -> CpuKernel:
    """The function of `text`, lowered by the CPU pipeline with `options`."""
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        signature = Signature.of(find_function(module))
        pass_manager.run(cpu(**options), module)
        return CpuKernel(module, signature)


def crossed(first: Sequence, *others: Sequence) -> list:
    """Parameters: all combinations. Each of `first` with one of the others, in turn, is quick; the rest is slow."""
    found = []
    for at in itertools.product(*(range(len(values)) for values in (first, *others))):
        turn, is_quick = at[0], True
        for values, i in zip(others, at[1:], strict=True):
            is_quick &= turn % len(values) == i
            turn //= len(values)
        values = [axis[i] for axis, i in zip((first, *others), at, strict=True)]
        found.append(pytest.param(*values, id="-".join(map(str, values)), marks=() if is_quick else pytest.mark.slow))
    return found


def relative_error(found: Any, expected: np.ndarray) -> float:
    """The largest difference over the largest expected magnitude."""
    found = np.asarray(found, np.float64)
    assert found.shape == expected.shape
    assert np.isfinite(found).all() == np.isfinite(expected).all()
    scale = np.abs(expected).max() if expected.size else 1.0
    return float(np.abs(found - expected).max() / (scale or 1.0)) if expected.size else 0.0
