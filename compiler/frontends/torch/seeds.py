"""Active dropouts of a traced program: each call draws the numbers that their masks are made of.

    %y = aten.dropout(%x, 0.1, True)      →      %y = _dropout(%seeds, 0, %x, 0.1)

`seeds`, [dropouts, 2] of int32, are one more input, behind all others, by which a derivative has the masks of the call
that it is of. They are not those that torch would draw: see ``dropout_masks.py``.
"""

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from .dropout import dropped, scaled_dot_product_attention, seeded
from .programs import with_graph
from .shapes import let_views_copy

aten = torch.ops.aten
NUMBERS = -(2**31), 2**31  # of int32
NAME = "attn_opt_seeds"
DROPOUTS = (aten.dropout.default, aten.dropout_.default)
ATTENTION = aten.scaled_dot_product_attention.default


def draw(count: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Seeds of so many dropouts, by torch's generator: torch.manual_seed repeats them, a CUDA graph draws anew."""
    return torch.randint(*NUMBERS, (count, 2), dtype=torch.int32, device=device)


def with_seeds(program: ExportedProgram) -> tuple[ExportedProgram, int]:
    """The program with the seeds of its active dropouts as an input, and how many these are; itself where none is."""
    if not any(map(_is_active, program.graph.nodes)):
        return program, 0
    graph = copy.deepcopy(program.graph)
    let_views_copy(graph)  # results of attention lie in memory otherwise than torch's own do
    dropouts = [node for node in graph.nodes if _is_active(node)]
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        seeds = graph.placeholder(NAME)
    value = dropouts[0].meta["val"]
    example = torch.zeros((len(dropouts), 2), dtype=torch.int32)
    with value.fake_mode as mode:
        seeds.meta["val"] = mode.from_tensor(example, static_shapes=True).to(value.device)
    for number, node in enumerate(dropouts):
        given: dict[str, Any] = _given(node)
        function: Any = _attention
        if given.pop("train", False):
            function = _dropout
            given["is_inplace"] = node.target is aten.dropout_.default
        node.target, node.args, node.kwargs = function, (seeds, number), given
    return _taking(program, graph, example.to(value.device)), len(dropouts)


def _taking(program: ExportedProgram, graph: torch.fx.Graph, seeds: torch.Tensor) -> ExportedProgram:
    """The program with this graph, which takes such seeds besides. Functions of ours in it are gone once it is
    decomposed."""
    signature = program.graph_signature
    spec = InputSpec(InputKind.USER_INPUT, TensorArgument(NAME), None)
    signature = dataclasses.replace(signature, input_specs=[*signature.input_specs, spec])
    made = with_graph(program, GraphModule(program.graph_module, graph), signature)
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        made._example_inputs = args, {**kwargs, NAME: seeds}
    whole, *parts = program.module_call_graph
    in_spec = whole.signature.in_spec
    args, kwargs = pytree.tree_unflatten(range(in_spec.num_leaves), in_spec)
    in_spec = pytree.tree_structure((args, {**kwargs, NAME: seeds}))
    called = dataclasses.replace(whole.signature, in_spec=in_spec, inputs=[*whole.signature.inputs, spec.arg])
    if getattr(called, "forward_arg_names", None) is not None:  # names of arguments where torch knows them
        called = dataclasses.replace(called, forward_arg_names=[*called.forward_arg_names, NAME])
    made._module_call_graph = [dataclasses.replace(whole, signature=called), *parts]
    return made


def _is_active(node: Node) -> bool:
    given = _given(node)
    if node.target in DROPOUTS:
        return bool(given["train"] and given["p"])
    return node.target is ATTENTION and bool(given.get("dropout_p"))


def _given(node: Node) -> dict[str, Any]:
    """What an op is given, by its names; nothing of other ops."""
    if node.target not in (*DROPOUTS, ATTENTION):
        return {}
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    return by_names(node, ["input" if argument.name == "self" else argument.name for argument in arguments])


def by_names(node: Node, names: Sequence[str]) -> dict[str, Any]:
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _dropout(seeds: torch.Tensor, number: int, input: torch.Tensor, p: float, is_inplace: bool) -> torch.Tensor:
    return dropped(input, p, seeds.select(0, number), is_inplace)


def _attention(seeds: torch.Tensor, number: int, **given: Any) -> torch.Tensor:
    with seeded():
        return scaled_dot_product_attention(**given, seed=seeds.select(0, number))
