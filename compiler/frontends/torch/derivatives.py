"""The derivative of a traced program: a function of its inputs and of its result's gradient, as a graph.

    p = softmax(matmul(q, kᵀ)); o = matmul(p, v)
  becomes, of the gradient d of o,
    p = softmax(matmul(q, kᵀ)); g = matmul(d, vᵀ); s = _softmax_backward_data(g, p)
    (matmul(s, k), matmul(qᵀ, s)ᵀ, matmul(pᵀ, d))

torch's autograd differentiates on fake tensors, and each op that it calls is written down. What it would take apart
beforehand, such as products of more than two dimensions, into views and bmm, stays whole, as in a program that is not
differentiated.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from ...diagnostics import user_error
from ..lowering import first_line
from . import experts
from .autocast import without_autocast
from .decompositions import fused_rms_norm, scaled_dot_product_attention
from .einsums import products
from .lazy_code import code_when_run
from .programs import program_of
from .searches import embedding_bag

aten = torch.ops.aten
# Written out as they are traced: composite ops that have kernels of their own, if only on GPUs, are left alone later.
WRITTEN_OUT = {
    **get_decompositions((aten.silu_backward, aten.mish_backward)),
    aten._fused_rms_norm.default: fused_rms_norm,
}
SAMPLED = get_decompositions((aten.grid_sampler_2d,))


@torch.library.custom_op("attn_opt::matmul", mutates_args=())
def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch.matmul of two dimensions and more, which stays one op where it is differentiated, and so do its own
    derivatives."""
    return torch.matmul(a, b)


@_product.register_fake
def _product_of_fakes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty((*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))


