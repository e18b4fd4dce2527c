"""From an ONNX model to linalg on tensors.

    onnx_graph.prepared            functions inlined, constants folded
    torch_mlir's ONNX importer     operators of ONNX as ``torch.operator "onnx.…"``
    convert-torch-onnx-to-torch    operators of torch
    the bindings' torch pipeline   linalg on tensors

Weights are arguments of the function that is made, so that they are neither printed nor copied into the code.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import ModelProto, helper, numpy_helper

from ...dialects import make_context
from ...dialects.mlir import PACKAGE, ir
from ..diagnostics import user_error
from .lowering import check_lowered, first_line, ops, run
from .onnx_graph import prepared

WAY_OUT = "run that part of the model with another runtime, or replace the node"
TO_TORCH = "builtin.module(func.func(convert-torch-onnx-to-torch))"
TO_BACKEND = "builtin.module(torch-lower-to-backend-contract)"
TO_LINALG = (
    "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true},canonicalize,cse)"
)
HOISTED = 256  # elements: smaller weights stay in the graph, where they are folded


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A module whose function ``main`` takes the model's inputs, then `weights`."""

    module: ir.Module
    inputs: list[onnx.ValueInfoProto]
    outputs: list[onnx.ValueInfoProto]
    weights: list[np.ndarray]


def lower(model: ModelProto, shapes: Sequence[Sequence[int] | None] | None = None) -> Lowered:
    """Linalg on tensors for a model, for inputs of `shapes` where given. A user's error where there is no way."""
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") not in ("tensor_type", None):
            kind = value.type.WhichOneof("value").removesuffix("_type")
            raise user_error(f"'{value.name}' of the model is a {kind}; only tensors are supported")
    model = prepared(model, shapes)
    graph = model.graph
    inputs = list(graph.input)
    outputs = list(graph.output)
    weights = _hoisted(graph)
    module = _imported(model)
    _check_known(module, before=True)
    run(module, TO_TORCH, WAY_OUT)
    _check_known(module)
    run(module, TO_BACKEND, WAY_OUT)
    run(module, TO_LINALG, WAY_OUT)
    for op in ops(module):
        if op.name == "cf.assert":  # sizes that do not match are refused at the call
            op.erase()
    run(module, "builtin.module(canonicalize,cse)", WAY_OUT)
    check_lowered(module, ("torch", "torch_c", "tm_tensor", "ml_program"), WAY_OUT)
    return Lowered(module, inputs, outputs, weights)


def _hoisted(graph: onnx.GraphProto) -> list[np.ndarray]:
    """Makes large initializers inputs, and returns their values."""
    large = [t for t in graph.initializer if np.prod(t.dims) > HOISTED]
    small = [t for t in graph.initializer if np.prod(t.dims) <= HOISTED]
    del graph.initializer[:]
    graph.initializer.extend(small)
    graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in large)
    return [numpy_helper.to_array(t) for t in large]


def _imported(model: ModelProto) -> ir.Module:
    import importlib

    torch_dialect = importlib.import_module(f"{PACKAGE}.dialects.torch")
    onnx_importer = importlib.import_module(f"{PACKAGE}.extras.onnx_importer")
    context = make_context()
    context.enable_multithreading(False)
    torch_dialect.register_dialect(context)
    model.graph.name = "main"
    try:
        info = onnx_importer.ModelInfo(model)
        module = info.create_module(context=context)
        onnx_importer.NodeImporter.define_function(info.main_graph, module.operation).import_all()
    except Exception as error:
        raise user_error(f"the ONNX graph cannot be imported: {first_line(error)}; {WAY_OUT}") from error
    return module


def _check_known(module: ir.Module, before: bool = False) -> None:
    """A user's error for operators that the lowering does not know."""
    for op in ops(module):
        if op.name != "torch.operator":
            continue
        name = ir.StringAttr(op.attributes["name"]).value
        if not before:
            types = ", ".join(str(v.type) for v in op.operands)
            raise user_error(f"operator {name.removeprefix('onnx.')} of ONNX has no lowering for ({types}); {WAY_OUT}")
