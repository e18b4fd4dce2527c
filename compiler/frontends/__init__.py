"""Graphs from elsewhere: functions traced by the framework that they are written in.

A framework is imported only when it made the function or its arguments, so that the core needs none.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..diagnostics import file_error, user_error
from ..sources import is_exported_function

if TYPE_CHECKING:
    from ..api import Kernel, Options


def compile_traced(
    source: Any, example_args: Sequence[Any] | None, target: str, options: "Options", tracing: dict[str, Any]
) -> Any:
    """The kernel of a Python function, traced by the framework of its arguments; a ShapesKernel for symbolic sizes."""
    if _is_torch(source, example_args, tracing.get("example_kwargs")):
        from .torch.tracing import TorchKernel, trace

        return TorchKernel.of_program(trace(source, example_args, **tracing), target, options)
    if _is_jax(source, example_args, tracing.get("example_kwargs")):
        from .jax.shapes import ShapesKernel, is_symbolic
        from .jax.tracing import JaxKernel, exported_call

        if "dynamic_shapes" in tracing:
            raise user_error("dynamic_shapes is for functions of torch; for JAX pass jax.export.symbolic_shape's sizes")
        if is_exported_function(source):
            source, example_args, tracing = exported_call(source, example_args, tracing)
        kwargs = tracing.get("example_kwargs")
        if is_symbolic(example_args, kwargs):
            return ShapesKernel(source, (tuple(example_args or ()), kwargs or {}), target, options)
        return JaxKernel.of_function(source, example_args, kwargs, target, options)
    if example_args is None:
        raise user_error("example_args are needed to trace a Python function: a tuple of arrays as it takes")
    kinds = sorted({f"{type(a).__module__}.{type(a).__name__}" for a in example_args}) or ["no type"]
    raise user_error(
        f"no frontend traces '{getattr(source, '__name__', type(source).__name__)}' with arguments of "
        f"{', '.join(kinds)}; pass torch tensors (pip install 'attn-opt[torch]'), jax arrays "
        "(pip install 'attn-opt[jax]'), MLIR text, a path or a module"
    )


def compile_onnx(
    source: Any, example_args: Sequence[Any] | None, target: str, options: "Options", tracing: dict[str, Any]
) -> "Kernel":
    """The kernel of an ONNX model."""
    if tracing:
        raise user_error(f"{', '.join(tracing)}: only for functions that are traced")
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise user_error("a model of ONNX needs the package onnx: pip install 'attn-opt[onnx]'") from None
    from .onnx.model import compile_onnx as compile_model

    return compile_model(source, example_args, target, options)


def load_exported_program(path: Any) -> Any:
    """The program that torch.export.save has written."""
    try:
        import torch
    except ImportError:
        raise user_error("a program of torch.export needs the package torch: pip install 'attn-opt[torch]'") from None
    from .lowering import first_line

    try:
        return torch.export.load(path)
    except OSError as error:
        raise file_error(os.fspath(path), "read", error) from None
    except Exception as error:
        raise user_error(f"{path} is no program of torch.export: {type(error).__name__}: {first_line(error)}") from None


def _is_torch(source: Any, example_args: Any, example_kwargs: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(source, torch.nn.Module | torch.export.ExportedProgram):
        return True
    leaves, _ = torch.utils._pytree.tree_flatten((example_args, example_kwargs))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)


def _is_jax(source: Any, example_args: Any, example_kwargs: Any) -> bool:
    """Whether the arguments are JAX's, or numpy's with JAX at hand: who calls with these has imported it."""
    jax = sys.modules.get("jax")
    if jax is None:
        return False
    if is_exported_function(source):
        return True
    leaves = jax.tree.leaves((example_args, example_kwargs))
    if any(isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) for leaf in leaves) or hasattr(source, "lower"):
        return True
    return any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves) or (
        bool(leaves) and all(isinstance(leaf, bool | int | float) for leaf in leaves)
    )