def _keep_factors(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients_of_factors(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b = ctx.saved_tensors
    wants_a, wants_b = ctx.needs_input_grad
    return (
        _gradient(gradient, b.mT, a) if wants_a else None,
        _gradient(a.mT, gradient, b) if wants_b else None,
    )


def _gradient(left: torch.Tensor, right: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Their product, as the gradient by `factor`: of one that stands transposed as that is in memory, so that it need
    not be transposed behind a sum over the heads that share it."""
    if factor.stride(-2) == 1 and factor.stride(-1) != 1:
        return _product(right.mT, left.mT).sum_to_size(factor.mT.shape).mT
    return _product(left, right).sum_to_size(factor.shape)


_product.register_autograd(_gradients_of_factors, setup_context=_keep_factors)
PRODUCT = torch.ops.attn_opt.matmul.default


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows, columns = a.dim() > 1, b.dim() > 1
    product = _product(a if rows else a.unsqueeze(0), b if columns else b.unsqueeze(1))
    product = product if columns else product.squeeze(-1)
    return product if rows else product.squeeze(-2 if columns else -1)


def _copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """What stands in a tensor that another one, of another type, is written into; autograd has no derivative of it."""
    return source.to(target.dtype).expand_as(target)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_RECURRENT = (aten.gru.input, aten.lstm.input, aten.rnn_tanh.input, aten.rnn_relu.input)
# As torch itself has it, if this version does, which of GPUs' tensors would make one op of cuDNN.
STEP_BY_STEP = {op: steps for op in _RECURRENT if (steps := op.py_kernels.get(_COMPOSITE)) is not None}


def _bags(weight: torch.Tensor, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, *others: Any) -> Any:
    """aten._embedding_bag, but for one whose gradients alone are scaled, by how often a row is read."""
    return NotImplemented if scale_grad_by_freq else embedding_bag(weight, indices, offsets, False, *others)


def _bags_as_called(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """aten.embedding_bag, of which no number of a row is None, and one below 0 counts from the end."""
    row = -1 if padding_idx is None else padding_idx % weight.size(0)
    others = mode, sparse, per_sample_weights, include_last_offset, row
    return _bags(weight, indices, offsets, scale_grad_by_freq, *others)


def _between_pixels(x: torch.Tensor, places: torch.Tensor, *how: Any) -> Any:
    """aten.grid_sampler in two dimensions, as a sum of pixels that are read by index."""
    return SAMPLED[aten.grid_sampler_2d.default](x, places, *how) if x.dim() == 4 else NotImplemented


_WRITTEN: dict[Any, Any] = {
    **STEP_BY_STEP,
    **dict.fromkeys((aten.grid_sampler.default, aten.grid_sampler_2d.default), _between_pixels),
    **dict.fromkeys((aten.embedding_bag.default, aten.embedding_bag.padding_idx), _bags_as_called),
    **dict.fromkeys((aten._embedding_bag.default, aten._embedding_bag_forward_only.default), _bags),
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, aten.matmul.default), _matmul),
    aten.copy.default: _copied,
    aten.einsum.default: products,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
}


class KeptWhole(TorchFunctionMode):
    """Within it, ops that autograd would take apart are computed by others that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.written = {**_WRITTEN, **experts.products()}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = self.written.get(function)
        if written is not None:
            with self:  # what it calls, too
                found = written(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        return function(*args, **(kwargs or {}))


class OfGraph(torch.nn.Module):
    """A graph on what a program holds and on the tensors of its flat inputs, as a module, which torch.export takes."""

    graph: torch.fx.GraphModule
    specs: list[InputSpec]  # of what is held

    def _held(self) -> list[torch.Tensor]:
        raise NotImplementedError

    def forward(self, *inputs: Any) -> Any:
        return self.graph(*self._held(), *filter(is_tensor, inputs))

    def exported(self, example: Sequence[Any]) -> ExportedProgram:
        """What torch.export would make of it, for inputs of the sizes of the example; a user's error if it cannot."""
        try:
            return program_of(self.graph, self.specs, self._held(), example)
        except Exception as error:
            raise user_error(f"torch takes no such derivative for a program: {first_line(error)}") from error


class OfProgram(OfGraph):
    """A function of the flat inputs of `program`, such as `example`, which `functional` made, as a graph. With
    `any_sizes` those sizes stay open that are so in the program; else they are the example's."""

    def __init__(self, program: ExportedProgram, example: Sequence[Any], any_sizes: bool):
        super().__init__()
        placeholders = program.graph.find_nodes(op="placeholder")
        self.specs = program.graph_signature.input_specs[: len(placeholders) - len(example)]
        self.held = {spec.target: f"held_{i}" for i, spec in enumerate(self.specs)}  # what the program calls it, and we
        for spec in self.specs:
            value = {**program.state_dict, **program.constants}[spec.target]
            if spec.kind == InputKind.BUFFER:  # torch.export takes other tensors for constants
                self.register_buffer(self.held[spec.target], value)
            else:
                setattr(self, self.held[spec.target], value)
        values = [*self._held(), *example]
        self.sizes: dict[Any, int] = {}  # the example's, by symbol
        if any_sizes:
            self.sizes = _sizes_of_symbols([node.meta["val"] for node in placeholders], values)
            values = [n.meta["val"] if is_tensor(v) else v for n, v in zip(placeholders, values, strict=True)]
        mode = next((v.fake_mode for v in values if isinstance(v, FakeTensor)), FakeTensorMode())
        values = [mode.from_tensor(v) if is_tensor(v) and not isinstance(v, FakeTensor) else v for v in values]
        try:
            with without_autocast(), torch.no_grad(), mode:
                self.graph = self.written(torch.fx.Interpreter(program.graph_module), values)
        except Exception as error:
            raise user_error(f"torch cannot write its derivative down: {first_line(error)}") from error

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        """The graph, from what runs the program; `values` are the tensors that the program holds and its inputs."""
        raise NotImplementedError

    def _held(self) -> list[torch.Tensor]:
        return [getattr(self, name) for name in self.held.values()]


class Derivative(OfProgram):
    """The gradients of what is `needed`, inputs of `program` by their numbers and parameters by their names, from its
    flat inputs and from the gradients of those of its results that it is `of`. Each gradient is permuted to one of the
    `orders`, and contiguous.

    `given` are fake tensors such as it takes beside the inputs, in a list, for torch takes tensors that modules hold
    for constants. `kinds` are of those between the first and the last one, statistics of rows: see
    ``transforms/raising/given.py``.
    """

    kinds: tuple[str, ...] = ()

    def __init__(
        self,
        program: ExportedProgram,
        example: Sequence[Any],
        needed: Sequence[int | str],
        orders: Sequence[tuple[int, ...]],
        any_sizes: bool,
        of: Sequence[int] = (0,),
    ):
        self.needed, self.orders, self.of, self.inputs = needed, orders, of, len(example)
        self.given: list[torch.Tensor] = []
        super().__init__(program, example, any_sizes)

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        results = interpreter.run(*values)
        self.given = [like(results[i]) for i in self.of]

        def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inputs, wanted = self.leaves(values, tensors)
            with differentiating():
                results = interpreter.run(*inputs)
                ends, theirs = [results[i] for i in self.of], tensors[-len(self.of) :]
                return self.differentiated(ends, wanted, theirs)

        return traced(gradients, [*filter(is_tensor, values), *self.given])

    def differentiated(
        self, ends: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """The gradients of what is `wanted`, in their orders, from `theirs`, those of the `ends`."""
        found = torch.autograd.grad(ends, wanted, theirs, allow_unused=True, materialize_grads=True)
        return tuple(g.permute(order).contiguous() for g, order in zip(found, self.orders, strict=True))

    @property
    def statistics(self) -> dict[int, str]:
        """`kinds`, by the numbers of the arguments that they are of."""
        return dict(enumerate(self.kinds, self.inputs + 1))

    def examples(self) -> list[torch.Tensor]:
        """Tensors such as what is `given`, of the sizes of the example; with memory where sizes are open, as
        torch.export asks for it."""
        if not self.sizes:
            return self.given
        return [
            torch.zeros([self._size(s) for s in fake.shape], dtype=fake.dtype, device=fake.device)
            for fake in self.given
        ]

    def _size(self, size: Any) -> int:
        return size if isinstance(size, int) else int(size.node.expr.xreplace(self.sizes))

    def leaves(self, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> tuple[list[Any], list[torch.Tensor]]:
        """`values` with the first of `tensors` in place of theirs, and those of them that need gradients."""
        names = [*self.held]
        needed = [names.index(one) if isinstance(one, str) else len(names) + one for one in self.needed]
        places = [i for i, value in enumerate(values) if is_tensor(value)]
        inputs = list(values)
        for i, tensor in zip(places, tensors, strict=False):
            inputs[i] = tensor.detach().requires_grad_(i in needed)
        return inputs, [inputs[i] for i in needed]


class Carrying(Derivative):
    """Those results of `program`, by their numbers, that have gradients by what is `needed`: `found`."""

    def __init__(self, program: ExportedProgram, example: Sequence[Any], needed: Sequence[int | str]):
        self.found: frozenset[int] = frozenset()
        super().__init__(program, example, needed, (), any_sizes=False, of=())

    def written(self, interpreter: torch.fx.Interpreter, values: Sequence[Any]) -> torch.fx.GraphModule:
        inputs, _ = self.leaves(values, [*filter(is_tensor, values)])
        with differentiating():
            results = interpreter.run(*inputs)
        self.found = frozenset(i for i, r in enumerate(results) if is_tensor(r) and r.requires_grad)
        return traced(lambda *tensors: (), [*filter(is_tensor, values)])


def _sizes_of_symbols(open_values: Sequence[Any], values: Sequence[Any]) -> dict[Any, int]:
    pairs = [(o, v) for o, v in zip(open_values, values, strict=True) if is_tensor(v)]
    sizes = [pair for o, v in pairs for pair in zip(o.shape, v.shape, strict=True)]
    return {size.node.expr: number for size, number in sizes if not isinstance(size, int)}


def like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextlib.contextmanager
def differentiating() -> Iterator[None]:
    """Within it, torch's autograd sees what `traced` writes down."""
    with torch.enable_grad(), KeptWhole(), saved_tensors_hooks(_same, _same):  # not those of the caller
        yield


def traced(
    function: Callable, tensors: Sequence[torch.Tensor], written_out: Mapping[Any, Callable] = MappingProxyType({})
) -> torch.fx.GraphModule:
    """What the function computes of fake tensors, as a graph, with these ops written out."""
    with code_when_run():
        graph = make_fx(function, {**WRITTEN_OUT, **written_out})(*tensors)
    for node in graph.graph.nodes:
        if node.target is PRODUCT:
            node.target = aten.matmul.default
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


__all__ = [
    "PRODUCT",
    "Carrying",
    "Derivative",
    "KeptWhole",
    "OfGraph",
    "OfProgram",
    "differentiating",
    "is_tensor",
    "like",
    "traced",
]
