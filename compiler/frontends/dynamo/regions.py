"""The parts of a graph of torch's calls that may be attention.

The core of a region is a call of scaled_dot_product_attention or flex_attention, or a matmul with all that lies on the
way to its left operand from earlier matmuls, a function that makes weights of scores among it. Whether it is attention
is for the pass ``raise-attention`` to say; here only what is hopeless is left out. To the core come views, casts, index
arithmetic and element-wise calls that make more than they read, so that reshapes, repeated heads and masks are not made
in memory.

A region is run at the place of its last call, so nothing may write to what it reads before; it may write to what it
makes. What of it is read elsewhere too, such as probabilities, is another result, seen through the views and sums that
follow: its mean over heads is all that is made then.
"""

import operator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import torch

from .calls import (
    COSTLY,
    CREATION,
    DIVISIONS,
    ELEMENTWISE,
    LAYERS,
    MAX_PATH,
    MODES,
    SOFTMAXES,
    SUMS,
    UNFILLED,
    VIEWS,
    elements,
    has_heads,
    is_matmul,
    makes_weights,
    may_make_weights,
    name_of,
    tensor_operands,
)
from .memory import Memory
from .sizes import combination, dimensions

OUTSIDE = "no matmul in its graph makes its scores; TORCH_LOGS=graph_breaks tells whether one before a graph break does"
FEW = 16  # elements that are computed of each that is read, at least, of what is better computed anew than read
MOST_CALLS = 32  # that compute it
TOO_LONG = f"more than {MAX_PATH} calls stand between its matmuls"


@dataclass
class Region:
    """Some nodes of a graph in their order; all but `output` and `others` are used inside only, or computed again
    inside. The output `is_changed` if what comes after them writes to it. Calls that are `late` come before the output
    and read others: they are to stand behind it."""

    nodes: list[torch.fx.Node]
    output: torch.fx.Node
    refused: str = ""
    is_changed: bool = False
    others: list[torch.fx.Node] = field(default_factory=list)
    late: list[torch.fx.Node] = field(default_factory=list)

    @property
    def results(self) -> list[torch.fx.Node]:
        return [self.output, *self.others]

    @property
    def inputs(self) -> list[torch.fx.Node]:
        """What it reads from outside, but for numbers that its sizes tell."""
        read = self._read()
        told = _told_by_sizes(read)
        return [node for node in read if node not in told]

    def _read(self) -> list[torch.fx.Node]:
        """What its nodes read from outside. A region before it that has been taken out is a node then."""
        inside = set(self.nodes)
        return list(dict.fromkeys(i for n in self.nodes for i in n.all_input_nodes if i not in inside))

    def as_module(
        self, graph: torch.fx.GraphModule, carriers: AbstractSet[torch.fx.Node] = frozenset()
    ) -> torch.fx.GraphModule:
        """The region as a module of its own, on its inputs. Gradients go back through its nodes where they are
        `carriers`: others may have been computed under torch.no_grad()."""
        part = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in self.inputs:
            copies[node] = part.placeholder(node.name)
            copies[node].meta = dict(node.meta)
        for node, parts in _told_by_sizes(self._read()).items():
            sizes = {place: part.call_method("size", (copies[place[0]], place[1])) for place, _ in parts if place}
            copies[node] = _sum(part, [(sizes[place] if place else None, factor) for place, factor in parts])
            copies[node].meta = dict(node.meta)
        for node in self.nodes:
            copies[node] = part.node_copy(node, lambda n: copies[n])
            if _stops_gradients(node, carriers):
                copies[node] = part.call_method("detach", (copies[node],))
                copies[node].meta = dict(node.meta)
        part.output(tuple(copies[n] for n in self.results) if self.others else copies[self.output])
        return torch.fx.GraphModule(graph, part)


Place = tuple[torch.fx.Node, int]  # a tensor and a dimension of it


def _told_by_sizes(read: list[torch.fx.Node]) -> dict[torch.fx.Node, list[tuple[Place | None, int]]]:
    """Which of the symbolic numbers that are read are sums of sizes of tensors that are read, such as the length of a
    cache before a token is added to it: the sizes, and None for a number, each with what it is multiplied by."""
    values = {node: node.meta.get("example_value") for node in read}
    known = dimensions(values.items())
    found = {}
    for node, value in values.items():
        factors = combination(value.node.expr, list(known)) if isinstance(value, torch.SymInt) else None
        if factors and any(factors[:-1]):
            found[node] = [(place, f) for place, f in zip([*known.values(), None], factors, strict=True) if f]
    return found


