"""Graphs of torch without their code: it writes down each graph that it makes as a function of Python, and compiles
that, a tenth of the time that it takes to trace a layer; here graphs are read, and few are run."""

import contextlib

try:
    from torch.fx._lazy_graph_module import _use_lazy_graph_module
except ImportError:  # a version of torch without it
    _use_lazy_graph_module = None  # type: ignore[assignment]


def code_when_run() -> contextlib.AbstractContextManager[None]:
    """Within the block, a graph's code is written where it is first run. (What dynamo reads needs it at once.)"""
    return contextlib.nullcontext() if _use_lazy_graph_module is None else _use_lazy_graph_module(True)
