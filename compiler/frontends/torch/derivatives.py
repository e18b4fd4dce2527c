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
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.export import ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode

from ...diagnostics import user_error
from ..lowering import first_line
from .decompositions import scaled_dot_product_attention
from .einsums import products

aten = torch.ops.aten


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
        _product(gradient, b.mT).sum_to_size(a.shape) if wants_a else None,
        _product(a.mT, gradient).sum_to_size(b.shape) if wants_b else None,
    )


_product.register_autograd(_gradients_of_factors, setup_context=_keep_factors)


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows, columns = a.dim() > 1, b.dim() > 1
    product = _product(a if rows else a.unsqueeze(0), b if columns else b.unsqueeze(1))
    product = product if columns else product.squeeze(-1)
    return product if rows else product.squeeze(-2 if columns else -1)


_WRITTEN: dict[Any, Any] = {
    **dict.fromkeys((torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, aten.matmul.default), _matmul),
    aten.einsum.default: products,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
}


class _KeptWhole(TorchFunctionMode):
    """Within it, ops that autograd would take apart are computed by others that it does not."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = _WRITTEN.get(function)
        if written is None:
            return function(*args, **(kwargs or {}))
        with self:  # what it calls, too
            return written(*args, **(kwargs or {}))


class Derivative(torch.nn.Module):
    """The gradients of those inputs of `program` that are `needed`, by their numbers, from its flat inputs, such as
    `example`, and from the gradient of its only result. torch.export takes it.

    Each gradient is permuted to one of the `orders`, and contiguous. With `any_sizes` those sizes stay open that are so
    in the program; else they are the example's. `program` is one that `functional` made. `result` is a fake tensor of
    the shape of the result, in a list, for torch takes tensors that modules hold for constants.
    """

    def __init__(
        self,
        program: ExportedProgram,
        example: Sequence[Any],
        needed: Sequence[int],
        orders: Sequence[tuple[int, ...]],
        any_sizes: bool,
    ):
        super().__init__()
        self.orders = orders
        placeholders = program.graph.find_nodes(op="placeholder")
        specs = program.graph_signature.input_specs[: len(placeholders) - len(example)]
        self.held = [f"held_{i}" for i in range(len(specs))]
        for name, spec in zip(self.held, specs, strict=True):
            setattr(self, name, {**program.state_dict, **program.constants}[spec.target])
        values = [*self._held(), *example]
        if any_sizes:
            values = [n.meta["val"] if _is_tensor(v) else v for n, v in zip(placeholders, values, strict=True)]
        mode = next((v.fake_mode for v in values if isinstance(v, FakeTensor)), FakeTensorMode())
        values = [mode.from_tensor(v) if _is_tensor(v) and not isinstance(v, FakeTensor) else v for v in values]
        try:
            with without_autocast(), torch.no_grad(), mode:
                interpreter = torch.fx.Interpreter(program.graph_module)
                (result,) = interpreter.run(*values)
                self.result = [torch.empty_like(result, memory_format=torch.contiguous_format)]
                self.graph = _traced(interpreter, values, [len(self.held) + i for i in needed], self.result[0])
        except Exception as error:
            raise user_error(f"torch cannot write its derivative down: {first_line(error)}") from error

    def _held(self) -> list[torch.Tensor]:
        return [getattr(self, name) for name in self.held]

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        found = self.graph(*self._held(), *filter(_is_tensor, inputs))
        return tuple(g.permute(order).contiguous() for g, order in zip(found, self.orders, strict=True))


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _traced(
    interpreter: torch.fx.Interpreter, values: Sequence[Any], needed: Sequence[int], gradient: torch.Tensor
) -> torch.fx.GraphModule:
    """A graph from the tensors among `values` and the gradient to the gradients of those that are `needed`."""
    places = [i for i, value in enumerate(values) if _is_tensor(value)]

    def gradients(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = list(values)
        for i, tensor in zip(places, tensors, strict=False):
            inputs[i] = tensor.detach().requires_grad_(i in needed)
        with torch.enable_grad(), _KeptWhole(), saved_tensors_hooks(_same, _same):  # not those of the caller
            (result,) = interpreter.run(*inputs)
            wanted = [inputs[i] for i in needed]
            return torch.autograd.grad(result, wanted, tensors[-1], allow_unused=True, materialize_grads=True)

    graph = make_fx(gradients)(*(values[i] for i in places), gradient)
    for node in graph.graph.nodes:
        if node.target is torch.ops.attn_opt.matmul.default:
            node.target = aten.matmul.default
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


__all__ = ["Derivative", "without_autocast"]
