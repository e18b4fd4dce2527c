"""Kernels for arrays that are not contiguous: parts and transposed views of other arrays are read where they stand.

A kernel is compiled for contiguous arrays, whose strides it knows. For others a variant of its graph is compiled when
they are first passed, and kept as any kernel is: an argument becomes a memref with strides that the call tells, and a
dimension other than the last one that is contiguous becomes the last one::

    func.func @attention(%k: tensor<2x8x64x512xf32>)                   // passed as k.transpose(0, 1, 3, 2)
  becomes
    func.func @attention(%k: tensor<2x8x512x64xf32> {bufferization.buffer_layout = strided<[?, ?, ?, 1]>}) {
      %0 = linalg.transpose ins(%k) … permutation = [0, 1, 3, 2]       // fused into the tiles that are read

Kernels for GPUs take dense rows at any distance as they are; they need a variant where rows are no rows of memory
(`transposed`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dialects.diagnostic import DiagnosedError
from ..dialects.mlir import ir
from .diagnostics import Bug
from .runtime.signature import BUFFER_LAYOUT, NotContiguous, Signature, Units, stored_dims

if TYPE_CHECKING:
    from .kernel import Kernel
    from .options import Options


class Bound(list):
    """Arrays for the variant of a kernel, with what runs it."""

    def __init__(self, arrays: Sequence[np.ndarray], runtime: Any):
        super().__init__(arrays)
        self.runtime = runtime


class Variants:
    """The variants of one kernel, of whose stages `texts` are the IR."""

    def __init__(self, texts: Mapping[str, str], signature: Signature, target: str, options: Options):
        self._texts, self._signature, self._target = texts, signature, target
        self._options = dataclasses.replace(options, entry=signature.name, listener=None)
        self._found: dict[Units, Kernel | None] = {}

    def bound(self, arrays: NotContiguous) -> list[np.ndarray]:
        """The arrays as a variant takes them, or copies if there is none."""
        units = arrays.units
        if units not in self._found:
            from .api import COMPILING

            with COMPILING:
                if units not in self._found:
                    self._found[units] = self._compiled(units)
        kernel = self._found[units]
        if kernel is None:
            return [np.ascontiguousarray(a) for a in arrays]
        moved = list(arrays)
        for i, unit in units:
            moved[i] = arrays[i].transpose(stored_dims(arrays[i].ndim, unit))
        return Bound(moved, kernel._runtime)

    def _compiled(self, units: Units) -> Kernel | None:
        from .api import compile_text

        try:
            text = strided_text(self._texts["graph"], self._signature.name, units)
            return compile_text(text, "<strided>", self._target, self._options)
        except (DiagnosedError, Bug) as error:
            listed = ", ".join(str(i) for i, _ in units)
            warnings.warn(
                f"arguments {listed} of '{self._signature.name}' are copied at each call, because there is no kernel "
                f"for arrays that are not contiguous: {error}",
                RuntimeWarning,
                stacklevel=5,
            )
            return None


def transposed(texts: Mapping[str, str], name: str, options: Options, units: Units) -> Any:
    """The runtime of the variant for GPUs of a kernel of whose stages `texts` are the IR; None if there is none."""
    from .api import COMPILING, compile_text

    options = dataclasses.replace(options, entry=name, listener=None)
    with COMPILING, contextlib.suppress(DiagnosedError, Bug, ModuleNotFoundError):  # without the bindings
        text = strided_text(texts["graph"], name, units, strides=False)
        return compile_text(text, "<transposed>", "nvidia", options)._runtime
    return None


def strided_text(text: str, name: str, units: Units, strides: bool = True) -> str:
    """The graph `text` whose function `name` takes these arguments with any `strides`, or with their dimensions in that
    order alone; see the module."""
    from ..dialects.assembly import print_module
    from .sources import find_entry, load_text

    module = load_text(text, "<strided>")
    function = find_entry(module, name)
    with module.context, function.operation.location:
        block = function.regions[0].blocks[0]
        attributes = (
            [{e.name: e.attr for e in a} for a in function.arg_attrs] if "arg_attrs" in function.attributes else []
        )
        attributes = attributes or [{} for _ in block.arguments]
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        for i, unit in units:
            rank = block.arguments[i].type.rank
            if strides:
                attributes[i][BUFFER_LAYOUT] = ir.StridedLayoutAttr.get(0, [dynamic] * (rank - 1) + [1])
            if unit != rank - 1:
                _move_last(block, i, unit)
        kinds = [argument.type for argument in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, function.type.results))
        function.arg_attrs = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in attributes])
        return print_module(module)


def _move_last(block: ir.Block, number: int, unit: int) -> None:
    """Makes dimension `unit` the last one of an argument; its users get it transposed."""
    from ..dialects import build

    argument = block.arguments[number]
    kind = argument.type
    stored = stored_dims(kind.rank, unit)
    uses = [(use.owner.operation, use.operand_number) for use in argument.uses]
    argument.set_type(ir.RankedTensorType.get([kind.shape[d] for d in stored], kind.element_type, kind.encoding))
    with ir.InsertionPoint.at_block_begin(block):
        order = [stored.index(d) for d in range(kind.rank)]
        sizes = build.mixed_sizes(argument)
        init = build.empty([sizes[at] for at in order], kind.element_type)
        n = kind.rank
        (value,) = build.generic(
            [argument], [init], [build.projection(n, stored), build.projection(n, range(n))],
            [build.PARALLEL] * n, lambda x, _: x,
        )  # fmt: skip
    for user, operand in uses:
        d = build.constant_value(user.operands[1]) if user.name == "tensor.dim" else None
        if d is None:
            user.operands[operand] = value
        else:  # of the argument itself, lest the transposed one is made for it
            with ir.InsertionPoint(user):
                user.operands[1] = build.index(order[int(d)])
