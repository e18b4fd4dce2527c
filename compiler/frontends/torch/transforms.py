"""torch.func's transforms in what torch.export traces."""

import contextlib
from collections.abc import Iterator

import torch
from torch.autograd import forward_ad

from ...diagnostics import user_error


@contextlib.contextmanager
def levels_kept() -> Iterator[None]:
    """Ends the transforms that are entered within the block and not left, where an error comes between: torch would
    take all that is computed later in the process for part of them."""
    functorch = torch._C._functorch
    depth, is_forward = functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level >= 0
    try:
        yield
    finally:
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if not is_forward:
            _leave_forward_mode()


def _leave_forward_mode() -> None:
    """Whether one is in it is what only entering it tells."""
    try:
        torch._C._exit_dual_level(level=torch._C._enter_dual_level())
    except RuntimeError:
        torch._C._exit_dual_level(level=0)


def refuse_tangents(graph: torch.fx.Graph, way_out: str) -> None:
    """A user's error where torch.func.jvp was traced: its numbers and tangents are the same there."""
    for node in graph.nodes:
        if getattr(node.target, "__name__", "") == "_jvp_increment_nesting":
            raise user_error(f"torch.export does not tell numbers and tangents of torch.func.jvp apart; {way_out}")
