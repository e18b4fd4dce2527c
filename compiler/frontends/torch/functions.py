"""A function of torch as a module, which is what torch.export traces.

Modules and parameters that the function refers to, by its closure, names of its file, as a method or by
functools.partial, have gradients as those of a module that is traced have: torch.export takes them for constants.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch


class Function(torch.nn.Module):
    """A module around a function, with the function's own parameter names."""

    def __init__(self, function: Any):
        super().__init__()
        if not hasattr(function, "__name__") and not isinstance(function, functools.partial):
            function = function.__call__  # of an object: torch looks for its code
        referred = [*_referred(function)]
        for i, value in enumerate(v for v in referred if isinstance(v, torch.nn.Module)):
            self.add_module(f"module_{i}", value)
        self.referred = [v for v in referred if isinstance(v, torch.nn.Parameter)]
        try:
            inspect.signature(function)
        except ValueError:  # of functions that are not written in Python, such as scaled_dot_product_attention
            self.forward = lambda *args, **kwargs: function(*args, **kwargs)
            return
        self.forward = function
        # torch keeps the lines of functions named forward, and of those that it is told of.
        getattr(torch.fx.proxy, "_register_stack_trace_anchor", lambda _: None)(function)

    def parameters_among(self, constants: Mapping[str, Any]) -> dict[str, torch.nn.Parameter]:
        """Those of the function's parameters that a program of it has as constants on their memory, by the names there;
        these say that they need gradients, too."""
        found = {}
        for name, constant in constants.items():
            for parameter in self.referred:
                if isinstance(constant, torch.Tensor) and constant.is_set_to(parameter):
                    constant.requires_grad_(parameter.requires_grad)
                    found[name] = parameter
        return found


def _referred(function: Any) -> Iterator[torch.nn.Module | torch.nn.Parameter]:
    """The modules and parameters that a function, and functions of the same file that it calls, refer to."""
    file, seen, left = None, set(), [function]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.nn.Module | torch.nn.Parameter):
            if not isinstance(value, torch.jit.ScriptModule):
                yield value
        elif isinstance(value, types.MethodType):
            left += [value.__self__, value.__func__]
            if not isinstance(value.__self__, torch.nn.Module):
                left += getattr(value.__self__, "__dict__", {}).values()
        elif isinstance(value, functools.partial):
            left += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, list | tuple | dict):
            left += value.values() if isinstance(value, dict) else value
        elif isinstance(value, types.FunctionType) and file in (None, value.__module__):
            file = value.__module__
            with contextlib.suppress(ValueError):  # it refers to what is not there yet
                names = inspect.getclosurevars(value)
                left += [*names.nonlocals.values(), *names.globals.values()]
