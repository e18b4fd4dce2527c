"""Operators of ONNX that are defined by a function of others, replaced by its body.

    Y = Attention(Q, K, V) {is_causal = 1}
  becomes what the schema of Attention says it is, for this node's attributes and these inputs' types:
    KTranspose = Transpose(K); S = MatMul(Mul(Q, scale), Mul(KTranspose, scale)); …; Y = MatMul(Softmax(…), V)

Function bodies depend on which inputs a node has, also on absent ones, so they are asked for node by node.
"""

import re
from collections.abc import Collection, Iterable

import numpy as np
import onnx
import onnx.inliner
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from ...diagnostics import user_error
from ..lowering import first_line
from . import contrib as onnx_contrib
from . import shapes as onnx_shapes
from .rewriting import scopes_of, sizes_of, types_of

# By domain; the importer lowers all other operators as they are. Those that it then has no lowering for, and of which
# onnx knows a function, are inlined as well (see `lower`).
INLINED = {
    "": ("Attention", "Gelu", "RMSNormalization", "RotaryEmbedding", "Swish", "LinearAttention", "CausalConvWithState"),
    "ai.onnx.preview": ("FlexAttention",),
}
DOMAIN = "attn_opt.inlined"
_NUMBERS = re.compile(r"(__\d+(_\d+)*)+$")


def has_function(op_type: str, domain: str, version: int) -> bool:
    """Whether onnx defines the operator by a function of others."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def give_defaults(model: ModelProto) -> None:
    """Gives nodes of operators that are defined by functions the attributes that they leave to defaults, in place:
    onnx's inference takes them to be absent."""
    version = {o.domain: o.version for o in model.opset_import}.get("", 0)
    for scope in scopes_of(model.graph):
        for node in scope.graph.node:
            if node.domain or not has_function(node.op_type, "", version):
                continue
            schema, given = onnx.defs.get_schema(node.op_type, version, ""), {a.name for a in node.attribute}
            if schema.has_function:
                left = [a.default_value for name, a in schema.attributes.items() if name not in given]
                node.attribute.extend(default for default in left if default.name)


def inlined(model: ModelProto, more: Collection[tuple[str, str]] = ()) -> ModelProto:
    """`model`, whose shapes were inferred, without functions of its own and operators of `INLINED`, or `more`.

    `more` are pairs of a domain and an operator. What functions are made of, or the types of what follows on one tell,
    is replaced as well.
    """
    try:
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
            model = onnx_shapes.inferred(model)
        names: set[str] = set()
        while made := _make_functions(model, more):
            names |= made
            model = onnx.inliner.inline_local_functions(model)
            if not any(is_left(node, more) for node in model.graph.node):
                break
            model = onnx_shapes.inferred(model)  # which some of these operators need
    except Exception as error:
        raise user_error(f"the functions of the ONNX model cannot be inlined: {first_line(error)}") from error
    for node in model.graph.node:
        own = _NUMBERS.sub("", node.name)  # by which the inliner tells them apart
        node.name = own if own in names else node.name
    return model


def is_left(node: NodeProto, more: Collection[tuple[str, str]]) -> bool:
    """Whether it is to be replaced, or may be."""
    return node.domain == onnx_contrib.DOMAIN or _is_function(node, more)


def _make_functions(model: ModelProto, more: Collection[tuple[str, str]]) -> set[str]:
    """Gives every node of `INLINED` a function of its own, and calls it. The names of these nodes, which those of the
    functions have too: messages tell of them."""
    versions = {o.domain: o.version for o in model.opset_import}
    types = {name: TypeProto(tensor_type=kind) for name, kind in types_of(model.graph).items()}
    found: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if _is_function(node, more):
            function = _function(node, versions, types)
        else:
            function = _contributed(node, versions, types)
        if function is None:
            continue
        function.domain, function.name = DOMAIN, f"{node.op_type}_{number}"
        for inner in function.node:
            inner.name = node.name or node.output[0]
        found.add(node.name or node.output[0])
        known = {o.domain for o in model.opset_import}
        model.opset_import.extend(o for o in function.opset_import if o.domain not in known)
        model.functions.append(function)
        call = onnx.helper.make_node(function.name, list(node.input), list(node.output), node.name, domain=DOMAIN)
        node.CopyFrom(call)
    if found and DOMAIN not in versions:
        model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return found


