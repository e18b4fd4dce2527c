"""Kernels of functions of torch that gradients go back through: another kernel, of the derivative, gives the gradients.

    out = kernel(q, k, v)      # of which some need gradients
    out.backward(dout)         # dq, dk, dv = derivative(q, k, v, dout)

It is compiled where gradients are first asked for: by those arguments, and parameters of a module, that need some, of
those results that some come to. What lies between the two calls are the arguments, and what else spares the derivative
products and sums (``joint.py``)::

    out, *kept = forward(q, k, v)      dq, dk, dv = derivative(q, k, v, *kept, dout)

Where that has no kernel, or gradients come to other results than in the step before (or, in the first one, not to all),
another derivative computes all of it anew.

Derivatives have no derivative.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch.export.graph_signature import OutputKind

from ....dialects.diagnostic import DiagnosedError
from ...api import CompileError
from ...diagnostics import user_error
from .autocast import without_autocast
from .derivatives import Carrying, Derivative, is_tensor
from .joint import Joint
from .layouts import inverse, order_of_gradient, permuted, with_dense_rows
from .left import attentions, why_left
from .lowering import WAY_OUT
from .once import once
from .tracing import TorchKernel, TorchProgram, open_dims, trace_open

Needed = tuple[int | str, ...]  # arguments by their numbers, parameters by their names
Dims = list[frozenset[int]]  # of each argument those whose size is any
Made = TypeVar("Made")


class Gradients:
    """The kernels that a kernel has beside itself for gradients."""

    def __init__(self, kernel: TorchKernel):
        self.kernel = kernel
        self.program = kernel.program
        self.example, self.dims = self.program.example()
        self.places = [i for i, value in enumerate(self.example) if is_tensor(value)]  # others are constants
        held = {**self.program.program.state_dict, **self.program.program.constants}.values()
        self.held = [value for value in held if is_tensor(value)]  # parameters, buffers, constants
        self.derivatives: dict[tuple[Needed, tuple[int, ...]], _ForSizes[_DerivativeKernel]] = {}
        self._halves: dict[tuple[Needed, tuple[int, ...]], _ForSizes[_Halves | None]] = {}
        self._without: dict[Needed, list[int]] = {}  # results that have no gradients by these
        self.expected: dict[Needed, tuple[int, ...]] = {}  # those that gradients by these have come to, or may

    def results(self, flat: Sequence[Any], needed: Needed) -> list[torch.Tensor]:
        """The kernel's results for the arguments `flat`, which gradients go back through to what is `needed`."""
        if needed not in self._without:
            self._without[needed] = self._that_have_none(needed)
            numbers = range(len(self.program.returned))
            self.expected[needed] = tuple(n for n in numbers if n not in self._without[needed])
        without, key = self._without[needed], (needed, self.expected[needed])
        if len(without) == len(self.program.returned):
            return self.kernel.tensors(flat)
        if key not in self._halves:
            self._halves[key] = _ForSizes(self, lambda *given: self._cut(*key, *given))
        halves = self._halves[key].of(flat)
        results = (halves.forward if halves else self.kernel).tensors(flat)
        values = self.program.values(flat, needed)
        return [*_Results.apply(results, self, flat, needed, without, halves, *values)]

    def derivative(self, needed: Needed, of: tuple[int, ...], flat: Sequence[Any]) -> _DerivativeKernel:
        """The kernel of the gradients of what is `needed`, from those of the results `of`, for such arguments, which
        computes anew what else it needs."""
        key = needed, of
        if key not in self.derivatives:
            self.derivatives[key] = _ForSizes(self, lambda *given: self._derivative(*key, *given))
        try:
            return self.derivatives[key].of(flat)
        except DiagnosedError as error:
            raise _no_derivative(self.kernel.name, error) from None

    def _own(self, needed: Needed) -> list[int | str]:
        """The same with the names that parameters have in the functional program: where flex_attention was written out
        these are others."""
        functional = self.program.functional
        held = {name: v for name, v in {**functional.state_dict, **functional.constants}.items() if is_tensor(v)}
        own: list[int | str] = []
        for one in needed:
            if isinstance(one, str):
                parameter = self.program.parameters[one]
                one = one if one in held else next(name for name, v in held.items() if v.is_set_to(parameter))
                del held[one]
            own.append(one)
        return own

    def check_unchanged(self, derivative: _DerivativeKernel, versions: Sequence[int]) -> None:
        """An error where the derivative would read another parameter, or buffer, than a call when these were as often
        written to."""
        for value, version in zip(self.held, versions, strict=True):
            if value._version != version and any(value is read for read in derivative.kernel.program.held):
                raise RuntimeError(
                    f"a parameter or buffer of shape {tuple(value.shape)}, which the gradients of a call of "
                    f"'{self.kernel.name}' depend on, was written to since: ask for gradients before"
                )

    def _that_have_none(self, needed: Needed) -> list[int]:
        """The numbers of the results that do not depend on what is `needed`, or are written to buffers."""
        carrying = Carrying(self.program.functional, _detached(self.example), self._own(needed)).found
        kinds = [spec.kind for spec in self.program.lowered.program.graph_signature.output_specs]
        outputs = enumerate(self.program.returned)
        return [n for n, i in outputs if i not in carrying or kinds[i] != OutputKind.USER_OUTPUT]

    def _cut(self, needed: Needed, of: tuple[int, ...], example: list[Any], dims: Dims) -> _Halves | None:
        """The kernel that gives what is kept, too, and what its derivative is; None if there is no such kernel."""
        returned = self.program.returned
        orders = [*map(order_of_gradient, self.program.values(example, needed))]
        outputs = [returned[n] for n in of]
        try:
            with torch.no_grad(), without_autocast():
                functional, own = self.program.functional, self._own(needed)
                joint = Joint(functional, example, own, orders, any(dims), outputs, returned=returned)
                forward = trace_open(joint.forward_half, example, dims)
                if forward.returned != [*range(len({*range(len(returned)), *joint.kept}))]:
                    return None
                if attentions(forward) > joint.attentions:
                    return None  # some keep all of their scores
                return _Halves(self, joint, self._compiled(forward), of, orders, example, dims)
        except DiagnosedError:
            if any(dims):  # of sizes that are known there may be one
                raise
            return None

    def _derivative(self, needed: Needed, of: tuple[int, ...], example: list[Any], dims: Dims) -> _DerivativeKernel:
        orders = [*map(order_of_gradient, self.program.values(example, needed))]
        outputs = [self.program.returned[n] for n in of]
        with torch.no_grad(), without_autocast():
            module = Derivative(self.program.functional, example, self._own(needed), orders, any(dims), outputs)
            traced = _traced(module, example, dims)
        kernel = self._compiled(traced)
        if kernel.options.listener is None:
            kernel.warn_of_left(stacklevel=2)
        return _DerivativeKernel(kernel, [*map(inverse, orders)])

    def _compiled(self, program: TorchProgram) -> TorchKernel:
        return TorchKernel.of_program(program, self.kernel.target, self.kernel.options.without_donations())


