"""Random programs of JAX around attention; see `random_checks.py`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs the extra attn_opt[jax]")

from attn_opt.compiler import compile  # noqa: E402
from random_checks import Framework, Training, listed  # noqa: E402
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
        return compile(self.function(program), program.inputs(), **options)

    def function(self, program: RandomJaxProgram) -> Callable[..., Any]:
        return program.function

    def results(self, program: RandomJaxProgram, args: Sequence[Any]) -> list[np.ndarray]:
        with jax.enable_x64(any(x.dtype == np.float64 for x in args)):
            function = jax.jit(self.function(program)) if self.as_a_whole else self.function(program)
            return list(map(np.asarray, listed(function(*map(jax.numpy.asarray, args)))))

    def operands(self, kernel: Any, args: Sequence[Any]) -> list[Any]:
        return [*kernel.program.constants, *args]


class JaxTraining(Training, Jax):
    """By jax.vjp, in one kernel."""

    def function(self, program: RandomJaxProgram) -> Callable[..., Any]:
        def gradients(*args: jax.Array) -> list[jax.Array]:
            floats = [i for i, x in enumerate(args) if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)]

            def of_floats(*given: jax.Array) -> list[jax.Array]:
                mixed = list(args)
                for i, x in zip(floats, given, strict=True):
                    mixed[i] = x
                return listed(program.function(*mixed))

            found, back = jax.vjp(of_floats, *(args[i] for i in floats))
            factors = [jax.numpy.asarray(self.factors(x.shape, i), x.dtype) for i, x in enumerate(found)]
            return [*found, *back(factors)]

        return gradients


test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus = Jax().tests(4, 3)
test_training, test_much_training = JaxTraining().tests_of_training(3, 40, ("f32",))
