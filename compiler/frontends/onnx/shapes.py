"""Shapes of ONNX that its own inference leaves open: where a value has none, the importer takes it to be a scalar.

  y = GroupNormalization(x, …)     y has the shape of x
  y = Loop(n, c, x) <…>            y has the shape of x if the body makes of that shape the same one
  y, _, _, s = Attention(q, k, v)  s has four dimensions; of an unknown number of keys onnx says: none

An output that is an input, or a weight, has the shape of that.
"""

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto, NodeProto, TypeProto, helper
from onnx.shape_inference import infer_shapes

from ...diagnostics import user_error
from .rewriting import Types, types_of

OF_FIRST_INPUT = ("GroupNormalization", "MeanVarianceNormalization")
HIDDEN = "{}, of no shape"  # what a result is called while onnx infers


def inferred(model: ModelProto) -> ModelProto:
    """`model` with the shapes of all values. Raises onnx.shape_inference.InferenceError."""
    found = ModelProto()
    found.CopyFrom(model)
    hidden = {name: HIDDEN.format(name) for node in found.graph.node for name in _misjudged(node)}
    _rename(found.graph, hidden)
    while _is_left(found.graph):
        found = infer_shapes(found)  # as far as such a node
        if not _complete(found.graph):
            break
    found = infer_shapes(found, strict_mode=True)
    while _complete(found.graph):
        found = infer_shapes(found, strict_mode=True)
    _rename(found.graph, {there: name for name, there in hidden.items()})
    known = [value for value in found.graph.value_info if value.name not in hidden.values()]
    del found.graph.value_info[:]
    found.graph.value_info.extend(known)
    return found


def _misjudged(node: NodeProto) -> list[str]:
    """Results whose shapes onnx infers wrong: scores of an unknown number of keys; or not at all: keys and values of
    Attention without a past."""
    if node.op_type != "Attention" or node.domain:
        return []
    has_past = len(node.input) > 4 and bool(node.input[4])
    return [name for name in node.output[3 if has_past else 1 :] if name]


def _rename(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Results of nodes, not what uses them."""
    for node in graph.node:
        for i, name in enumerate(node.output):
            node.output[i] = names.get(name, name)


def check(graph: GraphProto) -> None:
    """A user's error for an output whose rank is not known."""
    for value in graph.output:
        if not value.type.tensor_type.HasField("shape"):
            raise user_error(f"the rank of output '{value.name}' of the model is not known; declare its shape there")


def _is_left(graph: GraphProto) -> bool:
    """Whether there is a node of whose result onnx tells nothing: the next one has no input then."""
    found = [node.output[0] for node in graph.node if node.op_type in OF_FIRST_INPUT and not node.domain]
    found += [shown for node in graph.node for shown, _ in _shown(node)]
    return bool(found) and not types_of(graph).keys() >= set(found)


def _shown(node: NodeProto) -> list[tuple[str, str]]:
    """Results whose names are hidden, by these names, and the inputs whose elements' type they have."""
    suffix = HIDDEN.format("")
    sources = (node.input[i] for i in (0, 1, 2, 0)) if node.op_type == "Attention" else ()
    pairs = zip(node.output, sources, strict=False)
    return [(name.removesuffix(suffix), source) for name, source in pairs if name.endswith(suffix)]


def _complete(graph: GraphProto) -> bool:
    """Gives values the types that they lack, in place; whether there was one."""
    types = types_of(graph) | {value.name: value.type.tensor_type for value in graph.input}  # which outputs may be, too
    found = dict(pair for node in graph.node for pair in _known(node, types))
    found |= {value.name: types[value.name] for value in (*graph.input, *graph.initializer)}
    values = [*graph.value_info, *graph.output]
    lacking = [value for value in values if not value.type.tensor_type.HasField("shape") and value.name in found]
    for value in lacking:
        value.type.tensor_type.CopyFrom(found[value.name])
    added = found.keys() - types.keys()
    graph.value_info.extend(helper.make_value_info(name, TypeProto(tensor_type=found[name])) for name in sorted(added))
    return bool(lacking or added)


def _known(node: NodeProto, types: Types) -> Iterator[tuple[str, TypeProto.Tensor]]:
    """Results of a node, with their types."""
    if node.domain:
        return
    if node.op_type in OF_FIRST_INPUT and node.input[0] in types and types[node.input[0]].HasField("shape"):
        yield node.output[0], types[node.input[0]]
    for name, source in _shown(node):
        if source in types:
            yield name, helper.make_tensor_type_proto(types[source].elem_type, [None] * 4).tensor_type
    if node.op_type == "Loop":
        body = helper.get_attribute_value(next(a for a in node.attribute if a.name == "body"))
        for name, start, value in zip(node.output, node.input[2:], body.output[1:], strict=False):
            made = value.type.tensor_type
            if name and made.HasField("shape") and made == types.get(start):
                yield name, made
