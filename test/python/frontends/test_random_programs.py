"""Random programs of torch around attention; see `random_checks.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra attn_opt[torch]")

from attn_opt.compiler import compile  # noqa: E402
from random_checks import Framework, listed  # noqa: E402
from random_programs import RandomProgram  # noqa: E402
from random_source import DTYPES  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")


class Torch(Framework):
    program = RandomProgram
    refused = "was traced for sizes with|must be"

    def compiled(self, program: RandomProgram, **options: Any) -> Any:
        shapes = program.dynamic_shapes() if program.open else None
        return compile(program.function, program.inputs(), dynamic_shapes=shapes, **options)

    def results(self, program: RandomProgram, args: Sequence[Any]) -> list[np.ndarray]:
        with torch.no_grad():
            return list(map(self.array, listed(program.function(*map(torch.as_tensor, args)))))

    def array(self, x: torch.Tensor) -> np.ndarray:
        return x.float().numpy().astype(DTYPES["bf16"]) if x.dtype == torch.bfloat16 else x.numpy()


test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus, test_open_sizes = Torch().tests(
    8, 6, with_open_sizes=True
)
