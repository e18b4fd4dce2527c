"""Nodes of ONNX that have graphs of their own: scans, loops."""

import numpy as np
import pytest
from attn_opt.compiler.api import compile

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import assert_close, model, random

SCAN = """g (float[4] s, float[{}] x) => (float[4] t, float[{}] y) {{
  t, y = Scan<num_scan_inputs = 1, {} body = b (float[4] a, float[3, 4] z) => (float[4] c, float[3, 4] w) {{
    w = Mul(a, z) r = ReduceSum<keepdims = 0>(w) c = Add(a, r)
  }}>(s, x)
}}"""


def scanned(s, x, axis, turned, out_axis, out_turned):
    found = []
    for i in np.arange(x.shape[axis])[:: -1 if turned else 1]:
        found.append(s * np.take(x, i, axis))
        s = s + found[-1].sum()
    return s, np.stack(found[:: -1 if out_turned else 1], out_axis)


@pytest.mark.parametrize("way", [(0, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1), (2, 0, 1, 0), (1, 1, -1, 1), (-1, 0, 2, 1)])
def test_scans_in_all_ways(way):
    """The importer takes them to go forwards along the first axis, and does not say so."""
    names = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")
    s, x = random(4), np.moveaxis(random(5, 3, 4), 0, way[0])
    expected = scanned(s, x, *way)
    shapes = [", ".join(map(str, array.shape)) for array in (x, expected[1])]
    given = " ".join(f"{name} = [{value}]," for name, value in zip(names, way, strict=True))
    assert_close(compile(model(SCAN.format(*shapes, given), 18))(s, x), expected)


def test_scans_in_bodies():
    text = """g (float[3,3] x) => (float[3,3] y) { n = Constant<value_int = 2>() c = Constant<value = bool {1}>()
      y = Loop(n, c, x) <body = b (int64 i, bool d, float[3,3] u) => (bool e, float[3,3] w) {
        e = Identity(d)
        w = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_directions = [1],
                 body = b (float[3] z) => (float[3] v) { v = Sin(z) }>(u)
      }> }"""
    x = random(3, 3)
    assert_close(compile(model(text, 18))(x), [np.sin(np.sin(x.T[::-1]).T[::-1])])


LOOP = """g (float[3] x, float[3] z, bool c, bool w) => (float[3] y) {{
  n = Constant<value_int = 3>() no = Constant<value = bool {{0}}>() v = Identity(z)
  y = Loop({}) <body = b (int64 i, bool d, float[3] u) => (bool e, float[3] t) {{ {} t = Add(u, v) }}>
}}"""
ONCE = "e = Constant<value = bool {0}>()"
COMPUTED = "s = ReduceSum<keepdims = 0>(u) h = Constant<value = float {-100.0}>() e = Greater(s, h)"


STOPS = COMPUTED.replace("-100.0", "100.0")


@pytest.mark.parametrize(
    ("loop", "condition", "counts"),  # of iterations: where c and w hold, c alone, w alone, neither does
    [
        ("n, c, x", "e = Identity(d)", (3, 3, 0, 0)),
        ("n, c, x", "e = Identity(w)", (3, 1, 0, 0)),
        ("n, , x", "e = Identity(w)", (3, 1, 3, 1)),
        ("n, c, x", ONCE, (1, 1, 0, 0)),
        (", c, x", ONCE, (1, 1, 0, 0)),
        ("n, no, x", "e = Identity(d)", (0, 0, 0, 0)),
        ("n, no, x", COMPUTED, (0, 0, 0, 0)),
        ("n, c, x", COMPUTED, (3, 3, 0, 0)),
        ("n, c, x", STOPS, (1, 1, 0, 0)),
        ("n, , x", STOPS, (1, 1, 1, 1)),
        (", , x", STOPS, (1, 1, 1, 1)),
    ],
)
def test_loops_run_as_often_as_they_say(loop, condition, counts):
    """The importer looks at conditions that bodies compute alone."""
    kernel, x, z = compile(model(LOOP.format(loop, condition), 18)), random(3), random(3, seed=1)
    found = [kernel(x, z, np.array(c), np.array(w)) for c in (True, False) for w in (True, False)]
    assert_close(tuple(found), [x + count * z for count in counts])


def test_results_of_loops_need_no_shape():
    text = LOOP.format("n, , x", "e = Constant<value = bool {1}>()")
    kernel, x, z = compile(model(text.replace("float[3] y", "float[] y"), 18)), random(3), random(3, seed=1)
    assert_close(kernel(x, z, np.array(True), np.array(True)), [x + 3 * z])
