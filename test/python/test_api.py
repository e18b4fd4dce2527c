"""The Python interface: what it accepts, what it returns, and how it says no."""

import copy
import itertools
import pathlib
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.diagnostics import Bug

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
GENERATE = """
func.func @ones(%n: index) -> tensor<?xf32> {
  %0 = tensor.generate %n {
  ^bb0(%i: index):
    %one = arith.constant 1.0 : f32
    tensor.yield %one : f32
  } : tensor<?xf32>
  return %0 : tensor<?xf32>
}
"""
ADD = """
func.func @add(%a: tensor<?x5xf32>, %b: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %0 = linalg.add ins(%a, %b : tensor<?x5xf32>, tensor<?x5xf32>) outs(%a : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %0 : tensor<?x5xf32>
}
"""

FAR = """func.func @f(%a: tensor<1x9xf32>) -> tensor<2x8xf32> {
  %e = tensor.empty() : tensor<2x8xf32>
  %r = linalg.generic {indexing_maps = [
      affine_map<(i, j) -> (0, j + 9223372036854775807)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%a : tensor<1x9xf32>) outs(%e : tensor<2x8xf32>) {
  ^bb0(%x: f32, %old: f32):
    %y = arith.addf %x, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x8xf32>
  return %r : tensor<2x8xf32>
}"""
DECLARED = """func.func private @g(tensor<4xf32>) -> tensor<4xf32>
func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
DIMENSION = """func.func @f(%a: tensor<?x4xf32>, %b: tensor<?x4xf32>) -> (tensor<?x4xf32>, index) {
  %c7 = arith.constant 7 : index
  %0 = linalg.add ins(%a, %b : tensor<?x4xf32>, tensor<?x4xf32>) outs(%a : tensor<?x4xf32>) -> tensor<?x4xf32>
  %1 = tensor.dim %0, %c7 : tensor<?x4xf32>
  return %0, %1 : tensor<?x4xf32>, index
}
"""


class NoCapsule:
    def __dlpack__(self, **_):
        return 5

    def __dlpack_device__(self):
        return 1, 0


def normal(*shapes, dtype=np.float32):
    generator = np.random.default_rng(7)
    return [generator.standard_normal(shape).astype(dtype) for shape in shapes]


def softmax(x):
    p = np.exp(x - x.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def attention():
    return compile(EXAMPLES / "attention.mlir")


def test_a_kernel_computes_attention(attention):
    q, k, v = normal((451, 64), (387, 64), (387, 80))
    expected = softmax(q.astype(np.float64) @ k.T) @ v
    found = attention(q, k, v)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_stages_are_named_in_order_and_show_their_ir(attention):
    stages = attention.stages()
    assert stages[:3] == ["graph", "raised", "fused"]
    assert stages[-1] == "llvm"
    assert "451x387" in attention.ir("graph")
    fused = attention.ir("fused")
    assert "scf.for" in fused
    assert "linalg_ext.softmax" in fused
    assert "llvm.func" in attention.ir("llvm")
    with pytest.raises(CompileError, match="no stage 'nope'; the stages are: graph, raised, fused"):
        attention.ir("nope")


def test_the_ir_of_a_stage_can_be_compiled_again(attention):
    q, k, v = normal((451, 64), (387, 64), (387, 80))
    again = compile(attention.ir("fused"))
    np.testing.assert_allclose(again(q, k, v), attention(q, k, v), rtol=1e-4, atol=1e-5)


def test_sources_text_path_and_modules():
    from attn_opt.dialects import make_context
    from attn_opt.dialects.assembly import parse_module

    a, b = normal((4, 5), (4, 5))
    module = parse_module(ADD, "add.mlir", make_context())
    function = module.body.operations[0]
    for source in (ADD, module, module.operation, function):
        np.testing.assert_array_equal(compile(source)(a, b), a + b)
    path = str(EXAMPLES / "multihead_attention.mlir")
    assert compile(path).name == "multihead_attention"


def test_paths_with_unusual_names(tmp_path):
    path = tmp_path / "a copy (1).mlir"
    path.write_text(ADD)
    assert compile(str(path), fuse=False).name == "add"


def test_the_module_that_was_passed_is_left_alone():
    from attn_opt.dialects import make_context
    from attn_opt.dialects.assembly import parse_module

    module = parse_module((EXAMPLES / "attention.mlir").read_text(), "a.mlir", make_context())
    before = str(module)
    compile(module)
    assert str(module) == before


def test_options_choose_the_tiling():
    path = EXAMPLES / "attention.mlir"
    kernel = compile(path, tile_sizes=[64, 0, 48], tile_interchange=[2, 1, 0])
    assert kernel.ir("fused").count("scf.for") == 2
    assert "step %c48" in kernel.ir("fused")
    plain = compile(path, fuse=False)
    assert "fused" not in plain.stages()
    arguments = normal((451, 64), (387, 64), (387, 80))
    np.testing.assert_allclose(kernel(*arguments), plain(*arguments), rtol=1e-3, atol=1e-4)


def test_a_transform_script_is_run():
    kernel = compile(EXAMPLES / "multihead_attention.mlir")
    assert kernel.ir("fused").count("scf.for ") == 4
    assert "transform." not in kernel.ir("fused")


def test_several_functions_need_an_entry():
    text = ADD + ADD.replace("@add", "@sum")
    a, b = normal((4, 5), (4, 5))
    np.testing.assert_array_equal(compile(text, entry="sum")(a, b), a + b)
    hidden = compile(text.replace("func.func @sum", "func.func private @sum"), entry="sum", fuse=False)
    np.testing.assert_array_equal(hidden(a, b), a + b)
    with pytest.raises(CompileError, match="which of the functions add, sum is meant"):
        compile(text)
    with pytest.raises(CompileError, match="no function 'f'"):
        compile(text, entry="f")


@pytest.mark.parametrize("name", ["", "exp", "malloc", "llvm.memcpy", "../x", r"\C3\A4\22 b", "0"])
@pytest.mark.parametrize("target", ["cpu", "nvidia"])
def test_functions_of_any_name(name, target):
    """MLIR takes any text, what comes after it does not."""
    kernel = compile(ADD.replace("@add(", f'@"{name}"('), target=target)
    if target == "cpu":
        a, b = normal((4, 5), (4, 5))
        np.testing.assert_array_equal(kernel(a, b), a + b)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(kernel))(a, b), a + b)
    else:
        assert re.search(r"\.entry [A-Za-z_]\w*\(", kernel.ir("ptx"))


def test_several_results_come_as_a_tuple():
    text = """
    func.func @both(%a: tensor<3xf32>, %x: f32) -> (tensor<3xf32>, f32) {
      return %a, %x : tensor<3xf32>, f32
    }"""
    array, scalar = compile(text, fuse=False)(np.arange(3, dtype=np.float32), 2.5)
    np.testing.assert_array_equal(array, [0.0, 1.0, 2.0])
    assert scalar == 2.5


TYPES = {np.float64: "f64", np.float16: "f16", ml_dtypes.bfloat16: "bf16"}
TYPES |= {ml_dtypes.float8_e4m3fn: "f8E4M3FN", ml_dtypes.float8_e5m2: "f8E5M2"}


@pytest.mark.parametrize("dtype", TYPES)
def test_element_types(dtype):
    name = TYPES[dtype]
    a, b = normal((4, 5), (4, 5), dtype=dtype)
    found = compile(ADD.replace("f32", name), fuse=False)(a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, a + b)


def test_arguments_may_be_views_and_need_not_be_numpy():
    class Exported:
        """What a tensor of another library looks like."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    kernel = compile(ADD, fuse=False)
    a, b = normal((5, 4), (8, 5))
    expected = a.T + b[::2]
    np.testing.assert_array_equal(kernel(a.T, b[::2]), expected)
    np.testing.assert_array_equal(kernel(Exported(a.T.copy()), Exported(b[::2].copy())), expected)


