"""Where the results of kernels on a GPU go, by a driver that notes down what is launched: no GPU is needed."""

import math

import numpy as np
import pytest
from attn_opt.compiler import CompileError, compile
from attn_opt.compiler.graphs import Attention
from fake_cuda import fake_driver
from fake_tensors import K, Q, Tensor, V, arguments, graph, tensor


def test_results_go_where_the_caller_says(gpu, library):
    kernel = compile(graph(), target="nvidia", arch="sm_80")
    target = tensor((2, 64, 70), np.float32).transpose(0, 2, 1)
    wide = tensor((2, 70, 128), np.float32)[:, :, :64]
    wide.device = 0
    assert kernel(*arguments(), out=wide) is wide
    assert [gpu.launches[-1].word(9 + i) for i in range(3)] == [wide.ctypes.data, 70 * 128, 128]
    with pytest.warns(UserWarning, match="reads element by element"):
        assert kernel(*arguments(), out=target) is target
    with pytest.raises(CompileError, match=r"out must be an array of shape \(2, 70, 64\) and type f32"):
        kernel(*arguments(), out=tensor(Q))
    with pytest.raises(CompileError, match="out must be 1 arrays, but 2 were given"):
        kernel(*arguments(), out=(wide, wide))


def test_results_with_heads_in_groups(gpu, library):
    graph = Attention(batch=2, heads=8, heads_kv=2, queries=70, keys=90, head_size=64, element="f16", alibi=True)
    kernel = compile(graph.text(), target="nvidia", arch="sm_80")
    inputs = [tensor(x.shape, x.dtype) for x in graph.inputs()]
    out = kernel(*inputs)
    assert out.shape == (2, 8, 70, 64)
    heads_last = tensor((2, 70, 8, 64)).transpose(0, 2, 1, 3)
    heads_last.device = 0
    kernel(*inputs, out=heads_last)
    # Strides of batch, head of keys, head in its group, row.
    dense, wide = (launch.parameters[-5:] for launch in gpu.launches)
    assert dense == [out.ctypes.data, 8 * 70 * 64, 4 * 70 * 64, 70 * 64, 64]
    assert wide == [heads_last.ctypes.data, 70 * 8 * 64, 4 * 64, 64, 8 * 64]
    kernel.on_host().run([np.asarray(x) for x in inputs])
    assert gpu.launches[-1].grid == gpu.launches[0].grid == (2 * 8 * 2, 1, 1)


O, SPLIT, MERGED = "tensor<2x70x64xf32>", "tensor<1x2x70x64xf32>", "tensor<140x64xf32>"


EXPANDED = f"tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [1, 2, 70, 64] : {O} into {SPLIT}"


COLLAPSED = f"tensor.collapse_shape %o [[0, 1], [2]] : {O} into {MERGED}"


def returning(ops: dict[str, str], results: dict[str, str]) -> str:
    """As `graph`, with `ops` before the end, and `results`: values with their types."""
    made = "".join(f"  {name} = {op}\n" for name, op in ops.items())
    text = graph().replace(f"-> {O} {{\n  %c1", f"-> ({', '.join(results.values())}) {{\n  %c1")
    return text.replace(f"  return %o : {O}", f"{made}  return {', '.join(results)} : {', '.join(results.values())}")


@pytest.mark.parametrize("parts", [1, 2])
def test_results_in_another_shape(gpu, library, parts):
    text = returning({"%r": EXPANDED}, {"%r": SPLIT})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=parts)
    assert kernel._runtime.image.program.steps[-1].kind == "expand"
    inputs = arguments()
    out = kernel(*inputs)
    assert out.shape == (1, 2, 70, 64) and out.ctypes.data in gpu.launches[-1].parameters
    given = tensor((1, 2, 70, 64), np.float32)
    assert kernel(*inputs, out=given) is given and given.ctypes.data in gpu.launches[-1].parameters
    with pytest.raises(CompileError, match=r"out must be an array of shape \(1, 2, 70, 64\)"):
        kernel(*inputs, out=tensor((2, 70, 64), np.float32))
    found = compile(text, target="nvidia", arch="sm_80")(*(np.asarray(x) for x in inputs))
    assert found.shape == (1, 2, 70, 64)