@dataclasses.dataclass(frozen=True)
class _DerivativeKernel:
    """`orders`: of the dimensions of the gradients in what it gives."""

    kernel: TorchKernel
    orders: list[list[int]]

    def __call__(self, *values: Any) -> list[torch.Tensor]:
        return [*map(permuted, self.kernel.tensors(values), self.orders)]


@dataclasses.dataclass
class _Halves:
    """The kernel `forward`, which gives what is kept besides the results, and the derivative of the results `of`, which
    takes it; it is compiled where gradients are first asked for."""

    gradients: Gradients
    joint: Joint
    forward: TorchKernel
    of: tuple[int, ...]
    orders: list[tuple[int, ...]]
    example: list[Any]
    dims: Dims

    @functools.cached_property
    def derivative(self) -> _DerivativeKernel | None:
        """None if it has no kernel."""
        with contextlib.suppress(DiagnosedError), torch.no_grad(), without_autocast():
            traced, statistics = _traced(self.joint, self.example, self.dims), self.joint.statistics
            if not statistics or not why_left(traced, statistics):
                return _DerivativeKernel(self.gradients._compiled(traced), [*map(inverse, self.orders)])
        return None


class _ForSizes(Generic[Made]):
    """What is made for arguments like those of a call: once for all sizes that the program leaves open, or, where that
    has no lowering, for each shape."""

    def __init__(self, gradients: Gradients, make: Callable[[list[Any], Dims], Made]):
        self.gradients, self.make = gradients, make
        self.of_any: list[Made] = []
        self.by_shapes: dict[Any, Made] = {}
        self.is_open = True
        self._lock = threading.Lock()  # backward runs in a thread of its own

    def of(self, flat: Sequence[Any]) -> Made:
        if self.of_any:
            return self.of_any[0]
        example, dims = self.gradients.example, self.gradients.dims
        with self._lock:
            if self.is_open and not self.of_any:
                try:
                    self.of_any.append(self.make(_detached(example), dims))
                except DiagnosedError:
                    if not any(dims):
                        raise
                    self.is_open = False
            if self.of_any:
                return self.of_any[0]
            shapes = tuple(getattr(value, "shape", None) for value in flat)
            if shapes not in self.by_shapes:
                self.by_shapes[shapes] = self.make(_detached(flat), [frozenset()] * len(flat))
            return self.by_shapes[shapes]