def test_results_are_new_arrays():
    kernel = compile(ADD, fuse=False)
    a, b = normal((4, 5), (4, 5))
    kept = a.copy()
    first = kernel(a, b)
    second = kernel(a, b)
    first[...] = 0.0
    np.testing.assert_array_equal(a, kept)
    np.testing.assert_array_equal(second, a + b)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda a, b: (a,), "'add' takes 2 arguments, but 1 were given"),
        (lambda a, b: (a.astype(np.float64), b), "argument 0 must be tensor<?x5xf32>.*is an array of float64"),
        (lambda a, b: (a, b[:, :4]), r"argument 1 must be tensor<\?x5xf32>, but is an array of shape \(4, 4\)"),
        (lambda a, b: (a, b[0]), r"argument 1 must be tensor<\?x5xf32>, but is an array of shape \(5,\)"),
        (lambda a, b: (a, b[:3]), "dimension 0 of argument 1 must be 4, as dimension 0 of argument 0, but is 3"),
        (lambda a, b: (a, object()), "is no array"),
        (lambda a, b: (a, NoCapsule()), "argument 1, of type NoCapsule, is no array in the host's memory: "),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(CompileError, match=message.replace("<?x", r"<\?x")):
        compile(ADD, fuse=False)(*arguments(*normal((4, 5), (4, 5))))
    with pytest.raises(CompileError, match=message.replace("<?x", r"<\?x")):
        compile(ADD, arguments(*normal((4, 5), (4, 5))), fuse=False)


