"""Floats of 16 bits, which torch computes in float32 where several of its ops are one."""

import torch

HALVES = (torch.float16, torch.bfloat16)


def not_narrow(x: torch.Tensor) -> torch.Tensor:
    """Halves in float32, as which torch computes what is one op of its own."""
    return x.to(torch.float32) if x.dtype in HALVES else x
