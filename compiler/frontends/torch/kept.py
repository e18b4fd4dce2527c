"""What attention keeps of a call for its derivative: its output, and one or two numbers of each row of scores s.

    p = exp2(s·log₂e − n), where n = m·log₂e + log₂ l          dv = pᵀ·g
    m is the largest s, l the sum of exp(s − m)                ds = p·(g·vᵀ − Σ_c g·o)

So the derivative has no attention in it whose output o or whose statistics it would need first. From ds it goes back
through what makes the scores as torch's autograd does.

Where scores may be low numbers of a mask, log₂ l is nothing beside m·log₂e. If all masks have the same one, rows in
which it is m are masked as a whole, and the probability of each key is 1/l: two numbers are kept, n and w::

    p = w > 0 ? w : exp2(s·log₂e − n), where w = 1/l in rows that are masked as a whole, else 0

If masks are not known, as of tensors that are added, m and 1/l are kept. So they are where values are f32 or f64, of
which n would lose digits that p has: s − m is what it was in the forward, and the gradients are as exact as autograd's.
Rows that are masked as a whole by −∞ have no probabilities: n is ∞, and 1/l is 0.

Sinks y beside the keys (sinks.py) are in m and l, and have no values: dy = −p(y)·Σ_c g·o.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from ....transforms.online.score_masks import ABSORBING, lowest_score
from ....transforms.online.scores import HIGHEST_MASK
from ....transforms.raising.given_rows import LARGEST_NUMBER
from .derivatives import PRODUCT, Derivative, KeptWhole, OfProgram, differentiating, is_tensor, like, traced
from .sinks import parts

aten = torch.ops.aten
PRODUCTS = (PRODUCT, aten.bmm.default)
SOFTMAXES = (aten._softmax.default, aten._safe_softmax.default)
CASTS = (aten._to_copy.default, aten.clone.default, aten.alias.default)
RESHAPES = (
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims),
)
FACTOR = aten.mul.Tensor
VIEWS = (*CASTS, *RESHAPES, aten.permute.default, aten.transpose.int)
FILLED = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}  # where the number stands
ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
CHOICES = {aten.where.self: (1, 2), aten.masked_fill.Scalar: (0, 2), aten.masked_fill.Tensor: (0, 2)}  # between which
BY_NUMBERS = (aten.mul.Tensor, aten.div.Tensor, aten.add.Tensor, aten.sub.Tensor)
LOG2_E = math.log2(math.e)
EXACT = (torch.float32, torch.float64)  # values whose probabilities are not rounded


class Forward(OfProgram):
    """The result of `program`, and what is kept of each row of scores, if it is one attention (`is_one`)."""

    is_one = False

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        attention = _attention(interpreter, values)
        self.is_one = attention is not None

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if attention is None:
                return ()
            with KeptWhole():
                env, (result,) = attention.run(tensors)
                return (result, *attention.rows(env))

        return traced(forward, [*filter(is_tensor, values)])


class DerivativeOfKept(Derivative):
    """The derivative of what `Forward` is of, from its inputs, its results and the gradient of the first of these;
    nothing is `given` where it is no attention."""

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        attention = _attention(interpreter, values)
        if attention is None:
            return traced(lambda *tensors: (), [*filter(is_tensor, values)])
        env, (result,) = attention.run([*filter(is_tensor, values)])
        self.given = [*map(like, (result, *attention.rows(env), result))]
        self.kinds = attention.kinds

        def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, wanted = self.leaves(values, tensors)
            with differentiating():
                env, _ = attention.run([*filter(is_tensor, inputs)])
                pairs = attention.gradients(env, *tensors[-len(self.given) :])
                ends, theirs = zip(*((env[end], g) for end, g in pairs if env[end].requires_grad), strict=True)
                return self.differentiated(ends, wanted, theirs)

        return traced(gradients, [*filter(is_tensor, values), *self.given])


@dataclass(frozen=True)
class Attention:
    """What `module` computes of tensors: a softmax of `scores`, and of `sinks` beside them, its probabilities, seen
    through views, casts and products with factors, times `values`, and the product seen `through` views and casts."""

    module: torch.fx.GraphModule
    scores: Node
    sinks: list[Node]
    softmax: Node
    weights: list[Node]
    product: Node
    through: list[Node]

    @property
    def values(self) -> Node:
        return self.product.args[1]  # type: ignore[return-value]

    @property
    def ends(self) -> list[Node]:
        """What `gradients` are of: the scores, the values, factors and sinks."""
        factors = [node.args[1] for node in reversed(self.weights) if node.target is FACTOR]
        return [self.scores, self.values, *factors, *self.sinks]  # type: ignore[list-item]

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[dict[Node, Any], tuple[torch.Tensor, ...]]:
        """What its nodes are on these tensors, and the result."""
        interpreter = torch.fx.Interpreter(self.module, garbage_collect_values=False)
        results = interpreter.run(*tensors)
        return interpreter.env, results

    @functools.cached_property
    def masks(self) -> frozenset[float] | None:
        """The numbers that masks have in the place of scores, which are made of one product and of no large number
        else; None if that is not known."""
        node, factor, is_added, found = self.scores, 1.0, False, set()
        while node.target not in PRODUCTS:
            below = _below(node)
            if below is None or (below.mask is not None and is_added):  # where both are, there is their sum
                return None
            if below.mask is not None:
                found.add(below.mask * factor)
            node, factor, is_added = below.scores, factor * below.factor, is_added or below.is_added
        return frozenset(found)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is kept of each row: see ``transforms/raising/given.py``."""
        if self.product.meta["val"].dtype in EXACT:
            return "kept max", ""
        if self.lowest is not None:
            return "", "kept weight"
        return ("",) if self.masks is not None and self.masks <= {-math.inf} else ("kept max", "")

    @property
    def lowest(self) -> float | None:
        """Below what the largest score of a row is the number of all masks; None if they have several, −∞, or none."""
        if self.masks is None or len(self.masks) != 1:
            return None
        (number,) = self.masks
        return lowest_score(number) if -math.inf < number <= HIGHEST_MASK else None

    def rows(self, env: dict[Node, Any]) -> list[torch.Tensor]:
        """What is kept of each row."""
        wide = _wide(env[self.scores])
        largest = wide.amax(-1, keepdim=True)
        largest = torch.where(largest == -math.inf, 0, largest)
        total = torch.exp(wide - largest).sum(-1)
        largest = largest.squeeze(-1)
        for sink in (_wide(env[node]).squeeze(-1) for node in self.sinks):
            before, largest = largest, torch.maximum(largest, sink)
            total = total * torch.exp(before - largest) + torch.exp(sink - largest)
        if "kept max" in self.kinds:
            return [largest, torch.where(total == 0, 0, 1 / total)]
        if self.lowest is None:
            return [torch.where(total == 0, math.inf, largest * LOG2_E + torch.log2(total))]
        is_masked = largest < self.lowest
        shift = torch.where(is_masked, 0, largest) * LOG2_E + torch.log2(total)
        return [torch.where(total == 0, math.inf, shift), torch.where(is_masked, 1 / total, 0)]

    def probabilities(self, scores: torch.Tensor, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        first, *others = (row.unsqueeze(-1) for row in rows)
        if "kept max" in self.kinds:
            return torch.exp(_wide(scores) - first) * others[0]
        found = torch.exp2(_wide(scores) * LOG2_E - first)
        return torch.where(others[0] > 0, others[0], found) if others else found

    @torch.no_grad()
    def gradients(
        self, env: dict[Node, Any], result: torch.Tensor, *rows_and_gradient: torch.Tensor
    ) -> list[tuple[Node, torch.Tensor]]:
        """Those of the scores, of the values and of the factors, from what was kept and the gradient of the result."""
        *rows, gradient = rows_and_gradient
        scores, values = env[self.scores], env[self.values]
        output = before(self.through, env, result)
        gradient = before(self.through, env, gradient).to(env[self.product].dtype)
        p = self.probabilities(scores, rows)
        weights = [p.to(env[self.softmax].dtype)]
        for node in self.weights:
            weights.append(_again(node, env, weights[-1]))
        of_values = torch.ops.attn_opt.matmul(weights[-1].mT, gradient).sum_to_size(values.shape)
        of_weights = _wide(torch.ops.attn_opt.matmul(gradient, values.mT))
        row_sums = (_wide(gradient) * _wide(output)).sum(-1).unsqueeze(-1)  # Σ_k p·ds/dp, whatever the factors are
        moved = [node for node in self.weights if node.target not in (*CASTS, FACTOR)]
        if moved:
            row_sums = before(moved, env, row_sums.expand_as(of_weights))
        found = [(self.values, of_values)]
        for node, weight in zip(reversed(self.weights), reversed(weights[:-1]), strict=True):
            if node.target is FACTOR:
                factor: Any = node.args[1]
                found.append((factor, (of_weights * weight).sum_to_size(env[factor].shape)))
                of_weights = of_weights * env[factor]
            else:
                of_weights = before([node], env, of_weights)
        for node in self.sinks:
            of_sink = -self.probabilities(env[node], rows) * row_sums[..., :1]
            found.append((node, of_sink.to(env[node].dtype)))
        return [(self.scores, (p * (of_weights - row_sums)).to(scores.dtype)), *found]


def opened(interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
    """What a program computes of those `values` that are tensors, op by op; its products are ops of ours."""
    places = [i for i, value in enumerate(values) if is_tensor(value)]

    def forward(*tensors: torch.Tensor) -> Any:
        inputs = list(values)
        for i, tensor in zip(places, tensors, strict=True):
            inputs[i] = tensor
        with KeptWhole():
            return interpreter.run(*inputs)

    module = make_fx(forward)(*(values[i] for i in places))
    module.graph.eliminate_dead_code()
    return module


def _attention(interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> Attention | None:
    """The attention that a program is as a whole, if it is one."""
    module = opened(interpreter, values)
    ((result,),) = module.graph.output_node().args
    product, through = _seen_through(result)
    return attention_of(module, product, through)


def attention_of(module: torch.fx.GraphModule, product: Node, through: Sequence[Node] = ()) -> Attention | None:
    """That whose values `product` multiplies, if it is one, which is seen through views and casts."""
    if product.target not in PRODUCTS:
        return None
    softmax, weights = _seen_through(product.args[0], with_factors=True)
    between = [softmax, *weights]
    sinks: list[Node] = []
    if (found := parts(softmax)) is not None:
        scores, sinks, _ = found
        between += softmax.all_input_nodes  # of which it is a part
    elif softmax.target in SOFTMAXES and softmax.args[1] in (-1, softmax.meta["val"].dim() - 1):
        scores = softmax.all_input_nodes[0]
    else:
        return None
    if any(len(node.users) > 1 for node in between):
        return None
    factor, ends = product.args[0].meta["val"], product.meta["val"]
    is_repeated = not statically_known_true(sym_eq(list(factor.shape[:-1]), list(ends.shape[:-1])))
    return None if is_repeated else Attention(module, scores, sinks, softmax, weights, product, [*through])


def seen_as(node: Node, results: Sequence[Any]) -> list[Node]:
    """The views and casts that a node goes through, none of which has other readers, or rounds, up to one of the
    `results` or who reads it as no view: as such it lies in memory."""
    through: list[Node] = []
    while node not in results and len(node.users) == 1 and (user := next(iter(node.users))).target in VIEWS:
        if _bytes(user) < _bytes(node):
            break  # gradients are computed of what the node is
        node = user
        through.append(node)
    return through


def _bytes(node: Node) -> int:
    return node.meta["val"].dtype.itemsize


def _seen_through(node: Any, with_factors: bool = False) -> tuple[Node, list[Node]]:
    """What a node is views and casts of, and these, from the first one on; if said so, products with factors, too, to
    which it is given as their first argument."""
    found: list[Node] = []
    while node.target in VIEWS or (with_factors and _is_scaled(node)):
        found.insert(0, node)
        node = node.args[0]
    return node, found


def _is_scaled(node: Node) -> bool:
    """Whether it is a product that is as large as its first argument, with a tensor."""
    if node.target is not FACTOR or not all(isinstance(a, Node) for a in node.args):
        return False
    own, value = node.meta["val"], node.args[0].meta["val"]  # type: ignore[union-attr]
    return statically_known_true(sym_eq(list(own.shape), list(value.shape)))


class _Below(NamedTuple):
    """What a node makes scores of: times a factor, and, if there is a mask, its number in their place, or added."""

    scores: Node
    factor: float = 1.0
    mask: float | None = None
    is_added: bool = False


def _below(node: Any) -> _Below | None:
    """What a node that makes scores makes them of; None if it makes large numbers of something else."""
    if node.target in (*VIEWS, aten.expand.default):
        return _Below(node.args[0])
    if node.target is aten.neg.default:
        return _Below(node.args[0], -1.0)
    if node.target is aten.tanh.default:
        return _Below(node.args[0], math.nan)  # of what masks that is no multiple
    if node.target in BY_NUMBERS and isinstance(number := node.args[1], int | float):
        if abs(number) >= LARGEST_NUMBER or node.kwargs:
            return None
        factor = {aten.mul.Tensor: number, aten.div.Tensor: 1 / number if number else math.nan}.get(node.target, 1.0)
        return _Below(node.args[0], factor)
    if node.target in CHOICES:
        first, second = (node.args[i] for i in CHOICES[node.target])
        return _beside(first, second) or _beside(second, first)
    if node.target is aten.add.Tensor and not node.kwargs:
        return _added(*node.args) or _added(*node.args[::-1])
    return None


def _beside(scores: Any, value: Any) -> _Below | None:
    """Scores, and the value if that is the number of a mask."""
    number = _number(value)
    return (
        None if number is None or number > HIGHEST_MASK or _number(scores) is not None else _Below(scores, 1.0, number)
    )


def _added(scores: Any, value: Any) -> _Below | None:
    """Scores, and the value if that is a mask: 0, or a number so low that any score is nothing beside it."""
    value = _seen(value)
    if not isinstance(value, Node) or value.target not in CHOICES:
        return None
    low, high = sorted(math.nan if (n := _number(value.args[i])) is None else n for i in CHOICES[value.target])
    return _Below(scores, 1.0, low, is_added=True) if low <= ABSORBING and high == 0 else None


def _number(value: Any) -> float | None:
    """The number that all elements are."""
    value = _seen(value)
    if isinstance(value, Node) and value.target in FILLED:
        value = value.args[FILLED[value.target]]
    if isinstance(value, Node) and value.target in ZEROS:
        return 0.0
    return float(value) if isinstance(value, int | float) else None


def _seen(value: Any) -> Any:
    """What a value is views, casts and repetitions of."""
    while isinstance(value, Node) and value.target in (*VIEWS, aten.expand.default):
        value = value.args[0]
    return value


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _again(node: Node, env: dict[Node, Any], value: torch.Tensor) -> torch.Tensor:
    """What the view or cast makes of `value`."""
    target: Any = node.target
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: value if n is node.args[0] else env[n])
    return target(*args, **kwargs)


def before(nodes: Sequence[Node], env: dict[Node, Any], value: torch.Tensor) -> torch.Tensor:
    """What would be `value` after these views, in its type."""
    for node in reversed(nodes):
        if node.target is aten.permute.default:
            order = [d % value.dim() for d in node.args[1]]  # type: ignore[union-attr]
            value = value.permute([order.index(d) for d in range(value.dim())])
        elif node.target is aten.transpose.int:
            value = value.transpose(*node.args[1:])
        elif node.target in RESHAPES:
            value = value.reshape(env[node.args[0]].shape)  # type: ignore[index]
    return value


__all__ = ["Attention", "DerivativeOfKept", "Forward", "attention_of", "before", "opened", "seen_as"]
