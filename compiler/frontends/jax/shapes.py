"""Functions of JAX for symbolic sizes: a kernel for each shape that they are called with.

    b, s = jax.export.symbolic_shape("b, s")
    kernel = compile(fn, [jax.ShapeDtypeStruct((b, s, 4, 64), jnp.float32)] * 3)
    kernel(q, k, v)        # compiled at the first call with sizes, for these sizes

Sizes that are one symbol must be equal; what `fn` asks of sizes otherwise shows when it is traced for them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ....dialects.diagnostic import DiagnosedError
from ...api import CompileError, Kernel, Options
from ...diagnostics import user_error
from .tracing import JaxKernel


def is_symbolic(example_args: Any, example_kwargs: Any) -> bool:
    """Whether a size among the arguments' is a symbol."""
    leaves = jax.tree.leaves((example_args, example_kwargs))
    sizes = [d for leaf in leaves for d in getattr(leaf, "shape", ())]
    return any(not isinstance(d, int | np.integer) for d in sizes)


@dataclasses.dataclass(eq=False, repr=False)
class ShapesKernel:
    """See the module. `kernels` are those that were compiled so far, by the shapes of all arguments."""

    source: Callable
    example: tuple[tuple, dict[str, Any]]
    target: str
    options: Options
    kernels: dict[Any, JaxKernel] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        name = getattr(self.source, "__name__", type(self.source).__name__)
        return f"<ShapesKernel {name} for {self.target}, compiled for {len(self.kernels)} shapes so far>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel(*args, **kwargs)(*args, **kwargs)

    def kernel(self, *args: Any, **kwargs: Any) -> JaxKernel:
        """The kernel for arguments like these."""
        try:
            given = self._like(args, kwargs)
            key = tuple(np.shape(leaf) for leaf in jax.tree.leaves(given))
            if key not in self.kernels:
                like_args, like_kwargs = given
                kernel = JaxKernel.of_function(self.source, like_args, like_kwargs, self.target, self.options)
                self.kernels[key] = kernel
                if self.options.listener is None:
                    kernel.warn_of_left(stacklevel=4)
            return self.kernels[key]
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None

    def _like(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The example arguments with the sizes of these; a user's error where the sizes do not fit."""
        wanted, structure = jax.tree.flatten(self.example)
        leaves, found = jax.tree.flatten((args, kwargs))
        if found != structure:
            raise user_error(
                f"is for {structure.num_leaves} arguments in this structure: {structure}, but called with {found}"
            )
        sizes: dict[str, int] = {}
        shaped = []
        for i, (leaf, example) in enumerate(zip(leaves, wanted, strict=True)):
            if not hasattr(example, "shape"):
                shaped.append(leaf)
                continue
            shape, symbols = np.shape(leaf), example.shape
            if len(shape) != len(symbols):
                raise user_error(f"argument {i} must have {len(symbols)} dimensions, but is of shape {list(shape)}")
            for d, (size, symbol) in enumerate(zip(shape, symbols, strict=True)):
                if sizes.setdefault(str(symbol), size) != size or (isinstance(symbol, int) and symbol != size):
                    expected = symbol if isinstance(symbol, int) else f"{sizes[str(symbol)]}, as {symbol} elsewhere"
                    raise user_error(f"dimension {d} of argument {i} must be {expected}, but is {size}")
            shaped.append(jax.ShapeDtypeStruct(shape, example.dtype))
        return jax.tree.unflatten(structure, shaped)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and (hasattr(Kernel, name) or name == "signature"):
            message = f"'{name}' is there for given sizes: of kernel(*args) or one of .kernels after a call"
            raise CompileError(user_error(message).diagnostics)
        raise AttributeError(name)
