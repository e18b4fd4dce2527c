"""Random programs of torch around attention; see `random_checks.py`."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile  # noqa: E402
from attn_opt.compiler.frontends.dynamo.kernel import INTERNAL  # noqa: E402
from dynamo_harness import Counts, Drawn, compiled  # noqa: E402
from random_checks import Framework, Training, listed  # noqa: E402
from random_programs import RandomProgram  # noqa: E402
from random_source import DTYPES, off_by_rounding  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


class Rounding(TorchDispatchMode):
    """What operators give in float64 is off by as much as roundings would have it."""

    def __init__(self, epsilon: float):
        super().__init__()
        self.epsilon, self.generator = epsilon, torch.Generator().manual_seed(0)

    def moved(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype != torch.float64:
            return x
        noise = torch.rand(x.shape, generator=self.generator, dtype=torch.float64)
        return off_by_rounding(x, noise, self.epsilon)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        return found if operator.is_view or operator._schema.is_mutable else tree_map(self.moved, found)


class Torch(Framework):
    program = RandomProgram
    refused = "was traced for sizes with|must be"

    def compiled(self, program: RandomProgram, **options: Any) -> Any:
        shapes = program.dynamic_shapes() if program.open else None
        return compile(program.function, program.inputs(), dynamic_shapes=shapes, **options)

    def results(self, program: RandomProgram, args: Sequence[Any]) -> list[np.ndarray]:
        with torch.no_grad():
            return list(map(self.array, listed(program.function(*map(torch.as_tensor, args)))))

    def rounded_results(self, program: RandomProgram, args: Sequence[np.ndarray], by: float) -> list[np.ndarray]:
        with Rounding(by):
            return self.results(program, args)

    def array(self, x: torch.Tensor) -> np.ndarray:
        return x.float().numpy().astype(DTYPES["bf16"]) if x.dtype == torch.bfloat16 else x.numpy()


class TorchTraining(Training, Torch):
    """By torch.compile(…, backend="attn_opt")."""

    # In rows that one key has nearly all of, g·vᵀ − Σ g·o is what is left of large numbers that are rounded apart.
    slack = 12.0
    dynamic: bool | None = None

    def wrapped(self, function: Any) -> Any:
        """What is compiled in its place."""
        return function

    def compiled(self, program: RandomProgram, **options: Any) -> Any:
        torch._dynamo.reset()
        fast, counts = compiled(self.wrapped(program.function), dynamic=self.dynamic), Counts()

        def called(*args: torch.Tensor) -> list[torch.Tensor]:
            found = self.gradients(fast, args)
            assert not [reason for reason in counts.reasons if INTERNAL in reason], repr(program)
            return found

        return called

    def results(self, program: RandomProgram, args: Sequence[Any]) -> list[np.ndarray]:
        return list(map(self.array, self.gradients(program.function, args)))

    def gradients(self, function: Any, args: Sequence[Any]) -> list[torch.Tensor]:
        args = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in map(torch.as_tensor, args)]
        with self.calling():
            found = listed(function(*args))
        factors = [torch.from_numpy(self.factors(x.shape, i)).to(x.dtype) for i, x in enumerate(found)]
        pairs = [(x, factor) for x, factor in zip(found, factors, strict=True) if x.requires_grad]
        outputs, factors = zip(*pairs, strict=True)
        inputs = [x for x in args if x.requires_grad]
        return [*found, *torch.autograd.grad(outputs, inputs, factors, allow_unused=True, materialize_grads=True)]

    def calling(self) -> Any:
        """What functions are called within."""
        return contextlib.nullcontext()

    def array(self, x: torch.Tensor) -> np.ndarray:
        return super().array(x.detach())


class OfKernels(TorchTraining):
    """By kernels of `compile`, of the function as a whole."""

    def compiled(self, program: RandomProgram, **options: Any) -> Any:
        kernel = Torch.compiled(self, program)
        return lambda *args: self.gradients(kernel, args)


class UnderAutocast(TorchTraining):
    """To bfloat16, but for float64, which it leaves alone: the reference is exact. Torch rounds each step to that type,
    of the derivative, too, and so is the reference off that has roundings: gradients get no more than results."""

    slack, epsilon = 1.0, float(torch.finfo(torch.bfloat16).eps)

    def calling(self) -> Any:
        return torch.autocast("cpu", dtype=torch.bfloat16)


class Checkpointed(TorchTraining):
    """Under torch.utils.checkpoint, which the reference is not."""

    def wrapped(self, function: Any) -> Any:
        return lambda *args: checkpoint(function, *args, use_reentrant=False)


class OfOpenSizes(TorchTraining):
    dynamic = True


class Dropping(TorchTraining):
    """Probabilities are dropped by the masks of seeds; what is not in a kernel has other ones, of torch."""

    def gradients(self, function: Any, args: Sequence[Any]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        found = super().gradients(function, args)
        self.drawn = torch.get_rng_state()
        return found

    def compiled(self, program: RandomProgram, **options: Any) -> Any:
        fast = super().compiled(program, **options)

        def called(*args: torch.Tensor) -> list[torch.Tensor]:
            found = fast(*args)
            self.drawn_by_kernels = self.drawn
            return found

        return called

    def results(self, program: RandomProgram, args: Sequence[Any]) -> list[np.ndarray]:
        with Drawn():
            return super().results(program, args)

    def can_be_checked(self, right: Sequence[np.ndarray]) -> bool:
        """Torch's generator has made as many numbers where all masks were of seeds."""
        return super().can_be_checked(right) and torch.equal(self.drawn, self.drawn_by_kernels)


class DroppingKernels(Dropping, OfKernels):
    """The same by kernels of `compile`."""


test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus, test_open_sizes = Torch().tests(
    8, 6, with_open_sizes=True
)
test_training, test_much_training = TorchTraining().tests_of_training(4, 60, ("f32", "f32", "f64"))
test_gradients_of_kernels, test_many_gradients_of_kernels = OfKernels().tests_of_training(2, 60, ("f32", "f32", "f64"))
test_dropouts_of_kernels, test_many_dropouts_of_kernels = DroppingKernels().tests_of_training(
    1, 60, ("f32", "f32", "f64"), drops=True
)
test_autocast, test_much_autocast = UnderAutocast().tests_of_training(2, 60, ("f32",))
test_checkpoints, test_many_checkpoints = Checkpointed().tests_of_training(2, 30, ("f32", "f32", "f64"))
test_dropouts, test_many_dropouts = Dropping().tests_of_training(2, 60, ("f32", "f32", "f64"), drops=True)
test_training_of_open_sizes, test_much_training_of_open_sizes = OfOpenSizes().tests_of_training(
    1, 30, ("f32", "f32", "f64"), is_open=True
)
