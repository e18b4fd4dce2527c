"""Programs such as torch.export gives, of graphs that are there already."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch._export.verifier import TrainingIRVerifier
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

SYMBOLS = {torch.SymInt: SymIntArgument, torch.SymFloat: SymFloatArgument, torch.SymBool: SymBoolArgument}


def program_of(
    module: GraphModule, specs: Sequence[InputSpec], held: Sequence[torch.Tensor], example: Sequence[Any]
) -> ExportedProgram:
    """The program of a graph that writes to no input, and takes what is `held`, of which `specs` tell, and then the
    tensors of the `example`. The program takes all that is in the example; what is no tensor there is a constant, and
    so are tensors that the graph has as its own."""
    graph = torch.fx.Graph()
    copied: dict[Node, Node] = {}
    placeholders = iter(module.graph.find_nodes(op="placeholder"))
    inputs = []
    for spec in specs:
        node = _copied(graph, next(placeholders), copied)
        inputs.append(dataclasses.replace(spec, arg=TensorArgument(node.name)))
    constants = {s.target: value for s, value in zip(specs, held, strict=True) if s.kind == InputKind.CONSTANT_TENSOR}
    for own in module.graph.find_nodes(op="get_attr"):
        value = getattr(module, own.target)
        if isinstance(value, torch.Tensor):
            copied[own] = node = graph.placeholder(own.name)
            node.meta = dict(own.meta)
            target = f"own.{own.target}"  # of the program that the graph comes from there may be one of that name
            constants[target] = value
            inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target))
    for value in example:
        if isinstance(value, torch.Tensor):
            argument: Any = TensorArgument(_copied(graph, next(placeholders), copied).name)
        else:
            node = graph.placeholder("constant")
            node.meta["val"] = value
            argument = ConstantArgument(node.name, value)
        inputs.append(InputSpec(InputKind.USER_INPUT, argument, None))
    results = graph.graph_copy(module.graph, copied)
    graph.output(results)
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(example), {})),
        out_spec=pytree.tree_structure(tuple(results)),
    )
    return ExportedProgram(
        module,
        graph,
        ExportGraphSignature(inputs, [OutputSpec(OutputKind.USER_OUTPUT, _argument(r), None) for r in results]),
        {s.target: value for s, value in zip(specs, held, strict=True) if s.target not in constants},
        {},
        [ModuleCallEntry("", call)],
        (tuple(example), {}),
        constants,
        verifiers=[TrainingIRVerifier],  # which takes ops that write to what others make
    )


def with_graph(program: ExportedProgram, module: GraphModule, signature: ExportGraphSignature) -> ExportedProgram:
    """The program with another graph. (torch looks at each op of a program that it makes, and refuses functions of
    ours in it.)"""
    made = copy.copy(program)
    made._graph_module = module
    made._graph_module.meta.update(program.graph_module.meta)
    made._graph_signature = signature
    return made


def renamed(signature: ExportGraphSignature, graph: torch.fx.Graph) -> ExportGraphSignature:
    """The signature for a graph whose inputs and outputs are the same under other names, and none is written to."""
    inputs = zip(signature.input_specs, graph.find_nodes(op="placeholder"), strict=True)
    outputs = zip(signature.output_specs, graph.output_node().args[0], strict=True)
    return ExportGraphSignature(
        [dataclasses.replace(spec, arg=_argument(node, spec.arg)) for spec, node in inputs],
        [dataclasses.replace(spec, arg=_argument(node, spec.arg)) for spec, node in outputs],
    )


def _argument(value: Any, constant: Any = None) -> Any:
    """What a signature has of an input, or an output; `constant`: what it had where it may be one."""
    if isinstance(constant, ConstantArgument):
        return constant
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    return SYMBOLS.get(type(value.meta["val"]), TensorArgument)(value.name)


def _copied(graph: torch.fx.Graph, placeholder: Node, copied: dict[Node, Node]) -> Node:
    copied[placeholder] = graph.node_copy(placeholder)
    return copied[placeholder]
