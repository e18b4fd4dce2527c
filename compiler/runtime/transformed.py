"""Tensors of torch that a kernel cannot compute with, or that torch would take its results for constants of."""

from typing import Any

from ..diagnostics import user_error


def is_transformed(value: Any) -> bool:
    """Whether a tensor of torch stands for another: its memory, where it has any, is not its own."""
    import torch  # it made the value

    return torch._C._functorch.is_functorch_wrapped_tensor(value) or torch._is_functional_tensor(value)


def refuse_transformed(value: Any, name: str) -> None:
    """A user's error for such a tensor, for one with a tangent, and for any while torch.jit.trace, or an export to ONNX
    by it, records what is done: it would take the results for constants."""
    import torch  # it made the value

    if torch._C._get_tracing_state() is not None:
        raise user_error(
            f"{name} is traced by torch.jit.trace, which would take the results of a kernel for constants",
            "trace or export the function that the kernel was compiled from",
        )
    transforms, forward = torch._C._functorch, torch.autograd.forward_ad
    if forward._current_level >= 0 and forward.unpack_dual(value).tangent is not None:
        raise user_error(
            f"{name} has a tangent of forward-mode differentiation, which kernels do not have",
            "torch.compile(…, backend='attn_opt') leaves to torch what is differentiated",
        )
    if not is_transformed(value):
        return
    if transforms.is_batchedtensor(value):
        raise user_error(
            f"{name} is one of many under torch.vmap, which kernels cannot be called in",
            "map before compiling: compile(torch.vmap(fn), args), or torch.compile(torch.vmap(fn), backend='attn_opt')",
        )
    if transforms.is_gradtrackingtensor(value):
        raise user_error(
            f"{name} is differentiated by torch.func, where kernels have no derivative",
            "torch.autograd and backward() go through kernels of functions of torch; "
            "torch.compile(…, backend='attn_opt') leaves to torch what torch.func differentiates",
        )
    raise user_error(f"{name} is one that torch.func transforms, which kernels cannot be called with")
