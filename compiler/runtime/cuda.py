"""Runs kernels on an NVIDIA GPU by the CUDA driver's interface. Needs the driver's library alone, and no IR.

    image = Image(program, code, "sm_90a")    # `program`: runtime.program's; `code`: PTX or machine code
    kernel = CudaKernel(image, signature)
    out, = kernel(q, k, v)                   # numpy arrays are copied; tensors of torch, CuPy and JAX are not

Everything is launched on the caller's current stream; results are arrays of the same library. After the first call with
arguments of some shapes, a call allocates by the library alone and waits for nothing: it can be part of a CUDA graph.
"""

import collections
import ctypes
import dataclasses
import functools
import json
import math
import pathlib
import struct
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ..diagnostics import user_error
from .cuda_arrays import Array, Library, NumpyArrays, check_places, device_library
from .cuda_driver import LITTLE, CudaError, driver
from .cuda_plan import Apart, Misfit, Plan
from .program import Program
from .signature import Signature, Units, scalar, stored_dims

SHARED_SIZE_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PLANS = 256  # of a kernel, for so many shapes
NO_PLAIN_TENSOR = "no plain tensor, but a sparse or nested one of torch, or one within vmap"
_HEAD = struct.Struct("<Q")
_PACKAGE = __name__.partition(".")[0] + "."


Condition: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]  # at most so much: (argument, dimension), multiplied


@dataclasses.dataclass(frozen=True)
class Version:
    """What is run in place of the rest where all conditions hold."""

    conditions: tuple[Condition, ...]
    image: "Image"

    def suits(self, values: Sequence[Any]) -> bool:
        return all(math.prod(values[i].shape[d] for i, d in places) <= most for most, places in self.conditions)


@dataclasses.dataclass(frozen=True)
class Image:
    """All that runs a compiled function: the host's program, the kernels' code, the architecture it is for; and other
    ones for some sizes, of which the first that suits is taken."""

    program: Program
    code: bytes
    arch: str
    versions: tuple[Version, ...] = ()

    def packed(self) -> bytes:
        parts = [self.code, *(version.image.packed() for version in self.versions)]
        about = {
            "program": self.program.plain(),
            "arch": self.arch,
            "conditions": [version.conditions for version in self.versions],
            "sizes": [len(part) for part in parts],
        }
        head = json.dumps(about).encode()
        return b"".join([_HEAD.pack(len(head)), head, *parts])

    @classmethod
    def unpacked(cls, data: bytes) -> "Image":
        (size,) = _HEAD.unpack_from(data)
        at = _HEAD.size + size
        head = json.loads(data[_HEAD.size : at])
        parts = []
        for size in head["sizes"]:
            parts.append(data[at : at + size])
            at += size
        code, *versions = parts
        made = zip(map(conditions, head["conditions"]), map(cls.unpacked, versions), strict=True)
        return cls(Program.of(head["program"]), code, head["arch"], tuple(Version(*one) for one in made))


def conditions(plain: Sequence[Sequence[Any]]) -> tuple[Condition, ...]:
    """From lists, as JSON has them."""
    return tuple((most, tuple((i, d) for i, d in places)) for most, places in plain)


