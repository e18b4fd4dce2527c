"""Random programs of JAX around attention; see `random_checks.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")

from attn_opt.compiler import compile  # noqa: E402
from random_checks import Framework, listed  # noqa: E402
from random_jax import RandomJaxProgram  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Jax(Framework):
    program = RandomJaxProgram
    as_a_whole = True

    def check_results(self, *args: Any, **options: Any) -> None:
        """What XLA makes of a whole program may be wrong, as of a square of probabilities that has a product with 2
        columns: it is asked op by op, which takes longer, before something is found to be."""
        try:
            super().check_results(*args, **options)
        except AssertionError:
            self.as_a_whole = False
            super().check_results(*args, **options)
        finally:
            self.as_a_whole = True

    def compiled(self, program: RandomJaxProgram, **options: Any) -> Any:
        return compile(program.function, program.inputs(), **options)

    def results(self, program: RandomJaxProgram, args: Sequence[Any]) -> list[np.ndarray]:
        with jax.enable_x64(any(x.dtype == np.float64 for x in args)):
            function = jax.jit(program.function) if self.as_a_whole else program.function
            return list(map(np.asarray, listed(function(*map(jax.numpy.asarray, args)))))

    def operands(self, kernel: Any, args: Sequence[Any]) -> list[Any]:
        return [*kernel.program.constants, *args]


test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus = Jax().tests(4, 3)
