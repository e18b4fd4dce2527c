"""A kernel that is called as the function it was traced from: its argument structure, its array type."""

from typing import Any, Protocol

import numpy as np

from ..dialects.diagnostic import DiagnosedError
from ..dialects.mlir import ir
from .api import CompileError, Kernel
from .kernel import traced_call
from .runtime.signature import Traced


class Program(Protocol):
    """What a frontend makes of a function; see ``frontends/torch.py``."""

    @property
    def module(self) -> ir.Module: ...

    def flat(self, args: Any, kwargs: dict[str, Any]) -> list[Any]: ...

    def arguments(self, flat: Any) -> list[Any]: ...

    def results(self, arrays: Any, flat_inputs: Any) -> Any: ...


class TracedKernel(Kernel):
    """See the module."""

    def __init__(self, kernel: Kernel, program: Program):
        self.__dict__.update(kernel.__dict__)
        self.program = program

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns. Numpy arrays are taken too, and results are then numpy arrays."""
        try:
            flat = self.program.flat(args, kwargs)
            results = self.run(self.bind(self.program.arguments(flat)))
            return self.returned(results, flat)
        except Traced:
            return traced_call(self, args, kwargs)
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None

    def returned(self, results: list[np.ndarray], flat: Any) -> Any:
        """What the function returns, from the kernel's results on the arguments `flat`."""
        if flat and all(isinstance(a, np.ndarray) for a in flat):
            return results[0] if len(results) == 1 else tuple(results)
        return self.program.results(results, flat)
