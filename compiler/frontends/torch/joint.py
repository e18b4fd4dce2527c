"""A program and its derivative as two graphs, between which lies what is kept of a call (cut.py).

    y = x @ w; o = attention(y, k, v); r = o @ u      forward(x, w, k, v, u) = r, y, o, rows
                                                      derivative(x, w, k, v, u, y, o, rows, dr) = dx, …

Each attention keeps its output, and one or two numbers of each row of its scores (kept.py).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from .cut import halves
from .decompositions import native_layer_norm
from .derivatives import Derivative, OfGraph, differentiating, is_tensor, like, traced
from .kept import Attention, attention_of, before, opened, seen_as


@torch.library.custom_op("attn_opt::of_rows", mutates_args=())
def _of_rows(numbers: torch.Tensor, kind: str) -> torch.Tensor:
    """What is kept of each row of an attention, of that kind."""
    return numbers.clone()


@_of_rows.register_fake
def _of_rows_of_fakes(numbers: torch.Tensor, kind: str) -> torch.Tensor:
    return torch.empty_like(numbers)


OF_ROWS = torch.ops.attn_opt.of_rows.default
NORMS: dict[Any, Callable] = {torch.ops.aten.native_layer_norm.default: native_layer_norm}  # of which sums are kept


class Joint(Derivative):
    """`program` and its derivative by what is `needed`, of its results `of`, as two halves: `forward_half` gives the
    results that are `returned`, and what else is kept; this module, the derivative, takes the inputs, what is kept, and
    the gradients of the results it is `of`. `attentions`: how many the program has; `kept`: which of what the forward
    gives; `of_rows`: the kinds of those of these that are of rows of scores, by their places among them."""

    attentions: int
    kept: list[int]
    of_rows: dict[int, str]

    def __init__(self, *arguments: Any, returned: Sequence[int]):
        self.returned = returned
        super().__init__(*arguments)

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        module = opened(interpreter, values)
        products = [node for node in module.graph.nodes if node.op == "call_function"]
        found = [one for node in products if (one := attention_of(module, node)) is not None]
        self.attentions = len(found)
        ends = [module.graph.output_node().args[0][i] for i in self.returned]
        seen = {one.product: seen_as(one.product, ends) for one in found}
        results = torch.fx.Interpreter(module).run(*filter(is_tensor, values))
        given = [like(results[i]) for i in self.of]

        def both(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, wanted = self.leaves(values, tensors)
            with differentiating():
                results = _Keeping(module, found, seen).run(*filter(is_tensor, inputs))
                ends, theirs = [results[i] for i in self.of], tensors[-len(self.of) :]
                gradients = self.differentiated(ends, wanted, theirs)
            return *(results[i] for i in self.returned), *gradients

        joint = traced(both, [*filter(is_tensor, values), *given], NORMS)
        placeholders = joint.graph.find_nodes(op="placeholder")
        own = placeholders[len(placeholders) - len(given) :]
        first, second, kept = halves(joint.graph, own, len(self.returned), OF_ROWS, self._bytes)
        results = [*joint.graph.output_node().args[0][: len(self.returned)]]
        behind = iter(range(len(results), len(results) + len(kept)))
        self.kept = [results.index(node) if node in results else next(behind) for node in kept]
        self.given = [*(like(node.meta["val"]) for node in kept), *given]
        self.of_rows = {i: node.args[1] for i, node in enumerate(kept) if node.target is OF_ROWS}
        self.first = torch.fx.GraphModule(joint, _without_marks(first))
        return torch.fx.GraphModule(joint, _without_marks(second))

    @property
    def forward_half(self) -> torch.nn.Module:
        return _Half(self)

    @property
    def statistics(self) -> dict[int, str]:
        return {self.inputs + i: kind for i, kind in self.of_rows.items()}

    def _bytes(self, tensor: torch.Tensor) -> int:
        return math.prod(self._size(size) for size in tensor.shape) * tensor.element_size()


class _Half(OfGraph):
    """The forward of a `joint` graph, on its inputs."""

    def __init__(self, joint: Joint):
        super().__init__()
        self.joint, self.graph, self.specs = joint, joint.first, joint.specs

    def _held(self) -> list[torch.Tensor]:
        return self.joint._held()


class _Keeping(torch.fx.Interpreter):
    """Runs a module whose attentions have derivatives of their own, from what is kept. Their outputs are read as what
    lies in memory, `seen` through views."""

    def __init__(self, module: torch.fx.GraphModule, attentions: Iterable[Attention], seen: Mapping[Node, list[Node]]):
        super().__init__(module, garbage_collect_values=False)
        self.attentions, self.seen = {one.product: one for one in attentions}, seen

    def run_node(self, node: Node) -> Any:
        attention = self.attentions.get(node)
        if attention is None:
            return super().run_node(node)
        return _Kept.apply(attention, self.seen[node], self.env, *(self.env[end] for end in attention.ends))


class _Kept(torch.autograd.Function):
    """What an attention gives, of the scores, values, factors and sinks at its `ends`."""

    @staticmethod
    def forward(
        ctx: Any, attention: Attention, seen: list[Node], env: dict[Node, Any], *ends: torch.Tensor
    ) -> torch.Tensor:
        left, right = (env[node] for node in attention.product.args[:2])  # type: ignore[index]
        ctx.attention, ctx.seen, ctx.env = attention, seen, env
        ctx.rows = [OF_ROWS(row, kind) for row, kind in zip(attention.rows(env), attention.kinds, strict=True)]
        return torch.ops.attn_opt.matmul(left, right)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        last = ctx.seen[-1] if ctx.seen else ctx.attention.product
        output = before(ctx.seen, ctx.env, ctx.env[last])
        pairs = ctx.attention.gradients(ctx.env, output, *ctx.rows, gradient)
        return None, None, None, *(of_end for _, of_end in pairs)


def _without_marks(graph: torch.fx.Graph) -> torch.fx.Graph:
    for node in graph.find_nodes(op="call_function", target=OF_ROWS):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return graph
