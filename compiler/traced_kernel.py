"""A kernel that is called as the function it was traced from: its argument structure, its array type."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..dialects.diagnostic import DiagnosedError
from ..dialects.mlir import ir
from .api import CompileError, Kernel
from .diagnostics import user_error
from .kernel import traced_call
from .runtime.signature import Traced


class Program(Protocol):
    """What a frontend makes of a function; see ``frontends/torch``."""

    @property
    def module(self) -> ir.Module: ...

    def flat(self, args: Any, kwargs: dict[str, Any]) -> list[Any]: ...

    def arguments(self, flat: Any) -> list[Any]: ...

    def results(self, arrays: Any, flat_inputs: Any) -> Any: ...


def call_error(traced: Any, given: Any, structures: str) -> DiagnosedError:
    """The user's error where a call's (arguments, named arguments) are not those that the function was traced with;
    `structures` tells them apart where their numbers and names do not."""

    def told(call: Any) -> str:
        args, kwargs = call
        names = ", ".join(f"'{name}'" for name in kwargs)
        return f"{len(args)} argument{'s' * (len(args) != 1)}{f' and {names} by name' if names else ''}"

    expected, found = told(traced), told(given)
    if expected == found:
        problem = f"was traced for {expected} in this structure: {structures}"
    else:
        problem = f"was traced for {expected}, but called with {found}"
    return user_error(problem, "call it as it was traced: with example_args in their order, example_kwargs by name")


def is_of_numpy(flat: Sequence[Any]) -> bool:
    """Whether a call's arguments are numpy arrays, and its results are to be."""
    return bool(flat) and all(isinstance(value, np.ndarray) for value in flat)


class TracedKernel(Kernel):
    """See the module."""

    def __init__(self, kernel: Kernel, program: Program):
        self.__dict__.update(kernel.__dict__)
        self.program = program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns. Numpy arrays are taken too, and results are then numpy arrays."""
        try:
            return self.called(self.program.flat(args, kwargs))
        except Traced:
            return traced_call(self, args, kwargs)
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None

    def called(self, flat: Any) -> Any:
        """What the function returns for the arguments `flat`."""
        return self.returned(self.run(self.bind(self.program.arguments(flat))), flat)

    def returned(self, results: list[np.ndarray], flat: Any) -> Any:
        """What the function returns, from the kernel's results on the arguments `flat`."""
        if is_of_numpy(flat):
            return results[0] if len(results) == 1 else tuple(results)
        return self.program.results(results, flat)
