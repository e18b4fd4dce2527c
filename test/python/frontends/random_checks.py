"""Tests with random programs of a framework, compiled for the CPU and for GPUs, against float64: there to PTX, and run
without a GPU at the level of tiles, where numbers are rounded as on one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from attn_opt.compiler import CompileError
from gpu_modules import lowered, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_dtypes import finfo
from random_source import DTYPES, F32, FLAVOURS, RandomSource, check_code, check_error, off_by_rounding

TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
ON_GPUS = {"program": {"dtypes": tuple(DTYPES)}, "arch": ["sm_90a", "sm_80"]}  # tensor cores have no f64 here
OTHER_SIZES = ({}, {"b": 1, "m": 1, "n": 70}, {"b": 2, "m": 67, "n": 9, "p": 3}, {"b": 1, "m": 20, "n": 1, "p": 40})


def listed(found: Any) -> list:
    return list(found) if isinstance(found, tuple | list) else [found]


def is_float(x: np.ndarray) -> bool:
    return x.dtype.kind == "f" or x.dtype == DTYPES["bf16"]


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(float) if is_float(x) else x


class Framework:
    """What there is of its own about each. Programs have `inputs`: arrays of the framework."""

    program: Callable[..., RandomSource]  # of `choose`, and options
    refused: str | None = None  # what calls of kernels for open sizes may be refused with, as a regular expression

    def compiled(self, program: Any, **options: Any) -> Any:
        """The kernel."""
        raise NotImplementedError

    def results(self, program: Any, args: Sequence[Any]) -> list[np.ndarray]:
        """Without us, on the framework's arrays; or on numpy's, of float64."""
        raise NotImplementedError

    def rounded_results(self, program: Any, args: Sequence[np.ndarray], by: float) -> list[np.ndarray]:
        """In float64, with all that is computed off by roundings to `by`, where a framework has a way to it."""
        return self.results(program, args)

    def array(self, x: Any) -> np.ndarray:
        """Of numpy."""
        return np.asarray(x)

    slack = 1.0  # how many times the errors of forward passes are allowed
    epsilon = 0.0  # of roundings that are coarser than those of a program's types

    def least_scale(self, right: Sequence[np.ndarray]) -> float:
        """What errors are of where a result, of all that are `right`, is less."""
        return 0

    def can_be_checked(self, right: Sequence[np.ndarray]) -> bool:
        """Whether results that are `right` in float64 say anything of others."""
        return True

    def epsilon_of(self, x: np.ndarray) -> float:
        return max(float(finfo(x.dtype).eps), self.epsilon)

    def operands(self, kernel: Any, args: Sequence[Any]) -> list[Any]:
        """With what the kernel's module takes beside a call's arguments."""
        return list(args)

    def check_results(self, program: Any, args: Sequence[Any], found: Sequence[np.ndarray], is_wide: bool) -> None:
        """Against the program in float64; `is_wide`: what was found has yet to be rounded to the results' types."""
        rng = np.random.default_rng(0)
        given = list(map(self.array, args))
        exact = list(map(wide, given))
        right = self.results(program, exact)
        if not self.can_be_checked(right):
            return
        by = max(F32 if program.dtype != "f64" else float(np.finfo(float).eps), self.epsilon)
        rounded = []
        for _ in range(3):
            epsilons = [self.epsilon_of(x) if is_float(x) else 0 for x in given]
            pairs = zip(exact, epsilons, strict=True)
            moved = [off_by_rounding(x, rng.random(x.shape), epsilon) if epsilon else x for x, epsilon in pairs]
            rounded.append(self.rounded_results(program, moved, by))
        eager, least = self.results(program, args), self.least_scale(right)
        for one, a, c, *b in zip(found, right, eager, *rounded, strict=True):
            one = np.asarray(one).astype(c.dtype) if is_wide else one
            assert one.shape == a.shape and one.dtype == c.dtype, f"{one.shape}, {one.dtype}\n{program!r}"
            own = 2 * self.epsilon_of(one) + (16 * F32 if program.dtype != "f64" else F32 / 4096)
            one, a, c, *b = (x.astype(float) for x in (one, a, c, *b))
            check_error(one, a, b, c, own, program, least, self.slack)

    def check_on_cpu(self, program: Any) -> None:
        kernel = self.compiled(program)
        for flavour in FLAVOURS:
            args = program.inputs(flavour)
            self.check_results(program, args, list(map(self.array, listed(kernel(*args)))), is_wide=False)
        for sizes in OTHER_SIZES if program.open else ():
            args = program.inputs(**{letter: size for letter, size in sizes.items() if letter in program.open})
            try:
                found = listed(kernel(*args))
            except CompileError as error:
                assert self.refused and re.search(self.refused, str(error)), f"{error}\n{program!r}"
                continue
            self.check_results(program, args, list(map(self.array, found)), is_wide=False)

    def check_for_gpus(self, program: Any, arch: str) -> None:
        kernel = check_code(lambda: self.compiled(program, target="nvidia", arch=arch), program)
        module = lowered(kernel.ir("fused"), is_fused=True, arch=arch)
        for flavour in FLAVOURS:
            args = program.inputs(flavour)
            found = run(module, [wide(self.array(x)) for x in self.operands(kernel, args)])
            self.check_results(program, args, found, is_wide=True)

    def tests(self, on_cpu: int, on_gpus: int, with_open_sizes: bool = False) -> Iterator[Callable[..., None]]:
        """test_programs and test_programs_for_gpus, with so many examples; the same, slow, with more; then, if asked
        for, test_open_sizes."""
        for cpu, gpu, marks in ((on_cpu, on_gpus, ()), (100, 50, (pytest.mark.slow,))):
            yield self._test(self.check_on_cpu, cpu, {"program": {}}, marks)
            yield self._test(self.check_for_gpus, gpu, ON_GPUS, marks)
        if with_open_sizes:
            yield self._test(self.check_on_cpu, 30, {"program": {"is_open": True}}, (pytest.mark.slow,))

    def programs(self, **options: Any) -> st.SearchStrategy:
        def drawn(draw: Any) -> RandomSource:
            return type(self).program(lambda choices: draw(st.sampled_from(list(choices))), **options)

        return st.composite(drawn)()

    def _test(
        self, check: Callable[..., None], examples: int, drawn: Mapping[str, Any], marks: Sequence[pytest.MarkDecorator]
    ) -> Callable[..., None]:
        strategies = {
            name: self.programs(**options) if name == "program" else st.sampled_from(options)
            for name, options in drawn.items()
        }

        @given(**strategies)
        @settings(max_examples=examples, **TOO_SLOW)
        def test(**values: Any) -> None:
            check(**values)

        for mark in marks:
            test = mark(test)
        return test


class Training(Framework):
    """Of results, and gradients by all arguments of floats of their sum, each times a number of its own."""

    slack = 4.0

    def factors(self, shape: Sequence[int], number: int) -> np.ndarray:
        """What the elements of a result are multiplied by."""
        return np.random.default_rng(number).standard_normal(shape).astype(np.float32)

    def least_scale(self, right: Sequence[np.ndarray]) -> float:
        """Gradients that cancel each other are 0 to the rounding of the others."""
        return max(float(np.abs(x).max(initial=0)) for x in right)

    def can_be_checked(self, right: Sequence[np.ndarray]) -> bool:
        """A row that is no number makes all gradients none."""
        return all(np.isfinite(x).all() for x in right)

    def tests_of_training(
        self, few: int, many: int, dtypes: Sequence[str], **options: Any
    ) -> Iterator[Callable[..., None]]:
        """With so many examples, and a slow one with more; programs have the `options`. Not of 16 bits: gradients jump
        where functions bend."""
        for count, marks in ((few, ()), (many, (pytest.mark.slow,))):
            yield self._test(self.check_on_cpu, count, {"program": {"dtypes": dtypes, **options}}, marks)