class CudaKernel:
    """A compiled function on GPUs. Code is loaded at the first call on a device.

    `general`: makes the kernel that takes any strides, where this one wants dense and aligned rows. `transposed`: the
    one for arguments whose rows are another dimension, if there is one (`strided.py`).
    """

    def __init__(self, image: Image, signature: Signature):
        self.image, self.signature = image, signature
        self.general: Callable[[], CudaKernel] | None = None
        self.transposed: Callable[[Units], CudaKernel | None] = lambda units: None
        self.cubins: Callable[[], pathlib.Path | None] = lambda: None
        self.tile_sizes: Sequence[int] = ()  # if they were given
        slots = signature.arguments
        self._tensors = [i for i, slot in enumerate(slots) if slot.shape is not None]
        self._donated = [i for i in self._tensors if slots[i].donated]
        self._scalars = [(i, slot) for i, slot in enumerate(slots) if slot.shape is None]
        self._versions = [(version, CudaKernel(version.image, signature)) for version in image.versions]
        for _, kernel in self._versions:
            kernel.cubins = lambda: self.cubins()
        sizing = image.program.sizing().union(*(version.image.program.sizing() for version in image.versions))
        self._sizing = sorted(sizing - set(self._tensors))
        self._modules: dict[int, ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, str], ctypes.c_void_p] = {}
        self._plans: collections.OrderedDict[Any, Plan | Misfit] = collections.OrderedDict()
        self._other: CudaKernel | None = None
        self._variants: dict[Units, CudaKernel | None] = {}

    def object_file(self) -> bytes:
        """What `Image.unpacked` reads."""
        return self.image.packed()

    # Calls.

    def call(self, values: Sequence[Any], out: Any = None) -> list[Any]:
        """The results, in `out` (an array, or a tuple of them) where that is given. Raises a user's error."""
        try:
            library = device_library(values)
            if library is None or library.copies:
                return self._entered(values, out, library)
            return self._run(values, () if out is None else out if isinstance(out, tuple) else (out,), library)
        except CudaError as error:
            raise user_error(str(error)) from None
        except RuntimeError as error:
            if "data pointer" not in str(error):
                raise
            raise user_error(f"an argument is {NO_PLAIN_TENSOR}: {error}") from None

    def _entered(self, values: Sequence[Any], out: Any, library: Any) -> list[Any]:
        """With arrays of a library that has none in place."""
        if out is not None:
            raise CudaError("out is for tensors of torch or CuPy on the GPU")
        if library is None:
            values = self.signature.bind(values)
            library = _numpy()
        else:
            self._check_count(values)
            check_places(values, library, self._tensors)
        driver().enter(driver().current_device())
        tensors = set(self._tensors)
        entered = [library.enter(v) if i in tensors else v for i, v in enumerate(values)]
        for i in self._donated:
            entered[i] = library.own(entered[i], i)
        results = self._run(entered, (), library)
        return [library.leave(result, entered) for result in results]

    def _run(self, values: Sequence[Any], outs: Sequence[Any], library: Library) -> list[Any]:
        try:
            key = [library.key(values[i]) for i in self._tensors]
            key += [library.key(value) for value in outs]
        except (AttributeError, IndexError, TypeError):
            self._check_count(values)
            check_places(values, library, self._tensors)
            check_places(outs, library, range(len(outs)), "out")
            raise
        except RuntimeError as error:
            raise CudaError(f"an argument is {NO_PLAIN_TENSOR}: {error}") from None
        if self._scalars or self.signature.bounds:
            self._check_count(values)
        if self._scalars:  # also those that plans do not depend on
            values = list(values)
            for i, slot in self._scalars:
                values[i] = scalar(i, values[i], slot)
            key += [values[i] for i in self._sizing]
        if self.signature.bounds:
            self.signature.check_bounds(values)
        found = (len(values), *key)
        plan = self._plans.get(found)
        if plan is None:
            plan = self._plans[found] = self._plan(values, outs, library)
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)
        try:
            if isinstance(plan, Misfit):
                raise Misfit(str(plan))  # a new one, without the traceback of the first
            if plan.copied:
                values = [library.contiguous(value) if i in plan.copied else value for i, value in enumerate(values)]
            if library.current() == plan.device:
                return plan.run(values, outs)
            with library.on(plan.device):
                return plan.run(values, outs)
        except Misfit as misfit:
            return self._general(str(misfit))._run(values, outs, library)

    def _plan(self, values: Sequence[Any], outs: Sequence[Any], library: Library) -> Plan | Misfit:
        """Checks the arguments and settles what they need."""
        self._check_count(values)
        if not library.copies:
            check_places(values, library, self._tensors)
            if outs:
                if len(outs) != len(self.signature.results):
                    raise CudaError(f"out must be {len(self.signature.results)} arrays, but {len(outs)} were given")
                check_places(outs, library, range(len(outs)), "out")
        described = list(values)
        for i in self._tensors:
            described[i] = library.describe(values[i])
        self._check(described)
        device = described[self._tensors[0]].device if self._tensors else library.current()
        targets = [library.describe(value) for value in outs]
        for name, arrays in (("argument", [described[i] for i in self._tensors]), ("out", targets)):
            for i, array in enumerate(arrays):
                if array.device != device:
                    raise CudaError(f"{name} {i} is on GPU {array.device}, but argument 0 is on GPU {device}: move it")
        copied: list[int] = []
        with library.on(device):
            while True:
                try:
                    plan = self._planned(described, targets, library, device)
                except Apart as apart:
                    copied.append(self._copied(apart, library, described))
                    continue
                except Misfit as misfit:
                    found = self._transposed_plan(described, targets, library, device)
                    if found is None:
                        return misfit
                    plan = found
                plan.copied = copied
                return plan

    def _copied(self, apart: Apart, library: Library, described: list[Any]) -> int:
        """The number of the argument that is copied at each call to be taken, of which `described` is told."""
        i = apart.argument
        if i not in self._tensors or i in self._donated or library.copies or described[i].is_contiguous():
            raise apart
        warnings.warn(
            f"'{self.signature.name}': argument {i} is copied at each call, which takes time: {apart}",
            stacklevel=_callers_level(),
        )
        described[i] = described[i].contiguous()
        return i

    def _planned(self, described: Sequence[Any], targets: Sequence[Array], library: Library, device: int) -> Plan:
        chosen = next((kernel for version, kernel in self._versions if version.suits(described)), self)
        functions = functools.partial(chosen._function, device)
        return Plan(chosen.image.program, described, targets, functions, library, device, self._donated)

    def _transposed_plan(
        self, described: Sequence[Any], targets: Sequence[Array], library: Library, device: int
    ) -> Plan | None:
        """The same where elements of some arguments are neighbours along another dimension than the last; None if there
        are none, or the kernel for them does not take them either."""
        units = tuple((i, d) for i in self._tensors if (d := _unit(described[i])) is not None)
        if not units:
            return None
        if units not in self._variants:
            self._variants[units] = self.transposed(units)
        variant = self._variants[units]
        if variant is None:
            return None
        moved = list(described)
        for i, d in units:
            moved[i] = _moved_last(described[i], d)
        try:
            return variant._planned(moved, targets, library, device)
        except (Apart, Misfit):
            return None

    def _check_count(self, values: Sequence[Any]) -> None:
        wanted = len(self.signature.arguments)
        if len(values) != wanted:
            raise user_error(f"'{self.signature.name}' takes {wanted} arguments, but {len(values)} were given")

    def _check(self, values: Sequence[Any]) -> None:
        for i, (value, slot) in enumerate(zip(values, self.signature.arguments, strict=True)):
            if slot.shape is None:
                continue
            fits = len(value.shape) == len(slot.shape)
            fits = fits and all(s in (None, n) for s, n in zip(slot.shape, value.shape, strict=True))
            if not fits or value.element != ("i64" if slot.element == "index" else slot.element):
                raise user_error(
                    f"argument {i} must be {slot}, but is a tensor of shape {value.shape} and type {value.element}"
                )
        self.signature.check_dimensions(values)

    def _general(self, why: str) -> "CudaKernel":
        if self.general is None:
            raise CudaError(f"{why}: copy it before the call")
        warnings.warn(
            f"'{self.signature.name}': {why}. It is used as it is, by a kernel that reads element by element, which is "
            "slower; dense rows at aligned addresses are faster",
            stacklevel=_callers_level(),
        )
        if self._other is None:
            self._other = self.general()
        return self._other

    # Code.

    def functions(self) -> list[ctypes.c_void_p]:
        """The kernels that are loaded."""
        return [*self._functions.values(), *(one for _, kernel in self._versions for one in kernel.functions())]

    def _function(self, device: int, name: str, shared: int) -> ctypes.c_void_p:
        if (device, name) not in self._functions:
            if device not in self._modules:
                self._modules[device] = self._load(device)
            most = driver().largest_shared(device)
            if shared > most:
                raise CudaError(
                    f"{name} needs {shared} bytes of shared memory in a block, of which this GPU has {most}: choose "
                    "smaller tiles (tile_sizes)"
                )
            found = ctypes.c_void_p()
            driver().call("cuModuleGetFunction", ctypes.byref(found), self._modules[device], name.encode())
            driver().call("cuFuncSetAttribute", found, SHARED_SIZE_ATTRIBUTE, shared)
            if self.tile_sizes and name not in {known for _, known in self._functions}:
                self._tell_of_spills(name, driver().spilled(found))
            self._functions[device, name] = found
        return self._functions[device, name]

    def _tell_of_spills(self, name: str, spilled: int) -> None:
        """Of tile sizes that are too large for registers, once for a kernel."""
        if spilled <= LITTLE:
            return
        sizes = ",".join(map(str, self.tile_sizes))
        warnings.warn(
            f"'{name}': tile sizes {sizes} leave a thread too few registers: it keeps {spilled} bytes in memory, "
            "which is slow; choose tiles of fewer rows or columns (tile_sizes), leave them to the rule, or have them "
            "measured (autotune=True)",
            stacklevel=_callers_level(),
        )

    def _load(self, device: int) -> ctypes.c_void_p:
        driver().enter(device)
        have = driver().arch(device)
        wanted = self.image.arch
        if have != wanted and (wanted.endswith("a") or _number(have) < _number(wanted)):
            raise CudaError(f"the code is for {wanted}, but this GPU is {have}: compile for it")
        return driver().load(self.image.code, self.cubins())


def _unit(array: Array) -> int | None:
    """The dimension along which elements are neighbours, where that is not the last one."""
    if array.strides[-1:] in ((), (1,)) or array.shape[-1] == 1:
        return None
    return next((d for d, (s, n) in enumerate(zip(array.strides, array.shape, strict=True)) if s == 1 and n > 1), None)


def _moved_last(array: Array, dim: int) -> Array:
    order = stored_dims(len(array.shape), dim)
    shape, strides = (tuple(of[d] for d in order) for of in (array.shape, array.strides))
    return dataclasses.replace(array, shape=shape, strides=strides)


def _callers_level() -> int:
    """Of a warning, where the function that warns was called from outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("a"))


@functools.cache
def _library_of(of: Any) -> NumpyArrays:
    return NumpyArrays()


def _numpy() -> NumpyArrays:
    return _library_of(driver())


__all__ = ["Array", "CudaError", "CudaKernel", "Image"]
