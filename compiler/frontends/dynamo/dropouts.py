"""Active dropouts of regions: seeds are drawn before the region, and what they make of places inside of it.

    %w = dropout(%p, 0.1, True)      →      %s = randint(-2**31, 2**31, (2,))       outside, by torch's generator
                                            %w = dropout(%p, 0.1, %s)               inside (torch/dropout.py)

So a seed of torch repeats what is computed, a checkpoint draws what it drew before, and a captured CUDA graph draws
anew each time it runs. Masks are not those that torch would draw from the same state.
"""

from typing import Any

import torch

from ..torch import dropout
from ..torch.seeds import NUMBERS, by_names
from .calls import name_of
from .multihead import in_mode_of
from .regions import Region

DROPOUT = ("input", "p", "training", "inplace")
ATTENTION = tuple(a.name for a in torch.ops.aten.scaled_dot_product_attention.default._schema.arguments)


def draw_seeds(graph: torch.fx.Graph, region: Region) -> None:
    """Gives each dropout of the region that is active a seed."""
    for node in region.nodes:
        name = name_of(node)
        if name in ("dropout", "dropout_"):
            given = {"p": 0.5, "training": True, "inplace": name == "dropout_", **by_names(node, DROPOUT)}
            given["training"] = given.pop("train", given["training"])  # as aten has it
            if given.pop("training") and (p := _number(given["p"])):
                node.target, node.args = dropout.dropout, (given["input"], p, _seed(graph, node), given["inplace"])
                node.kwargs = {}
        elif name == "scaled_dot_product_attention":
            given = by_names(node, ATTENTION)
            if p := _number(given.get("dropout_p", 0.0)):
                node.target, node.args = dropout.scaled_dot_product_attention, ()
                node.kwargs = {**given, "dropout_p": p, "seed": _seed(graph, node)}


def _number(p: Any) -> float:
    """A probability. One that is a symbol is what it is now: dynamo compiles anew for another one."""
    return float(p.meta["example_value"] if isinstance(p, torch.fx.Node) else p)


def _seed(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    """Two numbers that are drawn before `node`."""
    value = node.meta["example_value"]
    kind = {"dtype": torch.int32, "device": value.device}
    with graph.inserting_before(node):
        seed = graph.call_function(torch.randint, (*NUMBERS, (2,)), kind)
    with in_mode_of([value]):
        seed.meta["example_value"] = torch.randint(*NUMBERS, (2,), **kind)
    return seed
