"""Random models of ONNX around attention; see `random_checks.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

reference = pytest.importorskip("onnx.reference", reason="needs the extra attn_opt[onnx]")

from attn_opt.compiler import compile  # noqa: E402
from hypothesis import assume, given, settings  # noqa: E402
from onnx_numpy import evaluate  # noqa: E402
from random_checks import TOO_SLOW, Framework  # noqa: E402
from random_onnx import RandomOnnxProgram  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


class Onnx(Framework):
    program = RandomOnnxProgram

    def compiled(self, program: RandomOnnxProgram, **options: Any) -> Any:
        return compile(program.model, **options)

    def results(self, program: RandomOnnxProgram, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        return evaluate(program.model, args, is_wide=any(x.dtype == np.float64 for x in args))

    def operands(self, kernel: Any, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [*args, *kernel._weights]


ONNX = Onnx()
test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus, test_open_sizes = ONNX.tests(
    4, 2, with_open_sizes=True
)


@given(ONNX.programs(dtypes=("f32",)))
@settings(max_examples=6, **TOO_SLOW)
def test_what_they_are_compared_with(program):
    """onnx's own evaluation comes to the same; it knows no operators of onnxruntime's."""
    assume(not any(node.domain or node.op_type == "Attention" for node in program.model.graph.node))
    args = program.inputs()
    names = [value.name for value in program.model.graph.input]
    found = reference.ReferenceEvaluator(program.model).run(None, dict(zip(names, args, strict=True)))
    ONNX.check_results(program, args, list(map(np.asarray, found)), is_wide=False)


@pytest.mark.slow
@given(ONNX.programs(dtypes=("f32",)))
@settings(max_examples=100, **TOO_SLOW)
def test_what_onnxruntime_computes(program):
    """With operators of its own, of which it does not know all that programs ask for; what is in a buffer behind the
    last key is not defined."""
    onnxruntime = pytest.importorskip("onnxruntime")
    assume(not any(node.op_type == "GroupQueryAttention" and node.input[3] for node in program.model.graph.node))
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(program.model.SerializeToString(), options)
        args = program.inputs()
        names = [value.name for value in program.model.graph.input]
        found = session.run(None, dict(zip(names, args, strict=True)))
    except Exception:  # it has several classes of them, of no common one
        assume(False)
    ONNX.check_results(program, args, found, is_wide=False)
