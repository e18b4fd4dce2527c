"""Tensors to call functions and modules of torch with, and comparison with torch in float64."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attn_opt.compiler import compile
from attn_opt.dialects.mlir import ir
from gpu_modules import run

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 1e-2}


@pytest.fixture(autouse=True)
def with_gradients():
    with torch.enable_grad():
        yield


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes)


def wide(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def close(found, expected, dtype=torch.float32):
    assert found.shape == expected.shape and found.dtype == dtype
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[dtype], error


def check(function, args, raised=1, **options):
    kernel = compile(function, args, **options)
    with torch.no_grad():
        close(kernel(*args), function(*map(wide, args)), args[0].dtype)
    assert kernel.ir("raised").count("linalg_ext.softmax") == raised
    return kernel


def sdpa(**keywords):
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **keywords)


SHAPES = ((2, 4, 9, 8), (2, 4, 13, 8), (2, 4, 13, 6))


def run_as_on_gpu(module: ir.Module, args: Sequence[torch.Tensor], dtypes: Sequence[torch.dtype]) -> list[torch.Tensor]:
    """The results, of these types, of a module that `gpu_modules.lowered` made of a traced graph."""
    found = run(module, [wide(x).numpy() for x in args])
    return [torch.from_numpy(np.ascontiguousarray(x)).to(dtype) for x, dtype in zip(found, dtypes, strict=True)]
