"""What passes over the nodes of an ONNX graph share: the types of values by name, and nodes in the place of others."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

Size = int | None  # None where it is open
Types = Mapping[str, TypeProto.Tensor]


def types_of(graph: GraphProto) -> dict[str, TypeProto.Tensor]:
    """The types of values, as far as they were inferred, and of weights."""
    types = {v.name: v.type.tensor_type for v in (*graph.value_info, *graph.input, *graph.output)}
    return types | {t.name: type_of(t) for t in graph.initializer}


def graphs_of(graph: GraphProto, outer: Types | None = None) -> Iterator[tuple[GraphProto, Types]]:
    """`graph` and the bodies of its nodes, each with the types of the values that it can use."""
    types = {**(outer or {}), **types_of(graph)}
    yield graph, types
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs_of(attribute.g, types)


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


def replace_nodes(graph: GraphProto, nodes: Iterable[NodeProto], weights: Iterable[TensorProto] = ()) -> None:
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)


def numbers(name: str, values: Iterable[int]) -> NodeProto:
    """A list of integers, such as sizes or axes."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array([*values], np.int64)))