def test_shapes_that_were_right_before_are_checked_together():
    kernel = compile(ADD)
    arrays = [np.ones((n, 5), np.float32) for n in range(100)]
    for a in [*arrays, *arrays]:  # more than are remembered
        np.testing.assert_array_equal(kernel(a, a), a + a)
    for a, b in itertools.permutations([arrays[3], arrays[4], arrays[99]], 2):
        with pytest.raises(CompileError, match=f"dimension 0 of argument 1 must be {len(a)}, as dimension 0 of arg"):
            kernel(a, b)
    with pytest.raises(CompileError, match="argument 0 must be"):
        kernel(np.ones((3, 4), np.float32), arrays[3])
    with pytest.raises(CompileError, match="argument 0 must be"):
        kernel(np.ones((3, 4), np.float32), arrays[3])


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("func.func @f( {", {}, r"<string>:1:\d+: error: "),
        ("func.func @f() {\n  %0 = arith.nope : f32\n  return\n}", {}, r"<string>:2:\d+: error: .*arith\.nope"),
        ("missing.mlir", {}, r"missing\.mlir: error: cannot be read: no such file"),
        ("\0", {}, "<string>:1:1: error: expected MLIR assembly, but found a null character"),
        ("module {\n} \ud800", {}, "<string>:2:3: error: expected MLIR assembly, but found what is not UTF-8 text"),
        (ADD, {"example_args": 5}, r"example_args must be a tuple of arguments, but is of type int; write \(x,\)"),
        (pathlib.Path("missing"), {}, "missing: error: cannot be read"),
        ("/dev/zero", {}, "/dev/zero:1:1: error: expected MLIR assembly, but found a null character"),
        (ADD, {"target": "abacus"}, "unknown target 'abacus'; the targets are: cpu, nvidia"),
        (GENERATE, {"target": "nvidia"}, r"<string>:3:8: error: 'tensor\.generate' stands outside of the fused loops"),
        (ADD, {"tiles": 3}, "unknown option 'tiles'; the options are: entry, fuse"),
        (ADD, {"tile_sizes": [4]}, "nothing to tile"),
        (ADD, {"tile_sizes": ["a"]}, r"tile_sizes must be a sequence of integers, but is \['a'\]"),
        (ADD, {"tile_sizes": 4}, "tile_sizes must be a sequence of integers, but is 4"),
        (ADD, {"threads": 0}, r"threads must be a positive integer, at most \d+, but is 0"),
        (ADD, {"threads": 10**20}, r"threads must be a positive integer, at most \d+, but is 10+"),
        (ADD, {"arch": 80}, "arch must be a GPU's architecture, such as 'sm_90a', but is 80"),
        (ADD, {"multiprocessors": 0, "target": "nvidia"}, r"multiprocessors must be a positive .* but is 0"),
        (ADD, {"multiprocessors": 2**64}, r"multiprocessors must be a positive integer, at most \d+, but is \d+"),
        (ADD, {"fuse": np.ones(2)}, r"fuse must be True or False, but is array"),
        (ADD, {"split_keys": True}, r"split_keys must be 0 .* but is True"),
        (ADD, {"split_keys": 10**9}, r"split_keys must be 0 .* at most 1024, but is 10+"),
        (ADD, {"stages": True}, r"stages must be 0 .* but is True"),
        (ADD, {"listener": 3}, "listener must be a function of a diagnostic, but is 3"),
        (3, {}, "expects MLIR text, a path, a module or a function, but found int"),
        (softmax, {}, "example_args are needed to trace a Python function"),
        (
            "func.func @f(%a: tensor<4xf32>) { %0 = stablehlo.abs %a : tensor<4xf32> return }",
            {},
            r"Dialect `stablehlo' not found.*\nnote: StableHLO is read of functions alone: compile\(fn, args\)",
        ),
        ("module {}", {}, "<string>:1:1: error: there is no function"),
        (ADD, {"entry": "g"}, r"<string>: error: no function 'g' with a body; there are: "),
        (DECLARED, {}, r"<string>:1:1: error: @g is called, but has no body: give it one"),
        (DIMENSION, {}, r"<string>:4:8: error: there is no dimension 7 in tensor<\?x4xf32>"),
        (
            FAR,
            {"target": "nvidia"},
            r"<string>:3:8: error: computes with 9223372036854775808, which has more than 64 bits",
        ),
        (DECLARED, {"target": "nvidia"}, r"<string>:\d:\d+: error: 'func\.call' stands outside of the fused loops"),
        ("func.func @f(%a: memref<4xf32>) { return }", {}, r"<string>:1:\d+: error: .*memref<4xf32>"),
    ],
)
def test_what_cannot_be_compiled(source, options, message):
    with pytest.raises(CompileError, match=message):
        compile(source, **options)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("permutation = [1, 0]", "permutation = ]", "5:5"),
        ('["parallel", "parallel"]', '["parallel", 7]', "7:3"),  # or it allocates terabytes
        ("[[0], [1, 2]]", "[[], [1, 2]]", "8:3"),  # as it is verified
    ],
    ids=str,
)
def test_text_on_which_upstreams_parser_crashes(old, new, place):
    text = """
#id = affine_map<(i, j) -> (i, j)>
func.func @f(%x: tensor<2x6xf32>, %o: tensor<6x2xf32>) -> tensor<6x2x1xf32> {
  %0 = linalg.transpose ins(%x : tensor<2x6xf32>) outs(%o : tensor<6x2xf32>)
    permutation = [1, 0]
  // As it is.
  %1 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%0 : tensor<6x2xf32>) { ^bb0(%a: f32): linalg.yield %a : f32 } -> tensor<6x2xf32>
  %2 = tensor.expand_shape %1 [[0], [1, 2]]
    output_shape [6, 2, 1] : tensor<6x2xf32> into tensor<6x2x1xf32>
  return %2 : tensor<6x2x1xf32>
}
func.func private @g(%x: f32) -> f32 {
  return %x : f32
}"""  # noqa: E501
    compile(text)
    with pytest.raises(CompileError, match=f"<string>:{place}: error: upstream's parser .* on this line"):
        compile(text.replace(old, new))
    compile(text)


