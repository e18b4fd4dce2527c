"""Models of ONNX: attention is found in them, results are those of onnx's reference evaluator."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from attn_opt.compiler.api import CompileError, compile
from attn_opt.compiler.counts import stats

onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from onnx_harness import assert_close, model, random, reference, softmax  # noqa: E402

WINDOWS = """g (float[n,9,8] q, float[n,9,8] k, float[n,9,8] v, float[4,9,9] mask) => (float[n,9,8] y) {
    kt = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul(q, kt)
    split = Constant <value_ints = [-1, 4, 9, 9]> ()
    s4 = Reshape(s, split)
    x4 = Add(s4, mask)
    merged = Constant <value_ints = [-1, 9, 9]> ()
    x = Reshape(x4, merged)
    p = Softmax <axis = -1> (x)
    y = MatMul(p, v)
}"""


def test_windows_of_an_open_number_share_masks_in_one_kernel():
    kernel, mask = compile(model(WINDOWS)), random(4, 9, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (8, 12, 4):
            inputs = [*(random(n, 9, 8, seed=i) for i in range(3)), mask]
            assert_close(kernel(*inputs), reference(model(WINDOWS), inputs))
    with pytest.raises(CompileError, match="Dimension could not be inferred"):
        kernel(*[random(7, 9, 8)] * 3, mask)


def test_no_reshape_of_open_sizes_loses_elements():
    text = "g (float[n,6] x) => (float[m,2,6] y) { s = Constant <value_ints = [-1, 2, 6]> () y = Reshape(x, s) }"
    kernel, x = compile(model(text)), random(4, 6)
    assert_close(kernel(x), [x.reshape(-1, 2, 6)])
    with pytest.raises(CompileError, match="Dimension could not be inferred"):
        kernel(random(7, 6))


CACHE = """g (float[b,2,{n},8] q, float[b,2,{n},8] k, float[b,2,{n},8] v,
      float[b,2,16,8] keys, float[b,2,16,8] values{first}) =>
      (float[b,2,{n},8] y, float[b,2,16,8] new_keys, float[b,2,16,8] new_values) {{
    new_keys = TensorScatter <{attributes}> (keys, k{use})
    new_values = TensorScatter <{attributes}> (values, v{use})
    kt = Transpose <perm = [0, 1, 3, 2]> (new_keys)
    s = MatMul(q, kt)
    p = Softmax <axis = -1> (s)
    y = MatMul(p, new_values)
}}"""


@pytest.mark.parametrize("attributes", ["axis = 2", 'axis = -2, mode = "circular"'])
@pytest.mark.parametrize(("n", "with_first"), [(1, True), (3, True), (3, False)])
def test_caches_that_new_keys_are_written_to_are_attended_to(n, with_first, attributes):
    first, use = (", int64[b] first", ", first") if with_first else ("", "")
    text = CACHE.format(n=n, first=first, use=use, attributes=attributes)
    kernel = compile(model(text, 24))
    assert "1 attention found and fused" in kernel.explain()
    for b in (2, 3):
        inputs = [*(random(b, 2, n, 8, seed=i) for i in range(3)), random(b, 2, 16, 8), random(b, 2, 16, 8, seed=1)]
        if with_first:
            inputs.append(np.array([3, 14 if "circular" in attributes else 12, 0][:b], np.int64))
        assert_close(kernel(*inputs), reference(model(text, 24), inputs))


def test_inputs_that_are_donated():
    graph = "g (float[4,3] a, float[4,3] b) => (float[4,3] y) { y = Add(a, b) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    a, b = (random(4, 3, seed=i) for i in range(2))
    with pytest.warns(UserWarning, match="no result is made in the memory of donated argument 1"):
        np.testing.assert_array_equal(compile(model, donate=["b"])(a, b), a + b)
    with pytest.raises(CompileError, match="donate: there is no argument 'c'; the inputs are: a, b"):
        compile(model, donate=["c"])


BERT = """g (int64[b,s] ids, int64[b,s] mask) => (float[b,s,32] y) {
  e = Gather(emb, ids)
  x = LayerNormalization<axis=-1, epsilon=1e-5>(e, g1, b1)
  q0 = MatMul(x, wq)  k0 = MatMul(x, wk)  v0 = MatMul(x, wv)
  sh = Shape(x)
  i0 = Constant<value_int=0>()  i1 = Constant<value_int=1>()
  batch = Gather(sh, i0)  length = Gather(sh, i1)
  ax = Constant<value_ints=[0]>()
  batch1 = Unsqueeze(batch, ax)  length1 = Unsqueeze(length, ax)
  tail = Constant<value_ints=[4, 8]>()
  heads = Concat<axis=0>(batch1, length1, tail)
  q1 = Reshape(q0, heads)  k1 = Reshape(k0, heads)  v1 = Reshape(v0, heads)
  q = Transpose<perm=[0,2,1,3]>(q1)  k = Transpose<perm=[0,2,3,1]>(k1)  v = Transpose<perm=[0,2,1,3]>(v1)
  s0 = MatMul(q, k)
  scale = Constant<value_float=2.828427>()
  s1 = Div(s0, scale)
  ax12 = Constant<value_ints=[1,2]>()
  m0 = Unsqueeze(mask, ax12)
  m1 = Cast<to=1>(m0)
  one = Constant<value_float=1.0>()  low = Constant<value_float=-3.4e38>()
  m2 = Sub(one, m1)
  bias = Mul(m2, low)
  s2 = Add(s1, bias)
  p = Softmax<axis=-1>(s2)
  o0 = MatMul(p, v)
  o1 = Transpose<perm=[0,2,1,3]>(o0)
  width = Constant<value_ints=[32]>()
  flat = Concat<axis=0>(batch1, length1, width)
  o2 = Reshape(o1, flat)
  o3 = MatMul(o2, wo)
  r = Add(o3, x)
  h0 = MatMul(r, w1)
  root = Constant<value_float=1.4142135>()  half = Constant<value_float=0.5>()
  h1 = Div(h0, root)
  h2 = Erf(h1)
  h3 = Add(h2, one)
  h4 = Mul(h0, h3)
  h5 = Mul(h4, half)
  h6 = MatMul(h5, w2)
  y = Add(h6, r)
}"""
DECODER = """g (float[2,7,32] x, float[2,2,5,8] past_k, float[2,2,5,8] past_v)
    => (float[2,7,32] y, float[2,2,12,8] k_all, float[2,2,12,8] v_all) {
  n = RMSNormalization<axis=-1>(x, scale)
  q = MatMul(n, wq)  k = MatMul(n, wk)  v = MatMul(n, wv)
  o0, k_all, v_all = Attention<is_causal=1, q_num_heads=4, kv_num_heads=2>(q, k, v, , past_k, past_v)
  o1 = MatMul(o0, wo)
  a = Add(x, o1)
  u = Swish(a)
  y = Mul(u, a)
}"""
HALF = """g (float16[2,9,16] q, float16[2,11,16] k, float16[2,11,5] v) => (float16[2,9,5] o) {
  kt = Transpose<perm=[0,2,1]>(k)
  s0 = MatMul(q, kt)
  s1 = Mul(s0, scale)
  p = Softmax<axis=-1>(s1)
  o = MatMul(p, v)
}"""


def bert():
    shapes = {"emb": (50, 32), "g1": (32,), "b1": (32,), "w1": (32, 64), "w2": (64, 32)}
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (32, 32))
    return model(BERT, **{name: random(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())})


def bert_inputs(batch: int = 2, length: int = 13) -> list[np.ndarray]:
    mask = np.ones((batch, length), np.int64)
    mask[-1, length // 2 :] = 0
    return [np.random.default_rng(1).integers(0, 50, (batch, length)), mask]


def decoder():
    weights = {"wq": random(32, 32), "wk": random(32, 16), "wv": random(32, 16, seed=1), "wo": random(32, 32, seed=1)}
    return model(DECODER, 24, scale=random(32) + 1, **weights)


def decoder_inputs() -> list[np.ndarray]:
    return [random(2, 7, 32), random(2, 2, 5, 8), random(2, 2, 5, 8, seed=1)]


@pytest.mark.parametrize("inputs_given", [True, False], ids=["fixed sizes", "open sizes"])
def test_bert(inputs_given):
    source, before = bert(), stats()
    kernel = compile(source, bert_inputs() if inputs_given else None)
    assert stats()["compiled"] - before["compiled"] == 1
    assert_close(kernel(*bert_inputs()), reference(source, bert_inputs()))
    if not inputs_given:
        assert_close(kernel(*bert_inputs(3, 6)), reference(source, bert_inputs(3, 6)))


def test_decoder_from_a_file(tmp_path):
    source, before = decoder(), stats()
    onnx.save(source, tmp_path / "decoder.onnx")
    kernel = compile(str(tmp_path / "decoder.onnx"))
    assert stats()["compiled"] - before["compiled"] == 1
    assert kernel.inputs == ["x", "past_k", "past_v"]
    assert kernel.outputs == ["y", "k_all", "v_all"]
    assert_close(kernel(*decoder_inputs()), reference(source, decoder_inputs()))


def test_half_precision_is_computed_in_single():
    source = model(HALF, scale=np.array(0.25, np.float16))
    inputs = [(4 * random(*shape)).astype(np.float16) for shape in ((2, 9, 16), (2, 11, 16), (2, 11, 5))]
    before = stats()
    kernel = compile(source)
    assert stats()["compiled"] - before["compiled"] == 1
    q, k, v = (x.astype(np.float64) for x in inputs)
    e = np.exp(q @ k.swapaxes(1, 2) * 0.25)
    expected = e / e.sum(-1, keepdims=True) @ v
    found = kernel(*inputs)
    assert found.dtype == np.float16
    # Half a unit in the last place, and before it what f32 is off by, or two parts of bf16, as which AMX multiplies
    # f16: 2⁻¹⁶ of scores and values. In half precision scores alone would be off by 2⁻⁷.
    units = np.spacing(np.abs(found)).astype(np.float64)
    assert np.all(np.abs(found - expected) <= 0.51 * units + 2.0**-15 * np.abs(v).max())


def test_functions_of_the_model_are_inlined():
    source = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "own" : 1]>
    g (float[2,5,8] q, float[2,6,8] k, float[2,6,4] v) => (float[2,5,4] o) { o = own.attend(q, k, v) }
    <domain: "own", opset_import: ["" : 17]> attend (q, k, v) => (o) {
      kt = Transpose<perm=[0,2,1]>(k)
      s = MatMul(q, kt)
      p = Softmax<axis=-1>(s)
      o = MatMul(p, v)
    }""")
    inputs, before = [random(2, 5, 8), random(2, 6, 8), random(2, 6, 4)], stats()
    assert_close(compile(source)(*inputs), reference(source, inputs))
    assert stats()["compiled"] - before["compiled"] == 1


