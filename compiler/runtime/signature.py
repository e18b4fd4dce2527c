"""What a compiled function takes and returns, and how Python's arrays are bound to it."""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...dialects.diagnostic import DiagnosedError
from ...dialects.float8 import FORMATS
from ...dialects.mlir import ir
from ...transforms.argument_attributes import WRITABLE
from ...transforms.formulas import evaluated, leaves
from ..diagnostics import diagnostic, user_error
from .transformed import refuse_transformed

WORD = 8  # bytes; pointers, sizes and strides are words
BUFFER_LAYOUT = "bufferization.buffer_layout"  # of an argument that need not be contiguous
LINE = 64  # bytes of a line of the cache
HOST = 1  # DLPack's kDLCPU
SHAPES = 64  # of an argument that are known to be right
SMALL = 1 << 14  # bytes of an array that is sooner copied than a kernel is compiled for its layout


@dataclasses.dataclass(frozen=True)
class Slot:
    """The type of an argument or result: element type as MLIR spells it, and the shape, None where it is dynamic.

    `shape` is None for a scalar. A `strided` tensor need not be contiguous but along its last dimension. A `donated`
    one may be written to, and be the memory of a result.
    """

    element: str
    shape: tuple[int | None, ...] | None
    strided: bool = False
    donated: bool = False

    @classmethod
    def of(cls, kind: ir.Type) -> Slot:
        if isinstance(kind, ir.RankedTensorType | ir.MemRefType):
            shape = tuple(None if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank))
            return cls(str(kind.element_type), shape)
        return cls(str(kind), None)

    def __str__(self) -> str:
        if self.shape is None:
            return self.element
        return f"tensor<{''.join(('?' if s is None else str(s)) + 'x' for s in self.shape)}{self.element}>"

    @property
    def dtype(self) -> np.dtype:
        return _dtype(self.element)

    @property
    def words(self) -> int:
        """The size of its memref descriptor."""
        return 3 + 2 * len(self.shape or ())


def is_numpys(dtype: np.dtype) -> bool:
    """False for what numpy knows by ml_dtypes alone: bf16, floats of 8 bits."""
    return dtype.type.__module__ == "numpy"


_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_INTEGERS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


@functools.cache
def _dtype(element: str) -> np.dtype:
    if element in _FLOATS:
        return np.dtype(_FLOATS[element])
    if element == "bf16" or element in FORMATS:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16 if element == "bf16" else getattr(ml_dtypes, FORMATS[element].numpy))
    if element == "i1":
        return np.dtype(np.bool_)
    if element == "index":
        return np.dtype(np.int64)
    width = element.lstrip("sui")
    if width.isdigit() and int(width) in _INTEGERS:
        kind = np.dtype(_INTEGERS[int(width)])
        return np.dtype(f"u{kind.name}") if element.startswith("u") else kind
    raise TypeError(
        f"element type {element} has no numpy type; use f16, bf16, f32, f64, f8E4M3FN, f8E5M2, "
        "i1, i8, i16, i32, i64 or index"
    )


def slot_of(kind: ir.Type, function: ir.OpView) -> Slot:
    """The Slot of an argument or result of `function`; a user's error where it is no ranked tensor or scalar."""
    if isinstance(kind, ir.ShapedType) and not isinstance(kind, ir.RankedTensorType):
        problem = f"arguments and results must be ranked tensors or scalars, but found {kind}"
    else:
        slot = Slot.of(kind)
        try:
            slot.dtype  # noqa: B018 (it says whether numpy has the type)
            return slot
        except TypeError as error:
            problem = str(error)
    raise DiagnosedError([diagnostic("error", problem, function.operation.location)])


@dataclasses.dataclass
class Dimensions:
    """Groups of argument dimensions, as (argument, dimension), that are equal, with their size where it is static.

    An argument of type `index` that is used as a size is in a group too, as (argument, None).
    """

    groups: list[list[tuple[int, int | None]]]
    sizes: list[int | None]


