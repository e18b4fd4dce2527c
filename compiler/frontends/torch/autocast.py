"""The types that torch's autocast has operands of matmuls cast to: casts that tracing writes down."""

import contextlib
from collections.abc import Iterator, Sequence

import torch

DEVICES = ("cpu", "cuda")


def autocast() -> tuple[torch.dtype | None, ...]:
    """They, of each device, where this is called; None: there is no autocast."""
    return tuple(torch.get_autocast_dtype(d) if torch.is_autocast_enabled(d) else None for d in DEVICES)


@contextlib.contextmanager
def autocasting(types: Sequence[torch.dtype | None]) -> Iterator[None]:
    """Within it, torch casts as it did where `autocast` gave these types."""
    with contextlib.ExitStack() as stack:
        for device, dtype in zip(DEVICES, types, strict=True):
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=dtype is not None))
        yield


def without_autocast() -> contextlib.AbstractContextManager[None]:
    return autocasting([None] * len(DEVICES))