def test_tile_sizes_are_checked_with_the_place_of_the_root():
    with pytest.raises(CompileError, match=r"attention\.mlir:\d+:\d+: error: 4 tile sizes given"):
        compile(EXAMPLES / "attention.mlir", tile_sizes=[1, 2, 3, 4])
    with pytest.raises(CompileError, match="tile sizes are given, but the module holds a transform script"):
        compile(EXAMPLES / "multihead_attention.mlir", tile_sizes=[1])
    with pytest.raises(CompileError, match="tile sizes are given, but nothing is to be fused"):
        compile(EXAMPLES / "attention.mlir", tile_sizes=[1], fuse=False)


def test_tile_sizes_may_be_an_array():
    kernel = compile(EXAMPLES / "attention.mlir", tile_sizes=np.array([16, 0, 32]))
    assert kernel.ir("fused") == compile(EXAMPLES / "attention.mlir", tile_sizes=(16, 0, 32)).ir("fused")


def test_numpys_scalars_are_as_good_as_pythons():
    kernel = compile(ADD, fuse=np.bool_(False), threads=np.int64(1), split_keys=np.int32(1))
    a, b = normal((4, 5), (4, 5))
    np.testing.assert_array_equal(kernel(a, b), a + b)
    with pytest.raises(CompileError, match=r"threads must be a positive integer, at most \d+, but is 1.5"):
        compile(ADD, threads=np.float32(1.5))


def test_numbers_are_not_cut_to_integers():
    kernel = compile("func.func @f(%i: index, %x: f32) -> (index, f32) { return %i, %x : index, f32 }")
    assert kernel(7.0, 1) == (7, 1.0)
    with pytest.raises(CompileError, match=r"argument 0 must be index, but is 7\.9"):
        kernel(7.9, 1.0)


def test_kernels_are_pickled_and_copied():
    a, b = normal((4, 5), (4, 5))
    kernel = compile(ADD, fuse=False)
    assert copy.deepcopy(kernel) is kernel
    other = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(other(a, b), kernel(a, b))
    assert other.ir("graph") == kernel.ir("graph")
    np.testing.assert_array_equal(other(a.T.copy().T, b), kernel(a, b))


def test_errors_are_pickled():
    """As those of compiling in other processes are."""
    with pytest.raises(CompileError) as caught:
        compile("func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n  return %y : tensor<4xf32>\n}")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(copy) is CompileError and str(copy) == str(caught.value)
    assert copy.diagnostics == caught.value.diagnostics
    bug = pickle.loads(pickle.dumps(Bug("it broke", "builtin.module(cse)", "module {}")))
    assert (bug.what, bug.step, bug.ir) == ("it broke", "builtin.module(cse)", "module {}")


def test_importing_is_lazy():
    code = "import sys, attn_opt.compiler; print('torch_mlir' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_environment_variables_are_typed(monkeypatch):
    from attn_opt.compiler import env

    assert env.get("THREADS") is None
    monkeypatch.setenv("ATTN_OPT_THREADS", "3")
    assert env.get("THREADS") == 3
    monkeypatch.setenv("ATTN_OPT_THREADS", "many")
    with pytest.raises(ValueError, match="ATTN_OPT_THREADS=many: expects an integer from 1 to"):
        env.get("THREADS")
    with pytest.raises(CompileError, match="ATTN_OPT_THREADS=many: expects an integer from 1 to"):
        compile(ADD, fuse=False)


def test_arguments_are_given_in_order():
    x = np.zeros(4, np.float32)
    with pytest.raises(CompileError, match="has no argument 'foo': its arguments are given in order"):
        compile(ADD)(x, foo=x)
