"""Random models of ONNX around attention; see `random_checks.py`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra attn_opt[onnx]")
reference = pytest.importorskip("onnx.reference", reason="needs the extra attn_opt[onnx]")

from attn_opt.compiler import compile  # noqa: E402
from hypothesis import assume, given, settings  # noqa: E402
from onnx_numpy import evaluate  # noqa: E402
from random_checks import TOO_SLOW, Framework  # noqa: E402
from random_onnx import RandomOnnxProgram  # noqa: E402
from random_source import off_by_rounding  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")


class Onnx(Framework):
    program = RandomOnnxProgram

    def compiled(self, program: RandomOnnxProgram, **options: Any) -> Any:
        return compile(program.model, **options)

    def results(self, program: RandomOnnxProgram, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        return evaluate(program.model, args, is_wide=any(x.dtype == np.float64 for x in args))

    def rounded_results(self, program: RandomOnnxProgram, args: Sequence[np.ndarray], by: float) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return evaluate(program.model, args, is_wide=True, moved=lambda x: off_by_rounding(x, rng.random(x.shape), by))

    def operands(self, kernel: Any, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [*args, *kernel._weights]


ONNX = Onnx()
test_programs, test_programs_for_gpus, test_many_programs, test_many_programs_for_gpus, test_open_sizes = ONNX.tests(
    4, 2, with_open_sizes=True
)


@given(ONNX.programs(dtypes=("f32",)))
@settings(max_examples=6, **TOO_SLOW)
def test_what_they_are_compared_with(program):
    """onnx's own evaluation comes to the same; it knows no operators of onnxruntime's, and gathers along no axis that
    counts from the end."""
    nodes = program.model.graph.node
    assume(not any(node.domain or node.op_type == "Attention" for node in nodes))
    assume(not any(node.op_type == "GatherElements" and node.attribute[0].i < 0 for node in nodes))
    args = program.inputs()
    names = [value.name for value in program.model.graph.input]
    found = reference.ReferenceEvaluator(program.model).run(None, dict(zip(names, args, strict=True)))
    ONNX.check_results(program, args, list(map(np.asarray, found)), is_wide=False)


def test_float64_is_rounded_by_no_cast():
    """Scores beside the least number of f16 are still told apart."""
    make = onnx.helper.make_tensor_value_info
    half = onnx.helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT16)
    graph = onnx.helper.make_graph([half], "", [make("x", 1, [2])], [make("y", 10, [2])])
    (found,) = evaluate(onnx.helper.make_model(graph), [np.float32([-65505, 1 / 3])], is_wide=True)
    np.testing.assert_array_equal(found, np.float64(np.float32([-65505, 1 / 3])))


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
