"""ONNX: a model compiled as a whole, and a backend as onnx defines them.

kernel = compile("model.onnx")                    # or an onnx.ModelProto; example_args fix sizes that it leaves open
out = kernel(q, k, v)                             # numpy arrays, in the order of the model's inputs
out = Backend.prepare(model).run([q, k, v])       # onnx.backend.base
"""

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

try:
    import onnx
except ImportError as error:
    raise ImportError("models of ONNX need the package onnx: pip install 'attn-opt[onnx]'") from error
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend as BackendBase
from onnx.backend.base import BackendRep, Device, DeviceType, namedtupledict

from ....dialects.diagnostic import DiagnosedError, Diagnostic
from ... import explain
from ...api import CompileError, Kernel, Options, compile_module, make_options
from ...diagnostics import file_error, user_error
from ...kernel import traced_call
from ...runtime.signature import Slot, Traced, as_numpy, signless
from ..lowering import first_line
from .lowering import Lowered, lower
from .rewriting import is_open


def load(source: Any) -> ModelProto:
    """The model that `source` is: a ModelProto, its bytes, or a path."""
    if isinstance(source, ModelProto):
        return source
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        return onnx.load(os.fspath(source))
    except OSError as error:
        raise file_error(str(source), "read", error) from None
    except Exception as error:
        name = "the model" if isinstance(source, bytes) else str(source)
        raise user_error(f"{name} is no ONNX model: {first_line(error)}") from None


def compile_onnx(source: Any, example_args: Sequence[Any] | None, target: str, options: Options) -> "OnnxKernel":
    """The kernel of a model; for the shapes of `example_args`, where these are given."""
    model = load(source)
    shapes = None if example_args is None else [as_numpy(a).shape for a in example_args]
    if shapes is not None:
        initialized = {t.name for t in model.graph.initializer}
        names = [i.name for i in model.graph.input if i.name not in initialized]
        if len(names) != len(shapes):
            raise user_error(f"the model has {len(names)} inputs ({', '.join(names)}), but {len(shapes)} are given")
    options.check()
    try:
        lowered = lower(model, shapes)
        inputs = [value.name for value in lowered.inputs]
        options = dataclasses.replace(options, donate=options.donated(inputs, len(inputs)))
        kernel = OnnxKernel(compile_module(lowered.module, target, options), lowered, (model, options))
    except DiagnosedError as error:
        if shapes is None and any(is_open(value.type.tensor_type) for value in model.graph.input):
            note = Diagnostic("note", "", 0, 0, "the model leaves sizes open, which example_args would fix")
            raise DiagnosedError([*error.diagnostics, note]) from None
        raise
    if example_args is not None:
        kernel.bind([*example_args])
    return kernel


