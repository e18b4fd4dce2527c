"""All cases of Attention and FlexAttention of onnx's own backend node tests, as operators and as their function bodies.

The comparison is that of onnx's test runner. Every case must pass; where its model asks for nothing but the output,
its attention must be fused too. What does not is in the tables below, with the reason.
"""

import importlib
import warnings

import numpy as np
import pytest
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

# Case → why it cannot pass.
CANNOT_PASS: dict[str, str] = {}

# Part of a case's name → why its attention is not fused.
WHOLE_SCORES = "needs its scores or probabilities as a whole too"  # raise-attention says so
NOT_FUSED: dict[str, str] = {}


def collect() -> dict[str, object]:
    collect_testcases = importlib.import_module("onnx.backend.test.case.node").collect_testcases
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    return {case.name: case for case in cases if "attention" in case.name and "linear_attention" not in case.name}


CASES = collect()


def assert_like_onnx(found, expected, rtol: float, atol: float) -> None:
    """What ``onnx.backend.test.runner`` asserts."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if a.dtype.name == "bfloat16":
            a, b, rtol = a.astype(np.float32), b.astype(np.float32), max(rtol, 2**-6)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def test_the_suite_is_there():
    assert len(CASES) >= 200
    assert set(CANNOT_PASS) <= set(CASES)


# A case's expanded twin is the function body that the operator becomes here anyway.
PARAMETERS = [pytest.param(name, marks=pytest.mark.slow if "_expanded" in name else ()) for name in CASES]


@pytest.mark.parametrize("name", PARAMETERS)
def test_case(name, request):
    from attn_opt.compiler.frontends.onnx import Backend

    if name in CANNOT_PASS:
        request.applymarker(pytest.mark.xfail(reason=CANNOT_PASS[name], strict=True))
    case = CASES[name]
    before = stats()
    prepared = Backend.prepare(case.model)
    for inputs, outputs in case.data_sets:
        assert_like_onnx(prepared.run(list(inputs)), outputs, case.rtol, case.atol)
    after = stats()
    reason = next((reason for part, reason in NOT_FUSED.items() if part in name), None)
    if reason is None:
        assert after["compiled"] - before["compiled"] == 1
    else:
        assert after["compiled"] == before["compiled"]
    if reason == WHOLE_SCORES:
        assert any(reason in text and n > before["reasons"].get(text, 0) for text, n in after["reasons"].items())
