"""From a model of ONNX to its graph: what upstream's importer lacks or gets wrong, files, names of inputs."""

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import assert_close, model, random, reference  # noqa: E402

SEQUENTIAL = {
    "CumSum": "g (float[3,4] x, float[3,4] z) => (float[3,4] y) { a = Constant<value_int = 1>() y0 = CumSum(x, a) "
    "y1 = CumSum<exclusive = 1, reverse = 1>(z, a) y = Add(y0, y1) }",
    "ScatterND": "g (float[3,4] x, float[2,4] u) => (float[3,4] y) { i = Constant<value = int64[2,1] {2, 0}>() "
    "y = ScatterND(x, i, u) }",
    "ScatterElements": "g (float[3,4] x, float[2,2] u) => (float[3,4] y) { "
    'i = Constant<value = int64[2,2] {1, 3, 0, 0}>() y = ScatterElements<axis = 1, reduction = "add">(x, i, u) }',
    "Softsign": "g (float[3,4] x) => (float[3,4] y) { y = Softsign(x) }",
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_operators_by_loops_or_by_their_definition(name):
    source = model(SEQUENTIAL[name], 18)
    shapes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in source.graph.input]
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_close(compile(source)(*inputs), reference(source, inputs))


OF_NAN = {
    "ArgMax": ("int64[5]", "ArgMax<axis = 1, keepdims = 0>(x)"),
    "ArgMin": ("int64[1,9]", "ArgMin<axis = 0>(x)"),
    "the last ArgMax": ("int64[5]", "ArgMax<axis = 1, keepdims = 0, select_last_index = 1>(x)"),
    "Hardmax": ("float[5,9]", "Hardmax(x)"),
    "Max": ("float[5,9]", "Max(x, z)"),
    "Min": ("float[5,9]", "Min(z, x)"),
    "Clip": ("float[5,9]", "Clip(x, low, high)"),
}


@pytest.mark.parametrize("name", OF_NAN)
def test_nan(name):
    kind, operator = OF_NAN[name]
    limits = {"low": np.array(-0.1, np.float32), "high": np.array(0.1, np.float32)}
    source = model(f"g (float[5,9] x, float[5,9] z) => ({kind} y) {{ y = {operator} }}", 18, **limits)
    x, z = random(5, 9), random(5, 9, seed=1)
    x[1, [3, 7]] = x[2, 8] = x[4, 0] = z[0, 0] = z[2, 3] = np.nan
    x[3] = -np.inf
    np.testing.assert_array_equal(compile(source)(x, z), reference(source, [x, z])[0])


def test_indices_out_of_range_read_nothing_else():
    source = model("g (float[4,3] x, int64[2] i) => (float[2,3] y) { y = Gather(x, i) }")
    x = random(4, 3)
    found = compile(source)(x, np.array([1, 2**40]))
    assert_close(found, [x[[1, 3]]])


def test_inputs_by_name():
    source = model("g (float[3] x, float[3] z) => (float[3] y) { y = Sub(x, z) }")
    x, z = random(3), random(3, seed=1)
    kernel = compile(source)
    assert_close(kernel(z=z, x=x), [x - z])
    assert_close(kernel(x, z=z), [x - z])
    with pytest.raises(CompileError, match="the model has no input 'w' left; its inputs are: x, z"):
        kernel(x, w=z)
    with pytest.raises(CompileError, match="the model also takes 'z'"):
        kernel(x=x)


def test_missing_external_data(tmp_path):
    source = model("g (float[2,400] x) => (float[2,400] y) { y = Mul(x, w) }", w=random(400))
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(CompileError, match=r"m.onnx is no ONNX model: .*w.bin"):
        compile(tmp_path / "m.onnx")


WRONG_LOWERINGS = {
    "Mod of ONNX .node 'y'. .* of unsigned": "g (uint8[3] x, uint8[3] z) => (uint8[3] y) { y = Mod(x, z) }",
    "Abs of ONNX .* of unsigned integers": "g (uint8[3] x) => (uint8[3] y) { y = Abs(x) }",
    "Clip of ONNX .* of unsigned integers": "g (uint8[3] x, uint8 a, uint8 b) => (uint8[3] y) { y = Clip(x, a, b) }",
    "MatMulInteger of ONNX .* without a zero point": "g (uint8[3, 3] x, int8[3, 3] z) => (int32[3, 3] y) "
    "{ y = MatMulInteger(x, z) }",
    "Add of ONNX .node 'y'. .* of uint64": "g (uint64[3] x, uint64[3] z) => (uint64[3] y) { y = Add(x, z) }",
    "Reshape of ONNX .* of uint16": "g (uint16[2, 2] x) => (uint16[4] y) { s = Constant<value_ints = [4]>() "
    "y = Reshape(x, s) }",
    "Det of ONNX": "g (float[2, 2] x) => (float y) { y = Det(x) }",
    "Unique of ONNX .node 'y'. .* depends on the data": "g (float[3] x) => (float[n] y) { y = Unique(x) }",
    "Einsum of ONNX .* of scalars": 'g (float x) => (float y) { y = Einsum<equation = "->">(x) }',
}