def test_models_of_old_versions():
    # Until version 12, softmax was over all dimensions from its axis on.
    x = random(2, 3, 4)
    e = np.exp(x.reshape(2, 12))
    expected = (e / e.sum(1, keepdims=True)).reshape(x.shape)
    assert_close(compile(model("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax<axis=1>(x) }", 11))(x), [expected])


def test_outputs_without_a_shape():
    source = model("g (float[3, 4] x) => (float[3, 4] y) { y = Softmax(x) }")
    source.graph.output[0].type.tensor_type.ClearField("shape")
    assert_close(compile(source)(random(3, 4)), reference(source, [random(3, 4)]))


def test_outputs_whose_shape_only_the_function_tells():
    """Present keys without past ones: the inference of the schema does not know their shapes."""
    q, k = random(2, 4, 5, 16), random(2, 2, 9, 16)
    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y", "key", "value"])
    floats = onnx.TensorProto.FLOAT
    inputs = [onnx.helper.make_tensor_value_info(n, floats, x.shape) for n, x in (("q", q), ("k", k), ("v", k))]
    outputs = [onnx.helper.make_tensor_value_info(n, floats, None) for n in node.output]
    graph = onnx.helper.make_graph([node], "g", inputs, outputs)
    y, key, value = compile(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)]))(q, k, k)
    np.testing.assert_array_equal(key, k)
    np.testing.assert_array_equal(value, k)
    wide = k.repeat(2, axis=1).astype(np.float64)
    e = np.exp(q @ wide.swapaxes(2, 3) / 4)
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True) @ wide, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exponent", [2, 5, -1, 0.5])
def test_powers(exponent):
    source = model("g (float[3,8] x) => (float[3,8] y) { a = Abs(x) y = Pow(a, n) }", n=np.array(exponent, np.float32))
    x = random(3, 8)
    assert_close(compile(source)(x), [np.abs(x) ** exponent])