def test_results_that_are_one_array(gpu, library):
    text = returning({"%r": EXPANDED, "%f": COLLAPSED}, {"%r": SPLIT, "%f": MERGED, "%o": O})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=1)
    results = kernel(*arguments())
    assert [r.shape for r in results] == [(1, 2, 70, 64), (140, 64), (2, 70, 64)]
    assert len({r.ctypes.data for r in results}) == 1
    with pytest.raises(CompileError, match="call without out"):
        kernel(*arguments(), out=tuple(tensor(r.shape, np.float32) for r in results))


def test_results_that_are_arguments(gpu, library):
    flat = "tensor.collapse_shape %q [[0, 1], [2]] : tensor<2x70x64xf16> into tensor<140x64xf16>"
    text = returning({"%f": flat}, {"%o": O, "%f": "tensor<140x64xf16>"})
    kernel = compile(text, target="nvidia", arch="sm_80", split_keys=1)
    q, k, v = arguments()
    _, found = kernel(q, k, v)
    assert found.shape == (140, 64) and found.ctypes.data == q.ctypes.data
    with pytest.raises(CompileError, match="result 1 is no array of its own"):
        kernel(q, k, v, out=(tensor(Q, np.float32), tensor((140, 64))))


CONSTANTS = """
func.func @main(%x: tensor<4x8xf32>)
    -> (tensor<2x3xf32>, tensor<4x8xf32>, tensor<3xi64>, tensor<f32>, tensor<0x3xf32>) {
  %zeros = arith.constant dense<0.0> : tensor<2x3xf32>
  %numbers = arith.constant dense<[1, 5, 7]> : tensor<3xi64>
  %number = arith.constant dense<2.5> : tensor<f32>
  %none = arith.constant dense<> : tensor<0x3xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.exp ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %zeros, %y, %numbers, %number, %none
      : tensor<2x3xf32>, tensor<4x8xf32>, tensor<3xi64>, tensor<f32>, tensor<0x3xf32>
}"""


def test_results_that_are_constants(gpu, library):
    """As the gradients of what has no influence are: kernels write them, for each call anew."""
    kernel, x = compile(CONSTANTS, target="nvidia", arch="sm_80"), tensor((4, 8), np.float32)
    found, again = kernel(x), kernel(x)
    assert [r.shape for r in found] == [(2, 3), (4, 8), (3,), (), (0, 3)]
    written = {word for launch in gpu.launches for word in launch.parameters}
    results = [r for r in (*found, *again) if r.size]
    assert written >= {r.ctypes.data for r in results} and len({r.ctypes.data for r in results}) == len(results)


def cached_graph() -> str:
    """As `graph`, with keys and values that are parts of a cache, as long as an argument says."""
    text = graph(dynamic=True).replace("tensor<2x?x64xf16>, %v: tensor<2x?x64xf16>", "KV").replace("%kk: KV", "KV")
    part = "[0, 0, 0] [2, %n, 64] [1, 1, 1] : tensor<2x90x64xf16> to tensor<2x?x64xf16>"
    slices = f"{{\n%kk = tensor.extract_slice %kc{part}\n%v = tensor.extract_slice %vc{part}\n"
    return text.replace("KV", "%kc: tensor<2x90x64xf16>, %vc: tensor<2x90x64xf16>, %n: index").replace("{\n", slices, 1)


def test_a_slice_beyond_its_tensor_is_an_error_of_the_call():
    """The length is only passed on to kernels: calls with other ones have the same plan, and are checked as well."""
    q, k, v = (np.zeros(s, np.float16) for s in (Q, K, V))
    with fake_driver() as fake:
        kernel = compile(cached_graph(), target="nvidia", arch="sm_80")
        for n in (0, 90):
            kernel(q, k, v, n)
        assert len(fake.launches) == 2
        for n in (91, -1):
            with pytest.raises(
                CompileError, match=f"dimension 1 of argument 1 is 90, .* 0 to {n} of it, as argument 3"
            ):
                kernel(q, k, v, n)
        assert len(fake.launches) == 2


