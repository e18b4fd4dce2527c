"""Half-precision graphs computed in single precision: this machine's arithmetic is.

    S = MatMul(Q, K) : f16;  P = Softmax(S) : f16;  O = MatMul(P, V) : f16
  becomes
    Qf, Kf, Vf = Cast(Q), Cast(K), Cast(V) : f32
    S = MatMul(Qf, Kf) : f32;  P = Softmax(S) : f32;  Of = MatMul(P, Vf) : f32;  O = Cast(Of) : f16

Results are rounded once, at the outputs, instead of after every node; intermediate results cannot overflow. Where
attention is raised, queries, keys and values are read in half precision, and the casts vanish.
"""

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, TensorProto, helper, numpy_helper

from . import shapes as onnx_shapes
from .rewriting import replace_nodes

HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def in_single_precision(model: ModelProto) -> ModelProto:
    """`model`, without operators that are functions, with every tensor of half precision but inputs and outputs in f32.

    The same model where an operator keeps that from having consistent types.
    """
    promoted = ModelProto()
    promoted.CopyFrom(model)
    if not _promote(promoted.graph):
        return model
    try:
        onnx_shapes.inferred(promoted)
    except onnx.shape_inference.InferenceError:
        return model
    return promoted


def _promote(graph: GraphProto) -> bool:
    """Whether there was anything to promote."""
    renamed = {value.name: value for value in (*graph.input, *graph.output) if _is_half(value)}
    halves = any(t.data_type in HALF for t in graph.initializer) or any(_is_half(v) for v in graph.value_info)
    if not renamed and not halves:
        return False
    for node in graph.node:
        _promote_attributes(node)
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name in renamed:
                    names[i] = _single(name)
    inputs = [v.name for v in graph.input if v.name in renamed]
    outputs = [v for v in graph.output if v.name in renamed]
    nodes = [helper.make_node("Cast", [name], [_single(name)], to=TensorProto.FLOAT) for name in inputs]
    nodes += graph.node
    nodes += [
        helper.make_node("Cast", [_single(v.name)], [v.name], to=v.type.tensor_type.elem_type)
        for v in outputs
        if v.name not in inputs
    ]
    replace_nodes(graph, nodes)
    for t in graph.initializer:
        if t.data_type in HALF:
            t.CopyFrom(_promoted(t))
            if t.name in renamed:
                t.name = _single(t.name)
    for value in graph.value_info:  # their sizes are known
        if _is_half(value):
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return True


def _single(name: str) -> str:
    return f"{name} in f32"


def _is_half(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in HALF


def _promoted(tensor: TensorProto) -> TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


def _promote_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in HALF:
            attribute.t.CopyFrom(_promoted(attribute.t))
        elif attribute.name in ("to", "dtype") and attribute.i in HALF:
            attribute.i = TensorProto.FLOAT
        elif attribute.type == AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _promote_attributes(inner)
            for t in attribute.g.initializer:
                if t.data_type in HALF:
                    t.CopyFrom(_promoted(t))
            for value in (*attribute.g.input, *attribute.g.output, *attribute.g.value_info):
                if _is_half(value):
                    value.type.tensor_type.elem_type = TensorProto.FLOAT