@dataclasses.dataclass(frozen=True)
class Bound:
    """A slice of dimension `dimension`, of argument `number` or, where that is None, of something computed, must start
    at 0 or after, and end after its start and within the size of the whole: formulas of `transforms/formulas.py`. The
    graph "reads" or "writes" it."""

    number: int | None
    dimension: int
    start: Any
    end: Any
    whole: Any
    verb: str = "reads"

    def check(self, arrays: Sequence[Any]) -> None:
        """A user's error where it does not hold, as far as the host knows."""
        start, end, whole = (
            evaluated(one, lambda leaf: _leaf(leaf, arrays)) for one in (self.start, self.end, self.whole)
        )
        if start is None or end is None or whole is None or 0 <= start <= end <= whole:
            return
        of = f"dimension {self.dimension} of a tensor" if self.number is None else _name(self.number, self.dimension)
        given = sorted({leaf[1] for one in (self.start, self.end) for leaf in leaves(one) if leaf[0] == "argument"})
        why = f", as argument{'s' * (len(given) > 1)} {' and '.join(map(str, given))} say{'s' * (len(given) == 1)}"
        raise user_error(f"{of} is {whole}, but the graph {self.verb} {start} to {end} of it{why if given else ''}")


def _leaf(leaf: list, arrays: Sequence[Any]) -> int | None:
    """A number that the host knows: a size, or a scalar that is not on a device."""
    if leaf[0] == "dim":
        return arrays[leaf[1]].shape[leaf[2]]
    value = arrays[leaf[1]]
    known = isinstance(value, int | np.integer) or (isinstance(value, np.ndarray) and not value.ndim)
    return int(value) if known else None


@dataclasses.dataclass(frozen=True)
class Signature:
    """The types of a function's arguments and results, which dimensions of the arguments are equal, and what slices
    they must hold."""

    name: str
    arguments: tuple[Slot, ...]
    results: tuple[Slot, ...]
    dimensions: Dimensions
    bounds: tuple[Bound, ...] = ()

    @staticmethod
    def of(function: ir.OpView) -> Signature:
        from ..shapes import argument_dimensions, slice_bounds

        kind = function.type
        attributes = function.operation.attributes
        named = attributes["arg_attrs"] if "arg_attrs" in attributes else [{}] * len(kind.inputs)
        return Signature(
            function.name.value,
            tuple(
                dataclasses.replace(slot_of(t, function), strided=BUFFER_LAYOUT in a, donated=_is_writable(a))
                for t, a in zip(kind.inputs, named, strict=True)
            ),
            tuple(slot_of(t, function) for t in kind.results),
            argument_dimensions(function),
            slice_bounds(function),
        )

    def bind(self, arguments: Sequence[Any], strided: bool = False) -> list[np.ndarray]:
        """`arguments` as C-contiguous numpy arrays of the declared types, checked; shares memory where it can. What is
        donated is copied where it is read-only, or shares memory with another argument.

        With `strided`, large arrays that are not contiguous stay so where a kernel can read them; the value is then
        NotContiguous.
        """
        if len(arguments) != len(self.arguments):
            raise user_error(f"'{self.name}' takes {len(self.arguments)} arguments, but {len(arguments)} were given")
        slots, _, _ = self._checks
        arrays: list[np.ndarray] = []
        units: list[tuple[int, int]] = []
        for value, (dtype, shapes, static, slot) in zip(arguments, slots):  # noqa: B905 (checked above)
            # Almost always it is what is wanted; all other cases are _checked's.
            array = value
            if type(value) is not np.ndarray or value.dtype is not dtype:
                array = _checked(len(arrays), value, slot)
            elif (shape := value.shape) not in shapes:
                if len(shape) != len(slot.shape or ()) or any(shape[d] != size for d, size in static):
                    array = _checked(len(arrays), value, slot)
                if len(shapes) < SHAPES:
                    shapes.add(shape)
            flags = array.flags
            if not flags.c_contiguous or not flags.aligned:
                unit = _unit_of_large(len(arrays), array) if strided and not slot.donated else None
                if unit is None:
                    array = np.array(array, order="C")
                else:
                    units.append((len(arrays), unit))
            arrays.append(array)
        self.check_dimensions(arrays)
        self.check_bounds(arrays)
        for i in self._donated:
            others = (a for j, a in enumerate(arrays) if j != i)
            if not arrays[i].flags.writeable or any(np.may_share_memory(arrays[i], a) for a in others):
                arrays[i] = arrays[i].copy()
        return NotContiguous(arrays, tuple(units)) if units else arrays

    def check_dimensions(self, arrays: Sequence[Any]) -> None:
        """A user's error where dimensions differ that are equal in the graph."""
        _, groups, pairs = self._checks
        if pairs is not None:
            for i, d, j, e in pairs:
                if arrays[i].shape[d] != arrays[j].shape[e]:
                    break  # which is told below
            else:
                return
        for (first, d0), group, size in groups:
            expected = size_of(arrays[first], d0) if size is None else size
            for i, d in group:
                found = size_of(arrays[i], d)
                if found != expected:
                    why = f"as {_name(first, d0)}" if size is None else "as the graph has it elsewhere"
                    raise user_error(f"{_name(i, d)} must be {expected}, {why}, but is {found}")

    def check_bounds(self, arrays: Sequence[Any]) -> None:
        """A user's error where a slice would leave its tensor, as far as the host knows."""
        for bound in self.bounds:
            bound.check(arrays)

    @functools.cached_property
    def _donated(self) -> list[int]:
        return [i for i, slot in enumerate(self.arguments) if slot.donated]

    @functools.cached_property
    def _checks(self) -> tuple[list, list, list | None]:
        """What `bind` checks: of each argument, with shapes that it may have; of equal dimensions where the types do
        not say so already; and these as pairs, which are checked sooner: None if a size is an argument, or known."""
        groups = []
        for group, size in zip(self.dimensions.groups, self.dimensions.sizes, strict=True):
            dynamic = [(i, d) for i, d in group if d is None or (self.arguments[i].shape or ())[d] is None]
            if dynamic and (size is not None or len(group) > 1):
                groups.append((group[0], dynamic, size))
        slots = []
        for slot in self.arguments:
            static = [(d, size) for d, size in enumerate(slot.shape or ()) if size is not None]
            slots.append((slot.dtype, {slot.shape or ()}, static, slot))
        is_plain = all(size is None and all(d is not None for _, d in (first, *group)) for first, group, size in groups)
        pairs = [(*first, *other) for first, group, _ in groups for other in group if other != first]
        return slots, groups, pairs if is_plain else None


