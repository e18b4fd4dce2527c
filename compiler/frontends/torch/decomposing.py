"""Decomposing a traced program.

torch's own way, `ExportedProgram.run_decompositions`, makes a module of the program, runs it to find what it writes to,
runs it once more to write its ops down, and makes a program of that: three times as long as to write them down alone,
which is all there is to do where nothing is written to.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.export.exported_program
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode, dispatch_functionalize
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from .casts import forget_asserts
from .programs import renamed, with_graph

try:
    from torch._higher_order_ops.effects import has_effects
    from torch.export._trace import _ignore_backend_decomps
    from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp as _split
except ImportError:  # a version of torch without them
    _split = None  # type: ignore[assignment]
else:
    _WITHOUT_ARGUMENTS: Any = ((), {})[: len(inspect.signature(has_effects).parameters) - 1]  # which 2.10 asks for

Rules = dict[Any, Callable]


def decomposed(program: ExportedProgram, rules: Rules) -> ExportedProgram:
    """What ``program.run_decompositions(rules)`` gives."""
    module = None if _split is None else _written_down(program, rules)
    if module is None:
        return program.run_decompositions(rules)
    return with_graph(program, module, renamed(program.graph_signature, module.graph))


def _written_down(program: ExportedProgram, rules: Rules) -> GraphModule | None:
    """The program's graph, decomposed; None where that takes more than to run it."""
    if any(spec.kind != OutputKind.USER_OUTPUT for spec in program.graph_signature.output_specs):
        return None
    if any(map(_is_special, program.graph.nodes)):
        return None
    placeholders = program.graph.find_nodes(op="placeholder")
    values = [node.meta.get("val") for node in placeholders]
    mode = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    if mode is None or any(isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) for value in values):
        return None
    run = torch.fx.Interpreter(program.graph_module).run
    try:
        with _ruled_by(rules, mode) as others:
            module = None
            if not any(map(_writes, program.graph.nodes)):
                module = _traced(run, others, values)
            if module is None or any(map(_writes, module.graph.nodes)):  # rules write to what they make, too
                written: list[FunctionalTensor] = []
                module = _traced(_functional(run, written), others, values)
                if written:
                    return None
    except Exception:  # torch's own way succeeds, or tells what it is
        return None
    forget_asserts(module.graph)
    if any(_is_special(node) or _writes(node) for node in module.graph.nodes):
        return None
    for made, placeholder in zip(module.graph.find_nodes(op="placeholder"), placeholders, strict=True):
        made.target = placeholder.target
        made.meta.setdefault("val", placeholder.meta.get("val"))
        made._rename(placeholder.name)
    return module


@contextlib.contextmanager
def _ruled_by(rules: Rules, mode: FakeTensorMode) -> Iterator[Rules]:
    """Within it, composite ops stay whole, or are taken apart by their rules; gives those of others."""
    composite, others = _split(dict(rules))
    with (
        _ignore_backend_decomps(),
        mode,
        torch.export.exported_program._override_composite_implicit_decomp(composite),
        enable_python_dispatcher(),
        torch.no_grad(),
        preserve_node_meta(),
    ):
        yield others


def _traced(run: Callable, rules: Rules, values: Sequence[Any]) -> GraphModule:
    module = make_fx(run, rules)(*values)
    module.graph.eliminate_dead_code()
    return module


def _functional(run: Callable, written: list[FunctionalTensor]) -> Callable:
    """`run` without writes. Inputs that it writes to are `written`."""

    def noting(*values: Any) -> Any:
        results = run(*values)
        for value in values:
            if isinstance(value, FunctionalTensor):
                torch._sync(value)
                if torch._functionalize_has_data_mutation(value.elem):
                    written.append(value)
        return results

    return dispatch_functionalize(noting, FunctionalTensorMode(export=True))


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _is_special(node: Node) -> bool:
    """Whether a node has graphs of its own, effects, or what no input of the program gives."""
    target = node.target
    if node.op == "get_attr" or isinstance(target, torch._ops.HigherOrderOperator):
        return True
    return isinstance(target, torch._ops.OpOverload) and has_effects(target, *_WITHOUT_ARGUMENTS)
