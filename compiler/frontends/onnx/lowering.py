"""From an ONNX model to linalg on tensors.

    onnx_graph.prepared            functions inlined, constants folded
    torch_mlir's ONNX importer     operators of ONNX as ``torch.operator "onnx.…"``
    convert-torch-onnx-to-torch    operators of torch
    the bindings' torch pipeline   linalg on tensors

Weights are arguments of the function that is made, so that they are neither printed nor copied into the code.
"""

import dataclasses
import importlib
import re
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from ....dialects import make_context
from ....dialects.diagnostic import DiagnosedError
from ....dialects.mlir import PACKAGE, ir
from ...diagnostics import user_error
from .. import nans, open_sizes
from ..constants import compute_constants, pattern
from ..lowering import check_lowered, clamp_gathers, convert_by_32_bits, first_line, run
from ..open_broadcasts import read_by_loops
from ..open_reshapes import to_views
from ..sequential import to_loops
from ..sorting import by_rank
from . import contrib as onnx_contrib
from . import limits as onnx_limits
from . import shapes as onnx_shapes
from .checks import Checks
from .functions import has_function
from .graph import prepared
from .loops import HOLDS
from .quantization import lower_casts

WAY_OUT = "run that part of the model with another runtime, or replace the node"
TO_TORCH = "builtin.module(func.func(convert-torch-onnx-to-torch))"
TO_BACKEND = "builtin.module(torch-lower-to-backend-contract)"
TO_LINALG = (
    "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true},canonicalize,"
    "func.func(math-expand-ops{ops=fpowi}),canonicalize,cse)"  # as products: LLVM has no vectors of that power
)
ELEMENTS = frozenset(
    onnx.TensorProto.DataType.Value(name)
    for name in (
        *("UNDEFINED", "BOOL", "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"),
        *("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"),
        *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    )
)
OPERATOR = re.compile(r'name = "onnx\.([^"]*)"')
VALUE_TYPE = re.compile(r"!torch\.vtensor<[^>]*>")
HOISTED = 256  # elements: smaller weights stay in the graph, where they are folded


class Unsupported(Exception):
    """An operator, as its domain and name, has no lowering."""

    def __init__(self, message: str, operator: tuple[str, str], version: int):
        super().__init__(message)
        self.message, self.operator, self.version = message, operator, version


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A module whose function ``main`` takes the model's inputs, then `weights`, where `checks` hold of their sizes."""

    module: ir.Module
    inputs: list[onnx.ValueInfoProto]
    outputs: list[onnx.ValueInfoProto]
    weights: list[np.ndarray]
    checks: Checks


def lower(model: ModelProto, shapes: Sequence[Sequence[int] | None] | None = None) -> Lowered:
    """Linalg on tensors for a model, for inputs of `shapes` where given. A user's error where there is no way."""
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") not in ("tensor_type", None):
            kind = value.type.WhichOneof("value").removesuffix("_type")
            raise user_error(f"'{value.name}' of the model is a {kind}; only tensors are supported")
        if value.type.tensor_type.elem_type not in ELEMENTS:
            kind = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            raise user_error(f"'{value.name}' of the model is a tensor of {kind}, which is not supported")
    functions: set[tuple[str, str]] = set()
    while True:
        ready = prepared(model, shapes, functions)
        for node in ready.graph.node:
            if node.domain == onnx_contrib.DOMAIN:  # of some of which the importer ignores attributes
                where = f"operator {node.domain}.{node.op_type} of ONNX (node '{node.name or node.output[0]}')"
                respect = " with these inputs and attributes" if onnx_contrib.is_known(node.op_type) else ""
                raise user_error(f"{where} has no lowering to linalg{respect}; {WAY_OUT}")
        onnx_limits.check(ready.graph, WAY_OUT)
        onnx_shapes.check(ready.graph)
        inputs, outputs = list(ready.graph.input), list(ready.graph.output)
        weights = _hoisted(ready.graph)
        module = _imported(ready)
        lower_casts(module)
        try:
            _to_torch(module, ready)
            break
        except Unsupported as error:
            if error.operator in functions or not has_function(*error.operator[::-1], error.version):
                raise user_error(error.message) from None
            functions.add(error.operator)
    run(module, TO_LINALG, WAY_OUT)
    checks = Checks(module)
    open_sizes.name(module, _names(inputs))
    to_views(module)
    nans.keep(module)
    read_by_loops(module)
    clamp_gathers(module)
    convert_by_32_bits(module)
    to_loops(module)
    by_rank(module)
    compute_constants(module)
    run(module, "builtin.module(canonicalize,cse)", WAY_OUT)
    check_lowered(module, ("torch", "torch_c", "tm_tensor", "ml_program"), WAY_OUT)
    return Lowered(module, inputs, outputs, weights, checks)


def _names(inputs: Sequence[onnx.ValueInfoProto]) -> dict[tuple[int, int], str]:
    """What the model calls its inputs' sizes; those of one name are equal, or a kernel is for others (`model.py`)."""
    shapes = ((number, value.type.tensor_type.shape) for number, value in enumerate(inputs))
    return {
        (number, d): size.dim_param for number, shape in shapes for d, size in enumerate(shape.dim) if size.dim_param
    }


def _hoisted(graph: onnx.GraphProto) -> list[np.ndarray]:
    """Makes large initializers inputs, unless they can be computed, and returns their values."""
    large = [
        t
        for t in graph.initializer
        if t.name == HOLDS or (np.prod(t.dims) > HOISTED and pattern(numpy_helper.to_array(t)) is None)
    ]
    names = {t.name for t in large}
    small = [t for t in graph.initializer if t.name not in names]
    del graph.initializer[:]
    graph.initializer.extend(small)
    graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large)
    return [numpy_helper.to_array(t) for t in large]


def _imported(model: ModelProto) -> ir.Module:
    torch_dialect = importlib.import_module(f"{PACKAGE}.dialects.torch")
    onnx_importer = importlib.import_module(f"{PACKAGE}.extras.onnx_importer")
    context = make_context()
    torch_dialect.register_dialect(context)
    model.graph.name = "main"
    for node in model.graph.node:
        node.name = node.name or node.output[0]
    try:
        info = onnx_importer.ModelInfo(model)
        module = info.create_module(context=context)
        onnx_importer.NodeImporter.define_function(info.main_graph, module.operation).import_all()
    except Exception as error:
        raise user_error(f"the ONNX graph cannot be imported: {first_line(error)}; {WAY_OUT}") from error
    return module


def _to_torch(module: ir.Module, model: ModelProto) -> None:
    """Operators of ONNX become torch's. Unsupported for one that the lowering does not know."""
    try:
        run(module, TO_TORCH, WAY_OUT)
        run(module, TO_BACKEND, WAY_OUT)
    except DiagnosedError as error:
        text = error.diagnostics[0].message
        found = OPERATOR.search(text)
        if found is None:
            raise
        types = ", ".join(t.replace("!torch.vtensor", "tensor") for t in VALUE_TYPE.findall(text.rpartition(" : (")[2]))
        node = next((n for n in model.graph.node if n.op_type == found[1]), None)
        at = "" if node is None else f" (node '{node.name or node.output[0]}')"
        name = found[1] if node is None or not node.domain else f"{node.domain}.{found[1]}"
        message = f"operator {name} of ONNX{at} has no lowering to linalg for {types}; {WAY_OUT}"
        domain = "" if node is None else node.domain
        version = next((o.version for o in model.opset_import if o.domain == domain), 1)
        raise Unsupported(message, (domain, found[1]), version) from None