def _is_writable(attributes: Any) -> bool:
    return WRITABLE in attributes and ir.BoolAttr(attributes[WRITABLE]).value


def size_of(array: np.ndarray, d: int | None) -> int:
    """The size of dimension `d` of an argument, or its value where `d` is None."""
    return int(array) if d is None else array.shape[d]


# Per argument that is not contiguous: its position, and the dimension along which its elements are neighbours.
Units: TypeAlias = tuple[tuple[int, int], ...]


class NotContiguous(list):
    """Arrays of which some are not contiguous: those of `units`."""

    def __init__(self, arrays: list[np.ndarray], units: Units):
        super().__init__(arrays)
        self.units = units


@functools.cache
def stored_dims(rank: int, unit: int) -> tuple[int, ...]:
    """The dimensions of an argument in the order in which its variant has them."""
    return (*(d for d in range(rank) if d != unit), unit)


def _unit_of_large(i: int, array: np.ndarray) -> int | None:
    """The unit dimension of argument `i`, None if it is to be copied; where that costs, it is told."""
    if array.nbytes <= SMALL:
        return None
    unit = unit_dimension(array) if array.flags.aligned else None
    if unit not in (None, array.ndim - 1) and array.shape[unit] * array.itemsize < LINE:
        unit = None  # a kernel would read every line of memory several times
    if unit is None:
        warnings.warn(
            f"argument {i} is copied at each call: too few of its elements are next to each other, or they are in "
            f"reverse order (shape {array.shape}, strides {array.strides}); pass np.ascontiguousarray of it",
            RuntimeWarning,
            stacklevel=4,
        )
    return unit


def unit_dimension(array: np.ndarray) -> int | None:
    """The last dimension along which elements stand next to each other; None if a memref cannot be so strided."""
    size, unit = array.itemsize, None
    for d, stride in enumerate(array.strides):
        if array.shape[d] > 1:
            if stride == size:
                unit = d
            elif stride < 0 or stride % size:
                return None
    return unit


def _name(i: int, d: int | None) -> str:
    return f"argument {i}" if d is None else f"dimension {d} of argument {i}"