def _sum(part: torch.fx.Graph, parts: list[tuple[torch.fx.Node | None, int]]) -> torch.fx.Node:
    """The sum of products of sizes and numbers; None is 1. Sizes come before the number."""
    total: Any = None
    for size, factor in parts:
        product: Any = factor if size is None else size
        if size is not None and factor != 1:
            product = part.call_function(operator.mul, (size, factor))
        total = product if total is None else part.call_function(operator.add, (total, product))
    return total


def spell_sizes_out(graph: torch.fx.Graph) -> None:
    """Gives calls that take a tuple of sizes from one node, such as view(x.size()), its numbers one by one."""
    for node in list(graph.nodes):
        sizes = node.meta.get("example_value")
        if not isinstance(sizes, tuple) or not all(isinstance(s, int | torch.SymInt) for s in sizes):
            continue
        numbers: list[Any] = list(sizes)
        for user in list(node.users):
            if user.target is operator.getitem or not isinstance(user.meta.get("example_value"), torch.Tensor):
                continue
            for i, size in enumerate(sizes):
                if numbers[i] is size and not isinstance(size, int):
                    with graph.inserting_after(node):
                        numbers[i] = graph.call_function(operator.getitem, (node, i))
                    numbers[i].meta = {**node.meta, "example_value": size}
            spelled = {node: tuple(numbers)}
            user.args, user.kwargs = torch.fx.map_arg((user.args, user.kwargs), lambda a, to=spelled: to.get(a, a))


def find_regions(graph: torch.fx.GraphModule, carriers: AbstractSet[torch.fx.Node] = frozenset()) -> list[Region]:
    """Disjoint regions, in the order of their last nodes. Gradients go back through `carriers`."""
    order = {node: i for i, node in enumerate(graph.graph.nodes)}
    memory = Memory(graph.graph)
    indexed, little = _made_of_little(graph.graph, memory, carriers)
    parts = {node for node in graph.graph.nodes if _is_better_outside(node, carriers)}
    taken: set[torch.fx.Node] = set()
    regions = []
    for node in graph.graph.nodes:
        core, output, missed = _core(node)
        if core is None or core & taken or (not missed and _enclosed(core) & taken):  # another one in its midst
            continue
        left = taken | parts if output in carriers else taken
        region = Region([node], node, missed) if missed else _region(core, output, order, left, indexed, little, memory)
        regions.append(region)
        taken |= core
    return regions


def _is_better_outside(node: torch.fx.Node, carriers: AbstractSet[torch.fx.Node]) -> bool:
    """Whether torch has a better gradient for it: none, where it stops them, or of a part of a tensor, which within a
    region would be one of the whole."""
    value = node.meta.get("example_value")
    if node not in carriers:
        return _stops_gradients(node, carriers)
    read = [n.meta.get("example_value") for n in node.all_input_nodes]
    if name_of(node) not in VIEWS:
        return False
    if isinstance(value, tuple | list) or any(isinstance(v, tuple | list) for v in read):
        return True
    return any(isinstance(v, torch.Tensor) and elements(v) > elements(value) for v in read)


def _stops_gradients(node: torch.fx.Node, carriers: AbstractSet[torch.fx.Node]) -> bool:
    value = node.meta.get("example_value")
    has_gradient = isinstance(value, torch.Tensor) and value.is_floating_point()
    return has_gradient and node not in carriers and not carriers.isdisjoint(node.all_input_nodes)


def _core(node: torch.fx.Node) -> tuple[set[torch.fx.Node] | None, torch.fx.Node, str]:
    """The nodes that make `node` the end of an attention, or None; the result; why it only looks like one."""
    name = name_of(node)
    if name == "scaled_dot_product_attention":
        return {node}, node, ""
    if name == "flex_attention":
        # Its log-sum-exp and maxima are computed for inductor; only the output is ours.
        users = [u for u in node.users if u.users]
        if len(users) == 1 and users[0].target is operator.getitem and users[0].args[1] == 0:
            held = {n for n in node.all_input_nodes if n.op == "get_attr"}
            return {node, users[0], *held, *node.users}, users[0], ""
        return {node}, node, "its log-sum-exp is used too"
    if not is_matmul(node):
        return None, node, ""
    missed = ""
    for operand in tensor_operands(node):
        path, reason = _path_to_matmuls(operand, has_heads(node))
        if path:
            return *_divided(node, path), ""
        missed = missed or reason
    return ({node} if missed else None), node, missed