@pytest.mark.parametrize("message", WRONG_LOWERINGS)
def test_what_the_importer_gets_wrong_is_refused(message):
    """Some of it ended the process."""
    with pytest.raises(CompileError, match=message):
        compile(model(WRONG_LOWERINGS[message], 18))


NO_SHAPES = {
    "an input": "g (float[2, 4, 6] x, float[4] s) => (float[] y, float[] x) { y = Neg(x) }",
    "a normalization": "g (float[2, 4, 6] x, float[4] s) => (float[] y) "
    "{ z = GroupNormalization<num_groups = 2>(x, s, s) y = Neg(z) }",
    "a default": "g (float[2, 4, 6] x, float[4] s) => (float[2, 4, 6, 1] y) "
    "{ a = Constant<value_ints = [3]>() z = Unsqueeze(x, a) y = MeanVarianceNormalization(z) }",
}


@pytest.mark.parametrize("what", NO_SHAPES)
def test_outputs_need_no_shape(what):
    source = model(NO_SHAPES[what], 21)
    inputs = [random(2, 4, 6), random(4)]
    assert_close(compile(source)(*inputs), reference(source, inputs))


def test_outputs_whose_rank_is_unknown_are_named():
    source = model("g (float[4] x, int64[r] n) => (float[] y) { y = Reshape(x, n) }")
    with pytest.raises(CompileError, match="the rank of output 'y' of the model is not known; declare its shape there"):
        compile(source)


@pytest.mark.parametrize("equation", ["bhqk,bhkd", "... k , k Q", "iij,j"])
@pytest.mark.parametrize("batch", ["2", "b"])
def test_einsums_that_do_not_say_what_they_make(equation, batch):
    shapes = {"bhqk,bhkd": ((2, 3, 4, 5), (2, 3, 5, 4)), "... k , k Q": ((2, 4, 5), (5, 3)), "iij,j": ((2, 2, 5), (5,))}
    inputs = [random(*shape, seed=i) for i, shape in enumerate(shapes[equation])]
    expected = np.einsum(equation, *inputs)
    declared = [", ".join([batch, *map(str, x.shape[1:])]) for x in inputs[:1]] + [", ".join(map(str, inputs[1].shape))]
    text = f"g (float[{declared[0]}] x, float[{declared[1]}] z) => (float[] y) "
    source = model(f'{text} {{ y = Einsum<equation = "{equation}">(x, z) }}')
    assert_close(compile(source, tuple(inputs))(*inputs), [expected])


PADS = {  # of [5, 4]
    "wrap": ((1, 2, 0, 0), (0, 7, 13, 5), (-1, 0, 2, 1), (0, 0, 0, 0)),
    "constant": ((-1, 0, 2, 0), (0, -2, 0, 0), (1, -1, -3, 0)),
    "edge": ((-1, 2, -1, -1), (2, -1, 0, 3)),
}


@pytest.mark.parametrize(("mode", "amounts"), [(mode, amounts) for mode in PADS for amounts in PADS[mode]])
def test_pads_that_cut_off_or_go_round(mode, amounts):
    """Of which some never ended."""
    cut, added = ([f(0, n) for n in amounts] for f in (min, max))
    shape = [n + sum(amounts[d::2]) for d, n in enumerate((5, 4))]
    text = f"g (float[5, 4] x) => (float{shape} y) {{ p = Constant<value_ints = {[*amounts]}>() "
    x = random(5, 4)
    expected = np.pad(x[-cut[0] : 5 + cut[2], -cut[1] : 4 + cut[3]], [added[::2], added[1::2]], mode)
    assert_close(compile(model(f'{text} y = Pad<mode = "{mode}">(x, p) }}', 19))(x), [expected])


def test_a_pad_of_some_axes_that_goes_round():
    body = """{ p = Constant<value_ints = [2, 0]>() a = Constant<value_ints = [-2]>()
      y = Pad<mode = "wrap">(x, p, , a) }"""
    x = random(2, 3)
    source = model(f"g (float[2, n] x) => (float[4, n] y) {body}", 19)
    assert_close(compile(source)(x), [np.pad(x, [(2, 0), (0, 0)], "wrap")])
    with pytest.raises(CompileError, match=r"Pad of ONNX .node 'y'. .* mode 'wrap' where sizes are not known"):
        compile(model(f"g (float[n, 3] x) => (float[m, 3] y) {body}", 19))


def test_failures_of_upstream_name_the_node():
    text = "g (float[3, 4] x) => (float[n] y) { b = Exp(x) c = Greater(b, x) y = Compress(b, c) }"
    with pytest.raises(CompileError, match=r"^y: error: no lowering to linalg: "):
        compile(model(text, 19))