def scalar(i: int, value: Any, slot: Slot) -> int | float:
    """Argument `i`, a number of Python's or numpy's, or an array of one element without dimensions, as one of Python's;
    a user's error where the slot's type does not have it."""
    number: Any = value
    refuse_traced(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        number = value.item()  # also of a tensor on a GPU, which it waits for
    if not isinstance(number, bool | int | float):
        shape = getattr(value, "shape", ())
        found = f"an array of shape {tuple(shape)}" if shape else f"of type {type(number).__name__}"
        raise user_error(f"argument {i} must be {slot}, a number, but is {found}")
    dtype = slot.dtype
    if dtype.kind not in "iub":
        with np.errstate(over="ignore"):
            return float(dtype.type(number))
    whole = isinstance(number, int) or number.is_integer()
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if not whole or not least <= number <= most:
        raise user_error(f"argument {i} must be {slot}, but is {value}")
    return int(number)


def _checked(i: int, value: Any, slot: Slot) -> np.ndarray:
    if slot.shape is None:
        return np.asarray(scalar(i, value, slot)).astype(slot.dtype)
    array = as_numpy(value, i)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype != slot.dtype:
        raise user_error(f"argument {i} must be {slot} (numpy's {slot.dtype}), but is an array of {array.dtype}")
    shape = slot.shape
    if array.ndim != len(shape) or any(s not in (None, n) for s, n in zip(shape, array.shape, strict=True)):
        raise user_error(f"argument {i} must be {slot}, but is an array of shape {array.shape}")
    return array


def of_torch(dtype: Any) -> np.dtype | None:
    """The type of ml_dtypes, of which numpy knows by it alone, that one of torch's is; None for others."""
    name = str(dtype)
    if not name.startswith(("torch.bfloat", "torch.float8")):
        return None
    import ml_dtypes

    found = getattr(ml_dtypes, name.removeprefix("torch."), None)
    return None if found is None else np.dtype(found)


class Traced(Exception):
    """An argument is no array, but what JAX traces, in jax.jit, vmap or scan."""


def refuse_traced(value: Any) -> None:
    core = sys.modules.get("jax.core")
    if core is not None and isinstance(value, core.Tracer):
        raise Traced


def as_numpy(value: Any, number: int | None = None) -> np.ndarray:
    """A numpy array on the memory of `value`: an array, a tensor of any library with DLPack, a scalar. `number` says
    which argument it is."""
    if type(value) is np.ndarray:
        return value
    kind = type(value).__name__
    name = f"an argument of type {kind}" if number is None else f"argument {number}, of type {kind},"
    if isinstance(value, np.ndarray):
        if np.any(getattr(value, "mask", False)):  # of numpy.ma; unused elements would be computed with
            raise user_error(f"{name} masks elements, which kernels know nothing of", "fill them: .filled(0)")
        return value
    refuse_traced(value)
    if hasattr(value, "fake_mode"):  # torch would hand over memory that is not there
        raise user_error(
            f"{name} has no elements that could be computed with: it stands for a tensor that torch traces",
            "a kernel is no part of what torch traces; export or trace the function that it was compiled from",
        )
    if hasattr(value, "resolve_neg"):  # torch's tensors that need gradients export nothing, lazily negated ones no sign
        refuse_transformed(value, name)
        value = value.detach().resolve_neg()
    try:
        dtype = of_torch(getattr(value, "dtype", None))
        if dtype is not None:
            import torch  # it made the value

            return value.view(getattr(torch, f"uint{8 * dtype.itemsize}")).numpy().view(dtype)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
    except (BufferError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        way_out = ['kernels for tensors on a GPU are compiled with target="nvidia"'] if _is_on_device(value) else []
        raise user_error(f"{name} is no array in the host's memory: {error}", *way_out) from None
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise user_error(f"{name} is no array: {error}") from None
    if array.dtype == object:
        raise user_error(f"{name} is no array")
    return array


def signless(array: Any, wanted: str, number: int | None = None) -> Any:
    """Unsigned integers as the signed ones of their size, others as they are: lowered graphs' integers have no sign. A
    user's error where argument `number` has a sign and the type of the name `wanted` has none, or the reverse."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        return array
    check_sign(array.dtype.name, wanted, number)
    return array.view(f"i{array.itemsize}") if array.dtype.kind == "u" else array


def check_sign(found: str, wanted: str, number: int | None) -> None:
    if found != wanted and found.removeprefix("u") == wanted.removeprefix("u"):
        raise user_error(f"argument {number} must be of {wanted}, but is of {found}")


def _is_on_device(value: Any) -> bool:
    """Whether an array of another library says by DLPack that it is not in the host's memory."""
    try:
        return value.__dlpack_device__()[0] != HOST
    except Exception:  # on what DLPack has no name for, such as torch's meta
        return False
