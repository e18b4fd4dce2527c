"""An ONNX model made ready for import: functions inlined, shapes inferred, what is constant folded.

  Attention(Q, K, V) {is_causal = 1}
becomes the function body that the operator's schema defines, of which
  Shape(K) → Slice → Concat → Reshape, Sqrt(Cast(Shape)), Where(true, …)
and all else that hangs on no input is computed here, by onnx's reference evaluator. Index patterns (a causal mask
made of ``Range``) stay: as computations on indices they can be told from any other mask.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnx.version_converter
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...diagnostics import user_error
from ..lowering import first_line
from . import contrib as onnx_contrib
from . import shapes as onnx_shapes
from .block_weights import as_floats
from .einsums import as_products
from .functions import give_defaults, inlined, is_left
from .loops import counted
from .matmuls import in_four_dimensions
from .pads import as_slices
from .precision import in_single_precision
from .quantization import in_steps
from .reductions import in_parts
from .reshapes import merged_first
from .rewriting import is_open, replace_nodes, scopes_of, type_of, types_of
from .scans import forwards
from .sizes import Sizes

AXES = 8  # a Range that is longer is no list of axes, but a pattern of indices that raise-attention tells from a tensor
OLDEST = 13  # the first version of the standard operators that is taken as it is
FOLDED = 1024  # elements: larger results are computed at run time, unless they come from constants as large
LARGEST = 2**31 - 1  # bytes of a message of protobuf
UNFOLDABLE = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")


def prepared(
    model: ModelProto,
    shapes: Sequence[Sequence[int] | None] | None = None,
    functions: Collection[tuple[str, str]] = (),
) -> ModelProto:
    """`model` ready for import. `shapes`, where given, are those of the inputs that it will be called with.

    `functions` are domains and names of operators that are to be replaced by what defines them.
    """
    if model.ByteSize() > LARGEST:
        raise user_error("the model is larger than 2 GiB, more than onnx can check as one; split it, by layers say")
    copy = ModelProto()
    copy.CopyFrom(model)
    onnx_contrib.adopt(copy)
    _check(copy)
    copy = _updated(copy)
    _remove_initialized_inputs(copy.graph)
    as_floats(copy)
    give_defaults(copy)
    if shapes is not None:
        _set_shapes(copy.graph, shapes)
    _name_sizes(copy.graph)
    copy, left = _inferred(copy), len(copy.graph.node) + 1
    while True:
        copy = _folded(_inferred(inlined(copy, functions)))
        count = sum(is_left(node, functions) for node in copy.graph.node)
        if not 0 < count < left:
            break
        left = count  # some are written out where more is known of their inputs
    if as_slices(copy) | counted(copy):
        copy = _inferred(copy)
    copy = _inferred(in_single_precision(copy))
    if merged_first(copy):
        copy = _inferred(copy)
    return _inferred(copy) if in_four_dimensions(copy) else copy


def _folded(model: ModelProto) -> ModelProto:
    if in_steps(model) | as_products(model) | forwards(model) | in_parts(model):
        model = _inferred(model)
    for _ in range(8):  # what is folded gives shapes, which fold more
        if not _Folding(model).run():
            break
        model = _inferred(model)
    return model


def _check(model: ModelProto) -> None:
    """A user's error where the model is none. Values need no shape, as for runtimes; the checker wants one."""
    checked = ModelProto()
    checked.CopyFrom(model)
    for value in (*checked.graph.input, *checked.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(checked)
    except Exception as error:
        raise user_error(f"the model is no valid ONNX model: {first_line(error)}") from None


def _updated(model: ModelProto) -> ModelProto:
    """A model of an old version as one of `OLDEST`, whose operators the importer knows; as it is, if that fails. With
    operators of onnxruntime's, as one in which these can be written out: versions 14 and 15 only add to 13, but for
    what is gone of BatchNormalization."""
    if any(o.version < OLDEST for o in model.opset_import if o.domain in ("", "ai.onnx")):
        try:
            model = onnx.version_converter.convert_version(model, OLDEST)
        except Exception:
            return model
    nodes = [node for scope in scopes_of(model.graph) for node in scope.graph.node]
    nodes += [node for function in model.functions for node in function.node]
    has_contributed = any(node.domain == onnx_contrib.DOMAIN for node in nodes)
    if has_contributed and not any(node.op_type == "BatchNormalization" and len(node.output) > 1 for node in nodes):
        for o in itertools.chain(model.opset_import, *(function.opset_import for function in model.functions)):
            if o.domain in ("", "ai.onnx"):
                o.version = max(o.version, onnx_contrib.OLDEST)
    return model


def _remove_initialized_inputs(graph: GraphProto) -> None:
    """Models of old versions list their weights as inputs too."""
    initialized = {t.name for t in graph.initializer}
    kept = [i for i in graph.input if i.name not in initialized]
    del graph.input[:]
    graph.input.extend(kept)


def _set_shapes(graph: GraphProto, shapes: Sequence[Sequence[int] | None]) -> None:
    for value, shape in zip(graph.input, shapes, strict=False):
        kind = value.type.tensor_type
        if shape is None or not value.type.HasField("tensor_type"):
            continue
        if kind.HasField("shape"):
            declared = [d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim]
            if len(declared) != len(shape) or any(d not in (None, n) for d, n in zip(declared, shape, strict=True)):
                sizes = [d.dim_param or d.dim_value for d in kind.shape.dim]
                raise user_error(f"input '{value.name}' of the model has shape {sizes}, but is given {list(shape)}")
        value.type.CopyFrom(helper.make_tensor_type_proto(kind.elem_type, list(shape)))


def _name_sizes(graph: GraphProto) -> None:
    """Gives sizes of inputs that are open a name, and takes those of outputs away, which tell nothing."""
    for value in graph.input:
        if not value.type.tensor_type.HasField("shape"):
            raise user_error(f"the rank of input '{value.name}' is not known")
        for d, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value") and not size.dim_param:
                size.dim_param = f"size {d} of {value.name}"
    for value in graph.output:
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_param"):
                size.Clear()


def _inferred(model: ModelProto) -> ModelProto:
    """`model` with the shapes of all values, as far as they are known by now."""
    made = {name for node in model.graph.node for name in node.output}
    kept = [value for value in model.graph.value_info if value.name in made]  # others are gone, and names are used anew
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    names = {size.dim_param for value in model.graph.input for size in value.type.tensor_type.shape.dim}
    for value in (*model.graph.value_info, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.HasField("dim_param") and size.dim_param not in names:
                size.Clear()  # a name would stay, also where the size is known since
    try:
        return onnx_shapes.inferred(model)
    except onnx.shape_inference.InferenceError as error:
        raise user_error(f"the shapes of the ONNX model do not fit together: {first_line(error)}") from None


def attributes(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


class _Folding:
    """One pass over the graph, in which nodes of constants are replaced by their results."""

    def __init__(self, model: ModelProto):
        self.model, self.graph = model, model.graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        self.types = types_of(self.graph)
        self.same: dict[str, str] = {}  # results of nodes that do nothing
        self.sizes = Sizes([v.name for v in self.graph.input], self.types, model.opset_import)
        self.added: list[TensorProto] = []

    def run(self) -> bool:
        """Whether anything was folded."""
        kept: list[NodeProto] = []
        changed = False
        outputs = {o.name for o in self.graph.output}
        in_bodies = self._used_in_subgraphs(self.graph.node)
        for node in self.graph.node:
            for i, name in enumerate(node.input):
                node.input[i] = self.same.get(name, name)
            values = self._value(node)
            if values is None:
                found = self.sizes.value(node, self.constants, self._evaluated)
                values = None if found is None else [found]
            if values is not None:
                for name, value in zip(node.output, values, strict=True):
                    if name:
                        self._constant(name, value)
            elif node.op_type == "Identity" and node.output[0] not in outputs | in_bodies and not node.domain:
                self.same[node.output[0]] = node.input[0]
            else:
                parts, node = self.sizes.simplified(self._simplified(node))
                kept += [*parts, node]
                changed |= bool(parts) | self.sizes.learn(node, self.constants)
        changed |= len(kept) != len(self.graph.node)
        kept = _live(kept, self._used_in_subgraphs(kept) | outputs)
        changed |= len(kept) != len(self.graph.node)
        replace_nodes(self.graph, kept)
        used = {name for node in kept for name in node.input} | outputs | self._used_in_subgraphs(kept)
        tensors = [t for t in itertools.chain(self.graph.initializer, self.added) if t.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(tensors)
        return changed

    def _used_in_subgraphs(self, nodes: Sequence[NodeProto]) -> set[str]:
        used: set[str] = set()
        for node in nodes:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    inner = list(attribute.g.node)
                    used |= {name for n in inner for name in n.input} | {o.name for o in attribute.g.output}
                    used |= self._used_in_subgraphs(inner)
        return used

    def _constant(self, name: str, value: np.ndarray) -> None:
        self.constants[name] = value
        self.added.append(numpy_helper.from_array(np.asarray(value), name))
        self.types[name] = type_of(self.added[-1])

    def _shape(self, name: str) -> list[int] | None:
        if name in self.constants:
            return list(self.constants[name].shape)
        kind = self.types.get(name)
        return None if kind is None or is_open(kind) else [d.dim_value for d in kind.shape.dim]

    def _empty(self, name: str) -> np.ndarray | None:
        """A result without elements. The importer ends the process on some of its makers, such as a Reshape to −1."""
        shape = self._shape(name)
        if shape is None or 0 not in shape:
            return None
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(self.types[name].elem_type))

    def _value(self, node: NodeProto) -> list[np.ndarray] | None:
        """The results of a node, if they are known and small enough to be constants."""
        empty = [value for value in map(self._empty, node.output) if value is not None]
        if len(empty) == len(node.output):
            return empty
        if node.domain not in ("", "ai.onnx") or node.op_type in UNFOLDABLE:
            return None
        if node.op_type in ("Shape", "Size"):
            shape = self._shape(node.input[0])
            if shape is None:
                return None
            if node.op_type == "Size":
                return [np.array(int(np.prod(shape)), np.int64)]
            found = attributes(node)
            return [np.array(shape[found.get("start", 0) : found.get("end", len(shape))], np.int64)]
        inputs = [name for name in node.input if name]
        if any(name not in self.constants for name in inputs):
            return None
        if any(a.type == AttributeProto.GRAPH for a in node.attribute):
            return None
        limit = AXES if node.op_type == "Range" else max([FOLDED, *(self.constants[name].size for name in inputs)])
        sizes = [self._shape(name) for name in node.output if name]
        if any(shape is not None and np.prod(shape) > limit for shape in sizes):
            return None
        values = self._evaluated(node, {name: self.constants[name] for name in inputs})
        return None if values is None or any(v.size > limit for v in values) else values

    def _evaluated(self, node: NodeProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
        from onnx.reference import ReferenceEvaluator

        names = [n for n in node.output if n]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), None) for n, v in inputs.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in names]
        model = helper.make_model(
            helper.make_graph([node], "folded", infos, outputs), opset_imports=list(self.model.opset_import)
        )
        try:
            with np.errstate(all="ignore"):
                values = ReferenceEvaluator(model).run(None, dict(inputs))
        except Exception:
            return None  # it may be a node that the importer knows better
        if not all(isinstance(v, np.ndarray | np.generic) for v in values):
            return None
        found = dict(zip(names, map(np.asarray, values), strict=True))
        return [found.get(n, np.zeros(0)) for n in node.output]

    def _simplified(self, node: NodeProto) -> NodeProto:
        """CastLike as the Cast that it is."""
        if node.op_type == "CastLike" and not node.domain:
            like = node.input[1]
            kind = self.types.get(like)
            element = kind.elem_type if kind is not None else 0
            if like in self.constants:
                element = helper.np_dtype_to_tensor_dtype(self.constants[like].dtype)
            if element:
                return helper.make_node("Cast", [node.input[0]], list(node.output), node.name, to=element)
        return node


def _live(nodes: list[NodeProto], used: set[str]) -> list[NodeProto]:
    """The nodes that the names `used` need."""
    kept = []
    used = set(used)
    for node in reversed(nodes):
        if any(name in used for name in node.output):
            kept.append(node)
            used |= set(node.input)
    return kept[::-1]