@pytest.mark.parametrize("in_place", [False, True])
def test_numbers_are_what_their_type_has(library, in_place):
    """Of Python, of numpy, arrays without dimensions; the same for arrays on the host and on the GPU, and checked."""
    made = tensor if in_place else (lambda shape: np.zeros(shape, np.float16))
    q, k, v = map(made, (Q, K, V))
    with fake_driver() as fake:
        kernel = compile(cached_graph(), target="nvidia", arch="sm_80")
        for n in (7, 7.0, np.int32(7), np.uint8(7), np.float32(7), np.array(7), np.array(7, np.int32)):
            kernel(q, k, v, n)
            assert fake.launches[-1].parameters.count(7) == 1
        launches = len(fake.launches)
        for n, said in [
            (7.5, "but is 7.5"),
            (math.nan, "but is nan"),
            (None, "of type NoneType"),
            ("7", "of type str"),
        ]:
            with pytest.raises(CompileError, match=f"argument 3 must be index.*{said}"):
                kernel(q, k, v, n)
        with pytest.raises(CompileError, match=r"argument 3 must be index, a number, but is an array of shape \(1,\)"):
            kernel(q, k, v, np.array([7]))
        for n in (91, np.int32(91), 91.0, np.array(-1)):
            with pytest.raises(CompileError, match="dimension 1 of argument 1 is 90"):
                kernel(q, k, v, n)
        with pytest.raises(CompileError, match=f"argument 3 must be index, but is {2**70}"):
            kernel(q, k, v, 2**70)
        assert len(fake.launches) == launches


def test_results_are_not_written_over_arguments(gpu, library):
    """Of which tiles may be read again; and one memory is one result."""
    kernel = compile(Attention(queries=70, keys=70, element="f16").text(), target="nvidia", arch="sm_80")
    shape = (1, 1, 70, 64)
    whole = tensor((2, *shape))
    q, k, v = (tensor(shape) for _ in range(3))
    for out, message in [(k, "out 0 and argument 1 have memory"), (part(whole, 8), "out 0 and argument 0")]:
        with pytest.raises(CompileError, match=message):
            kernel(part(whole, 0) if out is not k else q, k, v, out=out)
    out = tensor((1, 1, 1, 64))
    spread = np.broadcast_to(out, shape).view(Tensor)
    with pytest.raises(CompileError, match=r"strides \(0, 0, 0, 1\): several of its elements may be one"):
        kernel(q, k, v, out=spread)
    with pytest.raises(CompileError, match="out 0 must be on the GPU as others are, but is a builtins"):
        kernel(q, k, v, out=[out])
    between = tensor((1, 1, 70, 128))
    kernel(between[..., :64], k, v, out=between[..., 64:])
    assert len(gpu.launches) == 1
    with pytest.warns(UserWarning, match="no multiple of 16"):
        kernel(q, k, v, out=tensor(shape, offset=2))
    assert len(gpu.loaded) == 2


def part(whole, row):
    found = whole.reshape(-1, 64)[row : row + 70].reshape(1, 1, 70, 64)
    found.device = 0
    return found


WRITTEN = """func.func @main(%cache: tensor<8x4xf32>, %row: tensor<1x4xf32>, %at: index) -> tensor<8x4xf32> {
  %0 = tensor.insert_slice %row into %cache[%at, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}"""


def test_results_in_the_memory_of_donated_arguments(gpu, library):
    kernel = compile(WRITTEN, target="nvidia", arch="sm_80", donate=[0])
    cache, row = tensor((8, 4), np.float32), tensor((1, 4), np.float32)
    assert kernel(cache, row, 3) is cache
    (launch,) = gpu.launches
    assert {row.ctypes.data, cache.ctypes.data} <= set(launch.parameters)
    with pytest.raises(CompileError, match="argument 0, which is donated, and 1 have memory in common"):
        kernel(cache, cache[2:3], 3)
    with pytest.raises(CompileError, match="result 0 is no array of its own"):
        kernel(cache, row, 3, out=tensor((8, 4), np.float32))
    found = kernel(np.zeros((8, 4), np.float32), np.ones((1, 4), np.float32), 3)
    assert found.shape == (8, 4)