def _path_to_matmuls(operand: torch.fx.Node, heads: bool) -> tuple[set[torch.fx.Node], str]:
    """What lies between `operand` and the matmuls before it, these included, if there is something on the way that
    makes weights of scores. `heads`: the matmul that `operand` is one of has several.

    If there is one, but no such matmul: nothing, and the reason.
    """
    order, pending = [], [operand]
    seen = {operand}
    outside = False
    while pending:
        node = pending.pop()
        if node.op not in ("call_function", "call_method"):
            outside = outside or isinstance(node.meta.get("example_value"), torch.Tensor)
            continue
        order.append(node)
        if is_matmul(node) or name_of(node) in LAYERS:
            continue
        for producer in node.all_input_nodes:
            if producer not in seen:
                seen.add(producer)
                pending.append(producer)
    found = set(order)
    matmuls = {n for n in order if is_matmul(n)}
    if operand in matmuls:
        return set(), ""
    reaching = _between(matmuls, found - {n for n in found if name_of(n) in LAYERS})
    if len(reaching) > MAX_PATH:
        return set(), TOO_LONG if any(name_of(n) in SOFTMAXES for n in reaching) else ""
    heads = heads and all(map(has_heads, matmuls & reaching))
    if operand in reaching and any(makes_weights(n) or (heads and may_make_weights(n)) for n in reaching):
        return reaching, ""
    return set(), _why_no_scores(operand, found, outside) if len(found) <= MAX_PATH else ""


def _why_no_scores(operand: torch.fx.Node, found: set[torch.fx.Node], outside: bool) -> str:
    """Why what multiplies the values is not made from scores, if it looks like probabilities; else ""."""
    node = operand
    while name_of(node) in VIEWS or name_of(node) in ("dropout", "dropout_", *LAYERS):
        if name_of(node) in LAYERS and _is_softmax_behind_views(node.all_input_nodes[0]):
            return "a layer stands between its probabilities and the values"
        if name_of(node) in LAYERS:
            return ""
        node = node.all_input_nodes[0]
    if not any(name_of(n) in SOFTMAXES for n in found):
        return ""
    if any(name_of(n) in LAYERS for n in found):
        return "its scores are not made by a matmul alone, but by a layer"
    return OUTSIDE if outside else ""


def _is_softmax_behind_views(node: torch.fx.Node) -> bool:
    while name_of(node) in VIEWS or name_of(node) in ("dropout", "dropout_"):
        node = node.all_input_nodes[0]
    return name_of(node) in SOFTMAXES


