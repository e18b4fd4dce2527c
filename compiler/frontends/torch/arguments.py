"""How tensors of a call become what a kernel takes: arrays on their memory, or the tensors themselves on a GPU.

Almost always they are plain tensors of the types that were traced, which takes a microsecond each; all that tensors can
be besides is told apart, and refused, by the slower way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...runtime.signature import as_numpy, check_sign, of_torch, signless

PLAIN = (torch.Tensor, torch.nn.Parameter)
SIGNLESS = {getattr(torch, f"uint{bits}"): getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)}


@dataclasses.dataclass
class _Place:
    """An argument: the number of the call's, or a tensor that the program holds; the type that was traced, and whether
    arrays have it, too. `other`: the type of that size that numpy has by itself, and numpy's own of the traced one,
    where it has that by another module."""

    of: int | torch.Tensor
    dtype: torch.dtype
    is_kept: bool
    other: tuple[torch.dtype, np.dtype] | None
    held: tuple[Any, np.ndarray] | None = None  # where a held tensor was, and the array on its memory

    @classmethod
    def made(cls, of: int | torch.Tensor, dtype: torch.dtype) -> _Place:
        own = of_torch(dtype)
        other = None if own is None else (getattr(torch, f"int{8 * own.itemsize}"), own)
        return cls(of, dtype, not dtype.is_complex and dtype not in SIGNLESS, other)


class Arguments:
    """Makes a kernel's arguments of a call's. `places`: of each, the number of the call's, or a tensor that the program
    holds; `dtypes`: those that were traced."""

    def __init__(self, places: Sequence[int | torch.Tensor], dtypes: Sequence[torch.dtype]):
        self._places = [_Place.made(of, dtype) for of, dtype in zip(places, dtypes, strict=True)]
        self._on_host = any(isinstance(of, torch.Tensor) and of.device.type == "cpu" for of in places)
        self._copies: dict[tuple[int, torch.device], _Copy] = {}  # of tensors of the host, on a GPU

    def of_call(self, flat: Sequence[Any]) -> list[Any]:
        on = next((v.device for v in flat if _is_on_gpu(v)), None) if self._on_host else None
        # Where torch records what is done, or differentiates, all is looked at, and some refused.
        is_usual = (
            torch._C._get_tracing_state() is None
            and torch._C._functorch.peek_interpreter_stack() is None
            and torch.autograd.forward_ad._current_level < 0
        )
        made = []
        for place in self._places:
            value = flat[place.of] if isinstance(place.of, int) else self._moved(place.of, on)
            found = None
            if is_usual:
                found = _held(value, place) if value is place.of else _plain(value, place)
            made.append(as_array(value, place.dtype, place.of) if found is None else found)
        return made

    def _moved(self, tensor: torch.Tensor, on: torch.device | None) -> torch.Tensor:
        """What the program holds, such as a constant, where the inputs are."""
        if on is None or not tensor.is_cpu:
            return tensor
        state = tensor.data_ptr(), None if tensor.is_inference() else tensor._version
        copy = self._copies.get((id(tensor), on))
        if copy is None:
            copy = self._copies[id(tensor), on] = _Copy(tensor.detach().to(on, copy=True), state)
        elif copy.state != state:  # where it is, for a captured graph reads it there
            copy.tensor.copy_(tensor.detach())
            copy.state = state
        return copy.tensor


@dataclasses.dataclass
class _Copy:
    """A tensor's on another device, and where that was, and how often written to, when it was made. How often a tensor
    of torch.inference_mode is written to no one counts."""

    tensor: torch.Tensor
    state: tuple[int, int | None]


def _held(value: torch.Tensor, place: _Place) -> Any:
    """The same for what the program holds. Its memory is that of the call before, if nothing has put another in its
    place."""
    if not value.is_cpu:
        return _plain(value, place)
    at = value.data_ptr(), value.shape, value.stride()
    if place.held is None or place.held[0] != at:
        array = _plain(value, place)
        if array is None:
            return None
        place.held = at, array
    return place.held[1]


def _plain(value: Any, place: _Place) -> Any:
    """What the kernel takes for a tensor of the traced type that has memory of its own; None for all others."""
    if type(value) not in PLAIN or value.dtype is not place.dtype or not place.is_kept:
        return None
    if value.layout is not torch.strided or value.is_neg():
        return None
    if value.is_cuda:
        return value
    if not value.is_cpu:
        return None
    if value.requires_grad:
        value = value.detach()
    try:
        return value.numpy() if place.other is None else value.view(place.other[0]).numpy().view(place.other[1])
    except (RuntimeError, TypeError):  # zeros that are not there
        return None


def _is_on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "cpu"


def as_array(value: Any, wanted: torch.dtype, place: Any = None) -> Any:
    """An array on a tensor's memory; a tensor there on a GPU; else the value. `wanted`: the type that argument `place`
    was traced with."""
    if not isinstance(value, torch.Tensor):
        return signless(value, _name(wanted), place)
    if value.is_complex():  # what the kernel takes, see `torch/complex.py`
        value = torch.view_as_real(value.resolve_conj())
    if value.device.type == "cpu":
        array = as_numpy(value)
        return array if value.dtype.is_floating_point else signless(array, _name(wanted), place)
    if not value.dtype.is_floating_point:
        check_sign(_name(value.dtype), _name(wanted), place)
        return value.view(SIGNLESS.get(value.dtype, value.dtype))
    return value.resolve_neg()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
