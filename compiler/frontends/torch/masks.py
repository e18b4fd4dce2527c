"""The masks of nn.Transformer and its parts, as they are given: torch compares each with a causal one, to know whether
it can be left out, and warns of a float beside a bool. Neither can be traced: torch.export refuses a choice by
elements, and dynamo breaks the graph, after which it leaves what torch calls itself as it is, without a word.

    is_causal = bool((mask == causal).all())      # with is_causal=None, the default
  becomes
    is_causal = False                             # the mask says it all

Attention is found with the mask, and tiles in which it has no elements are skipped as it is computed.
"""

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules import transformer


def _is_causal(mask: torch.Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Whether the caller says that the mask is causal."""
    return is_causal is True


# Dynamo leaves our package's functions alone, and reads torch's.
def _as_torchs(function: Any) -> types.FunctionType:
    """The function, as if it stood in torch's file."""
    code = function.__code__.replace(co_filename=transformer.__file__)
    return types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)


_canonical = types.FunctionType(F._canonical_mask.__code__, F._canonical_mask.__globals__, "_canonical")


def _canonical_mask(
    mask: torch.Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> torch.Tensor | None:
    """The mask as one that is added, whatever the type of another one."""
    return _canonical(mask, mask_name, other_type, other_name, target_type, False)


@contextlib.contextmanager
def unread_masks() -> Iterator[None]:
    """torch.export takes masks as they are given."""
    kept = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = _is_causal
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = kept


def substitute() -> None:
    """Dynamo takes masks as they are given, from now on, whatever the backend."""
    with contextlib.suppress(ValueError):  # someone else has said what they are
        torch._dynamo.substitute_in_graph(transformer._detect_is_causal_mask)(_as_torchs(_is_causal))
        torch._dynamo.substitute_in_graph(F._canonical_mask)(_as_torchs(_canonical_mask))