def test_an_empty_past():
    source = model(
        """g (float[1,2,3,8] q, float[1,2,3,8] k, float[1,2,3,8] v, float[1,2,0,8] past_k, float[1,2,0,8] past_v)
        => (float[1,2,3,8] y, float[1,2,3,8] k_all, float[1,2,3,8] v_all) {
        y, k_all, v_all = Attention<is_causal=1>(q, k, v, , past_k, past_v) }""",
        23,
    )
    inputs = [random(1, 2, 3, 8, seed=i) for i in range(3)] + [random(1, 2, 0, 8)] * 2
    assert_close(compile(source)(*inputs), reference(source, inputs))


class TestBackend:
    def test_open_sizes_are_compiled_for_each_shape(self):
        from attn_opt.compiler.frontends.onnx import Backend

        prepared = Backend.prepare(bert())
        for inputs in (bert_inputs(), bert_inputs(1, 4), bert_inputs()):
            assert_close(prepared.run(inputs), reference(bert(), inputs))
        assert len(prepared.kernels) == 2

    def test_run_model_with_inputs_by_name(self):
        from attn_opt.compiler.frontends.onnx import Backend

        inputs = dict(zip(("x", "past_k", "past_v"), decoder_inputs(), strict=True))
        outputs = Backend.run_model(decoder(), inputs)
        assert_close((outputs.y, outputs.k_all, outputs.v_all), reference(decoder(), decoder_inputs()))

    def test_run_node(self):
        from attn_opt.compiler.frontends.onnx import Backend

        q, k, v = random(1, 2, 3, 8), random(1, 2, 5, 8), random(1, 2, 5, 8, seed=1)
        mask = np.ones((3, 5), bool)
        node = onnx.helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], scale=0.5)
        (found,) = Backend.run_node(node, [q, k, v, mask])
        e = np.exp(q.astype(np.float64) @ k.swapaxes(-1, -2) * 0.5)
        assert_close(found, [(e / e.sum(-1, keepdims=True) @ v).astype(np.float32)])

    def test_unsigned_integers(self):
        from attn_opt.compiler.frontends.onnx import Backend

        node = onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])
        (found,) = Backend.run_node(node, [np.array([[1, 250]], np.uint8), np.array([2, 1])])
        assert found.dtype == np.uint8
        assert found.tolist() == [[1], [250]]

    def test_devices(self):
        from attn_opt.compiler.frontends.onnx import Backend

        assert Backend.supports_device("CPU")
        assert not Backend.supports_device("CUDA:0")
        assert not Backend.supports_device("elsewhere")
        assert Backend.is_compatible(decoder())
        with pytest.raises(CompileError, match="unknown device 'CUDA'; the devices are: CPU"):
            Backend.prepare(decoder(), "CUDA")
        with pytest.raises(CompileError, match="unknown option 'speed'"):
            Backend.prepare(decoder(), speed=3)


