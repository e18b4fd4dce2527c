"""What the host does for a function whose loops are kernels: a program of a few steps, as plain data.

It comes from the func.func around the launches (`host_program`), and is run by `runtime.cuda` on arrays, with no IR at
hand, so that it can be kept on disk with the kernels' code.
"""

import dataclasses
from typing import Any

TENSOR_MAP = "tensor_map"  # a launch's parameter of this kind


@dataclasses.dataclass(frozen=True)
class Step:
    """`kind`: constant, dim, arithmetic, alloc, tensor_map, launch, collapse or expand. Values are numbered: arguments
    first, then results of steps.

    constant: `detail` is the number. dim: `operands` = (array, dimension). arithmetic: `detail` is the formula.
    alloc: `detail` = (element, shape with None where the next operand says). launch: `detail` = (kernel, threads,
    shared bytes, the parameters' kinds, whether its blocks may come before the launch before is done), `operands` =
    (blocks, parameters…). tensor_map: `detail` = (element, box), `operands` = (array, sizes…). collapse: `detail` =
    groups of dimensions; expand: `detail` = (groups, sizes with None where the next operand says).
    """

    kind: str
    operands: tuple[int, ...]
    detail: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    """The steps; each gives one value, launches and all. `arguments`: how many; `results`: the values returned."""

    arguments: int
    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def sizing(self) -> set[int]:
        """The arguments that sizes or grids are computed from: not those that only kernels read."""
        found: set[int] = set()
        for step in self.steps:
            sizes = {"launch": step.operands[:1], "tensor_map": step.operands[1:]}
            found.update(sizes.get(step.kind, step.operands))
        return {n for n in found if n < self.arguments}

    def plain(self) -> Any:
        """For JSON."""
        return [self.arguments, [dataclasses.astuple(step) for step in self.steps], self.results]

    @classmethod
    def of(cls, plain: Any) -> "Program":
        arguments, steps, results = _tuples(plain)
        return cls(arguments, tuple(Step(*step) for step in steps), results)


def _tuples(value: Any) -> Any:
    """Lists, as JSON has them, as the tuples that they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