def _is_function(node: NodeProto, more: Collection[tuple[str, str]]) -> bool:
    return node.op_type in INLINED.get(node.domain, ()) or (node.domain, node.op_type) in more


def _contributed(node: NodeProto, versions: dict[str, int], types: dict[str, TypeProto]) -> FunctionProto | None:
    """The body of an operator of onnxruntime's; None where none is known."""
    kinds = [types.get(name, TypeProto()).tensor_type for name in node.input]
    shapes = [sizes_of(kind) for kind in kinds]
    names = [[d.dim_param for d in kind.shape.dim] for kind in kinds]
    function = onnx_contrib.function_of(node, versions.get("", 0), shapes, names)
    if function is not None:
        _without_absent(node)
    return function


def _without_absent(node: NodeProto) -> None:
    """Removes the places of inputs and outputs that the node does not have."""
    for names in (node.input, node.output):
        kept = [name for name in names if name]
        del names[:]
        names.extend(kept)


def _function(node: NodeProto, versions: dict[str, int], types: dict[str, TypeProto]) -> FunctionProto | None:
    """The body of `node` by its schema, its attributes put in; None where there is none."""
    version = versions[node.domain]
    schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    inputs = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
    body = b""
    if schema.has_context_dependent_function:
        best = max(v for v in schema.context_dependent_function_opset_versions if v <= versions.get("", version))
        body = schema.get_context_dependent_function_with_opset_version(best, node.SerializeToString(), inputs)
    elif schema.has_function:
        best = max(v for v in schema.function_opset_versions if v <= versions.get("", version))
        body = schema.get_function_with_opset_version(best)
    if not body:
        return None
    function = FunctionProto.FromString(body)
    for opset in function.opset_import:  # else the inliner leaves it
        opset.version = versions.get(opset.domain, opset.version)
    given = {a.name: a for a in node.attribute}
    _bind(function.node, given, schema)
    kinds = {types[name].tensor_type.elem_type for name in (*node.input, *node.output) if name in types}
    has_bodies = any(a.type == AttributeProto.GRAPH for inner in function.node for a in inner.attribute)
    if TensorProto.DOUBLE in kinds and TensorProto.FLOAT not in kinds and not has_bodies:
        _widen(function.node)
    del function.attribute[:]
    del function.attribute_proto[:]
    absent = {f for f, a in zip(function.input, node.input, strict=False) if not a}
    absent |= set(function.input[len(node.input) :])
    for inner in function.node:
        for i, name in enumerate(inner.input):
            if name in absent:
                inner.input[i] = ""
    present = [f for f in function.input if f not in absent]
    wanted = [f for f, a in zip(function.output, node.output, strict=False) if a]
    del function.input[:], function.output[:]
    function.input.extend(present)
    function.output.extend(wanted)
    _without_absent(node)
    return function


def _widen(nodes: Iterable[NodeProto]) -> None:
    """What a function computes in single precision, whatever it is of, in double: the scale of attention, say."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
            elif attribute.name in ("value_float", "value_floats") or attribute.t.data_type == TensorProto.FLOAT:
                value = helper.get_attribute_value(attribute)
                value = numpy_helper.to_array(value) if isinstance(value, TensorProto) else value
                attribute.CopyFrom(
                    helper.make_attribute("value", numpy_helper.from_array(np.asarray(value, np.float64)))
                )


def _bind(nodes: list[NodeProto], given: dict, schema: onnx.defs.OpSchema) -> None:
    """Replaces references to the function's attributes by their values; absent ones by their defaults, or nothing."""
    for node in nodes:
        bound = []
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                bound.append(attribute)
                continue
            value = given.get(attribute.ref_attr_name)
            if value is None:
                declared = schema.attributes.get(attribute.ref_attr_name)
                value = declared.default_value if declared is not None and declared.default_value.name else None
            if value is not None:
                copy = onnx.AttributeProto()
                copy.CopyFrom(value)
                copy.name = attribute.name
                bound.append(copy)
        del node.attribute[:]
        node.attribute.extend(bound)