class OnnxKernel(Kernel):
    """A kernel that is called with the model's inputs; its weights are passed along.

    Where the model leaves sizes open, a call on which the kernel would not be right (see ``onnx/checks.py``), or in
    which attention was left alone, goes to another one, compiled for the sizes of this call.
    """

    def __init__(self, kernel: Kernel, lowered: Lowered, origin: tuple[ModelProto, Options]):
        self.__dict__.update(kernel.__dict__)
        self.origin = origin
        self.is_open = any(is_open(value.type.tensor_type) for value in lowered.inputs)
        self._checks = lowered.checks
        self._left = any(explain.reason_left(entry["message"]) for entry in kernel.record["entries"])
        self._fixed: dict[tuple[tuple[int, ...], ...], OnnxKernel] = {}
        self._is_told = False  # that there is one for each shape
        self._types = lowered.inputs
        self.inputs = [value.name for value in lowered.inputs]
        self.outputs = [value.name for value in lowered.outputs]
        self._dtypes = [_dtype(value).name for value in lowered.inputs]
        self._unsigned = [d if (d := _dtype(value)).kind == "u" else None for value in lowered.outputs]
        self._weights = [signless(w, w.dtype.name) for w in lowered.weights]

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The outputs; inputs are given in the model's order, or by name."""
        if out is not None and "out" not in self.inputs:
            raise CompileError(user_error("out is for the target nvidia; here results are new arrays").diagnostics)
        named |= {} if out is None else {"out": out}
        try:
            arguments = (*arguments, *self._ordered(len(arguments), named))
            kernel = self.fitting([as_numpy(a) for a in arguments]) if self.is_open else self
            results = kernel.run(kernel.bind(arguments))
        except Traced:
            return traced_call(self, arguments, {})
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None
        return results[0] if len(results) == 1 else tuple(results)

    def result_types(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Slot], Callable]:
        kernel = self.fitting([as_numpy(a) for a in args]) if self.is_open else self
        return super(OnnxKernel, kernel).result_types(args, kwargs)

    def _ordered(self, count: int, named: dict[str, Any]) -> list[Any]:
        """The inputs given by name that follow on the first `count`, in their order."""
        if not named:
            return []
        wanted = self.inputs[count:]
        if set(named) != set(wanted):
            found, missing = sorted(named.keys() - set(wanted)), [n for n in wanted if n not in named]
            what = f"has no input '{found[0]}' left" if found else f"also takes '{missing[0]}'"
            raise user_error(f"the model {what}; its inputs are: {', '.join(self.inputs)}")
        return [named[name] for name in wanted]

    def fitting(self, arrays: Sequence[np.ndarray]) -> "OnnxKernel":
        """This kernel, or the one for the sizes of `arrays` alone."""
        if len(arrays) != len(self.inputs):
            return self
        key = tuple(a.shape for a in arrays)
        if key not in self._fixed:
            kernel = self
            if self._left or not self._are_as_named(arrays) or not self._checks.hold([*arrays, *self._weights]):
                model, options = self.origin
                kernel = compile_onnx(model, arrays, self.target, options)
                if not self._is_told:
                    self._is_told = True
                    why = "leaves attention as it is" if self._left else "is not right where a size of 1 is broadcast"
                    text = f"attn_opt: the kernel for open sizes {why}: one is compiled for each shape of the inputs"
                    warnings.warn(text, stacklevel=3)
            self._fixed[key] = kernel
        return self._fixed[key]

    def _are_as_named(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether sizes to which the model gives one name are equal, as the kernel takes them to be."""
        sizes: dict[str, int] = {}
        for value, array in zip(self._types, arrays, strict=True):
            for size, n in zip(value.type.tensor_type.shape.dim, array.shape, strict=False):
                if size.dim_param and sizes.setdefault(size.dim_param, n) != n:
                    return False
        return True

    def bind(self, arguments: Sequence[Any]) -> list[np.ndarray]:
        """The model's inputs and weights as arrays that `run` takes, checked."""
        if len(arguments) != len(self.inputs):
            found = len(arguments)
            message = f"the model takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), but {found} were given"
            raise CompileError(user_error(message).diagnostics)
        arrays = [signless(as_numpy(a, i), self._dtypes[i], i) for i, a in enumerate(arguments)]
        return super().bind([*arrays, *self._weights])

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results on arrays that `bind` gave."""
        results = super().run(arrays)
        return [r if d is None else r.view(d) for r, d in zip(results, self._unsigned, strict=True)]


def _dtype(value: onnx.ValueInfoProto) -> np.dtype:
    return helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


class Representation(BackendRep):
    """A model that `Backend.prepare` has seen. It is compiled when its inputs' shapes are known, once for each."""

    def __init__(self, model: ModelProto, options: Options):
        self.model, self.options = model, options
        self._kernels: dict[Any, OnnxKernel] = {}
        if not any(is_open(value.type.tensor_type) for value in model.graph.input):
            self._kernels[None] = compile_onnx(model, None, "cpu", options)

    @property
    def kernels(self) -> list[OnnxKernel]:
        """The kernels that were compiled so far."""
        return list(self._kernels.values())

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by position and by name. `inputs`: a list in the model's order, a dict by name, or an array."""
        try:
            arrays = self._listed(inputs)
            kernel = self._kernels.get(None)
            if kernel is None:
                key = tuple(a.shape for a in arrays)
                kernel = self._kernels.get(key)
                if kernel is None:
                    kernel = self._kernels[key] = compile_onnx(self.model, arrays, "cpu", self.options)
            results = kernel.run(kernel.bind(arrays))
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None
        return namedtupledict("Outputs", kernel.outputs)(*results)

    def _listed(self, inputs: Any) -> list[np.ndarray]:
        initialized = {t.name for t in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in initialized]
        if isinstance(inputs, dict):
            for name in names:
                if name not in inputs:
                    raise user_error(f"input '{name}' of the model is not given")
            inputs = [inputs[name] for name in names]
        elif not isinstance(inputs, list | tuple):
            inputs = [inputs]
        return [as_numpy(value) for value in inputs]


class Backend(BackendBase):
    """An ``onnx.backend.base.Backend`` on this machine's CPU."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `model` can be lowered; for dynamic shapes that shows with the first inputs only."""
        if not cls.supports_device(device):
            return False
        try:
            lower(model)
        except DiagnosedError:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Representation:
        """The model, compiled; `kwargs` are options of `compile`."""
        cls._check_device(device)
        try:
            return Representation(load(model), make_options(kwargs))
        except DiagnosedError as error:
            raise CompileError(error.diagnostics) from None

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """The outputs of one node; `inputs` are those that it has, by position or by name."""
        cls._check_device(device)
        names = [n for n in dict.fromkeys(node.input) if n]
        if isinstance(inputs, dict):
            inputs = [inputs[n] for n in names]
        arrays = [as_numpy(x) for x in inputs]
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
        opsets = [helper.make_opsetid("", opset)]
        if node.domain:
            opsets.append(helper.make_opsetid(node.domain, kwargs.pop("domain_version", 1)))
        model = helper.make_model(helper.make_graph([node], "node", infos, outputs), opset_imports=opsets)
        inferred = onnx.shape_inference.infer_shapes(model)
        return cls.run_model(inferred, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        try:
            return Device(device).type == DeviceType.CPU
        except (AttributeError, ValueError):
            return False

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise CompileError(user_error(f"unknown device '{device}'; the devices are: CPU").diagnostics)


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
__all__ = ["Backend", "OnnxKernel", "Representation", "compile_onnx", "load"]