def without_shapes(operator, *sizes):
    """A model of one node, of whose result no shape is declared, and of whose input none without `sizes`."""
    node = onnx.helper.make_node(operator, ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in (("x", sizes or None), ("y", None)))
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("operator", "sizes"), [("Relu", ()), ("Squeeze", ("a", 1, 3))])
def test_example_args_tell_what_the_model_does_not(operator, sizes):
    x = np.maximum(random(2, 1, 3), 0)
    assert_close(compile(without_shapes(operator, *sizes), (x,))(x), [x.squeeze() if sizes else x])


UNARY = "g (float[3] x) => (float[3] y) { y = %s(x) }"
OWN = '<ir_version: 9, opset_import: ["" : 17, "com.foo" : 1]>\ng (float[3] x) => (float[3] y) { y = com.foo.Bar(x) }'


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compile("/nowhere/m.onnx"), "/nowhere/m.onnx: error: cannot be read: no such file"),
        (lambda: compile(model(UNARY % "Nonsense")), "No Op registered for Nonsense"),
        (lambda: compile(model(UNARY % "Det")), "Input rank must be >= 2"),
        (lambda: compile(without_shapes("Relu")), r"the rank of input 'x' is not known\n.* example_args would fix"),
        (lambda: compile(without_shapes("Squeeze", "a", 1, 3)), "without axes where sizes are not known"),
        (lambda: compile(onnx.parser.parse_model(OWN)), "com.foo.Bar of ONNX .node 'y'. has no lowering to linalg"),
        (
            lambda: compile(model(UNARY.replace("float", "string") % "Identity")),
            "'x' of the model is a tensor of string",
        ),
        (lambda: compile(model(UNARY % "Relu"))(np.zeros(3)), "argument 0 must be tensor<3xf32>"),
        (lambda: compile(decoder(), decoder_inputs()[:1]), r"the model has 3 inputs \(x, past_k, past_v\), but 1"),
        (lambda: compile(decoder())(*decoder_inputs()[:1]), "the model takes 3 inputs"),
        (lambda: compile(decoder(), [random(2, 6, 32), *decoder_inputs()[1:]]), "input 'x' of the model has shape"),
        (lambda: compile(decoder(), example_kwargs={}), "example_kwargs: only for functions that are traced"),
    ],
)
def test_errors(make, message):
    with pytest.raises(CompileError, match=message):
        make()


