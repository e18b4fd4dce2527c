"""Graphs from elsewhere: functions traced by the framework that they are written in.

A framework is imported only when it made the function or its arguments, so that the core needs none.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..diagnostics import user_error

if TYPE_CHECKING:
    from ..api import Kernel, Options


def compile_traced(
    source: Any, example_args: Sequence[Any] | None, target: str, options: "Options", tracing: dict[str, Any]
) -> "Kernel":
    """The kernel of a Python function, traced by the framework of its arguments."""
    if _is_torch(source, example_args, tracing.get("example_kwargs")):
        from ..traced_kernel import compile_program
        from .torch import trace

        return compile_program(trace(source, example_args, **tracing), target, options)
    if example_args is None:
        raise user_error("example_args are needed to trace a Python function: a tuple of arrays as it takes")
    kinds = sorted({f"{type(a).__module__}.{type(a).__name__}" for a in example_args})
    raise user_error(
        f"no frontend traces '{getattr(source, '__name__', type(source).__name__)}' with arguments of "
        f"{', '.join(kinds)}; pass torch tensors (pip install 'attn-opt[torch]'), MLIR text, a path or a module"
    )


def _is_torch(source: Any, example_args: Any, example_kwargs: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(source, torch.nn.Module | torch.export.ExportedProgram):
        return True
    leaves, _ = torch.utils._pytree.tree_flatten((example_args, example_kwargs))
    return any(isinstance(leaf, torch.Tensor) for leaf in leaves)