class _Results(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        results: list[torch.Tensor],
        gradients: Gradients,
        flat: Sequence[Any],
        needed: Needed,
        without: Sequence[int],
        halves: _Halves | None,
        *values: torch.Tensor,
    ) -> Any:
        """The kernel's own results, of which some are `without` gradients. All are in a list so that torch does not
        take them for inputs; what is kept comes behind. `values` are what is `needed`, which torch looks for
        among the inputs."""
        ctx.gradients, ctx.needed, ctx.halves = gradients, needed, halves
        count = len(gradients.program.returned)
        kept = () if halves is None else (results[n] for n in halves.joint.kept)
        ctx.save_for_backward(*(flat[i] for i in gradients.places), *kept)
        ctx.versions = [value._version for value in gradients.held]
        ctx.set_materialize_grads(False)
        if without:
            ctx.mark_non_differentiable(*(results[n] for n in without))
        return tuple(results[:count])

    @staticmethod
    @once
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        flat, saved = list(ctx.gradients.example), ctx.saved_tensors
        for i, value in zip(ctx.gradients.places, saved, strict=False):
            flat[i] = value
        kept = saved[len(ctx.gradients.places) :]
        given = {n: with_dense_rows(g) for n, g in enumerate(gradients) if g is not None}
        found: dict[int | str, torch.Tensor] = {}
        if given:
            halves, derivative = ctx.halves, None
            if halves is not None and halves.of == tuple(given):
                derivative = halves.derivative
            ctx.gradients.expected[ctx.needed] = tuple(given)  # so that the next call keeps what these want
            others = () if derivative is None else kept
            derivative = derivative or ctx.gradients.derivative(ctx.needed, tuple(given), flat)
            ctx.gradients.check_unchanged(derivative, ctx.versions)
            found = dict(zip(ctx.needed, derivative(*flat, *others, *given.values()), strict=True))
        return *[None] * 6, *map(found.get, ctx.needed)


def _traced(derivative: Derivative, example: Sequence[Any], dims: Dims) -> TorchProgram:
    """Its program, for arguments such as the example, whose dimensions `dims` may have any size."""
    given = derivative.given
    return trace_open(derivative, [*example, *derivative.examples()], [*dims, *map(open_dims, given)])


def _detached(flat: Sequence[Any]) -> list[Any]:
    return [v.detach() if is_tensor(v) else v for v in flat]


def _no_derivative(name: str, error: DiagnosedError) -> CompileError:
    first, *_ = error.diagnostics
    notes = [note.message for note in first.notes]
    if not any(WAY_OUT in text for text in (first.message, *notes)):
        notes.append(WAY_OUT)
    problem = f"gradients go back through '{name}', whose derivative has no kernel: {first.message}"
    return CompileError(user_error(problem, *notes).diagnostics)
