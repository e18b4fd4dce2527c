"""What passes over the nodes of an ONNX graph share: the types of values by name, and nodes in the place of others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

Size = int | None  # None where it is open
Types = Mapping[str, TypeProto.Tensor]
CONSTANTS = ("value", "value_int", "value_ints")

Move: TypeAlias = Callable[[str, str], list[NodeProto]]  # the nodes that make one value of another


def types_of(graph: GraphProto) -> dict[str, TypeProto.Tensor]:
    """The types of values, as far as they were inferred, and of weights."""
    types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.input, *graph.output)}
    return types | {t.name: type_of(t) for t in graph.initializer}


def scopes_of(graph: GraphProto, outer: "Scope | None" = None) -> Iterator["Scope"]:
    """`graph` and the bodies of its nodes, with what the values are that each can use."""
    scope = Scope(graph, types_of(graph), constants_of(graph))
    if outer is not None:
        scope = Scope(graph, {**outer.types, **scope.types}, {**outer.constants, **scope.constants})
    yield scope
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from scopes_of(attribute.g, scope)


class Scope(NamedTuple):
    """A graph, and the types and constants known by name in it."""

    graph: GraphProto
    types: Types
    constants: Mapping[str, TensorProto]


def constants_of(graph: GraphProto) -> dict[str, TensorProto]:
    """The weights of a graph, and the values of its nodes Constant."""
    found = {t.name: t for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain and node.attribute[0].name in CONSTANTS:
            value = helper.get_attribute_value(node.attribute[0])
            is_tensor = isinstance(value, TensorProto)
            found[node.output[0]] = value if is_tensor else numpy_helper.from_array(np.array(value))
    return found


def type_of(tensor: TensorProto) -> TypeProto.Tensor:
    return helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)).tensor_type


def sizes_of(kind: TypeProto.Tensor | None) -> list[Size] | None:
    """The sizes of a tensor; None where its rank is not known."""
    if kind is None or not kind.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]


def is_open(kind: TypeProto.Tensor | None) -> bool:
    """Whether the rank or a size of a tensor is not known."""
    sizes = sizes_of(kind)
    return sizes is None or None in sizes


def rewrite(
    graph: GraphProto, write: Callable[[NodeProto], list[NodeProto] | None], weights: Iterable[TensorProto] = ()
) -> bool:
    """Puts what `write` makes of a node in its place, None leaves it, and adds `weights`. Whether there was one."""
    made = [(node, write(node)) for node in graph.node]
    changed = any(news for _, news in made)
    if changed:
        replace_nodes(graph, [new for node, news in made for new in news or [node]], weights)
    return changed


def rewrite_all(graph: GraphProto, write: Callable[..., list[NodeProto] | None]) -> bool:
    """As `rewrite`, also in the bodies of nodes; `write` takes the `scope` of the node, too."""
    changed = False
    for scope in scopes_of(graph):
        changed |= rewrite(scope.graph, partial(write, scope=scope))
    return changed


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto], weights: Iterable[TensorProto] = ()) -> None:
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)


def numbers(name: str, values: Iterable[int]) -> NodeProto:
    """A list of integers, such as sizes or axes."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array([*values], np.int64)))


def chain(moves: Sequence[Move], source: str, target: str) -> list[NodeProto]:
    """The nodes of `moves`, one after the other, from the value `source` to `target`."""
    names = [source, *(f"{target}, step {i}" for i in range(1, len(moves))), target]
    return [node for move, a, b in zip(moves, names, names[1:], strict=False) for node in move(a, b)]


def slice_of(bounds: Mapping[int, tuple[int, int, int]]) -> Move:
    """The slice from a start to an end in steps, by dimension."""
    starts, ends, steps = zip(*bounds.values(), strict=True)
    lists: dict[str, Iterable[int]] = {"starts": starts, "ends": ends, "axes": bounds, "steps": steps}

    def move(source: str, target: str) -> list[NodeProto]:
        made = [numbers(f"{target}, {name}", values) for name, values in lists.items()]
        return [*made, helper.make_node("Slice", [source, *(n.output[0] for n in made)], [target])]

    return move
