"""Compiles MLIR text for the CPU as it stands, and runs it."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from attn_opt.compiler import pass_manager
from attn_opt.compiler.pipelines import STAGE_AFTER, cpu
from attn_opt.compiler.runtime.cpu import CpuKernel
from attn_opt.compiler.runtime.signature import Signature
from attn_opt.dialects import make_context
from attn_opt.dialects.assembly import parse_module
from attn_opt.dialects.reference.evaluator import find_function
from attn_opt.transforms.fuse_attention import FuseAttention
from crossed import crossed as crossed

CONTEXT = make_context()


def run_passes(items: Sequence[pass_manager.Item], module: Any) -> None:
    """Runs a pipeline. The module is verified as `compile` does it, after each level, and at the end; when fuzzing
    after each pass, which takes a third of the time."""
    fuzzing = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
    pass_manager.run(items, module, verify=True if fuzzing else STAGE_AFTER)
    assert module.operation.verify()


def kernel(text: str, before: Sequence[pass_manager.Item] = (), **options: Any) -> CpuKernel:
    """The function of `text`, lowered by the passes `before` and the CPU pipeline with `options`."""
    with CONTEXT:
        module = parse_module(text, "test.mlir", CONTEXT)
        signature = Signature.of(find_function(module))
        run_passes([*before, *cpu(**options)], module)
        return CpuKernel(module, signature)


def fused(text: str, **options: Any) -> CpuKernel:
    """The same, with what is attention in it fused."""
    return kernel(text, ["raise-attention", FuseAttention()], **options)


def relative_error(found: Any, expected: np.ndarray) -> float:
    """The largest difference over the largest expected magnitude."""
    found = np.asarray(found, np.float64)
    assert found.shape == expected.shape
    assert np.isfinite(found).all() == np.isfinite(expected).all()
    scale = np.abs(expected).max() if expected.size else 1.0
    return float(np.abs(found - expected).max() / (scale or 1.0)) if expected.size else 0.0