def test_error_of_a_file_that_is_no_model(tmp_path):
    (tmp_path / "m.onnx").write_text("no model")
    with pytest.raises(CompileError, match=r"m.onnx is no ONNX model"):
        compile(tmp_path / "m.onnx")


def test_the_core_imports_no_framework():
    code = "import sys, attn_opt.compiler.api as a; a.compile; print({'onnx', 'jax', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_attention_for_the_gpu(gpu):
    """Masks that ONNX computes on the way stand around it, with constants of theirs."""
    kind = "float16[2, 4, 200, 64]"
    text = f"attention ({kind} q, {kind} k, {kind} v) => ({kind} o) {{ o = Attention<is_causal = 1>(q, k, v) }}"
    kernel = compile(model(text, opset=23), target="nvidia")
    assert kernel(*[np.zeros((2, 4, 200, 64), np.float16)] * 3).shape == (2, 4, 200, 64)
    assert "main_0" in [launch.kernel for launch in gpu.launches]


@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_of_double_is_as_accurate(scale):
    """By its definition the scale is computed in single precision."""
    given = "" if scale is None else f"<scale = {scale}>"
    kinds = ", ".join(f"double[2, 4, 9, 8] {name}" for name in "qkv")
    source = model(f"g ({kinds}) => (double[2, 4, 9, 8] y) {{ y = Attention{given}(q, k, v) }}", 23)
    q, k, v = (random(2, 4, 9, 8, seed=i).astype(np.float64) for i in range(3))
    factor = 8**-0.5 if scale is None else float(np.float32(scale))
    assert_close(compile(source)(q, k, v), [softmax(q @ k.swapaxes(-1, -2) * factor) @ v], 2e-15)