def _between(starts: set[torch.fx.Node], among: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """`starts` and what depends on them through nodes of `among`, other matmuls left out."""
    reached, pending = set(starts), list(starts)
    while pending:
        for user in pending.pop().users:
            if user in among and user not in reached and not is_matmul(user):
                reached.add(user)
                pending.append(user)
    return reached


def _divided(node: torch.fx.Node, path: set[torch.fx.Node]) -> tuple[set[torch.fx.Node], torch.fx.Node]:
    """The core and its output: with the division by a sum over the path, if that comes after the second matmul."""
    core = {node, *path}
    user = next(iter(node.users), None)
    if len(node.users) != 1 or user is None or name_of(user) not in DIVISIONS:
        return core, node
    for divisor in tensor_operands(user):
        found, pending = set[torch.fx.Node](), [divisor]
        while divisor is not node and pending and len(found) < MAX_PATH:
            step = pending.pop()
            if step not in core and step not in found and step.op != "placeholder" and not is_matmul(step):
                found.add(step)
                pending += step.all_input_nodes
        if any(i in path for n in found for i in n.all_input_nodes):
            return {*core, *found, user}, user
    return core, node


def _region(
    core: set[torch.fx.Node],
    output: torch.fx.Node,
    order: dict[torch.fx.Node, int],
    taken: set[torch.fx.Node],
    indexed: set[torch.fx.Node],
    little: set[torch.fx.Node],
    memory: Memory,
) -> Region:
    core |= _writers(core, output, order, memory)
    core |= _enclosed(core)
    others, following = _read_elsewhere(core, output, order, memory)
    late, refused = _late(core, output, others, order, memory)
    nodes = set(core)
    if not refused:
        _grow(nodes, core, order, taken, indexed, little, memory)
    ordered = sorted(nodes, key=order.__getitem__)
    behind = [n for n in ordered[ordered.index(output) + 1 :] if n not in following]
    if not refused and any(n.users for n in behind):
        refused = "its parts are not in order"
    if not refused and _writes_between([n for n in ordered if n not in behind and n not in indexed], order, memory):
        refused = "memory is written to between its matmuls"
    is_changed = any(memory.of(output) in to for writer, to in memory.written.items() if writer not in nodes)
    return Region(ordered, output, refused, is_changed, others, late)


def _read_elsewhere(
    core: set[torch.fx.Node], output: torch.fx.Node, order: dict[torch.fx.Node, int], memory: Memory
) -> tuple[list[torch.fx.Node], set[torch.fx.Node]]:
    """What outside of the core reads of it besides the output, seen through the only call that does, if that is a view
    or a sum; and these calls, which become part of it."""
    others: list[torch.fx.Node] = []
    following: set[torch.fx.Node] = set()
    for node in sorted(core, key=order.__getitem__):
        if node is output or not isinstance(node.meta.get("example_value"), torch.Tensor):
            continue
        outside = _outside(node, core)
        while len(outside) == 1 and _only_follows(node, outside[0], memory):
            (node,) = outside
            core.add(node)
            following.add(node)
            outside = _outside(node, core)
        if outside:
            others.append(node)
    return others, following


def _outside(node: torch.fx.Node, core: set[torch.fx.Node]) -> list[torch.fx.Node]:
    return [u for u in node.users if u not in core and (u.users or u.op == "output")]


def _only_follows(node: torch.fx.Node, user: torch.fx.Node, memory: Memory) -> bool:
    is_tensor = isinstance(user.meta.get("example_value"), torch.Tensor)
    name = name_of(user)
    return is_tensor and name in VIEWS | SUMS and user not in memory.written and user.all_input_nodes == [node]


def _late(
    core: set[torch.fx.Node],
    output: torch.fx.Node,
    others: list[torch.fx.Node],
    order: dict[torch.fx.Node, int],
    memory: Memory,
) -> tuple[list[torch.fx.Node], str]:
    """The calls before the output that read others, and why there may be none."""
    if any(memory.of(n) in to for n in others for writer, to in memory.written.items() if writer not in core):
        return [], "its scores or probabilities are used elsewhere too, and written to"
    found, pending = set[torch.fx.Node](), list(others)
    while pending:
        for user in pending.pop().users:
            if user not in core and user not in found and order[user] < order[output]:
                found.add(user)
                pending.append(user)
    late = sorted(found, key=order.__getitem__)
    passed = [n for n in order if late and order[late[0]] <= order[n] < order[output] and n not in core]
    if any(n in memory.written or name_of(n) in MODES for n in passed):
        return [], "its scores or probabilities are used elsewhere too, where memory is written to or modes change"
    return late, ""


def _writers(
    core: set[torch.fx.Node], output: torch.fx.Node, order: dict[torch.fx.Node, int], memory: Memory
) -> set[torch.fx.Node]:
    """The calls before its last that write to what the core makes, such as masked_fill_ on the scores or on a view of
    them; and what makes the memory that the core writes to, such as empty."""
    made = {memory.of(node) for node in core} - {memory.outside}
    writers = {node for node, written in memory.written.items() if order[node] < order[output] and written & made}
    written = {m for node in writers | core for m in memory.written.get(node, ())}
    makers = (node for m in written for node in memory.members[m] if name_of(node) in CREATION | UNFILLED)
    return writers | {node for node in makers if not tensor_operands(node) or name_of(node) in UNFILLED}


def _enclosed(core: set[torch.fx.Node]) -> set[torch.fx.Node]:
    """What depends on the core and is needed by it, such as a mask expanded to the scores' shape."""
    if len(core) < 2:  # a call alone, before which all of a model may stand
        return set()
    needed, pending = set[torch.fx.Node](), list(core)
    while pending:
        for producer in pending.pop().all_input_nodes:
            if producer not in needed:
                needed.add(producer)
                pending.append(producer)
    reached, pending = set[torch.fx.Node](), list(core)
    while pending:
        for user in pending.pop().users:
            if user in needed and user not in reached:
                reached.add(user)
                pending.append(user)
    return reached


def _grow(
    nodes: set[torch.fx.Node],
    core: set[torch.fx.Node],
    order: dict[torch.fx.Node, int],
    taken: set[torch.fx.Node],
    indexed: set[torch.fx.Node],
    little: set[torch.fx.Node],
    memory: Memory,
) -> None:
    """Adds producers that are cheaper inside; see the module."""
    last = max(order[n] for n in core)
    writers = [n for n in memory.written if order[n] < last and n not in core]
    changed = True
    while changed:
        changed = False
        producers = {p for n in nodes for p in n.all_input_nodes} - nodes - taken
        for node in sorted(producers, key=order.__getitem__, reverse=True):
            if node in indexed:
                nodes.add(node)
                changed = True
            if node.op not in ("call_function", "call_method") or node in indexed:
                continue
            if any(order[node] < order[w] and memory.touches(node, w) for w in writers):
                continue
            if _is_free(node) or node in little or (_expands(node, indexed) and all(u in nodes for u in node.users)):
                nodes.add(node)
                changed = True
    # Inputs are tensors and numbers: parts of a tuple that is made outside, by a sort or a split, are taken there.
    parts = {n for n in nodes - core if n.target is operator.getitem and n.args[0] not in nodes}
    nodes -= {n for n in parts if isinstance(n.args[0].meta.get("example_value"), tuple | list)}


def _made_of_little(
    graph: torch.fx.Graph, memory: Memory, carriers: AbstractSet[torch.fx.Node]
) -> tuple[set[torch.fx.Node], set[torch.fx.Node]]:
    """What is computed cheaply from numbers and arange alone, such as a causal mask, and never written to. And what is
    computed as cheaply, in few calls, from them and from few elements in memory, such as a mask that padding is in, and
    has no gradient."""
    written = set().union(*memory.written.values())
    indexed, little = set[torch.fx.Node](), set[torch.fx.Node]()
    read: dict[torch.fx.Node, set[torch.fx.Node]] = {}  # by each tensor: what it is made of,
    calls: dict[torch.fx.Node, set[torch.fx.Node]] = {}  # and by which calls
    for node in graph.nodes:
        if not isinstance(node.meta.get("example_value"), torch.Tensor):
            continue
        read[node], calls[node] = {node}, set()
        name, operands = name_of(node), tensor_operands(node)
        if name not in CREATION and (name in COSTLY or name not in VIEWS | ELEMENTWISE or not operands):
            continue
        if memory.of(node) in written:
            continue
        sources = set().union(*(read[operand] for operand in operands))
        way = {node}.union(*(calls[operand] for operand in operands))
        if not sources:
            indexed.add(node)
        elif node not in carriers and len(way) <= MOST_CALLS and _makes_many(node, sources, indexed):
            little.add(node)
        else:
            continue
        read[node], calls[node] = sources, way - indexed
    return indexed, little


def _makes_many(node: torch.fx.Node, sources: set[torch.fx.Node], indexed: set[torch.fx.Node]) -> bool:
    """Whether it is better computed anew than read: it has far more elements than what it is made of; or none is
    computed, as a subscript by positions takes them where they are, like `segments[batch, queries]` of aranges."""
    count = elements(node.meta["example_value"])
    if _indexes_plainly(node):
        return FEW * sum(elements(n.meta["example_value"]) for n in sources) <= count
    source, *subscripts = tensor_operands(node)
    return indexed.issuperset(subscripts) and count <= elements(source.meta["example_value"])


def _is_free(node: torch.fx.Node) -> bool:
    """Whether computing it again costs nothing: a view, or something made of no tensor."""
    name = name_of(node)
    if name in CREATION and not tensor_operands(node):
        return True
    if name not in VIEWS:
        return False
    return isinstance(node.meta.get("example_value"), torch.Tensor | tuple | list) and _indexes_plainly(node)


def _indexes_plainly(node: torch.fx.Node) -> bool:
    """Whether a subscript, if it is one, is made of numbers and slices: no gather."""
    if node.target is not operator.getitem:
        return True
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return not any(isinstance(i, torch.fx.Node | list) for i in index)


def _expands(node: torch.fx.Node, indexed: set[torch.fx.Node]) -> bool:
    """Whether an element-wise call makes about as many elements as it reads: then it is better not stored.

    What is `indexed` is computed inside and not read.
    """
    name = name_of(node)
    if name not in ELEMENTWISE and name not in CREATION:
        return False
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return False
    operands = [n.meta["example_value"] for n in tensor_operands(node) if n not in indexed]
    return 1.1 * elements(value) >= sum(elements(v) for v in operands)


def _writes_between(nodes: list[torch.fx.Node], order: dict[torch.fx.Node, int], memory: Memory) -> bool:
    """Whether one of `nodes` writes to what is not made by them, or a call before their last to what one has read."""
    inside, last = set(nodes), order[nodes[-1]]
    for writer, written in memory.written.items():
        if writer in inside:
            members = (n for m in written for n in memory.members[m])
            if memory.outside in written or any(n.users and n not in inside and order[n] < last for n in members):
                return True
        elif any(order[n] < order[writer] < last and memory.touches(n, writer) for n in nodes):
            return True
    return False
